"""Channels of tensors, and spaces of channels that are removed together; see :mod:`.flow`."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx, nn


class ExportError(ValueError):
    """The network cannot be shrunk to the requested size; the message names the layer."""


@dataclass(eq=False)
class Channels:
    """The channels of one tensor: their axis, and which of them are known constants."""

    space: int
    axis: int
    known: Tensor
    value: Tensor

    @property
    def size(self) -> int:
        return self.known.numel()


@dataclass(eq=False)
class Mix:
    """A layer that mixes channels by weights: linear, or a convolution without groups."""

    node: fx.Node
    module: nn.Module
    source: Channels
    target: Channels
    reads: Tensor  # (out, in): whether a weight is not zero


@dataclass(eq=False)
class Blocks:
    """A convolution with groups: each block of inputs stays together with the outputs that read it."""

    node: fx.Node
    module: Any
    source: Channels
    target: Channels


@dataclass(eq=False)
class Link:
    """Channel c of ``source`` is channels ``index[c]`` of ``target``: flattening, concatenation."""

    source: int
    target: int
    index: Tensor


class Spaces:
    """Sets of channels that are removed together, joined by union-find."""

    def __init__(self) -> None:
        self._parent: list[int] = []
        self._needed: list[Tensor] = []
        self._reasons: list[dict[str, bool]] = []

    def new(self, size: int) -> int:
        self._parent.append(len(self._parent))
        self._needed.append(torch.zeros(size, dtype=torch.bool))
        self._reasons.append({})
        return len(self._parent) - 1

    def find(self, space: int) -> int:
        while self._parent[space] != space:
            space = self._parent[space]
        return space

    def join(self, a: int, b: int) -> None:
        a, b = self.find(a), self.find(b)
        if a != b:
            self._parent[b] = a
            self._needed[a] |= self._needed[b]
            self._reasons[a] |= self._reasons[b]

    def needed(self, space: int) -> Tensor:
        return self._needed[self.find(space)]

    def need(self, space: int, which: Tensor) -> bool:
        """Mark channels as needed; returns whether that changed anything."""
        now = self._needed[self.find(space)]
        changed = bool((which & ~now).any())
        now |= which
        return changed

    def keep_all(self, space: int, reason: str, unknown: bool = False) -> None:
        """Keep all channels for this reason; ``unknown`` if only because an operation is not known."""
        self._needed[self.find(space)].fill_(True)
        self._reasons[self.find(space)][reason] = unknown

    def reasons(self, space: int, unknown_only: bool = False) -> list[str]:
        """The reasons to keep all channels of a space."""
        return [
            text for text, unknown in self._reasons[self.find(space)].items() if unknown or not unknown_only
        ]

    def roots(self) -> list[int]:
        return [space for space, parent in enumerate(self._parent) if space == parent]


def zero_padded(module: nn.Module) -> bool:
    """Whether a convolution pads its input with zeros."""
    if getattr(module, "padding_mode", None) != "zeros":
        return False
    if isinstance(module.padding, str):
        return module.padding == "same" and any(k > 1 for k in module.kernel_size)
    return any(p > 0 for p in module.padding)


def flattened_range(before: tuple, after: tuple) -> tuple[int, int] | None:
    """The first and last axis that a reshape merges; None if it does something else."""
    span = len(before) - len(after)
    if span < 0:
        return None
    for start in reversed(range(len(after))):
        merged = math.prod(before[start : start + span + 1])
        if (*before[:start], merged, *before[start + span + 1 :]) == tuple(after):
            return start, start + span
    return None

r"""A budget for a whole network, and the price of its sizes: :class:`Budget` and :class:`Price`.

The price of a network with k groups in each part (a space of coupled channels, a block) is

.. math:: price(k) = rest + \sum_{layers} price_l(k_{out}, k_{in}) + \sum_{blocks} each_b\, k_b.

For channels these are the parameters and multiply-accumulates of
:class:`trimreg.nn.structure.coupling.LayerShape`, or the times of a table. A block (heads of attention,
hidden units of a perceptron) has inputs and outputs of fixed width, so each of its groups costs the same.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from .coupling import Coupling, LayerShape

KINDS = ("macs", "parameters", "latency")


@dataclass(frozen=True)
class Budget:
    """What a whole network may cost after its export, as ``keep`` of :class:`trimreg.nn.TrimmedGroupL1`.

    Give one of ``macs``, ``parameters`` and ``latency``. A number below 1 is a fraction of what the network
    costs now.

    Parameters
    ----------
    macs : float or int, optional
        Multiply-accumulates per sample.
    parameters : float or int, optional
        Number of parameters.
    latency : float, optional
        Sum of the times in ``table``, in its unit; with a table in microseconds a fraction is not mistaken
        for a time.
    table : dict or callable, optional
        The time of each layer with weights as a function of its widths: ``table[name][outputs, inputs]``,
        ``table[name](outputs, inputs)`` or ``table(name, outputs, inputs)``. If a dict does not have the
        widths, the next larger ones count.
    min_keep : int or float
        What every layer keeps at least: a number of its groups, or a fraction.

    Examples
    --------
    >>> import torch
    >>> from torch import nn
    >>> from trimreg.nn import Budget, TrimmedGroupL1
    >>> net = nn.Sequential(nn.Linear(20, 100), nn.ReLU(), nn.Linear(100, 50), nn.ReLU(), nn.Linear(50, 3))
    >>> penalty = TrimmedGroupL1(net, keep=Budget(parameters=1000), example_input=torch.randn(2, 20))
    >>> 990 <= penalty.coupling.parameters(penalty.keep) <= 1000
    True
    """

    macs: float | None = None
    parameters: float | None = None
    latency: float | None = None
    table: Any = None
    min_keep: float = 1

    def __post_init__(self) -> None:
        given = [kind for kind in KINDS if getattr(self, kind) is not None]
        if len(given) != 1:
            raise ValueError(f"a Budget has one of macs, parameters and latency; got {given or 'none'}")
        for name in (given[0], "min_keep"):
            value = getattr(self, name)
            number = isinstance(value, numbers.Real) and not isinstance(value, bool)
            if not number or not 0 < float(value) < math.inf:
                raise ValueError(f"{name} of a Budget must be a positive number; got {value!r}")
        if (self.latency is None) != (self.table is None):
            raise ValueError("latency and table of a Budget need each other")
        if self.table is not None and not isinstance(self.table, Mapping) and not callable(self.table):
            raise TypeError(
                f"table of a Budget must be a dict by layer, or a callable; got {type(self.table).__name__}"
            )

    @property
    def kind(self) -> str:
        """What is counted: "macs", "parameters" or "latency"."""
        return next(kind for kind in KINDS if getattr(self, kind) is not None)

    def __repr__(self) -> str:
        least = "" if self.min_keep == 1 else f", min_keep={self.min_keep!r}"
        table = "" if self.table is None else ", table=..."
        return f"Budget({self.kind}={getattr(self, self.kind)!r}{table}{least})"


@dataclass(frozen=True)
class Price:
    """What a network costs as a function of how many groups its parts keep.

    Parameters
    ----------
    rest : float
        The price of everything that does not depend on the sizes.
    terms : list of (tuple of str, callable)
        The parts that a term depends on, and its price for their sizes.
    """

    rest: float
    terms: list[tuple[tuple[str, ...], Callable[[Mapping[str, int]], float]]]

    def __call__(self, kept: Mapping[str, int]) -> float:
        return self.rest + sum(term(kept) for _, term in self.terms)

    def saved(self, name: str, kept: Mapping[str, int], size: int) -> float:
        """How much less the network costs if one part has another size."""
        other = {**kept, name: size}
        return sum(term(kept) - term(other) for parts, term in self.terms if name in parts)

    def neighbors(self, name: str) -> set[str]:
        """The parts whose groups have another price when this one changes."""
        return {part for parts, _ in self.terms if name in parts for part in parts}


@dataclass(frozen=True)
class OfBlock:
    """The price of a block whose groups cost the same each."""

    name: str
    each: float

    def __call__(self, kept: Mapping[str, int]) -> float:
        return self.each * kept[self.name]


@dataclass(frozen=True)
class OfLayer:
    """The price of a layer between channels: by its shape, or with a table its time there.

    ``named`` has the part of each space that has a size, ``fixed`` the number of channels of the others.
    """

    layer: LayerShape
    kind: str
    named: dict[str, str]
    fixed: dict[str, int]
    table: Any = None
    known: dict = field(default_factory=dict)  # each pair of widths is looked up once

    def __call__(self, kept: Mapping[str, int]) -> float:
        sizes = self.fixed | {space: kept[name] for space, name in self.named.items()}
        if self.kind != "latency":
            return getattr(self.layer, self.kind)(sizes)
        pair = self.layer.outputs.size(sizes), self.layer.inputs.size(sizes)
        if pair not in self.known:
            self.known[pair] = float(self._time(*pair))
        return self.known[pair]

    def _time(self, outputs: int, inputs: int) -> float:
        name = self.layer.name
        if callable(self.table):
            return self.table(name, outputs, inputs)
        if callable(self.table[name]):
            return self.table[name](outputs, inputs)
        larger = [pair for pair in self.table[name] if pair[0] >= outputs and pair[1] >= inputs]
        if not larger:
            raise ValueError(
                f"table of a Budget: layer {name!r} has no time for {outputs} outputs and {inputs} inputs, "
                "or for more"
            )
        return self.table[name][min(larger)]


def price_of(
    budget: Budget,
    coupling: Coupling | None,
    spaces: Mapping[str, str],
    blocks: Mapping[str, tuple[int, int, int]],
    whole: tuple[int, int],
) -> Price:
    """The price of a network.

    Parameters
    ----------
    budget : Budget
    coupling : Coupling or None
    spaces : mapping of str to str
        The part that decides the size of each space; other spaces stay whole.
    blocks : mapping of str to (count, parameters, MACs)
        The groups of each block, and what one of them costs.
    whole : tuple of int
        Parameters and MACs of the network.
    """
    layers = {} if coupling is None else coupling.layers
    counts = {} if coupling is None else coupling.counts
    if budget.kind == "latency":
        _check_table(budget.table, layers, blocks)
        layers = {
            n: x
            for n, x in layers.items()
            if x.positions or (not callable(budget.table) and n in budget.table)
        }
    terms: list = []
    for layer in layers.values():
        own = dict.fromkeys((*layer.outputs.spaces, *layer.inputs.spaces))
        named = {space: spaces[space] for space in own if space in spaces}
        fixed = {space: counts[space] for space in own if space not in spaces}
        terms.append((tuple(named.values()), OfLayer(layer, budget.kind, named, fixed, budget.table)))
    at = 1 + (budget.kind == "macs")
    terms += [((name,), OfBlock(name, one[at])) for name, one in blocks.items()]
    dense = {spaces[space]: count for space, count in counts.items() if space in spaces}
    dense |= {name: one[0] for name, one in blocks.items()}
    known = sum(term(dense) for _, term in terms)
    total = known if budget.kind == "latency" else whole[at - 1]
    moving = [(parts, term) for parts, term in terms if parts]
    return Price(total - sum(term(dense) for _, term in moving), moving)


def _check_table(table: Any, layers: Mapping[str, LayerShape], blocks: Mapping[str, Any]) -> None:
    """Raise unless a table of times covers a network."""
    if blocks or not layers:
        raise ValueError(
            "a Budget of latency counts layers, not heads or units of the blocks "
            f"{', '.join(map(repr, blocks))}; use macs or parameters"
        )
    missing = [] if callable(table) else [n for n, x in layers.items() if x.positions and n not in table]
    if missing:
        raise ValueError(f"table of a Budget has no times of the layers {', '.join(map(repr, missing))}")

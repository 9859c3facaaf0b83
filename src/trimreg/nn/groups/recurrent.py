r"""Hidden units of recurrent layers as groups.

Unit u of a layer is computed by the rows ``u, u + H, u + 2H, ...`` of its two weights, one for each gate. It
is read by column u of the recurrent weight and by the layer above. If all its rows and biases are zero, its
gates are constant and its new value is :math:`\tanh(0) = 0`, so a state that begins at zero stays there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from .layer_groups import LayerGroups, Slab, layer_groups

#: The number of gates by class; a subclass is not known.
GATES = {nn.LSTM: 4, nn.GRU: 3, nn.RNN: 1}


@dataclass(frozen=True)
class GateSlab(Slab):
    """Entries of all gates: those of group g are ``g, g + count, g + 2 count, ...``."""

    gates: int = 1

    def view(self, tensor: Tensor, count: int, leading: int = 0) -> Tensor:
        """As for other slabs; the gates become the axis behind that of the groups."""
        return tensor.unflatten(self.axis, (self.gates, count)).transpose(self.axis, self.axis + 1)


def is_recurrent(module: nn.Module) -> bool:
    """Whether the hidden units of a module are known as groups."""
    return type(module) in GATES and not module.proj_size


def suffixes(module: Any) -> list[str]:
    """The ends of the names of the weights, by layer and direction: ``l0``, ``l0_reverse``, ``l1``, ..."""
    ways = ("", "_reverse") if module.bidirectional else ("",)
    return [f"l{layer}{way}" for layer in range(module.num_layers) for way in ways]


def part_names(name: str, module: Any) -> list[str]:
    """The names of the groups of each layer and direction; the name of the module if there is only one."""
    ends = suffixes(module)
    return [f"{name}.{end}" for end in ends] if len(ends) > 1 else [name]


def recurrent_groups(name: str, module: Any) -> tuple[LayerGroups, ...]:
    """The hidden units of every layer and direction, as groups of their own with the same count."""
    if type(module) not in GATES:
        known = ", ".join(f"nn.{kind.__name__}" for kind in GATES)
        raise TypeError(f"layer {name!r} must be exactly one of {known}; got a {type(module).__name__}")
    if module.proj_size:
        raise ValueError(
            f"layer {name!r} projects its hidden units (proj_size={module.proj_size}), which is not "
            "supported; use proj_size=0 and a linear layer behind it"
        )
    gates, ends = GATES[type(module)], suffixes(module)
    ways = 1 + module.bidirectional
    made = []
    for place, (part, end) in enumerate(zip(part_names(name, module), ends, strict=True)):
        slabs: list[Slab] = [GateSlab(module, f"weight_{of}_{end}", 0, gates=gates) for of in ("ih", "hh")]
        slabs.append(Slab(module, f"weight_hh_{end}", 1, counted=False))
        if module.bias:
            slabs += [GateSlab(module, f"bias_{of}_{end}", 0, 0, 1, False, gates) for of in ("ih", "hh")]
        layer, way = divmod(place, ways)
        for above in ends[(layer + 1) * ways : (layer + 2) * ways]:  # the layer above reads both directions
            slabs.append(Slab(module, f"weight_ih_{above}", 1, way * module.hidden_size, counted=False))
        made.append(LayerGroups(part, module, "units", module.hidden_size, tuple(slabs)))
    return tuple(made)


def all_groups(
    name: str, module: nn.Module, groups: str | Callable = "auto", parent: nn.Module | None = None
) -> tuple[LayerGroups, ...]:
    """The groups of a layer; of a recurrent layer with several parts, those of each part."""
    if isinstance(module, nn.RNNBase) and groups in ("auto", "units"):
        return recurrent_groups(name, module)
    return (layer_groups(name, module, groups, parent),)

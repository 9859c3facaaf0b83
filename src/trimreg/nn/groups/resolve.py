"""Resolve the user's arguments for a model: layers by name, glob or module; sizes and strengths."""

from __future__ import annotations

import difflib
import math
import numbers
import re
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor, nn
from torch.nn.modules.linear import NonDynamicallyQuantizableLinear

from ..structure.coupling import Coupling, couple
from .blocks import block_of
from .channels import WITH_CHANNELS, counts_channels, coupled_groups
from .everything import everything, is_value_for_all
from .layer_groups import LayerGroups, Slab, is_known, share_of
from .recurrent import all_groups

WRAPPERS = (nn.parallel.DistributedDataParallel, nn.DataParallel)


def unwrapped(module: nn.Module) -> nn.Module:
    """The module inside ``torch.compile``, DistributedDataParallel and DataParallel."""
    while True:
        if isinstance(module, WRAPPERS):
            module = module.module
        elif isinstance(getattr(module, "_orig_mod", None), nn.Module):
            module = module._orig_mod
        else:
            return module


def name_matches(name: str, glob: str) -> bool:
    """Whether a layer's name matches a glob.

    A glob without a dot matches the last part of the name, at any depth. In a glob with dots ``*`` matches
    within one part, and ``**`` any number of parts.
    """
    parts = name.split(".")
    return _parts_match(parts, glob.split(".")) if "." in glob else fnmatchcase(parts[-1], glob)


def _parts_match(parts: list[str], globs: list[str]) -> bool:
    if not globs:
        return not parts
    if globs[0] == "**":
        return any(_parts_match(parts[i:], globs[1:]) for i in range(len(parts) + 1))
    return bool(parts) and fnmatchcase(parts[0], globs[0]) and _parts_match(parts[1:], globs[1:])


def named_layers(model: nn.Module) -> dict[str, nn.Module]:
    """``named_modules`` of the model, without the names that compiling adds."""
    found = {}
    for name, module in unwrapped(model).named_modules():
        clean = ".".join(part for part in name.split(".") if part != "_orig_mod")
        found[clean] = unwrapped(module)
    return found


class Resolved(NamedTuple):
    """The layers that ``keep`` names, with their groups and sizes, in the order of the model."""

    layers: dict[str, tuple[LayerGroups, Any]]
    coupling: Coupling | None = None


def resolve_layers(
    model: nn.Module, keep: Any, groups: str | Callable | Mapping = "auto", example_input: Any = None
) -> Resolved:
    """The layers that ``keep`` names; with an example, convolutions are coupled with those of their channels.

    A name or a module overrides a glob. A glob matches only layers whose groups are known.
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"model must be a torch.nn.Module; got {type(model).__name__}")
    layers = named_layers(model)
    if is_value_for_all(keep):
        all_of_them, coupling = everything(unwrapped(model), layers, keep, groups, example_input)
        check_parameters(model, [layer for layer, _ in all_of_them.values()])
        return Resolved(all_of_them, coupling)
    if not isinstance(keep, Mapping) or not keep:
        raise TypeError(
            "keep must be a dict such as {'fc1': 392}, with at least one layer, or one value for all layers: "
            f"an integer, a fraction between 0 and 1, or a Budget; got {keep!r}"
        )
    kinds = matched(groups, layers, "groups") if isinstance(groups, Mapping) else {}

    def kind_of(name):
        return kinds.get(name, "auto") if isinstance(groups, Mapping) else groups

    def is_layer(name):
        if kind_of(name) == "channels":
            return isinstance(layers[name], WITH_CHANNELS)
        return is_known(layers[name]) or callable(groups)

    def is_block(name):
        kind = kind_of(name)
        return isinstance(kind, str) and block_of(layers[name], kind, above(name, layers)) is not None

    ranges = {key: size for key, size in keep.items() if key not in layers and is_range(key)}
    if ranges and example_input is None:
        raise ValueError(f"keep: {next(iter(ranges))!r} is a range of channels, which needs an example_input")
    keys = {key: size for key, size in keep.items() if key not in ranges}
    asked = matched(keys, layers, "keep", (is_layer, is_block))
    by_channel = ranges | {
        name: asked[name]
        for name in layers
        if name in asked and counts_channels(layers[name], kind_of(name), example_input)
    }
    # The groups of a block are complete, also in models that cannot be traced.
    alone = not ranges and all(
        isinstance(layers[name], nn.MultiheadAttention) or not is_layer(name) for name in asked
    )
    coupling = None if example_input is None or alone else couple(unwrapped(model), example_input)
    joined = {}
    if coupling is not None and by_channel:
        exact = {name for name in by_channel if name in keep or layers[name] in keep}
        if unknown := ranges.keys() - coupling.spaces.keys():
            raise ValueError(
                f"keep names {min(unknown)!r}, but the channels go by {', '.join(coupling.spaces)}"
            )
        joined = coupled_groups(coupling, layers, by_channel, exact)
    found = {}
    for name, module in layers.items():
        if name in joined:
            found[name] = joined[name]
        elif name in asked and name not in by_channel:
            for made in all_groups(name, module, kind_of(name), above(name, layers)):
                found[made.name] = (made, asked[name])
    found |= {name: one for name, one in joined.items() if name not in layers}
    check_parameters(model, [layer for layer, _ in found.values()])
    return Resolved(found, coupling)


def is_range(key: Any) -> bool:
    """Whether a key of ``keep`` is a range of channels of a layer, such as ``"conv[0:8]"``."""
    return isinstance(key, str) and re.fullmatch(r".+\[\d+:\d+\]", key) is not None


def above(name: str, layers: dict[str, nn.Module]) -> nn.Module | None:
    """The module that contains a layer; None for the whole model."""
    return layers[name.rpartition(".")[0]] if name else None


def matched(
    keys: Mapping, layers: dict[str, nn.Module], what: str, globs_take: Sequence[Callable] = ()
) -> dict[str, Any]:
    """The values of a dict over names, globs and modules, by the names of the layers.

    A glob stands for the layers that the first of ``globs_take`` accepts, or if there are none, the next.
    """
    names = {id(module): name for name, module in reversed(layers.items())}
    exact: dict[str, Any] = {}
    by_glob: dict[str, tuple[str, Any]] = {}
    for key, value in keys.items():
        if isinstance(key, nn.Module):
            name = names.get(id(unwrapped(key)))
            if name is None:
                raise ValueError(f"{what}: the module {type(key).__name__} is not part of the model")
        elif not isinstance(key, str):
            raise TypeError(f"the keys of {what} must be names, globs or modules of the model; got {key!r}")
        elif key in layers:
            name = key
        else:
            _match_glob(key, value, layers, what, globs_take or (lambda name: True,), by_glob)
            continue
        if name in exact:
            raise ValueError(f"{what} names the layer {name!r} twice")
        exact[name] = value
    return {name: value for name, (_, value) in by_glob.items()} | exact


def _match_glob(key, value, layers, what, takes, by_glob):
    if not any(mark in key for mark in "*?["):
        raise ValueError(f"{what} names {key!r}, which is not a layer of the model; {_nearest(key, layers)}")
    # The output projection of attention belongs to its heads; it is not a layer of its own.
    own = [n for n, m in layers.items() if n and not isinstance(m, NonDynamicallyQuantizableLinear)]
    named = [name for name in own if name_matches(name, key)]
    hits: list[str] = next(filter(None, ([name for name in named if take(name)] for take in takes)), [])
    if not any(map(takes[0], hits)):  # of a block and the part that computes its groups, the block
        hits = [name for name in hits if not any(name.startswith(f"{whole}.") for whole in hits)]
    if not hits:
        deep = key.startswith("*.") and any(name_matches(name, f"*{key}") for name in own)
        deeper = f"use {'*' + key!r} for any depth; " if deep else ""
        raise ValueError(f"{what}: {key!r} matches no layer with groups; {deeper}{_nearest(key, layers)}")
    for name in hits:
        if name in by_glob and by_glob[name][1] != value:
            both = f"{by_glob[name][0]!r} and {key!r}"
            raise ValueError(f"{what}: layer {name!r} matches {both} with different values; name it in full")
        by_glob[name] = (key, value)


def _nearest(key: str, layers: dict[str, nn.Module]) -> str:
    known = [name for name, module in layers.items() if name and is_known(module)]
    near = difflib.get_close_matches(key, known, n=3, cutoff=0.4) or known[:8]
    return f"the nearest names are {', '.join(map(repr, near)) or 'none: it has no layer with known groups'}"


def check_parameters(model: nn.Module, layers: list[LayerGroups]) -> None:
    """Raise if a parameter cannot be trimmed: one that is shared, frozen, computed or on the meta device."""
    places: dict[int, list[str]] = {}
    for name, parameter in unwrapped(model).named_parameters(remove_duplicate=False):
        places.setdefault(id(parameter), []).append(name)
    taken: dict[int, list[tuple[LayerGroups, Slab]]] = {}
    for layer in layers:
        for slab in layer.slabs:
            parameter, where = slab.tensor(), f"layer {layer.name!r}: {slab.attribute}"
            names = places.get(id(parameter), [])
            if layer.coupled and names:
                where = f"layer {layer.name!r}: {names[0]}"
            if not isinstance(parameter, nn.Parameter):
                raise ValueError(f"{where} is computed from other tensors; remove the parametrization first")
            if not parameter.is_floating_point():
                raise TypeError(f"{where} must have a real floating-point dtype; got {parameter.dtype}")
            if parameter.is_meta:
                raise ValueError(f"{where} is on the meta device; load or initialize the weights first")
            if not parameter.requires_grad:
                raise ValueError(f"{where} is frozen (requires_grad is False); leave the layer out")
            if len(names) > 1:
                shared = " and ".join(map(repr, names))
                raise ValueError(f"{where} is shared: it is {shared}; untie them or leave the layer out")
            for other, there in taken.setdefault(id(parameter), []):
                # The parts of a recurrent layer share weights.
                if other.module is not layer.module and not _apart((layer, slab), (other, there)):
                    raise ValueError(f"{where} also belongs to layer {other.name!r}; leave one out")
            taken[id(parameter)].append((layer, slab))


def _apart(one: tuple[LayerGroups, Slab], two: tuple[LayerGroups, Slab]) -> bool:
    """Whether groups may be trimmed side by side in one parameter: rows and columns, or other channels."""
    if one[1].axis != two[1].axis:
        return "channels" in (one[0].kind, two[0].kind)
    (low, high), (low2, high2) = ((s.start, s.start + g.count * s.block) for g, s in (one, two))
    return one[0].kind == two[0].kind == "channels" and (high <= low2 or high2 <= low)


def checked_size(name: str, count: int, replicas: tuple[int, ...], size: Any) -> Any:
    """``size`` as an integer from 1 to ``count``; for an ensemble also a tuple with one per replica."""
    if isinstance(size, (Sequence, np.ndarray, Tensor)) and not isinstance(size, str):
        each = _per_replica(name, replicas, size, "keep")
        return tuple(checked_size(name, count, (), one) for one in each)
    size = share_of(count, size)
    if isinstance(size, (bool, np.bool_)) or not isinstance(size, numbers.Integral):
        raise TypeError(
            f"layer {name!r}: keep must be an integer, the number of groups, or a fraction of them between "
            f"0 and 1; got {size!r}"
        )
    size = int(size)
    if size < 1:
        raise ValueError(f"layer {name!r}: keep must be at least 1; got {size}")
    if size > count:
        raise ValueError(f"layer {name!r}: keep must be at most its number of groups, {count}; got {size}")
    return size


def checked_strength(name: str, replicas: tuple[int, ...], alpha: Any) -> Any:
    """``alpha`` of a layer as a nonnegative float, or as a tuple with one per replica."""
    if isinstance(alpha, (Sequence, np.ndarray)) and not isinstance(alpha, str):
        return tuple(checked_strength(name, (), a) for a in _per_replica(name, replicas, alpha, "alpha"))
    if isinstance(alpha, (bool, np.bool_)) or not isinstance(alpha, numbers.Real):
        raise TypeError(f"layer {name!r}: alpha must be a number, or a dict by layer; got {alpha!r}")
    if math.isnan(alpha) or alpha < 0:
        raise ValueError(f"layer {name!r}: alpha must not be negative or NaN; got {alpha!r}")
    return float(alpha)


def _per_replica(name: str, replicas: tuple[int, ...], values: Any, what: str) -> list:
    values = values.tolist() if isinstance(values, (np.ndarray, Tensor)) else list(values)
    if not replicas:
        raise TypeError(f"layer {name!r} is not an ensemble: {what} must be one number; got {values!r}")
    count = math.prod(replicas)
    if len(values) != count:
        raise ValueError(
            f"layer {name!r} has {count} replicas: {what} must have {count} values; got {values!r}"
        )
    return values


def strengths(alpha: Any, layers: dict[str, LayerGroups], model: nn.Module) -> dict[str, float | tuple]:
    """``alpha`` of every layer, from one number for all or a dict with the same kinds of keys as ``keep``."""
    if isinstance(alpha, Mapping):
        named = named_layers(model)
        owner = {member: name for name, layer in layers.items() for member in layer.coupled}
        parts = {
            name: key for name, x in layers.items() for key, module in named.items() if x.module is module
        }
        owner |= {key: name for name, key in parts.items()}
        given: dict[str, Any] = {}
        for name, value in matched(alpha, named, "alpha", [owner.__contains__]).items():
            key = parts.get(owner.get(name, ""), name)
            if given.setdefault(key, value) != value:
                raise ValueError(f"alpha: {name!r} has another value than {key!r}, whose channels it has")
        parts = {name: key for name, key in parts.items() if key in given}
        missing = [n for n in layers if n not in parts]
        strange = [n for n in given if n not in parts.values()]
        if missing or strange:
            raise ValueError(
                f"alpha and keep must name the same layers; missing: {missing}; not in keep: {strange}"
            )
        given = {name: given[key] for name, key in parts.items()}
    else:
        given = dict.fromkeys(layers, alpha)
    return {name: checked_strength(name, layer.replicas, given[name]) for name, layer in layers.items()}

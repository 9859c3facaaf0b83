"""Shrinking a network that cannot be traced, with the dependency graph of torch-pruning.

That package (G. Fang et al., "DepGraph: towards any structural pruning", CVPR 2023) finds from one run of the
network which channels of which layers must be removed together. It does not tell whether that changes the
output: it also removes biases of removed channels and scattered flattened inputs, which is wrong. So every
channel is checked before, and every layer after it was shrunk. Its walk through the graph does not always end
either: it miscounts the channels of nested concatenations, and the indices grow without bound. So the steps
of a walk are counted.
"""

from __future__ import annotations

import copy
import warnings
from typing import Any

import torch
from torch import nn

from ..structure.catalog import BATCH_NORMS, CONVOLUTIONS, LINEAR, MIXING_MODULES
from ..structure.spaces import ExportError
from ..structure.tracing import TOLERANCE, first_line, moved, relative_difference, tensors_in
from .masking import Asked
from .shrink import Kept

_WEIGHTED = (*LINEAR, *CONVOLUTIONS)
#: Layers that keep channels for a known reason; an embedding is the other term of a sum.
_HOLDING = (*MIXING_MODULES, *BATCH_NORMS, nn.Embedding)
_COUPLED = "layers that are coupled to it"
_MISCOUNTED = "whose channels torch-pruning miscounts"


class _Stays(Exception):
    """The reason why channels stay, and whether it is only that an operation is not known."""

    def __init__(self, reason: str, unknown: bool = False):
        super().__init__(reason)
        self.reason, self.unknown = reason, unknown


class _Lost(_Stays):
    """A walk through the graph that does not end."""


def shrink_by_dependency(
    model: nn.Module, asked: dict[str, Asked], inputs: tuple
) -> tuple[nn.Module, dict[str, Kept]]:
    """A smaller model of the same class, and what stays of each layer; embeddings and heads stay whole."""
    with torch.no_grad():
        wanted = model(*moved(inputs))
    reasons: dict[str, list[_Stays]] = {}
    graph = _Graph(model, inputs)
    for name, layer in asked.items():
        module = model.get_submodule(name)
        reasons[name] = _obstacles(graph, module, layer)
        if reasons[name]:
            continue
        cut, reasons[name] = _removable(graph, module, layer.slab.axis)
        if cut:
            backup = copy.deepcopy(model)
            try:
                _cut(graph, module, layer.slab.axis, cut)
                _compare(model, inputs, wanted)
            except _Stays as stays:
                reasons[name].append(stays)
                model = backup
                graph = _Graph(model, inputs)
        # Only the number of channels matters: their indices are lost once a layer has shrunk twice.
    kept = {}
    for name, layer in asked.items():
        module = model.get_submodule(name)
        known = [stays.reason for stays in reasons[name] if not stays.unknown]
        unknown = [stays.reason for stays in reasons[name] if stays.unknown]
        kept[name] = Kept(kept_by=known or ([] if unknown else [_COUPLED]), unknown=unknown)
        if type(module) in _WEIGHTED and layer.slab.block == 1:
            kept[name].rows, kept[name].columns = map(torch.arange, module.weight.shape[:2])
    return model, kept


def _obstacles(graph: _Graph, module: nn.Module, layer: Asked) -> list[_Stays]:
    """The reasons why nothing can be removed from a layer, whatever its groups; empty if there are none."""
    slab = layer.slab
    if type(module) not in _WEIGHTED:
        return [_Stays(f"its kind ({type(module).__name__})", unknown=True)]
    if slab.attribute != "weight" or (slab.start, slab.block) != (0, 1):
        return [_Stays("its groups, which are not rows or columns of its weight", unknown=True)]
    if module not in graph.nodes:
        return [_Stays("a module that torch-pruning does not look into, or that is never called", True)]
    return []


# -- the graph of torch-pruning -----------------------------------------------------------------------------


class _Graph:
    """torch-pruning's graph of a network, with walks that end."""

    def __init__(self, model: nn.Module, inputs: tuple):
        self._graph = _built(model, inputs)
        self.names = {module: name for name, module in model.named_modules()}
        self.nodes = self._graph.module2node
        edges = sum(len(node.dependencies) for node in self.nodes.values())
        # Walks that end take up to three steps per edge, even with forty nested concatenations.
        self._most_steps, self._steps = 200 + 5 * edges, 0
        for node in self.nodes.values():
            node.dependencies = _Counted(node.dependencies, self)

    def count_step(self) -> None:
        """Count a step of a walk; raise if there are too many."""
        self._steps += 1
        if self._steps > self._most_steps:
            raise _Lost("concatenations or reshapes that torch-pruning cannot follow", unknown=True)

    def group(self, module: nn.Module, axis: int, indices: list[int]) -> Any:
        """Everything that must be removed with these channels of a layer."""
        pruner = self._graph.get_pruner_of_module(module)
        prune = pruner.prune_in_channels if axis == 1 else pruner.prune_out_channels
        self._steps = 0
        try:
            return self._graph.get_pruning_group(module, prune, indices)
        except _Lost:
            raise
        except Exception as failure:
            raise _Stays(f"a step that torch-pruning fails on ({first_line(failure)})", True) from failure

    def gives(self, dependency: Any) -> bool:
        """Whether the channels of a member of a group are outputs of its layer, not inputs."""
        return self._graph.is_out_channel_pruning_fn(dependency.handler)


class _Counted(list):
    """The edges of a node. A walk reads them each time it comes to the node, so its steps can be counted
    here without a copy of torch-pruning's code."""

    def __init__(self, edges: list, graph: _Graph):
        super().__init__(edges)
        self._graph = graph

    def __iter__(self):
        self._graph.count_step()
        return super().__iter__()


def _built(model: nn.Module, inputs: tuple) -> Any:
    try:
        import torch_pruning
    except ImportError as missing:
        raise ImportError("this model needs torch-pruning: pip install 'trimreg[export]'") from missing
    frozen = [p for p in model.parameters() if not p.requires_grad]
    for parameter in frozen:
        parameter.requires_grad_(True)  # torch-pruning reads autograd's graph
    try:
        with warnings.catch_warnings(), torch.enable_grad():
            warnings.simplefilter("ignore")  # about parameters without a layer, which stay
            return torch_pruning.DependencyGraph().build_dependency(
                model, example_inputs=moved(inputs), verbose=False
            )
    except Exception as failure:
        raise ExportError(f"torch-pruning fails on {type(model).__name__}: {failure}") from failure
    finally:
        for parameter in frozen:
            parameter.requires_grad_(False)


def _cut(graph: _Graph, module: nn.Module, axis: int, indices: list[int]) -> None:
    try:
        graph.group(module, axis, indices).prune()
    except (IndexError, RuntimeError) as failure:
        raise _Stays(f"{_COUPLED} in a way that does not fit ({first_line(failure)})") from failure


# -- checks -------------------------------------------------------------------------------------------------


def _removable(graph: _Graph, module: nn.Module, axis: int) -> tuple[list[int], list[_Stays]]:
    """Zero groups of a layer that can be removed with everything coupled to them, and why others stay."""
    others = tuple(d for d in range(module.weight.dim()) if d != axis)
    zero = (~module.weight.detach().ne(0).any(others)).nonzero().flatten().tolist() if others else []
    found, reasons = [], {}
    for index in zero:
        try:
            _check_unused(graph, graph.group(module, axis, [index]))
            found.append(index)
        except _Stays as stays:
            reasons[stays.reason] = stays
            if isinstance(stays, _Lost):
                break  # the others would take as long
    return found[: module.weight.shape[axis] - 1], list(reasons.values())  # one group always stays


def _check_unused(graph: _Graph, group: Any) -> None:
    """Raise unless coupled channels are zero in all layers that compute them, or unread in all others."""
    made_zero = unread = True
    for dependency, index in group.items:
        module = dependency.target.module
        index = [getattr(i, "idx", i) for i in index]
        label = f"{graph.names.get(module)} ({type(module).__name__})"
        if type(module) in _WEIGHTED:
            gives = graph.gives(dependency)
            weight = module.weight.detach()
            if max(index, default=0) >= weight.shape[0 if gives else 1]:
                raise _Stays(f"{label}, {_MISCOUNTED}")  # in grouped convolutions, or behind a gather
            if not gives:
                unread &= not bool(weight[:, index].ne(0).any())
                continue
            made_zero &= not bool(weight[index].ne(0).any())
            made_zero &= module.bias is None or not bool(module.bias.detach()[index].ne(0).any())
        elif type(module) in BATCH_NORMS and module.running_mean is not None:
            if max(index, default=0) >= module.num_features:
                raise _Stays(f"{label}, {_MISCOUNTED}")
            shift = -module.running_mean * (module.running_var + module.eps).rsqrt()
            if module.affine:
                shift = shift * module.weight.detach() + module.bias.detach()
            made_zero &= not bool(shift[index].ne(0).any())
        elif type(module) is nn.PReLU:
            continue  # it gives zero for zero
        elif any(True for _ in getattr(module, "parameters", list)()):
            raise _Stays(label, unknown=type(module) not in _HOLDING)
    if not made_zero and not unread:
        raise _Stays(_COUPLED)


def _compare(model: nn.Module, inputs: tuple, wanted: Any) -> None:
    """Raise if the smaller network does not give the wanted outputs."""
    try:
        with torch.no_grad():
            outputs = model(*moved(inputs))
    except Exception as failure:  # view(-1, 800), a gather: without a graph they cannot be changed
        raise _Stays(f"a step of fixed width ({first_line(failure)})") from failure
    if [t.shape for t in tensors_in(outputs)] != [t.shape for t in tensors_in(wanted)]:
        raise _Stays("the network's output")
    if not relative_difference(wanted, outputs) <= TOLERANCE:
        raise _Stays("a step that does not give zero for zero, or that torch-pruning misreads", unknown=True)

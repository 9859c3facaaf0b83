"""Shrinking a network that cannot be traced, by the dependency graph of torch-pruning.

That package (G. Fang et al., "DepGraph: towards any structural pruning", CVPR 2023) finds which channels of
which layers must be cut together from one run of the network. It says what hangs together, not whether
cutting changes the output: biases of cut channels and scattered flattened inputs are cut along, wrongly. So
every channel is checked first, and every layer after it was cut.
"""

from __future__ import annotations

import copy
import warnings

import torch
from torch import nn

from .masking import Asked, moved
from .shrink import Kept
from .spaces import ExportError
from .tracing import TOLERANCE, relative_difference

_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
_WEIGHTED = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)


def shrink_by_dependency(
    model: nn.Module, asked: dict[str, Asked], inputs: tuple
) -> tuple[nn.Module, dict[str, Kept]]:
    """A smaller model of the same class, and what stays of each layer; embeddings and heads are left.

    Examples
    --------
    >>> import pytest
    >>> _ = pytest.importorskip("torch_pruning")
    >>> import torch
    >>> from torch import nn
    >>> from trimreg.nn.dependency import shrink_by_dependency
    >>> from trimreg.nn.masking import masked_copy
    >>> model = nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 2))
    >>> with torch.no_grad():
    ...     model[2].weight[:, [1, 3]] = 0
    >>> small, kept = shrink_by_dependency(*masked_copy(model), (torch.randn(4, 6),))
    >>> small[0].out_features, len(kept["2"].columns)
    (3, 3)
    """
    with torch.no_grad():
        wanted = model(*moved(inputs))
    kept = {}
    graph = _built(model, inputs)
    for name, layer in asked.items():
        module = model.get_submodule(name)
        slab = layer.slab
        plain = (
            type(module) in _WEIGHTED and slab.attribute == "weight" and (slab.start, slab.block) == (0, 1)
        )
        if not plain or module not in graph.module2node:
            continue
        cut = _removable(graph, module, slab.axis)
        if cut:
            backup = copy.deepcopy(model)
            if not _pruned(graph, module, slab.axis, cut) or _difference(model, inputs, wanted) > TOLERANCE:
                model = backup
                graph = _built(model, inputs)
        # Only the number matters: which ones they were is not known any more once layers have shrunk twice.
    for name, layer in asked.items():
        module = model.get_submodule(name)
        if type(module) in _WEIGHTED and layer.slab.block == 1:
            rows, columns = (torch.arange(size) for size in module.weight.shape[:2])
            kept[name] = Kept(rows, columns, held_by=["layers that are coupled to it"])
    return model, kept


def _built(model: nn.Module, inputs: tuple):
    try:
        import torch_pruning
    except ImportError as missing:
        raise ImportError(
            "a model that cannot be traced is exported by torch-pruning: pip install 'trimreg[export]'"
        ) from missing
    frozen = [p for p in model.parameters() if not p.requires_grad]
    for parameter in frozen:
        parameter.requires_grad_(True)  # the graph is read from autograd's
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about parameters without a layer, which are left alone
            return torch_pruning.DependencyGraph().build_dependency(
                model, example_inputs=moved(inputs), verbose=False
            )
    except Exception as failure:
        raise ExportError(
            f"torch-pruning finds no dependency graph of {type(model).__name__}: {failure}"
        ) from failure
    finally:
        for parameter in frozen:
            parameter.requires_grad_(False)


def _pruner(graph, module: nn.Module, axis: int):
    layer = graph.get_pruner_of_module(module)
    return layer.prune_in_channels if axis == 1 else layer.prune_out_channels


def _pruned(graph, module: nn.Module, axis: int, cut: list[int]) -> bool:
    """Cut groups with all that hangs on them; False if the graph's indices do not fit the network."""
    try:
        graph.get_pruning_group(module, _pruner(graph, module, axis), cut).prune()
    except (IndexError, RuntimeError):
        return False
    return True


def _removable(graph, module: nn.Module, axis: int) -> list[int]:
    """Zero groups of a layer that can go with all that hangs on them; never all groups."""
    others = tuple(d for d in range(module.weight.dim()) if d != axis)
    zero = (~module.weight.detach().ne(0).any(others)).nonzero().flatten().tolist() if others else []
    prune = _pruner(graph, module, axis)
    found = [index for index in zero if _exact(graph, graph.get_pruning_group(module, prune, [index]))]
    return found[: module.weight.shape[axis] - 1]


def _exact(graph, group) -> bool:
    """Whether a group of coupled channels is zero where it is made, or unread where it is used."""
    made_zero = unread = True
    for dependency, index in group.items:
        module = dependency.target.module
        index = [getattr(i, "idx", i) for i in index]
        if type(module) in _WEIGHTED:
            gives = graph.is_out_channel_pruning_fn(dependency.handler)
            weight = module.weight.detach()
            if max(index, default=0) >= weight.shape[0 if gives else 1]:
                return False  # the graph may count channels that are not there, as behind a gather
            if not gives:
                unread &= not bool(weight[:, index].ne(0).any())
                continue
            made_zero &= not bool(weight[index].ne(0).any())
            made_zero &= module.bias is None or not bool(module.bias.detach()[index].ne(0).any())
        elif type(module) in _NORMS and module.running_mean is not None:
            if max(index, default=0) >= module.num_features:
                return False
            shift = -module.running_mean * (module.running_var + module.eps).rsqrt()
            if module.affine:
                shift = shift * module.weight.detach() + module.bias.detach()
            made_zero &= not bool(shift[index].ne(0).any())
        elif any(True for _ in getattr(module, "parameters", list)()):
            return False  # a layer norm, an embedding: it sees all channels
    return made_zero or unread


def _difference(model: nn.Module, inputs: tuple, wanted) -> float:
    try:
        with torch.no_grad():
            return relative_difference(wanted, model(*moved(inputs)))
    except RuntimeError:  # widths that no longer fit, such as view(-1, 800)
        return float("inf")

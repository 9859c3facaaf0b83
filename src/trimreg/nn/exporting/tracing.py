"""Following a network step by step: its graph, the shapes on the way, and where two networks part."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Iterable

import torch
from torch import Tensor, fx, nn

from .catalog import SLIM_MODULES, in_place, role_of_call, role_of_module
from .masking import moved
from .spaces import ExportError

TOLERANCE = 1e-5


class TracingFailed(ExportError):
    """The network's forward cannot be written as a graph."""


def trace(model: nn.Module, inputs: tuple) -> fx.GraphModule:
    """The network as a graph whose nodes carry ``meta["shape"]``, found by running the example through it.

    Examples
    --------
    >>> import torch
    >>> from torch import nn
    >>> from trimreg.nn.exporting.tracing import trace
    >>> traced = trace(nn.Sequential(nn.Linear(3, 2), nn.ReLU()), (torch.zeros(5, 3),))
    >>> [(node.name, node.meta["shape"]) for node in traced.graph.nodes if node.op == "call_module"]
    [('_0', (5, 2)), ('_1', (5, 2))]
    """
    names = list(inspect.signature(model.forward).parameters.values())
    left_out = names[len(inputs) :]
    needed = [
        p.name for p in left_out if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
    ]
    if needed or len(inputs) > len(names):
        raise ValueError(
            f"{type(model).__name__}.forward takes ({', '.join(p.name for p in names)}); the example has "
            f"{len(inputs)} inputs"
        )
    defaults = {p.name: p.default for p in left_out if p.default is not p.empty}
    try:
        graph = _Tracer().trace(model, concrete_args=defaults or None)
        for node in list(graph.nodes):  # the defaults are built in
            if node.op == "call_function" and getattr(node.target, "__name__", "") == "_assert_is_none":
                graph.erase_node(node)
        remove_dead_steps(graph, model)  # and with them the checks that a default was not changed
        unused = [node for node in graph.nodes if node.op == "placeholder"][len(inputs) :]
        for node in unused:
            if not node.users:
                graph.erase_node(node)
        _pass_by_place(graph, model)
        traced = fx.GraphModule(model, graph)
        with torch.no_grad():
            _Recorder(traced).run(*moved(inputs))
    except Exception as failure:
        raise TracingFailed(
            f"{type(model).__name__}.forward cannot be traced by torch.fx ({first_line(failure)}); write "
            "it without branches on values, or use method='dependency'"
        ) from failure
    return traced


def faithful_trace(model: nn.Module, inputs: tuple) -> fx.GraphModule:
    """The graph of a copy of the network, if it gives the network's outputs; else a :class:`TracingFailed`.

    What torch.fx does not see of ``forward`` is not in the graph: it takes ``k += 1`` for ``k = k + 1``, also
    where another name stands for the same tensor.

    Examples
    --------
    >>> import torch
    >>> from torch import nn
    >>> from trimreg.nn.exporting.tracing import faithful_trace
    >>> class Adds(nn.Module):
    ...     def forward(self, x):
    ...         same = x
    ...         same += 1
    ...         return x
    >>> faithful_trace(Adds(), (torch.zeros(2),))
    Traceback (most recent call last):
    ...
    trimreg.nn.exporting.tracing.TracingFailed: the graph that torch.fx makes of Adds.forward gives other
    outputs ...
    """
    traced = trace(copy.deepcopy(model), inputs)
    found = _difference(model, traced, inputs)
    if not found <= TOLERANCE:
        raise TracingFailed(
            f"the graph that torch.fx makes of {type(model).__name__}.forward gives other outputs (by "
            f"{found:.1e} relative); write it without steps that change a tensor in place under a second "
            "name (k = h; k += 1), or use method='dependency'"
        )
    return traced


class _Tracer(fx.Tracer):
    """The layers of an exported network are steps as well, so that it can be pruned and exported again."""

    def is_leaf_module(self, module: nn.Module, name: str) -> bool:
        return type(module) in SLIM_MODULES or super().is_leaf_module(module, name)


#: The leading arguments of steps of these roles; others take their tensor as ``input``.
_LEADING = {"attention": ("query", "key", "value"), "cat": ("tensors", "dim"), "size": ("input", "dim")}


def _pass_by_place(graph: fx.Graph, model: nn.Module) -> None:
    """Known steps that were given leading arguments by name, ``F.relu(input=x)``, get them by place."""
    for node in graph.nodes:
        if node.op not in ("call_module", "call_function", "call_method"):
            continue
        module = model.get_submodule(node.target) if node.op == "call_module" else None
        role = role_of_call(node.target) if module is None else role_of_module(module)
        if role is None:
            continue
        for name in _LEADING.get(role, ("input",))[len(node.args) :]:
            if name not in node.kwargs:
                break
            node.args = (*node.args, node.kwargs[name])
            node.kwargs = {key: value for key, value in node.kwargs.items() if key != name}


def remove_dead_steps(graph: fx.Graph, model: nn.Module) -> None:
    """Remove steps whose results nobody uses, but for those that write into a tensor."""

    def writes(node):
        module = model.get_submodule(node.target) if node.op == "call_module" else None
        return node.op in ("placeholder", "output") or (node.op != "get_attr" and in_place(node, module))

    graph.eliminate_dead_code(writes)


def run_step(node: fx.Node, module: nn.Module | None, tensor: Tensor):
    """What a step of a graph gives for another tensor in place of its first argument."""
    arguments = (tensor, *node.args[1:])
    if node.op == "call_module":
        return module(*arguments, **node.kwargs)
    if node.op == "call_method":
        return getattr(tensor, node.target)(*arguments[1:], **node.kwargs)
    return node.target(*arguments, **{k: v for k, v in node.kwargs.items() if k != "input"})


class _Recorder(fx.Interpreter):
    """Runs a graph, keeps what each step gave and notes the shapes."""

    def __init__(self, traced: fx.GraphModule):
        super().__init__(traced, garbage_collect_values=False)
        self.extra_traceback = False

    def run_node(self, node: fx.Node):
        result = super().run_node(node)
        if isinstance(result, Tensor):
            node.meta["shape"] = tuple(result.shape)
        return result


def outputs_of(model: nn.Module, inputs: tuple):
    """What the network gives for the example; if it fails, a ValueError that names the layer and the shapes.

    Examples
    --------
    >>> import torch
    >>> from torch import nn
    >>> from trimreg.nn.exporting.tracing import outputs_of
    >>> outputs_of(nn.Sequential(nn.Linear(3, 2), nn.ReLU()), (torch.ones(5, 3),)).shape
    torch.Size([5, 2])
    """
    place = ["before any layer"]

    def enters(name):
        def note(module, arguments):
            shapes = [str(tuple(x.shape)) for x in arguments if isinstance(x, Tensor)]
            place.append(f"in layer {name!r}, {module}, which got {', '.join(shapes)}")

        return note

    def leaves(name):
        return lambda module, arguments, result: place.append(f"after layer {name!r}")

    handles = []
    for name, module in model.named_modules():
        if not any(True for _ in module.children()):
            handles.append(module.register_forward_pre_hook(enters(name)))
            handles.append(module.register_forward_hook(leaves(name)))
    try:
        with torch.no_grad():
            return model(*moved(inputs))
    except Exception as failure:
        shapes = ", ".join(str(tuple(x.shape)) for x in inputs if isinstance(x, Tensor))
        raise ValueError(
            f"the example of shape {shapes} does not go through the network: {place[-1]}: "
            f"{first_line(failure)}"
        ) from failure
    finally:
        for handle in handles:
            handle.remove()


def first_line(failure: BaseException) -> str:
    text = str(failure).strip()
    return text.splitlines()[0] if text else type(failure).__name__


# -- are they equal? ----------------------------------------------------------------------------------------


def tensors_in(output) -> list[Tensor]:
    """The tensors of an output: itself, or those in tuples and dictionaries, in order."""
    if isinstance(output, Tensor):
        return [output]
    if isinstance(output, dict):
        output = output.values()
    if not isinstance(output, Iterable) or isinstance(output, str):
        return []
    return [t for part in output for t in tensors_in(part)]


def relative_difference(one, two) -> float:
    """The largest difference of two outputs over the largest entry of the first; infinite if shapes differ.

    Examples
    --------
    >>> import torch
    >>> from trimreg.nn.exporting.tracing import relative_difference
    >>> relative_difference(torch.tensor([4.0, 2.0]), torch.tensor([4.0, 1.0]))
    0.25
    >>> relative_difference(torch.zeros(2), torch.zeros(3))
    inf
    """
    ones, twos = tensors_in(one), tensors_in(two)
    if [t.shape for t in ones] != [t.shape for t in twos]:
        return float("inf")
    worst = 0.0
    for a, b in zip(ones, twos, strict=True):
        if not a.numel():
            continue
        a, b = a.detach(), b.detach()
        gap = torch.where(a.eq(b) | (a.isnan() & b.isnan()), 0.0, (a.double() - b.double()).abs())
        finite = a.double()[a.isfinite()].abs()
        scale = float(finite.max()) if finite.numel() else 1.0
        ratio = float(gap.max()) / scale if scale else float(gap.max())
        worst = max(worst, float("inf") if ratio != ratio else ratio)
    return worst


def _difference(one: nn.Module, two: nn.Module, inputs: tuple) -> float:
    """How far the outputs of two networks lie apart, relative to the largest.

    Rounding alone may add up to more than the tolerance in a deep network. So what is above it is measured
    again in double precision: rounding vanishes there, a mistake does not.
    """
    with torch.no_grad():
        found = relative_difference(one(*moved(inputs)), two(*moved(inputs)))
        if found <= TOLERANCE:
            return found
        pair = [copy.deepcopy(network).double() for network in (one, two)]
        try:
            return relative_difference(*(network(*moved(inputs, dtype=torch.float64)) for network in pair))
        except RuntimeError:  # a forward that names a type runs in that one only
            return found


def refuse_chance(model: nn.Module, inputs: tuple) -> None:
    """An error if the network gives other outputs at every call: nothing could be compared with them.

    Examples
    --------
    >>> import torch
    >>> from torch import nn
    >>> from trimreg.nn.exporting.tracing import refuse_chance
    >>> refuse_chance(nn.Dropout().train(), (torch.ones(100),))
    Traceback (most recent call last):
    ...
    trimreg.nn.exporting.spaces.ExportError: Dropout gives other outputs at every call ...
    """
    found = relative_difference(outputs_of(model, inputs), outputs_of(model, inputs))
    if not found <= TOLERANCE:
        raise ExportError(
            f"{type(model).__name__} gives other outputs at every call (two on the example differ by "
            f"{found:.1e} relative), so that no smaller network can be held against it; take what draws "
            "random numbers or counts calls out of its forward in evaluation mode"
        )


def checked_difference(masked: nn.Module, small: nn.Module, inputs: tuple) -> float:
    """How far the outputs of the two networks lie apart; an error above 1e-5 relative."""
    with torch.no_grad():
        outputs = tensors_in(masked(*moved(inputs)))
    if not any(torch.isfinite(output).any() for output in outputs):
        raise ExportError(
            "the outputs of the network on the example are infinite or NaN throughout, so that no smaller "
            "network can be held against it; look for NaN in the example and in the weights"
        )
    found = _difference(masked, small, inputs)
    if not found <= TOLERANCE:
        raise ExportError(
            f"the exported network differs from the masked one by {found:.1e} relative, where at most "
            f"{TOLERANCE:.0e} is allowed{_where(masked, small, inputs)}; this is a fault of the export"
            f"{_hooks(masked)}"
        )
    return found


def _hooks(model: nn.Module) -> str:
    """A hook may change what a layer gives, and layers that are made anew have none."""
    named = [repr(n) for n, m in model.named_modules() if m._forward_hooks or m._forward_pre_hooks]
    return f", or a forward hook changes them (on {', '.join(named)}): remove it first" if named else ""


def _where(masked: nn.Module, small: nn.Module, inputs: tuple) -> str:
    """The first step whose result is of equal shape in both networks and differs."""
    if not isinstance(small, fx.GraphModule):
        return ""
    runs = []
    for network in (trace(masked, inputs), small):
        recorder = _Recorder(network)
        with torch.no_grad():
            recorder.run(*moved(inputs))
        runs.append({node.name: value for node, value in recorder.env.items()})
    for name, value in runs[0].items():
        other = runs[1].get(name)
        if isinstance(value, Tensor) and isinstance(other, Tensor) and value.shape == other.shape:
            gap = relative_difference(value, other)
            if gap > TOLERANCE:
                return f", first at step {name!r} (by {gap:.1e})"
    return ", at the output"

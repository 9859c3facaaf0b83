"""The graph of a network with the shapes at its steps, and the comparison of two networks."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, fx, nn

from .catalog import SLIM_MODULES, in_place, role_of_call, role_of_module
from .spaces import ExportError

TOLERANCE = 1e-5


class TracingFailed(ExportError):
    """The forward of the network cannot be written as a graph."""


def trace(model: nn.Module, inputs: tuple) -> fx.GraphModule:
    """The network as a graph whose nodes have ``meta["shape"]``, from a run on the example."""
    names = list(inspect.signature(model.forward).parameters.values())
    left_out = names[len(inputs) :]
    needed = [
        p.name for p in left_out if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
    ]
    if needed or len(inputs) > len(names):
        takes = f"{type(model).__name__}.forward takes ({', '.join(p.name for p in names)})"
        raise ValueError(f"{takes}; the example has {len(inputs)} inputs")
    defaults = {p.name: p.default for p in left_out if p.default is not p.empty}
    try:
        graph = _Tracer().trace(model, concrete_args=defaults or None)
        for node in list(graph.nodes):  # the defaults become constants
            if node.op == "call_function" and getattr(node.target, "__name__", "") == "_assert_is_none":
                graph.erase_node(node)
        remove_dead_steps(graph, model)  # also the checks that a default was not changed
        for node in [node for node in graph.nodes if node.op == "placeholder"][len(inputs) :]:
            if not node.users:
                graph.erase_node(node)
        _pass_by_position(graph, model)
        traced = fx.GraphModule(model, graph)
        with torch.no_grad():
            _Recorder(traced).run(*moved(inputs))
    except Exception as failure:
        raise TracingFailed(
            f"{type(model).__name__}.forward cannot be traced by torch.fx ({first_line(failure)}); write "
            "it without branches on values"
        ) from failure
    return traced


def faithful_trace(model: nn.Module, inputs: tuple) -> fx.GraphModule:
    """The graph of a copy of the network; a :class:`TracingFailed` if its outputs are not the network's.

    The graph of torch.fx can be wrong: it reads ``k += 1`` as ``k = k + 1`` even if another name stands for
    the same tensor.
    """
    traced = trace(copy.deepcopy(model), inputs)
    found = output_difference(model, traced, inputs)
    if not found <= TOLERANCE:
        raise TracingFailed(
            f"the graph that torch.fx makes of {type(model).__name__}.forward gives other outputs (by "
            f"{found:.1e} relative); write it without steps that change a tensor in place under a second "
            "name (k = h; k += 1)"
        )
    return traced


class _Tracer(fx.Tracer):
    """A tracer that keeps the layers of exported networks as steps, so that these can be exported again."""

    def is_leaf_module(self, module: nn.Module, name: str) -> bool:
        return type(module) in SLIM_MODULES or super().is_leaf_module(module, name)


#: The first arguments of steps with these roles; for all others it is ``input``.
_LEADING = {"cat": ("tensors", "dim"), "size": ("input", "dim")}


def _pass_by_position(graph: fx.Graph, model: nn.Module) -> None:
    """Pass the first arguments of known steps by position, also if they were given by name."""
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
    """Remove steps with unused results, except for those that write into a tensor."""

    def writes(node):
        module = model.get_submodule(node.target) if node.op == "call_module" else None
        return node.op in ("placeholder", "output") or (node.op != "get_attr" and in_place(node, module))

    graph.eliminate_dead_code(writes)


def run_step(node: fx.Node, module: Any, tensor: Tensor) -> Any:
    """The result of a step with another tensor as its first argument."""
    arguments = (tensor, *node.args[1:])
    if node.op == "call_module":
        return module(*arguments, **node.kwargs)
    if node.op == "call_method":
        return getattr(tensor, node.target)(*arguments[1:], **node.kwargs)
    return node.target(*arguments, **{k: v for k, v in node.kwargs.items() if k != "input"})


class _Recorder(fx.Interpreter):
    """Runs a graph, keeps the result of each step and notes its shape."""

    def __init__(self, traced: fx.GraphModule):
        super().__init__(traced, garbage_collect_values=False)
        self.extra_traceback = False

    def run_node(self, node: fx.Node):
        result = super().run_node(node)
        if isinstance(result, Tensor):
            node.meta["shape"] = tuple(result.shape)
        return result


def outputs_of(model: nn.Module, inputs: tuple) -> Any:
    """The outputs on the example; if the network fails, a ValueError that names the layer and the shapes."""
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
        problem = f"the network fails on the example of shape {shapes} {place[-1]}"
        raise ValueError(f"{problem}: {first_line(failure)}") from failure
    finally:
        for handle in handles:
            handle.remove()


def first_line(failure: BaseException) -> str:
    """The first line of an error message."""
    text = str(failure).strip()
    return text.splitlines()[0] if text else type(failure).__name__


# -- comparison ---------------------------------------------------------------------------------------------


def tensors_in(output: Any) -> list[Tensor]:
    """The tensors of an output, also those in tuples and dictionaries, in order."""
    if isinstance(output, Tensor):
        return [output]
    if isinstance(output, dict):
        output = output.values()
    # Not those in a cache of keys and values: with fewer heads it has other shapes.
    if not isinstance(output, Iterable) or isinstance(output, str) or hasattr(output, "get_seq_length"):
        return []
    return [t for part in output for t in tensors_in(part)]


def relative_difference(one: Any, two: Any) -> float:
    """The largest difference of two outputs over the largest entry of the first; inf if shapes differ."""
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


def output_difference(one: nn.Module, two: nn.Module, inputs: tuple) -> float:
    """The difference of the outputs of two networks, relative to the largest.

    In a deep network rounding alone can exceed the tolerance. So a larger difference is measured again in
    double precision, where rounding vanishes and a mistake does not.
    """
    with torch.no_grad():
        found = relative_difference(one(*moved(inputs)), two(*moved(inputs)))
        if found <= TOLERANCE:
            return found
        pair = [copy.deepcopy(network).double() for network in (one, two)]
        try:
            return relative_difference(*(network(*moved(inputs, dtype=torch.float64)) for network in pair))
        except RuntimeError:  # a forward that names a type runs only in that type
            return found


def refuse_chance(model: nn.Module, inputs: tuple) -> None:
    """Raise if the network gives other outputs at every call, so that no comparison is possible."""
    found = relative_difference(outputs_of(model, inputs), outputs_of(model, inputs))
    if not found <= TOLERANCE:
        raise ExportError(
            f"{type(model).__name__} gives other outputs at every call (by {found:.1e} relative), so nothing "
            "can be compared with it; its forward must not draw random numbers in evaluation mode"
        )


def checked_difference(masked: nn.Module, small: nn.Module, inputs: tuple) -> float:
    """The relative difference of the outputs of the two networks; an error if it is above 1e-5."""
    with torch.no_grad():
        outputs = tensors_in(masked(*moved(inputs)))
    if not any(torch.isfinite(output).any() for output in outputs):
        raise ExportError("all outputs on the example are infinite or NaN; check the example and the weights")
    found = output_difference(masked, small, inputs)
    if not found <= TOLERANCE:
        raise ExportError(
            f"the exported network differs from the masked one by {found:.1e} relative"
            f"{_where(masked, small, inputs)}; this is an error of the export{_hooks(masked)}"
        )
    return found


def _hooks(model: nn.Module) -> str:
    """A hint at forward hooks: they may change outputs, and new layers do not have them."""
    named = [repr(n) for n, m in model.named_modules() if m._forward_hooks or m._forward_pre_hooks]
    return f", or of a forward hook (on {', '.join(named)}): remove it first" if named else ""


def _where(masked: nn.Module, small: nn.Module, inputs: tuple) -> str:
    """The first step whose result has the same shape in both networks and differs."""
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


def checked_inputs(example_input: Any) -> tuple:
    """The positional inputs of an example, checked for tensors with values."""
    inputs = example_input if isinstance(example_input, tuple) else (example_input,)
    if not any(isinstance(one, (Tensor, list, tuple, dict)) for one in inputs):
        kinds = ", ".join(type(one).__name__ for one in inputs)
        raise TypeError(f"example_input must be a tensor, or a tuple with one in it; got {kinds or '()'}")
    if any(tensor.is_meta for tensor in tensors_in(inputs)):
        raise ValueError("example_input is on the meta device, but must have values to run the networks on")
    if not all(tensor.numel() for tensor in tensors_in(inputs)):
        raise ValueError("example_input has a tensor without entries, so there are no outputs to compare")
    return inputs


def moved(inputs: tuple, device: Any = None, dtype: torch.dtype | None = None) -> tuple:
    """Copies of the tensors of an example on a device; floating-point ones in ``dtype`` if given.

    A network may write into its input, so every run gets its own tensors.
    """

    def move(x):
        return x.detach().to(device=device, dtype=dtype if x.is_floating_point() else None, copy=True)

    return tuple(move(x) if isinstance(x, Tensor) else x for x in inputs)

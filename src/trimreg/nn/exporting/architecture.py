"""The architecture of an exported network as JSON values, and back.

An architecture consists of the steps of a traced graph, each a layer with its arguments, or a function or
method, of the tables in :mod:`.catalog`. Reading it only looks up names in these tables and refuses all
others, so a file cannot run code.
"""

from __future__ import annotations

import inspect
import math
import re
from typing import Any

import torch
from torch import Tensor, fx, nn

from ..layers import slim
from ..structure.catalog import FUNCTIONS, METHODS, MODULES, NAME_OF_FUNCTION, RECURRENT

VERSION = 1
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,99}")  # a value such as "nearest-exact"
_PATH = re.compile(r"[A-Za-z0-9_ -]{1,99}(\.[A-Za-z0-9_ -]{1,99}){0,30}")
_ATTRIBUTES = ("shape", "ndim")
_NOT_ARGUMENTS = {"self", "device", "dtype"}

_INSTEAD = (
    "; write the network with to_onnx(path) instead, or torch.save its state_dict() and load that into a "
    "class of your own with layers of these sizes"
)
_CANNOT = f", which cannot be saved{_INSTEAD}"


def describe(model: fx.GraphModule) -> dict:
    """The architecture of a traced network, as JSON values."""
    place = {node: number for number, node in enumerate(model.graph.nodes)}
    layers = tuple(f"{node.target}." for node in model.graph.nodes if node.op == "call_module")
    modules: dict[str, dict] = {}
    tensors: dict[str, str] = {}
    steps: list[dict] = []
    for node in model.graph.nodes:
        target = node.target
        if node.op == "call_module":
            module = model.get_submodule(target)
            kind = type(module).__name__
            if MODULES.get(kind) is not type(module):
                raise ValueError(f"layer {target!r} is a {kind}{_CANNOT}")
            modules[target] = {"kind": kind, "arguments": _arguments(target, module)}
        elif node.op == "get_attr":
            if not target.startswith(layers):  # tensors of a layer are saved with the layer
                parent, _, leaf = target.rpartition(".")
                tensors[target] = "parameter" if leaf in model.get_submodule(parent)._parameters else "buffer"
        elif node.op == "call_function":
            target = "getattr" if target is getattr else NAME_OF_FUNCTION.get(target)
            if target is None:
                name = getattr(node.target, "__name__", node.target)
                raise ValueError(f"step {node.name!r} calls {name}{_CANNOT}")
        elif node.op == "call_method" and target not in METHODS:
            raise ValueError(f"step {node.name!r} calls the method {target!r}{_CANNOT}")
        elif node.op == "placeholder" and target.startswith("*"):
            raise ValueError(f"the input {target!r} is any number of tensors{_CANNOT}")
        try:
            args = [_encoded(a, place) for a in ([] if node.op == "placeholder" else node.args)]
            kwargs = {key: _encoded(a, place) for key, a in node.kwargs.items()}
        except ValueError as failure:
            raise ValueError(f"step {node.name!r}: {failure}{_INSTEAD}") from failure
        steps.append({"op": node.op, "target": target, "args": args, "kwargs": kwargs})
    config = {"version": VERSION, "modules": modules, "tensors": tensors, "steps": steps}
    again = tied(model)
    return config | ({"tied": again} if again else {})


def tied(model: nn.Module) -> dict[str, str]:
    """The further names of parameters with several names, mapped to their first name."""
    first: dict[int, str] = {}
    found = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        if first.setdefault(id(parameter), name) != name:
            found[name] = first[id(parameter)]
    return found


def rebuild(config: Any, tensors: dict[str, Tensor]) -> fx.GraphModule:
    """The network of a description and its tensors; a ValueError if it is not a valid description.

    Shared parameters are shared again; ``tensors`` needs them under their first name only.
    """
    try:
        return _rebuilt(config, tensors)
    except (LookupError, TypeError, AttributeError, RuntimeError, OverflowError, SyntaxError) as failure:
        raise ValueError(f"the file does not describe a network: {failure}") from failure


def _rebuilt(config: Any, tensors: dict[str, Tensor]) -> fx.GraphModule:
    if config["version"] != VERSION:
        raise ValueError(f"the file has version {config['version']!r}; this release reads version {VERSION}")
    again = config.get("tied", {})
    tensors = tensors | {name: tensors[first] for name, first in again.items()}
    root = nn.Module()
    with torch.device("meta"):  # huge sizes in the file need no memory; the tensors must match them
        for name, entry in config["modules"].items():
            _attach(root, name, _built(name, entry))
        for name, kind in config["tensors"].items():
            empty = torch.empty(tensors[name].shape, dtype=tensors[name].dtype)
            parameter = kind == "parameter"
            _attach(root, name, nn.Parameter(empty, empty.is_floating_point()) if parameter else empty)
    present = {*dict(root.named_parameters()), *dict(root.named_buffers())}
    graph = fx.Graph()
    nodes: list[fx.Node] = []
    for number, step in enumerate(config["steps"]):
        nodes.append(_made_step(graph, nodes, number, step, config["modules"], present))
    graph.lint()
    model = fx.GraphModule(root, graph)
    model.load_state_dict(tensors, strict=True, assign=True)
    for name, first in again.items():
        model.get_parameter(name)  # raises if it is none
        owner, _, leaf = name.rpartition(".")
        setattr(model.get_submodule(owner), leaf, model.get_parameter(first))
    return model.eval()


def _made_step(
    graph: fx.Graph, nodes: list, number: int, step: dict, layers: dict, present: set[str]
) -> fx.Node:
    """The next step of a graph; ``layers`` and ``present`` are the layers and tensors that it may use."""
    op, target = step["op"], step["target"]
    args = tuple(_decoded(a, nodes) for a in step["args"])
    kwargs = {_checked(key, _IDENTIFIER): _decoded(a, nodes) for key, a in step["kwargs"].items()}
    if op == "placeholder" and target != "self" and not args and not kwargs:
        return graph.placeholder(_checked(target, _IDENTIFIER))
    if op == "output" and len(args) == 1 and not kwargs:
        return graph.output(args[0])
    known = {"call_module": layers, "call_method": METHODS, "call_function": FUNCTIONS, "get_attr": present}
    if op == "call_function" and target == "getattr" and len(args) == 2 and args[1] in _ATTRIBUTES:
        return graph.create_node(op, getattr, args, {}, name=f"step{number}")
    if op in known and target in known[op]:
        if op == "get_attr":
            args, kwargs = (), {}
        called = FUNCTIONS[target] if op == "call_function" else target
        return graph.create_node(op, called, args, kwargs, name=f"step{number}")
    raise ValueError(f"step {number} of the file, {op!r} of {target!r}, is not one that trimreg writes")


def _checked(text: Any, pattern: re.Pattern) -> str:
    if not isinstance(text, str) or not pattern.fullmatch(text):
        raise ValueError(f"{str(text)[:60]!r} is not a name that trimreg writes")
    return text


def _attach(root: nn.Module, path: str, what: Any) -> None:
    """Add a module or tensor at a dotted path, with empty modules on the way."""
    *parents, leaf = _checked(path, _PATH).split(".")
    for name in parents:
        if name not in root._modules:
            if hasattr(root, name):
                raise ValueError(f"the name {path!r} is taken")
            root.add_module(name, nn.Module())
        root = root._modules[name]
    if hasattr(root, leaf):
        raise ValueError(f"the name {path!r} is taken")
    if isinstance(what, nn.Module):
        root.add_module(leaf, what)
    elif isinstance(what, nn.Parameter):
        root.register_parameter(leaf, what)
    else:
        root.register_buffer(leaf, what)


def _encoded(value: Any, place: dict) -> Any:
    """An argument of a step as JSON: plain values as they are, others as ``{"kind": ...}``."""
    if isinstance(value, fx.Node):
        return {"step": place[value]}
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": repr(value)}
    if value is None or isinstance(value, (bool, int, float)):
        return value
    if isinstance(value, str):
        return _checked(value, _WORD)
    if isinstance(value, (tuple, list)):
        kind = "list" if isinstance(value, list) else "tuple"
        return {kind: [_encoded(v, place) for v in value]}
    if isinstance(value, slice):
        return {"slice": [_encoded(v, place) for v in (value.start, value.stop, value.step)]}
    if value is Ellipsis:
        return {"ellipsis": None}
    if isinstance(value, dict):
        return {"dict": {_checked(key, _IDENTIFIER): _encoded(v, place) for key, v in value.items()}}
    raise ValueError(f"an argument of type {type(value).__name__} cannot be saved")


def _decoded(value: Any, nodes: list) -> Any:
    if value is None or isinstance(value, (bool, int, float)):
        return value
    if isinstance(value, str):
        return _checked(value, _WORD)
    if not isinstance(value, dict) or len(value) != 1:
        raise ValueError("an argument in the file is not one that trimreg writes")
    ((kind, inner),) = value.items()
    if kind == "step" and type(inner) is int and 0 <= inner < len(nodes):
        return nodes[inner]
    if kind == "float" and inner in ("inf", "-inf", "nan"):
        return float(inner)
    if kind in ("list", "tuple"):
        return (list if kind == "list" else tuple)(_decoded(v, nodes) for v in inner)
    if kind == "slice":
        start, stop, step = (_decoded(v, nodes) for v in inner)
        return slice(start, stop, step)
    if kind == "ellipsis":
        return Ellipsis
    if kind == "dict":
        return {_checked(key, _IDENTIFIER): _decoded(v, nodes) for key, v in inner.items()}
    raise ValueError(f"an argument in the file has the unknown kind {str(kind)[:60]!r}")


# -- layers -------------------------------------------------------------------------------------------------


def _attention_arguments(module: nn.MultiheadAttention) -> dict:
    names = ("embed_dim", "num_heads", "dropout", "add_zero_attn", "kdim", "vdim", "batch_first")
    biases = {"bias": module.in_proj_bias is not None, "add_bias_kv": module.bias_k is not None}
    return {name: getattr(module, name) for name in names} | biases


def _recurrent_arguments(module: Any) -> dict:
    names = ("input_size", "hidden_size", "num_layers", "bias", "batch_first", "dropout", "bidirectional")
    more = {nn.RNN: ["nonlinearity"], nn.LSTM: ["proj_size"], nn.GRU: []}[type(module)]
    return {name: getattr(module, name) for name in (*names, *more)}


#: Layers whose constructor takes tensors or renames arguments: (layer to arguments, arguments to layer).
_SPECIAL = {
    nn.MultiheadAttention: (_attention_arguments, nn.MultiheadAttention),
    **{kind: (_recurrent_arguments, kind) for kind in RECURRENT},
    slim.Gather: (
        lambda module: {"entries": module.index.numel(), "dim": module.dim},
        lambda entries, dim: slim.Gather(torch.zeros(entries), dim),
    ),
    slim.Plane: (
        lambda m: (
            {"shape": list(m.weight.shape)} | {n: getattr(m, n) for n in ("stride", "padding", "dilation")}
        ),
        lambda shape, **rest: slim.Plane(torch.zeros(shape), **rest),
    ),
    slim.MappedEmbedding: (
        lambda m: {"tokens": m.index.numel(), "rows": m.rows, "embedding_dim": m.embedding_dim},
        lambda tokens, rows, embedding_dim: slim.MappedEmbedding(torch.zeros(tokens), rows, embedding_dim),
    ),
}


def _arguments(name: str, module: nn.Module) -> dict:
    """The arguments of the class for a layer of the same form."""
    if type(module) in _SPECIAL:
        found = _SPECIAL[type(module)][0](module)
    else:
        names = [argument for argument in _argument_names(type(module)) if hasattr(module, argument)]
        found = {argument: getattr(module, argument) for argument in names}
        if not isinstance(found.get("bias", True), bool):
            found["bias"] = found["bias"] is not None
    try:
        return {argument: _encoded(value, {}) for argument, value in found.items()}
    except ValueError as failure:
        raise ValueError(f"layer {name!r}: {failure}{_INSTEAD}") from failure


def _argument_names(kind: type) -> list[str]:
    names = inspect.signature(kind).parameters
    return [
        n for n, p in names.items()
        if n not in _NOT_ARGUMENTS and not n.startswith("_") and p.kind is p.POSITIONAL_OR_KEYWORD
    ]  # fmt: skip


def _built(name: str, entry: dict) -> nn.Module:
    kind = MODULES.get(entry["kind"])
    if kind is None:
        raise ValueError(f"layer {name[:60]!r} of the file has the unknown kind {str(entry['kind'])[:60]!r}")
    arguments = {key: _decoded(value, []) for key, value in entry["arguments"].items()}
    if kind in _SPECIAL:
        return _SPECIAL[kind][1](**arguments)
    strange = set(arguments) - set(_argument_names(kind))
    if strange:
        raise ValueError(f"layer {name[:60]!r} of the file has arguments that {entry['kind']} does not take")
    return kind(**arguments)

"""Exported networks on disk: weights and architecture in one file, without pickle; and ONNX.

The file is in the safetensors format (a length, a JSON header, the raw numbers), so any reader of that
format can read the weights. The architecture is a JSON text in the header's metadata: the steps of the
traced graph, each a layer of :data:`trimreg.nn.catalog.MODULES` with its arguments, or a function or method
of that catalogue. Reading it looks names up in these tables and does nothing else: what is not in them is
refused, so a file cannot run code.
"""

from __future__ import annotations

import inspect
import json
import math
import os
import re
import struct
import tempfile
import warnings
from os import PathLike
from pathlib import Path

import torch
from torch import Tensor, fx, nn

from . import slim
from .catalog import FUNCTIONS, METHODS, MODULES, NAME_OF_FUNCTION

VERSION = 1
KEY = "trimreg.network"
_DTYPES = {
    "F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16,
    "I64": torch.int64, "I32": torch.int32, "I16": torch.int16, "I8": torch.int8, "U8": torch.uint8,
    "BOOL": torch.bool,
}  # fmt: skip
_NAME_OF_DTYPE = {dtype: name for name, dtype in _DTYPES.items()}
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")
_PATH = re.compile(r"[A-Za-z0-9_ -]{1,99}(\.[A-Za-z0-9_ -]{1,99}){0,30}")
_ATTRIBUTES = ("shape", "ndim")
_NOT_ARGUMENTS = {"self", "device", "dtype"}
_LARGEST_HEADER = 100_000_000


def save(model: fx.GraphModule, path: str | PathLike) -> None:
    """Write an exported network to ``path``, at once or not at all.

    Examples
    --------
    >>> import tempfile, pathlib, torch
    >>> from torch import nn
    >>> from trimreg.nn.exporting import export
    >>> from trimreg.nn.serialize import load
    >>> small = export(nn.Sequential(nn.Linear(3, 2), nn.ReLU()), None, torch.ones(2, 3), repeats=0)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     small.save(pathlib.Path(folder) / "small.safetensors")
    ...     again = load(pathlib.Path(folder) / "small.safetensors")
    >>> torch.equal(again(torch.ones(2, 3)), small.model(torch.ones(2, 3)))
    True
    """
    if not isinstance(model, fx.GraphModule):
        raise ValueError(
            f"a {type(model).__name__} has no graph that could be written down; only networks exported with "
            "method='trace' can be saved. Save its state_dict() and rebuild the class"
        )
    config = describe(model)
    tensors = {name: t.detach().cpu().contiguous() for name, t in sorted(model.state_dict().items())}
    rebuild(config, tensors)  # what is written can be read
    _write_atomically(Path(path), _packed(tensors, {KEY: json.dumps(config, allow_nan=False)}))


def load(path: str | PathLike) -> fx.GraphModule:
    """Read a network written by :func:`save`, in evaluation mode, on the CPU.

    A file that is damaged or holds anything but known layers and functions is a ValueError.
    """
    tensors, metadata = _unpacked(Path(path).read_bytes())
    if KEY not in metadata:
        raise ValueError(f"{path} holds no network of trimreg")
    return rebuild(_parsed(metadata[KEY]), tensors)


# -- the architecture as JSON -------------------------------------------------------------------------------


def describe(model: fx.GraphModule) -> dict:
    """The architecture of a traced network, in values that JSON has.

    Examples
    --------
    >>> from torch import fx, nn
    >>> from trimreg.nn.serialize import describe
    >>> describe(fx.symbolic_trace(nn.Sequential(nn.Tanh())))["modules"]
    {'0': {'kind': 'Tanh', 'arguments': {}}}
    """
    place = {node: number for number, node in enumerate(model.graph.nodes)}
    modules, tensors, steps = {}, {}, []
    for node in model.graph.nodes:
        target = node.target
        if node.op == "call_module":
            module = model.get_submodule(target)
            if MODULES.get(type(module).__name__) is not type(module):
                raise ValueError(f"layer {target!r} is a {type(module).__name__}, which cannot be saved")
            modules[target] = {"kind": type(module).__name__, "arguments": _arguments(module)}
        elif node.op == "get_attr":
            parent, _, leaf = target.rpartition(".")
            tensors[target] = "parameter" if leaf in model.get_submodule(parent)._parameters else "buffer"
        elif node.op == "call_function":
            target = "getattr" if target is getattr else NAME_OF_FUNCTION.get(target)
            if target is None:
                raise ValueError(f"step {node.name!r} calls {node.target}, which cannot be saved")
        elif node.op == "call_method" and target not in METHODS:
            raise ValueError(f"step {node.name!r} calls the method {target!r}, which cannot be saved")
        elif node.op == "placeholder" and target.startswith("*"):
            raise ValueError(f"the input {target!r} stands for any number of tensors, which cannot be saved")
        steps.append(
            {
                "op": node.op,
                "target": target,
                "args": [_encoded(a, place) for a in ([] if node.op == "placeholder" else node.args)],
                "kwargs": {key: _encoded(a, place) for key, a in node.kwargs.items()},
            }
        )
    return {"version": VERSION, "modules": modules, "tensors": tensors, "steps": steps}


def rebuild(config, tensors: dict[str, Tensor]) -> fx.GraphModule:
    """The network of a description and its tensors; a ValueError where the description is not one of ours."""
    try:
        return _rebuilt(config, tensors)
    except (LookupError, TypeError, AttributeError, RuntimeError, OverflowError, SyntaxError) as failure:
        raise ValueError(f"the file does not describe a network: {failure}") from failure


def _rebuilt(config, tensors: dict[str, Tensor]) -> fx.GraphModule:
    if config["version"] != VERSION:
        raise ValueError(f"the file is of version {config['version']!r}; this release reads {VERSION}")
    root = nn.Module()
    with torch.device("meta"):  # sizes in the file cost nothing until its tensors bear them out
        for name, entry in config["modules"].items():
            _attach(root, name, _built(name, entry))
        for name, kind in config["tensors"].items():
            empty = torch.empty(tensors[name].shape, dtype=tensors[name].dtype)
            _attach(
                root, name, nn.Parameter(empty, empty.is_floating_point()) if kind == "parameter" else empty
            )
    graph, nodes = fx.Graph(), []
    for number, step in enumerate(config["steps"]):
        nodes.append(_made_step(graph, nodes, number, step, config))
    graph.lint()
    model = fx.GraphModule(root, graph)
    model.load_state_dict(tensors, strict=True, assign=True)
    return model.eval()


def _made_step(graph: fx.Graph, nodes: list, number: int, step: dict, config: dict) -> fx.Node:
    op, target = step["op"], step["target"]
    args = tuple(_decoded(a, nodes) for a in step["args"])
    kwargs = {_checked(key, _IDENTIFIER): _decoded(a, nodes) for key, a in step["kwargs"].items()}
    if op == "placeholder" and target != "self" and not args and not kwargs:
        return graph.placeholder(_checked(target, _IDENTIFIER))
    if op == "output" and len(args) == 1 and not kwargs:
        return graph.output(args[0])
    if op == "call_module" and target in config["modules"]:
        return graph.create_node(op, target, args, kwargs, name=f"step{number}")
    if op == "get_attr" and target in config["tensors"]:
        return graph.create_node(op, target, (), {}, name=f"step{number}")
    if op == "call_method" and target in METHODS:
        return graph.create_node(op, target, args, kwargs, name=f"step{number}")
    if op == "call_function" and target == "getattr" and len(args) == 2 and args[1] in _ATTRIBUTES:
        return graph.create_node(op, getattr, args, {}, name=f"step{number}")
    if op == "call_function" and target in FUNCTIONS:
        return graph.create_node(op, FUNCTIONS[target], args, kwargs, name=f"step{number}")
    raise ValueError(f"step {number} of the file, {op!r} of {target!r}, is not one that trimreg writes")


def _checked(text, pattern: re.Pattern) -> str:
    if not isinstance(text, str) or not pattern.fullmatch(text):
        raise ValueError(f"{str(text)[:60]!r} is not a name that trimreg writes")
    return text


def _attach(root: nn.Module, path: str, what) -> None:
    """Put a module or tensor at a dotted path, making empty modules on the way."""
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


def _encoded(value, place: dict):
    """An argument of a step as JSON: plain values as they are, the rest as ``{"kind": ...}``."""
    if isinstance(value, fx.Node):
        return {"step": place[value]}
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": repr(value)}
    if value is None or isinstance(value, (bool, int, float)):
        return value
    if isinstance(value, str):
        return _checked(value, _IDENTIFIER)
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


def _decoded(value, nodes: list):
    if value is None or isinstance(value, (bool, int, float)):
        return value
    if isinstance(value, str):
        return _checked(value, _IDENTIFIER)
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
    raise ValueError(f"an argument in the file is of unknown kind {str(kind)[:60]!r}")


# -- layers -------------------------------------------------------------------------------------------------


def _attention_arguments(module: nn.MultiheadAttention) -> dict:
    names = ("embed_dim", "num_heads", "dropout", "add_zero_attn", "kdim", "vdim", "batch_first")
    biases = {"bias": module.in_proj_bias is not None, "add_bias_kv": module.bias_k is not None}
    return {name: getattr(module, name) for name in names} | biases


def _plane_arguments(module: slim.Plane) -> dict:
    return {
        "shape": list(module.weight.shape),
        "stride": module.stride,
        "padding": module.padding,
        "dilation": module.dilation,
    }


#: Layers whose constructor takes tensors or renames its arguments: (to arguments, from arguments).
_SPECIAL = {
    nn.MultiheadAttention: (_attention_arguments, nn.MultiheadAttention),
    slim.Gather: (
        lambda module: {"entries": module.index.numel(), "dim": module.dim},
        lambda entries, dim: slim.Gather(torch.zeros(entries), dim),
    ),
    slim.Plane: (_plane_arguments, lambda shape, **rest: slim.Plane(torch.zeros(shape), **rest)),
    slim.MappedEmbedding: (
        lambda m: {"tokens": m.index.numel(), "rows": m.rows, "embedding_dim": m.embedding_dim},
        lambda tokens, rows, embedding_dim: slim.MappedEmbedding(torch.zeros(tokens), rows, embedding_dim),
    ),
}


def _arguments(module: nn.Module) -> dict:
    """What to call the class with to get a layer of the same form."""
    if type(module) in _SPECIAL:
        return {k: _encoded(v, {}) for k, v in _SPECIAL[type(module)][0](module).items()}
    found = {}
    for name in _argument_names(type(module)):
        if hasattr(module, name):
            value = getattr(module, name)
            if name == "bias" and not isinstance(value, bool):
                value = value is not None
            found[name] = _encoded(value, {})
    return found


def _argument_names(kind: type) -> list[str]:
    names = inspect.signature(kind.__init__).parameters
    return [
        n for n, p in names.items()
        if n not in _NOT_ARGUMENTS and not n.startswith("_") and p.kind is p.POSITIONAL_OR_KEYWORD
    ]  # fmt: skip


def _built(name: str, entry: dict) -> nn.Module:
    kind = MODULES.get(entry["kind"])
    if kind is None:
        raise ValueError(f"layer {name[:60]!r} of the file is of unknown kind {str(entry['kind'])[:60]!r}")
    arguments = {key: _decoded(value, []) for key, value in entry["arguments"].items()}
    if kind in _SPECIAL:
        return _SPECIAL[kind][1](**arguments)
    strange = set(arguments) - set(_argument_names(kind))
    if strange:
        raise ValueError(f"layer {name[:60]!r} of the file has arguments that {entry['kind']} does not take")
    return kind(**arguments)


# -- the file -----------------------------------------------------------------------------------------------


def _packed(tensors: dict[str, Tensor], metadata: dict[str, str]) -> bytes:
    header: dict = {"__metadata__": metadata}
    parts, start = [], 0
    for name, tensor in tensors.items():
        raw = tensor.reshape(-1).view(torch.uint8).numpy().tobytes() if tensor.numel() else b""
        header[name] = {
            "dtype": _NAME_OF_DTYPE[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [start, start + len(raw)],
        }
        parts.append(raw)
        start += len(raw)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return b"".join([struct.pack("<Q", len(text)), text, *parts])


def _unpacked(content: bytes) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Tensors and metadata; every number in the header is checked against the file."""
    damaged = ValueError("the file is damaged, or not in the safetensors format")
    if len(content) < 8:
        raise damaged
    (length,) = struct.unpack("<Q", content[:8])
    if length > min(len(content) - 8, _LARGEST_HEADER):
        raise damaged
    header = _parsed(content[8 : 8 + length])
    data = memoryview(content)[8 + length :]
    tensors, end = {}, 0
    if not isinstance(header, dict):
        raise damaged
    metadata = header.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(v, str) for v in metadata.values()):
        raise damaged
    for name, entry in header.items():
        if not isinstance(entry, dict) or not {"dtype", "shape", "data_offsets"} <= set(entry):
            raise damaged
        dtype = _DTYPES.get(entry["dtype"]) if isinstance(entry["dtype"], str) else None
        shape, offsets = entry["shape"], entry["data_offsets"]
        for numbers in (shape, offsets):
            if not isinstance(numbers, list) or not all(type(n) is int and n >= 0 for n in numbers):
                raise damaged
        if dtype is None or len(offsets) != 2 or offsets[0] != end:
            raise damaged
        start, end = offsets
        if end > len(data) or end - start != math.prod(shape) * dtype.itemsize:
            raise damaged
        raw = bytearray(data[start:end])
        tensors[name] = (
            torch.frombuffer(raw, dtype=dtype).reshape(shape) if raw else torch.empty(shape, dtype=dtype)
        )
    if end != len(data):
        raise damaged
    return tensors, metadata


def _parsed(text: str | bytes):
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as failure:
        raise ValueError(f"the file holds no readable JSON: {failure}") from failure


def _write_atomically(path: Path, content: bytes) -> None:
    """Through a neighbouring file and a rename, so that a reader never meets half a file."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


# -- ONNX ---------------------------------------------------------------------------------------------------


def to_onnx(model: nn.Module, example: tuple, path: str | PathLike) -> None:
    """Write a network as ONNX. The first axis of every input is free if the example has more than one
    sample."""
    try:
        import onnxscript  # noqa: F401
    except ImportError as missing:
        raise ImportError("writing ONNX needs onnxscript: pip install 'trimreg[export]'") from missing
    free = tuple({0: torch.export.Dim.AUTO} if x.dim() and x.shape[0] > 1 else None for x in example)
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch's own, about its internals
        written = Path(folder) / "network.onnx"
        torch.onnx.export(
            model.eval(),
            example,
            written,
            dynamo=True,
            dynamic_shapes=free,
            external_data=False,
            verbose=False,
        )
        content = written.read_bytes()
    _write_atomically(Path(path), content)

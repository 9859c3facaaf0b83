"""Exported networks on disk: weights and architecture in one file, without pickle; and ONNX.

The file has the safetensors format (a length, a JSON header, the raw numbers), so any reader of that format
can read the weights. The architecture is a JSON text in the metadata of the header; see
:mod:`trimreg.nn.exporting.architecture`.
"""

from __future__ import annotations

import copy
import hashlib
import inspect
import json
import math
import struct
import tempfile
import warnings
from collections.abc import Iterable, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, fx, nn

from ..._files import write_atomically
from .architecture import VERSION, describe, rebuild, tied
from .blocks import Cut, cut_blocks
from .masking import make_plain

KEY, BLOCKS = "trimreg.network", "trimreg.blocks"  # with the architecture, or for a network of the class
CHECKSUM = "trimreg.sha256"  # of the rest of the header, and of the numbers
_DTYPES = {
    "F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16,
    "I64": torch.int64, "I32": torch.int32, "I16": torch.int16, "I8": torch.int8, "U8": torch.uint8,
    "BOOL": torch.bool,
}  # fmt: skip
_NAME_OF_DTYPE = {dtype: name for name, dtype in _DTYPES.items()}
_LARGEST_HEADER = 100_000_000


def save(model: nn.Module, path: str | PathLike, cuts: Sequence[Cut] | None = None) -> None:
    """Write an exported network to ``path``, completely or not at all; ``cuts`` if its class was kept."""
    config: dict[str, Any]
    if isinstance(model, fx.GraphModule):
        key, config = KEY, describe(model)
    elif cuts is not None:
        key, config = BLOCKS, {"version": VERSION, "class": type(model).__name__, "tied": tied(model)}
        config["cuts"] = [list(cut) for cut in cuts]
    else:
        raise ValueError(
            f"a {type(model).__name__} has no graph to save; only networks exported with method='trace', or "
            "of which only blocks were made smaller, can be saved. Save its state_dict() and load that into "
            "the class"
        )
    once = {name: t for name, t in model.state_dict().items() if name not in config.get("tied", {})}
    tensors = {name: t.detach().cpu().contiguous() for name, t in sorted(once.items())}
    if key == KEY:
        rebuild(config, tensors)  # an error now, if the file could not be read
    write_atomically(path, _packed(tensors, {key: json.dumps(config, allow_nan=False)}))


def can_be_saved(model: fx.GraphModule) -> bool:
    """Whether a file can describe the network without its class."""
    try:
        describe(model)
    except ValueError:
        return False
    return True


def load(path: str | PathLike, model: nn.Module | None = None) -> nn.Module:
    """The network in a file that was written by ``export(...).save(path)``, in evaluation mode on the CPU.

    Parameters
    ----------
    path : path-like
    model : nn.Module, optional
        For a network that kept its class: one of that class with the sizes before the export, such as
        ``GPT2LMHeadModel(config)``. Its weights do not matter, and it is not changed.

    Returns
    -------
    torch.fx.GraphModule, or a network of the class of ``model``

    Raises
    ------
    ValueError
        If the file is damaged, contains anything but known layers and functions, or does not fit the model.

    Examples
    --------
    >>> import tempfile, pathlib, torch
    >>> from torch import nn
    >>> from trimreg.nn import export, load
    >>> small = export(nn.Sequential(nn.Linear(3, 2), nn.ReLU()), None, torch.ones(2, 3), repeats=0)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     small.save(pathlib.Path(folder) / "small.safetensors")
    ...     again = load(pathlib.Path(folder) / "small.safetensors")
    >>> torch.equal(again(torch.ones(2, 3)), small.model(torch.ones(2, 3)))
    True
    """
    tensors, metadata = _unpacked(Path(path).read_bytes())
    if KEY not in metadata and BLOCKS not in metadata:
        raise ValueError(f"{path} contains no network of trimreg")
    if len(metadata) > 1:  # such as a checksum whose name is damaged
        raise ValueError(f"{path} is damaged: its metadata has unknown entries")
    if BLOCKS in metadata:
        return _with_blocks(_parsed(metadata[BLOCKS]), tensors, model)
    if model is not None:
        raise ValueError(f"{path} contains the architecture of its network; load it without a model")
    return rebuild(_parsed(metadata[KEY]), tensors)


def _with_blocks(config: Any, tensors: dict[str, Tensor], model: nn.Module | None) -> nn.Module:
    """A copy of the model with the blocks and weights of a file."""
    try:
        name, cuts = config["class"], [Cut(*cut) for cut in config["cuts"]]
        tensors = tensors | {again: tensors[first] for again, first in config["tied"].items()}
        if config["version"] != VERSION:
            raise ValueError(f"the file has version {config['version']!r}")
    except (LookupError, TypeError, AttributeError) as failure:
        raise ValueError(f"the file does not describe a network: {failure}") from failure
    if model is None:
        raise ValueError(
            f"the file contains the weights of a {str(name)[:60]} whose class was kept; give load one of the "
            f"sizes before the export, as in load(path, {str(name)[:60]}(...))"
        )
    try:
        made = copy.deepcopy(model).cpu().eval()
        make_plain(made)
        made = cut_blocks(made, cuts)
        types = {tensor.dtype for tensor in tensors.values() if tensor.is_floating_point()}
        made.to(types.pop() if len(types) == 1 else None)
        made.load_state_dict(tensors, strict=True)
    except (LookupError, TypeError, AttributeError, RuntimeError, ValueError) as failure:
        raise ValueError(
            f"the file does not fit this {type(model).__name__}, which must be a {str(name)[:60]} of the "
            f"sizes before the export: {failure}"
        ) from failure
    return made


# -- the file -----------------------------------------------------------------------------------------------


def _packed(tensors: dict[str, Tensor], metadata: dict[str, str]) -> bytes:
    header: dict = {"__metadata__": metadata}  # the first entry
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
    header["__metadata__"] = metadata | {CHECKSUM: _checksum(header, parts)}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return b"".join([struct.pack("<Q", len(text)), text, *parts])


def _unpacked(content: bytes) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Tensors and metadata; every number in the header is checked against the file."""
    damaged = ValueError("the file is damaged, or not in the safetensors format")
    length = struct.unpack("<Q", content[:8])[0] if len(content) >= 8 else 8
    if length > min(len(content) - 8, _LARGEST_HEADER):
        raise damaged
    header = _parsed(content[8 : 8 + length])
    data = memoryview(content)[8 + length :]
    tensors, end = {}, 0
    metadata = header.pop("__metadata__", {}) if isinstance(header, dict) else None
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
    checksum = metadata.pop(CHECKSUM, None)  # older files have none
    if checksum not in (None, _checksum(header | {"__metadata__": metadata}, [data])):
        raise damaged
    return tensors, metadata


def _checksum(header: dict, parts: Iterable[bytes | memoryview]) -> str:
    found = hashlib.sha256(json.dumps(header, sort_keys=True).encode())
    for part in parts:
        found.update(part)
    return found.hexdigest()


def _parsed(text: str | bytes) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as failure:
        raise ValueError(f"the file has no readable JSON: {failure}") from failure


# -- ONNX ---------------------------------------------------------------------------------------------------


def to_onnx(model: nn.Module, example: tuple, path: str | PathLike) -> None:
    """Write a network as ONNX. The first axis of an input is free if it is longer than 1 in the example.

    Tensors in lists and dictionaries become inputs of their own. Other values (None, numbers, strings) are
    built in as they are in the example.
    """
    try:
        import onnxscript  # noqa: F401
    except ImportError as missing:
        raise ImportError("writing ONNX needs onnxscript: pip install 'trimreg[export]'") from missing
    named = inspect.signature(model.forward).bind(*example).arguments  # those of *args as a tuple
    free = tuple(_free_axes(value, name) for name, value in named.items())
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch's own, about its internals
        written = Path(folder) / "network.onnx"
        inputs = (*example, {})  # a last dictionary would be read as keyword arguments
        settings = {"dynamo": True, "external_data": False, "verbose": False}
        torch.onnx.export(model.eval(), inputs, written, dynamic_shapes=free, **settings)
        content = written.read_bytes()
    write_atomically(path, content)


def _free_axes(value: Any, name: str) -> Any:
    """The free axes of an input, in its structure: the first axis of each tensor."""
    if isinstance(value, Tensor):
        return {0: torch.export.Dim.AUTO} if value.dim() and value.shape[0] > 1 else None
    if value is None or isinstance(value, (bool, int, float, str)):
        return None
    if type(value) in (list, tuple):
        return type(value)(_free_axes(part, f"{name}[{number}]") for number, part in enumerate(value))
    if type(value) is dict:
        return {key: _free_axes(part, f"{name}[{key!r}]") for key, part in value.items()}
    raise TypeError(
        f"the input {name} is a {type(value).__name__}, which ONNX cannot take; use tensors, also in lists, "
        "tuples and dictionaries, or numbers, strings and None, which are built in"
    )

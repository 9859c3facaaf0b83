"""The operations that the export knows: their effect on channels, and their names in a file."""

from __future__ import annotations

import operator
import re
from typing import Any

import torch
from torch import fx, nn
from torch.nn import functional as F

from ..layers import slim

LINEAR = (nn.Linear,)
CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
TRANSPOSED = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)

#: Entry by entry: a constant channel stays constant, and no channel depends on another.
POINTWISE_MODULES = (
    nn.Identity, nn.ReLU, nn.ReLU6, nn.LeakyReLU, nn.ELU, nn.SELU, nn.CELU, nn.GELU, nn.SiLU, nn.Mish,
    nn.Sigmoid, nn.Tanh, nn.Softplus, nn.Softsign, nn.Hardswish, nn.Hardsigmoid, nn.Hardtanh, nn.LogSigmoid,
    nn.Tanhshrink, nn.Softshrink, nn.Hardshrink, nn.Threshold, nn.PReLU,
    nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout, nn.FeatureAlphaDropout,
)  # fmt: skip
#: Channel by channel over space: a constant channel stays constant, except for means over padding.
POOLINGS = (
    nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d, nn.AvgPool1d, nn.AvgPool2d, nn.AvgPool3d,
    nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d, nn.AdaptiveAvgPool3d,
    nn.AdaptiveMaxPool1d, nn.AdaptiveMaxPool2d, nn.AdaptiveMaxPool3d,
)  # fmt: skip
#: Also channel by channel over space: larger images. Padding with zeros leaves only zeros constant.
RESIZINGS = (
    nn.Upsample, nn.UpsamplingNearest2d, nn.UpsamplingBilinear2d,
    nn.ZeroPad1d, nn.ZeroPad2d, nn.ZeroPad3d, nn.ConstantPad1d, nn.ConstantPad2d, nn.ConstantPad3d,
    nn.ReflectionPad1d, nn.ReflectionPad2d, nn.ReflectionPad3d,
    nn.ReplicationPad1d, nn.ReplicationPad2d, nn.ReplicationPad3d,
    nn.CircularPad1d, nn.CircularPad2d, nn.CircularPad3d,
)  # fmt: skip
#: They mix all channels and need every one of them.
MIXING_MODULES = (
    nn.LayerNorm, nn.GroupNorm, nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d,
    nn.Softmax, nn.LogSoftmax, nn.Softmin, nn.Softmax2d,
)  # fmt: skip
RECURRENT = (nn.LSTM, nn.GRU, nn.RNN)
#: Layers that an export creates.
SLIM_MODULES = (slim.Gather, slim.Plane, slim.MappedEmbedding, slim.SlimAttention, slim.SlimSelfAttention)
OTHER_MODULES = (nn.Flatten, nn.Embedding, nn.MultiheadAttention, *RECURRENT, *SLIM_MODULES)
#: Their effect on channels is not known, but they may be saved.
SAVED_MODULES = (
    nn.Bilinear, nn.RMSNorm, nn.PixelShuffle, nn.PixelUnshuffle, nn.GLU, nn.Unflatten,
)  # fmt: skip

_ROLES = {
    "pointwise": """
        relu relu_ relu6 leaky_relu leaky_relu_ elu elu_ selu selu_ celu celu_ gelu silu mish sigmoid
        sigmoid_ tanh tanh_ softplus softsign hardswish hardsigmoid hardtanh hardtanh_ logsigmoid tanhshrink
        softshrink hardshrink threshold dropout dropout1d dropout2d dropout3d alpha_dropout
        feature_alpha_dropout exp sin cos erf neg abs square clamp clamp_ clone detach contiguous
        """,
    "binary": "add add_ sub sub_ mul mul_ div truediv maximum minimum",
    "spatial": """
        max_pool1d max_pool2d max_pool3d avg_pool1d avg_pool2d avg_pool3d
        adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d
        adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d interpolate pad
        """,
    "reshape": "flatten view reshape squeeze",
    "mixing": "softmax log_softmax layer_norm",
    "cat": "cat concat",
    "mean": "mean",
    "transpose": "transpose permute",
    "size": "size",
    "split": "chunk split",
    "unsqueeze": "unsqueeze",
}
_IN_PLACE = ("operator.iadd", "operator.isub", "operator.imul")
# Steps whose effect on channels is not known, but that may be saved.
_COMPARISONS = "gt ge lt le eq ne"
_SAVED = f"pow sqrt rsqrt log sum where masked_fill {_COMPARISONS}"
_ROLE_OF_NAME = {name: role for role, names in _ROLES.items() for name in names.split()}

#: Saved name -> function.
FUNCTIONS = {
    f"{place}.{name}": getattr(module, name)
    for place, module in (("torch", torch), ("F", F))
    for name in _ROLE_OF_NAME
    if callable(getattr(module, name, None))
} | {
    f"{place}.{name}": getattr(module, name)
    for place, module, names in (
        ("operator", operator, "add iadd sub isub mul imul neg truediv floordiv getitem matmul pow"),
        ("operator", operator, _COMPARISONS),
        ("torch", torch, f"matmul bmm stack {_SAVED}"),
        ("F", F, "linear normalize scaled_dot_product_attention rms_norm"),
    )
    for name in names.split()
}
#: Function -> its saved name.
NAME_OF_FUNCTION = {function: name for name, function in reversed(FUNCTIONS.items())}
#: Methods of tensors that may be saved.
METHODS = {name for name in _ROLE_OF_NAME if hasattr(torch.Tensor, name)} | {
    "unflatten", "expand", "matmul", "float", "expand_as", "div", "t",
    "repeat", "amax", "max", *_SAVED.split(),
}  # fmt: skip
#: Class name -> class, of everything that may be saved.
MODULES = {
    kind.__name__: kind
    for kind in (
        *LINEAR, *CONVOLUTIONS, *TRANSPOSED, *BATCH_NORMS, *POINTWISE_MODULES, *POOLINGS, *RESIZINGS,
        *MIXING_MODULES, *OTHER_MODULES, *SAVED_MODULES,
    )
}  # fmt: skip


def role_of_module(module: nn.Module) -> str | None:
    """The effect of a module on channels; None if it is not known, as for subclasses of known modules."""
    kind = type(module)
    if kind in CONVOLUTIONS and isinstance(module, CONVOLUTIONS):
        depthwise = module.groups == module.in_channels == module.out_channels
        return "mix" if module.groups == 1 else "depthwise" if depthwise else "grouped"
    if kind in TRANSPOSED and isinstance(module, TRANSPOSED):
        return "mix" if module.groups == 1 else "grouped"
    if kind in POOLINGS:
        return None if getattr(module, "return_indices", False) else "spatial"
    for role, kinds in (
        ("mix", (*LINEAR, nn.modules.linear.NonDynamicallyQuantizableLinear)),
        ("norm", BATCH_NORMS),
        ("pointwise", POINTWISE_MODULES),
        ("spatial", RESIZINGS),
        ("plane", (slim.Plane,)),
        ("mixing", (*MIXING_MODULES, *SLIM_MODULES, nn.MultiheadAttention)),
        ("reshape", (nn.Flatten,)),
        ("embedding", (nn.Embedding,)),
        ("recurrent", RECURRENT),
    ):
        if kind in kinds:
            return role
    return None


def role_of_call(target: Any) -> str | None:
    """The effect on channels of a function, or of the method of this name; None if it is not known."""
    if isinstance(target, str):
        return _ROLE_OF_NAME.get(target)
    name = NAME_OF_FUNCTION.get(target)
    if name is None:
        return "size" if target is getattr else None
    if name in _IN_PLACE:
        return "binary"
    return "item" if name == "operator.getitem" else _ROLE_OF_NAME.get(name.split(".")[1])


def call_name(node: fx.Node) -> str:
    """The name of the function or method that a step calls."""
    return node.target if isinstance(node.target, str) else getattr(node.target, "__name__", str(node.target))


def reads_shape(node: fx.Node) -> bool:
    """Whether a step returns all sizes of a tensor: ``x.shape``, ``x.size()``."""
    if node.op == "call_method":
        return node.target == "size" and len(node.args) == 1
    return node.op == "call_function" and node.target is getattr and node.args[1] == "shape"


def spatial_axes(node: fx.Node, module: nn.Module | None, rank: int) -> int | None:
    """The number of last axes that a spatial step works on; None if the graph does not say it."""
    name = (type(module).__name__ if module is not None else call_name(node)).lower()
    if name == "pad":
        sizes = node.args[1] if len(node.args) > 1 else node.kwargs.get("pad")
        return len(sizes) // 2 if isinstance(sizes, (tuple, list)) else None
    named = re.search(r"(pool|pad)(\d)d", name)
    return int(named[2]) if named else rank - 2


def may_alias(node: fx.Node, module: nn.Module | None) -> bool:
    """Whether the result of a step may share its memory with the first argument.

    This holds for views, for steps that return their argument (``nn.Identity``, ``nn.Dropout`` in
    evaluation), and possibly for steps that are not known.
    """
    role = role_of_call(node.target) if module is None else role_of_module(module)
    if role in (None, "reshape", "transpose", "item", "split", "unsqueeze") or in_place(node, module):
        return True
    name = call_name(node) if module is None else type(module).__name__.lower()
    return role == "pointwise" and ("dropout" in name or name in ("identity", "contiguous", "detach"))


def in_place(node: fx.Node, module: nn.Module | None) -> bool:
    """Whether a step writes into its first argument."""
    if module is not None:
        return bool(getattr(module, "inplace", False))
    name = node.target if isinstance(node.target, str) else NAME_OF_FUNCTION.get(node.target, "")
    return bool(name.endswith("_") or name in _IN_PLACE or node.kwargs.get("inplace", False))

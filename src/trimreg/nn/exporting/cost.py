"""What a network costs: parameters, multiply-accumulates, time."""

from __future__ import annotations

import math
import statistics
import time
from dataclasses import asdict, dataclass

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from .masking import moved
from .slim import SlimAttention
from .tracing import tensors_in


def parameters(model: nn.Module) -> int:
    """Numbers that training may change; a parameter used twice counts once.

    Examples
    --------
    >>> from torch import nn
    >>> from trimreg.nn.exporting.cost import parameters
    >>> parameters(nn.Linear(784, 300))
    235500
    """
    return sum(p.numel() for p in model.parameters())


def index_entries(model: nn.Module) -> int:
    """Integers in the buffers: what gathers and maps of rows add to the size of a shrunk network.

    Examples
    --------
    >>> from trimreg.nn.exporting.cost import index_entries
    >>> from trimreg.nn.exporting.slim import Gather
    >>> index_entries(Gather([0, 2, 5]))
    3
    """
    buffers = (b for name, b in model.named_buffers() if name.rpartition(".")[2] == "index")
    return sum(b.numel() for b in buffers)


def _recurrent(x, weights) -> int:
    """Operations of a recurrent layer: each weight matrix is multiplied with every step of every sample."""
    return 2 * math.prod(x[:-1]) * sum(math.prod(shape) for shape in weights if len(shape) == 2)


def _bilinear(x, weight, *_, **__) -> int:
    """Operations of ``nn.Bilinear``, read as a linear layer of the products of the entries of two inputs."""
    return 2 * x[0] * math.prod(weight)


_aten = torch.ops.aten
#: Operations for which PyTorch's counter has no formula, by the shapes of their arguments.
_FORMULAS = {
    _aten.mkldnn_rnn_layer: lambda x, of_input, of_state, *_, **__: _recurrent(x, [of_input, of_state]),
    _aten._cudnn_rnn: lambda x, weights, *_, **__: _recurrent(x, weights),
    _aten._trilinear: _bilinear,
    _aten.mv: lambda matrix, vector, **_: 2 * math.prod(matrix),
    _aten.addmv: lambda start, matrix, vector, **_: 2 * math.prod(matrix),
    _aten.dot: lambda one, two, **_: 2 * math.prod(one),
    _aten.addbmm: lambda start, one, two, **_: 2 * math.prod(one) * two[-1],
}

#: Layers that take one sample without a batch axis as well, and how many axes it has.
_AXES_OF_A_SAMPLE = (
    ((nn.Linear, nn.Bilinear), 1),
    ((nn.Conv1d, nn.ConvTranspose1d), 2),
    ((nn.Conv2d, nn.ConvTranspose2d), 3),
    ((nn.Conv3d, nn.ConvTranspose3d), 4),
    ((nn.RNNBase, nn.MultiheadAttention, SlimAttention), 2),
)


def macs(model: nn.Module, inputs: tuple) -> int:
    """Multiply-accumulates of matrix products, convolutions, recurrent layers and attention for one sample.

    By PyTorch's own counter (two operations each) over the whole example, divided by its number of samples.
    That is the first axis of the first tensor, unless a layer tells otherwise: a ``Linear`` that is given
    a vector, or a ``Conv2d`` an image of three axes, has one sample, and a recurrent layer or attention with
    ``batch_first=False`` has its samples along the second axis.

    Examples
    --------
    >>> import torch
    >>> from torch import nn
    >>> from trimreg.nn.exporting.cost import macs
    >>> macs(nn.Linear(784, 300), (torch.zeros(10, 784),))
    235200
    >>> macs(nn.LSTM(6, 7, batch_first=True), (torch.zeros(10, 9, 6),))  # 9 steps, 4 * 7 * (6 + 7) each
    3276
    """
    training = {module: module.training for module in model.modules()}
    fused = torch.backends.mha.get_fastpath_enabled()
    example = next((x for x in tensors_in(inputs) if x.dim() and len(x)), None)
    told = []  # numbers of samples, by the layers that tell
    handles = _listening(model, example, told)
    model.eval()
    try:
        # Attention in its parts: what is fused has no formula on every device.
        torch.backends.mha.set_fastpath_enabled(False)
        counter = FlopCounterMode(display=False, custom_mapping=_FORMULAS)
        with torch.no_grad(), sdpa_kernel(SDPBackend.MATH), counter:
            model(*moved(inputs))
    finally:
        torch.backends.mha.set_fastpath_enabled(fused)
        for handle in handles:
            handle.remove()
        for module, mode in training.items():
            module.training = mode
    samples = told[0] if told else 1 if example is None else len(example)
    return round(counter.get_total_flops() / 2 / samples)


def _listening(model: nn.Module, example: Tensor | None, told: list[int]) -> list:
    """Hooks that note in ``told`` how many samples the example has, where that is not its first axis."""

    def listener(axes):
        def note(module, arguments, named):
            x = next(iter((*arguments, *named.values())), None)
            if not isinstance(x, Tensor):  # a packed sequence has no batch axis, and tells nothing
                return
            # A layer may see less than the network, one sample after another: then it has fewer axes.
            if x.dim() == axes and example.dim() <= axes:
                told.append(1)
            second = x.dim() == axes + 1 and not getattr(module, "batch_first", True)
            if second and x.shape[:2] == example.shape[:2]:
                told.append(x.shape[1])

        return note

    return [
        module.register_forward_pre_hook(listener(axes), with_kwargs=True)
        for module in (model.modules() if example is not None else ())
        for kinds, axes in _AXES_OF_A_SAMPLE
        if isinstance(module, kinds)
    ]


def latency(models: list[nn.Module], inputs: tuple, repeats: int = 30) -> list[float]:
    """Median seconds of a forward pass of each model; they take turns, so that a busy machine hits all alike.

    Examples
    --------
    >>> import torch
    >>> from torch import nn
    >>> from trimreg.nn.exporting.cost import latency
    >>> min(latency([nn.Linear(3, 2)], (torch.zeros(1, 3),), repeats=2)) > 0
    True
    """
    inputs = moved(inputs)
    device = next((x.device for x in tensors_in(inputs)), torch.device("cpu"))

    def wait():
        if device.type == "cuda":
            torch.cuda.synchronize(device)

    times = [[] for _ in models]
    with torch.no_grad():
        for turn in range(-2, repeats):  # two turns to warm up
            for model, seconds in zip(models, times, strict=True):
                wait()
                start = time.perf_counter()
                model(*inputs)
                wait()
                if turn >= 0:
                    seconds.append(time.perf_counter() - start)
    return [statistics.median(seconds) for seconds in times]


@dataclass(frozen=True)
class LayerSize:
    """The size of a layer: groups it had, groups it was asked to keep, groups that are physically there."""

    name: str
    kind: str
    groups: int
    kept: int
    physical: int
    note: str = ""


@dataclass(frozen=True)
class Report:
    """What an export did.

    ``kept`` is the size that was asked for, and the one to quote: a group that training kept counts,
    whether or not the rest of the network makes use of it. ``physical`` is what the exported layer holds.
    It is less than ``kept`` where a kept group cannot reach the output (a channel none of whose flattened
    entries is kept) or is constant (an input from a channel that was cut); it is more where a group must
    stay for another's sake (a residual sum, the output). Parameters, multiply-accumulates and times are
    those of the physical network.
    """

    layers: tuple[LayerSize, ...]
    parameters: tuple[int, int]
    macs: tuple[int, int]
    latency: tuple[float, float] | None
    indices: int
    difference: float

    @property
    def size(self) -> str:
        """Sizes as asked, as tables write them: ``"392-150-50"``."""
        return "-".join(str(layer.kept) for layer in self.layers)

    def to_dict(self) -> dict:
        """Plain values, for JSON."""
        return asdict(self) | {"size": self.size}

    def __str__(self) -> str:
        rows = [("layer", "groups", "kept", "physical", "")]
        rows += [
            (layer.name, f"{layer.groups} {layer.kind}", str(layer.kept), str(layer.physical), layer.note)
            for layer in self.layers
        ]
        rows.append(("", "before", "after", "ratio", ""))
        for name, pair in (("parameters", self.parameters), ("MACs a sample", self.macs)):
            rows.append((name, f"{pair[0]:,}", f"{pair[1]:,}", f"{pair[0] / max(pair[1], 1):.1f}", ""))
        if self.latency is not None:
            before, after = self.latency
            rows.append(
                ("latency, ms", f"{1e3 * before:.3f}", f"{1e3 * after:.3f}", f"{before / after:.1f}", "")
            )
        widths = [max(len(row[column]) for row in rows) for column in range(4)]
        lines = [
            "  ".join(
                [row[0].ljust(widths[0]), *(row[c].rjust(widths[c]) for c in (1, 2, 3)), row[4]]
            ).rstrip()
            for row in rows
        ]
        lines.append(f"{self.indices:,} index entries; outputs differ by {self.difference:.1e} relative")
        return "\n".join(lines)

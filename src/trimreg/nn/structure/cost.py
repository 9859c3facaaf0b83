"""The cost of a network: parameters, multiply-accumulates, time."""

from __future__ import annotations

import math
import statistics
import time
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from ..layers.slim import SlimAttention
from .tracing import moved, tensors_in


def parameters(model: nn.Module) -> int:
    """The number of parameters; one that is used twice counts once."""
    return sum(p.numel() for p in model.parameters())


def index_entries(model: nn.Module) -> int:
    """The number of integers in the index buffers of gathers and mapped embeddings."""
    buffers = (b for name, b in model.named_buffers() if name.rpartition(".")[2] == "index")
    return sum(b.numel() for b in buffers)


def _recurrent(x, weights) -> int:
    """Operations of a recurrent layer: each weight matrix multiplies every step of every sample."""
    return 2 * math.prod(x[:-1]) * sum(math.prod(shape) for shape in weights if len(shape) == 2)


_aten = torch.ops.aten
#: Operations without a formula in PyTorch's counter, as functions of the shapes of their arguments.
_FORMULAS = {
    _aten.mkldnn_rnn_layer: lambda x, of_input, of_state, *_, **__: _recurrent(x, [of_input, of_state]),
    _aten._cudnn_rnn: lambda x, weights, *_, **__: _recurrent(x, weights),
    # nn.Bilinear, a linear layer on the products of the entries of two inputs
    _aten._trilinear: lambda x, weight, *_, **__: 2 * x[0] * math.prod(weight),
    _aten.mv: lambda matrix, vector, **_: 2 * math.prod(matrix),
    _aten.addmv: lambda start, matrix, vector, **_: 2 * math.prod(matrix),
    _aten.dot: lambda one, two, **_: 2 * math.prod(one),
    _aten.addbmm: lambda start, one, two, **_: 2 * math.prod(one) * two[-1],
}

#: Layers that also accept one sample without a batch axis, and the number of its axes.
_AXES_OF_A_SAMPLE = (
    ((nn.Linear, nn.Bilinear), 1),
    ((nn.Conv1d, nn.ConvTranspose1d), 2),
    ((nn.Conv2d, nn.ConvTranspose2d), 3),
    ((nn.Conv3d, nn.ConvTranspose3d), 4),
    ((nn.RNNBase, nn.MultiheadAttention, SlimAttention), 2),
)


def macs(model: nn.Module, inputs: tuple) -> int:
    """Multiply-accumulates of matrix products, convolutions, recurrent layers and attention per sample.

    PyTorch's counter (two operations each) counts them for the whole example; the result is divided by the
    number of samples. That is the length of the first axis of the first tensor, unless a layer shows
    otherwise: a ``Linear`` with a vector as input, or a ``Conv2d`` with an image of three axes, has one
    sample, and a recurrent layer or attention with ``batch_first=False`` has its samples along the second
    axis.
    """
    return macs_by_module(model, inputs)[model]


def macs_by_module(model: nn.Module, inputs: tuple) -> dict[nn.Module, int]:
    """Multiply-accumulates per sample within each module that is called, as :func:`macs` counts them."""
    training = {module: module.training for module in model.modules()}
    fused = torch.backends.mha.get_fastpath_enabled()
    example = next((x for x in tensors_in(inputs) if x.dim() and len(x)), None)
    noted: list[int] = []  # numbers of samples, from layers that show them
    handles = _sample_hooks(model, example, noted)
    model.eval()
    try:
        # Fused attention has no formula on some devices, so it is computed in parts.
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
    samples = noted[0] if noted else 1 if example is None else len(example)
    root = type(model).__name__
    found = {
        module: sum(counter.get_flop_counts().get(f"{root}.{name}", {}).values())
        for name, module in model.named_modules()
    }
    found[model] = counter.get_total_flops()
    return {module: round(operations / 2 / samples) for module, operations in found.items()}


def _sample_hooks(model: nn.Module, example: Any, noted: list[int]) -> list:
    """Hooks that note the number of samples of the example if it is not the length of its first axis."""

    def hook(axes):
        def note(module, arguments, named):
            x = next(iter((*arguments, *named.values())), None)
            if not isinstance(x, Tensor):  # a packed sequence has no batch axis
                return
            # If the network calls the layer sample by sample, the layer's input has fewer axes.
            if x.dim() == axes and example.dim() <= axes:
                noted.append(1)
            second = x.dim() == axes + 1 and not getattr(module, "batch_first", True)
            if second and x.shape[:2] == example.shape[:2]:
                noted.append(x.shape[1])

        return note

    return [
        module.register_forward_pre_hook(hook(axes), with_kwargs=True)
        for module in (model.modules() if example is not None else ())
        for kinds, axes in _AXES_OF_A_SAMPLE
        if isinstance(module, kinds)
    ]


def latency(models: list[nn.Module], inputs: tuple, repeats: int = 30) -> list[float]:
    """Median seconds of a forward pass of each model; the models take turns, so that load affects all."""
    inputs = moved(inputs)
    device = next((x.device for x in tensors_in(inputs)), torch.device("cpu"))

    def wait():
        if device.type == "cuda":
            torch.cuda.synchronize(device)

    times: list[list[float]] = [[] for _ in models]
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

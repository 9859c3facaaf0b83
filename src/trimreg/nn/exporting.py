"""From a pruned network to a smaller one: :func:`export`.

A penalty leaves groups of zeros in a network of the old size. The export takes them out, so that what
remains is an ordinary dense network of small layers with the same outputs.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from os import PathLike

import torch
from torch import Tensor, nn

from .cost import LayerSize, Report, index_entries, latency, macs, parameters
from .flow import Flow
from .masking import Asked, masked_copy, moved, refuse_what_has_no_export, unwrapped
from .shrink import Kept, shrink
from .spaces import ExportError
from .tracing import TracingFailed, checked_difference, outputs_of, trace

_HALF = {torch.float16, torch.bfloat16}
_METHODS = ("auto", "trace", "dependency")


@dataclass(frozen=True)
class Exported:
    """A network made smaller, and what that did."""

    model: nn.Module
    report: Report
    example: tuple

    def save(self, path: str | PathLike) -> None:
        """Write weights and architecture to one file, without pickle; see
        :func:`trimreg.nn.serialize.load`."""
        from .serialize import save

        save(self.model, path)

    def to_onnx(self, path: str | PathLike) -> None:
        """Write the network as ONNX, with a free first axis (the batch) wherever the inputs share one."""
        from .serialize import to_onnx

        to_onnx(self.model, self.example, path)

    def __str__(self) -> str:
        return str(self.report)


def export(
    model: nn.Module,
    penalty=None,
    example_input: Tensor | tuple | None = None,
    *,
    method: str = "auto",
    strict: bool = True,
    repeats: int = 30,
) -> Exported:
    r"""A physically smaller dense network with the outputs of the pruned one.

    The model stays as it is: a copy in evaluation mode is masked (groups that ``penalty`` does not keep are
    set to zero, with their biases), traced, and shrunk. Before returning, the outputs of the two are
    compared on the example; they agree to ``1e-5`` relative to the largest, or the export fails and says
    where they part. The result is for evaluation: it may be trained on, but what ``forward`` does
    otherwise in training (``F.dropout``, not ``nn.Dropout``) is gone.

    - **Linear by input unit**: a cut input is no longer computed by the layer before. Where that is not
      possible (392 of 784 pixels, 45 of 800 flattened features) a gather picks the kept entries by index.
    - **Convolution by output channel**: the filter goes, and with it the input channel of the next layer.
      If :math:`act(0) \ne 0`, the constant moves into the next bias; behind a zero-padded convolution,
      where it adds less at the border, into one plane a layer (:class:`trimreg.nn.slim.Plane`).
    - **Batch norm** behind a cut channel turns the zero into :math:`\beta - \mu\gamma/\sigma`. That is a
      constant too and is folded forward in the same way: the norm's own shift is not treated as cut, unless
      the groups say so with a slab.
    - **Residual sums**: a channel leaves if it is constant or unread in every branch; else it stays, as
      zeros.
    - **Attention heads** become smaller projections, **rows of an embedding** a smaller table with an index.
    - A layer that is called twice, or whose weights are used elsewhere as well, stays whole.
    - **Bayesian layers** become plain ones of the posterior mean, **L0 layers** plain ones times their gates.

    A kept group that cannot influence the output is taken out as well, but :class:`Report` counts it as
    kept: the size of a network is what training was asked for, its cost is what remains. So LeNet-5 trained
    to 8-17-53-19 is reported as such even if one of the 17 channels feeds none of the 53 inputs.

    Parameters
    ----------
    model : nn.Module
        A compiled or DDP-wrapped model is unwrapped. An ensemble is refused: take ``replica(i)`` of its
        layers.
    penalty : TrimmedGroupL1 or None
        None: nothing is cut that is not zero already (a network pruned by other means).
    example_input : Tensor or tuple of positional inputs
        A batch of more than one sample, of the shapes that the network will see.
    method : {"auto", "trace", "dependency"}
        "trace" follows the network with ``torch.fx``. "dependency" uses the graph of the package
        torch-pruning, for models whose ``forward`` cannot be traced; it keeps the model's class. It shrinks
        only channels that all coupled layers agree on, and cannot gather. "auto" takes the first and, if
        tracing fails, the second.
    strict : bool
        Fail where a cut group has to stay because of an operation that is not known; else it stays, as zeros.
    repeats : int
        Timed runs of each network; 0 leaves the latency out.

    Examples
    --------
    >>> import torch
    >>> from torch import nn
    >>> from trimreg.nn.exporting import export
    >>> model = nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 2))
    >>> with torch.no_grad():
    ...     model[2].weight[:, [1, 3]] = 0
    >>> small = export(model, None, torch.randn(4, 6), repeats=0)
    >>> [tuple(p.shape) for p in small.model.parameters()]
    [(3, 6), (3,), (2, 3), (2,)]
    >>> small.report.size, small.report.parameters
    ('6-3', (47, 29))
    """
    if method not in _METHODS:
        raise ValueError(f"method must be one of {', '.join(map(repr, _METHODS))}; got {method!r}")
    if example_input is None:
        raise TypeError(
            "export needs an example input: a tensor, or a tuple of the model's positional inputs"
        )
    inputs = example_input if isinstance(example_input, tuple) else (example_input,)
    if not any(isinstance(one, (Tensor, list, tuple, dict)) for one in inputs):
        kinds = ", ".join(type(one).__name__ for one in inputs)
        raise TypeError(f"example_input must be a tensor, or a tuple with one in it; got {kinds or '()'}")
    model = unwrapped(model)
    refuse_what_has_no_export(model, penalty)
    masked, asked = masked_copy(model, penalty)
    types = {p.dtype for p in model.parameters() if p.is_floating_point()}
    # Constants are folded and outputs compared on the CPU, in float32 at least: no TF32, no bfloat16.
    full = masked.float() if types & _HALF else masked
    work = moved(inputs, "cpu", torch.float32 if types & _HALF else None)
    outputs_of(full, work)
    small, kept = _shrunk(full, asked, work, method)
    strict = strict and penalty is not None  # else nobody asked for a size
    sizes = tuple(_size(name, wanted, kept.get(name), strict) for name, wanted in asked.items())
    difference = checked_difference(full, small, work)
    counts = (parameters(full), parameters(small)), (macs(full, work), macs(small, work))

    device = next((p.device for p in model.parameters()), torch.device("cpu"))
    dtype = types.pop() if len(types) == 1 else None
    final = small.to(device=device, dtype=dtype).eval()
    example = moved(inputs, device, torch.float32 if types & _HALF else None)  # left: types were mixed
    times = None
    if repeats > 0:
        times = tuple(latency([full.to(device=device, dtype=dtype), final], example, repeats))
    return Exported(final, Report(sizes, *counts, times, index_entries(final), difference), example)


def _shrunk(
    masked: nn.Module, asked: dict[str, Asked], inputs: tuple, method: str
) -> tuple[nn.Module, dict[str, Kept]]:
    """The smaller network, and what stays of each layer."""
    if method != "dependency":
        try:
            traced = trace(copy.deepcopy(masked), inputs)
        except TracingFailed:
            if method == "trace":
                raise
        else:
            by_input = frozenset(name for name, wanted in asked.items() if wanted.slab.axis == 1)
            return traced, shrink(traced, Flow(traced), by_input, frozenset(asked))
    from .dependency import shrink_by_dependency

    return shrink_by_dependency(copy.deepcopy(masked), asked, inputs)


def _size(name: str, asked: Asked, kept: Kept | None, strict: bool) -> LayerSize:
    """The size of one layer, asked and physical."""
    groups, slab = asked.groups, asked.slab
    kept = kept or Kept(unknown=["a module that is not taken apart, if it is called at all"])
    entries = kept.columns if slab.axis == 1 else kept.rows
    if kept.heads is not None:
        entries = kept.heads * slab.block + slab.start
    physical = groups.count
    if entries is not None:
        group = torch.div(entries - slab.start, slab.block, rounding_mode="floor")
        physical = group[(group >= 0) & (group < groups.count)].unique().numel()
    if physical <= asked.kept:
        return LayerSize(name, groups.kind, groups.count, asked.kept, physical)
    if kept.unknown and strict:
        raise ExportError(
            f"layer {name!r}: {physical - asked.kept} of its cut groups cannot be taken out because of "
            f"{', '.join(kept.unknown)}, which the export does not know; with strict=False they stay as zeros"
        )
    reasons = dict.fromkeys(kept.held_by + kept.unknown)  # each once
    note = f"held by {', '.join(reasons) or 'a sum with channels that stay'}"
    return LayerSize(name, groups.kind, groups.count, asked.kept, physical, note)

"""From a pruned network to a smaller one: :func:`export`.

A penalty leaves groups of zeros in a network of the old size. The export removes them, and the result is an
ordinary dense network of small layers with the same outputs.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from os import PathLike
from typing import Any

import torch
from torch import Tensor, nn

from ..groups.layer_groups import Slab
from ..groups.resolve import is_range, unwrapped
from ..structure.cost import index_entries, latency, macs, parameters
from ..structure.flow import Flow
from ..structure.spaces import ExportError
from ..structure.tracing import (
    TracingFailed,
    checked_difference,
    checked_inputs,
    faithful_trace,
    moved,
    output_difference,
    refuse_chance,
)
from .blocks import Cut, shrink_blocks
from .files import can_be_saved, save, to_onnx
from .masking import Asked, masked_copy, plain_copy, refuse_unsupported
from .report import LayerSize, Report
from .shrink import Kept, shrink

_HALF = {torch.float16, torch.bfloat16}
_METHODS = ("auto", "trace", "dependency")
_SHARED = "a sum or a group with channels that stay, or a border that changes a constant"
_FEWER = "the others are zero, or no layer reads them"


@dataclass(frozen=True)
class Exported:
    """The smaller network, its report, and the example on which the two networks were compared."""

    model: nn.Module
    report: Report
    example: tuple
    cuts: tuple[Cut, ...] | None = None

    def save(self, path: str | PathLike) -> None:
        """Write weights and architecture to one file, without pickle; :func:`trimreg.nn.load` reads it.

        A network that was not traced is written without its architecture: ``load(path, model)`` needs a
        network of its class, of the sizes before the export.
        """
        save(self.model, path, self.cuts)

    def to_onnx(self, path: str | PathLike) -> None:
        """Write the network as ONNX; the first axis of the inputs, the batch, may have any length."""
        to_onnx(self.model, self.example, path)

    def __str__(self) -> str:
        return str(self.report)


def export(
    model: nn.Module,
    penalty: Any = None,
    example_input: Tensor | tuple | None = None,
    *,
    method: str = "auto",
    strict: bool = True,
    repeats: int = 30,
) -> Exported:
    r"""A smaller dense network with the outputs of the pruned one.

    The model is not changed. A copy in evaluation mode is masked (groups that ``penalty`` does not keep are
    set to zero, with their biases), traced, and shrunk. Then the outputs of the two networks are compared on
    the example. They agree to ``1e-5`` relative to the largest output, or the export fails and names the
    first step that differs. If groups that ``penalty`` does not keep are not zero, a warning tells their
    norm, and the report has the difference from the network as trained. The result is for evaluation. It can
    be trained further, but it no longer contains what ``forward`` does only in training (``F.dropout``, not
    ``nn.Dropout``).

    - **Linear by input unit**: the layer before no longer computes a removed input. If there is no such layer
      (392 of 784 pixels, 45 of 800 flattened features), a gather selects the kept entries by index.
    - **Convolution by output channel**: the filter is removed, and with it the input channel of the next
      layer. If :math:`act(0) \ne 0`, the constant moves into the next bias; if the next layer is a
      zero-padded convolution, where it adds less at the border, into a plane
      (:class:`trimreg.nn.layers.slim.Plane`).
    - **Batch norm** behind a removed channel turns the zero into :math:`\beta - \mu\gamma/\sigma`. That is a
      constant too and is folded forward in the same way. The shift of the norm itself is set to zero only if
      the groups include it as a slab.
    - **Residual sums**: a channel is removed if it is constant or unread in every branch; otherwise it stays,
      as zeros. If the penalty has an ``example_input``, its groups are zero in all branches. Then every layer
      has exactly the size that was asked for, or the export fails.
    - **Blocks** (heads, queries, widths of attention, hidden units of a perceptron) become smaller in their
      own class, which need not be traceable. Their modules and the ``config`` of a model of transformers get
      the new numbers of heads and units, the config if all layers have the same. ``nn.MultiheadAttention``
      becomes a :class:`trimreg.nn.layers.slim.SlimAttention`.
    - **Recurrent layers** keep the same number of units in every layer and direction, and the layers that
      read their output or last state read as many. An initial state that is given keeps all units.
    - **Rows of an embedding** become a smaller table with an index.
    - A layer that is called twice, or whose weights are also used elsewhere, stays whole.
    - **Bayesian layers** become plain layers of the posterior mean, **L0 layers** plain layers times their
      gates.

    A kept group that cannot influence the output is removed as well, but :class:`Report` counts it as kept:
    the size of a network is what was requested, its cost is what remains. So LeNet-5 trained to 8-17-53-19 is
    reported as such even if one of the 17 channels feeds none of the 53 inputs.

    Parameters
    ----------
    model : nn.Module
        Also compiled or wrapped in DistributedDataParallel. For an ensemble, export networks built from
        ``replica(i)`` of its layers.
    penalty : TrimmedGroupL1 or None
        With None, only groups that are already zero are removed (a network pruned by other means).
    example_input : Tensor or tuple of positional inputs
        A batch of more than one sample, of the shapes that the network will see.
    method : {"auto", "trace", "dependency"}
        "trace" follows the network with ``torch.fx``. "dependency" uses the graph of the package
        torch-pruning, for models whose ``forward`` cannot be traced, and keeps the class of the model. It
        shrinks only channels that all coupled layers agree on, and cannot gather. "auto" uses "trace", and
        "dependency" if tracing fails or if only "trace" would fail because of ``strict``. If all layers of
        the penalty are blocks, "auto" keeps the class of models that cannot be traced or saved, and of
        those with a ``config``, such as the models of transformers.
    strict : bool
        Whether to fail if a group cannot be removed because of an operation that is not known. If False, it
        stays, as zeros. Known operations may also keep groups, and the report says so: the network's output,
        a sum with channels that stay; for "dependency" also inputs that would have to be gathered and steps
        of fixed width (``view(-1, 800)``).
    repeats : int
        Number of timed runs of each network; with 0 no latency is measured.

    Examples
    --------
    >>> import torch
    >>> from torch import nn
    >>> from trimreg.nn import export
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
        raise TypeError("export needs an example input: a tensor, or a tuple of the positional inputs")
    if penalty is not None and not (hasattr(penalty, "layers") and hasattr(penalty, "kept")):
        raise TypeError(
            f"penalty must be a TrimmedGroupL1 or None; got {type(penalty).__name__}. Give sizes to the "
            "penalty: export(model, TrimmedGroupL1(model, keep={...}), example_input)"
        )
    inputs = checked_inputs(example_input)
    model = unwrapped(model)
    refuse_unsupported(model, penalty)
    if hasattr(penalty, "warn_of_zeros"):
        penalty.warn_of_zeros()
    cutting = hasattr(penalty, "warn_of_cuts") and penalty.warn_of_cuts("export")
    with _plain_settings():
        masked, asked = masked_copy(model, penalty)
    with _plain_settings(), torch.inference_mode(False):  # so that the result can be trained
        if any(tensor.is_inference() for tensor in (*masked.parameters(), *masked.buffers())):
            masked = copy.deepcopy(masked)
        types = {p.dtype for p in model.parameters() if p.is_floating_point()}
        halves = bool(types & _HALF)
        # Constants are folded and outputs compared on the CPU, in float32 at least: no TF32, no bfloat16.
        full = masked.float() if halves else masked
        work = moved(inputs, "cpu", torch.float32 if halves else None)
        refuse_chance(full, work)
        strict = strict and penalty is not None  # otherwise no size was requested
        small, sizes, cuts = _shrunk(full, asked, work, method, strict)
        masked_difference = difference = checked_difference(full, small, work)
        if cutting:
            trained = plain_copy(model)
            difference = output_difference(trained.float() if halves else trained, small, work)
        counts = (parameters(full), parameters(small)), (macs(full, work), macs(small, work))

        device = next((p.device for p in model.parameters()), torch.device("cpu"))
        dtype = types.pop() if len(types) == 1 else None
        full, final = (network.to(device=device, dtype=dtype).eval() for network in (full, small))
        # A network in half precision takes an example of its type, one of mixed types an example in float32.
        example = moved(inputs, device, (dtype or torch.float32) if halves else None)
    times: Any = tuple(latency([full, final], example, repeats)) if repeats > 0 else None
    split = getattr(penalty, "split", None)
    budget = None if split is None else split.result(penalty.keep)
    report = Report(sizes, *counts, times, index_entries(final), difference, masked_difference, budget)
    return Exported(final, report, example, cuts)


@contextmanager
def _plain_settings() -> Iterator[None]:
    """Work on the CPU and in the types of the tensors, whatever the caller has set."""
    with ExitStack() as stack:
        stack.enter_context(torch.autocast("cpu", enabled=False))
        if torch.get_default_device().type != "cpu":
            stack.enter_context(torch.device("cpu"))
        yield


# -- one method, then the other -----------------------------------------------------------------------------


@dataclass(frozen=True)
class _Attempt:
    """The result of one method, and by layer the errors that it causes if the export is strict."""

    model: nn.Module
    sizes: tuple[LayerSize, ...]
    refusals: dict[str, str]

    def result(self, strict: bool) -> tuple[nn.Module, tuple[LayerSize, ...]]:
        if strict and self.refusals:
            raise ExportError(next(iter(self.refusals.values())))
        return self.model, self.sizes

    def mends(self, other: _Attempt) -> bool:
        """Whether this attempt reaches the sizes that the other did not, and is no larger elsewhere."""
        return not self.refusals and all(
            mine.physical <= mine.kept or (mine.name not in other.refusals and mine.physical <= its.physical)
            for mine, its in zip(self.sizes, other.sizes, strict=True)
        )


def _shrunk(
    masked: nn.Module, asked: dict[str, Asked], inputs: tuple, method: str, strict: bool
) -> tuple[nn.Module, tuple[LayerSize, ...], tuple[Cut, ...] | None]:
    """The smaller network, the sizes of its layers, and how to repeat it if only blocks were cut."""
    blocks = shrink_blocks(masked, asked, inputs)
    rest = {name: wanted for name, wanted in asked.items() if name not in blocks.sizes}
    whole = blocks.model, tuple(blocks.sizes.values()), tuple(blocks.cuts)
    keeps_class = bool(blocks.sizes) and not rest and method == "auto"
    if keeps_class and hasattr(masked, "config"):
        return whole
    try:
        model, others = _rest_shrunk(blocks.model, rest, inputs, method, strict)
    except TracingFailed:
        if keeps_class:
            return whole
        raise
    if keeps_class and not can_be_saved(model):
        return whole
    sizes = blocks.sizes | {size.name: size for size in others}
    return model, tuple(sizes[name] for name in asked), None


def _rest_shrunk(
    masked: nn.Module, asked: dict[str, Asked], inputs: tuple, method: str, strict: bool
) -> tuple[nn.Module, tuple[LayerSize, ...]]:
    """A smaller network, and the sizes of its layers that are no blocks."""
    if method != "dependency":
        try:
            first = _traced(masked, asked, inputs)
        except TracingFailed as failure:
            if method == "trace" or not asked:
                raise TracingFailed(f"{failure}, or use method='dependency'") from failure
            units = [name for name, wanted in asked.items() if wanted.groups.kind == "units"]
            if units and strict:
                raise ExportError(
                    f"layer {units[0]!r} can get smaller only by tracing: {failure}"
                ) from failure
        else:
            parts = any(is_range(name) for name in asked)  # the second method knows only whole layers
            if method == "auto" and strict and first.refusals and not parts:
                try:
                    second = _by_dependency(masked, asked, inputs)
                except (ExportError, ImportError):  # then the first error says more
                    second = first
                first = second if second.mends(first) else first
            return first.result(strict)
    return _by_dependency(masked, asked, inputs).result(strict)


def _traced(masked: nn.Module, asked: dict[str, Asked], inputs: tuple) -> _Attempt:
    traced = faithful_trace(masked, inputs)
    by_input = frozenset(name for name, wanted in asked.items() if wanted.by_input)
    return _measured(traced, asked, shrink(traced, Flow(traced), by_input, frozenset(asked)))


def _by_dependency(masked: nn.Module, asked: dict[str, Asked], inputs: tuple) -> _Attempt:
    from .dependency import shrink_by_dependency

    units = {name: type(w.groups.module).__name__ for name, w in asked.items() if w.groups.kind == "units"}
    channels = {name: wanted for name, wanted in asked.items() if name not in units}
    small, kept = shrink_by_dependency(copy.deepcopy(masked), channels, inputs)
    kept |= {
        name: Kept(unknown=[f"its kind ({kind}) without a traced graph"]) for name, kind in units.items()
    }
    return _measured(small, asked, kept)


def _measured(model: nn.Module, asked: dict[str, Asked], kept: dict[str, Kept]) -> _Attempt:
    sizes, refusals = [], {}
    for name, wanted in asked.items():
        found = kept.get(wanted.shared[0][0] if wanted.shared else name) or Kept(
            unknown=["a module that the export does not look into or never calls"]
        )
        size = _size(name, wanted, found)
        sizes.append(size)
        if size.physical > size.kept and found.unknown:
            refusals[name] = (
                f"layer {name!r}: {size.physical - size.kept} of its cut groups cannot be removed because "
                f"of {', '.join(found.unknown)}, which the export does not know; with strict=False they stay "
                "as zeros"
            )
        elif wanted.exact:
            refusals |= _inexact(name, wanted, size, kept)
    return _Attempt(model, tuple(sizes), refusals)


def _inexact(name: str, asked: Asked, size: LayerSize, kept: dict[str, Kept]) -> dict[str, str]:
    """The errors of a layer whose size was set with an example, and of those with the same channels."""
    sizes = {
        other: _groups_left(asked, slab, kept[other].rows) for other, slab in asked.shared if other in kept
    }
    found = {other: left * asked.unit for other, left in sizes.items()} or {name: size.physical}
    what = "inputs" if asked.groups.kind == "in" else asked.groups.kind
    return {
        other: f"layer {other!r} has {left} {what} after the export, but keep asks for {size.kept}; "
        + (size.note if left > size.kept else _FEWER)
        for other, left in found.items()
        if left != size.kept
    }


def _groups_left(asked: Asked, slab: Slab, entries: Tensor | None) -> int:
    """The number of groups with one of these entries along the axis of a slab; None stands for all."""
    if entries is None:
        return asked.groups.count
    group = torch.div(entries - slab.start, slab.block, rounding_mode="floor")
    return group[(group >= 0) & (group < asked.groups.count)].unique().numel()


def _size(name: str, asked: Asked, kept: Kept) -> LayerSize:
    """The requested and the physical size of one layer."""
    groups, slab, unit = asked.groups, asked.slab, asked.unit
    physical = _groups_left(asked, slab, kept.columns if asked.by_input else kept.rows)
    reasons = dict.fromkeys(kept.kept_by + kept.unknown)  # each once
    note = ", ".join(reasons) or _SHARED
    others = [other for other, _ in asked.shared if other != name]
    shared = f"the same channels as {', '.join(dict.fromkeys(others))}" if others else ""
    note = f"kept by {note}" if physical > asked.kept else shared
    return LayerSize(name, groups.kind, unit * groups.count, unit * asked.kept, unit * physical, note)

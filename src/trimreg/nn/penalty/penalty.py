r"""The trimmed group penalty on a network, and the step that it takes after the optimizer's.

For each layer, with groups of norms r and the number h of groups that stay free,

.. math:: \alpha \min_{w \in S} \sum_g w_g r_g(\theta), \qquad S = \{0 \le w \le 1,\ 1'w = count - h\}.

======================  =========================================================================
paper                   here
======================  =========================================================================
:math:`\lambda`         ``alpha``, of the layer
:math:`\eta`            the learning rate of the layer's parameter group
:math:`\tau`            ``tau``
:math:`r(\theta)`       ``layers[name].norms()``
:math:`w`               ``weights()[name]``
======================  =========================================================================
"""

from __future__ import annotations

import math
import numbers
import warnings

import torch
from torch import Tensor, distributed, nn

from . import rules
from .hook import attach
from .packs import Pack, divide
from .resolve import checked_size, resolve_layers, strengths
from .schedules import within
from .scores import RANKINGS, ScoredGroups, scored

MODES = ("exact", "bcd", "subgradient")
METRICS = ("plain", "optimizer")


class TrimmedGroupL1(nn.Module):
    r"""Train a network to an exact size: in each layer all groups but ``keep`` are penalized away.

    Build it on the model, attach it to the optimizer, train as usual, and call :meth:`finalize_`. Training
    decides which groups stay; how many is ``keep``, exactly.

    Parameters
    ----------
    model : nn.Module
        Plain, compiled, or wrapped for data-parallel training.
    keep : dict
        How many groups each layer keeps. A key is a name of ``named_modules``, a glob over such names, or the
        module itself; layers that are not named are left alone. ``"conv*"`` is for the last part of a name,
        at any depth; in a glob with dots, such as ``"blocks.*.conv1"``, ``*`` stays between two dots, and
        ``**`` does not. For an ensemble also one integer a replica.
    alpha : float or dict
        Strength, for all layers or by layer. Infinity (the default) is hard: the groups beyond h are zero
        after every step. Then let h come down slowly with ``h_schedule``.
    groups : {"auto", "in", "out", "rows", "heads"}, callable or dict
        As in :func:`trimreg.nn.layer_groups`.
    mode : {"exact", "bcd", "subgradient"}
        - "exact": the h largest groups go free, the others take a proximal step,
          :math:`\theta_g \leftarrow (1 - lr\,\alpha / r_g)_+ \theta_g`. This is the proximal map of the
          penalty.
        - "bcd": the paper's Algorithm 1. The proximal step has the weights w, and then
          :math:`w \leftarrow \mathrm{proj}_S[w - \tau r(\theta)]`.
        - "subgradient": as the authors' code: add :meth:`loss` to the loss; w moves as in "bcd", and no
          proximal step is taken. The gradient of the penalty makes it the slowest of the three.
    tau : float
        Step of w.
    metric : {"plain", "optimizer"}
        "optimizer" takes the proximal step in the metric of Adam or AdamW; see
        :mod:`trimreg.nn.penalty.metric`. It
        costs some passes over the weights, which on a CPU may take longer than the training step itself.
    alpha_schedule, h_schedule : callable, optional
        From the number of steps to a fraction in [0, 1], such as :class:`trimreg.nn.Ramp`. The strength is
        ``alpha * fraction``, and ``h = round(count + (keep - count) * fraction)``.
    freeze_at : int, optional
        After so many steps the ``keep`` largest groups are fixed: the others are zero from there on, and the
        kept ones are not penalized.
    rank_by : {"norm", "taylor", "activity"}
        Which groups are the h that go free: those of the largest norm, those whose absence would change the
        loss most to first order, or the input units that send on most; see
        :mod:`trimreg.nn.penalty.scores`. The
        last two need the hard penalty. On MNIST "taylor" was the best by validation.
    mask_ones : bool
        Modes "bcd" and "subgradient": zero the groups of weight 1 after every step, as the authors' code
        masks them.
    cuda_graph : bool
        Queue the step on a CUDA device as one captured graph instead of kernel by kernel, which matters for
        small networks. Changes nothing else; where it cannot be (no CUDA device, a draw of Bayesian weights,
        an enclosing capture, a schedule that asks for a number) the step is taken as usual.

    Attributes
    ----------
    layers : dict of str to LayerGroups
    keep : dict of str to int
        After names, globs and modules are resolved.

    Examples
    --------
    >>> import torch
    >>> from torch import nn
    >>> from trimreg.nn import Ramp, TrimmedGroupL1
    >>> _ = torch.manual_seed(0)
    >>> model = nn.Sequential(nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, 1))
    >>> optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    >>> penalty = TrimmedGroupL1(model, keep={"0": 2, "2": 4}, h_schedule=Ramp(50, 150))
    >>> handle = penalty.attach(optimizer)
    >>> X = torch.randn(64, 8)
    >>> y = X[:, :1].abs() + X[:, 1:2]
    >>> for _ in range(200):
    ...     optimizer.zero_grad()
    ...     nn.functional.mse_loss(model(X), y).backward()
    ...     _ = optimizer.step()
    >>> penalty.finalize_()
    >>> penalty.kept()["0"]
    tensor([ True,  True, False, False, False, False, False, False])
    >>> {name: int((layer.norms() > 0).sum()) for name, layer in penalty.layers.items()}
    {'0': 2, '2': 4}
    """

    def __init__(
        self,
        model: nn.Module,
        keep: dict,
        alpha=math.inf,
        groups="auto",
        mode: str = "exact",
        *,
        tau: float = 1e-3,
        metric: str = "plain",
        alpha_schedule=None,
        h_schedule=None,
        freeze_at: int | None = None,
        rank_by: str = "norm",
        mask_ones: bool = False,
        cuda_graph: bool = True,
    ):
        super().__init__()
        found = resolve_layers(model, keep, groups)
        if rank_by not in RANKINGS:
            raise ValueError(f"rank_by must be one of {', '.join(map(repr, RANKINGS))}; got {rank_by!r}")
        self.rank_by = rank_by
        self.layers = {name: scored(layer, rank_by) for name, (layer, _) in found.items()}
        self.keep = {
            name: checked_size(name, layer.count, layer.replicas, size)
            for name, (layer, size) in found.items()
        }
        self.alpha = strengths(alpha, self.layers, model)
        self.mode, self.metric, self.tau = mode, metric, tau
        self.alpha_schedule, self.h_schedule, self.freeze_at = alpha_schedule, h_schedule, freeze_at
        self.mask_ones, self.cuda_graph = mask_ones, cuda_graph
        self._check_options()
        parameters = [slab.tensor() for layer in self.layers.values() for slab in layer.slabs]
        devices = {parameter.device for parameter in parameters}
        if len(devices) > 1:
            raise ValueError(
                f"the penalized layers lie on several devices, {devices}; use a penalty for each"
            )
        device = devices.pop()
        dtype = torch.float64 if any(p.dtype == torch.float64 for p in parameters) else torch.float32
        self.register_buffer("step", torch.zeros((), dtype=torch.int64, device=device), persistent=False)
        self.register_buffer("frozen", torch.zeros((), dtype=torch.bool, device=device), persistent=False)
        self.packs = nn.ModuleList(
            Pack({name: self.layers[name] for name in names}, self.keep, self.alpha, device, dtype)
            for names in divide(self.layers)
        )
        self._attached = None
        with torch.no_grad():
            for pack in self.packs:
                self._start(pack)

    def _check_options(self):
        if self.mode not in MODES:
            raise ValueError(f"mode must be one of {', '.join(map(repr, MODES))}; got {self.mode!r}")
        if self.metric not in METRICS:
            raise ValueError(f"metric must be one of {', '.join(map(repr, METRICS))}; got {self.metric!r}")
        if self.metric == "optimizer" and self.mode == "subgradient":
            raise ValueError(
                "mode 'subgradient' takes no proximal step, so it has no metric; leave it 'plain'"
            )
        if (
            isinstance(self.tau, bool)
            or not isinstance(self.tau, numbers.Real)
            or not 0 < self.tau < math.inf
        ):
            raise ValueError(f"tau must be a positive number; got {self.tau!r}")
        for name, value in self.alpha.items():
            values = value if isinstance(value, tuple) else (value,)
            infinite = any(map(math.isinf, values))
            if self.rank_by != "norm" and not all(map(math.isinf, values)):
                raise ValueError(
                    f"layer {name!r}: rank_by={self.rank_by!r} is for the hard penalty; leave alpha infinite"
                )
            if infinite and self.mode != "exact":
                raise ValueError(
                    f"layer {name!r}: mode {self.mode!r} needs a finite alpha; give one, such as 1e-4"
                )
            if infinite and self.alpha_schedule is not None:
                raise ValueError(
                    f"layer {name!r}: an infinite alpha has no schedule; use h_schedule, or a finite one"
                )
        for name in ("alpha_schedule", "h_schedule"):
            if getattr(self, name) is not None and not callable(getattr(self, name)):
                raise TypeError(
                    f"{name} must be a callable such as Ramp(100, 1000); got {getattr(self, name)!r}"
                )
        if self.freeze_at is not None:
            if isinstance(self.freeze_at, bool) or not isinstance(self.freeze_at, numbers.Integral):
                raise TypeError(f"freeze_at must be a number of steps, an integer; got {self.freeze_at!r}")
            if self.freeze_at < 1:
                raise ValueError(f"freeze_at must be at least 1; got {self.freeze_at!r}")
        if self.mask_ones and self.mode == "exact":
            raise ValueError(
                "mask_ones belongs to modes 'bcd' and 'subgradient'; in 'exact' take alpha=math.inf"
            )

    # -- what it says ---------------------------------------------------------------------------------------

    def loss(self) -> Tensor:
        r""":math:`\sum_{layers} \alpha(t) \sum_g w_g r_g`, differentiable; 0 once the structure is frozen.

        Add it to the loss in mode "subgradient". The norms of a Bayesian layer are those of a fresh draw.
        """
        self._follow()
        total = 0.0
        for pack in self.packs:
            weights, alpha = self._weights(pack), self._strength(pack)
            for name, layer in pack.layers.items():
                sizes = (pack.of(weights, name) * layer.norms(sampled=True)).sum(-1)
                rows = alpha[pack.places[name], 0].reshape(sizes.shape)
                # An infinite alpha must not meet a 0, nor the gradient of one.
                total = total + (rows.masked_fill((sizes == 0) | self.frozen, 0.0) * sizes).sum()
        return total

    def kept(self) -> dict[str, Tensor]:
        """Masks ``(*replicas, count)`` of the groups that stay: exactly ``keep`` are True in each."""
        with torch.no_grad():
            return self._by_layer(self._masks())

    def weights(self) -> dict[str, Tensor]:
        """The weights w of each layer."""
        return self._by_layer((pack, self._weights(pack)) for pack in self.packs)

    def h(self) -> dict[str, Tensor]:
        """How many groups of each layer are free at this step, of shape ``(*replicas,)``."""
        rows = {
            name: (layer, self._free(pack)[pack.places[name], 0])
            for pack in self.packs
            for name, layer in pack.layers.items()
        }
        return {name: rows[name][1].reshape(rows[name][0].replicas).to(torch.int64) for name in self.layers}

    def _by_layer(self, tables) -> dict[str, Tensor]:
        """The parts of the packs' tables, in the order of the layers."""
        found = {name: pack.of(table, name) for pack, table in tables for name in pack.layers}
        return {name: found[name].clone() for name in self.layers}

    def extra_repr(self) -> str:
        sizes = ", ".join(
            f"{name}: {self.keep[name]} of {layer.count}" for name, layer in self.layers.items()
        )
        return f"{sizes}; mode={self.mode!r}"

    # -- what it does ---------------------------------------------------------------------------------------

    @torch.no_grad()
    def freeze_(self) -> None:
        """Fix the ``keep`` largest groups of each layer, and zero the others. Further steps keep it so."""
        for name, layer in self.layers.items():
            if not all(torch.isfinite(slab.tensor()).all() for slab in layer.slabs):
                raise ValueError(
                    f"layer {name!r} has weights that are infinite or NaN, so the training diverged; take a "
                    "smaller learning rate, or go back to a checkpoint"
                )
        for pack, mask in self._masks():
            pack.kept.copy_(mask)
            pack.mask_()
        self.frozen.fill_(True)

    def finalize_(self) -> None:
        """Zero the groups that are not kept, with their biases, and freeze the structure.

        Warns where groups that are kept are zero: a soft penalty that is too strong takes these too.
        """
        self.freeze_()
        self.warn_of_zeros()

    @torch.no_grad()
    def warn_of_zeros(self) -> None:
        """A warning that names each layer of whose ``keep`` groups fewer are left."""
        kept = self.kept()
        for name, layer in self.layers.items():
            zero = int((kept[name] & (layer.norms() == 0)).sum())
            if zero:
                total = int(kept[name].sum())
                warnings.warn(
                    f"layer {name!r}: {zero} of the {total} groups that are kept are zero, so that less is "
                    "left than was asked for; take a smaller alpha or a smaller learning rate",
                    stacklevel=3,
                )

    def attach(self, optimizer):
        """Take the penalty's step after every step of ``optimizer``; returns a handle with ``remove()``."""
        return attach(self, optimizer)

    # -- the parts of a step, on a pack ---------------------------------------------------------------------

    def _start(self, pack):
        """The first weights: w^1 = proj_S[w^0 - tau r(theta^0)], as Algorithm 1 begins."""
        pack.kept.copy_(rules.kept_largest(pack.measure(), pack.target))
        if self.mode != "exact":
            # The projection does not feel a uniform w^0, so 0 will do.
            r = self._drawn(pack)
            pack.weights.copy_(self._projected(pack, torch.zeros_like(r), r, self._free(pack)))

    def _drawn(self, pack) -> Tensor:
        """The norms that w goes by: of a draw of the weights, where these are random.

        The same draw in all processes of a distributed training, whose w would part otherwise and their
        weights with it. So it is seeded by the step, which costs a look at the device there.
        """
        alone = not (distributed.is_available() and distributed.is_initialized())
        if not pack.draws or alone or distributed.get_world_size() == 1:
            return pack.measure(sampled=True)
        place = next(place for place, one in enumerate(self.packs) if one is pack)
        draw = torch.Generator(device=pack.norms.device)
        return pack.measure(sampled=draw.manual_seed(int(self.step) * len(self.packs) + place))

    def _free(self, pack) -> Tensor:
        """h of each row at this step; the target from ``freeze_at`` on."""
        if self.h_schedule is None:
            return pack.target
        h = torch.round(pack.count + pack.fall * within(self.h_schedule, self.step))
        if self.freeze_at is not None:
            h = torch.where(self.step >= self.freeze_at, pack.target, h)
        return h

    def _strength(self, pack) -> Tensor:
        if self.alpha_schedule is None:
            return pack.alpha
        return pack.alpha * within(self.alpha_schedule, self.step)

    def _projected(self, pack, w, r, free) -> Tensor:
        return rules.project(w - self.tau * r, pack.count - free, pack.valid if pack.padded else None)

    def _weights(self, pack) -> Tensor:
        if self.mode == "exact":
            with torch.no_grad():
                free = rules.kept_largest(pack.measure(), self._free(pack))
                weights = (~free & pack.valid).to(pack.weights.dtype)
        else:
            weights = pack.weights
        return torch.where(self.frozen, (~pack.kept & pack.valid).to(weights.dtype), weights)

    def _masks(self):
        self._follow()
        for pack in self.packs:
            r = pack.measure()
            for name, layer in pack.layers.items():
                if isinstance(layer, ScoredGroups) and not layer.score.value.any():
                    pack.of(r, name).copy_(layer.norms())  # no step yet: there is nothing else to go by
            yield pack, torch.where(self.frozen, pack.kept, rules.kept_largest(r, pack.target))

    def _follow(self):
        """Go where the model has gone since."""
        device = next(iter(self.layers.values())).slabs[0].tensor().device
        if device != self.step.device:
            self.to(device)

    # -- state ----------------------------------------------------------------------------------------------

    def _apply(self, fn, recurse=True):
        for pack in self.packs:
            pack._apply(fn)
        device = self.packs[0].count.device
        self.step, self.frozen = self.step.to(device), self.frozen.to(device)
        for layer in self.layers.values():
            if isinstance(layer, ScoredGroups):
                layer.score.value = layer.score.value.to(device)
        return self

    def _state(self) -> dict[str, Tensor]:
        """All that a state holds, as views."""
        found = {"step": self.step, "frozen": self.frozen}
        for pack in self.packs:
            for name, layer in pack.layers.items():
                found[f"weights.{name}"] = pack.of(pack.weights, name)
                found[f"kept.{name}"] = pack.of(pack.kept, name)
                if isinstance(layer, ScoredGroups):
                    found[f"score.{name}"] = layer.score.value
        return found

    def _save_to_state_dict(self, destination, prefix, keep_vars):
        destination.update((prefix + key, value.clone()) for key, value in self._state().items())

    def _load_from_state_dict(self, state_dict, prefix, metadata, strict, missing, unexpected, errors):
        wanted, found = self._state(), {}
        for key, target in wanted.items():
            given = state_dict.get(prefix + key)
            if given is None:
                missing.append(prefix + key)
            elif tuple(given.shape) != tuple(target.shape):
                errors.append(
                    f"{prefix}{key} has shape {tuple(given.shape)}; this penalty's is {tuple(target.shape)}"
                )
            else:
                found[key] = given
        if not errors and bool(found.get("frozen", self.frozen)):
            for name, keep in self.keep.items():
                mask = found.get(f"kept.{name}", wanted[f"kept.{name}"])
                sizes = mask.sum(-1).flatten().tolist()
                if sizes != (list(keep) if isinstance(keep, tuple) else [keep] * len(sizes)):
                    errors.append(f"{prefix}kept.{name} is frozen at another size than keep={keep}")
        if not errors:  # what is refused changes nothing
            with torch.no_grad():
                for key, given in found.items():
                    wanted[key].copy_(given)
        if strict:
            inside = [key for key in state_dict if key.startswith(prefix)]
            unexpected += [key for key in inside if key[len(prefix) :] not in wanted]

    def __getstate__(self):
        # A copy is attached to nothing: the optimizer's hook belongs to the original.
        return {**self.__dict__, "_attached": None}

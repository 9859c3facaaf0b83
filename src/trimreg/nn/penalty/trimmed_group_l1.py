r"""The trimmed group penalty on a network.

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
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..groups import shards
from ..groups.channels import inside
from ..groups.layer_groups import OF_BLOCKS
from ..groups.resolve import checked_size, resolve_layers, strengths, unwrapped
from ..structure.budget import Budget
from . import notices, updates
from .fall import Fall
from .hook import Handle, attach
from .packs import Pack, divide, draws
from .rules import kept_largest
from .scores import RANKINGS, ScoredGroups, scored
from .split import Split

MODES = ("exact", "bcd", "subgradient")


class TrimmedGroupL1(nn.Module):
    r"""Train a network to an exact size: in each layer all groups but ``keep`` are penalized away.

    Build it on the model, attach it to the optimizer, train as usual, and call :meth:`finalize_`. Training
    decides which groups stay; how many is ``keep``, exactly.

    Parameters
    ----------
    model : nn.Module
        Plain, compiled, wrapped for data-parallel training, or sharded by
        ``torch.distributed.fsdp.fully_shard`` before the penalty is built.
    keep : dict, int, float or Budget
        How many groups each layer keeps: their number, or below 1 a fraction of them, rounded and at least 1.
        A key is a name of ``named_modules``, a glob over such names, or the module itself; layers that are
        not named are left alone. A glob without dots, such as ``"conv*"``, matches the last part of a name,
        at any depth. In a glob with dots, such as ``"blocks.*.conv1"``, ``*`` matches within one part and
        ``**`` any number of parts. For an ensemble, the value may also be one size per replica.

        One value without a dict is for everything that can be trimmed: with an ``example_input`` channels,
        heads and units; without one the inputs of linear layers, or heads and units. A
        :class:`trimreg.nn.Budget` is for the whole network; its sizes are decided when h begins to fall, see
        :mod:`trimreg.nn.penalty.split`.
    alpha : float or dict
        Strength of the penalty, for all layers or by layer. With infinity, the default, the penalty is hard:
        all groups but the h largest are zero after every step, and h falls slowly to ``keep``.
    groups : {"auto", "channels", "in", "out", "rows", "heads", "queries", "width", "units"}, callable or dict
        As in :func:`trimreg.nn.layer_groups`; "channels" needs an ``example_input``. In each part of a
        recurrent layer, and inside each head with "queries" and "width", the same number of groups stays.
    mode : {"exact", "bcd", "subgradient"}
        - "exact": the h largest groups are free, and the others take a proximal step,
          :math:`\theta_g \leftarrow (1 - lr\,\alpha / r_g)_+ \theta_g`. This is the proximal map of the
          penalty.
        - "bcd": the paper's Algorithm 1. The proximal step uses the weights w, which then move by
          :math:`w \leftarrow \mathrm{proj}_S[w - \tau r(\theta)]`.
        - "subgradient": as in the authors' code. Add :meth:`loss` to the loss; w moves as in "bcd", and there
          is no proximal step. The gradient of the penalty makes this the slowest of the three.
    tau : float
        Step size of w.
    alpha_schedule : callable, optional
        Maps the number of steps to a fraction in [0, 1], such as :class:`trimreg.nn.Ramp`. The strength is
        ``alpha * fraction``.
    h_schedule : "auto", callable or None
        Such a callable for ``h = round(count + (keep - count) * fraction)``. With None, h is ``keep`` from
        the first step on. By default that is so for a soft penalty. For a hard penalty h falls by itself: as
        a cubic :class:`trimreg.nn.Ramp` from 5 to 60 % of the training; then the structure is frozen. The
        length of the training is ``steps``, or that of the optimizer's learning-rate scheduler (cosine, one
        cycle, linear or polynomial decay, those of transformers). If neither tells it, h falls over the first
        :math:`85 \sqrt n` steps, where n is the most groups that a layer loses.
    freeze_at : int, optional
        Number of steps after which the ``keep`` largest groups are fixed: the others are zero from then on,
        and the kept ones are not penalized. If h falls by itself, it has fallen by then.
    steps : int, optional
        Number of steps of the optimizer in the training, if h falls by itself.
    rank_by : {"norm", "taylor", "activity"}
        How groups are ranked: by their norm, by the change of the loss, to first order, if the group were
        removed, or by the output of the input unit; see :mod:`trimreg.nn.penalty.scores`. The last two need
        the hard penalty. "taylor" pays where little of a network is left.
    rank_every : int, optional
        Number of steps between two rankings under the hard penalty. In between, the groups that were cut stay
        zero, and a new h waits; this halves what the penalty costs. The default is 1, or 4 if h falls by
        itself over 400 steps or more.
    mask_ones : bool
        In modes "bcd" and "subgradient", set the groups of weight 1 to zero after every step, as the
        authors' code does.
    cuda_graph : bool
        Queue the step on a CUDA device as one captured graph instead of kernel by kernel, which is faster for
        small networks and changes nothing else. If a capture is not possible (no CUDA device, Bayesian
        weights that are drawn, an enclosing capture, a schedule that needs a number), the step is taken as
        usual.
    example_input : Tensor or tuple of positional inputs, optional
        A batch to follow the channels with. Then a group of a convolution is a channel in all layers that
        share it (residual sums, batch norms, convolutions by channel; see
        :mod:`trimreg.nn.groups.channels`), ``keep`` counts what is there after :func:`trimreg.nn.export`,
        and the export fails if it is not. A size for one layer holds for all that have the same channels.
        Linear layers still count their inputs, unless ``groups="channels"``, with which every layer counts
        its outputs. The model must be one that ``torch.fx`` can trace.

    Attributes
    ----------
    layers : dict of str to LayerGroups
    keep : dict of str to int
        The size of each layer, by its name. Those of a budget are by norms until they are decided.
    coupling : Coupling or None
        With an ``example_input``, which channels belong together, and the cost of the network as a function
        of how many are kept; see :mod:`trimreg.nn.structure.coupling`.
    handle : Handle or None
        The handle of :meth:`attach`; None if the penalty is not attached.

    Examples
    --------
    >>> import torch
    >>> from torch import nn
    >>> from trimreg.nn import TrimmedGroupL1
    >>> _ = torch.manual_seed(0)
    >>> model = nn.Sequential(nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, 1))
    >>> optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    >>> penalty = TrimmedGroupL1(model, keep={"0": 2, "2": 4})
    >>> handle = penalty.attach(optimizer, steps=200)
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

    step: Tensor
    frozen: Tensor

    def __init__(
        self,
        model: nn.Module,
        keep: dict | float | Budget,
        alpha: float | dict = math.inf,
        groups: str | Callable | dict = "auto",
        mode: str = "exact",
        *,
        tau: float = 1e-3,
        alpha_schedule: Callable | None = None,
        h_schedule: Callable | str | None = "auto",
        freeze_at: int | None = None,
        steps: int | None = None,
        rank_by: str = "norm",
        rank_every: int | None = None,
        mask_ones: bool = False,
        cuda_graph: bool = True,
        example_input: Tensor | tuple | None = None,
    ):
        super().__init__()
        found, self.coupling = resolve_layers(model, keep, groups, example_input)
        self.rank_by = rank_by
        self.layers = {name: scored(layer, rank_by) for name, (layer, _) in found.items()}
        self.split: Split | None = None
        if isinstance(keep, Budget):
            self.split = Split(keep, self.layers, rank_by, self.coupling, unwrapped(model), example_input)
            self.keep: dict = self.split.by_norms(self.layers)
        else:
            self.keep = {
                name: checked_size(name, layer.count, () if layer.kind in OF_BLOCKS else layer.replicas, size)
                for name, (layer, size) in found.items()
            }
        self.inside = () if self.coupling is None else inside(self.coupling, self.layers, self.keep)
        self.alpha = strengths(alpha, self.layers, model)
        self.mode, self.tau = mode, tau
        self.h_schedule: Any = h_schedule
        self.alpha_schedule, self._freeze_at = alpha_schedule, freeze_at
        self.rank_every, self.mask_ones, self.cuda_graph = rank_every, mask_ones, cuda_graph
        self.calls = 0  # steps, counted on the host so that none has to ask the device
        self.sharded = any(shards.is_sharded(layer) for layer in self.layers.values())
        self._check_options()
        parameters = [slab.tensor() for layer in self.layers.values() for slab in layer.slabs]
        devices = {parameter.device for parameter in parameters}
        if len(devices) > 1:
            raise ValueError(f"the layers are on several devices, {devices}; use one penalty per device")
        device = devices.pop()
        if h_schedule == "auto":
            cut = max(layer.count - np.min(self.keep[name]) for name, layer in self.layers.items())
            self.h_schedule = Fall(device, int(cut), freeze_at) if self._some_hard() else None
        if steps is not None:
            self.tell_(steps)
        dtype = torch.float64 if any(p.dtype == torch.float64 for p in parameters) else torch.float32
        self.register_buffer("step", torch.zeros((), dtype=torch.int64, device=device), persistent=False)
        self.register_buffer("frozen", torch.zeros((), dtype=torch.bool, device=device), persistent=False)
        watched = self.split is not None
        self.packs = nn.ModuleList(
            Pack({name: self.layers[name] for name in names}, self.keep, self.alpha, device, dtype, watched)
            for names in divide(self.layers, {one.layer for one in self.inside})
        )
        places = {name: pack for pack in self.packs for name in pack.layers}
        for one in self.inside:
            places[one.layer].inside.append((one, places[one.channels]))
        # After a forward pass without a backward pass some layers of FSDP2 still hold gathered copies.
        modules = unwrapped(model).modules() if self.sharded else ()
        self.resharded = [module for module in modules if hasattr(module, "reshard")]
        self.handle: Handle | None = None
        with torch.no_grad():
            for pack in self.packs:
                h = updates.free_groups(self, pack)
                pack.kept.copy_(kept_largest(pack.rank_inside_(pack.measure()), h))
                if mode != "exact":
                    # Algorithm 1 begins with w^1 = proj_S[w^0 - tau r(theta^0)]. A uniform w^0 does not
                    # change the projection, so 0 will do.
                    r = updates.drawn_norms(self, pack)
                    pack.weights.copy_(updates.moved_weights(self, pack, torch.zeros_like(r), r))

    def _check_options(self) -> None:
        for name, allowed in (("mode", MODES), ("rank_by", RANKINGS)):
            value = getattr(self, name)
            if value not in allowed:
                raise ValueError(f"{name} must be one of {', '.join(map(repr, allowed))}; got {value!r}")
        number = isinstance(self.tau, numbers.Real) and not isinstance(self.tau, bool)
        if not number or not 0 < self.tau < math.inf:
            raise ValueError(f"tau must be a positive number; got {self.tau!r}")
        for name, value in self.alpha.items():
            infinite = [math.isinf(alpha) for alpha in (value if isinstance(value, tuple) else (value,))]
            if self.rank_by != "norm" and not all(infinite):
                raise ValueError(f"layer {name!r}: rank_by={self.rank_by!r} needs an infinite alpha")
            if not all(infinite) and any(name in (one.layer, one.channels) for one in self.inside):
                raise ValueError(
                    f"layer {name!r}: entries inside channels need an infinite alpha for both layers"
                )
            if any(infinite) and self.mode != "exact":
                raise ValueError(f"layer {name!r}: mode {self.mode!r} needs a finite alpha, such as 1e-4")
            if any(infinite) and self.alpha_schedule is not None:
                raise ValueError(f"layer {name!r}: alpha_schedule needs a finite alpha; or use h_schedule")
        drawn = self.mode != "exact" and any(draws(layer) for layer in self.layers.values())
        if self.sharded and (drawn or self.mode == "subgradient" or self.rank_by == "activity"):
            raise NotImplementedError(
                "parameters that are sharded over processes need mode 'exact' (or 'bcd' without Bayesian "
                f"layers) and rank_by 'norm' or 'taylor'; got mode={self.mode!r} and rank_by={self.rank_by!r}"
            )
        for name, other in (("alpha_schedule", None), ("h_schedule", "auto")):
            schedule = getattr(self, name)
            if schedule not in (None, other) and not callable(schedule):
                allowed = "a callable such as Ramp(100, 1000)" + (" or 'auto'" if other else "")
                raise TypeError(f"{name} must be {allowed}; got {schedule!r}")
        if self._freeze_at is not None:
            checked_steps("freeze_at", self._freeze_at)
        if self.rank_every is not None:
            checked_steps("rank_every", self.rank_every)
        if self.mask_ones and self.mode == "exact":
            raise ValueError("mask_ones needs mode 'bcd' or 'subgradient'; in 'exact' use alpha=math.inf")

    def _some_hard(self) -> bool:
        values = [value if isinstance(value, tuple) else (value,) for value in self.alpha.values()]
        return math.inf in sum(values, ())

    @property
    def falls(self) -> bool:
        """Whether h falls by itself, over a span that the length of the training decides."""
        return isinstance(self.h_schedule, Fall) and self._freeze_at is None

    @property
    def freeze_at(self) -> int | Tensor | None:
        """The step at which the structure is fixed; a tensor if h falls by itself."""
        return self.h_schedule.end if isinstance(self.h_schedule, Fall) else self._freeze_at

    # -- values ---------------------------------------------------------------------------------------------

    def loss(self) -> Tensor:
        r"""The value :math:`\sum_{layers} \alpha(t) \sum_g w_g r_g`; 0 once the structure is frozen.

        It is differentiable: add it to the loss in mode "subgradient". The norms of a Bayesian layer are
        those of a fresh draw.
        """
        self.follow_model_()
        total = 0.0
        for pack in self.packs:
            weights, alpha = self._weights(pack), updates.strength(self, pack)
            for name, layer in pack.layers.items():
                sizes = (pack.of(weights, name) * layer.norms(sampled=True)).sum(-1)
                rows = alpha[pack.places[name], 0].reshape(sizes.shape)
                # An infinite alpha must not be multiplied by 0, nor by the gradient of 0.
                total = total + (rows.masked_fill((sizes == 0) | self.frozen, 0.0) * sizes).sum()
        return total

    def kept(self) -> dict[str, Tensor]:
        """Masks ``(*replicas, count)`` of the kept groups: exactly ``keep`` are True in each."""
        with torch.no_grad():
            return self._by_layer(self._masks())

    def weights(self) -> dict[str, Tensor]:
        """The weights w of each layer."""
        return self._by_layer((pack, self._weights(pack)) for pack in self.packs)

    def h(self) -> dict[str, Tensor]:
        """The number of free groups of each layer at this step, of shape ``(*replicas,)``."""
        tables = ((pack, updates.free_groups(self, pack).expand(pack.norms.shape)) for pack in self.packs)
        return {name: h[..., 0].to(torch.int64) for name, h in self._by_layer(tables).items()}

    def _by_layer(self, tables: Iterable[tuple[Pack, Tensor]]) -> dict[str, Tensor]:
        """The rows of the packs' tables by layer, in the order of the layers."""
        found = {name: pack.of(table, name) for pack, table in tables for name in pack.layers}
        return {name: found[name].clone() for name in self.layers}

    def extra_repr(self) -> str:
        sizes = [f"{name}: {self.keep[name]} of {layer.count}" for name, layer in self.layers.items()]
        return f"{', '.join(sizes)}; mode={self.mode!r}"

    # -- actions --------------------------------------------------------------------------------------------

    @torch.no_grad()
    def freeze_(self) -> None:
        """Fix the ``keep`` largest groups of each layer; set the others to zero, now and in later steps."""
        self._refuse_divergence()
        self.decide_()
        for pack, mask in self._masks():
            pack.kept.copy_(mask)
            pack.mask_()
        self.frozen.fill_(True)

    def decide_(self) -> None:
        """Split a budget over the layers by the scores until now, once; by itself when h begins to fall."""
        if self.split is not None:
            self.split.decide_(self)

    def finalize_(self) -> None:
        """Set the groups that are not kept to zero, with their biases, and freeze the structure.

        Warns if these groups are not zero yet, with their norm: the training was shorter than h needs to
        fall, a soft penalty is too weak, or the penalty has never taken a step. Also warns if kept groups are
        zero, which happens if a soft penalty is too strong.
        """
        self._refuse_divergence()
        self.warn_of_cuts("finalize_")
        self.freeze_()
        self.warn_of_zeros()

    def _refuse_divergence(self) -> None:
        for name, layer in self.layers.items():
            if not shards.all_finite(layer):
                problem = f"layer {name!r} has infinite or NaN weights: the training diverged"
                raise ValueError(f"{problem}; use a smaller learning rate, or go back to a checkpoint")

    warn_of_cuts, warn_of_zeros = notices.warn_of_cuts, notices.warn_of_zeros

    def attach(self, optimizer: torch.optim.Optimizer, steps: int | None = None) -> Handle:
        """Take the penalty's step after every step of ``optimizer``; returns a handle with ``remove()``.

        ``steps`` is as in the constructor: the number of steps in the training, if h falls by itself.
        """
        handle = attach(self, optimizer)
        if steps is not None:
            self.tell_(steps)
        return handle

    def tell_(self, steps: int) -> None:
        """Tell the number of steps in the training, from which h takes the span in which it falls."""
        checked_steps("steps", steps)
        if not self.falls:
            raise ValueError("steps needs a hard penalty whose h falls by itself: no h_schedule or freeze_at")
        self.h_schedule.within_(steps)

    def follow_model_(self) -> None:
        """Move the penalty to the device of its layers, and the layers of FSDP2 back to their shards."""
        for module in self.resharded:
            module.reshard()
        device = next(iter(self.layers.values())).slabs[0].tensor().device
        if device != self.step.device:
            self.to(device)

    def _weights(self, pack: Pack) -> Tensor:
        if self.mode == "exact":
            with torch.no_grad():
                free = kept_largest(pack.rank_inside_(pack.measure()), updates.free_groups(self, pack))
                weights = (~free & pack.valid).to(pack.weights.dtype)
        else:
            weights = pack.weights
        return torch.where(self.frozen, (~pack.kept & pack.valid).to(weights.dtype), weights)

    def _masks(self) -> Iterator[tuple[Pack, Tensor]]:
        self.follow_model_()
        masks: dict[Pack, Tensor] = {}
        for pack in self.packs:
            r = pack.measure()
            for name, layer in pack.layers.items():
                if isinstance(layer, ScoredGroups) and not layer.score.value.any():
                    pack.of(r, name).copy_(layer.norms())  # before the first step
            r = pack.rank_inside_(r, masks)
            masks[pack] = torch.where(self.frozen, pack.kept, kept_largest(r, pack.target))
            yield pack, masks[pack]

    # -- state ----------------------------------------------------------------------------------------------

    def _apply(self, fn: Callable, recurse: bool = True) -> TrimmedGroupL1:
        for pack in self.packs:
            pack._apply(fn)
        device = self.packs[0].count.device
        self.step, self.frozen = self.step.to(device), self.frozen.to(device)
        if isinstance(self.h_schedule, Fall):
            self.h_schedule.to_(device)
        return self

    def _state(self) -> dict[str, Tensor]:
        """The entries of a state, as views."""
        found = {"step": self.step, "frozen": self.frozen}
        for pack in self.packs:
            for name, layer in pack.layers.items():
                found[f"weights.{name}"] = pack.of(pack.weights, name)
                found[f"kept.{name}"] = pack.of(pack.kept, name)
                if isinstance(layer, ScoredGroups) or self.split is not None:
                    found[f"score.{name}"] = pack.of(pack.scores, name)
        if self.split is not None:
            found |= {"budget.decided": self.split.decided, "budget.sizes": self.split.sizes}
        return found

    def _save_to_state_dict(self, destination, prefix, keep_vars):
        destination.update((prefix + key, value.clone()) for key, value in self._state().items())
        if isinstance(self.h_schedule, Fall):
            destination[prefix + "fall"] = self.h_schedule.state()

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
        sizes_of = self.keep if self.split is None else self.split.of(found)
        if not errors and bool(found.get("frozen", self.frozen)):
            for name, keep in sizes_of.items():
                mask = found.get(f"kept.{name}", wanted[f"kept.{name}"])
                sizes = mask.sum(-1).flatten().tolist()
                if sizes != (list(keep) if isinstance(keep, tuple) else [keep] * len(sizes)):
                    errors.append(f"{prefix}kept.{name} is frozen at another size than keep={keep}")
        if not errors:  # a refused state changes nothing
            with torch.no_grad():
                for key, given in found.items():
                    wanted[key].copy_(given)
                if self.split is not None:
                    self.split.resume_(self, sizes_of)
                if isinstance(self.h_schedule, Fall) and found:
                    self.h_schedule.load_(state_dict.get(prefix + "fall"))
            self.calls = int(self.step)
        if strict:
            wanted["fall"] = self.step  # not missed in a state without it, and not needed without a fall
            inside = [key for key in state_dict if key.startswith(prefix)]
            unexpected += [key for key in inside if key[len(prefix) :] not in wanted]

    def __getstate__(self) -> dict[str, Any]:
        # A copy is not attached: the optimizer's hook belongs to the original.
        return {**self.__dict__, "handle": None}


def checked_steps(name: str, steps: int) -> None:
    """Raise unless ``steps`` is a number of steps."""
    if isinstance(steps, bool) or not isinstance(steps, numbers.Integral):
        raise TypeError(f"{name} must be a number of steps, an integer; got {steps!r}")
    if steps < 1:
        raise ValueError(f"{name} must be at least 1; got {steps!r}")

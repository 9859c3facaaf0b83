"""Methods that prune a network during training: the trimmed penalty and its peers, with one small interface.

A pruner belongs to one ensemble. It attaches to the optimizer (:meth:`Pruner.attach`), may add to the loss,
and returns at any time the groups to which the network is cut (:meth:`Pruner.masks`). torchao's optimizer is
in :mod:`.pat`.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor, nn

from trimreg.nn import LayerGroups, Ramp, Slab, TrimmedGroupL1, l0_loss, layer_groups
from trimreg.nn.penalty.rules import group_factor, kept_largest

from .recipes import Recipe


class Pruner:
    """A pruner that prunes nothing; the base class of the others.

    Attributes
    ----------
    layers : dict of str to LayerGroups
    replicas : int
    static_gradients : bool
        Whether gradients must keep their memory addresses.
    steps_outside : bool
        Whether the optimizer's step cannot be part of a CUDA graph.
    """

    static_gradients = False
    steps_outside = False

    def __init__(self, model: nn.Module, names: Sequence[str]):
        self.model = model
        self.layers = {name: layer_groups(name, model.get_submodule(name)) for name in names}
        (self.replicas,) = next(iter(self.layers.values())).replicas

    def attach(self, optimizer: torch.optim.Optimizer, rate: Tensor) -> torch.optim.Optimizer:
        """Attach to the optimizer; returns the optimizer to step with."""
        return optimizer

    def bind_gradients(self) -> None:
        """Called once the gradients have their memory addresses."""

    @contextlib.contextmanager
    def masked(self) -> Iterator[None]:
        """A context for the forward and backward pass of the loss."""
        yield

    def loss(self) -> Tensor | None:
        """A term that is added to the sum of the losses of all replicas, or None."""
        return None

    def masks(self) -> dict[str, Tensor]:
        """The groups to which the network is cut for tests, (replicas, count) for each layer."""
        return {}

    @torch.no_grad()
    def cut_(self, masks: Mapping[str, Tensor]) -> None:
        """Set all other groups to 0."""
        for name, mask in masks.items():
            self.layers[name].scale_(mask)

    def sizes(self, masks: Mapping[str, Tensor]) -> Tensor:
        """The number of kept groups, (replicas, layers)."""
        counts = []
        for name, layer in self.layers.items():
            mask = masks.get(name)
            full = torch.full((self.replicas,), layer.count, device=_device(self.model))
            counts.append(full if mask is None else mask.sum(-1))
        return torch.stack(counts, dim=-1)


def scale_slab_(layer: LayerGroups, slab: Slab, tensor: Tensor, factor: Tensor) -> None:
    """Multiply the groups of a tensor of the slab's shape by factors of shape (replicas, count)."""
    view = layer.view(slab, tensor)
    view.mul_(layer.spread(slab, factor, view.ndim))


def as_columns(keep: Mapping[str, Sequence[int]], device: torch.device) -> dict[str, Tensor]:
    """Sizes of each replica as tensors of shape (replicas, 1)."""
    return {name: torch.tensor([*sizes], device=device).reshape(-1, 1) for name, sizes in keep.items()}


def _device(model):
    return next(model.parameters()).device


# -- the trimmed penalty ----------------------------------------------------------------------------------


class Trimmed(Pruner):
    """The trimmed penalty with the settings of a recipe; some settings make it magnitude pruning.

    ``keep`` has the number of groups to keep, for each layer and replica; ``steps`` is the number of steps of
    the training; ``alphas`` are strengths, one per replica, in place of the recipe's.
    """

    def __init__(
        self,
        model: nn.Module,
        keep: Mapping[str, Sequence[int]],
        recipe: Recipe,
        steps: int,
        alphas: Sequence[float] | None = None,
    ):
        super().__init__(model, list(keep))
        self.recipe = recipe
        self.keep = as_columns(keep, _device(model))
        window = round(recipe.shrink_from * steps), round(recipe.shrink_until * steps)
        self.penalty = TrimmedGroupL1(
            model,
            keep={name: list(sizes) for name, sizes in keep.items()},
            alpha=recipe.alpha if alphas is None else dict.fromkeys(keep, tuple(alphas)),
            mode=recipe.mode,
            tau=recipe.tau,
            h_schedule=None if window[1] == 0 else Ramp(*window, power=recipe.shrink_power),
            freeze_at=None if recipe.freeze_at is None else round(recipe.freeze_at * steps),
            rank_by=recipe.criterion,
            cuda_graph=False,  # the whole training step is one
        )

    def attach(self, optimizer, rate):
        self.penalty.attach(optimizer)
        return optimizer

    def loss(self):
        return self.penalty.loss().sum() if self.recipe.mode == "subgradient" else None

    @torch.no_grad()
    def masks(self):
        """The groups with the largest norms; with the authors' masks those with the least w, then by norm."""
        kept = dict(self.penalty.kept())
        if self.recipe.masked_forward:
            for name, w in self.penalty.weights().items():
                norms = self.layers[name].norms()
                rank = norms / norms.amax(-1, keepdim=True).clamp(min=1e-30)
                kept[name] = kept_largest(rank - 1e6 * w, self.keep[name])
        return kept

    @contextlib.contextmanager
    def masked(self):
        """The authors' masks: groups with w = 1 are not in the forward pass and get no gradient from it."""
        if not self.recipe.masked_forward:
            yield
            return
        kept = {name: w < 1.0 for name, w in self.penalty.weights().items()}
        slabs = [(layer, slab) for layer in self.layers.values() for slab in layer.slabs]
        with torch.no_grad():
            saved = [slab.tensor().detach().clone() for _, slab in slabs]
            self.cut_(kept)
        yield
        with torch.no_grad():
            for (layer, slab), values in zip(slabs, saved, strict=True):
                parameter = slab.tensor()
                parameter.copy_(values)
                scale_slab_(layer, slab, parameter.grad, kept[layer.name])


# -- peers ------------------------------------------------------------------------------------------------


class GroupL1(Pruner):
    r"""The group l1 norm with a proximal step after each step of the optimizer.

    .. math:: \theta_g \leftarrow (1 - \eta\alpha\sqrt{m_g} / \|\theta_g\|)_+\, \theta_g

    with :math:`m_g` entries in group g (Yuan and Lin 2006), because the layers differ in group size. From
    ``freeze_at`` on the zeros are fixed and nothing is penalized, as for the trimmed penalty.
    """

    def __init__(
        self, model: nn.Module, names: list[str], alphas: Sequence[float], recipe: Recipe, steps: int
    ):
        super().__init__(model, names)
        device = _device(model)
        self.alphas = torch.tensor([*alphas], dtype=torch.float32, device=device).reshape(-1, 1)
        if len(self.alphas) != self.replicas:
            raise ValueError(f"{len(self.alphas)} strengths for {self.replicas} replicas")
        self.free_from = steps if recipe.freeze_at is None else round(recipe.freeze_at * steps)
        self.clock = torch.zeros((), dtype=torch.int64, device=device)
        self._entries = {
            name: sum(slab.tensor()[0].numel() for slab in layer.counted) / layer.count
            for name, layer in self.layers.items()
        }
        self.alive = {
            name: torch.ones(self.replicas, layer.count, device=device) for name, layer in self.layers.items()
        }

    def attach(self, optimizer, rate):
        self.rate = rate
        optimizer.register_step_post_hook(lambda *_: self.shrink())
        return optimizer

    @torch.no_grad()
    def shrink(self) -> None:
        """Take the proximal step, or apply the fixed zeros."""
        self.clock.add_(1)
        free = self.clock > self.free_from
        threshold = torch.where(free, 0.0, self.rate * self.alphas)
        for name, layer in self.layers.items():
            alive = self.alive[name]
            scaled = threshold * math.sqrt(self._entries[name])
            factor = torch.where(free, alive, group_factor(layer.norms(), scaled))
            alive.copy_(torch.where(free, alive, (factor > 0).to(alive.dtype)))
            for slab in layer.slabs:  # the bias of a group is cut with it, but not shrunk
                scale_slab_(layer, slab, slab.tensor(), factor if slab.counted else alive)

    def masks(self):
        return {name: alive > 0 for name, alive in self.alive.items()}


class L0(Pruner):
    """The price of hard-concrete gates (Louizos, Welling and Kingma 2018), which are part of the layers.

    The recipe's ``l0_lambda`` has one number per layer; ``count`` is the number of training images;
    ``factors`` multiply the prices, one per replica.
    """

    def __init__(
        self,
        model: nn.Module,
        names: list[str],
        recipe: Recipe,
        count: int,
        factors: Sequence[float] | None = None,
    ):
        super().__init__(model, names)
        if len(recipe.l0_lambda) != len(names):
            raise ValueError(f"l0_lambda has {len(recipe.l0_lambda)} numbers for {len(names)} layers")
        factors = [1.0] * self.replicas if factors is None else [*factors]
        if len(factors) != self.replicas:
            raise ValueError(f"{len(factors)} factors for {self.replicas} replicas")
        scale = torch.tensor(factors, dtype=torch.float32, device=_device(model))
        self.prices = {name: price * scale for name, price in zip(names, recipe.l0_lambda, strict=True)}
        self.weight_decay, self.count = recipe.l0_weight_decay * count, count

    def loss(self):
        return l0_loss(self.model, self.count, self.prices, self.weight_decay).sum()

    @torch.no_grad()
    def masks(self):
        return {name: layer.module.gates() > 0 for name, layer in self.layers.items()}

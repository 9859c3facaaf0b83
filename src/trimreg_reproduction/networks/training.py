r"""The training of many networks as one, on the device that holds the data.

A model here is an ensemble: logits have the shape (replicas, batch, classes), and the loss is the **sum**
over replicas of each one's mean loss, so that each gets the gradient that it would get alone. Replicas see
the images in the same order; their first weights and their noise differ.

Everything that changes from step to step lives in tensors: a clock, tables of the learning rate and of
other weights by step, the order of the images. So a step is the same work with the same addresses each
time. On CUDA one step (forward, backward, optimizer, penalty, average) is captured in one graph and played
again; elsewhere the same function is called. Counts of errors stay on the device until the end.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from trimreg.nn.layers.bayes import kl_loss

from .device import captured
from .methods import Pruner
from .recipes import Recipe, averaging_weights, kl_weights, learning_rates

_EAGER_STEPS = 3  # before a graph is captured: lazy states and workspaces must stand


class Split(NamedTuple):
    """Images (n, ...) as the networks take them, and labels (n,), on one device."""

    images: Tensor
    labels: Tensor


@dataclass
class Trained:
    """What a training gave.

    Attributes
    ----------
    errors : dict of str to Tensor
        Wrong answers as a share, (epochs, replicas), by the name of the split; the network that is tested
        is the average where there is one, cut to the groups that are kept.
    sizes : Tensor
        Groups of that network, (epochs, replicas, layers).
    seconds : float
    seconds_per_step : float
        Without the tests.
    """

    errors: dict[str, Tensor]
    sizes: Tensor
    seconds: float
    seconds_per_step: float


def make_optimizer(model: nn.Module, recipe: Recipe, rate: Tensor) -> torch.optim.Optimizer:
    """Adam, or AdamW where weights decay, with one tensor as learning rate; decay is for weights alone."""
    named = list(model.named_parameters())
    weights = [parameter for name, parameter in named if name.endswith("weight")]
    others = [parameter for name, parameter in named if not name.endswith("weight")]
    groups = [{"params": weights, "weight_decay": recipe.weight_decay}]
    if others:
        groups.append({"params": others, "weight_decay": 0.0})
    kind = torch.optim.AdamW if recipe.weight_decay > 0 else torch.optim.Adam
    optimizer = kind(groups, lr=rate, fused=True, capturable=rate.is_cuda)
    for group in optimizer.param_groups:
        group["lr"] = rate  # the same tensor in all groups, also where a version of torch copies it
    return optimizer


def sum_of_losses(logits: Tensor, labels: Tensor, recipe: Recipe, soft: Tensor | None = None) -> Tensor:
    r"""The sum over replicas of the mean loss: cross-entropy, with smoothing and distillation if asked for.

    With weight d, temperature T and a teacher's probabilities q at that temperature it is

    .. math:: (1 - d)\, CE(y, z) - d\, T^2 \sum_k q_k \log \mathrm{softmax}_k(z / T).

    Examples
    --------
    >>> import torch
    >>> from trimreg_reproduction.networks.recipes import Recipe
    >>> from trimreg_reproduction.networks.training import sum_of_losses
    >>> sum_of_losses(torch.zeros(3, 5, 10), torch.zeros(5, dtype=torch.int64), Recipe())
    tensor(6.9078)
    """
    replicas, batch, classes = logits.shape
    targets = labels.expand(replicas, batch).reshape(-1)
    loss = replicas * functional.cross_entropy(
        logits.reshape(-1, classes), targets, label_smoothing=recipe.label_smoothing
    )
    if soft is None:
        return loss
    scaled = torch.log_softmax(logits / recipe.temperature, dim=-1)
    distilled = -(soft * scaled).sum(-1).mean(1).sum() * recipe.temperature**2
    return (1.0 - recipe.distill) * loss + recipe.distill * distilled


@torch.no_grad()
def wrong_answers(model: nn.Module, split: Split, batch: int = 1000) -> Tensor:
    """How many images each replica gets wrong: counts (replicas,), on the device."""
    was_training = model.training
    model.eval()
    wrong = None
    for first in range(0, len(split.labels), batch):
        answers = model(split.images[first : first + batch]).argmax(-1)
        now = (answers != split.labels[first : first + batch]).sum(-1)
        wrong = now if wrong is None else wrong + now
    model.train(was_training)
    return wrong


@torch.no_grad()
def soft_answers(model: nn.Module, images: Tensor, recipe: Recipe, batch: int = 1000) -> Tensor:
    """Probabilities at the recipe's temperature: (replicas, n, classes), or (1, n, classes) averaged."""
    was_training = model.training
    model.eval()
    parts = []
    for first in range(0, len(images), batch):
        soft = torch.softmax(model(images[first : first + batch]) / recipe.temperature, dim=-1)
        parts.append(soft.mean(0, keepdim=True) if recipe.teacher == "average" else soft)
    model.train(was_training)
    return torch.cat(parts, dim=1)


class Trainer:
    """One training: a model, its images, a recipe and what prunes it.

    Parameters
    ----------
    model : nn.Module
        An ensemble, on the device of the images.
    split : Split
        What to train on. Images that do not fill the last batch of an epoch are left out of that epoch.
    recipe : Recipe
    pruner : Pruner
    soft : Tensor of shape (replicas or 1, n, classes), optional
        A teacher's probabilities for distillation.
    """

    def __init__(
        self, model: nn.Module, split: Split, recipe: Recipe, pruner: Pruner, soft: Tensor | None = None
    ):
        self.model, self.split, self.recipe, self.pruner, self.soft = model, split, recipe, pruner, soft
        self.device = split.images.device
        self.count = len(split.labels)
        self.steps_per_epoch = steps_per_epoch(self.count, recipe)
        self.steps = recipe.epochs * self.steps_per_epoch
        self.clock = torch.zeros(1, dtype=torch.int64, device=self.device)
        self.order = torch.zeros(self.count, dtype=torch.int64, device=self.device)
        self._within = torch.arange(min(recipe.batch, self.count), device=self.device)
        tables = torch.tensor(
            [learning_rates(recipe, self.steps), kl_weights(recipe, self.steps),
             averaging_weights(recipe, self.steps)],
        )  # fmt: skip
        self._tables = tables.T.contiguous().to(self.device)
        self._now = self._tables[0].clone()
        self.rate = self._now[0]  # views: a copy into _now sets all three
        self._kl_weight, self._averaging = self._now[1], self._now[2]
        self.optimizer = pruner.attach(make_optimizer(model, recipe, self.rate), self.rate)
        self.parameters = [p for p in model.parameters() if p.requires_grad]
        self.averages = [p.detach().clone() for p in self.parameters] if recipe.averaging > 0 else None
        if pruner.static_gradients:
            for parameter in self.parameters:
                parameter.grad = torch.zeros_like(parameter)
            pruner.bind_gradients()
        self._objective = compiled(self.objective) if recipe.compile and self.rate.is_cuda else self.objective
        self._graph = None

    # -- a step -------------------------------------------------------------------------------------------

    def forward_backward(self) -> None:
        """The gradients of the batch that the clock points to."""
        self._now.copy_(self._tables.index_select(0, self.clock)[0])
        first = self.clock % self.steps_per_epoch * len(self._within)
        chosen = self.order.index_select(0, first + self._within)
        images = self.split.images.index_select(0, chosen)
        labels = self.split.labels.index_select(0, chosen)
        if self.recipe.input_dropout > 0:
            images = functional.dropout(images, self.recipe.input_dropout)
        soft = None if self.soft is None else self.soft.index_select(1, chosen)
        if self.pruner.static_gradients:
            torch._foreach_zero_([p.grad for p in self.parameters])
        else:
            self.optimizer.zero_grad(set_to_none=True)
        with self.pruner.masked():
            self._objective(images, labels, soft).backward()
        extra = self.pruner.loss()
        if extra is not None:
            extra.backward()
        self.clock.add_(1)

    def objective(self, images: Tensor, labels: Tensor, soft: Tensor | None) -> Tensor:
        """The losses of all replicas on a batch, summed, with the divergence of Bayesian layers."""
        with reduced(self.recipe.precision, self.device):
            logits = self.model(images)
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        loss = sum_of_losses(logits, labels, self.recipe, soft)
        if self.recipe.form == "bayes" and self.recipe.kl != "none":
            loss = loss + self._kl_weight * kl_loss(self.model, self.count, self.recipe.kl).sum()
        return loss

    def update(self) -> None:
        """The optimizer's step, with what hangs on it, and the average."""
        self.optimizer.step()
        if self.averages is not None:
            with torch.no_grad():
                for average, parameter in zip(self.averages, self.parameters, strict=True):
                    average.lerp_(parameter, self._averaging)

    def step(self) -> None:
        """One step. It never waits for the device, and does the same with the same addresses each time."""
        self.forward_backward()
        self.update()

    def capture(self) -> None:
        """Take some steps, then record one as a CUDA graph; a pruner may want to step outside of it."""

        def warm_up():
            for _ in range(_EAGER_STEPS):
                self.step()

        self._graph = captured(warm_up, self.forward_backward if self.pruner.steps_outside else self.step)

    def advance(self, steps: int) -> None:
        """Take that many steps, by the graph where there is one."""
        if self.device.type == "cuda" and self._graph is None and steps > _EAGER_STEPS:
            self.capture()
            steps -= _EAGER_STEPS
        for _ in range(steps):
            if self._graph is None:
                self.step()
                continue
            self._graph.replay()
            if self.pruner.steps_outside:
                self.update()

    # -- a training ---------------------------------------------------------------------------------------

    def fit(self, tests: Mapping[str, Split] | None = None, evaluation_batch: int = 1000) -> Trained:
        """All epochs, with tests after each; the model is left as it was tested last."""
        tests = tests or {}
        replicas = self.pruner.replicas
        counts = {
            name: torch.zeros(self.recipe.epochs, replicas, dtype=torch.int64, device=self.device)
            for name in tests
        }
        layers = len(self.pruner.layers)
        sizes = torch.zeros(self.recipe.epochs, replicas, layers, dtype=torch.int64, device=self.device)
        start, testing = time.perf_counter(), 0.0
        self.model.train()
        with matmul_precision("highest" if self.recipe.precision == "float32" else "high"):
            for epoch in range(self.recipe.epochs):
                self.order.copy_(torch.randperm(self.count, device=self.device))
                self.advance(self.steps_per_epoch)
                if tests:
                    self._wait()
                    before = time.perf_counter()
                    with self.as_tested() as now:
                        sizes[epoch] = now
                        for name, split in tests.items():
                            counts[name][epoch] = wrong_answers(self.model, split, evaluation_batch)
                    self._wait()
                    testing += time.perf_counter() - before
        self._wait()
        seconds = time.perf_counter() - start
        self.settle()
        errors = {name: counts[name].cpu().double() / len(split.labels) for name, split in tests.items()}
        return Trained(errors, sizes.cpu(), seconds, (seconds - testing) / self.steps)

    @contextlib.contextmanager
    def as_tested(self):
        """The model as it is tested: averaged, and cut to the kept groups; afterwards as it was.

        The context is given the numbers of groups.
        """
        with torch.no_grad():
            saved = [parameter.clone() for parameter in self.parameters]
            sizes = self._to_tested()
        try:
            yield sizes
        finally:
            with torch.no_grad():
                torch._foreach_copy_(self.parameters, saved)

    def settle(self) -> None:
        """Leave the model averaged and cut."""
        with torch.no_grad():
            self._to_tested()
        self.model.eval()

    def _to_tested(self):
        masks = self.pruner.masks()  # by the weights, before the averages take their place
        if self.averages is not None:
            torch._foreach_copy_(self.parameters, self.averages)
        self.pruner.cut_(masks)
        return self.pruner.sizes(masks)

    def _wait(self):
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)


def steps_per_epoch(count: int, recipe: Recipe) -> int:
    """Full batches among ``count`` images; one batch of all where there are fewer than a batch.

    Examples
    --------
    >>> from trimreg_reproduction.networks.recipes import Recipe
    >>> from trimreg_reproduction.networks.training import steps_per_epoch
    >>> steps_per_epoch(250, Recipe(batch=100)), steps_per_epoch(50, Recipe(batch=100))
    (2, 1)
    """
    return max(1, count // recipe.batch)


@contextlib.contextmanager
def matmul_precision(precision: str):
    """Products on CUDA in float32 ("highest") or TF32 ("high"); afterwards as before."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(precision)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def reduced(precision: str, device: torch.device):
    """The context of a forward pass: products and what lies between layers in bfloat16 if asked for.

    Nothing is kept from one layer to the next, as a graph that is captured must not hold on to copies.
    """
    on = precision == "bfloat16"
    return torch.autocast(device.type, torch.bfloat16, enabled=on, cache_enabled=False)


def compiled(function):
    """``torch.compile`` of the function for fixed shapes, where its compiler is there; else the function.

    What was compiled before is forgotten: each training has shapes of its own, and after a few of them
    PyTorch would give up on the function.
    """
    from torch.utils._triton import has_triton

    if not has_triton():
        return function
    torch.compiler.reset()
    return torch.compile(function, dynamic=False)

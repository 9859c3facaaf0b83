r"""The training loop for many networks at once, on the device that holds the data.

A model here is an ensemble: its logits have the shape (replicas, batch, classes), and the loss is the **sum**
over replicas of their mean losses, so each replica gets the gradient of its own loss. All replicas see the
images in the same order; their initial weights and their noise differ.

Everything that changes from step to step lives in tensors: a clock, tables of the learning rate and of other
weights for each step, the order of the images. So every step is the same work on the same addresses. On CUDA
one step (forward, backward, optimizer, penalty) is captured in a graph and replayed; elsewhere the same
function is called. Error counts stay on the device until the end.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from trimreg.nn import kl_loss

from ..device import captured
from .pruners import Pruner
from .recipes import Recipe, kl_weights, learning_rates

_EAGER_STEPS = 3  # before a graph is captured, to initialize lazy states and workspaces


class Split(NamedTuple):
    """Images (n, ...) and labels (n,) on one device."""

    images: Tensor
    labels: Tensor


@dataclass
class Lessons:
    """Distillation from the last ``teachers`` replicas, which train beside their pupils.

    Attributes
    ----------
    weights, temperatures : Tensor
        Of shape (replicas,). A weight of 0 means that the replica learns from the labels alone.
    teachers : int
    """

    weights: Tensor
    temperatures: Tensor
    teachers: int


@dataclass
class Trained:
    """The results of a training.

    Attributes
    ----------
    errors : dict of str to Tensor
        The share of wrong answers, (epochs, replicas), for each split, of the network cut to its kept groups.
    sizes : Tensor
        The numbers of kept groups, (epochs, replicas, layers).
    seconds : float
    seconds_per_step : float
        Without the time for tests.
    """

    errors: dict[str, Tensor]
    sizes: Tensor
    seconds: float
    seconds_per_step: float


def make_optimizer(model: nn.Module, recipe: Recipe, rate: Tensor) -> torch.optim.Optimizer:
    """Adam, or AdamW with a decay of weights, with one tensor as learning rate."""
    named = list(model.named_parameters())
    weights = [parameter for name, parameter in named if name.endswith("weight")]
    others = [parameter for name, parameter in named if not name.endswith("weight")]
    groups = [{"params": weights, "weight_decay": recipe.weight_decay}]
    if others:
        groups.append({"params": others, "weight_decay": 0.0})
    kind = torch.optim.AdamW if recipe.weight_decay > 0 else torch.optim.Adam
    optimizer = kind(groups, lr=rate, fused=True, capturable=rate.is_cuda)
    for group in optimizer.param_groups:
        group["lr"] = rate  # the same tensor in all groups, even if a version of torch copies it
    return optimizer


def sum_of_losses(logits: Tensor, labels: Tensor, recipe: Recipe) -> Tensor:
    """The sum over replicas of the mean cross-entropy, with label smoothing.

    Examples
    --------
    >>> import torch
    >>> from trimreg_reproduction.networks.training.loop import sum_of_losses
    >>> from trimreg_reproduction.networks.training.recipes import Recipe
    >>> sum_of_losses(torch.zeros(3, 5, 10), torch.zeros(5, dtype=torch.int64), Recipe())
    tensor(6.9078)
    """
    replicas, batch, classes = logits.shape
    targets = labels.expand(replicas, batch).reshape(-1)
    return replicas * functional.cross_entropy(
        logits.reshape(-1, classes), targets, label_smoothing=recipe.label_smoothing
    )


def sum_of_lessons(logits: Tensor, labels: Tensor, lessons: Lessons) -> Tensor:
    r"""The sum over replicas of the losses of distillation (Hinton, Vinyals and Dean 2015),

    .. math:: (1 - \lambda) H(y, q^1) + \lambda T^2 H(p^T, q^T),

    H the mean cross-entropy, q^T the answers of the replica at temperature T, and p^T those of the mean
    logits of the teachers in the same pass, as constants.

    Examples
    --------
    >>> import torch
    >>> from trimreg_reproduction.networks.training.loop import Lessons, sum_of_lessons
    >>> lessons = Lessons(torch.tensor([0.5, 0.0]), torch.tensor([2.0, 1.0]), 1)
    >>> sum_of_lessons(torch.zeros(2, 5, 10), torch.zeros(5, dtype=torch.int64), lessons)  # 3.5 log 10
    tensor(8.0590)
    """
    replicas, batch, _ = logits.shape
    alone = functional.cross_entropy(
        logits.flatten(0, 1), labels.expand(replicas, batch).reshape(-1), reduction="none"
    )
    alone = alone.view(replicas, batch).mean(1)
    heat = lessons.temperatures.view(-1, 1, 1)
    taught = functional.softmax(logits[-lessons.teachers :].detach().mean(0) / heat, -1)
    distilled = -(taught * functional.log_softmax(logits / heat, -1)).sum(-1).mean(1)
    return torch.lerp(alone, lessons.temperatures.square() * distilled, lessons.weights).sum()


@torch.no_grad()
def wrong_answers(model: nn.Module, split: Split, batch: int = 1000) -> Tensor:
    """The number of images that each replica misclassifies, (replicas,), on the device."""
    was_training = model.training
    model.eval()
    wrong = None
    for first in range(0, len(split.labels), batch):
        answers = model(split.images[first : first + batch]).argmax(-1)
        now = (answers != split.labels[first : first + batch]).sum(-1)
        wrong = now if wrong is None else wrong + now
    model.train(was_training)
    return wrong


class Trainer:
    """One training: a model, its images, a recipe and a pruner.

    ``model`` is an ensemble on the device of the images of ``split``. Images that do not fill the last batch
    of an epoch are left out of that epoch. With ``lessons``, some replicas learn from others.
    """

    def __init__(
        self, model: nn.Module, split: Split, recipe: Recipe, pruner: Pruner, lessons: Lessons | None = None
    ):
        self.model, self.split, self.recipe, self.pruner = model, split, recipe, pruner
        self.lessons = lessons
        self.device = split.images.device
        self.count = len(split.labels)
        self.steps_per_epoch = steps_per_epoch(self.count, recipe)
        self.steps = recipe.epochs * self.steps_per_epoch
        self.clock = torch.zeros(1, dtype=torch.int64, device=self.device)
        self.order = torch.zeros(self.count, dtype=torch.int64, device=self.device)
        self._within = torch.arange(min(recipe.batch, self.count), device=self.device)
        tables = torch.tensor([learning_rates(recipe, self.steps), kl_weights(recipe, self.steps)])
        self._tables = tables.T.contiguous().to(self.device)
        self._now = self._tables[0].clone()
        self.rate, self._kl_weight = self._now[0], self._now[1]  # views: a copy into _now sets both
        self.optimizer = pruner.attach(make_optimizer(model, recipe, self.rate), self.rate)
        self.parameters = [p for p in model.parameters() if p.requires_grad]
        if pruner.static_gradients:
            for parameter in self.parameters:
                parameter.grad = torch.zeros_like(parameter)
            pruner.bind_gradients()
        self._objective = compiled(self.objective) if recipe.compile and self.rate.is_cuda else self.objective
        self._graph = None

    # -- a step -------------------------------------------------------------------------------------------

    def forward_backward(self) -> None:
        """Compute the gradients for the batch at the current time."""
        self._now.copy_(self._tables.index_select(0, self.clock)[0])
        first = self.clock % self.steps_per_epoch * len(self._within)
        chosen = self.order.index_select(0, first + self._within)
        images = self.split.images.index_select(0, chosen)
        labels = self.split.labels.index_select(0, chosen)
        if self.recipe.input_dropout > 0:
            images = functional.dropout(images, self.recipe.input_dropout)
        if self.pruner.static_gradients:
            torch._foreach_zero_([p.grad for p in self.parameters])
        else:
            self.optimizer.zero_grad(set_to_none=True)
        with self.pruner.masked():
            self._objective(images, labels).backward()
        extra = self.pruner.loss()
        if extra is not None:
            extra.backward()
        self.clock.add_(1)

    def objective(self, images: Tensor, labels: Tensor) -> Tensor:
        """The sum of the losses of all replicas on a batch, with the divergence of Bayesian layers."""
        answers = self.model(images)
        if self.lessons is None:
            loss = sum_of_losses(answers, labels, self.recipe)
        else:
            loss = sum_of_lessons(answers, labels, self.lessons)
        if self.recipe.form == "bayes" and self.recipe.kl != "none":
            loss = loss + self._kl_weight * kl_loss(self.model, self.count, self.recipe.kl).sum()
        return loss

    def step(self) -> None:
        """Take one step. It never waits for the device, and always uses the same addresses."""
        self.forward_backward()
        self.optimizer.step()

    def capture(self) -> None:
        """Take some steps, then record one as a CUDA graph; some pruners step outside of it."""

        def warm_up():
            for _ in range(_EAGER_STEPS):
                self.step()

        self._graph = captured(warm_up, self.forward_backward if self.pruner.steps_outside else self.step)

    def advance(self, steps: int) -> None:
        """Take that many steps, by the graph if there is one."""
        if self.device.type == "cuda" and self._graph is None and steps > _EAGER_STEPS:
            self.capture()
            steps -= _EAGER_STEPS
        for _ in range(steps):
            if self._graph is None:
                self.step()
                continue
            self._graph.replay()
            if self.pruner.steps_outside:
                self.optimizer.step()

    # -- a training ---------------------------------------------------------------------------------------

    def fit(self, tests: Mapping[str, Split] | None = None, evaluation_batch: int = 1000) -> Trained:
        """Train for all epochs and test after each; the model is left as it was tested last."""
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
    def as_tested(self) -> Iterator[Tensor]:
        """A context with the model cut to its kept groups; it yields their numbers."""
        with torch.no_grad():
            saved = [parameter.clone() for parameter in self.parameters]
            sizes = self._cut()
        try:
            yield sizes
        finally:
            with torch.no_grad():
                torch._foreach_copy_(self.parameters, saved)

    def settle(self) -> None:
        """Leave the model cut to its kept groups."""
        with torch.no_grad():
            self._cut()
        self.model.eval()

    def _cut(self):
        masks = self.pruner.masks()
        self.pruner.cut_(masks)
        return self.pruner.sizes(masks)

    def _wait(self):
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)


def steps_per_epoch(count: int, recipe: Recipe) -> int:
    """The number of full batches among ``count`` images, at least 1."""
    return max(1, count // recipe.batch)


@contextlib.contextmanager
def matmul_precision(precision: str) -> Iterator[None]:
    """A context in which products on CUDA use float32 ("highest") or TF32 ("high")."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(precision)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def compiled(function: Callable) -> Callable:
    """The function compiled by ``torch.compile`` for fixed shapes, or unchanged without a compiler.

    Earlier compilations are discarded: each training has its own shapes, and after a few of them PyTorch
    would no longer compile the function.
    """
    from torch.utils._triton import has_triton

    if not has_triton():
        return function
    torch.compiler.reset()
    return torch.compile(function, dynamic=False)

"""Small targets for every loss, and the smallest designs that a loss needs."""

from __future__ import annotations

import numpy as np
import pytest

from trimreg.losses import (
    LOSSES,
    Cox,
    Gamma,
    Huber,
    Logistic,
    Multinomial,
    NegativeBinomial,
    Ordinal,
    Poisson,
    Quantile,
    Tweedie,
    get_loss,
)
from trimreg.losses.offset import Shifted

N = 14


class CoxInStrata(Cox):
    """Cox's loss of targets with late starts and strata."""


#: Every loss by name, and the variants whose formulas differ.
LOSSES_AND_VARIANTS = {
    **{name: get_loss(name) for name in LOSSES},
    "huber, given scale": Huber(scale=0.7),
    "multinomial, a class without samples": Multinomial(n_classes=4),
    "cox, breslow": Cox(ties="breslow"),
    "cox, late starts and strata": CoxInStrata(),
    "negative_binomial, given dispersion": NegativeBinomial(0.7),
    "negative_binomial, dispersion 0": NegativeBinomial(0),
    "tweedie, near Gamma": Tweedie(1.9),
    "quantile, given smoothing": Quantile(0.8, smoothing=0.3),
    "ordinal, given thresholds": Ordinal(thresholds=[-0.5, 0.2, 1.0]),
    "ordinal, a class without samples": Ordinal(n_classes=5),
    **{
        f"{loss.name}, offsets": Shifted(loss)
        for loss in (Logistic(), Poisson(), Gamma(), Cox(), NegativeBinomial(), Tweedie(), Ordinal())
    },
}


class SmallDesign:
    """A dense matrix with the operations that ``Loss.gram`` may use."""

    streamed = False

    def __init__(self, Z):
        self.Z = Z

    def matvec(self, v):
        return self.Z @ v

    def rmatvec(self, r):
        return self.Z.T @ r

    def columns(self, W):
        return self.Z[:, W]

    def gram(self, rows, d, cols):
        return self.Z[:, rows].T @ (d[:, None] * self.Z[:, cols])


class SmallMultiOutput:
    """The same for K predictors; coefficient k of feature j is entry ``j K + k``."""

    def __init__(self, Z, n_outputs):
        self.inner = SmallDesign(Z)
        self.n_outputs = n_outputs

    def matvec(self, v):
        return self.inner.Z @ v.reshape(-1, self.n_outputs)

    def rmatvec(self, r):
        return (self.inner.Z.T @ r).ravel()


def target(loss, rng, n=N):
    """A target that the loss takes, with ties."""
    if isinstance(loss, Shifted):
        return np.column_stack([target(loss.base, rng, n), rng.standard_normal(n)])
    if isinstance(loss, CoxInStrata):
        start = rng.integers(0, 3, n)
        columns = start, start + rng.integers(1, 5, n), rng.random(n) < 0.7, rng.integers(0, 2, n)
        return np.column_stack(columns).astype(float)
    if loss.name == "cox":
        return np.column_stack([rng.integers(0, 6, n), rng.random(n) < 0.7]).astype(float)
    if loss.name in ("multinomial", "ordinal"):
        return rng.integers(0, 3, n).astype(float)
    if loss.name == "multitask":
        return rng.standard_normal((n, 3))
    if loss.name == "logistic":
        return np.append(rng.integers(0, 2, n - 1), 0.3)
    if loss.name == "squared_hinge":
        return rng.integers(0, 2, n).astype(float)
    if loss.name == "negative_binomial":
        return rng.negative_binomial(0.7, 0.2, n).astype(float)
    if loss.positive_target:
        return rng.poisson(2.0, n) + 0.5 * (loss.name == "gamma")
    return rng.standard_normal(n)


def predictor(loss, rng, n=N, size=1.5):
    return size * rng.standard_normal((n, loss.n_outputs) if loss.multi_output else n)


class Case:
    """A loss bound to a random target, some of whose samples have weight 0."""

    def __init__(self, name, seed, n=N):
        rng = np.random.default_rng(seed)
        self.unbound = LOSSES_AND_VARIANTS[name]
        self.rng = rng
        self.y = target(self.unbound, rng, n)
        self.unbound.check_target(self.y)
        self.d = rng.random(n)
        self.d[[3, 9]] = 0.0
        self.d /= self.d.sum()
        self.loss = self.unbound.bound(self.y, self.d)
        self.eta = self.predictor()

    def predictor(self, size=1.5):
        return predictor(self.loss, self.rng, len(self.y), size)

    def value(self, eta):
        return self.loss.value(eta, self.y, self.d)

    def gradient(self, eta):
        return self.loss.gradient(eta, self.y, self.d)

    def design(self, n_features=4):
        Z = self.rng.standard_normal((len(self.y), n_features)) + 1.0
        return SmallMultiOutput(Z, self.loss.n_outputs) if self.loss.multi_output else SmallDesign(Z)


@pytest.fixture(params=LOSSES_AND_VARIANTS)
def case(request):
    return Case(request.param, seed=1)


@pytest.fixture
def case_of():
    return Case


@pytest.fixture(params=LOSSES_AND_VARIANTS)
def make_case(request):
    return lambda seed: Case(request.param, seed)

"""Problems without a minimum, or all but: the fit ends early and says why."""

import warnings

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from trimreg import TrimmedCoxRegressor, TrimmedHuberRegressor, TrimmedL1, TrimmedLogisticRegression, solve
from trimreg.losses import Cox, Huber, Logistic, Multinomial
from trimreg.solvers.mm.workingset import WorkingSetSolver


@pytest.fixture
def X():
    return np.random.default_rng(0).standard_normal((60, 30))


@pytest.mark.parametrize("alpha", ["exact", 0.05])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_separation_is_named_unless_a_ridge_term_prevents_it(X, alpha, n_classes):
    y = np.digitize(X[:, 2], [0.0]) if n_classes == 2 else np.argmax(X[:, :3], axis=1)
    with pytest.warns(ConvergenceWarning, match="separate the classes.*l2 > 0"):
        model = TrimmedLogisticRegression(h=4, alpha=alpha, l2=0.0).fit(X, y)
    assert np.isfinite(model.coef_).all()
    assert model.score(X, y) == 1.0
    TrimmedLogisticRegression(h=4, alpha=alpha, l2=1e-3).fit(X, y)  # a warning would be an error


@pytest.mark.parametrize("n", [30, 60, 200])
def test_separation_by_one_feature_is_named(n):
    X = np.random.default_rng(n).standard_normal((n, 4))  # some samples are close to the boundary
    with pytest.warns(ConvergenceWarning, match="separate the classes"):
        model = TrimmedLogisticRegression(h=1).fit(X, X[:, 0] > 0)
    assert "separate the classes" in model.result_.message


def test_separated_classes_give_one_warning(X):
    y = np.digitize(X[:, 0], [-0.5, 0.5])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        TrimmedLogisticRegression(h=2).fit(X[:, :8], y)
    assert [one.category for one in caught] == [ConvergenceWarning]


def test_an_order_without_error_is_named(X):
    X[:, 1] = np.linspace(-2.0, 2.0, 60)
    y = np.column_stack([np.exp(X[:, 1]), np.ones(60)])
    with pytest.warns(ConvergenceWarning, match="monotone likelihood.*l2 > 0"):
        TrimmedCoxRegressor(h=2, l2=0.0).fit(X, y)


def test_overlapping_classes_are_not_said_to_be_separable(X):
    y = (X[:, 2] + np.random.default_rng(1).logistic(size=60) > 0).astype(int)
    TrimmedLogisticRegression(h=2, l2=0.0).fit(X, y)


def test_losses_know_their_troubles():
    d, y = np.full(4, 0.25), np.array([0.0, 1.0, 0.0, 1.0])
    far = 20.0 * (2 * y - 1)
    assert "l2 > 0" in Logistic().trouble(far, y, d)
    assert not Logistic().trouble(0.1 * far, y, d)
    assert not Logistic().trouble(np.zeros(4), np.full(4, 0.5), d)  # fractions are fitted by finite numbers
    both = np.column_stack([-far, far])
    assert Multinomial(2).trouble(both, y, d)
    assert not Multinomial(2).trouble(0.1 * both, y, d)
    times = np.column_stack([np.arange(1.0, 5.0), np.ones(4)])
    assert Cox().trouble(-20.0 * np.arange(4), times, d)
    assert not Cox().trouble(np.zeros(4), times, d)
    target = np.array([0.0, 1.0, -1.0, 2.0])
    assert "scale" in Huber().trouble(target, target, d)
    assert not Huber().trouble(0 * target, target, d)
    assert not Huber(scale=1.0).trouble(target, target, d)


def test_an_interpolating_fit_with_an_estimated_scale_ends_after_few_models(monkeypatch):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((40, 60))
    y = X[:, :3] @ [2.0, -1.5, 1.0] + rng.standard_normal(40)
    models, improve = [], WorkingSetSolver._improve
    monkeypatch.setattr(WorkingSetSolver, "_improve", lambda *a: models.append(1) or improve(*a))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = TrimmedHuberRegressor(h=3, alpha=0.01).fit(X, y)
    assert len(models) < 2000
    assert not caught or "interpolates" in str(caught[0].message)
    assert model.objective_ < 0.5 * np.abs(y).mean()  # the best point is kept, not the null model


@pytest.mark.parametrize("loss", ["quadratic", "logistic", "poisson", "gamma"])
@pytest.mark.parametrize("share", [1e-3, 1e-6])
def test_small_alphas_reach_the_same_tolerance(loss, share):
    rng = np.random.default_rng(1)
    X = rng.standard_normal((80, 30))
    eta = 0.5 * X[:, 0] - 0.5 * X[:, 1]
    y = {
        "quadratic": eta + rng.standard_normal(80),
        "logistic": (eta + rng.logistic(size=80) > 0).astype(float),
        "poisson": rng.poisson(np.exp(eta)).astype(float),
        "gamma": np.exp(eta) * rng.gamma(2.0, 0.5, 80),
    }[loss]
    result = solve(X, y, loss=loss, penalty=TrimmedL1(3), alpha=share, fit_intercept=True)
    assert result.converged
    assert np.sqrt(result.stationarity) < 1e-5

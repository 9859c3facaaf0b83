"""Knockoffs: statistics against fits written out, the threshold by hand, false discoveries, any sampler."""

import numpy as np
import pytest
from joblib import parallel_config
from sklearn.utils.estimator_checks import check_estimator

from trimreg.diagnostics import best_swap
from trimreg.inference import Knockoffs, e_bh
from trimreg.inference.base import selected
from trimreg.inference.filter import (
    STATISTICS,
    knockoff_evalues,
    knockoff_threshold,
    swap_difference,
)
from trimreg.losses import get_loss
from trimreg.penalties import TrimmedL1


def draw(n=150, p=40, signals=15, seed=0, size=0.6):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, p))
    return X, size * X[:, :signals].sum(axis=1) + rng.standard_normal(n)


def test_the_threshold_by_hand():
    W = np.array([5.0, 4.0, 3.0, -2.0, 2.5, 1.0, 0.0])
    assert knockoff_threshold(W, 0.24) == np.inf
    assert knockoff_threshold(W, 0.25) == 2.5  # 1 / 4
    assert knockoff_threshold(W, 0.4) == 1.0  # 2 / 5
    np.testing.assert_allclose(knockoff_evalues(W, 0.4), [3.5, 3.5, 3.5, 0, 3.5, 3.5, 0])


def test_the_swap_statistic_is_the_difference_of_two_fits():
    X, y = draw(p=8, signals=3)
    Z = np.hstack([X, X + np.random.default_rng(1).standard_normal(X.shape)])
    W = swap_difference(Z, y, get_loss("quadratic"), 0)
    S, _ = selected(None, Z, y, y, get_loss("quadratic"), 0, criterion="aic")

    def loss(columns):
        A = np.column_stack([Z[:, columns], np.ones(len(y))])
        return np.sum((y - A @ np.linalg.lstsq(A, y, rcond=None)[0]) ** 2) / (2 * len(y))

    for j in range(8):
        rest = np.setdiff1d(S, [j, j + 8])
        assert W[j] == pytest.approx(loss([*rest, j + 8]) - loss([*rest, j]), abs=1e-10)


def test_the_swap_statistic_is_the_gain_of_the_exchange(monkeypatch):
    """Of the diagnostics, for a knockoff in the model whose feature is the best exchange."""
    monkeypatch.setattr("trimreg.inference.filter.selected", lambda *_, **__: (np.array([2]), None))
    rng = np.random.default_rng(0)
    X = rng.standard_normal((100, 2))
    Z = np.hstack([X, X + 0.1 * rng.standard_normal((100, 2))])
    y = 3 * X[:, 0] + rng.standard_normal(100)
    W = swap_difference(Z, y, get_loss("quadratic"), 0)
    coef = np.zeros(4)
    Zc = Z - Z.mean(axis=0)
    coef[2] = Zc[:, 2] @ y / (Zc[:, 2] @ Zc[:, 2])
    swap = best_swap(Z, y, coef, penalty=TrimmedL1(1), alpha=1e3, fit_intercept=True)
    assert (swap.leaves, swap.enters) == (2, 0)
    assert W[0] == pytest.approx(swap.gain, rel=1e-9)


@pytest.mark.parametrize("name", STATISTICS)
@pytest.mark.parametrize("loss", ["quadratic", "logistic"])
def test_a_statistic_changes_its_sign_with_the_exchange(name, loss):
    X, y = draw(n=100, p=5, signals=2)
    y = (y > 0).astype(float) if loss == "logistic" else y
    Z = np.hstack([X, np.random.default_rng(1).standard_normal(X.shape)])
    W = STATISTICS[name](Z, y, get_loss(loss), 0)
    turned = Z[:, [5, 1, 7, 3, 4, 0, 6, 2, 8, 9]]
    np.testing.assert_allclose(
        STATISTICS[name](turned, y, get_loss(loss), 0), W * [-1, 1, -1, 1, 1], atol=1e-6
    )
    assert W[0] > 0


def test_few_mistakes_and_many_signals():
    rates = []
    for seed in range(12):
        X, y = draw(seed=seed)
        kept = Knockoffs(q=0.2, random_state=seed).fit(X, y).support_
        rates.append((kept[15:].sum() / max(kept.sum(), 1), kept[:15].mean()))
    false, power = np.array(rates).T
    assert false.mean() <= 0.2 + 2 * false.std() / np.sqrt(12)
    assert power.mean() > 0.8


def test_several_draws_are_averaged_as_evalues():
    X, y = draw(size=1.0)
    with parallel_config("threading"):
        model = Knockoffs(q=0.3, n_draws=3, n_jobs=2).fit(X, y)
    expected = np.mean([knockoff_evalues(W, 0.15) for W in model.statistics_], axis=0)
    np.testing.assert_array_equal(model.evalues_, expected)
    np.testing.assert_array_equal(model.support_, e_bh(expected, 0.3))
    assert model.support_[:15].all()
    assert len({tuple(W) for W in model.statistics_}) == 3
    again = Knockoffs(q=0.3, n_draws=3).fit(X, y)
    np.testing.assert_array_equal(again.statistics_, model.statistics_)


def test_any_sampler_and_any_statistic():
    X, y = draw()

    def independent(X, rng):
        return rng.standard_normal(X.shape)

    def correlation(Z, y, loss, seed):
        score = np.abs(Z.T @ (y - y.mean()))
        return score[:40] - score[40:]

    model = Knockoffs(sampler=independent, statistic=correlation, q=0.2).fit(X, y)
    assert model.support_[:15].mean() > 0.6
    assert "false discovery rate: 0.2" in str(model.summary())
    assert model.transform(X).shape == (150, model.support_.sum())
    with pytest.raises(ValueError, match="sampler must return finite numbers"):
        Knockoffs(sampler=lambda X, rng: X[:, :3]).fit(X, y)
    with pytest.raises(ValueError, match="statistic must return 40"):
        Knockoffs(statistic=lambda *a: np.zeros(3)).fit(X, y)


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"q": 0.0}, "q must be"), ({"q": 1.0}, "q must be in"), ({"q": "a"}, "q must be"),
        ({"n_draws": 0}, "n_draws"), ({"statistic": "ridge"}, "statistic must be one of"),
        ({"sampler": "mvr"}, "sampler"),
        ({"loss": "huber"}, "loss must be"), ({"random_state": -1}, "random_state"),
    ],
)  # fmt: skip
def test_bad_input_is_named_before_any_work(settings, match):
    X, y = draw(n=20, p=4, signals=1)
    with pytest.raises(ValueError, match=match):
        Knockoffs(**{"sampler": lambda X, rng: 1 / 0, **settings}).fit(X, y)


@pytest.mark.filterwarnings("ignore:No features were selected:UserWarning")
def test_check_estimator():
    results = check_estimator(Knockoffs(statistic=_absolute), on_skip=None, on_fail=None)
    failed = {r["check_name"]: r["exception"] for r in results if r["status"] not in ("passed", "skipped")}
    assert failed == {}


def _absolute(Z, y, loss, seed):
    score = np.abs(Z.T @ (y - y.mean()))
    return score[: score.size // 2] - score[score.size // 2 :]

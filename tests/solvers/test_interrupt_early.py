"""Ctrl-C at any product of a fit: there is a point to keep from the first product on."""

import warnings

import numpy as np
import pytest
from joblib import parallel_config
from sklearn.exceptions import ConvergenceWarning

from trimreg import (
    MCP,
    OnDisk,
    StabilitySelection,
    TrimmedCoxRegressor,
    TrimmedHuberRegressor,
    TrimmedL1,
    TrimmedLasso,
    TrimmedLassoCV,
    TrimmedLogisticRegression,
    solve,
    steps,
)
from trimreg.designs.base import ScaledMatrix
from trimreg.designs.dense import DenseDesign
from trimreg.designs.far.design import BlockedDesign
from trimreg.designs.wrappers.block import ColumnBlock
from trimreg.estimators import task
from trimreg.solvers.driver import Step, keeping, run
from trimreg.solvers.mm.reached import Reached
from trimreg.solvers.problem import Problem

N, P, H = 60, 6, 2


class Products:
    """Counts the products and losses that solvers ask for, and interrupts at one of them."""

    def __init__(self, monkeypatch):
        self.count, self.at, self.before_first_step, self._counting = 0, None, None, False
        names = ("matvec", "rmatvec", "gram", "gram_and_sums", "columns", "restricted")
        for kind in (ScaledMatrix, DenseDesign, BlockedDesign, ColumnBlock):
            for name in set(names) & set(vars(kind)):
                monkeypatch.setattr(kind, name, self._counted(getattr(kind, name)))
        monkeypatch.setattr(Problem, "loss_value", self._counted(Problem.loss_value))
        monkeypatch.setattr(task, "run", self._run)

    def _counted(self, real):
        def counted(*arguments, **options):
            if self._counting:
                self.count += 1
                if self.count == self.at:
                    raise KeyboardInterrupt
            return real(*arguments, **options)

        return counted

    def _run(self, steps, max_iter, callback=None):
        def watched():
            for step in steps:
                self.before_first_step = self.before_first_step or self.count
                yield step

        self._counting = True
        try:
            return run(watched(), max_iter, callback)
        finally:
            self._counting = False

    def measure(self, fit):
        """``(fit(), its products, those before the first step)``."""
        self.count, self.before_first_step = 0, None
        return fit(), self.count, self.before_first_step

    def interrupt(self, at, fit):
        """``(fit(), its warnings)`` with an interrupt at that product, or None if it went on."""
        self.count, self.at = 0, at
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                return fit(), [str(one.message) for one in caught if one.category is ConvergenceWarning]
            except KeyboardInterrupt:
                return None
            finally:
                self.at = None


@pytest.fixture
def products(monkeypatch):
    return Products(monkeypatch)


def data():
    rng = np.random.default_rng(1)
    X = rng.standard_normal((N, P))
    X[:, 1] += 0.5 * X[:, 0]
    return X, X[:, :4] @ [1.5, -1.0, 1.0, 0.7] + rng.standard_normal(N)


MODELS = {
    "lasso": (TrimmedLasso, lambda y: y),
    "logistic": (TrimmedLogisticRegression, lambda y: y > 0),
    "multinomial": (TrimmedLogisticRegression, lambda y: np.digitize(y, [-1.0, 1.0])),
    "cox": (TrimmedCoxRegressor, lambda y: np.column_stack([np.exp(-y), np.ones(N)])),
    "huber": (TrimmedHuberRegressor, lambda y: y),
}


def fit_of(name, alpha, where, folder):
    """A function that fits the model, to data in memory or on disk."""
    X, y = data()
    kind, target = MODELS[name]
    y = target(y)
    if where == "disk":
        np.save(folder / "X.npy", X)
        X = OnDisk(folder / "X.npy", memory=600 * N)
    return lambda: kind(h=H, alpha=alpha).fit(X, y)


@pytest.mark.parametrize("where", ["memory", "disk"])
@pytest.mark.parametrize("alpha", ["exact", 0.05])
@pytest.mark.parametrize("name", MODELS)
def test_a_fit_keeps_a_point_from_its_first_product_on(products, tmp_path, name, alpha, where):
    fit = fit_of(name, alpha, where, tmp_path)
    whole, total, first = products.measure(fit)
    null = products.interrupt(2, fit)[0].result_.objective
    # All of what comes before the first step, and some of what comes after it.
    thin = 1 if where == "memory" else 3
    for at in [*range(1, first + 2, thin), *range(first + 2, total + 1, 15)]:
        kept = products.interrupt(at, fit)
        if kept is None:
            assert at == 1
            continue
        model, told = kept
        result = model.result_
        assert result.converged is False
        assert len(told) == 1
        assert told[0].startswith("interrupted")
        assert "within the first step" in told[0] or at > first
        assert np.isfinite(model.coef_).all()
        assert np.isfinite(result.intercept).all()
        assert np.isfinite(result.stationarity)
        assert result.n_iter == len(result.history["objective"]) >= 1
        assert whole.result_.objective * (1 - 1e-9) <= result.objective <= null * (1 + 1e-9)
        if alpha == "exact":
            assert np.count_nonzero(np.any(np.atleast_2d(model.coef_) != 0, axis=0)) <= H
    assert at > first


class ProductsAfter(Products):
    """Those that come after the run: of the certificate, the order of entry, the predictor."""

    def _run(self, steps, max_iter, callback=None):
        outcome = run(steps, max_iter, callback)
        self._counting = True
        return outcome

    def measure(self, fit):
        try:
            return super().measure(fit)
        finally:
            self._counting = False

    def interrupt(self, at, fit):
        try:
            return super().interrupt(at, fit)
        finally:
            self._counting = False


@pytest.mark.parametrize("where", ["memory", "disk"])
@pytest.mark.parametrize("alpha", ["exact", 0.05])
@pytest.mark.parametrize("name", MODELS)
def test_a_fit_that_has_ended_is_kept(monkeypatch, tmp_path, name, alpha, where):
    products = ProductsAfter(monkeypatch)
    fit = fit_of(name, alpha, where, tmp_path)
    whole, total, _ = products.measure(fit)
    assert total >= 3
    certified = []
    for at in range(1, total + 1):
        model, told = products.interrupt(at, fit)
        assert len(told) == 1
        assert told[0].startswith("interrupted after")
        assert model.result_.converged is False
        np.testing.assert_array_equal(model.coef_, whole.coef_)
        np.testing.assert_array_equal(model.predict(data()[0]), whole.predict(data()[0]))
        assert set(model.entry_order_) == set(whole.entry_order_)
        assert "converged: no" in str(model.summary())
        certified.append(model.stationarity_ == whole.stationarity_)
    assert not certified[0]
    assert certified[-1]


def test_a_search_is_not_held_up_by_a_fit_that_has_ended(monkeypatch):
    products = ProductsAfter(monkeypatch)
    X, y = data()
    with parallel_config(n_jobs=1):
        assert products.interrupt(1, lambda: TrimmedLassoCV(cv=3).fit(X, y)) is None


@pytest.mark.parametrize("loss", ["logistic", "quadratic"])
@pytest.mark.parametrize("solver", ["mm", "bcd", "dc", "prox"])
def test_a_good_start_is_not_lost(products, loss, solver):
    """Within the first step the start is all there is to know, and may be the solution already."""
    X, y = data()
    y = y if loss == "quadratic" else (y > 0).astype(float)
    how = {"loss": loss, "penalty": TrimmedL1(H), "alpha": "exact", "solver": solver}
    good = solve(X, y, **{**how, "solver": "mm"})

    def again():
        return solve(X, y, theta0=good.coef, **how)

    _, _, first = products.measure(again)
    for at in range(2, first + 1):
        kept, _ = products.interrupt(at, again)
        assert kept.objective <= good.objective * (1 + 1e-9)
        assert not kept.converged


def test_a_penalty_that_does_not_trim(products):
    X, y = data()

    def fit():
        return solve(X, y, penalty=MCP(), alpha=0.1)

    _, _, first = products.measure(fit)
    for at in range(2, first + 1):
        kept, _ = products.interrupt(at, fit)
        penalty = MCP().bind(P).value(kept.coef, 0.1)
        assert kept.objective == pytest.approx(0.5 * np.mean((y - X @ kept.coef) ** 2) + penalty)


def test_a_search_still_stops_as_a_whole(products):
    X, y = data()
    search = StabilitySelection(TrimmedLogisticRegression(), hs=2, n_pairs=2)
    with parallel_config("threading"):
        for at in (2, 5, 20):
            assert products.interrupt(at, lambda: search.fit(X, y > 0)) is None


def test_who_steps_by_hand_gets_the_interrupt(products):
    X, y = data()
    stepper = steps(X, y > 0, loss="logistic", penalty=TrimmedL1(H), alpha="exact")
    products._counting, products.at = True, products.count + 5
    with pytest.raises(KeyboardInterrupt):
        next(stepper)


# -- its parts ----------------------------------------------------------------------------------------------


def ended(*values):
    for value in values:
        yield Step(np.zeros(1), np.ones(1), value)
    raise KeyboardInterrupt


def test_nothing_is_asked_for_once_there_is_a_step():
    def kept():
        raise AssertionError("a pass for nothing")

    with pytest.warns(ConvergenceWarning, match="^interrupted after 1 step:"):
        assert run(keeping(ended(3.0), kept), 10).step.objective == 3.0


def test_no_point_is_an_interrupt():
    with pytest.raises(KeyboardInterrupt):
        run(keeping(ended(), lambda: None), 10)


def test_a_second_interrupt_ends_all():
    def kept():
        raise KeyboardInterrupt("again")

    with pytest.raises(KeyboardInterrupt, match="again"):
        run(keeping(ended(), kept), 10)


def test_the_point_kept_is_the_one_step_of_its_run():
    start = Step(np.array([7.0]), np.ones(1), 2.0, converged=True, message="start")
    seen = []
    with pytest.warns(ConvergenceWarning, match="^interrupted within the first step: .* objective 2;"):
        outcome = run(keeping(ended(), lambda: start), 10, seen.append)
    assert outcome.interrupted
    assert (outcome.n_iter, outcome.history) == (1, {"objective": [2.0]})
    assert outcome.step.theta == [7.0]
    assert outcome.step.converged is False
    assert outcome.step.message == "interrupted within the first step; start"
    assert seen == []


def test_the_lower_of_the_null_model_and_the_last_point_is_kept(make_problem):
    problem = make_problem(TrimmedL1(2), 0.1)
    zero = np.zeros(problem.n_features)
    reached = Reached(problem)
    for theta in (zero, zero + 1e3):
        eta = problem.predictor(theta)
        reached.note(theta, eta, problem.gradient(eta))
    assert np.array_equal(reached.step().theta, zero)
    reached.note_null()
    assert np.array_equal(reached.step().theta, zero + 1e3)
    assert reached.step().objective == pytest.approx(problem.objective(zero + 1e3))
    reached.forget()
    reached.note(zero, eta, zero)
    assert reached.step() is None


def test_no_number_is_no_objective(make_problem):
    problem = make_problem(TrimmedL1(2), 0.1)
    zero, eta = np.zeros(problem.n_features), problem.origin()
    reached = Reached(problem)
    reached.note(zero, eta * np.nan, zero)
    assert reached.step() is None

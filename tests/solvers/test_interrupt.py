"""Ctrl-C: the best point of a fit stays, and what is made of many fits stops as a whole."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from types import SimpleNamespace

import numpy as np
import pytest
from joblib import Parallel, delayed, parallel_config
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.model_selection import GridSearchCV

from trimreg import (
    StabilitySelection,
    TrimmedGraphicalLasso,
    TrimmedL1,
    TrimmedLasso,
    TrimmedLassoCV,
    TrimmedLogisticRegression,
    solve,
    solve_graphical,
)
from trimreg.solvers import driver
from trimreg.solvers.driver import Step, part_of_more, run


def step(objective, converged=False, message=""):
    return Step(np.array([objective]), np.ones(1), objective, converged, message, swap_optimal=True)


def interrupting(values, after):
    """Steps of these objectives, and an interrupt inside the solver after so many."""
    for count, value in enumerate(values):
        if count == after:
            raise KeyboardInterrupt
        yield step(value, message="moving")


class Interrupt:
    """A callback that interrupts at a step, and remembers the objectives that it has seen."""

    def __init__(self, at):
        self.at, self.seen = at, []

    def __call__(self, now):
        self.seen.append(float(now.objective))
        if len(self.seen) == self.at:
            raise KeyboardInterrupt


def data(n=60, p=20, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, p))
    return X, X[:, :4] @ [3.0, -2.0, 1.5, 1.0] + rng.standard_normal(n)


# -- the loop ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("after", "best"), [(1, 5.0), (2, 3.0), (3, 3.0), (4, 1.0)])
def test_the_lowest_step_is_kept(after, best):
    with pytest.warns(ConvergenceWarning, match=rf"^interrupted after {after} step.*objective {best:g}"):
        outcome = run(interrupting([5.0, 3.0, 4.0, 1.0, 0.0], after), max_iter=10)
    kept = outcome.step
    assert outcome.interrupted
    assert outcome.n_iter == after
    assert kept.objective == best
    assert kept.theta == [best]
    assert kept.converged is False
    assert kept.swap_optimal is None
    assert kept.message.startswith("interrupted")
    assert kept.message.endswith("moving")
    assert len(outcome.history["objective"]) == after


def test_of_equal_steps_the_first_is_kept():
    steps = iter([step(1.0, message="first"), step(1.0, message="second")])
    with pytest.warns(ConvergenceWarning):
        assert run(steps, 10, Interrupt(at=2)).step.message.endswith("first")


def test_before_the_first_step_there_is_nothing_to_keep():
    with pytest.raises(KeyboardInterrupt):
        run(interrupting([1.0], 0), max_iter=10)


def test_other_errors_are_not_caught():
    def failing():
        yield step(1.0)
        raise RuntimeError("broken")

    with pytest.raises(RuntimeError, match="broken"):
        run(failing(), max_iter=10)


def test_a_run_that_ends_is_not_interrupted():
    assert run(iter([step(1.0, converged=True)]), 10).interrupted is False


# -- a fit ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("solver", ["mm", "bcd", "dc", "prox"])
@pytest.mark.parametrize("alpha", [0.3, "exact"])
@pytest.mark.parametrize("at", [1, 3])
def test_solve_returns_the_best_point(solver, alpha, at):
    X, y = data()
    callback = Interrupt(at)
    with pytest.warns(ConvergenceWarning, match="^interrupted"):
        result = solve(
            X, y, penalty=TrimmedL1(3), alpha=alpha, solver=solver, theta0=np.arange(1.0, 21.0),
            tol=1e-12, callback=callback,
        )  # fmt: skip
    assert not result.converged
    assert result.message.startswith(f"interrupted after {at} step")
    assert np.isfinite(result.stationarity)
    assert result.swap_optimal is None
    if alpha == "exact":
        assert np.count_nonzero(result.coef) <= 3
        assert result.weights.sum() == pytest.approx(20 - 3)
    else:
        assert result.objective == min(callback.seen)
    theta = result.coef
    value = 0.5 * np.mean((y - X @ theta) ** 2) + result.alpha * np.sort(np.abs(theta))[:-3].sum()
    assert result.objective == pytest.approx(value, rel=1e-9)


def test_too_many_nonzeros_are_cut_without_another_run(monkeypatch):
    """What a user who interrupts least wants is another solver that takes its time."""
    from trimreg.estimators import task

    X, y = data()
    asked = []
    real = task.get_solver
    monkeypatch.setattr(task, "get_solver", lambda name: asked.append(name) or real(name))
    how = {"penalty": TrimmedL1(2), "alpha": "exact", "solver": "bcd", "theta0": np.arange(1.0, 21.0)}
    with pytest.warns(ConvergenceWarning):
        result = solve(X, y, callback=Interrupt(1), **how)
    assert asked == ["bcd"]
    assert result.objective == pytest.approx(0.5 * np.mean((y - X @ result.coef) ** 2))
    free = np.flatnonzero(result.weights == 0)
    assert free.size == 2
    assert set(np.flatnonzero(result.coef)) <= set(free)


def fitted_attributes(model):
    return {name for name in vars(model) if name.endswith("_")}


def interrupted_solver(monkeypatch, at):
    """Every run from now on is interrupted after so many steps; 0 is before the first."""
    real = driver.run

    def run(steps, max_iter, callback=None):
        def until():
            for count, now in enumerate(steps):
                if count == at:
                    raise KeyboardInterrupt
                yield now

        return real(until(), max_iter, callback)

    from trimreg.estimators import task
    from trimreg.graphs import task as graphtask

    monkeypatch.setattr(task, "run", run)
    monkeypatch.setattr(graphtask, "run", run)


def test_fit_keeps_the_best_point_and_predicts(monkeypatch):
    X, y = data()
    interrupted_solver(monkeypatch, 1)
    with pytest.warns(ConvergenceWarning, match="^interrupted after 1 step:"):
        model = TrimmedLasso(h=3).fit(X, y)
    assert not model.result_.converged
    assert model.predict(X).shape == y.shape
    assert "converged" in str(model.summary())


@pytest.mark.parametrize("model", [TrimmedLasso(h=3), TrimmedLogisticRegression(h=3)])
def test_an_estimator_is_as_before_if_nothing_was_found(monkeypatch, model):
    X, y = data()
    y = (y > 0).astype(int)
    interrupted_solver(monkeypatch, 0)
    with pytest.raises(KeyboardInterrupt):
        model.fit(X, y)
    assert fitted_attributes(model) == set()
    with pytest.raises(NotFittedError):
        model.predict(X)


def test_an_earlier_fit_survives_a_failed_one():
    X, y = data()
    model = TrimmedLasso(h=3).fit(X, y)
    before = dict(vars(model))
    bad = X[:, :7].copy()
    bad[5, 2] = np.nan
    with pytest.raises(ValueError, match="X contains NaN at row 5, column 2"):
        model.fit(bad, y)
    assert vars(model) == before
    assert model.n_features_in_ == 20
    assert model.predict(X).shape == y.shape


def test_a_graph_keeps_its_best_point(monkeypatch):
    X, _ = data(100, 8)
    X[:, 1] += X[:, 0]
    S = np.cov(X.T)
    with pytest.warns(ConvergenceWarning, match="^interrupted"):
        result = solve_graphical(S, penalty=TrimmedL1(3), alpha="exact", callback=Interrupt(1))
    assert not result.converged
    assert np.count_nonzero(np.triu(result.precision, 1)) <= 3
    assert np.linalg.eigvalsh(result.precision)[0] > 0
    interrupted_solver(monkeypatch, 0)
    model = TrimmedGraphicalLasso(h=2)
    with pytest.raises(KeyboardInterrupt):
        model.fit(X)
    assert fitted_attributes(model) == set()


def test_a_graph_of_too_many_edges_is_finished_at_its_first_chance():
    X, _ = data(60, 6, seed=3)
    X[:, 1:] += X[:, :1]
    S = np.cov(X.T)
    with pytest.warns(ConvergenceWarning, match="^interrupted"):
        result = solve_graphical(
            S, penalty=TrimmedL1(2), alpha="exact", solver="bcd", precision0=np.linalg.inv(S),
            callback=Interrupt(1),
        )  # fmt: skip
    assert np.count_nonzero(np.triu(result.precision, 1)) <= 2
    assert np.linalg.eigvalsh(result.precision)[0] > 0
    assert not result.converged


@pytest.mark.parametrize("at_once", [True, False])
def test_mm_on_a_graph_ends_at_the_first_step_with_few_enough_edges(monkeypatch, at_once):
    from trimreg.graphs import task as graphtask

    task = graphtask.prepare_graph(np.eye(3), penalty=TrimmedL1(1), alpha="exact")
    full, sparse = np.ones(6), np.array([1.0, 0, 0, 1, 1, 1])
    taken = []

    def iterate(*arguments, **options):
        for theta, objective in ((full, 3.0), (sparse, 2.0), (sparse, 1.0)):
            taken.append(objective)
            yield Step(theta, np.ones(6), objective)

    monkeypatch.setitem(graphtask.GRAPHICAL_SOLVERS, "mm", SimpleNamespace(iterate=iterate))
    end = task._at_most_h(Step(full, np.ones(6), 4.0, message="there"), at_once=at_once)
    assert taken == ([3.0, 2.0] if at_once else [3.0, 2.0, 1.0])
    assert end.objective == taken[-1]
    assert np.array_equal(end.theta, sparse)
    assert task._at_most_h(Step(sparse, np.ones(6), 0.5), at_once=at_once).objective == 0.5


# -- without outliers ---------------------------------------------------------------------------------------


def contaminated():
    X, y = data(80, 6)
    y[:8] += 50.0
    return X, y


def test_a_robust_fit_keeps_the_best_that_left_out_enough(monkeypatch):
    X, y = contaminated()
    whole = solve(X, y, penalty=TrimmedL1(4), alpha="exact", n_outliers=8)
    with pytest.warns(ConvergenceWarning, match=r"^interrupted after \d+ fits"):
        kept = solve(X, y, penalty=TrimmedL1(4), alpha="exact", n_outliers=8, callback=Interrupt(1))
    assert not kept.converged
    assert kept.message.startswith("interrupted after")
    assert kept.outliers.size == 8
    assert kept.objective >= whole.objective * (1 - 1e-9)
    assert set(kept.outliers) == set(range(8))  # the rough fits found them


def test_a_robust_fit_without_any_is_an_interrupt(monkeypatch):
    X, y = contaminated()
    interrupted_solver(monkeypatch, 1)  # the first fit, to all samples
    with pytest.raises(KeyboardInterrupt):
        solve(X, y, penalty=TrimmedL1(4), alpha="exact", n_outliers=8)


# -- many fits ----------------------------------------------------------------------------------------------


def test_who_is_part_of_more():
    assert part_of_more() is False
    assert Parallel(n_jobs=1)([delayed(part_of_more)()]) == [True]
    assert Parallel(n_jobs=2, backend="threading")([delayed(part_of_more)()]) == [True]
    scope = {"__name__": "trimreg.selection.any", "part_of_more": part_of_more}
    assert eval("part_of_more()", scope) is True
    scope["__name__"] = "trimreg.selections"  # another word
    assert eval("part_of_more()", scope) is False
    for many in ("trimreg_reproduction.runner", "distributed.worker", "multiprocessing.process"):
        scope["__name__"] = many
        assert eval("part_of_more()", scope) is True
    scope["__name__"] = None  # as in code that is made up at run time
    assert eval("part_of_more()", scope) is False
    scope["__name__"] = "trimreg.selection"
    assert eval("part_of_more(depth=2)", scope) is False


@pytest.mark.parametrize(
    "model",
    [
        TrimmedLassoCV(hs=[1, 2], cv=2),
        StabilitySelection(TrimmedLasso(), hs=2, n_pairs=2),
        StabilitySelection(TrimmedLasso(), hs=2, n_pairs=2, n_jobs=2),
        GridSearchCV(TrimmedLasso(), {"h": [1, 2]}, cv=2, error_score="raise"),
    ],
    ids=["cv", "stability", "stability, 2 jobs", "scikit-learn"],
)
def test_many_fits_stop_as_a_whole(monkeypatch, model):
    """One interrupt ends a search, though each fit alone would have had a point to keep."""
    X, y = data()
    interrupted_solver(monkeypatch, 1)
    with parallel_config("threading"), pytest.raises(KeyboardInterrupt):
        model.fit(X, y)
    if not isinstance(model, GridSearchCV):
        assert fitted_attributes(model) == set()


# -- a real signal ------------------------------------------------------------------------------------------

_SLOW = """
    import sys, time, warnings
    import numpy as np
    from trimreg import TrimmedL1, solve
    rng = np.random.default_rng(0)
    X = rng.standard_normal((50, 10))
    y = X[:, 0] + rng.standard_normal(50)

    def slow(step):
        print("step", flush=True)
        time.sleep({pause})

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = solve(X, y, penalty=TrimmedL1(2), alpha=0.1, solver="bcd", tol=1e-300, callback=slow)
    print(result.converged, result.message.split(" after")[0], len(caught), flush=True)
"""


def test_ctrl_c_at_a_terminal():
    code = textwrap.dedent(_SLOW.format(pause=30))
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout.readline() == "step\n"
        process.send_signal(signal.SIGINT)
        rest, _ = process.communicate(timeout=60)
    finally:
        process.kill()
    assert rest.splitlines()[-1] == "False interrupted 1"
    assert process.returncode == 0


_MANY = """
    import time
    import numpy as np
    from pathlib import Path
    from trimreg import Bootstrap, TrimmedLasso

    class Slow(TrimmedLasso):
        def fit(self, X, y, sample_weight=None):
            if sample_weight is not None:
                Path({begun!r}).touch()
                time.sleep(30)
            return super().fit(X, y, sample_weight)

    rng = np.random.default_rng(0)
    X = rng.standard_normal((50, 10))
    model = Bootstrap(Slow(h=2), n_replicates=50, n_jobs=2)
    try:
        model.fit(X, X[:, 0] + rng.standard_normal(50))
    except KeyboardInterrupt:
        print("interrupted", [name for name in vars(model) if name.endswith("_")], flush=True)
"""


def test_ctrl_c_ends_the_workers(tmp_path):
    """The terminal sends it to all processes of the group; none of them goes on with the next replicate."""
    begun = tmp_path / "begun"
    code = textwrap.dedent(_MANY.format(begun=str(begun)))
    start = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        while not begun.exists():
            assert process.poll() is None
            assert time.monotonic() - start < 60
            time.sleep(0.05)
        sent = time.monotonic()
        os.killpg(process.pid, signal.SIGINT)
        answer, _ = process.communicate(timeout=60)
    finally:
        process.kill()
    assert answer == "interrupted []\n"
    assert time.monotonic() - sent < 20  # a replicate takes 30 seconds

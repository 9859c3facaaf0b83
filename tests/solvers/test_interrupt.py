"""Ctrl-C: a fit keeps its best step, and loops over many fits stop as a whole."""

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
import time

import numpy as np
import pytest
from joblib import parallel_config
from sklearn.exceptions import ConvergenceWarning, NotFittedError

from trimreg import (
    StabilitySelection,
    TrimmedGraphicalLasso,
    TrimmedL1,
    TrimmedLasso,
    TrimmedLogisticRegression,
    solve,
    solve_graphical,
)
from trimreg.graphs.selection.graphical_path import graphical_path
from trimreg.selection.search import parallel
from trimreg.solvers import Step, driver, many_fits, run


@pytest.fixture(autouse=True)
def no_earlier_interrupt(monkeypatch):
    monkeypatch.setattr(driver, "_last_interrupt", -np.inf)


def interrupting(values, after):
    """Steps of these objectives, and an interrupt inside the solver after so many."""
    for count, value in enumerate(values):
        if count == after:
            raise KeyboardInterrupt
        yield Step(np.array([value]), np.ones(1), value, message=f"moving {count}", swap_optimal=True)


def interrupt_at(count):
    """A callback that interrupts at that step."""
    left = [count]

    def callback(step):
        left[0] -= 1
        if left[0] == 0:
            raise KeyboardInterrupt

    return callback


def interrupted_solver(monkeypatch, at):
    """Every run from now on is interrupted after so many steps; 0 is before the first."""

    def interrupted(steps, max_iter, callback=None):
        def until():
            for count, step in enumerate(steps):
                if count == at:
                    raise KeyboardInterrupt
                yield step

        return run(until(), max_iter, callback)

    monkeypatch.setattr("trimreg.estimators.task.run", interrupted)
    monkeypatch.setattr("trimreg.graphs.solve.run", interrupted)


@pytest.fixture
def data():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 20))
    return X, X[:, :4] @ [3.0, -2.0, 1.5, 1.0] + rng.standard_normal(60)


def fitted_attributes(model):
    return {name for name in vars(model) if name.endswith("_")}


# -- the loop ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("after", "best", "place"), [(1, 5.0, 0), (3, 3.0, 1), (4, 3.0, 1), (5, 1.0, 4)])
def test_the_first_step_of_lowest_objective_is_kept(after, best, place):
    with pytest.warns(ConvergenceWarning, match=rf"^interrupted after {after} step.*objective {best:g}"):
        outcome = run(interrupting([5.0, 3.0, 4.0, 3.0, 1.0, 0.0], after), max_iter=10)
    assert outcome.interrupted
    assert outcome.n_iter == len(outcome.history["objective"]) == after
    assert outcome.step.theta == [best]
    assert outcome.step.converged is False
    assert outcome.step.swap_optimal is None
    assert outcome.step.message.startswith("interrupted")
    assert outcome.step.message.endswith(f"moving {place}")


def test_before_the_first_step_there_is_nothing_to_keep():
    with pytest.raises(KeyboardInterrupt):
        run(interrupting([1.0], 0), max_iter=10)


def test_inside_many_fits_the_interrupt_propagates():
    with pytest.raises(KeyboardInterrupt), many_fits(), many_fits():
        run(interrupting([1.0, 2.0], 1), max_iter=10)
    with pytest.warns(ConvergenceWarning):
        assert run(interrupting([1.0, 2.0], 1), max_iter=10).interrupted


def test_a_second_interrupt_within_two_seconds_propagates(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(driver.time, "monotonic", lambda: now[0])
    with pytest.warns(ConvergenceWarning):
        run(interrupting([1.0, 2.0], 1), max_iter=10)
    now[0] = 1.0
    with pytest.raises(KeyboardInterrupt):
        run(interrupting([1.0, 2.0], 1), max_iter=10)
    now[0] = 3.0
    with pytest.warns(ConvergenceWarning):
        run(interrupting([1.0, 2.0], 1), max_iter=10)


# -- a fit ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("solver", ["mm", "bcd", "dc", "prox"])
@pytest.mark.parametrize("alpha", [0.3, "exact"])
def test_solve_returns_the_best_point(data, solver, alpha):
    X, y = data
    how = {"penalty": TrimmedL1(3), "alpha": alpha, "solver": solver, "tol": 1e-12}
    with pytest.warns(ConvergenceWarning, match="^interrupted after 2 steps"):
        result = solve(X, y, theta0=np.arange(1.0, 21.0), callback=interrupt_at(2), **how)
    assert not result.converged
    assert np.isfinite(result.stationarity)
    assert result.swap_optimal is None
    if alpha == "exact":
        assert np.count_nonzero(result.coef) <= 3
        assert result.weights.sum() == pytest.approx(20 - 3)
    theta = result.coef
    value = 0.5 * np.mean((y - X @ theta) ** 2) + result.alpha * np.sort(np.abs(theta))[:-3].sum()
    assert result.objective == pytest.approx(value, rel=1e-9)


def test_an_estimator_keeps_the_best_point_or_is_as_before(data, monkeypatch):
    X, y = data
    interrupted_solver(monkeypatch, 1)
    with pytest.warns(ConvergenceWarning, match="^interrupted after 1 step:"):
        model = TrimmedLasso(h=3).fit(X, y)
    assert not model.result_.converged
    assert model.predict(X).shape == y.shape
    interrupted_solver(monkeypatch, 0)
    for model in (TrimmedLogisticRegression(h=3), TrimmedGraphicalLasso(h=2)):
        with pytest.raises(KeyboardInterrupt):
            model.fit(X, (y > 0).astype(int))
        assert fitted_attributes(model) == set()
    with pytest.raises(NotFittedError):
        TrimmedLasso(h=3).predict(X)


@pytest.mark.parametrize("solver", ["mm", "bcd"])
def test_a_graph_keeps_a_point_of_at_most_h_edges(data, solver):
    X = data[0][:, :6] + data[0][:, :1]
    S = np.cov(X.T)
    with pytest.warns(ConvergenceWarning, match="^interrupted"):
        result = solve_graphical(
            S, penalty=TrimmedL1(2), alpha="exact", solver=solver, precision0=np.linalg.inv(S),
            callback=interrupt_at(1),
        )  # fmt: skip
    assert not result.converged
    assert np.count_nonzero(np.triu(result.precision, 1)) <= 2
    assert np.linalg.eigvalsh(result.precision)[0] > 0


def test_a_robust_fit_keeps_the_best_that_left_out_enough(data, monkeypatch):
    X, y = data
    y[:6] += 50.0
    how = {"penalty": TrimmedL1(4), "alpha": "exact", "n_outliers": 6}
    with pytest.warns(ConvergenceWarning, match=r"^interrupted after \d+ fits"):
        kept = solve(X, y, callback=interrupt_at(1), **how)  # callbacks see the last fits only
    assert not kept.converged
    assert set(kept.outliers) == set(range(6))  # the rough fits found them
    with pytest.raises(KeyboardInterrupt), many_fits():
        solve(X, y, callback=interrupt_at(1), **how)
    interrupted_solver(monkeypatch, 1)  # in the first fit, to all samples
    with pytest.raises(KeyboardInterrupt):
        solve(X, y, **how)


def ctrl_c_at(count):
    """A callback that sends the signal of Ctrl-C at that step."""
    seen = []

    def callback(step):
        seen.append(step)
        if len(seen) == count:
            signal.raise_signal(signal.SIGINT)

    return callback


def test_ctrl_c_in_a_coroutine_ends_the_fit_at_its_next_step(data):
    """There it raises nothing: asyncio cancels the task, which takes effect where it next awaits."""
    how = {"penalty": TrimmedL1(3), "alpha": 0.3, "solver": "bcd", "tol": 1e-12}
    kept = []

    async def fit():
        kept.append(solve(*data, callback=ctrl_c_at(2), **how))
        try:
            await asyncio.sleep(0)
        except asyncio.CancelledError:
            kept.append(solve(*data, **how))  # not stopped: it answers the cancellation
            raise

    with (
        pytest.warns(ConvergenceWarning, match="^interrupted after 2 steps"),
        pytest.raises(KeyboardInterrupt),
    ):
        asyncio.run(fit())
    assert [result.converged for result in kept] == [False, True]

    async def search():
        with many_fits():
            await fit()

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(search())
    assert len(kept) == 2


# -- many fits --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_many_fits_stop_as_a_whole(data, monkeypatch, n_jobs):
    """Each fit alone would have a point to keep."""
    interrupted_solver(monkeypatch, 1)
    model = StabilitySelection(TrimmedLasso(), hs=2, n_pairs=2, n_jobs=n_jobs)
    with parallel_config("threading"), pytest.raises(KeyboardInterrupt):
        model.fit(*data)
    assert fitted_attributes(model) == set()
    done, interrupt = [], ctrl_c_at(1)

    async def several():
        return parallel(lambda task: interrupt(task) or done.append(task), [(0,), (1,)], n_jobs=n_jobs)

    with parallel_config("threading"), pytest.raises(KeyboardInterrupt):
        asyncio.run(several())
    assert len(done) == 1 or n_jobs > 1  # threads may have begun both
    with pytest.raises(KeyboardInterrupt):
        graphical_path(np.cov(data[0][:, :5].T), hs=[1, 2])


# -- a real signal ----------------------------------------------------------------------------------------

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
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        while not begun.exists():
            assert process.poll() is None
            time.sleep(0.05)
        os.killpg(process.pid, signal.SIGINT)
        answer, _ = process.communicate(timeout=120)
    finally:
        process.kill()
    assert answer == "interrupted []\n"

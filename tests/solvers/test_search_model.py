"""Best subsets of a quadratic model: scores and pivots against refits."""

from types import SimpleNamespace

import numpy as np
import pytest

from trimreg.penalties.norms import Groups, Singles
from trimreg.solvers.search.exchange import exchange_while_better, kick
from trimreg.solvers.search.model import ModelSubset

COUNT, ALWAYS = 7, 6


class Case:
    """A random model with one part that is never penalized, and its minimum over any set of parts."""

    def __init__(self, seed, grouped):
        rng = np.random.default_rng(seed)
        sizes = rng.integers(1, 4, COUNT) if grouped else np.ones(COUNT, dtype=int)
        self.norm = Groups(rng.permutation(np.repeat(np.arange(COUNT), sizes))) if grouped else Singles(COUNT)
        m = sizes.sum()
        rows = rng.standard_normal((2 * m, m))
        self.hessian, self.target = rows.T @ rows / m, rng.standard_normal(m)
        levels = np.ones(COUNT)
        levels[ALWAYS] = 0.0
        self.model = SimpleNamespace(
            norm=self.norm,
            parts=np.arange(COUNT),
            alive=np.ones(COUNT, dtype=bool),
            gram=SimpleNamespace(block=lambda W: self.hessian[np.ix_(W, W)]),
            problem=SimpleNamespace(penalty=SimpleNamespace(levels=lambda alpha: levels), n_features=m),
        )
        theta = rng.standard_normal(m)
        gradient = self.hessian @ theta - self.target
        value = 3.0 + 0.5 * theta @ (gradient - self.target)
        self.search = ModelSubset(self.model, np.array([0, 1, 2]), theta, gradient, value)

    def minimum(self, free):
        W = self.norm.coordinates(np.append(free, ALWAYS).astype(int))
        return 3.0 - 0.5 * self.target[W] @ np.linalg.solve(self.hessian[np.ix_(W, W)], self.target[W])


@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize("seed", range(6))
def test_scores_are_those_of_refits_after_any_moves(seed, grouped):
    case, rng = Case(seed, grouped), np.random.default_rng(seed)
    search = case.search
    for _ in range(8):
        now = case.minimum(search.free)
        assert search.objective == pytest.approx(now, abs=1e-6)
        scores = search.exchanges()
        others = [np.setdiff1d(search.free, [i]) for i in scores.free]
        np.testing.assert_allclose(scores.cost, [case.minimum(rest) - now for rest in others], atol=1e-6)
        entry = [now - case.minimum(np.append(search.free, j)) for j in scores.candidates]
        np.testing.assert_allclose(scores.entry_gain, entry, atol=1e-6)
        gains = np.array([[now - case.minimum(np.append(r, j)) for r in others] for j in scores.candidates])
        scored = np.isfinite(scores.gain)
        np.testing.assert_allclose(scores.gain[scored], gains.max(axis=1)[scored], atol=1e-6)
        np.testing.assert_array_equal(scores.partner[scored], gains.argmax(axis=1)[scored])
        assert max(scores.gain.max(), 0) == pytest.approx(max(gains.max(), 0), abs=1e-6)
        best = int(np.argmax(scores.gain))
        leave, enter = scores.free[[scores.partner[best]]], scores.candidates[[best]]
        if not search.attempt(leave, enter):
            assert gains.max() < 1e-6
            search.move_to(rng.permutation(ALWAYS)[:3])
    theta, free = search.solution()
    W = case.norm.coordinates(np.append(free, ALWAYS))
    np.testing.assert_allclose((case.hessian @ theta)[W], case.target[W], atol=1e-6)
    assert np.count_nonzero(theta) == W.size


def test_exchanges_end_at_a_set_that_no_swap_improves_and_kicks_never_raise_the_minimum():
    for seed in range(5):
        case = Case(seed, True)
        for _ in exchange_while_better(case.search):
            pass
        lowest = case.search.objective
        for i in case.search.free:
            for j in np.setdiff1d(np.arange(ALWAYS), case.search.free):
                swapped = np.append(np.setdiff1d(case.search.free, [i]), j)
                assert case.minimum(swapped) >= lowest - 1e-6
        rng = np.random.default_rng(seed)
        for _ in range(5):
            kick(case.search, rng, 3)
            assert case.search.objective <= lowest + 1e-12


def test_dependent_columns_gain_nothing():
    case = Case(0, False)
    case.hessian[3], case.hessian[:, 3] = case.hessian[0], case.hessian[:, 0]
    case.hessian[3, 3], case.target[3] = case.hessian[0, 0], case.target[0]
    search = ModelSubset(case.model, np.array([0, 1]), np.zeros(COUNT), -case.target, 0.0)
    scores = search.exchanges()
    assert scores.entry_gain[np.flatnonzero(scores.candidates == 3)[0]] < 1e-6
    assert not search.attempt(np.array([1]), np.array([3]))

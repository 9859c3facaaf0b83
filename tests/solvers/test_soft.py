"""Exchanges under a soft alpha: scores against refits with the same signs."""

import numpy as np
import pytest

from trimreg import TrimmedL1
from trimreg.solvers.mm.workingset import WorkingSetSolver
from trimreg.solvers.search.soft import SoftSearch


def least(gram, target, linear, i, level):
    """min of ``x'Gx/2 - target'x + linear'x + level |x_i|`` over x, trying both signs of x_i and zero."""
    values = []
    for sign in (-1.0, 1.0):
        slope = linear.copy()
        slope[i] += level * sign
        x = np.linalg.solve(gram, target - slope)
        if x[i] * sign >= 0:
            values.append(0.5 * x @ gram @ x - (target - slope) @ x)
    rest = np.delete(np.arange(len(target)), i)
    x = np.linalg.solve(gram[np.ix_(rest, rest)], (target - linear)[rest])
    values.append(0.5 * x @ gram[np.ix_(rest, rest)] @ x - (target - linear)[rest] @ x)
    return min(values)


@pytest.mark.parametrize("seed", range(4))
def test_scores_are_those_of_refits_with_fixed_signs(seed, make_problem):
    alpha = 0.02
    problem, _ = make_problem(TrimmedL1(3), alpha, n=30, p=25, seed=seed).normalized()
    inner = WorkingSetSolver(problem, 1e-10)
    theta = np.zeros(25)
    gradient = inner.gradient_at_zero
    search = SoftSearch(inner, theta, problem.free_set(theta, gradient), gradient)
    scores = search.exchanges()
    Z = problem.design.columns(np.arange(25))
    gram, target = Z.T @ (problem.d[:, None] * Z), Z.T @ (problem.d * problem.y)
    levels, theta, S = search.levels, search.theta, search.free
    P = np.setdiff1d(np.flatnonzero(theta), S)
    assert P.size > 1
    now = 0.5 * theta @ gram @ theta - target @ theta + levels[P] @ np.abs(theta[P])
    kinds = set()
    for j, gain, partner in zip(scores.candidates, scores.gain, scores.partner, strict=True):
        if not np.isfinite(gain):
            continue
        kinds.add(j in P)
        A = np.unique(np.concatenate([S, P, [j]]))
        penalized = np.isin(A, P) & (j != A)
        linear = np.where(penalized, levels[A] * np.sign(theta[A]), 0.0)
        after = [
            least(gram[np.ix_(A, A)], target[A], linear, int(np.flatnonzero(i == A)[0]), levels[i]) for i in S
        ]
        assert gain == pytest.approx(now - min(after), abs=1e-9)
        assert partner == np.argmin(after)
    assert kinds == {True, False}  # of penalized nonzeros and of zeros


def test_an_exchange_is_kept_only_if_the_objective_falls(make_problem):
    accepted = refused = 0
    for seed in range(20):
        problem, _ = make_problem(TrimmedL1(3), 0.3, n=20, p=40, seed=seed).normalized()
        search = SoftSearch(WorkingSetSolver(problem, 1e-10), np.zeros(40), np.array([10, 11, 12]))
        scores, before = search.exchanges(), search.objective
        for position in np.argsort(-scores.gain)[[0, 5]]:
            i = scores.partner[position]
            if search.attempt(scores.free[i : i + 1], scores.candidates[position : position + 1]):
                accepted += 1
                assert search.objective < before
                assert search.objective == pytest.approx(problem.objective(search.theta))
                break
            refused += 1
            assert search.objective == before
    assert accepted > 3
    assert refused > 3

"""The constant of the gradient that default steps hang on."""

import numpy as np
import pytest

from trimreg.designs import as_design
from trimreg.losses import Quadratic
from trimreg.penalties import L1
from trimreg.solvers import Problem


def problem_of(X, d=None):
    n, p = X.shape
    d = np.full(n, 1 / n) if d is None else d
    return Problem(as_design(X, d), Quadratic(), np.ones(n), d, L1().bind(p), 1.0)


@pytest.mark.parametrize("p", [1, 2, 3, 30])
def test_lipschitz_is_the_largest_eigenvalue(p):
    rng = np.random.default_rng(p)
    X, d = rng.standard_normal((12, p)), rng.random(12)
    d /= d.sum()
    expected = np.linalg.eigvalsh(X.T @ (X * d[:, None]))[-1]
    assert problem_of(X, d).lipschitz() == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize("size", [1e-150, 1e-30, 1e100, 1e150])
def test_lipschitz_of_columns_of_any_size(size):
    X = np.random.default_rng(0).standard_normal((12, 6))
    expected = np.linalg.eigvalsh(X.T @ X / 12)[-1]
    assert problem_of(size * X).lipschitz() == pytest.approx(expected * size**2, rel=1e-10)


def test_lipschitz_of_mirrored_columns():
    # The eigenvector (1, -1, 1, -1, ...) is orthogonal to every vector of equal entries.
    x = np.random.default_rng(0).standard_normal((12, 1))
    X = np.hstack([x, -x] * 10)
    assert problem_of(X).lipschitz() == pytest.approx(20 * np.mean(x**2), rel=1e-10)


@pytest.mark.parametrize("p", [1, 2, 5])
def test_a_design_of_zeros_has_a_step(p):
    constant = problem_of(np.zeros((4, p))).lipschitz()
    assert 0 < constant < np.inf


def test_a_loss_without_bound_has_no_constant():
    class Unbounded(Quadratic):
        name, curvature_bound = "unbounded", np.inf

    n = 4
    problem = Problem(
        as_design(np.eye(n), np.full(n, 0.25)), Unbounded(), np.ones(n), np.full(n, 0.25), L1().bind(n), 1.0
    )
    assert problem.lipschitz() == np.inf

"""The compiled graphical lasso, piece by piece, against NumPy and the conditions of its quadratic model."""

import numpy as np
import pytest

from trimreg.graphs.mm import kernels
from trimreg.solvers import lapack

SIZES = [2, 5, lapack.SMALL, lapack.SMALL + 1, 40]  # plain loops up to SMALL, LAPACK above


def positive_definite(p, seed=0, spread=1.0):
    """A random covariance with a unit diagonal; the smaller the spread, the closer to singular."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((3 * p + 3, p)) * spread + rng.standard_normal((3 * p + 3, 1))
    return np.corrcoef(X, rowvar=False)


def thresholds(p, seed=0, low=0.02, high=0.3, zeros=0.3, infinite=0.1):
    rng = np.random.default_rng(seed + 100)
    lam = rng.uniform(low, high, (p, p))
    kind = rng.random((p, p))
    lam[kind < zeros] = 0.0
    lam[kind > 1 - infinite] = np.inf
    lam = np.triu(lam, 1)
    return lam + lam.T


class Model:
    """A point of a weighted problem, its inverse, and the entries that a step may change."""

    def __init__(self, p, seed=0, spread=1.0, **how):
        self.S, self.lam = positive_definite(p, seed, spread), thresholds(p, seed, **how)
        rng = np.random.default_rng(seed + 200)
        other = np.linalg.inv(positive_definite(p, seed + 300, spread))
        keep = np.triu(rng.random((p, p)) < 0.5, 1)
        keep = keep | keep.T | np.eye(p, dtype=bool)
        self.Theta = np.where(keep & ~(np.isinf(self.lam)), other, 0.0)
        self.Theta += np.eye(p) * max(0.0, 0.1 - np.linalg.eigvalsh(self.Theta)[0])
        self.refresh()

    def refresh(self):
        p = len(self.S)
        self.W = np.linalg.inv(self.Theta)
        self.W = (self.W + self.W.T) / 2
        self.rows, self.starts = np.empty(p * (p + 1) // 2, dtype=np.int32), np.empty(p + 1, dtype=np.int64)
        self.violation = kernels.conditions(self.S, self.lam, self.Theta, self.W, self.rows, self.starts)

    @property
    def arguments(self):
        return self.S, self.lam, self.Theta, self.W, self.rows, self.starts

    @property
    def entries(self):
        """The pairs (i, j) that a step may change."""
        return [
            (int(i), j) for j in range(len(self.S)) for i in self.rows[self.starts[j] : self.starts[j + 1]]
        ]

    def value(self, D):
        new = self.Theta + D
        paid = np.where(new == 0, 0.0, self.lam) * np.abs(new)
        np.fill_diagonal(paid, 0.0)
        WD = self.W @ D
        return np.sum((self.S - self.W) * D) + 0.5 * np.sum(WD * WD.T) + paid.sum()

    def violations(self, D):
        """How far each entry that may change is from the minimum of the model."""
        slope, new = self.S - self.W + self.W @ D @ self.W, self.Theta + D
        out = []
        for i, j in self.entries:
            lam = 0.0 if i == j else self.lam[i, j]
            if new[i, j] != 0 or lam == 0:
                out.append(abs(slope[i, j] + lam * np.sign(new[i, j])))
            else:
                out.append(max(abs(slope[i, j]) - lam, 0.0))
        return np.array(out)


# -- matrices -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("p", SIZES)
def test_factor_inverse_and_log_determinant(p):
    A = positive_definite(p, seed=p) * np.outer(np.arange(1, p + 1), np.arange(1, p + 1))
    factor, positive = lapack.factored(A)
    assert positive
    assert np.allclose(factor, np.linalg.cholesky(A), rtol=1e-10, atol=0)
    assert factor.flags.c_contiguous
    assert not np.triu(factor, 1).any()
    inverse = lapack.inverted(factor)
    assert np.array_equal(inverse, inverse.T)
    assert np.allclose(inverse @ A, np.eye(p), atol=1e-9)


@pytest.mark.parametrize("p", SIZES)
def test_no_factor_where_not_positive_definite(p):
    A = positive_definite(p)
    for bad in (-1.0, 0.0, np.nan):
        B = A.copy()
        B[-1, -1] = bad
        assert not lapack.factored(B)[1]
    B = A.copy()
    B[0, 1] = B[1, 0] = 1.5  # only its first minor of two is negative
    assert not lapack.factored(B)[1]


def test_singular_by_a_hair():
    assert lapack.factored(np.array([[1.0, 1 - 1e-12], [1 - 1e-12, 1.0]]))[1]
    assert not lapack.factored(np.ones((2, 2)))[1]


def test_product_and_rounding():
    A, B = positive_definite(4), positive_definite(4, 1)
    assert np.allclose(lapack.product(A, B), A @ B)
    assert kernels.rounding_of(0.5, np.eye(2)) == 1e-14
    assert kernels.rounding_of(-30.0, np.eye(2)) == pytest.approx(3e-13)
    assert kernels.rounding_of(1.0, np.diag([1e8, 1e8])) == pytest.approx(4e-8)


@pytest.mark.parametrize("n", [1, 5, lapack.SMALL + 1, 60])
def test_solved(n):
    rng = np.random.default_rng(n)
    A = rng.standard_normal((2 * n, n)) * 10.0 ** rng.uniform(-6, 6, n)  # any units
    matrix, x = A.T @ A, rng.standard_normal(n)
    rhs = matrix @ x
    assert np.allclose(matrix @ lapack.solved(matrix, rhs), rhs, rtol=1e-9, atol=0)


def test_solved_where_the_matrix_is_singular():
    matrix = np.ones((3, 3))
    x = lapack.solved(matrix, np.full(3, 6.0))
    assert np.isfinite(x).all()
    assert np.allclose(matrix @ x, 6.0)
    negative = np.array([[1.0, 5.0], [5.0, 1.0]])  # no ridge makes it positive definite: by its diagonal
    assert lapack.solved(negative, np.array([3.0, 4.0])).tolist() == [3.0, 4.0]


@pytest.mark.parametrize("p", SIZES)
def test_value_of_the_objective(p):
    model = Model(p, seed=p)
    factor = np.linalg.cholesky(model.Theta)
    paid = np.where(model.Theta == 0, 0.0, model.lam) * np.abs(model.Theta)
    np.fill_diagonal(paid, 0.0)
    expected = np.sum(model.S * model.Theta) - np.linalg.slogdet(model.Theta)[1] + paid.sum()
    assert kernels.value(model.S, model.lam, model.Theta, factor) == pytest.approx(expected, rel=1e-11)
    model.lam[np.diag_indices(p)] = 9.0  # the diagonal is never penalized
    assert kernels.value(model.S, model.lam, model.Theta, factor) == pytest.approx(expected, rel=1e-11)


@pytest.mark.parametrize("p", SIZES)
def test_dual_value(p):
    S, lam = positive_definite(p), thresholds(p, infinite=0.0)
    W = S + 0.01 * np.random.default_rng(p).standard_normal((p, p))
    W = (W + W.T) / 2
    feasible = np.clip(W, S - lam, S + lam)
    np.fill_diagonal(feasible, 1.0)
    expected = np.linalg.slogdet(feasible)[1] + p
    assert kernels.dual_value(S, lam, W) == pytest.approx(expected, rel=1e-11)


def test_dual_value_with_excluded_edges_and_without_a_point():
    S, lam = np.array([[1.0, 0.5], [0.5, 1.0]]), np.array([[0.0, np.inf], [np.inf, 0.0]])
    assert kernels.dual_value(S, lam, np.eye(2)) == pytest.approx(2.0)
    assert kernels.dual_value(S, lam, np.array([[1.0, 3.0], [3.0, 1.0]])) == -np.inf
    assert kernels.dual_value(np.ones((2, 2)), np.zeros((2, 2)), np.eye(2)) == -np.inf


@pytest.mark.parametrize("p", [2, 7, 30])
def test_conditions_and_entries(p):
    model = Model(p, seed=p)
    expected, entries = 0.0, []
    for j in range(p):
        for i in range(j + 1):
            slope, t = model.S[i, j] - model.W[i, j], model.Theta[i, j]
            lam = 0.0 if i == j else model.lam[i, j]
            violation = abs(slope + lam * np.sign(t)) if t != 0 else abs(slope) - lam
            if t != 0 or violation > 0:
                entries.append((i, j))
                expected = max(expected, violation)
    assert model.violation == pytest.approx(expected, rel=1e-12)
    assert model.entries == entries


# -- the quadratic model --------------------------------------------------------------------------------


@pytest.mark.parametrize("p", [2, 6, 30])
def test_a_sweep_lowers_the_model_and_keeps_its_product(p):
    model = Model(p, seed=p)
    D, U = np.zeros((p, p)), np.zeros((p, p))
    before, moves = 0.0, []
    start = model.value(D)
    for _ in range(200):
        moves.append(kernels.sweep(*model.arguments, D, U))
        assert np.array_equal(D, D.T)
        assert np.allclose(U, D @ model.W, atol=1e-8 * max(1.0, np.abs(U).max()))
        now = model.value(D) - start
        assert now <= before + 1e-9 * max(1.0, abs(before))
        before = now
        if moves[-1] < 1e-13:
            break
    assert before < 0
    assert model.violations(D).max() < 1e-9 * max(1.0, model.violation)
    changed = {(min(i, j), max(i, j)) for i, j in np.argwhere(D != 0)}
    assert changed <= set(model.entries)


def test_one_visit_is_the_minimum_over_one_entry():
    """Two variables with an edge that is not zero: its visit alone, against a fine search of the model."""
    model = Model(2, seed=3, zeros=0.0, infinite=0.0)
    model.starts[:] = 0, 0, 1  # of the three entries the edge alone
    model.rows[0] = 0
    D, U = np.zeros((2, 2)), np.zeros((2, 2))
    slope_change = kernels.sweep(*model.arguments, D, U)
    curvature = model.W[0, 0] * model.W[1, 1] + model.W[0, 1] ** 2
    assert slope_change == pytest.approx(abs(D[0, 1]) * curvature)
    for other in D[0, 1] + np.array([-0.1, -1e-3, 1e-3, 0.1]):
        assert model.value(np.array([[0.0, other], [other, 0.0]])) > model.value(D)


@pytest.mark.parametrize("share", [0.05, 1.0])
def test_a_product_with_few_entries_and_with_all(share):
    rng = np.random.default_rng(0)
    M = rng.standard_normal((30, 30))
    M, X = M @ M.T, np.zeros((30, 30))
    rows, columns = np.triu_indices(30)
    used = rng.random(rows.size) < share
    rows, columns = rows[used], columns[used]
    x, found = rng.standard_normal(rows.size), np.empty(rows.size)
    X[rows, columns] = X[columns, rows] = x
    kernels.sandwiched(M, rows, columns, x, found)
    assert np.allclose(found, (M @ X @ M)[rows, columns], rtol=1e-10, atol=1e-8)


@pytest.mark.parametrize("p", [2, 5, 12, 26])
def test_face_step_solves_the_smooth_model(p):
    model = Model(p, seed=p, zeros=1.0, infinite=0.0)  # nothing is penalized: Newton's direction
    D = np.zeros((p, p))
    assert not kernels.face_step(*model.arguments, D)
    assert model.violations(D).max() < 1e-9 * max(1.0, model.violation)
    # Over all entries the minimum of the model is Theta (W - S) Theta.
    expected = model.Theta @ (model.W - model.S) @ model.Theta
    assert np.allclose(D, expected, atol=1e-8 * np.abs(expected).max())


@pytest.mark.parametrize("seed", range(8))
def test_face_steps_stop_at_the_first_change_of_sign(seed):
    p = 6
    model = Model(p, seed=seed, zeros=0.2, infinite=0.0, low=0.1, high=0.6)
    D = np.zeros((p, p))
    value, blocked = model.value(D), True
    for _ in range(40):
        before = model.Theta + D
        blocked = kernels.face_step(*model.arguments, D)
        after = model.Theta + D
        pairs = [(i, j) for i, j in model.entries if i != j and model.lam[i, j] > 0]
        gone = [(i, j) for i, j in pairs if before[i, j] != 0 and after[i, j] == 0]
        assert all(
            before[i, j] * after[i, j] > 0 for i, j in pairs if before[i, j] != 0 and (i, j) not in gone
        )
        assert all(after[i, j] == 0 for i, j in pairs if before[i, j] == 0)  # zeros stay
        assert bool(gone) == blocked
        assert model.value(D) <= value + 1e-10
        value = model.value(D)
        if not blocked:
            break
    assert not blocked
    new = model.Theta + D
    on_face = [k for k, (i, j) in enumerate(model.entries) if new[i, j] != 0 or model.lam[i, j] == 0]
    assert model.violations(D)[on_face].max() < 1e-8 * max(1.0, model.violation)


@pytest.mark.parametrize("spread", [1.0, 0.05])  # in the second coordinate descent alone crawls
@pytest.mark.parametrize("p", [2, 9, 27])
def test_newton_direction_minimizes_the_model(p, spread):
    for seed in range(3):
        model = Model(p, seed=seed, spread=spread)
        D = kernels.newton_direction(*model.arguments, 1e-9 * model.violation, 50)
        assert np.array_equal(D, D.T)
        assert model.violations(D).max() < 1e-7 * max(1.0, model.violation)


def test_newton_direction_gives_up_where_nothing_can_be_solved():
    """A W so near to singular that no solve helps: it must end, and its direction is finite."""
    S = np.ones((12, 12)) - 1e-15 + np.diag(np.full(12, 1e-15))
    model = Model(12)
    model.S, model.lam, model.Theta = S, np.zeros((12, 12)), np.eye(12) * 1e7 - np.ones((12, 12)) * 8e5
    model.refresh()
    D = kernels.newton_direction(*model.arguments, 1e-30, 50)
    assert np.isfinite(D).all()


def test_descent_is_the_slope_along_a_step():
    model = Model(8, seed=1)
    D = np.where(np.isinf(model.lam), 0.0, np.random.default_rng(0).standard_normal((8, 8)))
    D = D + D.T
    new, off = model.Theta + D, ~np.eye(8, dtype=bool)
    paid = np.where(np.isinf(model.lam), 0.0, model.lam) * (np.abs(new) - np.abs(model.Theta))
    expected = np.sum((model.S - model.W) * D) + paid[off].sum()
    assert kernels.descent(model.S, model.lam, model.Theta, model.W, D) == pytest.approx(expected, rel=1e-10)


# -- the whole ------------------------------------------------------------------------------------------


def solved(S, lam, Theta=None, tol=1e-8, max_iter=200):
    Theta = np.eye(len(S)) if Theta is None else Theta
    return kernels.minimize_weighted(S, lam, Theta, 0.0, tol, max_iter, 50)


@pytest.mark.parametrize("p", [2, 10, 30])
def test_how_a_minimization_ends(p):
    S, lam = positive_definite(p, spread=0.5), np.full((p, p), 0.05)
    *_, status = solved(S, lam)
    assert status == kernels.CONVERGED
    Theta, W, objective, gap, _, n_iter, status = solved(S, lam, max_iter=1)
    assert (n_iter, status) == (1, kernels.OUT_OF_STEPS)
    assert np.linalg.eigvalsh(Theta)[0] > 0
    assert np.allclose(Theta @ W, np.eye(p))
    assert gap > 1e-8 * max(1.0, abs(objective))
    *_, gap, _, n_iter, status = solved(S, lam, tol=1e-300)
    assert gap < 1e-10
    assert n_iter < 100
    assert status in (kernels.CONVERGED, kernels.STUCK)


def test_the_tolerance_is_kept_and_no_more():
    S, lam = positive_definite(20, spread=0.3), np.full((20, 20), 0.02)
    steps = []
    for tol in (1e-2, 1e-5, 1e-11):
        *_, objective, gap, _, n_iter, status = solved(S, lam, tol=tol)
        assert status == kernels.CONVERGED
        assert gap <= tol * max(1.0, abs(objective))
        steps.append(n_iter)
    assert steps[0] < steps[2]


def test_the_shift_widens_the_room():
    S, lam = positive_definite(10, spread=0.3), np.full((10, 10), 0.02)
    few = kernels.minimize_weighted(S, lam, np.eye(10), 1e7, 1e-8, 200, 50)
    many = kernels.minimize_weighted(S, lam, np.eye(10), 0.0, 1e-8, 200, 50)
    assert few[-1] == many[-1] == kernels.CONVERGED
    assert few[3] > many[3]
    assert few[5] < many[5]


@pytest.mark.parametrize("p", [3, 30])
def test_all_free_and_singular_is_unbounded_at_once(p):
    X = np.random.default_rng(0).standard_normal((p - 1, p))
    *_, n_iter, status = solved(np.corrcoef(X, rowvar=False), np.zeros((p, p)))
    assert (n_iter, status) == (0, kernels.UNBOUNDED)


@pytest.mark.parametrize("condition", [1e3, 1e9, 1e12])
def test_all_free_is_the_inverse_whatever_the_condition(condition):
    p = 12
    Q = np.linalg.qr(np.random.default_rng(1).standard_normal((p, p)))[0]
    S = (Q * np.geomspace(1 / condition, 1, p)) @ Q.T
    deviation = np.sqrt(np.diag(S))
    S = S / np.outer(deviation, deviation)
    Theta, _, objective, _, _, n_iter, status = solved((S + S.T) / 2, np.zeros((p, p)))
    assert status in (kernels.CONVERGED, kernels.STUCK)
    assert n_iter <= 10
    assert objective == pytest.approx(p + np.linalg.slogdet(S)[1], abs=1e-3)
    assert np.linalg.eigvalsh(Theta)[0] > 0


def test_terms_that_cancel_do_not_stop_it():
    """Entries of Theta of 1e3 leave rounding in the objective: no reason to stop before the gap."""
    rng = np.random.default_rng(32)
    for _ in range(20):
        Q = np.linalg.qr(rng.standard_normal((18, 18)))[0]
        S = (Q * np.geomspace(1e-6, 1, 18)) @ Q.T
        deviation = np.sqrt(np.diag(S))
        S = S / np.outer(deviation, deviation)
        S = (S + S.T) / 2
        np.fill_diagonal(S, 1.0)
        lam = thresholds(18, seed=int(rng.integers(1000)), low=1e-3, high=1e-3, zeros=0.45, infinite=0.0)
        rough = solved(S, lam, tol=1e-5)
        *_, status = solved(S, lam, rough[0])
        assert status == kernels.CONVERGED

"""certify_graph: folded penalties, scales, ill-conditioned points, arguments and errors."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from trimreg.diagnostics import certify_graph
from trimreg.graphs.diagnostics.minimum import log_det_hessian
from trimreg.penalties import L1, MCP, SCAD, SLOPE, Penalty, TrimmedL1


def pair(s, a=1.0, b=1.0):
    return np.array([[a * a, s * a * b], [s * a * b, b * b]])


def spread(values, p):
    """The symmetric matrix with these values at the edges and 0 on the diagonal."""
    A = np.zeros((p, p))
    A[np.triu_indices(p, 1)] = values
    return A + A.T


def random_problem(seed, p=4):
    rng = np.random.default_rng(seed)
    S, W = (np.cov(rng.standard_normal((p, 5 * p))) for _ in range(2))
    return S, np.linalg.inv(W)


def objective(S, penalty, alpha):
    bound = penalty.bind(len(S) * (len(S) - 1) // 2)

    def F(theta):
        if np.linalg.eigvalsh(theta)[0] <= 0:
            return np.inf
        edges = theta[np.triu_indices(len(S), 1)]
        return np.sum(S * theta) - np.linalg.slogdet(theta)[1] + 2 * bound.value(edges, alpha)

    return F


def falls_nearby(F, theta, radius, seed=0):
    rng, base = np.random.default_rng(seed), F(theta)
    for _ in range(400):
        change = rng.standard_normal(theta.shape) * radius * rng.uniform(0.01, 1)
        if F(theta + change + change.T) < base - 1e-13:
            return True
    return False


def stationary_pair(theta12, slope):
    """S for which this edge is stationary when its penalty has that slope, the diagonal of S being 1."""
    root = (1 + np.sqrt(1 + 4 * theta12**2)) / 2  # Theta_11 with W_11 = 1
    theta = np.array([[root, theta12], [theta12, root]])
    S = np.linalg.inv(theta)
    S[0, 1] = S[1, 0] = S[0, 1] - slope * np.sign(theta12)
    return S, theta


# -- MCP and SCAD -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("penalty", [MCP(1.5), SCAD(2.5)])
@pytest.mark.parametrize("edge", [0.02, 0.1, 0.15, 0.2, 0.35, 0.9, 3.0])
@pytest.mark.parametrize("alpha", [0.1, 0.3])
def test_a_folded_penalty_is_decided_by_its_curvature(penalty, edge, alpha):
    slope = alpha * float(penalty.bind(1).weights(np.array([edge]), alpha)[0])
    S, theta = stationary_pair(edge, slope)
    certificate = certify_graph(S, theta, penalty=penalty, alpha=alpha)
    assert certificate.kkt_residual < 1e-12
    assert certificate.stationarity < 1e-24
    F = objective(S, penalty, alpha)
    if certificate.local_minimum is None:
        ends = {MCP: [penalty.gamma], SCAD: [1.0, penalty.gamma]}[type(penalty)]
        assert np.min(np.abs(np.array(ends) - edge / alpha)) < 1e-6  # only at a kink
    else:
        assert certificate.local_minimum != falls_nearby(F, theta, 1e-3)


def test_a_saddle_of_mcp_is_found_and_named():
    # A large Theta makes the loss flat: the concavity 1 / gamma outweighs its curvature.
    S, theta = stationary_pair(0.6, 0.0)
    S, theta = 0.05 * S, 20 * theta
    alpha, gamma = theta[0, 1], 1.1
    S[0, 1] = S[1, 0] = S[0, 1] - alpha * (1 - 1 / gamma)
    certificate = certify_graph(S, theta, penalty=MCP(gamma), alpha=alpha)
    assert certificate.kkt_residual < 1e-10
    assert certificate.local_minimum is False
    assert "saddle" in certificate.reason
    assert falls_nearby(objective(S, MCP(gamma), alpha), theta, 1.0)


def second_derivative(F, theta, t):
    """That of F on the diagonal and the nonzero edges, by central differences of step t."""
    at = np.argwhere(np.triu(theta))
    units = np.zeros((len(at), *theta.shape))
    for E, (i, j) in zip(units, at, strict=True):
        E[i, j] = E[j, i] = t
    ends = [(a + b, a - b) for a in units for b in units]
    H = [F(theta + u) + F(theta - u) - F(theta + v) - F(theta - v) for u, v in ends]
    return np.reshape(H, (len(at), len(at))) / (4 * t * t)


@pytest.mark.parametrize("penalty", [MCP(1.5), MCP(6.0), SCAD(2.5), SCAD(6.0)])
def test_the_curvature_is_that_of_finite_differences(penalty):
    # Stationary points, made by choosing S; edges on every piece of the penalty, two of them 0.
    answers = []
    for seed, alpha in enumerate([0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0] * 3):
        rng = np.random.default_rng(seed)
        edges = alpha * rng.uniform(0.2, 1.3 * penalty.gamma, 6) * rng.choice([-1.0, 1.0], 6)
        edges[:2] = 0.0
        theta = spread(edges, 4)
        theta += np.diag(np.abs(theta).sum(axis=1) + rng.uniform(0.2, 1.0, 4))
        slope = alpha * penalty.bind(6).weights(edges, alpha)
        S = np.linalg.inv(theta) - spread(slope * np.where(edges == 0, 0.5, np.sign(edges)), 4)
        lowest = np.linalg.eigvalsh(second_derivative(objective(S, penalty, alpha), theta, 1e-4))[0]
        certificate = certify_graph(S, theta, penalty=penalty, alpha=alpha)
        assert certificate.kkt_residual < 1e-10
        if abs(lowest) > 1e-3:
            assert certificate.local_minimum is bool(lowest > 0), seed
            answers.append(certificate.local_minimum)
    assert min(answers.count(True), answers.count(False)) > 2


def test_at_a_kink_the_curvature_may_not_decide():
    # Flat on one side, and on the other more concave than the loss is convex.
    S, theta = stationary_pair(0.6, 0.0)
    S, theta = 0.05 * S, 20 * theta
    certificate = certify_graph(S, theta, penalty=MCP(1.5), alpha=theta[0, 1] / 1.5)
    assert certificate.kkt_residual < 1e-12
    assert certificate.local_minimum is None
    assert "does not decide" in certificate.reason


@pytest.mark.parametrize("penalty", [MCP(3.0), SCAD(3.7)])
def test_a_folded_penalty_that_is_not_stationary(penalty):
    S, theta = stationary_pair(0.5, 0.0)
    good = certify_graph(S, theta, penalty=penalty, alpha=0.1)
    assert good.local_minimum is True  # beyond gamma alpha the edge is not shrunk
    assert (good.n_edges, good.n_free) == (1, 1)
    S[0, 1] = S[1, 0] = S[0, 1] + 0.01
    bad = certify_graph(S, theta, penalty=penalty, alpha=0.1)
    assert bad.local_minimum is False
    assert bad.reason == "edge (0, 1): the slope of its penalty does not balance its gradient"


def test_a_balanced_zero_counts_as_movable():
    # At |g| = alpha the first derivative vanishes in one direction, so that curvature decides.
    alpha, gamma = 30.0, 1.5
    S = pair(0.3, 10.0, 10.0)
    theta = np.diag([0.01, 0.01])
    flat = certify_graph(S, theta, penalty=MCP(gamma), alpha=alpha)
    assert flat.local_minimum is True  # tr(WEWE) is 2 * 100^2, the concavity only 2 / gamma
    S, theta = S / 1e4, theta * 1e4
    curved = certify_graph(S, theta, penalty=MCP(gamma), alpha=alpha / 1e4)
    assert curved.local_minimum is not True
    assert certify_graph(S, theta, penalty=MCP(gamma), alpha=2 * alpha / 1e4).local_minimum is True


def test_a_penalty_that_is_not_known_is_not_decided():
    class Half(Penalty):
        """Half the l1 norm."""

        def _value(self, size, alpha, factor):
            return 0.5 * alpha * np.dot(factor, size)

        def _weights(self, size, alpha, factor, tie):
            return np.full_like(size, 0.5)

    S = pair(0.5)
    certificate = certify_graph(S, np.linalg.inv(pair(0.4)), penalty=Half(), alpha=0.2)
    assert certificate.local_minimum is None
    assert not certificate
    assert certificate.kkt_residual < 1e-14
    assert certify_graph(S, np.linalg.inv(pair(0.41)), penalty=Half(), alpha=0.2).local_minimum is False


def test_the_second_derivative_of_the_log_determinant():
    _, theta = random_problem(1)
    rows, cols = np.array([0, 2, 0, 1, 2]), np.array([0, 2, 1, 3, 3])
    H = log_det_hessian(np.linalg.inv(theta), rows, cols)
    x = np.array([0.3, -0.2, 0.5, 0.1, -0.4])
    E = np.zeros((4, 4))
    E[rows, cols] = E[cols, rows] = x
    W = np.linalg.inv(theta)
    assert x @ H @ x == pytest.approx(np.trace(W @ E @ W @ E), rel=1e-12)


# -- ties, places to spare, special factors --------------------------------------------------------------


def tied_problem():
    """Two disconnected pairs with equal edges, of which h = 1 is free."""
    pair = np.array([[1.0, 0.5], [0.5, 1.0]])
    return np.kron(np.eye(2), pair)


def test_a_tie_is_no_local_minimum():
    S = tied_problem()
    theta = np.linalg.inv(S)
    certificate = certify_graph(S, theta, penalty=TrimmedL1(1), alpha=0.1)
    assert certificate.local_minimum is False
    assert "ties with others for the h-th place" in certificate.reason
    assert certificate.reason.startswith("edge (0, 1)")
    assert certify_graph(S, theta, penalty=TrimmedL1(2), alpha=0.1)
    W = S.copy()
    W[2, 3] = W[3, 2] = 0.4
    assert certify_graph(S, np.linalg.inv(W), penalty=TrimmedL1(1), alpha=0.1)


def test_with_a_place_to_spare_no_gradient_may_be_left():
    S = tied_problem()
    W = S.copy()
    W[2, 3] = W[3, 2] = 0.0
    theta = np.linalg.inv(W)
    assert certify_graph(S, theta, penalty=TrimmedL1(1), alpha=0.6)
    certificate = certify_graph(S, theta, penalty=TrimmedL1(2), alpha=0.6)
    assert certificate.local_minimum is False
    assert "fewer than h" in certificate.reason
    assert certificate.reason.startswith("edge (2, 3)")


def test_the_weights_break_ties_by_the_gradient():
    S = np.eye(4)
    S[0, 3] = S[3, 0] = 0.5
    S[0, 1] = S[1, 0] = 0.2
    certificate = certify_graph(S, np.eye(4), penalty=TrimmedL1(1), alpha=0.3)
    assert certificate.kkt_free == pytest.approx(0.5)
    assert certificate.kkt_zero == 0.0
    other = certify_graph(
        S, np.eye(4), penalty=TrimmedL1(1), alpha=0.3, weights=spread([0.0, 1, 1, 1, 1, 1], 4)
    )
    assert (other.kkt_free, other.kkt_zero) == (pytest.approx(0.2), pytest.approx(0.2))


def test_excluded_edges_are_exactly_zero_and_unpenalized_ones_are_free():
    S = tied_problem()
    factor = np.ones(6)
    factor[0], factor[5] = 0.0, np.inf
    W = S.copy()
    W[2, 3] = W[3, 2] = 0.0
    penalty = TrimmedL1(0, penalty_factor=factor)
    good = certify_graph(S, np.linalg.inv(W), penalty=penalty, alpha=0.01)
    assert good.local_minimum is True
    assert (good.n_edges, good.n_free) == (1, 1)
    assert good.dual_gap < 1e-13
    theta = np.linalg.inv(W)
    theta[2, 3] = theta[3, 2] = 1e-20
    bad = certify_graph(S, theta, penalty=penalty, alpha=0.01)
    assert bad.local_minimum is False
    assert "excluded" in bad.reason
    assert bad.objective == bad.dual_gap == bad.kkt_residual == bad.stationarity == np.inf
    for folded in (MCP(penalty_factor=factor), SCAD(penalty_factor=factor), L1(factor)):
        assert certify_graph(S, np.linalg.inv(W), penalty=folded, alpha=0.01)
        assert "excluded" in certify_graph(S, theta, penalty=folded, alpha=0.01).reason


# -- scales -----------------------------------------------------------------------------------------------


def same_numbers(one, other, rel=1e-9, but=()):
    for field in dataclasses.fields(one):
        if field.name not in but:
            a, b = getattr(one, field.name), getattr(other, field.name)
            assert a == (pytest.approx(b, rel=rel, abs=1e-12) if isinstance(b, float) else b), field.name


@pytest.mark.parametrize("penalty", [TrimmedL1(2), L1(), MCP(), SCAD()])
def test_standardized_is_the_same_on_the_correlation_scale(penalty):
    S, theta = random_problem(2)
    unit = np.array([1e-3, 2.0, 50.0, 1.0])
    d = np.sqrt(np.diag(S))
    weights = np.ones((4, 4))
    if isinstance(penalty, TrimmedL1):
        weights[0, 1] = weights[1, 0] = weights[2, 3] = weights[3, 2] = 0.0
    expected = certify_graph(
        S / np.outer(d, d), theta * np.outer(d, d), penalty=penalty, alpha=0.2, weights=weights
    )
    moved = certify_graph(
        S * np.outer(unit, unit),
        theta / np.outer(unit, unit),
        penalty=penalty,
        alpha=0.2,
        weights=weights,
        standardize=True,
    )
    same_numbers(moved, expected, but=("symmetric",))
    plain = certify_graph(S, theta, penalty=penalty, alpha=0.2)
    assert plain.objective != pytest.approx(expected.objective, rel=1e-6)


def test_shrinkage_replaces_S():
    S, theta = random_problem(3)
    shrunk = 0.7 * S + 0.3 * np.diag(np.diag(S))
    for standardize in (False, True):
        asked = {"penalty": TrimmedL1(2), "alpha": 0.2, "standardize": standardize}
        same_numbers(certify_graph(S, theta, shrinkage=0.3, **asked), certify_graph(shrunk, theta, **asked))
    diagonal = certify_graph(S, np.diag(1 / np.diag(S)), penalty=L1(), alpha=0.0, shrinkage=1.0)
    assert diagonal.local_minimum is True


@pytest.mark.parametrize("spread_of_units", [1.0, 1e6])
def test_units_do_not_matter_to_the_verdict(spread_of_units):
    # Edges that are just within and just beyond tol, in units of S_ii S_jj.
    unit = np.array([1.0, spread_of_units])
    for by, expected in ((5e-7, True), (2e-6, False)):
        S = pair(0.5 + by) * np.outer(unit, unit)
        theta = np.linalg.inv(pair(0.5)) / np.outer(unit, unit)
        certificate = certify_graph(S, theta, penalty=TrimmedL1(1), alpha=0.3)
        assert certificate.local_minimum is expected
        assert certificate.violation == pytest.approx(by, rel=1e-6)
    assert certify_graph(S, theta, penalty=TrimmedL1(1), alpha=0.3, tol=1e-5).local_minimum is True


def test_very_different_units_are_not_ill_conditioned():
    unit = np.array([1e-8, 1e8])
    theta = np.linalg.inv(pair(0.5)) / np.outer(unit, unit)
    certificate = certify_graph(pair(0.5) * np.outer(unit, unit), theta, penalty=TrimmedL1(1), alpha=1.0)
    assert certificate.positive_definite
    assert certificate.local_minimum is True
    assert certificate.dual_gap < 1e-12
    assert certificate.smallest_eigenvalue / 1e-16 == pytest.approx(1, rel=1e-6)
    assert certificate.condition == pytest.approx((4 / 3) * 1e32, rel=1e-6)
    # 1 / lambda_max(W), where the eigenvalues of Theta itself are lost in rounding.
    W = np.array([[1.0, 0.5, 0.2], [0.5, 1.0, 0.3], [0.2, 0.3, 1.0]])
    unit = np.array([1e-2, 1e10, 1e-7])
    S = W * np.outer(unit, unit)
    three = certify_graph(S, np.linalg.inv(W) / np.outer(unit, unit), penalty=TrimmedL1(3), alpha=1.0)
    assert three.smallest_eigenvalue * np.linalg.eigvalsh(S)[-1] == pytest.approx(1, rel=1e-9)


def test_rounding_that_hides_the_gradient_is_no_verdict():
    S = pair(1 - 1e-13)
    theta = np.linalg.inv(S) * (1 + 1e-16)
    theta = (theta + theta.T) / 2
    theta[0, 0] *= 1 + 4e-16
    certificate = certify_graph(S, theta, penalty=TrimmedL1(1), alpha=1.0, tol=1e-12)
    assert certificate.positive_definite
    assert certificate.local_minimum is None
    assert "ill-conditioned" in certificate.reason
    wrong = certify_graph(pair(0.9), theta, penalty=TrimmedL1(1), alpha=1.0)
    assert wrong.local_minimum is False  # far more than rounding


def test_single_precision_is_measured_by_its_own_rounding():
    W = np.array([[1.0, 0.5, 0.2], [0.5, 1.0, 0.3], [0.2, 0.3, 1.0]])
    theta = np.linalg.inv(W).astype(np.float32)
    assert certify_graph(W, theta, penalty=TrimmedL1(3), alpha=1.0, tol=1e-9).local_minimum is True
    assert certify_graph(W, theta.astype(float), penalty=TrimmedL1(3), alpha=1.0, tol=1e-9).violation > 1e-9


def test_edges_within_rounding_of_zero_count_as_zero():
    theta = np.eye(3)
    theta[0, 1] = theta[1, 0] = 1e-17
    S = np.eye(3)
    S[0, 1] = S[1, 0] = 0.05
    certificate = certify_graph(S, theta, penalty=L1(), alpha=0.1)
    assert certificate.n_edges == 0
    assert certificate.local_minimum is True


# -- points outside, arguments, words ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "theta",
    [np.array([[1.0, 2.0], [2.0, 1.0]]), np.diag([1.0, -1.0]), np.diag([1.0, 0.0]), np.ones((2, 2))],
)
def test_a_precision_that_is_not_positive_definite(theta):
    certificate = certify_graph(pair(0.5), theta, penalty=TrimmedL1(1), alpha=0.1)
    assert not certificate.positive_definite
    assert certificate.smallest_eigenvalue == pytest.approx(np.linalg.eigvalsh(theta)[0], abs=1e-15)
    assert certificate.local_minimum is False
    assert "positive definite" in certificate.reason
    assert certificate.objective == certificate.dual_gap == certificate.kkt_residual == np.inf
    assert certificate.n_edges == int(theta[0, 1] != 0)


def test_weights_may_be_between_zero_and_one():
    S, theta = random_problem(6)
    weights = np.full((4, 4), 4 / 6)
    certificate = certify_graph(S, theta, penalty=TrimmedL1(2), alpha=0.2, weights=weights)
    edges, g = theta[np.triu_indices(4, 1)], (S - np.linalg.inv(theta))[np.triu_indices(4, 1)]
    residual = g + 0.2 * 4 / 6 * np.sign(edges)
    diagonal = np.diag(S - np.linalg.inv(theta))
    r = 0.2 * np.abs(edges)
    expected = residual @ residual + diagonal @ diagonal + np.sum((r - r.mean()) ** 2)
    assert certificate.stationarity == pytest.approx(expected, rel=1e-10)
    paid = 2 * 0.2 * 4 / 6 * np.abs(edges).sum()
    assert certificate.weighted_objective == pytest.approx(
        np.sum(S * theta) - np.linalg.slogdet(theta)[1] + paid
    )
    assert certificate.weighted_objective > certificate.objective


def test_the_certificate_reads_well():
    certificate = certify_graph(pair(0.5), np.linalg.inv(pair(0.5)), penalty=TrimmedL1(1), alpha=0.1)
    text = str(certificate)
    assert text.startswith("local minimum: yes (")
    assert "edges: 1, of which 1 carry no penalty" in text
    assert "condition 3" in text
    assert "objective: 1.712317928" in text
    assert len(text.splitlines()) == 5
    assert "local minimum: no (" in str(certify_graph(pair(0.5), np.eye(2), penalty=L1(), alpha=0.1))
    assert "not positive definite" in str(certify_graph(pair(0.5), -np.eye(2), penalty=L1(), alpha=0.1))


def test_small_differences_between_the_triangles_are_averaged():
    S, theta = random_problem(7)
    theta = (theta + theta.T) / 2
    assert certify_graph(S, theta, penalty=L1(), alpha=0.1).symmetric is True
    theta[0, 1] += 1e-10
    assert certify_graph(S, theta, penalty=L1(), alpha=0.1).symmetric is False


ODD = np.array([[1.0, 0.2], [0.1, 1.0]])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"S": np.eye(3)[:2]}, "S must be a square matrix"),
        ({"S": [[1.0, 0.5], [0.5]]}, "S must be a square matrix"),
        ({"S": np.ones(4)}, "S must be a square matrix"),
        ({"S": [["a", "b"], ["c", "d"]]}, "S must be a matrix"),
        ({"S": ODD}, "S must be symmetric"),
        ({"S": np.array([[1.0, np.nan], [np.nan, 1.0]])}, "S must hold finite"),
        ({"S": np.diag([1.0, 0.0])}, "S must have a positive diagonal; got 0 for variable 1"),
        ({"S": np.diag([-1.0, 1.0])}, "S must have a positive diagonal"),
        ({"S": [[1.0]], "precision": [[1.0]]}, "S must have at least 2 rows"),
        ({"precision": np.eye(3)}, "precision must be a matrix of shape"),
        ({"precision": ODD}, "precision must be symmetric"),
        ({"precision": np.diag([1.0, np.inf])}, "precision must hold finite"),
        ({"alpha": -0.1}, "alpha must be"),
        ({"alpha": np.inf}, "alpha must be"),
        ({"tol": -1.0}, "tol must be"),
        ({"shrinkage": 1.5}, "shrinkage must lie"),
        ({"shrinkage": -0.5}, "shrinkage must be"),
        ({"standardize": 1}, "standardize must be"),
        ({"weights": np.ones(2)}, "weights must be a matrix"),
        ({"weights": np.ones((2, 2))}, "weights must sum"),
        ({"weights": ODD}, "weights must be symmetric"),
        ({"weights": 2 * np.ones((2, 2)), "penalty": L1()}, r"weights must hold 1 numbers in \[0, 1\]"),
        ({"weights": -np.ones((2, 2)), "penalty": L1()}, r"weights must hold 1 numbers in \[0, 1\]"),
        ({"penalty": "nothing"}, "penalty must be"),
        ({"penalty": TrimmedL1(2)}, "h must be"),
        ({"penalty": SLOPE()}, "single edges"),
        ({"penalty": L1(groups=[0])}, "single edges"),
        ({"penalty": L1([1.0, 1.0])}, "penalty_factor must"),
    ],
)
def test_bad_input_is_named(change, message):
    given = {"S": pair(0.5), "precision": np.eye(2), "penalty": TrimmedL1(1), "alpha": 0.1, **change}
    with pytest.raises(ValueError, match=message):
        certify_graph(given.pop("S"), given.pop("precision"), **given)


def test_the_arguments_are_left_as_they_are():
    S, theta = pair(0.5), np.array([[1.0, 1e-17], [1e-17, 1.0]])
    before = S.copy(), theta.copy()
    certify_graph(S, theta, penalty=L1(), alpha=0.1, standardize=True, shrinkage=0.5)
    np.testing.assert_array_equal(S, before[0])
    np.testing.assert_array_equal(theta, before[1])

"""The certificate of a graphical model: what a fit claims, computed again from S and Theta alone."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...diagnostics._point import matrix, number
from ...penalties import TrimmedL1, subgradient_residual
from .minimum import Verdict, local_minimum
from .point import GraphPoint, read_graph

_EPS = float(np.finfo(float).eps)
_NOT_DEFINITE = "the precision is not positive definite"


@dataclass(frozen=True)
class GraphCertificate:
    """The answer of :func:`certify_graph`; true in a boolean context if a local minimum is proved.

    With ``standardize`` all of it is on the correlation scale.

    Attributes
    ----------
    positive_definite : bool
        By more than the rounding of its eigenvalues, variables scaled to one size.
    symmetric : bool
        Whether the precision was symmetric to the last digit; otherwise its triangles were averaged.
    smallest_eigenvalue, condition : float
        Of the precision.
    objective : float
        F; inf if the precision is not positive definite, or if an excluded edge is not 0.
    weighted_objective, dual_objective : float
        Of the weighted problem and its dual at the point of ``dual_gap``.
    dual_gap, relative_gap : float
        A bound on how far the weighted objective is above its minimum, and that over
        ``max(1, |weighted_objective|)``; inf if no dual feasible point was found.
    kkt_residual, relative_residual : float
        The largest violation of the conditions of the weighted problem, in the units of S, and that over
        the largest ``|S_ij|``.
    kkt_diagonal, kkt_free, kkt_nonzero, kkt_zero : float
        The same on the diagonal, the edges of threshold 0, and the penalized edges that are and are not 0.
    stationarity : float
        The paper's T: squared distances, with the part of the weights and that of the diagonal.
    local_minimum : bool or None
        Whether Theta is a local minimum of F; None if that is not decided.
    reason : str
        Why, in words.
    violation : float
        The largest violation of the conditions of a local minimum, relative to the root of ``S_ii S_jj``.
    n_edges, n_free : int
        Edges that are not 0, and those of them that carry no penalty.
    """

    positive_definite: bool
    symmetric: bool
    smallest_eigenvalue: float
    condition: float
    objective: float
    weighted_objective: float
    dual_objective: float
    dual_gap: float
    relative_gap: float
    kkt_residual: float
    relative_residual: float
    kkt_diagonal: float
    kkt_free: float
    kkt_nonzero: float
    kkt_zero: float
    stationarity: float
    local_minimum: bool | None
    reason: str
    violation: float
    n_edges: int
    n_free: int

    def __bool__(self) -> bool:
        return self.local_minimum is True

    def __str__(self) -> str:
        answer = {True: "yes", False: "no", None: "not decided"}[self.local_minimum]
        definite = "positive definite" if self.positive_definite else "not positive definite"
        return "\n".join(
            [
                f"local minimum: {answer} ({self.reason})",
                f"edges: {self.n_edges}, of which {self.n_free} carry no penalty",
                f"precision: {definite}, smallest eigenvalue {self.smallest_eigenvalue:.3g}, "
                f"condition {self.condition:.3g}",
                f"objective: {self.objective:.10g}, duality gap {self.dual_gap:.2e} "
                f"(relative {self.relative_gap:.2e})",
                f"conditions: off by {self.kkt_residual:.2e} at most (diagonal {self.kkt_diagonal:.1e}, "
                f"free {self.kkt_free:.1e}, nonzero {self.kkt_nonzero:.1e}, zero {self.kkt_zero:.1e})",
            ]
        )


def certify_graph(
    S, precision, *, penalty, alpha, weights=None, standardize=False, shrinkage=0.0, tol=1e-6
) -> GraphCertificate:
    r"""What ``precision`` is worth as a solution of the penalized graphical model

    .. math:: F(\Theta) = \mathrm{tr}(S\Theta) - \log\det\Theta + 2 P_\alpha(\theta), \qquad
              \theta = (\Theta_{ij})_{i<j},

    and of the convex problem that its weights w define, with thresholds
    :math:`\lambda_{ij} = \alpha f_{ij} w_{ij}`,

    .. math:: \min_\Theta\ \mathrm{tr}(S\Theta) - \log\det\Theta + \sum_{i \ne j} \lambda_{ij}|\Theta_{ij}|,
              \qquad \max_W\ \log\det W + p \ \text{ over }\ W_{ii} = S_{ii},\ |W_{ij} - S_{ij}| \le
              \lambda_{ij}.

    The conditions of the first are, with :math:`W = \Theta^{-1}`, that :math:`W_{ii} = S_{ii}`, and
    :math:`S_{ij} - W_{ij} = -\lambda_{ij}\,\mathrm{sign}\,\Theta_{ij}` or, at a zero, at most
    :math:`\lambda_{ij}` in size. The duality gap is taken at W clipped to the feasible set. If that is not
    positive definite, the best point between it and a feasible one that is: S with its edges shrunk by a
    common factor (S itself, if an edge is free) or with every edge shrunk as far as its threshold allows.

    Parameters
    ----------
    S : array-like of shape (p, p)
        Covariance, with a positive diagonal.
    precision : array-like of shape (p, p)
        Theta. An edge within rounding of 0 counts as 0, unless it is excluded.
    penalty : Penalty or str
        TrimmedL1, L1, MCP or SCAD on single edges; its factors and h count the pairs i < j in the order
        of ``np.triu_indices(p, 1)``.
    alpha : float
        Strength of the penalty.
    weights : array-like of shape (p, p), optional
        w; the diagonal is not read. By default those that the penalty gives at Theta, ties among equal
        edges broken by the size of the gradient.
    standardize : bool
        Whether the penalty acts on the precision of standardized variables.
    shrinkage : float in [0, 1]
        S is first replaced by ``(1 - shrinkage) S + shrinkage diag(S)``.
    tol : float
        Allowed violation of a condition of a local minimum, relative to the root of ``S_ii S_jj``, so
        that units do not matter; and the relative difference at which two edges count as tied. Raised
        to 200 eps of the dtype of ``precision``.

    Returns
    -------
    GraphCertificate

    Notes
    -----
    The gap is the sum of two parts, neither of them a difference of large numbers, and both of terms that
    cannot be negative: with :math:`\mu` the eigenvalues of :math:`\Theta W` for a feasible W,

    .. math:: \sum_k (\mu_k - 1 - \log \mu_k) + \sum_{i \ne j} \bigl[\lambda_{ij} |\Theta_{ij}|
              + (S - W)_{ij} \Theta_{ij}\bigr].

    References
    ----------
    Banerjee, El Ghaoui and d'Aspremont, Model selection through sparse maximum likelihood estimation, JMLR 9
    (2008), for the dual. Yun, Zheng, Yang, Lozano and Aravkin, M-estimation with the trimmed l1 penalty, for
    the trimmed problem and T.

    Examples
    --------
    >>> import numpy as np
    >>> from trimreg.diagnostics import certify_graph
    >>> from trimreg.penalties import L1
    >>> S = np.array([[1.0, 0.5], [0.5, 1.0]])
    >>> W = np.array([[1.0, 0.4], [0.4, 1.0]])  # S with its edge shrunk by alpha
    >>> certificate = certify_graph(S, np.linalg.inv(W), penalty=L1(), alpha=0.1)
    >>> certificate.local_minimum, certificate.n_edges, bool(certificate.dual_gap < 1e-12)
    (True, 1, True)
    >>> bool(certify_graph(S, np.eye(2), penalty=L1(), alpha=0.1))
    False
    """
    tol = number("tol", tol, minimum=0.0)
    point = read_graph(
        S, precision, penalty=penalty, alpha=alpha, standardize=standardize, shrinkage=shrinkage
    )
    if weights is not None:
        weights = _read_weights(weights, point)
    theta = point.edges(point.theta)
    if not point.positive_definite:
        return _outside(point, np.count_nonzero(theta))
    if weights is None:
        weights = point.penalty.weights(theta, point.alpha, point.gradient)
    threshold = point.penalty.thresholds(weights, point.alpha)
    parts = _residuals(point, theta, threshold)
    residual = max(parts.values())
    weighted, dual, gap = _duality(point, theta, threshold)
    allowed = not np.any(theta[np.isinf(point.factor)])
    diagonal = np.diag(point.S - point.inverse)
    stationarity = np.inf
    if allowed:
        stationarity = point.penalty.stationarity(theta, weights, point.gradient, point.alpha)
    # The largest eigenvalues of Theta and of W are known to relative rounding, the smallest are not.
    top, top_inverse = (float(np.linalg.eigvalsh(A)[-1]) for A in (point.theta, point.inverse))
    verdict = local_minimum(point, max(tol, 200 * point.eps))
    return GraphCertificate(
        positive_definite=True,
        symmetric=point.symmetric,
        smallest_eigenvalue=1.0 / top_inverse,
        condition=top * top_inverse,
        objective=point.loss + 2 * point.penalty.value(theta, point.alpha),
        weighted_objective=weighted,
        dual_objective=dual,
        dual_gap=gap,
        relative_gap=gap / max(1.0, abs(weighted)) if np.isfinite(gap) else np.inf,
        kkt_residual=residual,
        relative_residual=residual / float(np.max(np.abs(point.S))),
        **parts,
        stationarity=float(stationarity + diagonal @ diagonal),
        local_minimum=verdict.holds,
        reason=verdict.reason,
        violation=verdict.violation,
        n_edges=int(np.count_nonzero(theta)),
        n_free=int(np.count_nonzero((theta != 0) & (threshold == 0))),
    )


def _outside(point, n_edges):
    """The certificate of a precision that is not positive definite, where F is inf."""
    values = np.linalg.eigvalsh(point.theta)
    nothing = dict.fromkeys(("kkt_diagonal", "kkt_free", "kkt_nonzero", "kkt_zero"), np.inf)
    verdict = Verdict(False, _NOT_DEFINITE, np.inf)
    return GraphCertificate(
        positive_definite=False,
        symmetric=point.symmetric,
        smallest_eigenvalue=float(values[0]),
        condition=np.inf,
        objective=np.inf,
        weighted_objective=np.inf,
        dual_objective=-np.inf,
        dual_gap=np.inf,
        relative_gap=np.inf,
        kkt_residual=np.inf,
        relative_residual=np.inf,
        **nothing,
        stationarity=np.inf,
        local_minimum=verdict.holds,
        reason=verdict.reason,
        violation=verdict.violation,
        n_edges=int(n_edges),
        n_free=0,
    )


def _read_weights(weights, point: GraphPoint):
    """The weights of the edges, from a symmetric matrix of them."""
    A = matrix("weights", weights, (point.p, point.p))
    edges = point.edges(A)
    if np.any(np.abs(edges - point.edges(A.T)) > 1e-8):
        raise ValueError("weights must be symmetric")
    if isinstance(point.penalty, TrimmedL1):
        return point.penalty.checked_weights(edges)
    if np.any(edges < 0) or np.any(edges > 1):
        raise ValueError("weights must lie between 0 and 1")
    return edges


def _residuals(point, theta, threshold):
    """The largest violation of the weighted problem's conditions, by the kind of entry."""
    size = np.abs(subgradient_residual(theta, point.gradient, threshold))
    nonzero, free = theta != 0, threshold == 0

    def largest(which):
        return float(np.max(size[which], initial=0.0))

    return {
        "kkt_diagonal": float(np.max(np.abs(np.diag(point.S - point.inverse)))),
        "kkt_free": largest(free),
        "kkt_nonzero": largest(nonzero & ~free),
        "kkt_zero": largest(~nonzero & ~free),
    }


# -- duality --------------------------------------------------------------------------------------------


def _duality(point, theta, threshold):
    """The weighted objective, the dual objective, and the gap between them."""
    if np.any(theta[np.isinf(threshold)]):
        return np.inf, -np.inf, np.inf
    paid = np.zeros_like(theta)
    np.multiply(threshold, np.abs(theta), out=paid, where=theta != 0)
    weighted = point.loss + 2 * float(paid.sum())
    moved = np.clip(point.gradient, -threshold, threshold)  # S - W at the dual point
    gap = _gap(point, theta, paid, moved)
    if not np.isfinite(gap):
        gap, moved = min(
            ((_gap(point, theta, paid, other), other) for other in _feasible(point, threshold, moved)),
            key=lambda found: found[0],
            default=(np.inf, moved),
        )
    if not np.isfinite(gap):
        return weighted, -np.inf, np.inf
    correlation = _correlation(point, moved)
    log_det = float(np.linalg.slogdet(correlation)[1] + 2 * np.sum(np.log(point.deviation)))
    return weighted, log_det + point.p, gap


def _gap(point, theta, paid, moved):
    """The gap at the dual point ``S - moved``; inf if that is not positive definite."""
    W = point.S - point.spread(moved)
    # The sign is decided with a unit diagonal; below, rounding may turn a small mu.
    if not _is_definite(np.linalg.eigvalsh(_correlation(point, moved))):
        return np.inf
    mu = np.linalg.eigvalsh(point.root.T @ W @ point.root)
    if mu[0] <= 0:
        return np.inf
    slack = np.maximum(paid + moved * theta, 0.0)
    return float(np.sum(_excess(mu - 1)) + 2 * slack.sum())


def _excess(d):
    """``d - log(1 + d)``, without cancellation for small d."""
    with np.errstate(over="ignore"):
        series = d * d * (0.5 - d * (1 / 3 - d * (0.25 - d / 5)))
    return np.where(np.abs(d) < 1e-3, series, np.maximum(d - np.log1p(d), 0.0))


def _correlation(point, moved):
    """``S - moved`` in units in which S has a unit diagonal."""
    A = (point.S - point.spread(moved)) / point.deviation[:, None] / point.deviation
    np.fill_diagonal(A, 1.0)
    return A


def _is_definite(values):
    return bool(values[0] > values.size * _EPS * values[-1])


def _feasible(point, threshold, clipped):
    """Dual points (as S - W at the edges): the best on the way from the clipped one to each known one."""
    s = point.edges(point.S)
    ratio = np.divide(threshold, np.abs(s), out=np.full_like(s, np.inf), where=s != 0)
    common = min(1.0, float(ratio.min()))
    shrunk = np.sign(s) * np.minimum(np.abs(s), threshold)
    for goal in (common * s, shrunk):
        B = _correlation(point, goal)
        values, vectors = np.linalg.eigh(B)
        if _is_definite(values):
            root = (vectors / np.sqrt(values)) @ vectors.T
            t = _best_step(np.linalg.eigvalsh(root @ _correlation(point, clipped) @ root))
            yield (1 - t) * clipped + t * goal


def _best_step(nu):
    r"""The t in [0, 1] with the largest :math:`\sum_k \log((1 - t) \nu_k + t)`: it is concave in t."""

    def slope(t):
        return np.sum((1 - nu) / ((1 - t) * nu + t))

    low, high = max(0.0, -nu[0] / (1 - nu[0])) if nu[0] < 1 else 0.0, 1.0
    if slope(1.0) >= 0:
        return 1.0
    for _ in range(60):
        middle = (low + high) / 2
        if np.min((1 - middle) * nu + middle) <= 0 or slope(middle) > 0:
            low = middle
        else:
            high = middle
    return high

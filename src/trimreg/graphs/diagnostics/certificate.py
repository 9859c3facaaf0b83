"""The certificate of a graphical model: the claims of a fit, recomputed from S and Theta alone."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ...diagnostics.arguments import matrix, number
from ...penalties import Penalty, subgradient_residual
from .minimum import local_minimum
from .point import GraphPoint, read_graph

_EPS = float(np.finfo(float).eps)


@dataclass(frozen=True)
class GraphCertificate:
    """The result of :func:`certify_graph`; true in a boolean context if Theta is a local minimum.

    With ``standardize`` all values are on the correlation scale.

    Attributes
    ----------
    positive_definite : bool
        By more than the rounding error of its eigenvalues, with variables on a common scale.
    symmetric : bool
        Whether the precision was symmetric to the last digit; otherwise its triangles were averaged.
    smallest_eigenvalue, condition : float
        Of the precision.
    objective : float
        F; inf if the precision is not positive definite, or if an excluded edge is not 0.
    weighted_objective, dual_objective : float
        Of the weighted problem, and of its dual at the point that gives ``dual_gap``.
    dual_gap, relative_gap : float
        An upper bound on the weighted objective minus its minimum, and that bound divided by
        ``max(1, |weighted_objective|)``; inf if no dual feasible point was found.
    kkt_residual, relative_residual : float
        The largest violation of the conditions of the weighted problem, in the units of S, and divided by
        the largest ``|S_ij|``.
    kkt_diagonal, kkt_free, kkt_nonzero, kkt_zero : float
        The same for the diagonal, for edges with threshold 0, and for nonzero and zero penalized edges.
    stationarity : float
        The paper's T: squared distances, including the parts of the weights and of the diagonal.
    local_minimum : bool or None
        Whether Theta is a local minimum of F; None if that is undecided.
    reason : str
        Why, in words.
    violation : float
        The largest violation of the conditions of a local minimum, relative to ``sqrt(S_ii S_jj)``.
    n_edges, n_free : int
        Nonzero edges, and those among them that carry no penalty.
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
        answer = {True: "yes", False: "no", None: "undecided"}[self.local_minimum]
        definite = "positive definite" if self.positive_definite else "not positive definite"
        return "\n".join(
            [
                f"local minimum: {answer} ({self.reason})",
                f"edges: {self.n_edges}, of which {self.n_free} carry no penalty",
                f"precision: {definite}, smallest eigenvalue {self.smallest_eigenvalue:.3g}, "
                f"condition {self.condition:.3g}",
                f"objective: {self.objective:.10g}, duality gap {self.dual_gap:.2e} "
                f"(relative {self.relative_gap:.2e})",
                f"conditions: violated by at most {self.kkt_residual:.2e} (diagonal {self.kkt_diagonal:.1e}, "
                f"free {self.kkt_free:.1e}, nonzero {self.kkt_nonzero:.1e}, zero {self.kkt_zero:.1e})",
            ]
        )


def certify_graph(
    S: ArrayLike, precision: ArrayLike, *, penalty: str | Penalty, alpha: float,
    weights: ArrayLike | None = None, standardize: bool = False, shrinkage: float = 0.0, tol: float = 1e-6,
) -> GraphCertificate:  # fmt: skip
    r"""Check whether ``precision`` solves the penalized graphical model

    .. math:: F(\Theta) = \mathrm{tr}(S\Theta) - \log\det\Theta + 2 P_\alpha(\theta), \qquad
              \theta = (\Theta_{ij})_{i<j},

    and the convex problem defined by its weights w, with thresholds
    :math:`\lambda_{ij} = \alpha f_{ij} w_{ij}`,

    .. math:: \min_\Theta\ \mathrm{tr}(S\Theta) - \log\det\Theta + \sum_{i \ne j} \lambda_{ij}|\Theta_{ij}|,
              \qquad \max_W\ \log\det W + p \ \text{ over }\ W_{ii} = S_{ii},\ |W_{ij} - S_{ij}| \le
              \lambda_{ij}.

    The conditions of the primal problem are, with :math:`W = \Theta^{-1}`, that :math:`W_{ii} = S_{ii}`, and
    that :math:`S_{ij} - W_{ij} = -\lambda_{ij}\,\mathrm{sign}\,\Theta_{ij}` at a nonzero edge, or
    :math:`|S_{ij} - W_{ij}| \le \lambda_{ij}` at a zero. The duality gap is computed at W clipped to the
    feasible set. If the clipped matrix is not positive definite, the best point between it and a positive
    definite feasible matrix is used: S with its edges shrunk by a common factor (S itself, if an edge is
    free), or with every edge shrunk as far as its threshold allows.

    Parameters
    ----------
    S : array-like of shape (p, p)
        Covariance, with a positive diagonal.
    precision : array-like of shape (p, p)
        Theta. An edge within rounding error of 0 counts as 0, unless it is excluded.
    penalty : Penalty or str
        TrimmedL1, L1, MCP or SCAD on single edges; its factors and h count the pairs i < j in the order
        of ``np.triu_indices(p, 1)``.
    alpha : float
        Strength of the penalty.
    weights : array-like of shape (p, p), optional
        w; the diagonal is ignored. By default the weights of the penalty at Theta, with ties broken by the
        size of the gradient.
    standardize : bool
        Whether the penalty acts on the precision of standardized variables.
    shrinkage : float in [0, 1]
        S is first replaced by ``(1 - shrinkage) S + shrinkage diag(S)``.
    tol : float
        Allowed violation of a condition of a local minimum, relative to ``sqrt(S_ii S_jj)`` so that units
        do not matter; also the relative difference up to which two edges count as tied. At least 200 eps of
        the dtype of ``precision``.

    Returns
    -------
    GraphCertificate

    Notes
    -----
    The gap is a sum of nonnegative terms, and not a difference of large numbers: with :math:`\mu` the
    eigenvalues of :math:`\Theta W` for a feasible W, it is

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
    # The largest eigenvalues of Theta and of W are accurate to relative rounding; the smallest are not.
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
    """The certificate of a precision that is not positive definite: F is inf."""
    values: dict[str, Any] = dict.fromkeys((each.name for each in fields(GraphCertificate)), np.inf)
    values |= {
        "positive_definite": False,
        "symmetric": point.symmetric,
        "smallest_eigenvalue": float(np.linalg.eigvalsh(point.theta)[0]),
        "dual_objective": -np.inf,
        "local_minimum": False,
        "reason": "the precision is not positive definite",
        "n_edges": int(n_edges),
        "n_free": 0,
    }
    return GraphCertificate(**values)


def _read_weights(weights, point: GraphPoint):
    """The weights of the edges, from a symmetric matrix."""
    A = matrix("weights", weights, (point.p, point.p))
    edges = point.edges(A)
    if np.any(np.abs(edges - point.edges(A.T)) > 1e-8):
        raise ValueError("weights must be symmetric")
    return point.penalty.checked_weights(edges)


def _residuals(point, theta, threshold):
    """The largest violation of the weighted problem's conditions, by kind of entry."""
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
    correlation = point.correlation(moved)
    log_det = float(np.linalg.slogdet(correlation)[1] + 2 * np.sum(np.log(point.deviation)))
    return weighted, log_det + point.p, gap


def _gap(point, theta, paid, moved):
    """The gap at the dual point ``S - moved``; inf if that is not positive definite."""
    W = point.S - point.spread(moved)
    # Decided with a unit diagonal, because rounding may change the sign of a small mu.
    if not _is_definite(np.linalg.eigvalsh(point.correlation(moved))):
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


def _is_definite(values):
    return bool(values[0] > values.size * _EPS * values[-1])


def _feasible(point, threshold, clipped):
    """Dual points (as S - W at the edges): the best between the clipped point and each feasible one."""
    s = point.edges(point.S)
    ratio = np.divide(threshold, np.abs(s), out=np.full_like(s, np.inf), where=s != 0)
    common = min(1.0, float(ratio.min()))
    shrunk = np.sign(s) * np.minimum(np.abs(s), threshold)
    for goal in (common * s, shrunk):
        B = point.correlation(goal)
        values, vectors = np.linalg.eigh(B)
        if _is_definite(values):
            root = (vectors / np.sqrt(values)) @ vectors.T
            t = _best_step(np.linalg.eigvalsh(root @ point.correlation(clipped) @ root))
            yield (1 - t) * clipped + t * goal


def _best_step(nu):
    r"""The t in [0, 1] that maximizes the concave function :math:`\sum_k \log((1 - t) \nu_k + t)`."""

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

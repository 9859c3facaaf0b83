"""The functional entry point of graphical models: a covariance matrix in, a precision matrix out."""

from __future__ import annotations

from .result import GraphicalResult
from .task import prepare_graph


def solve_graphical(
    S,
    *,
    penalty,
    alpha,
    solver="mm",
    standardize=False,
    shrinkage=0.0,
    precision0=None,
    tol=1e-8,
    max_iter=None,
    random_state=None,
    callback=None,
    **solver_options,
) -> GraphicalResult:
    r"""Minimize the Gaussian likelihood of a precision matrix with a penalty of its edges.

    .. math:: \min_{\Theta \succ 0}\; \mathrm{tr}(S\Theta) - \log\det\Theta
              + 2 \sum_{i < j} P_\alpha(\Theta_{ij})

    The penalty counts both triangles, as the paper and scikit-learn do; the diagonal is not penalized.

    Parameters
    ----------
    S : array-like of shape (p, p)
        Covariance or correlation matrix. float32 comes back as float32; the work is done in float64, for a
        duality gap of 1e-8 is below the rounding of float32.
    penalty : str or penalty object
        ``TrimmedL1(h)``, ``L1()``, ``MCP(gamma)`` or ``SCAD(gamma)``, over the p(p-1)/2 edges: h counts
        unordered pairs. ``penalty_factor`` may be a symmetric (p, p) matrix: 0 is never penalized and not
        counted in h, inf excludes an edge.
    alpha : float or "exact"
        ``"exact"`` (trimmed penalty) is just over the exact-penalty threshold: then at most h edges are
        nonzero.
    solver : {"mm", "bcd", "dc", "prox"}
        The default solver; the paper's Algorithm 1; the DC baseline; proximal gradient.
    standardize : bool
        Whether the penalty acts on the precision matrix of standardized variables.
    shrinkage : float in [0, 1)
        S is replaced by ``(1 - shrinkage) S + shrinkage diag(S)``.
    precision0 : array-like of shape (p, p), optional
        A positive definite matrix to start from.
    tol : float
        ``"mm"`` stops at this duality gap, relative to ``max(1, |F|)``, of the weighted problem whose weights
        are those of its own solution; the others when ``sqrt(T)`` is below ``tol`` times the largest
        correlation.
    max_iter : int, optional
        Steps; by default 5,000 for ``"mm"`` and 20,000 for the others.
    random_state : int, Generator or RandomState, optional
        Seed of the kicks of ``effort="high"``; None is the seed 0.
    callback : callable, optional
        Called with every :class:`~trimreg.solvers.Step`; return True to stop.
    **solver_options
        ``effort`` ("low", "medium", "high") and ``start`` ("auto", "mle", "shrunk", "diagonal", "glasso",
        "homotopy", or several) for ``"mm"``; those of :func:`trimreg.solve` for the others.

    Returns
    -------
    GraphicalResult

    Examples
    --------
    >>> import numpy as np
    >>> from trimreg import TrimmedL1, solve_graphical
    >>> S = np.array([[1.0, 0.5, 0.25], [0.5, 1.0, 0.5], [0.25, 0.5, 1.0]])  # a chain: 0 - 1 - 2
    >>> result = solve_graphical(S, penalty=TrimmedL1(h=2), alpha="exact")
    >>> result.precision.round(3)
    array([[ 1.333, -0.667,  0.   ],
           [-0.667,  1.667, -0.667],
           [ 0.   , -0.667,  1.333]])
    >>> result.dual_gap < 1e-8
    True
    """
    task = prepare_graph(
        S, penalty=penalty, alpha=alpha, solver=solver, standardize=standardize, shrinkage=shrinkage,
        precision0=precision0, tol=tol, max_iter=max_iter, random_state=random_state, options=solver_options,
    )  # fmt: skip
    return task.solve(callback)

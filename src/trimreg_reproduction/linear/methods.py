r"""Methods of the simulations: paths over the paper's grid of lambda, cross-validation, support recovery.

**Scaling.** The paper writes :math:`\tfrac1n\|y - X\theta\|^2 + \lambda R`; in this library's
:math:`\tfrac1{2n}\|y - X\theta\|^2 + \alpha R` that is :math:`\alpha = \lambda/2`. The authors' code, which
drew the figures, has :math:`\tfrac12\|y - X\theta\|^2 + n\lambda R`, that is :math:`\alpha = \lambda`. We
use the scaling of the code, because the second parameters of MCP and SCAD (2.5 and 3.0) also depend on it.

**Help.** A nonconvex penalty has many local minima, and the start decides which one is found. Every method
gets the same help: at each lambda a homotopy from the lasso (with gradually changing weights for the trimmed
penalty, and a decreasing second parameter for MCP and SCAD), the lasso itself, and the solutions at the
neighboring lambdas as rival starts, in a sweep down and a sweep up. The lowest objective is kept. The trimmed
penalty also has swaps of single free coefficients, which have no counterpart for the others.
A method "(as the authors)" is solved as they do: proximal gradient from zero, Algorithm 1 for trimming.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from trimreg.datasets import SparseRegression
from trimreg.solvers.mm.kernels import best_swaps

from . import gramkernels as kernels

#: log10 lambda = -3, -2.8, ..., 1
LAMBDAS = tuple(float(value) for value in np.round(10.0 ** np.linspace(-3.0, 1.0, 21), 12))
KINDS = {"lasso": kernels.L1, "MCP": kernels.MCP, "SCAD": kernels.SCAD, "trimmed": kernels.TRIMMED}
GAMMAS = {"MCP": 2.5, "SCAD": 3.0}  # the paper's
METHODS = ("trimmed", "SCAD", "MCP", "lasso")
AUTHORS = " (as the authors)"
_HOMOTOPY = (12.0, 5.0, 2.2, 1.0)  # times gamma, for MCP and SCAD
_TOL = 1e-5  # relative to the largest gradient at 0
_FOLD_TOL = 1e-4  # enough for the score of a fold
_SWAPS = 12
_SPARSE = 8  # lambdas of the grid from 0.04 on
FIRST_ORDER_STEPS, FIRST_ORDER_TOL = 5000, 1e-5


@dataclass(frozen=True)
class GramProblem:
    r"""Least squares by its moments: :math:`G = X'X/n`, :math:`c = X'y/n`, :math:`s = y'y/n`.

    Examples
    --------
    >>> import numpy as np
    >>> from trimreg_reproduction.linear.methods import GramProblem
    >>> problem = GramProblem.of(np.array([[1.0, 0.0], [0.0, 2.0]]), np.array([2.0, 2.0]))
    >>> problem.c, problem.s
    (array([1., 2.]), 4.0)
    """

    gram: np.ndarray
    c: np.ndarray
    s: float
    n: int

    @classmethod
    def of(cls, X, y) -> GramProblem:
        n = y.size
        return cls(np.ascontiguousarray(X.T @ X) / n, X.T @ y / n, float(y @ y) / n, n)

    def without(self, X, y) -> GramProblem:
        """The moments of the other samples, without these."""
        left = self.n - y.size
        share = self.n / left
        gram = self.gram * share - np.ascontiguousarray(X.T @ X) / left
        return GramProblem(gram, self.c * share - X.T @ y / left, self.s * share - float(y @ y) / left, left)

    @property
    def scale(self) -> float:
        return float(np.abs(self.c).max(initial=0.0)) or 1.0

    @property
    def step(self) -> float:
        """The step size 1/L of first-order methods."""
        return float(1.0 / np.linalg.eigvalsh(self.gram)[-1])

    def fit(self, theta, alpha, kind, parameter, tol=_TOL):
        """MM from theta: ``(theta, objective, gradient)``."""
        theta = theta.copy()
        objective, gradient = kernels.majorize_minimize(
            self.gram, self.c, theta, alpha, kind, float(parameter), tol * self.scale
        )
        return theta, objective + self.s / 2, gradient


def solve_path(
    problem: GramProblem, method: str, alphas: Sequence[float], h: int = 0, *, tol: float = _TOL,
    swaps: bool = True, lasso: np.ndarray | None = None,
) -> np.ndarray:  # fmt: skip
    """Coefficients at every alpha, one row each, with the help described in the module's docstring.

    Parameters
    ----------
    problem : GramProblem
    method : {"trimmed", "SCAD", "MCP", "lasso"}
    alphas : sequence of float
        Increasing.
    h : int
        Of the trimmed penalty.
    tol : float
    swaps : bool
        Whether to try swaps for the trimmed penalty.
    lasso : ndarray of shape (len(alphas), p), optional
        The path of the lasso, if it is known.

    Examples
    --------
    >>> import numpy as np
    >>> from trimreg_reproduction.linear.methods import GramProblem, solve_path
    >>> problem = GramProblem.of(2.0 * np.eye(4), np.array([6.0, 4.0, 1.0, 0.0]))  # G = I
    >>> solve_path(problem, "trimmed", [0.4, 2.0], h=1).round(3)
    array([[3. , 1.6, 0.1, 0. ],
           [3. , 0. , 0. , 0. ]])
    """
    if lasso is None:
        lasso = _lasso_path(problem, alphas, tol)
    kind, parameter = KINDS[method], GAMMAS.get(method, h)
    if kind == kernels.L1 or (kind == kernels.TRIMMED and h == 0):
        return lasso
    count = len(alphas)
    found: list = [None] * count
    # If the lasso has half as many nonzeros as samples or features, there is no sparse support to find. Then
    # the only start is the solution at the next larger alpha; rivals would take most of the time.
    few = min(problem.n, problem.c.size) / 2
    sparse = [np.count_nonzero(theta) <= few or i == count - 1 for i, theta in enumerate(lasso)]
    for i in reversed(range(count)):
        if sparse[i]:
            found[i] = _from_lasso(problem, lasso[i], alphas[i], kind, parameter, tol)
            found[i] = _better(problem, found[i], lasso[i], alphas[i], kind, parameter, tol)
        if i + 1 < count:
            found[i] = _better(problem, found[i], found[i + 1][0], alphas[i], kind, parameter, tol)
    for i in range(count):
        if i and sparse[i]:
            found[i] = _better(problem, found[i], found[i - 1][0], alphas[i], kind, parameter, tol)
        if kind == kernels.TRIMMED and swaps and sparse[i]:
            found[i] = _swapped(problem, found[i], alphas[i], h, tol)
    for i in reversed(range(count - 1)):
        if kind == kernels.TRIMMED and swaps and sparse[i]:
            found[i] = _better(problem, found[i], found[i + 1][0], alphas[i], kind, parameter, tol)
    return np.array([theta for theta, *_ in found])


def _lasso_path(problem, alphas, tol):
    theta, path = np.zeros(problem.c.size), []
    for alpha in reversed(alphas):
        theta = problem.fit(theta, alpha, kernels.L1, 0.0, tol)[0]
        path.append(theta)
    return np.array(path[::-1])


def _from_lasso(problem, theta, alpha, kind, parameter, tol):
    theta = theta.copy()
    if kind == kernels.TRIMMED:
        rough = max(1e-3, tol) * problem.scale
        kernels.soften(problem.gram, problem.c, theta, alpha, float(parameter), min(rough, 0.05 * alpha))
    else:
        for times in _HOMOTOPY[:-1]:
            theta = problem.fit(theta, alpha, kind, times * parameter, max(tol, 1e-4))[0]
    return problem.fit(theta, alpha, kind, parameter, tol)


def _better(problem, found, start, alpha, kind, parameter, tol):
    """The fit ``found``, or that of MM from ``start`` if its objective is lower."""
    if found is not None and np.array_equal(start, found[0]):
        return found
    rival = problem.fit(start, alpha, kind, parameter, tol)
    return rival if found is None or rival[1] < found[1] - 1e-9 * abs(found[1]) else found


def _swapped(problem, found, alpha, h, tol):
    """Exchange a free coefficient for another one, the best by exact scores, as long as F decreases."""
    gram = problem.gram
    p = problem.c.size
    for _ in range(_SWAPS):
        theta, objective, gradient = found
        key = np.where(theta != 0, np.abs(theta), -1.0 / (1.0 + np.abs(gradient)))
        free = np.argsort(-key, kind="stable")[:h]
        penalized = np.setdiff1d(np.flatnonzero(theta), free)
        A = np.concatenate([free, penalized])
        if A.size > min(3 * h, problem.n - 1, p - 1):
            return found  # the model is far from sparse
        outside = np.setdiff1d(np.arange(p), A)
        inverse = np.linalg.pinv(gram[np.ix_(A, A)], hermitian=True)
        cross = gram[np.ix_(outside, A)]
        link = cross @ inverse
        spare = np.diagonal(gram)[outside] - np.einsum("ij,ij->i", link, cross)
        spare[spare < 1e-8] = 0.0
        gain, partner = np.empty(outside.size), np.empty(outside.size, dtype=np.intp)
        best_swaps(
            np.ascontiguousarray(link[:, :h]), -gradient[outside], spare, theta[free],
            np.ascontiguousarray(np.diagonal(inverse)[:h]), np.full(h, float(alpha)), gain, partner,
        )  # fmt: skip
        for j in np.argsort(-gain)[:2]:
            if gain[j] <= 1e-9 * abs(objective):
                return found
            t = np.full(p, float(alpha))
            t[free] = 0.0
            t[outside[j]], t[free[partner[j]]] = 0.0, alpha
            start = theta.copy()
            kernels.weighted_lasso(gram, problem.c, start, t, max(tol, 1e-5) * problem.scale)
            rival = problem.fit(start, alpha, kernels.TRIMMED, h, tol)
            if rival[1] < objective - 1e-9 * abs(objective):
                found = rival
                break
        else:
            return found
    return found


def first_order_path(
    problem: GramProblem, method: str, alphas: Sequence[float], h: int = 0,
    max_iter: int = FIRST_ORDER_STEPS, tol: float = FIRST_ORDER_TOL,
) -> np.ndarray:  # fmt: skip
    """Coefficients by proximal gradient from zero (Algorithm 1 for "trimmed"), one row per alpha."""
    eta = problem.step
    none, nowhere = np.zeros(problem.c.size), np.empty(0, dtype=np.int64)
    path = []
    for alpha in alphas:
        theta = np.zeros(problem.c.size)
        kernels.first_order(
            problem.gram, problem.c, theta, float(alpha), KINDS[method], float(GAMMAS.get(method, h)), eta,
            tol * problem.scale, max_iter, none, nowhere, np.empty(0),
        )  # fmt: skip
        path.append(theta)
    return np.array(path)


def simulate(
    data: SparseRegression, methods: Sequence[str], rng: np.random.Generator, *, h: int,
    alphas: Sequence[float] = LAMBDAS, folds: int = 5, authors: Sequence[str] = (),
    paths: Mapping[str, np.ndarray] | None = None,
) -> list[dict]:  # fmt: skip
    """One row per method: whether some alpha and the cross-validated alpha recover the support, and errors.

    Parameters
    ----------
    data : SparseRegression
    methods : sequence of str
    rng : numpy.random.Generator
        Draws the folds.
    h : int
        Of the trimmed penalty.
    alphas : sequence of float
    folds : int
    authors : sequence of str
        Methods that are also solved as the authors do, without cross-validation and without the smallest
        lambdas, at which no solution is sparse.
    paths : dict of str to ndarray, optional
        The paths of these methods, if they are known.

    Returns
    -------
    list of dict
        ``method``, ``recovered_any``, ``recovered_cv``, ``best_error``, ``cv_error`` (l2 distances to the
        truth), ``lambda_cv``, ``nonzeros_cv``. Entries that need cross-validation are None for ``authors``.

    Examples
    --------
    >>> import numpy as np
    >>> from trimreg.datasets import make_gaussian
    >>> from trimreg_reproduction.linear.methods import simulate
    >>> data = make_gaussian(60, 20, 2, random_state=1)
    >>> rows = simulate(data, ["trimmed", "lasso"], np.random.default_rng(0), h=2)
    >>> [(row["method"], row["recovered_any"], row["recovered_cv"]) for row in rows]
    [('trimmed', True, True), ('lasso', True, False)]
    """
    X, y = data.X, data.y
    problem = GramProblem.of(X, y)
    lasso = solve_path(problem, "lasso", alphas)
    scores = {method: np.zeros(len(alphas)) for method in methods}
    for test in np.array_split(rng.permutation(y.size), folds):
        part = problem.without(X[test], y[test])
        start = _lasso_path(part, alphas, _FOLD_TOL)
        for method in methods:
            path = solve_path(part, method, alphas, h, tol=_FOLD_TOL, swaps=False, lasso=start)
            scores[method] += np.sum((y[test] - path @ X[test].T) ** 2, axis=1)
    rows = []
    for method in methods:
        path = solve_path(problem, method, alphas, h, lasso=lasso)
        chosen = int(np.argmin(scores[method]))
        found = _found(path, data.coef)
        rows.append({
            **_any_row(method, path, found, data.coef),
            "recovered_cv": bool(found[chosen]),
            "cv_error": float(np.linalg.norm(path[chosen] - data.coef)),
            "lambda_cv": float(alphas[chosen]),
            "nonzeros_cv": int(np.count_nonzero(path[chosen])),
        })  # fmt: skip
    for method in authors:
        path = first_order_path(problem, method, alphas[_SPARSE:], h) if paths is None else paths[method]
        row = _any_row(method + AUTHORS, path, _found(path, data.coef), data.coef)
        rows.append(row | dict.fromkeys(("recovered_cv", "cv_error", "lambda_cv", "nonzeros_cv")))
    return rows


def authors_paths(
    problems: Sequence[GramProblem], methods: Sequence[str], h: int, device: Any,
    alphas: Sequence[float] = LAMBDAS,
) -> list[dict]:  # fmt: skip
    """The argument ``paths`` of :func:`simulate` for each of many problems, solved at once on a device."""
    from .batches import first_order_paths

    found = {
        method: first_order_paths(
            problems, method, alphas[_SPARSE:], h, FIRST_ORDER_STEPS, FIRST_ORDER_TOL, device
        )
        for method in methods
    }
    return [{method: found[method][i] for method in methods} for i in range(len(problems))]


def _found(path, truth):
    return np.all((path != 0) == (truth != 0), axis=1)


def _any_row(method, path, found, truth):
    errors = np.linalg.norm(path - truth, axis=1)
    return {"method": method, "recovered_any": bool(found.any()), "best_error": float(errors.min())}

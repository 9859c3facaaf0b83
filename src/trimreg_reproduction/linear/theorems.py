r"""The theorems of the paper, measured on one draw: one function per part, from data to rows.

The theorems hold for any scaling of the loss. Here it is the mean with a factor one half, so the paper's
lambda is :math:`2\alpha` and its condition :math:`\lambda \ge 2\|\nabla L(\theta^*)\|_\infty` is
:math:`\alpha \ge 2 \|X'\varepsilon / n\|_\infty`. Every part takes alpha at that bound, computed from the
noise: the theorems are about what follows from this condition, not about the choice of alpha. Flags in rows
are 0 or 1.
"""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Sequence

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from trimreg import TrimmedL1, solve
from trimreg.datasets import make_gaussian, make_paper_design
from trimreg.diagnostics import dual_feasibility, incoherence
from trimreg.diagnostics.conditions import weighted_lasso
from trimreg.solvers.first_order.bcd import stationarity_constant

SCALINGS = ("mean", "paper", "sum")
_ROUNDING = 1e-7  # relative tolerance for a bound that holds with equality


def draw_design(
    rng: np.random.Generator, design: str, n: int, p: int, k: int, size: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """X, coefficients of that size with random signs, and the noise."""
    if design == "gaussian":
        data = make_gaussian(n, p, k, random_state=rng)
    else:
        where = "first" if design == "M1" else "random"
        # M1 violates incoherence from 1 / k on, and is singular at 1 / sqrt(k). The paper: 2 / k for k > 4.
        theta = min(2.0 / k, 0.87 / math.sqrt(k)) if design == "M1" else 0.7
        data = make_paper_design(n, p, k, design=design, theta=theta, support=where, random_state=rng)
    coef = np.where(data.coef != 0, size * rng.choice([-1.0, 1.0], size=p), 0.0)
    return data.X, coef, data.y - data.X @ data.coef


# -- Theorem 1 ---------------------------------------------------------------------------------------------


def local_minima(G: np.ndarray, c: np.ndarray, h: int, alpha: float) -> np.ndarray:
    r"""All local minima of a trimmed quadratic, one per row.

    .. math:: \tfrac12\theta'G\theta - c'\theta + \alpha\sum_{j>h}|\theta|_{(j)}

    For every set U of h features the convex problem with U free is solved; its solution is a local minimum if
    U are its h largest entries. One coordinate descent solves all of these problems. G must be positive
    definite; solutions with ties at rank h have probability 0 and are left out.
    """
    p = c.size
    sets = np.array(list(itertools.combinations(range(p), h)), dtype=int).reshape(math.comb(p, h), h)
    levels = np.full((sets.shape[0], p), float(alpha))
    np.put_along_axis(levels, sets, 0.0, axis=1)
    theta, scale = np.zeros_like(levels), np.abs(c).max()
    for _ in range(100_000):
        change = 0.0
        for j in range(p):
            rest = c[j] - theta @ G[:, j] + G[j, j] * theta[:, j]
            moved = np.sign(rest) * np.maximum(np.abs(rest) - levels[:, j], 0.0) / G[j, j]
            change = max(change, float(np.abs(moved - theta[:, j]).max()))
            theta[:, j] = moved
        if change <= 1e-10 * scale:
            break
    size = np.abs(theta)
    free = levels == 0
    least, most = np.where(free, size, np.inf).min(axis=1), np.where(free, -1.0, size).max(axis=1)
    found = np.flatnonzero(least > most)
    return np.array([weighted_lasso(G, c, levels[i]) for i in found]).reshape(-1, p)


def theorem_1(rng: np.random.Generator, design: str, n: int, p: int, k: int, hs: Sequence[int]) -> list[dict]:
    """Conditions and conclusions of Theorem 1, for all sets U and at all local minima; one row per h.

    The coefficients are chosen to satisfy condition (b): the smallest is at its bound, the largest at twice
    that. Condition (a) is measured.
    """
    X, coef, noise = draw_design(rng, design, n, p, k, 1.0)
    G, g = X.T @ X / n, -(X.T @ noise) / n
    S = np.flatnonzero(coef)
    alpha = 2.0 * float(np.abs(g).max())
    spread = np.linspace(1.0, 2.0, k)
    rows = []
    for h in hs:
        theta = coef.copy()
        theta[S] *= 2.0 * _least_coefficient(G, g, S, h, alpha) * spread
        c = G @ theta - g
        dual = dual_feasibility(gram=G, moment=c, support=S, h=h, alpha=alpha, method="exact")
        minima = local_minima(G, c, h, alpha)
        verdicts = [_conclusions(point, theta, G, g, S, h, alpha) for point in minima]
        rows.append({
            "h": h, "alpha": alpha, "dual": dual.value, "conditions": int(dual.value < 1.0),
            "minima": len(verdicts), "ordered": int(all(one[0] for one in verdicts)),
            "zeros": int(all(one[1] for one in verdicts)),
            "within": int(all(one[2] <= 1.0 + _ROUNDING for one in verdicts)),
            "ratio": float(max((one[2] for one in verdicts), default=0.0)),
        })  # fmt: skip
    return rows


def _least_coefficient(G, g, S, h, alpha):
    """The right side of condition (b), its maximum over all U."""
    outside = np.setdiff1d(np.arange(g.size), S)
    worst = 0.0
    for size in range(max(0, h - S.size), min(h, outside.size) + 1):
        for extra in itertools.combinations(outside, size):
            V = np.concatenate([S, np.array(extra, dtype=int)])
            inverse = np.linalg.inv(G[np.ix_(V, V)])
            worst = max(worst, np.abs(inverse @ g[V]).max() + alpha * np.abs(inverse).sum(axis=1).max())
    return float(worst)


def _conclusions(point, theta, G, g, S, h, alpha):
    """For one local minimum: ordering of the supports, zeros, and the l_inf error over its bound."""
    outside = np.setdiff1d(np.arange(g.size), S)
    size = np.abs(point)
    ordered = bool(size[S].min() > size[outside].max())
    error = np.abs(point - theta).max()
    if h < S.size:
        inverse = np.linalg.inv(G[np.ix_(S, S)])
        bound = np.abs(inverse @ g[S]).max() + alpha * np.abs(inverse).sum(axis=1).max()
        return ordered, bool(np.all(size[outside] == 0)), error / bound
    U = np.argsort(-size, kind="stable")[:h]
    zeros = np.count_nonzero(point) <= h
    if not np.isin(S, U).all():  # then the theorem states no bound
        return ordered, zeros, np.inf
    return ordered, zeros, error / np.abs(np.linalg.solve(G[np.ix_(U, U)], g[U])).max()


# -- Theorem 2 ---------------------------------------------------------------------------------------------


def theorem_2(rng: np.random.Generator, design: str, n: int, p: int, k: int, hs: Sequence[int]) -> list[dict]:
    r"""The l2 error for each h, with its bound for the constant :math:`1 / \lambda_{\min}(G_{VV})`.

    V contains the true support and that of the fit, so the curvature along the error is at least that
    eigenvalue: restricted strong convexity without tolerance. The bound applies to the entry ``scaled``.
    """
    X, coef, noise = draw_design(rng, design, n, p, k, 10.0)
    y = X @ coef + noise
    alpha = 2.0 * float(np.abs(X.T @ noise).max()) / n
    rows = []
    for h in hs:
        fit = solve(X, y, penalty=TrimmedL1(h), alpha=alpha, random_state=0)
        V = (fit.coef != 0) | (coef != 0)
        curvature = float(np.linalg.eigvalsh(X[:, V].T @ X[:, V] / n)[0])
        error = float(np.linalg.norm(fit.coef - coef))
        constant = bound_2(h, k)
        rows.append({
            "h": h, "alpha": alpha, "error": error, "constant": error / (alpha * math.sqrt(k)),
            "curvature": curvature, "scaled": curvature * error / (alpha * math.sqrt(k)),
            "bound": constant, "within": int(error <= constant / curvature * alpha * math.sqrt(k)),
            "ordered": int(np.abs(fit.coef[coef != 0]).min() > np.abs(fit.coef[coef == 0]).max()),
        })  # fmt: skip
    return rows


def bound_2(h: float, k: float) -> float:
    r"""The bound of Theorem 2 divided by :math:`C \lambda \sqrt k`.

    .. math:: \tfrac12 + \sqrt{1 - h/k} \;\text{ for } h < k, \qquad \tfrac12\sqrt{h/k} \;\text{ else}
    """
    return 0.5 + math.sqrt(1.0 - h / k) if h < k else 0.5 * math.sqrt(h / k)


# -- incoherence at the paper's sizes ----------------------------------------------------------------------


def conditions(
    rng: np.random.Generator, design: str, n: int, p: int, k: int, hs: Sequence[int], n_draws: int = 100,
    max_sets: int = 1000,
) -> list[dict]:  # fmt: skip
    """Incoherence and dual feasibility for each h, and whether a fit at this alpha orders the supports."""
    X, coef, noise = draw_design(rng, design, n, p, k, 10.0)
    y, S = X @ coef + noise, np.flatnonzero(coef)
    G, moment = X.T @ X / n, X.T @ y / n
    alpha = 2.0 * float(np.abs(X.T @ noise).max()) / n
    rows = []
    for h in hs:
        how = {"support": S, "h": h, "n_draws": n_draws, "max_sets": max_sets}
        paper = incoherence(gram=G, **how)
        needed = incoherence(gram=G, columns="penalized", **how)
        dual = dual_feasibility(gram=G, moment=moment, alpha=alpha, **how)
        fit = solve(X, y, penalty=TrimmedL1(h), alpha=alpha, random_state=0)
        size = np.abs(fit.coef)
        rows.append({
            "h": h, "incoherence": paper.value, "penalized": needed.value, "dual": dual.value,
            "how": dual.how, "dual_sampled": dual.found.get("sampling", dual.value),
            "dual_greedy": dual.found.get("greedy", dual.value),
            "ordered": int(size[S].min() > np.delete(size, S).max()),
        })  # fmt: skip
    return rows


# -- Theorem 3 ---------------------------------------------------------------------------------------------


def theorem_3(
    rng: np.random.Generator, strength: float, scaling: str, n: int, p: int, k: int, h: int,
    max_iter: int = 2000,
) -> list[dict]:  # fmt: skip
    r"""Algorithm 1 and the bounds of Theorem 3 at every K, for one scaling of the loss; one row.

    ``strength`` is lambda for the sum of squares :math:`\frac12\|y - X\theta\|^2`, as in the
    paper's figure of convergence. A scaling multiplies loss and lambda by one number, so the iterates are the
    same: "sum" is the scaling of the authors' code, "paper" is :math:`\frac1n\|y - X\theta\|^2`, "mean" half
    of it. :math:`F^*` is replaced by the lowest F found, which can only make the bound smaller.
    """
    data = make_gaussian(n, p, k, random_state=rng)
    factor = {"mean": 1.0, "paper": 2.0, "sum": float(n)}[scaling]
    X, y = np.sqrt(factor) * data.X, np.sqrt(factor) * data.y
    alpha = factor * strength / n
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", ConvergenceWarning
        )  # the bounds are about the iterates, not about convergence
        run = solve(X, y, penalty=TrimmedL1(h), alpha=alpha, solver="bcd", tol=1e-9, max_iter=max_iter)
    F, G, T = (np.array(run.history[name]) for name in ("F", "G", "T"))
    best = solve(X, y, penalty=TrimmedL1(h), alpha=alpha, random_state=0).objective
    L_f = float(np.linalg.norm(X, 2)) ** 2 / n
    ours, papers = stationarity_constant(alpha, L_f), 4.0 + 2.0 * alpha / L_f
    K = np.arange(1, F.size)
    fall = F[0] - min(best, F.min())
    least = np.minimum.accumulate(T[1:])
    shown = np.unique(np.geomspace(1, K.size, 30).round().astype(int)) - 1
    slack = 1.0 + _ROUNDING
    return [{
        "steps": int(K.size), "lipschitz": L_f, "constant_ours": ours, "constant_paper": papers,
        "ascents": int(np.sum(G[1:] > F[:-1] - F[1:] + 1e-12 * abs(F[0]))),
        "steps_over_ours": int(np.sum(T[1:] > slack * ours * G[1:])),
        "steps_over_paper": int(np.sum(T[1:] > slack * papers * G[1:])),
        "over_ours": int(np.sum(least > slack * ours * fall / K)),
        "over_paper": int(np.sum(least > slack * papers * fall / K)),
        "worst_ours": float(np.max(least * K / (ours * fall))),
        "worst_paper": float(np.max(least * K / (papers * fall))), "K": K[shown].tolist(),
        "least": least[shown].tolist(), "fall": float(fall),
    }]  # fmt: skip

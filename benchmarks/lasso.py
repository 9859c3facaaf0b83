"""The inner solver alone: the lasso (h = 0) against celer, skglm and scikit-learn."""

from __future__ import annotations

import warnings

import numpy as np

from .common import Section, one_thread, timed_in_turn

N, P, K = 1000, 5000, 50


def run(quick: bool = False) -> Section:
    one_thread()
    from celer import Lasso as CelerLasso
    from skglm import Lasso as SkglmLasso
    from sklearn.linear_model import Lasso

    from trimreg import L1, solve
    from trimreg.datasets import make_ar1

    n, p, k = (200, 500, 10) if quick else (N, P, K)
    section = Section(
        "Lasso",
        f"h = 0: the weighted l1 problem that every MM step solves. n={n}, p={p}, k={k}, AR(1) 0.5, SNR 5, float64, warm, best of "
        "5 taken in turn, one BLAS thread, every library at tolerances 1e-4 and 1e-8 of its own kind; *gap* is the duality gap relative to "
        "the objective at 0, computed here.",
        ["alpha / alpha_max", "fit", "tol", "seconds", "/ trimreg at that tol", "gap"],
    )
    data = make_ar1(n, p, k, rho=0.5, snr=5, random_state=0)
    X, y = np.asfortranarray(data.X), data.y
    top = np.abs(X.T @ y).max() / n

    def gap(coef, alpha):
        residual = y - X @ coef
        primal = 0.5 * residual @ residual / n + alpha * np.abs(coef).sum()
        dual_point = residual / max(1.0, np.abs(X.T @ residual).max() / (n * alpha))
        dual = (0.5 * y @ y - 0.5 * np.sum((y - dual_point) ** 2)) / n
        return (primal - dual) / (0.5 * y @ y / n)

    common = {"fit_intercept": False}
    for share in (0.1, 0.02):
        alpha = share * top
        for tol in (1e-4, 1e-8):
            fits = {
                "trimreg": lambda a=alpha, t=tol: solve(X, y, penalty=L1(), alpha=a, tol=t).coef,
                "celer": lambda a=alpha, t=tol: CelerLasso(alpha=a, tol=t, **common).fit(X, y).coef_,
                "skglm": lambda a=alpha, t=tol: SkglmLasso(alpha=a, tol=t, **common).fit(X, y).coef_,
                "scikit-learn": lambda a=alpha, t=tol: (
                    Lasso(alpha=a, tol=t, max_iter=100_000, **common).fit(X, y).coef_
                ),
            }
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # the peers' convergence warnings are their own affair
                seconds, coefs = timed_in_turn(fits, 5)
            for name, coef in coefs.items():
                section.rows.append([
                    share, name, f"{tol:.0e}", f"{seconds[name]:.4f}",
                    f"{seconds[name] / seconds['trimreg']:.2f}", f"{gap(coef, alpha):.0e}",
                ])  # fmt: skip
    return section

"""The surface over (h, alpha) of every fold from warm starts, against the same fits cold."""

from __future__ import annotations

import time

import numpy as np

from .common import Section, one_thread, timed

N, P, K = 500, 2000, 20
HS, N_ALPHAS, FOLDS = range(0, 40, 2), 21, 5
COLD_CELLS = 420  # of 2,100: all of them cold take several minutes


def run(quick: bool = False) -> Section:
    one_thread()
    from sklearn.model_selection import KFold

    from trimreg import TrimmedLassoCV
    from trimreg.datasets import make_ar1

    n, p, k = (120, 200, 5) if quick else (N, P, K)
    hs = range(0, 10, 2) if quick else HS
    data = make_ar1(n, p, k, rho=0.5, snr=2, random_state=0)
    X, y = np.asfortranarray(data.X), data.y
    splits = list(KFold(FOLDS, shuffle=True, random_state=0).split(X))
    warm_up(X, y)
    warm, (alphas, fits) = timed(lambda: surfaces(X, y, hs, splits), 2)
    cells = [(f, i, j) for f in range(FOLDS) for i in range(len(hs)) for j in range(len(alphas))]
    wanted = min(len(cells), 100 if quick else COLD_CELLS)
    chosen = np.random.default_rng(0).choice(len(cells), wanted, replace=False)
    seconds, ratios = cold_fits(X, y, hs, alphas, splits, fits, [cells[c] for c in chosen])
    cold = np.mean(seconds) * len(cells)
    whole, model = timed(lambda: TrimmedLassoCV(hs=hs, alphas="auto", l2s=0, cv=splits).fit(X, y))

    section = Section(
        "Surface",
        f"{len(hs)} h x {len(alphas)} alphas x {FOLDS} folds, n={n}, p={p}, k={k}, AR(1) 0.5, SNR 2, float64, one BLAS thread. *Warm*: the surfaces of "
        "the folds as `TrimmedLassoCV` makes them, Gram matrices included, least of 2. *Cold*: `solve(TrimmedL1(h), alpha)` on the training rows of the "
        + (
            "fold, every cell. "
            if wanted == len(cells)
            else f"fold, for {wanted} of {len(cells)} cells drawn at random; the time is their mean times {len(cells)}. "
        )
        + "Objectives of both sides are computed anew from the training rows.",
        ["fits", "seconds", "milliseconds per cell", "/ cold"],
    )
    rows = (("cold", cold, len(cells)), ("warm, the folds' surfaces", warm, len(cells)))
    whole_row = ("warm, all of `TrimmedLassoCV.fit`", whole, len(cells) * (FOLDS + 1) // FOLDS)
    for name, total, count in (*rows, whole_row):
        section.rows.append([name, f"{total:.2f}", f"{1e3 * total / count:.2f}", f"{total / cold:.3f}"])
    pace, share = cold / warm, float(np.mean(ratios <= 1.001))
    section.bar("at least 15 times faster than cold", f"{pace:.1f} times", pace >= 15)
    section.bar(
        "objective at most 1.001 of the cold one in 95 % of cells", f"{100 * share:.1f} %", share >= 0.95
    )
    lower, higher = np.mean(ratios < 1 - 1e-6), np.mean(ratios > 1 + 1e-6)
    spread = ", ".join(f"{np.quantile(ratios, q):.5f}" for q in (0, 0.05, 0.5, 0.95, 1))
    section.remarks.append(
        f"Objective warm / cold: lower in {100 * lower:.0f} % of the cells, higher in {100 * higher:.0f} %, the same to 1e-6 in the others; "
        f"least, 5 %, median, 95 % and largest ratio {spread}. `TrimmedLassoCV` chose h={model.h_}, alpha={model.alpha_:.3g}."
    )
    section.headline.append([
        f"{len(cells):,} fits of a cross-validated (h, alpha) surface, cold, n={n}, p={p}",
        f"warm starts are {pace:.0f} times faster; objective within 0.1 % of the cold fit's or lower in {100 * share:.0f} % of the cells",
    ])  # fmt: skip
    return section


def warm_up(X, y) -> None:
    """Compile what both sides use."""
    from trimreg import TrimmedL1, TrimmedLassoCV, solve

    X, y = X[:60, :40], y[:60]
    TrimmedLassoCV(hs=[0, 2, 4], alphas="auto", l2s=0, cv=3).fit(X, y)
    solve(X, y, penalty=TrimmedL1(2), alpha=0.1, fit_intercept=True, standardize=True)


def surfaces(X, y, hs, splits):
    """``(alphas, fits)``: what `TrimmedLassoCV` computes for its folds, coefficients and intercepts kept."""
    from trimreg import TrimmedL1
    from trimreg.estimators.task import Settings, check_data, set_up
    from trimreg.selection.folds import LinearFolds, TotalGram
    from trimreg.selection.path import grid_for

    settings = Settings(penalty=TrimmedL1(0), alpha=0.0, fit_intercept=True, standardize=True)
    data, fits = check_data(X, y, None, settings), []
    hs, alphas = grid_for(set_up(data, settings), hs, "auto", min(len(train) for train, _ in splits))
    total = TotalGram.of(data.X, data.d, center=True)
    folds = LinearFolds(data, settings, hs, alphas, "medium", total)
    for train, _ in splits:
        coefs, intercepts, _ = folds.fit(train)
        fits.append((coefs.reshape(len(hs), len(alphas), -1), intercepts.reshape(len(hs), len(alphas))))
    return alphas, fits


def cold_fits(X, y, hs, alphas, splits, fits, chosen):
    """Seconds of the cold fit of each chosen cell, and objective warm / cold there."""
    from trimreg import TrimmedL1, solve

    seconds, ratios = [], []
    rows = [np.asfortranarray(X[train]) for train, _ in splits]
    targets = [y[train] for train, _ in splits]
    units = [np.std(one, axis=0) for one in rows]
    for fold, i, j in chosen:
        A, b, alpha = rows[fold], targets[fold], alphas[j]
        penalty = TrimmedL1(hs[i])
        start = time.process_time()
        cold = solve(A, b, penalty=penalty, alpha=alpha, fit_intercept=True, standardize=True)
        seconds.append(time.process_time() - start)
        coef, intercept = fits[fold][0][i, j], fits[fold][1][i, j]
        bound = penalty.bind(A.shape[1])

        def objective(coef, intercept, A=A, b=b, alpha=alpha, bound=bound, unit=units[fold]):
            return 0.5 * np.mean((b - A @ coef - intercept) ** 2) + bound.value(coef * unit, alpha)

        ratios.append(objective(coef, intercept) / objective(cold.coef, cold.intercept))
    return np.array(seconds), np.array(ratios)

"""The number of variables by cross-validation: TrimmedLassoCV against abess over the same sizes."""

from __future__ import annotations

import numpy as np

from .common import Section, one_thread, timed

N, P, K, LARGEST = 300, 1000, 15, 40
TESTS, FOLDS = 1000, 5
ASKED, SEEDS = 10, 40  # the bars are for the first ten; one seed moves their mean by more than its error


def run(quick: bool = False) -> Section:
    one_thread()
    from abess import LinearRegression
    from sklearn.model_selection import KFold

    from trimreg import TrimmedLassoCV
    from trimreg.datasets import make_ar1

    n, p, k, largest = (100, 100, 5, 10) if quick else (N, P, K, LARGEST)
    seeds, asked = (3, 3) if quick else (SEEDS, ASKED)
    sizes = list(range(0, largest + 1, 2))
    names = ('TrimmedLassoCV(alphas="exact", l2s=0)', f"abess.LinearRegression(cv={FOLDS})")
    seconds, errors, kept, found = (np.zeros((2, seeds)) for _ in range(4))
    for seed in range(seeds):
        data = make_ar1(n + TESTS, p, k, rho=0.5, snr=2, random_state=seed)
        X, y = np.asfortranarray(data.X[:n]), data.y[:n]
        splits = list(KFold(FOLDS, shuffle=True, random_state=seed).split(X))
        number = np.zeros(n, dtype=int)
        for i, (_, test) in enumerate(splits):
            number[test] = i

        def ours(X=X, y=y, splits=splits):
            return TrimmedLassoCV(hs=sizes, alphas="exact", l2s=0, cv=splits).fit(X, y)

        def peer(X=X, y=y, number=number):
            return LinearRegression(cv=FOLDS, support_size=sizes).fit(X, y, cv_fold_id=number)

        if seed == 0:
            ours(), peer()
        for row, fit in enumerate((ours, peer)):
            seconds[row, seed], model = timed(fit, 2)
            errors[row, seed] = np.mean((data.y[n:] - model.predict(data.X[n:])) ** 2)
            support = np.flatnonzero(model.coef_)
            kept[row, seed] = support.size
            found[row, seed] = np.count_nonzero(data.coef[support])
    section = Section(
        "Cross-validation of h",
        f"n={n}, p={p}, k={k}, AR(1) 0.5, SNR 2, {seeds} seeds, sizes 0, 2, ..., {largest}, the same {FOLDS} folds for both, {TESTS} fresh samples to test on, "
        f"float64, one BLAS thread. The bars are for the first {asked} seeds. Seconds are medians over seeds of the less of two fits; +- is one standard error.",
        ["fit", "seconds", "test error", "variables kept", "true ones among them"],
    )
    for row, name in enumerate(names):
        section.rows.append([
            name, f"{np.median(seconds[row]):.3f}", with_error(errors[row]),
            f"{kept[row].mean():.1f}", f"{found[row].mean():.1f}",
        ])  # fmt: skip
    pace = float(np.median((seconds[0] / seconds[1])[:asked]))
    error, error_all = (float(errors[0, :m].mean() / errors[1, :m].mean()) for m in (asked, seeds))
    section.bar("time at most 0.8 of abess's", f"{pace:.2f}", pace <= 0.8)
    section.bar("aim: half of abess's", f"{pace:.2f}", pace <= 0.5)
    section.bar("mean test error no larger than abess's", f"{error:.4f}", error <= 1 + 1e-9)
    difference = errors[0] - errors[1]
    section.remarks.append(
        f"Test error less abess's, seed by seed: {with_error(difference)} over all {seeds}, {with_error(difference[:asked])} over the first {asked}; lower in "
        f"{np.sum(difference < -1e-9)} of {seeds}, higher in {np.sum(difference > 1e-9)}; ratio of the means over all {error_all:.4f}."
    )
    section.headline.append([
        f"choosing h by {FOLDS}-fold cross-validation against abess, n={n}, p={p}",
        f"{pace:.2f} of its time, {error:.4f} of its test error over {asked} seeds, {error_all:.4f} over {seeds}",
    ])  # fmt: skip
    return section


def with_error(values, digits=3) -> str:
    """Mean and standard error."""
    return f"{np.mean(values):.{digits}f} +- {np.std(values, ddof=1) / np.sqrt(len(values)):.{digits}f}"

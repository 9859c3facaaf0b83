"""Best subsets: TrimmedLasso(h=k) against abess with support_size=k."""

from __future__ import annotations

import numpy as np

from .common import Section, one_thread, timed

SIZES = ((1000, 5000, 50), (300, 2000, 20))


def run(quick: bool = False) -> Section:
    one_thread()
    from abess import LinearRegression

    from trimreg import TrimmedL1, TrimmedLasso
    from trimreg.datasets import make_ar1
    from trimreg.diagnostics import best_swap

    seeds = 2 if quick else 10
    sizes = ((150, 300, 8),) if quick else SIZES
    section = Section(
        "Best subset",
        f"AR(1) design, coefficients +-1, `TrimmedLasso(h=k)` against `abess.LinearRegression(support_size=k)`, {seeds} "
        "seeds each, float64, one BLAS thread. `best_swap` recomputes every single swap from the data. Ratios "
        "are ours / abess's; time is the median over seeds of the ratio of one fit each.",
        [
            "n, p, k", "rho", "SNR", "RSS no larger", "mean ratio of RSS", "largest", "swaps left", "ratio of time",
            "seconds ours", "seconds abess",
        ],
    )  # fmt: skip
    paces = []
    for n, p, k in sizes:
        for rho in (0.5, 0.9):
            for snr in (5, 1):
                ratios, pace, left, ours, theirs = [], [], 0, [], []
                for seed in range(seeds):
                    data = make_ar1(n, p, k, rho=rho, snr=snr, random_state=seed)
                    X, y = data.X, data.y
                    if seed == 0:
                        TrimmedLasso(h=k).fit(X, y)
                        LinearRegression(support_size=k).fit(X, y)
                    a, model = timed(lambda X=X, y=y, k=k: TrimmedLasso(h=k).fit(X, y))
                    b, peer = timed(lambda X=X, y=y, k=k: LinearRegression(support_size=k).fit(X, y))
                    ratios.append(np.sum((y - model.predict(X)) ** 2) / np.sum((y - peer.predict(X)) ** 2))
                    pace.append(a / b)
                    ours.append(a)
                    theirs.append(b)
                    point = {"intercept": model.intercept_, "fit_intercept": True, "standardize": True}
                    left += bool(
                        best_swap(X, y, model.coef_, penalty=TrimmedL1(k), alpha=model.alpha_, **point)
                    )
                ratios = np.array(ratios)
                no_larger = int(np.sum(ratios <= 1 + 1e-9))
                paces.append(np.median(pace))
                section.rows.append([
                    f"{n}, {p}, {k}", rho, snr, f"{no_larger} of {seeds}", f"{ratios.mean():.4f}",
                    f"{ratios.max():.4f}", left, f"{paces[-1]:.2f}", f"{np.median(ours):.4f}", f"{np.median(theirs):.4f}",
                ])  # fmt: skip
                name = f"n={n}, rho={rho}, SNR={snr}"
                section.bar(
                    f"{name}: RSS no larger in 9 of 10", f"{no_larger} of {seeds}", no_larger >= 0.9 * seeds
                )
                section.bar(f"{name}: `best_swap` finds none", f"{left} found", left == 0)
    middle = float(np.median(paces))
    section.bar("time, median over settings, at most 0.6 of abess's", f"{middle:.2f}", middle <= 0.6)
    section.bar("aim: half of abess's", f"{middle:.2f}", middle <= 0.5)
    fits, larger = len(section.rows) * seeds, sum(seeds - int(row[3].split()[0]) for row in section.rows)
    section.headline.append([
        f"best subsets against abess, {len(section.rows)} settings x {seeds} seeds",
        f"residual sum of squares larger in {larger} of {fits} fits, smaller by up to "
        f"{100 * (1 - min(float(row[4]) for row in section.rows)):.0f} % on average over a setting; "
        f"median time {middle:.2f} of abess's",
    ])  # fmt: skip
    return section

"""Real data, how often the default fit is optimal, and the growth of the time to a proof."""

from __future__ import annotations

import numpy as np

from .problems import equal_coefficients, warm_up


def real_data(quick: bool) -> str:
    """Diabetes with products; riboflavin with the 600 genes of largest variance."""
    from trimreg import TrimmedLassoCV, certify
    from trimreg.datasets import diabetes_interactions, load_riboflavin

    limit = 2.0 if quick else 60.0
    data = diabetes_interactions()
    told = [f"diabetes with products, h = 10, l2 = {l2}: {_about(certify(data.X, data.y, h=10, l2=l2, time_limit=limit))}"
            for l2 in (0.0, 0.01)]  # fmt: skip
    try:
        data = load_riboflavin()
    except (OSError, ValueError):
        return "; ".join(told) + "; riboflavin is not here."
    X, y = np.asarray(data.X, dtype=float), np.asarray(data.y, dtype=float)
    X = X[:, np.argsort(-X.var(axis=0))[:600]]
    for h in (3, 5):
        model = TrimmedLassoCV(hs=[h], l2s=[0.03, 0.1, 0.3, 1.0], cv=5, verbose=0).fit(X, y)
        told.append(f"riboflavin, h = {h}, l2 = {model.l2_:g} by cross-validation: "
                    + _about(model.certify(X, y, time_limit=limit)))  # fmt: skip
    return "; ".join(told) + "."


def _about(found) -> str:
    return found.message + (" (a better fit than the default was found)" if found.improved else "")


def default_fits(quick: bool) -> str:
    """How often the default fit is the global optimum, over problems where that is proved."""
    from trimreg import certify

    wanted, proved, optimal, seed = 5 if quick else 100, 0, 0, 0
    settings = [(rho, snr, k) for rho in (0.3, 0.7, 0.9) for snr in (0.5, 1, 5) for k in (3, 6, 10)]
    while proved < wanted and seed < 3 * wanted:
        rho, snr, k = settings[seed % len(settings)]
        X, y = equal_coefficients(200, 60, k, rho, snr, seed)
        seed += 1
        found = certify(X, y, h=k, l2=0.01, time_limit=10, gap=1e-5, keep=False)
        proved += found.proved
        optimal += found.proved and not found.improved
    return (
        f"The default fit is the global optimum in {optimal} of {proved} problems where that was proved (200 x 60, h = 3, "
        f"6, 10, rho .3, .7, .9, SNR .5, 1, 5, l2 = 0.01; {seed} tried)."
    )


def growth(picture: str) -> None:
    """Draw the time to prove against p, k, rho, SNR and l2, one changed at a time."""
    from matplotlib.figure import Figure

    from trimreg import certify

    base = {"p": 200, "k": 8, "rho": 0.5, "snr": 1.0, "l2": 0.0}
    ranges = {
        "p": (50, 100, 200, 300, 400), "k": (2, 4, 8, 12, 16), "rho": (0.0, 0.3, 0.5, 0.7, 0.8, 0.9),
        "snr": (0.2, 0.5, 1.0, 2.0, 5.0), "l2": (0.0, 0.01, 0.03, 0.1, 0.3),
    }  # fmt: skip
    names = {
        "p": "features",
        "k": "kept features h",
        "rho": "correlation of neighbors",
        "snr": "signal / noise",
        "l2": "l2",
    }
    warm_up()
    figure = Figure(figsize=(11, 2.6), layout="constrained")
    for ax, (name, values) in zip(figure.subplots(1, 5, sharey=True), ranges.items(), strict=True):
        seconds, proved = [], []
        for value in values:
            setting = base | {name: value}
            times = []
            for seed in range(3):
                X, y = equal_coefficients(500, *(setting[one] for one in ("p", "k", "rho", "snr")), seed)
                found = certify(X, y, h=setting["k"], l2=setting["l2"], time_limit=10, keep=False)
                times.append((found.seconds, found.proved, found.gap))
            seconds.append(float(np.median([one[0] for one in times])))
            proved.append(sum(one[1] for one in times))
            print(f"{name} = {value}: {seconds[-1]:.2f} s, {proved[-1]} of 3 proved, gaps",
                  ", ".join(f"{100 * one[2]:.2g} %" for one in times), flush=True)  # fmt: skip
        ax.plot(values, seconds, color="#0072B2")
        for value, second, count in zip(values, seconds, proved, strict=True):
            ax.plot(value, second, "o", color="#0072B2", markerfacecolor="#0072B2" if count == 3 else "white")
        ax.set_yscale("log")
        ax.set_xlabel(names[name])
        ax.spines[["top", "right"]].set_visible(False)
    figure.axes[0].set_ylabel("seconds to prove")
    figure.savefig(picture, dpi=110)

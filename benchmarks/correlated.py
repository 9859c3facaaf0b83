"""Graphs of strongly correlated variables: soft fits against exact ones, cross-validation against scikit-learn's."""

from __future__ import annotations

import warnings

import numpy as np

from .common import Section, one_thread, timed

N, P, LARGE, LARGE_H = 1000, 120, 452, 4000
SHARES = (0.5, 0.2, 0.1, 0.05, 0.01)  # alpha in units of the largest correlation


def run(quick: bool = False) -> Section:
    one_thread()
    n, p, large, large_h = (300, 20, 30, 60) if quick else (N, P, LARGE, LARGE_H)
    section = Section(
        "Correlated variables",
        f"Simulated daily returns of stocks: n={n}, one market factor, ten sectors, Student t with 4 degrees of freedom, standardized. Processor seconds of one fit, warm. *Soft* is a "
        f"numeric alpha: {', '.join(f'{share:g}' for share in SHARES)} of the largest correlation; the slowest of these is shown.",
        ["p, h", "exact, s", "slowest soft, s", "ratio", "edges of the slowest"],
    )  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # scikit-learn's convergence warnings, and ours at the end of a grid
        Z = returns(n, p)
        exact_and_soft(section, Z[:, : p // 2], p // 2, SHARES[2:3], keep=False)  # compile
        ratios = [exact_and_soft(section, Z, h, SHARES) for h in (p // 2, p, 2 * p, 3 * p, 4 * p)]
        ratios.append(exact_and_soft(section, returns(n, large), large_h, SHARES[2:3]))
        share, above = crossvalidation(section, Z)
    section.remarks.append(
        "With few edges the exact graph falls into small blocks, so an exact fit takes hundredths of a second. A soft graph has hundreds of edges in one block at any h."
    )
    section.headline.append([
        f"graphs of {p} and {large} correlated variables, a numeric alpha against alpha=\"exact\"",
        f"takes {min(ratios):.2f} to {max(ratios):.2f} of its time",
    ])  # fmt: skip
    section.headline.append([
        f"cross-validated graphical lasso of {p} correlated variables, against scikit-learn's GraphicalLassoCV",
        f"takes {share:.2f} of its time; mean test log-likelihood {above:+.2f}",
    ])  # fmt: skip
    return section


def returns(n, p, sectors=10, seed=0):
    """Standardized heavy-tailed returns with a market factor and sectors."""
    rng = np.random.default_rng(seed)

    def student(*shape):
        return rng.standard_t(4, shape) / np.sqrt(2.0)

    market, sector = student(n, 1), student(n, sectors)[:, np.arange(p) % sectors]
    X = market * rng.uniform(0.7, 1.3, p) + 0.7 * sector * rng.uniform(0.6, 1.4, p)
    X += rng.uniform(0.8, 1.6, p) * student(n, p)
    return (X - X.mean(axis=0)) / X.std(axis=0)


def exact_and_soft(section, Z, h, shares, keep=True) -> float:
    """The slowest soft fit over the exact one, as a row and a bar."""
    from trimreg import TrimmedL1, solve_graphical

    S = np.corrcoef(Z, rowvar=False)
    p, largest = len(S), np.abs(S - np.eye(len(S))).max()
    h = min(h, p * (p - 1) // 2)

    def fit(alpha):
        return timed(lambda: solve_graphical(S, penalty=TrimmedL1(h), alpha=alpha))

    exact = fit("exact")[0]
    soft, slowest = max((fit(share * largest) for share in shares), key=lambda found: found[0])
    ratio = soft / exact
    if keep:
        edges = np.count_nonzero(np.triu(slowest.precision, 1))
        section.rows.append([f"{p}, {h}", f"{exact:.2f}", f"{soft:.2f}", f"{ratio:.2f}", f"{edges}"])
        section.bar(f"p={p}, h={h}: soft at most 3 times exact", f"{ratio:.2f}", ratio <= 3)
    return ratio


def crossvalidation(section, Z) -> tuple[float, float]:
    """The convex graph chosen by five folds, and scikit-learn's: share of its time, likelihood above its own."""
    from sklearn.covariance import GraphicalLassoCV

    from trimreg import TrimmedGraphicalLassoCV

    theirs, peer = timed(lambda: GraphicalLassoCV().fit(Z))
    ours, model = timed(lambda: TrimmedGraphicalLassoCV(alphas="auto", penalty="l1").fit(Z))
    # scikit-learn centers test samples by their own mean, so its scores are not comparable: one function for both
    one = TrimmedGraphicalLassoCV(alphas=[peer.alpha_], penalty="l1").fit(Z)
    best = float(one.score_path_.mean())
    above = float(model.score_path_.mean(axis=-1).max()) - best
    section.remarks.append(
        f"Five folds, penalty=\"l1\": {ours:.2f} s for {len(model.alphas_)} alphas against {theirs:.2f} s of scikit-learn for {len(peer.cv_results_['alphas'])}. Chosen alphas "
        f"{model.alpha_:.3f} and {peer.alpha_:.3f}, mean test log-likelihoods {best + above:.2f} and {best:.2f}."
    )  # fmt: skip
    section.bar(
        "convex cross-validation: at most scikit-learn's time", f"{ours / theirs:.2f}", ours <= theirs
    )
    section.bar("convex cross-validation: likelihood no lower", f"{above:+.2f}", above >= 0)
    return ours / theirs, above

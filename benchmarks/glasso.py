"""The graphical lasso (h = 0) against skglm, scikit-learn and gglasso at a true duality gap; and screening."""

from __future__ import annotations

import contextlib
import io
import warnings

import numpy as np

from .common import Section, one_thread, timed, timed_in_turn

N = 1000
SIZES = ((200, 0.3), (500, 0.3), (1000, 0.3), (1000, 0.5))  # p, and alpha in units of alpha_max
BLOCKS, BLOCKED = 20, 2000
GAP = 1e-8
TOLERANCES = (1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8)


def run(quick: bool = False) -> Section:
    one_thread()
    sizes = ((40, 0.3), (60, 0.3), (60, 0.5)) if quick else SIZES
    n = 200 if quick else N
    section = Section(
        "Graphical lasso",
        f"h = 0: the convex case. n={n}, random graphs with 5 % of the pairs, correlation matrix, warm, the best of several runs (at p=1000 of two, of the last three rows of one). At p = n the matrix is singular. The gap is the "
        "duality gap relative to the objective, by one function for all. skglm runs with the loosest tolerance of 1e-3 ... 1e-8 that "
        f"reaches a gap of {GAP:g}; the others are shown at the settings named.",
        ["p, alpha / alpha_max", "solver", "seconds", "/ skglm", "relative gap", "edges"],
    )  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the peers' convergence warnings are their own affair
        ratios = [compare(section, n, p, share, repeats=5 if p <= 500 else 2) for p, share in sizes]
    shown = ", ".join(
        f"{ratio:.2f} at p={p}" for (p, share), ratio in zip(sizes, ratios, strict=True) if share == 0.3
    )
    section.headline.append([
        "graphical lasso, relative duality gap 1e-8, against skglm (dual)", f"takes {shown} of its time"
    ])  # fmt: skip
    screening(section, n, 200 if quick else BLOCKED, 4 if quick else BLOCKS)
    return section


def problem(kind, n, p, **options):
    """A correlation matrix and the largest of its correlations: above that alpha the graph is empty."""
    from trimreg.datasets import make_graph

    S = np.corrcoef(make_graph(kind, n, p, random_state=0, **options).X, rowvar=False)
    S = (S + S.T) / 2
    np.fill_diagonal(S, 1.0)
    return S, np.abs(S - np.eye(p)).max()


def relative_gap(S, alpha, Theta) -> float:
    """The duality gap of the graphical lasso at Theta over its objective; inf if no dual point is at hand.

    The dual point is the inverse of Theta, moved to within alpha of S and to the diagonal of S.
    """
    Theta = (Theta + Theta.T) / 2
    if not np.isfinite(Theta).all():
        return np.nan
    try:
        log_det = 2 * np.log(np.diagonal(np.linalg.cholesky(Theta))).sum()
        W = np.clip(np.linalg.inv(Theta), S - alpha, S + alpha)
        np.fill_diagonal(W, np.diagonal(S))
        dual = 2 * np.log(np.diagonal(np.linalg.cholesky(W))).sum() + len(S)
    except np.linalg.LinAlgError:
        return np.inf
    off = np.abs(Theta).sum() - np.abs(np.diagonal(Theta)).sum()
    objective = np.vdot(S, Theta) - log_det + alpha * off
    return max(objective - dual, 0.0) / max(1.0, abs(objective))


def ours(S, alpha):
    from trimreg import TrimmedL1, solve_graphical

    return solve_graphical(S, penalty=TrimmedL1(0), alpha=alpha, effort="low", tol=GAP).precision


def skglm(S, alpha, tol, max_iter=100):
    from skglm.covariance import GraphicalLasso

    return (
        GraphicalLasso(alpha=alpha, algo="dual", tol=tol, max_iter=max_iter)
        .fit(S, mode="precomputed")
        .precision_
    )


def sklearn(S, alpha):
    from sklearn.covariance import graphical_lasso

    return graphical_lasso(S, alpha, enet_tol=1e-7)[1]


def gglasso(S, alpha, tol):
    from gglasso.solver.single_admm_solver import ADMM_SGL

    with contextlib.redirect_stdout(io.StringIO()):  # it prints how it ended
        return ADMM_SGL(S, alpha, np.eye(len(S)), tol=tol, rtol=tol)[0]["Theta"]


def compare(section, n, p, share, repeats) -> float:
    """Add the rows of one size; returns our time over skglm's at the same gap."""
    S, largest = problem("random", n, p)
    alpha = share * largest
    tol = next((t for t in TOLERANCES if relative_gap(S, alpha, skglm(S, alpha, t)) <= GAP), TOLERANCES[-1])
    mine, peer = "trimreg, tol=1e-8", f"skglm GraphicalLasso (dual), tol={tol:g}"
    seconds, found = timed_in_turn(
        {mine: lambda: ours(S, alpha), peer: lambda: skglm(S, alpha, tol)}, repeats
    )
    others = {
        "scikit-learn graphical_lasso, enet_tol=1e-7": lambda: sklearn(S, alpha),
        "gglasso ADMM, tol=rtol=1e-7": lambda: gglasso(S, alpha, 1e-7),
        "gglasso ADMM, tol=rtol=1e-9": lambda: gglasso(S, alpha, 1e-9),
    }
    for name, fit in others.items():
        seconds[name], found[name] = timed(fit, 3 if p <= 500 else 1)
    gap = {name: relative_gap(S, alpha, Theta) for name, Theta in found.items()}
    for name, Theta in found.items():
        section.rows.append([
            f"{p}, {share}", name, f"{seconds[name]:.3f}", f"{seconds[name] / seconds[peer]:.2f}", f"{gap[name]:.1e}",
            f"{np.count_nonzero(np.triu(Theta, 1))}",
        ])  # fmt: skip
    ratio = seconds[mine] / seconds[peer]
    where = f"p={p}, {share} alpha_max"
    section.bar(f"{where}: relative gap at most 1e-8", f"{gap[mine]:.1e}", gap[mine] <= GAP)
    section.bar(f"{where}: no slower than skglm at a gap of 1e-8 or less", f"{ratio:.2f}", ratio <= 1)
    return ratio


def screening(section, n, p, blocks) -> None:
    """Blocks that are not connected: the problem divided, and not."""
    from trimreg.graphs.mm.inner import components, solve_weighted

    S, _ = problem("blocks", n, p, n_blocks=blocks)
    label = np.concatenate(
        [np.full(part.size, k) for k, part in enumerate(np.array_split(np.arange(p), blocks))]
    )
    noise = np.abs(S[label[:, None] != label]).max()
    alpha = 1.0001 * noise
    threshold = np.full((p, p), alpha)
    sizes = np.array([part.size for part in components(S, threshold)])
    large = sizes >= p / blocks / 2
    fits = {
        "trimreg, screened into blocks": lambda: solve_weighted(S, threshold, tol=GAP),
        "trimreg, not screened": lambda: solve_weighted(S, threshold, tol=GAP, screen=False),
    }
    seconds, found = timed_in_turn(fits, 2)
    with_, without = seconds.values()
    gap = [relative_gap(S, alpha, fit.Theta) for fit in found.values()]
    for (name, fit), one in zip(found.items(), gap, strict=True):
        section.rows.append([
            f"{p}, {blocks} blocks", name, f"{seconds[name]:.3f}", "-", f"{one:.1e}",
            f"{np.count_nonzero(np.triu(fit.Theta, 1))}",
        ])  # fmt: skip
    section.bar(
        f"{blocks} blocks, p={p}: screening at least 10 times faster",
        f"{without / with_:.1f}",
        without >= 10 * with_,
    )
    section.bar("the same with and without: gaps at most 1e-8", f"{max(gap):.1e}", max(gap) <= GAP)
    section.remarks.append(
        f"Blocks: {blocks} random graphs of {p // blocks} variables. alpha = {alpha:.3f} is just over the largest correlation between two of them, {noise:.3f}. "
        f"Screening found {large.sum()} parts of {sizes[large].min()} to {sizes[large].max()} variables, {np.sum(~large & (sizes > 1))} small ones of at most "
        f"{sizes[~large].max(initial=0)}, and {np.sum(sizes == 1)} single variables."
    )
    section.headline.append([
        f"graphical lasso, p={p}, {blocks} blocks, against the same without screening", f"{without / with_:.1f} times faster"
    ])  # fmt: skip

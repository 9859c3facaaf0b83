"""Groups: the trimmed group lasso against skglm's group lasso at its best alpha."""

from __future__ import annotations

import warnings

import numpy as np

from .common import Section, one_thread, timed_in_turn

N, GROUPS, SIZE, TRUE = 500, 400, 5, 20
N_ALPHAS = 20
DEFAULT = 'trimreg alpha="exact", effort="medium"'


def run(quick: bool = False) -> Section:
    one_thread()
    from skglm import GroupLasso

    from trimreg import TrimmedGroupLasso

    n, count, true = (150, 40, 4) if quick else (N, GROUPS, TRUE)
    seeds, repeats = (2, 1) if quick else (10, 2)
    section = Section(
        "Groups",
        f"n={n}, {count} groups of {SIZE} (correlation 0.5 within), {true} true with normal coefficients, SNR 2, {seeds} seeds, float64, warm, one BLAS thread. Seconds of one "
        f"fit: median over seeds of the least of {repeats} taken in turn. skglm's group lasso is at its best alpha by F1 of {N_ALPHAS} on a grid, which it could "
        "not know; soft trimming is at that alpha too. F1 of the groups in the model, mean over seeds.",
        ["fit", "seconds", "/ group lasso", "F1", "groups kept"],
    )
    labels = np.repeat(np.arange(count), SIZE)
    weights = np.full(count, np.sqrt(SIZE))
    seconds, scores, kept = {}, {}, {}
    for seed in range(seeds):
        X, y, truth = make_groups(n, count, true, seed)
        pull = np.linalg.norm((X.T @ (y - y.mean())).reshape(count, SIZE), axis=1) / (n * weights)
        grid = np.max(pull) * np.geomspace(1.0, 0.05, N_ALPHAS)

        def peer(alpha, X=X, y=y):
            return GroupLasso(groups=SIZE, alpha=alpha, weights=weights).fit(X, y)

        def ours(alpha, effort, X=X, y=y):
            return TrimmedGroupLasso(labels, h=true, alpha=alpha, effort=effort).fit(X, y)

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the peer's convergence warnings are its own affair
            path = [f1(peer(alpha).coef_, truth) for alpha in grid]
            best = grid[int(np.argmax(path))]
            fits = {"skglm GroupLasso, best alpha": lambda a=best: peer(a)}
            for effort in ("low", "medium"):
                fits[f'trimreg alpha="exact", effort="{effort}"'] = lambda e=effort: ours("exact", e)
                fits[f'trimreg soft, effort="{effort}"'] = lambda e=effort, a=best: ours(a, e)
            taken, models = timed_in_turn(fits, repeats)
        for name, model in models.items():
            seconds.setdefault(name, []).append(taken[name])
            scores.setdefault(name, []).append(f1(model.coef_, truth))
            kept.setdefault(name, []).append(np.count_nonzero(model.coef_.reshape(count, SIZE).any(axis=1)))
    base, *trimmed = seconds
    for name in seconds:
        ratio = np.median(np.array(seconds[name]) / seconds[base])
        section.rows.append([
            name, f"{np.median(seconds[name]):.4f}", f"{ratio:.2f}", f"{np.mean(scores[name]):.3f}",
            f"{np.mean(kept[name]):.1f}",
        ])  # fmt: skip
        if name in trimmed and "low" in name:
            section.bar(f"{name}: at most 1.5 times the group lasso", f"{ratio:.2f}", ratio <= 1.5)
        if name == DEFAULT:
            section.bar(f"{name}, the default: at most 4 times the group lasso", f"{ratio:.2f}", ratio <= 4)
    section.remarks.append(
        'The default effort looks for a better local minimum than "low", by exchanges and kicks.'
    )
    for name in trimmed:
        gain = np.array(scores[name]) - scores[base]
        section.bar(
            f"{name}: F1 above the group lasso's at any alpha, on average",
            f"{np.mean(scores[name]):.3f} to {np.mean(scores[base]):.3f} (above in {np.sum(gain > 0)} of {seeds}, below in {np.sum(gain < 0)})",
            gain.mean() > 0,
        )
    said = []
    for effort in ("low", "medium"):
        exact = f'trimreg alpha="exact", effort="{effort}"'
        ratio = np.median(np.array(seconds[exact]) / seconds[base])
        said.append(f'effort="{effort}" F1 {np.mean(scores[exact]):.3f} in {ratio:.1f} of its time')
    section.headline.append([
        f"groups, {count} of {SIZE}, against skglm's group lasso at its best alpha (F1 of the groups {np.mean(scores[base]):.3f})",
        "; ".join(said),
    ])  # fmt: skip
    return section


def make_groups(n, count, true, seed):
    """X with one factor shared in a group, y, and which groups are in the model."""
    rng = np.random.default_rng(seed)
    X = np.sqrt(0.5) * (rng.standard_normal((n, count, SIZE)) + rng.standard_normal((n, count, 1)))
    X = np.asfortranarray(X.reshape(n, -1))
    truth = np.zeros(count, dtype=bool)
    truth[rng.choice(count, true, replace=False)] = True
    coef = np.where(np.repeat(truth, SIZE), rng.standard_normal(count * SIZE), 0.0)
    signal = X @ coef
    return X, signal + np.sqrt(np.var(signal) / 2) * rng.standard_normal(n), truth


def f1(coef, truth) -> float:
    """The F1 score of the groups with a nonzero coefficient."""
    found = coef.reshape(truth.size, -1).any(axis=1)
    return 2 * np.sum(found & truth) / max(np.sum(found) + np.sum(truth), 1)

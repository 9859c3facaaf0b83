"""Prediction with a given number of features on five real data sets, by nested cross-validation.

A method takes the training samples and inner folds, and returns a model of at most h features for each h asked for, and one
of the size that it chooses itself. Trimmed fits are those of the estimators. A peer is a path function: coefficients of shape
(settings, positions, features), where positions go from small to large models, by size or by decreasing alpha. Its model of
at most h features is the last position of a setting before the path exceeds h, and the inner folds choose the setting. Its own
size is the setting and the position with the least error on the inner folds.
"""

from __future__ import annotations

import json
import warnings
from functools import partial
from pathlib import Path

import numpy as np
from joblib import Parallel, delayed
from scipy.stats import rankdata

from .common import Section, one_thread
from .realdata import folds_of

MEASURED = Path(__file__).parent / "measured" / "prediction.json"
AT = (5, 10, 20, 40)
CHOSEN = "chosen"
SUBSETS = (0, 1, 2, 3, 5, 7, 10, 14, 20, 28, 40, 56, 80, 112, 160)
L2S = (0.0, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0)
RATIOS = (0.1, 0.3, 0.5, 0.7, 0.9, 1.0)  # of l1 in the elastic net
INNER = 5
# Repetitions and outer folds.
ROUNDS = {"riboflavin": (4, 10), "eye": (4, 10), "wheat": (4, 5), "diabetes": (4, 5), "colon": (4, 5)}
OURS = "trimmed with l2"
BOUND = np.log(1e6)  # of the linear predictor of classes: probabilities stay within 1e-6 of 0 and 1


def run(quick: bool = False) -> Section:
    rounds = {"eye": (1, 3)} if quick else ROUNDS
    fits = [
        (name, folds, repeat, number)
        for name, (repeats, folds) in rounds.items()
        for repeat in range(repeats)
        for number in range(folds)
    ]
    try:
        found = Parallel(n_jobs=-1, verbose=1)(delayed(of_fold)(*fit) for fit in fits)
    except FileNotFoundError as missing:
        section = drawn({})
        section.remarks.append(f"Skipped: {missing}")
        return section
    records = {
        name: {
            "folds": folds,
            "methods": joined([one for fit, one in zip(fits, found, strict=True) if fit[0] == name]),
        }
        for name, (_, folds) in rounds.items()
    }
    if not quick:
        MEASURED.write_text(json.dumps({"note": "", "sets": records}))
    return drawn(records)


# -- the data -----------------------------------------------------------------------------------------------------------


def data_of(name):
    """``X, y``; y is 0 or 1 for classes."""
    from trimreg.datasets import diabetes_interactions, load_colon, load_riboflavin
    from trimreg.datasets.real import data_folders

    if name == "riboflavin":
        X, y, _ = load_riboflavin()
    elif name == "diabetes":
        X, y, _ = diabetes_interactions()
    elif name == "colon":
        X, y, _ = load_colon()
        X, y = np.log(X), y == "t"
    else:
        found = [path for path in (folder / f"{name}.npz" for folder in data_folders()) if path.is_file()]
        if not found:
            raise FileNotFoundError(f"{name}.npz with X and y is not in the folder TRIMREG_DATA")
        with np.load(found[0]) as stored:
            X, y = stored["X"], stored["y"]
    return np.asarray(X, dtype=float), np.asarray(y, dtype=float)


def prepared(X, train, n_genes=600):
    """The columns of largest variance in the training samples if there are very many, scaled to deviation one there."""
    if X.shape[1] > 1500:
        X = X[:, np.sort(np.argsort(-X[train].var(axis=0))[:n_genes])]
    deviation = X[train].std(axis=0)
    X = X[:, deviation > 0]
    return np.asfortranarray((X - X[train].mean(axis=0)) / deviation[deviation > 0])


# -- nested folds -------------------------------------------------------------------------------------------------------


def of_fold(name, folds, repeat, number):
    """Losses and number of features on one outer fold, by method and size."""
    one_thread()
    warnings.simplefilter("ignore")  # convergence warnings at the ends of the paths
    X, y = data_of(name)
    classes = name == "colon"
    train, test = folds_of(y, classes, folds, seed=repeat)[number]
    Z = prepared(X, train)
    target = y if classes else (y - y[train].mean()) / y.std()  # errors relative to the null model's
    inner = folds_of(y[train], classes, INNER, seed=100 * repeat + number)
    record = {}
    for method, fits in (classifications() if classes else regressions()).items():
        models = fits(np.asfortranarray(Z[train]), target[train], inner)
        record[method] = {
            str(size): [
                *(
                    round(float(np.mean(loss)), 6)
                    for loss in losses_of(Z[test] @ coef + intercept, target[test], classes)
                ),
                int(np.count_nonzero(coef)),
            ]
            for size, (coef, intercept) in models.items()
        }
    return record


def joined(records):
    """The records of several outer folds as one."""
    return {
        method: {size: [record[method][size] for record in records] for size in sizes}
        for method, sizes in records[0].items()
    }


def losses_of(eta, y, classes):
    """Squared error; or, for classes, log loss and error rate."""
    if not classes:
        return ((y - eta) ** 2,)
    eta = np.clip(eta, -BOUND, BOUND)
    return np.logaddexp(0.0, eta) - y * eta, (eta > 0) != (y > 0.5)


# -- methods --------------------------------------------------------------------------------------------------------


def by_estimator(kind, l2s):
    """A method of the library: the estimator with one h, and with the sizes that it tries by default."""

    def fits(X, y, inner):
        models = {size: kind(hs=[size], l2s=l2s, cv=inner) for size in AT}
        models[CHOSEN] = kind(l2s=l2s, cv=inner)
        for model in models.values():
            model.fit(X, y)
        return {size: (model.coef_.ravel(), np.ravel(model.intercept_)[0]) for size, model in models.items()}

    return fits


def by_path(path, grid, classes=False):
    """The method of a path function. Its grid comes from all training samples and is kept on the inner folds."""

    def fits(X, y, inner):
        points = grid(X, y)
        coefs, intercepts = path(X, y, points)
        tables = dict.fromkeys((*AT, CHOSEN), 0.0)
        for train, test in inner:
            inner_coefs, inner_intercepts = path(np.asfortranarray(X[train]), y[train], points)
            etas = inner_coefs @ X[test].T + inner_intercepts[..., None]
            losses = losses_of(etas, y[test], classes)[0].sum(axis=-1)
            tables[CHOSEN] += losses
            for size in AT:
                tables[size] += np.take_along_axis(losses, last_within(inner_coefs, size), axis=1)[:, 0]
        answer = {}
        for size, table in tables.items():
            best = np.unravel_index(np.argmin(table), table.shape)
            spot = best if size == CHOSEN else (best[0], last_within(coefs, size)[best[0], 0])
            answer[size] = coefs[spot], intercepts[spot]
        return answer

    return fits


def last_within(coefs, size):
    """The last position of each setting before its path exceeds ``size`` features, as a column."""
    too_many = np.count_nonzero(coefs, axis=-1) > size
    return np.where(too_many.any(axis=1), too_many.argmax(axis=1), too_many.shape[1])[:, None] - 1


def subset_sizes(X, y):
    """Sizes up to a quarter of the samples, at least 40."""
    return [size for size in SUBSETS if size <= max(40, min(len(y) // 4, X.shape[1]))]


def decreasing_alphas(n_alphas):
    """A function that returns so many decreasing alphas from the smallest that gives the null model."""

    def grid(X, y):
        largest = np.abs(X.T @ (y - y.mean())).max() / len(y)
        return largest * np.geomspace(1.0, 0.03 if X.shape[1] > len(y) else 0.001, n_alphas)

    return grid


def abess(l2s, logistic=False):
    from abess import LinearRegression, LogisticRegression

    kind = LogisticRegression if logistic else LinearRegression

    def path(X, y, sizes):
        fits = [[kind(support_size=size, alpha=len(y) * l2).fit(X, y) for size in sizes] for l2 in l2s]
        coefs = np.array([[fit.coef_.ravel() for fit in row] for row in fits])
        return coefs, np.array([[float(np.ravel(fit.intercept_)[0]) for fit in row] for row in fits])

    return by_path(path, subset_sizes, logistic)


def elastic_net(ratios):
    from sklearn.linear_model import enet_path

    def path(X, y, alphas):
        center = X.mean(axis=0)
        fits = [
            enet_path(X - center, y - y.mean(), l1_ratio=ratio, alphas=alphas / ratio, tol=1e-4)[1].T
            for ratio in ratios
        ]
        coefs = np.array(fits)
        return coefs, y.mean() - coefs @ center

    return path


def relaxed(lasso, l2s, logistic=False):
    """The ridge fits to the features that a path of the lasso selects, up to 200 features; then the lasso itself."""
    from sklearn.linear_model import LogisticRegression, Ridge

    def path(X, y, alphas):
        coefs, intercepts = (np.repeat(values, len(l2s), axis=0) for values in lasso(X, y, alphas))
        for i, support in enumerate(coefs[0] != 0):
            if not 0 < support.sum() <= 200:
                continue
            for t, l2 in enumerate(l2s):
                strength = len(y) * max(l2, 1e-6)
                model = (
                    LogisticRegression(C=1 / strength, solver="newton-cholesky")
                    if logistic
                    else Ridge(strength)
                )
                model.fit(X[:, support], y)
                coefs[t, i, support], intercepts[t, i] = model.coef_.ravel(), np.ravel(model.intercept_)[0]
        return coefs, intercepts

    return path


def skglm(penalties, logistic=False):
    """Paths of skglm, warm-started along the alphas; a penalty is a function of alpha."""
    from skglm import GeneralizedLinearEstimator
    from skglm.datafits import Logistic, Quadratic
    from skglm.solvers import AndersonCD

    def path(X, y, alphas):
        coefs = np.zeros((len(penalties), len(alphas), X.shape[1]))
        intercepts = np.zeros(coefs.shape[:2])
        for t, penalty in enumerate(penalties):
            solver = AndersonCD(max_iter=20, max_epochs=1000, warm_start=True, tol=1e-4)
            model = GeneralizedLinearEstimator(
                Logistic() if logistic else Quadratic(), penalty(alphas[0]), solver
            )
            for i, alpha in enumerate(alphas):
                model.penalty = penalty(alpha)
                model.fit(X, np.where(y > 0.5, 1, -1) if logistic else y)
                coefs[t, i], intercepts[t, i] = model.coef_.ravel(), np.ravel(model.intercept_)[0]
        return coefs, intercepts

    return path


def mcp(gammas):
    """The penalties of skglm's MCP, as functions of alpha."""
    from skglm.penalties import MCPenalty

    return [partial(MCPenalty, gamma=gamma) for gamma in gammas]


def regressions():
    from trimreg import TrimmedLassoCV

    alphas = decreasing_alphas(60)
    return {
        "trimmed": by_estimator(TrimmedLassoCV, 0.0),
        OURS: by_estimator(TrimmedLassoCV, "auto"),
        "lasso": by_path(elastic_net((1.0,)), alphas),
        "relaxed lasso with ridge": by_path(relaxed(elastic_net((1.0,)), L2S), alphas),
        "elastic net": by_path(elastic_net(RATIOS), alphas),
        "MCP": by_path(skglm(mcp((3.0, 10.0))), decreasing_alphas(40)),
        "abess": abess((0.0,)),
        "abess with l2": abess(L2S),
    }


def classifications():
    from skglm.penalties import L1, L1_plus_L2

    from trimreg import TrimmedLogisticRegressionCV

    def net(ratio):
        return lambda alpha: L1_plus_L2(alpha / ratio, ratio)

    def classes(path):
        return by_path(path, decreasing_alphas(25), classes=True)

    lasso = skglm([L1], logistic=True)

    return {
        "trimmed": by_estimator(TrimmedLogisticRegressionCV, 0.0),
        OURS: by_estimator(TrimmedLogisticRegressionCV, "auto"),
        "lasso": classes(lasso),
        "relaxed lasso with ridge": classes(relaxed(lasso, L2S[1:], logistic=True)),
        "elastic net": classes(skglm([net(ratio) for ratio in (0.2, 0.5, 0.9)], logistic=True)),
        "MCP": classes(skglm(mcp((10.0, 30.0)), logistic=True)),
        "abess": abess((0.0,), logistic=True),
        "abess with l2": abess(L2S, logistic=True),
    }


# -- the report ---------------------------------------------------------------------------------------------------------


def drawn(records, note=""):
    """The section of the records: a row for each data set and method, a bar for each data set and size."""
    section = Section(
        "Prediction",
        f"Nested cross-validation on real data, the same folds for every method: {INNER} inner folds choose the settings, at each size anew. R2 is one minus the "
        "squared error of the left-out samples over the variance. A model at size h is the last of its path with at most h features; the size chosen has the least "
        "error on the inner folds, and `features` are those it keeps on average. Trimmed models are `TrimmedLassoCV(hs=[h])`, or `TrimmedLogisticRegressionCV`, with "
        '`l2s="auto"` or 0 and the default `hs="auto"` for the size chosen. The best of a column is bold; the mean rank is over the columns.',
        ["data", "method", *(f"h = {size}" for size in AT), "size chosen", "features", "mean rank"],
    )
    ranks: dict[str, list] = {}
    regrets: dict[str, list] = {}
    for name, record in records.items():
        for k, measure in enumerate(("log loss", "error rate") if name == "colon" else ("R2",)):
            add_rows(section, name, record, k, measure, ranks, regrets)
    if not records:
        return section
    mean_rank = {method: float(np.mean(places)) for method, places in ranks.items()}
    regret = {method: float(np.mean(values)) for method, values in regrets.items()}
    order = sorted(mean_rank, key=mean_rank.get)
    text = ", ".join(f"{method} {mean_rank[method]:.2f}" for method in order)
    section.bar(f"lowest mean rank: {OURS}", text, order[0] == OURS)
    met = sum(bar[2] for bar in section.bars[:-1])
    best_peer = min(rank for method, rank in mean_rank.items() if not method.startswith("trimmed"))
    few = [
        name
        for name, record in records.items()
        if mean_loss(record, OURS, AT[0]) < mean_loss(record, "lasso", AT[1])
    ]
    counts = {
        name: len(record["methods"][OURS][CHOSEN]) // record["folds"] for name, record in records.items()
    }
    rounds = ", ".join(f"{name} {counts[name]} x {record['folds']}" for name, record in records.items())
    section.remarks += [
        f"{OURS.capitalize()}, {AT[0]} features have a lower error than the lasso with {AT[1]} on {', '.join(few) or 'none'}.",
        f"Repetitions x outer folds: {rounds}. +- is the standard error of the paired differences over the folds of one repetition, because repetitions "
        "use the same samples. The best of six peers is partly lucky: a method that is as good would be behind it by more than one standard error now and then. "
        "The mean regret is how far a method is behind the best of the others, in standard errors of the paired differences (0 if it is ahead), over all cells: "
        + ", ".join(f"{method} {regret[method]:.2f}" for method in sorted(regret, key=regret.get))
        + ".",
        "riboflavin: 71 samples, the 600 of 4088 genes with the largest variance in the training samples (Buehlmann, Kalisch and Meier 2014); eye: 120 rats, 200 "
        "probes, the expression of TRIM32 (Scheetz et al., PNAS 103, 2006); wheat: yield of 599 lines in the first environment, 1279 markers (Crossa et al., "
        "Genetics 186, 2010); diabetes: 442 patients, 64 features with squares and products; colon: 62 tissues, logarithms of intensities, 600 of 2000 genes as for riboflavin (Alon et al. 1999). Columns are scaled to "
        f"deviation one on the outer training samples. Settings: l2 of the relaxed lasso and of abess from {', '.join(f'{l2:g}' for l2 in L2S)} (abess's alpha is "
        f"n l2), l1_ratio of the elastic net from {', '.join(f'{ratio:g}' for ratio in RATIOS)} (0.2, 0.5, 0.9 for classes), gamma of MCP 3 or 10 (10 or 30 for classes, where the curvature is at most a quarter). Lasso and "
        "elastic net are scikit-learn's, for classes skglm's; MCP is skglm's.",
        *([note] if note else []),
    ]  # fmt: skip
    section.headline.append([
        f"prediction on {len(records)} real data sets at h = {', '.join(map(str, AT))} and at the size chosen, against lasso, relaxed lasso, elastic net, MCP, abess",
        f"{OURS}: mean rank {mean_rank[OURS]:.2f} (best peer {best_peer:.2f}); at most one standard error behind the best peer in {met} of "
        f"{len(section.bars) - 1} cells",
    ])  # fmt: skip
    return section


def mean_loss(record, method, size):
    """The mean loss of a method at a size."""
    return np.mean([fold[0] for fold in record["methods"][method][str(size)]])


def add_rows(section, name, record, k, measure, ranks, regrets):
    """The rows and bars of one data set and measure; its ranks and regrets are added to those of each method."""
    label = f"{name}, {measure}"
    sizes = [str(size) for size in (*AT, CHOSEN)]
    methods = record["methods"]
    errors = np.array([[[fold[k] for fold in methods[method][size]] for size in sizes] for method in methods])
    features = [np.mean([fold[-1] for fold in methods[method][CHOSEN]]) for method in methods]
    means = errors.mean(axis=-1)
    places = rankdata(means, axis=0)
    for i, method in enumerate(methods):
        ranks.setdefault(method, []).extend(places[i])
        cells = 1 - means[i] if measure == "R2" else means[i]
        texts = [
            f"**{value:.3f}**" if best else f"{value:.3f}"
            for value, best in zip(cells, places[i] == 1, strict=True)
        ]
        section.rows.append([label, method, *texts, f"{features[i]:.1f}", f"{places[i].mean():.1f}"])
    ours = list(methods).index(OURS)
    peers = [i for i, method in enumerate(methods) if not method.startswith("trimmed")]
    for j, size in enumerate(sizes):
        for i, method in enumerate(methods):
            others = [other for other in range(len(methods)) if other != i]
            behind = errors[i, j] - errors[min(others, key=lambda other: means[other, j]), j]
            error = max(standard_error(behind, record["folds"]), 1e-12)
            regrets.setdefault(method, []).append(max(behind.mean(), 0.0) / error)
        best = min(peers, key=lambda i: means[i, j])
        behind = errors[ours, j] - errors[best, j]
        error = standard_error(behind, record["folds"])
        text = f"{behind.mean():+.3f} +- {error:.3f} ({list(methods)[best]})"
        where = "size chosen" if size == CHOSEN else f"h = {size}"
        section.bar(
            f"{label}, {where}: behind the best peer by at most one standard error",
            text,
            behind.mean() <= error,
        )


def standard_error(differences, folds):
    """Of the mean over repeated folds. Repetitions use the same samples, so they do not make it smaller."""
    return float(np.sqrt(np.mean(differences.reshape(-1, folds).var(axis=1, ddof=1)) / folds))


if __name__ == "__main__":  # the report of the stored measurements
    stored = json.loads(MEASURED.read_text())
    print(drawn(stored["sets"], stored["note"]).markdown())

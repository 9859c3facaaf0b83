"""The folds of real data; and classes that can be separated, where a fit without a ridge has no minimum."""

from __future__ import annotations

import warnings

import numpy as np

from .common import Section, one_thread


def folds_of(y, classes, count, seed):
    """Pairs of training and test samples, shuffled; with the same share of each class if y is of classes."""
    from sklearn.model_selection import KFold, StratifiedKFold

    kind = StratifiedKFold if classes else KFold
    return list(kind(count, shuffle=True, random_state=seed).split(np.zeros((y.size, 1)), y))


def run(quick: bool = False) -> Section:
    """Sizes chosen, errors and log losses on left-out folds of classes that can be separated."""
    one_thread()
    warnings.simplefilter("ignore")
    section = Section(
        "Separable classes",
        "`TrimmedLogisticRegressionCV()` against scikit-learn's `LogisticRegressionCV` with an l1 penalty, ten values of C and log loss, on five "
        "left-out folds of three divisions of colon (62 x 600, as in Prediction) and of one division of simulated classes without noise (60 x 100, "
        "the sign of a sum of k features). The last row is `MEstimatorCV(loss=\"cox\")` on survival times in the order of two features; its scores "
        "are minus the loss of the inner folds. Values of the five folds in turn.",
        ["data", "h", "error", "log loss", "l1: features", "l1: error", "l1: log loss"],
    )  # fmt: skip
    sets = {} if quick else {f"colon, division {seed}": (_colon, seed) for seed in range(3)}
    sets |= {f"{k} features": (_simulated, k) for k in ((1,) if quick else (1, 3))}
    chosen, losses = [], []
    for name, (folds, seed) in sets.items():
        try:
            found = np.array([_compared(*fold) for fold in folds(seed)])
        except FileNotFoundError as missing:
            section.remarks.append(f"Skipped: {missing}")
            continue
        chosen.extend(found[:, 0])
        losses.append(found[:, [2, 5]])
        shown = [
            " ".join(f"{value:.{digits}f}" for value in column)
            for column, digits in zip(found.T, (0, 2, 2) * 2, strict=True)
        ]
        section.rows.append([name, *shown])
    sizes, worst = _survival()
    section.rows.append(
        ["survival", " ".join(map(str, sizes)), "", f"scores at least {worst:.2f}", "", "", ""]
    )
    ours, l1 = np.concatenate(losses).T
    section.bar("no model is empty", f"h at least {min([*chosen, *sizes]):.0f}", min([*chosen, *sizes]) > 0)
    section.bar("log losses are finite", f"at most {ours.max():.2f}", bool(np.isfinite([*ours, worst]).all()))
    section.bar(
        "mean log loss at most that of the l1 penalty",
        f"{ours.mean():.3f}, {l1.mean():.3f}",
        ours.mean() <= l1.mean(),
    )
    return section


def _colon(seed):
    from .prediction import data_of, prepared

    X, y = data_of("colon")
    for train, test in folds_of(y, True, 5, seed):
        Z = prepared(X, train)
        yield Z[train], y[train], Z[test], y[test]


def _simulated(k):
    X = np.random.default_rng(k).standard_normal((60, 100))
    y = (X[:, :k].sum(axis=1) > 0).astype(float)
    for train, test in folds_of(y, True, 5, 0):
        yield X[train], y[train], X[test], y[test]


def _compared(X, y, Z, target):
    """Size, error and log loss on the left-out samples, of ours and of the l1 penalty."""
    from sklearn.linear_model import LogisticRegressionCV
    from sklearn.metrics import log_loss

    from trimreg import TrimmedLogisticRegressionCV

    inner = folds_of(y, True, 5, 0)
    l1 = LogisticRegressionCV(
        Cs=10, cv=inner, penalty="l1", solver="liblinear", scoring="neg_log_loss", random_state=0
    )
    answer = []
    for model in (TrimmedLogisticRegressionCV(cv=inner), l1):
        model.fit(X, y)
        error = np.mean(model.predict(Z) != target)
        loss = log_loss(target, model.predict_proba(Z), labels=model.classes_)
        answer += [np.count_nonzero(model.coef_), error, loss]
    return answer


def _survival():
    """Sizes chosen for survival times in a perfect order, and the lowest score of an inner fold."""
    from trimreg import MEstimatorCV

    sizes, worst = [], np.inf
    for seed in range(5):
        X = np.random.default_rng(seed).standard_normal((40, 10))
        y = np.column_stack([np.exp(-X[:, 0] - X[:, 1]), np.ones(40)])
        model = MEstimatorCV(loss="cox", hs=range(5), cv=3).fit(X, y)
        sizes.append(np.count_nonzero(model.coef_))
        worst = min(worst, model.score_path_[model.best_index_].min())
    return sizes, worst

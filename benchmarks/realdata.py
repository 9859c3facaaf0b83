"""Real data, nested cross-validation: riboflavin (regression) and colon (classification)."""

from __future__ import annotations

import sys
import time
import warnings

import numpy as np

from .common import Section, one_thread

OUTER, INNER = 10, 5
N_ALPHAS = 21
FEW_ALPHAS = 8  # of the trimmed logistic surface, which has no Gram matrix to go by
GAMMAS = (3.0, 10.0)


def run(quick: bool = False) -> Section:
    one_thread()
    outer = 3 if quick else OUTER
    section = Section(
        "Real data",
        f"Nested cross-validation: {outer} outer folds to test, {INNER} inner folds to choose, the same folds for every method; columns are scaled to "
        "deviation one on the outer training samples. +- is one standard error over the outer folds. Seconds are of one outer fold with its inner ones. Trimmed "
        "fits choose h from `hs=\"auto\"`, abess from the same sizes; the lasso and MCP (skglm) choose from "
        f"{N_ALPHAS} alphas, MCP also from gammas 3 and 10.",
        ["data", "method", "test error", "second measure", "variables kept", "seconds a fold"],
    )  # fmt: skip
    try:
        data = {"riboflavin": riboflavin(), "colon": colon()}
    except FileNotFoundError as missing:
        print(missing, file=sys.stderr)
        message = "Skipped: set TRIMREG_DATA to the folder that holds riboflavin.npz and colon.npz."
        print(message, file=sys.stderr)
        section.remarks.append(message)
        return section
    rng = np.random.default_rng(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # convergence warnings at the ends of the grids
        for name, methods, measure in (
            ("riboflavin", regressions(quick), regression_errors),
            ("colon", classifications(quick), classification_errors),
        ):
            X, y, classes = data[name]
            if quick:
                X = X[:, np.sort(rng.choice(X.shape[1], 150, replace=False))]
            nested(section, name, X, y, classes, methods, measure, outer)
    section.remarks.append(
        "riboflavin: 71 samples, 4088 genes; test error is the mean squared error, the second measure the share of the variance explained (of all test samples "
        "together). colon: 62 samples, 2000 genes, logarithms of the intensities; test error is the rate of wrong classes, the second measure the mean "
        "log loss (probabilities kept within 1e-6 of 0 and 1)."
    )
    return section


def riboflavin():
    """``X, y, whether y is of classes``."""
    from trimreg.datasets import load_riboflavin

    X, y, _ = load_riboflavin()
    return np.asfortranarray(X), y, False


def colon():
    """``X, y, whether y is of classes``: logarithms of the intensities; 1 is a tumour."""
    from trimreg.datasets import load_colon

    X, y, _ = load_colon()
    return np.asfortranarray(np.log(X)), (y == "t").astype(float), True


def folds_of(y, classes, count, seed):
    from sklearn.model_selection import KFold, StratifiedKFold

    kind = StratifiedKFold if classes else KFold
    return list(kind(count, shuffle=True, random_state=seed).split(np.zeros((y.size, 1)), y))


def nested(section, name, X, y, classes, methods, measure, outer) -> None:
    """Add a row for every method."""
    from sklearn.preprocessing import StandardScaler

    record = {method: [] for method in methods}
    pooled = {method: np.zeros(y.size) for method in methods}
    for number, (train, test) in enumerate(folds_of(y, classes, outer, seed=0)):
        scaler = StandardScaler().fit(X[train])
        A, B = np.asfortranarray(scaler.transform(X[train])), scaler.transform(X[test])
        inner = folds_of(y[train], classes, INNER, seed=1 + number)
        for method, fit in methods.items():
            if number == 0:
                few = np.arange(40)
                fit(A[:, few], y[train], inner)  # compile
            start = time.perf_counter()
            coef, intercept = fit(A, y[train], inner)
            seconds = time.perf_counter() - start
            prediction = B @ coef + intercept
            pooled[method][test] = prediction
            errors = measure(y[test], prediction)
            record[method].append((*errors, np.count_nonzero(coef), seconds))
        print(f"  {name}: fold {number + 1} of {outer}", file=sys.stderr, flush=True)
    for method, values in record.items():
        values = np.array(values)
        mean, error = values.mean(axis=0), values.std(axis=0, ddof=1) / np.sqrt(outer)
        second = f"{mean[1]:.3f} +- {error[1]:.3f}"
        if not classes:
            second = f"R2 {1 - np.mean((y - pooled[method]) ** 2) / np.var(y):.3f}"
        section.rows.append([
            name, method, f"{mean[0]:.3f} +- {error[0]:.3f}", second, f"{mean[2]:.1f} +- {error[2]:.1f}",
            f"{np.median(values[:, 3]):.2f}",
        ])  # fmt: skip
    best = min(record, key=lambda method: np.mean(record[method], axis=0)[0])
    score, *_ = np.mean(record[best], axis=0)
    section.remarks.append(f"{name}: the lowest test error is that of {best}, {score:.3f}.")


def regression_errors(y, prediction):
    return float(np.mean((y - prediction) ** 2)), 0.0


def classification_errors(y, eta):
    bound = np.log(1e6)
    eta = np.clip(eta, -bound, bound)
    return float(np.mean((eta > 0) != (y > 0.5))), float(np.mean(np.logaddexp(0.0, eta) - y * eta))


# -- methods: X, y, inner folds -> coefficients, intercept ---------------------------------------------------


def regressions(quick: bool) -> dict:
    from abess import LinearRegression
    from sklearn.linear_model import LassoCV

    from trimreg import TrimmedLassoCV

    def trimmed(alphas):
        def fit(X, y, folds):
            model = TrimmedLassoCV(alphas=alphas, cv=folds).fit(X, y)
            return model.coef_, model.intercept_

        return fit

    def lasso(X, y, folds):
        model = LassoCV(cv=folds, alphas=N_ALPHAS, eps=0.01, max_iter=10_000).fit(X, y)
        return model.coef_, model.intercept_

    def abess(X, y, folds):
        model = LinearRegression(cv=INNER, support_size=sizes(X, folds))
        model.fit(X, y, cv_fold_id=fold_numbers(y, folds))
        return model.coef_, model.intercept_

    return {
        'trimmed, alphas="exact"': trimmed("exact"),
        'trimmed, alphas="auto"': trimmed([0.2, 0.1] if quick else "auto"),
        "lasso (scikit-learn)": lasso,
        "MCP (skglm)": mcp_by_hand(logistic=False),
        "best subset (abess)": abess,
    }


def classifications(quick: bool) -> dict:
    from abess import LogisticRegression as AbessLogistic
    from sklearn.linear_model import LogisticRegressionCV

    from trimreg import TrimmedLogisticRegressionCV

    def trimmed(alphas):
        def fit(X, y, folds):
            chosen = alphas
            if alphas == "grid":
                chosen = np.abs(X.T @ (y - y.mean())).max() / y.size * np.geomspace(1.0, 0.05, FEW_ALPHAS)
            model = TrimmedLogisticRegressionCV(alphas=chosen, cv=folds).fit(X, y)
            return model.coef_.ravel(), float(model.intercept_[0])

        return fit

    def lasso(X, y, folds):
        largest = np.abs(X.T @ (y - y.mean())).max()
        model = LogisticRegressionCV(
            Cs=1.0 / (largest * np.geomspace(1.0, 0.01, N_ALPHAS)), cv=folds, l1_ratios=(1.0,), solver="liblinear",
            scoring="neg_log_loss", max_iter=1000, use_legacy_attributes=False,
        ).fit(X, y)  # fmt: skip
        return model.coef_.ravel(), float(model.intercept_[0])

    def abess(X, y, folds):
        model = AbessLogistic(cv=INNER, support_size=sizes(X, folds), cv_score="test_loss")
        model.fit(X, y, cv_fold_id=fold_numbers(y, folds))
        return model.coef_.ravel(), float(np.ravel(model.intercept_)[0])

    return {
        'trimmed, alphas="exact"': trimmed("exact"),
        f"trimmed, {FEW_ALPHAS} alphas": trimmed([0.2, 0.1] if quick else "grid"),
        "lasso (scikit-learn)": lasso,
        "MCP (skglm)": mcp_by_hand(logistic=True),
        "best subset (abess)": abess,
    }


def sizes(X, folds):
    """The sizes that `hs="auto"` goes through."""
    from trimreg.selection import auto_hs

    return auto_hs(min(len(train) for train, _ in folds), X.shape[1], shrunk=True).tolist()


def fold_numbers(y, folds):
    number = np.zeros(y.size, dtype=int)
    for i, (_, test) in enumerate(folds):
        number[test] = i
    return number


def mcp_by_hand(logistic: bool):
    """A fit that chooses alpha and gamma of skglm's MCP on the inner folds, warm-started down the alphas."""
    from skglm import GeneralizedLinearEstimator, MCPRegression
    from skglm.datafits import Logistic
    from skglm.penalties import MCPenalty
    from skglm.solvers import AndersonCD

    def path(X, y, alphas, gamma):
        coefs, intercepts = [], []
        if logistic:
            solver = AndersonCD(max_iter=20, max_epochs=1000, warm_start=True)
            model = GeneralizedLinearEstimator(Logistic(), MCPenalty(alphas[0], gamma), solver)
        else:
            model = MCPRegression(gamma=gamma, warm_start=True, max_iter=20, max_epochs=1000)
        for alpha in alphas:
            if logistic:
                model.penalty = MCPenalty(alpha, gamma)
            else:
                model.alpha = alpha
            model.fit(X, y)
            coefs.append(model.coef_.ravel().copy())
            intercepts.append(float(np.ravel(model.intercept_)[0]))
        return np.array(coefs), np.array(intercepts)

    def errors(X, y, alphas, gamma, train, test):
        coefs, intercepts = path(np.asfortranarray(X[train]), y[train], alphas, gamma)
        eta = coefs @ X[test].T + intercepts[:, None]
        if logistic:
            return np.mean(np.logaddexp(0.0, eta) - y[test] * eta, axis=1)
        return np.mean((y[test] - eta) ** 2, axis=1)

    def fit(X, y, folds):
        alphas = np.abs(X.T @ (y - y.mean())).max() / y.size * np.geomspace(1.0, 0.05, N_ALPHAS)
        table = [np.mean([errors(X, y, alphas, gamma, *fold) for fold in folds], axis=0) for gamma in GAMMAS]
        g, j = np.unravel_index(np.argmin(table), (len(GAMMAS), N_ALPHAS))
        coefs, intercepts = path(X, y, alphas[: j + 1], GAMMAS[g])
        return coefs[-1], intercepts[-1]

    return fit

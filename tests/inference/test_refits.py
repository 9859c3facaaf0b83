"""Coefficients and errors without a penalty: as statsmodels, lifelines and formulas have them."""

import numpy as np
import pytest

from trimreg import TrimmedLasso, TrimmedLogisticRegression
from trimreg.inference import errors_of, refit
from trimreg.inference.base import LIKELIHOODS
from trimreg.inference.refits import fit_columns
from trimreg.losses import get_loss

CLUSTERS = np.arange(120) // 6


@pytest.mark.parametrize("loss", LIKELIHOODS)
@pytest.mark.parametrize("kind", ["model", "robust", "clusters"])
def test_errors_are_those_of_formulas_written_out(make, loss, kind):
    """Newton's steps, scores and Hessians by finite differences of the log-likelihood of each sample."""
    X, y = make(loss)
    n, features = len(y), np.array([0, 1, 3])
    clusters = CLUSTERS if kind == "clusters" else None
    fit = refit(X, y, loss, features, covariance="model" if kind == "model" else "robust", clusters=clusters)
    Z = X[:, features] if loss == "cox" else np.column_stack([X[:, features], np.ones(n)])
    theta = fit.coef if loss == "cox" else np.append(fit.coef, fit.intercept)
    each = {
        "quadratic": lambda e: (y - e) ** 2 / 2,
        "logistic": lambda e: np.log1p(np.exp(e)) - y * e,
        "poisson": lambda e: np.exp(e) - y * e,
        "gamma": lambda e: y * np.exp(-e) + e,
        "cox": lambda e: y[:, 1] * (np.log([np.exp(e[y[:, 0] >= t]).sum() for t in y[:, 0]]) - e),
    }[loss]

    def total(t):
        return each(Z @ t).sum()

    k, step = theta.size, 1e-3
    E = np.eye(k) * step
    gradient = np.array([(total(theta + e) - total(theta - e)) / (2 * step) for e in E])
    assert np.abs(gradient).max() < 1e-3
    H = [[(total(theta + e + f) - total(theta + e - f) - total(theta - e + f) + total(theta - e - f))
          / (4 * step**2) for e in E] for f in E]  # fmt: skip
    inverse = np.linalg.inv(H)
    if loss == "cox":  # Lin and Wei: the change of the score when a sample gets a little more weight
        events = np.flatnonzero(y[:, 1])
        risk = np.exp(Z @ theta)
        means = {i: (risk * (y[:, 0] >= y[i, 0])) @ Z / risk[y[:, 0] >= y[i, 0]].sum() for i in events}
        U = np.zeros((n, k))
        U[events] = [means[i] - Z[i] for i in events]
        share = np.zeros(n)
        for i in events:
            at_risk = y[:, 0] >= y[i, 0]
            part = at_risk * risk / risk[at_risk].sum()
            U += part[:, None] * (Z - means[i])
            share += part
    else:
        moved = [(each(Z @ (theta + e)) - each(Z @ (theta - e))) / (2 * step) for e in E]
        U = np.array(moved).T
        eta = Z @ theta
        share = (each(eta + step) - 2 * each(eta) + each(eta - step)) / step**2
    if kind == "model":
        mean = {"quadratic": Z @ theta, "gamma": np.exp(Z @ theta)}.get(loss, y)
        pearson = ((y - mean) / (mean if loss == "gamma" else 1.0)) ** 2
        expected = inverse * (pearson.sum() / (n - k) if LIKELIHOODS[loss] else 1.0)
    elif kind == "robust":
        z = Z - share @ Z / share.sum() if loss == "cox" else Z
        z = Z - Z.mean(axis=0) if loss == "cox" else z
        U = U / (1 - share * np.einsum("ij,jk,ik->i", z, inverse, z))[:, None]
        expected = inverse @ U.T @ U @ inverse
    else:
        sums = np.array([U[g == CLUSTERS].sum(axis=0) for g in range(20)])
        expected = inverse @ sums.T @ sums @ inverse * 20 / 19 * (n - 1) / (n - k)
    np.testing.assert_allclose(fit.covariance, expected[:3, :3], rtol=2e-3, atol=1e-7)
    assert fit.names == ("x0", "x1", "x3")


@pytest.mark.parametrize("loss", ["quadratic", "logistic", "poisson", "gamma"])
@pytest.mark.parametrize("kind", ["model", "robust", "clusters"])
def test_statsmodels_agrees(make, loss, kind):
    sm = pytest.importorskip("statsmodels.api")
    X, y = make(loss)
    family = {"logistic": sm.families.Binomial, "poisson": sm.families.Poisson}.get(loss)
    if loss == "gamma":
        family = lambda: sm.families.Gamma(sm.families.links.Log())  # noqa: E731
    Z = sm.add_constant(X)
    model = sm.OLS(y, Z) if loss == "quadratic" else sm.GLM(y, Z, family=family())
    fit = refit(X, y, loss, covariance="model" if kind == "model" else "robust",
                clusters=CLUSTERS if kind == "clusters" else None)  # fmt: skip
    found = model.fit() if loss == "quadratic" else model.fit(tol=1e-12)
    np.testing.assert_allclose(fit.coef, found.params[1:], atol=1e-8)
    if kind == "model" and loss != "gamma":  # there statsmodels takes the expected Hessian
        np.testing.assert_allclose(fit.standard_errors, found.bse[1:], rtol=1e-6)
        np.testing.assert_allclose(fit.interval(0.9)[0], found.conf_int(0.1)[1:, 0], rtol=1e-5)
        np.testing.assert_allclose(fit.pvalues, found.pvalues[1:], rtol=1e-4, atol=1e-12)
    if kind == "clusters" and loss != "gamma":
        found = model.fit(cov_type="cluster", cov_kwds={"groups": CLUSTERS})
        np.testing.assert_allclose(fit.standard_errors, found.bse[1:], rtol=1e-5)
    if kind == "robust" and loss == "quadratic":
        found = model.fit(cov_type="HC3", use_t=True)
        np.testing.assert_allclose(fit.standard_errors, found.bse[1:], rtol=1e-8)
        np.testing.assert_allclose(fit.pvalues, found.pvalues[1:], rtol=1e-6, atol=1e-14)


@pytest.mark.filterwarnings("ignore")  # of lifelines with new versions of pandas
def test_lifelines_agrees(make):
    lifelines = pytest.importorskip("lifelines")
    pd = pytest.importorskip("pandas")
    X, y = make("cox")
    frame = pd.DataFrame(X, columns=list("abcd")).assign(time=y[:, 0], event=y[:, 1], cluster=CLUSTERS)
    options = {"duration_col": "time", "event_col": "event"}
    found = lifelines.CoxPHFitter().fit(frame.drop(columns="cluster"), **options)
    fit = refit(X, y, "cox", covariance="model")
    np.testing.assert_allclose(fit.coef, found.params_, rtol=1e-5)
    np.testing.assert_allclose(fit.standard_errors, found.standard_errors_, rtol=1e-5)
    found = lifelines.CoxPHFitter().fit(frame, cluster_col="cluster", **options)
    errors = refit(X, y, "cox", clusters=CLUSTERS).standard_errors / np.sqrt(20 / 19 * 119 / 116)
    np.testing.assert_allclose(errors, found.standard_errors_, rtol=1e-3)
    strata, entry = np.arange(120) % 2, 0.3 * y[:, 0]
    more = {"strata": ["stratum"], "entry_col": "entry"}
    frame = frame.drop(columns="cluster").assign(stratum=strata, entry=entry)
    found = lifelines.CoxPHFitter().fit(frame, **options, **more)
    fit = refit(X, np.column_stack([entry, y, strata]), "cox", covariance="model")
    np.testing.assert_allclose(fit.standard_errors, found.standard_errors_, rtol=1e-5)


def test_nothing_is_claimed_where_samples_determine_nothing():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((20, 25))
    loss = get_loss("logistic")
    y = (X[:, 0] > 0).astype(float)
    for columns in (np.array([0]), np.array([1, 1]), np.arange(25)):  # separated, collinear, too many
        fit = fit_columns(X, y, loss, columns)
        assert (fit.pvalues == 1).all()
        assert np.isinf(fit.interval()).all()


def test_errors_of_a_selection_are_labeled(make):
    X, y = make(p=12)
    model = TrimmedLasso(h=2).fit(X, y)
    fit = errors_of(model, X, y)
    np.testing.assert_allclose(fit.coef, model.coef_[model.support_], rtol=1e-5)
    np.testing.assert_allclose(fit.covariance, refit(X, y, features=model.support_).covariance)
    assert "too small if the selection used the same data" in str(fit.summary())
    words = np.where(y > 0, "up", "down")
    fit = errors_of(TrimmedLogisticRegression(h=2).fit(X, words), X, words, clusters=CLUSTERS)
    assert fit.coef.size == 2


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"loss": "huber"}, "loss must be one with a likelihood"),
        ({"loss": ["quadratic"]}, "loss must be one with a likelihood"),
        ({"features": [0, 4]}, "features must be distinct columns from 0 to 3"),
        ({"features": [1, 1]}, "features must be distinct"),
        ({"features": ["a"]}, "features must be columns of X; 'a' is none"),
        ({"covariance": "HC9"}, "covariance"),
        ({"clusters": np.arange(119)}, "clusters must have one label per sample, 120"),
        ({"clusters": np.zeros(120)}, "clusters must have at least two"),
        ({"y": np.arange(120) % 3, "loss": "logistic"}, "two classes"),
        ({"X": np.zeros((5, 2)), "y": np.zeros(5)}, "n_samples=5"),
    ],
)
def test_bad_input_is_named(make, change, match):
    X, y = make()
    with pytest.raises(ValueError, match=match):
        refit(**{"X": X, "y": y, **change})
    with pytest.raises(ValueError, match="model must be a fitted"):
        errors_of(TrimmedLasso(), X, y)

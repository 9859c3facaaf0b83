"""Multi-split: against its definition written out, its promises in simulations, scikit-learn's checks."""

import numpy as np
import pandas as pd
import pytest
from joblib import parallel_config
from sklearn.linear_model import Lasso
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import check_estimator

from trimreg import TrimmedLasso
from trimreg.inference import MultiSplit, adaptive_quantile, refit
from trimreg.selection.stability import complementary_pairs


def draw(n=120, p=30, seed=0, size=0.8):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, p))
    return X, size * (X[:, 0] - X[:, 1]) + rng.standard_normal(n)


def test_it_is_its_definition():
    X, y = draw()
    model = MultiSplit(estimator=TrimmedLasso(h=4), n_splits=6, random_state=3).fit(X, y)
    halves = complementary_pairs(120, 6, np.random.default_rng(3))
    expected = np.ones((6, 30))
    for b, (one, other) in enumerate(zip(halves[::2], halves[1::2], strict=True)):
        S = TrimmedLasso(h=4).fit(X[one], y[one]).support_
        fit = refit(X[other], y[other], features=S, covariance="model")
        expected[b, S] = np.minimum(4 * fit.pvalues, 1)
        np.testing.assert_allclose(model.split_coefs_[b, S], fit.coef)
        np.testing.assert_allclose(model.split_errors_[b, S], fit.standard_errors)
    np.testing.assert_allclose(model.split_pvalues_, expected)
    np.testing.assert_allclose(model.pvalues_, adaptive_quantile(expected))
    np.testing.assert_array_equal(model.support_, model.pvalues_ <= 0.05)
    assert model.get_support(indices=True).tolist() == [0, 1]
    assert model.coef_[0] == np.nanmedian(model.split_coefs_[:, 0])
    low, high = model.interval(0.9)
    wide = model.interval(0.99)
    assert low[0] < 0.8 < high[0]
    assert wide[0][0] < low[0] < high[0] < wide[1][0]
    assert np.isinf(low[model.frequencies_ == 0]).all()


def test_one_split_is_a_refit():
    X, y = draw()
    model = MultiSplit(estimator=TrimmedLasso(h=3), n_splits=1, covariance="robust").fit(X, y)
    one, other = complementary_pairs(120, 1, np.random.default_rng(0))
    S = TrimmedLasso(h=3).fit(X[one], y[one]).support_
    fit = refit(X[other], y[other], features=S)
    np.testing.assert_allclose(np.array(model.interval())[:, S], fit.interval(), rtol=1e-10)
    np.testing.assert_allclose(model.pvalues_[S], np.minimum(3 * fit.pvalues, 1))


def test_mistakes_are_rare_and_signals_are_found():
    wrong, found = 0, 0
    for seed in range(10):
        X, y = draw(seed=seed)
        kept = MultiSplit(n_splits=8, q=0.2, random_state=seed).fit(X, y).support_
        wrong += kept[2:].any()
        found += kept[:2].sum()
    assert wrong <= 4  # 2 are expected at most
    assert found >= 18


def test_fdr_keeps_less_than_fwer_of_few():
    X, y = draw()
    families, shares = (MultiSplit(n_splits=10, control=c).fit(X, y).pvalues_ for c in ("fwer", "fdr"))
    assert (shares[:2] < 0.05).all()
    assert (shares[families == 1] == 1).all()


@pytest.mark.parametrize("loss", ["logistic", "poisson", "gamma", "cox"])
def test_other_losses(make, loss):
    X, y = make(loss, n=240, p=6)
    model = MultiSplit(loss, n_splits=6).fit(X, y)
    assert (model.pvalues_[:2] < 0.05).all()
    assert (model.coef_[:2] * [1, -1] > 0.3).all()
    assert not model.support_[2:].any()


def test_survival_in_strata(make):
    X, y = make("cox", n=240, p=6)
    strata = np.arange(240) % 3
    y[:, 0] *= 10.0**strata
    model = MultiSplit("cox", n_splits=6).fit(X, np.column_stack([-np.ones(240), y, strata]))
    assert (model.pvalues_[:2] < 0.05).all()
    y[strata == 2, 1] = np.arange(80) < 2
    with pytest.raises(ValueError, match="strata must have three events each"):
        MultiSplit("cox", n_splits=6).fit(X, np.column_stack([-np.ones(240), y, strata]))


def test_words_names_and_pipelines():
    X, y = draw(n=160, size=2.0)
    frame = pd.DataFrame(X, columns=[f"f{j}" for j in range(30)])
    words = np.where(y > 0, "up", "down")
    model = MultiSplit("logistic", n_splits=4).fit(frame, words)
    assert list(model.get_feature_names_out()) == ["f0", "f1"]
    assert model.summary().names[:2] in (["f0", "f1"], ["f1", "f0"])
    assert "control: fwer 0.05" in str(model.summary())
    pipe = make_pipeline(MultiSplit(estimator=Lasso(alpha=0.3), n_splits=4), TrimmedLasso(h=1)).fit(X, y)
    assert pipe[-1].n_features_in_ == 2


def test_jobs_and_seeds(capsys):
    X, y = draw(n=40, p=5)
    one = MultiSplit(n_splits=3).fit(X, y)
    with parallel_config("threading"):
        two = MultiSplit(n_splits=3, n_jobs=2, verbose=2).fit(X, y)
    np.testing.assert_array_equal(one.split_pvalues_, two.split_pvalues_)
    assert capsys.readouterr().err.splitlines() == [f"splits: {k}/3" for k in (1, 2, 3)]
    assert not np.array_equal(
        MultiSplit(n_splits=3, random_state=1).fit(X, y).split_pvalues_, one.split_pvalues_
    )


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"n_splits": 0}, "n_splits"), ({"n_splits": 2.5}, "n_splits"), ({"q": 0}, "q must be"),
        ({"q": 1.5}, "q must be in"),
        ({"gamma_min": 1.0}, "gamma_min"), ({"control": "bonferroni"}, "control"),
        ({"covariance": "HC0"}, "covariance"), ({"loss": "multinomial"}, "loss must be"),
        ({"random_state": "a"}, "random_state"), ({"n": 7}, "n_samples=7"), ({"loss": "poisson"}, "y must"),
    ],
)  # fmt: skip
def test_bad_input_is_named(settings, match):
    X, y = draw(n=settings.pop("n", 20), p=3)
    with pytest.raises(ValueError, match=match):
        MultiSplit(**settings).fit(X, y)


def test_bad_confidence_is_named():
    model = MultiSplit(n_splits=2).fit(*draw(n=40, p=3))
    with pytest.raises(ValueError, match="confidence"):
        model.interval(1.0)


@pytest.mark.filterwarnings("ignore:No features were selected:UserWarning")
def test_check_estimator():
    results = check_estimator(MultiSplit(n_splits=2), on_skip=None, on_fail=None)
    failed = {r["check_name"]: r["exception"] for r in results if r["status"] not in ("passed", "skipped")}
    assert failed == {}

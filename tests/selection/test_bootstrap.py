"""The bootstrap: weights for repetitions, the same for any number of jobs, on X wherever it lies."""

import numpy as np
import pytest
import scipy.sparse as sp
from joblib import parallel_config
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import Lars, Lasso
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

from trimreg import (
    Bootstrap,
    MultiTaskTrimmedLasso,
    TrimmedLasso,
    TrimmedLogisticRegression,
    TrimmedPoissonRegressor,
)
from trimreg.designs.far.rows import ArrayRows
from trimreg.selection.bootstrap import draw_counts
from trimreg.selection.resampling import coefficients


@pytest.fixture
def data():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((80, 12)) * np.geomspace(0.1, 10.0, 12) + 1.0
    y = 3.0 * X[:, 2] / X[:, 2].std() - 2.0 * X[:, 7] / X[:, 7].std() + rng.standard_normal(80)
    return X, y


def seeds_of(random_state, count):
    return np.random.default_rng(random_state).integers(2**31, size=count + 1)


# -- draws --------------------------------------------------------------------------------------------------


def test_draws_are_multinomial():
    members = np.array([0, 2, 3, 5])
    counts = np.array([draw_counts(members, 6, np.random.default_rng(seed)) for seed in range(4000)])
    assert (counts.sum(axis=1) == 4).all()
    assert (counts[:, [1, 4]] == 0).all()
    inside = counts[:, members]
    assert inside.mean(axis=0) == pytest.approx(np.ones(4), abs=0.06)
    assert inside.var(axis=0) == pytest.approx(np.full(4, 0.75), abs=0.06)  # n q (1 - q)
    assert np.cov(inside.T)[0, 1] == pytest.approx(-0.25, abs=0.05)  # -n q^2


def test_every_class_is_drawn():
    classes = np.array([0] * 9 + [1])
    members = np.arange(10)
    free = [draw_counts(members, 10, np.random.default_rng(seed))[9] for seed in range(50)]
    held = [draw_counts(members, 10, np.random.default_rng(seed), classes)[9] for seed in range(50)]
    assert min(free) == 0  # what is guarded against does happen
    assert min(held) > 0
    for a, b in zip(free, held, strict=True):
        assert a == b or a == 0  # only draws without the class are drawn again


def test_a_class_that_is_never_drawn_is_refused(monkeypatch):
    monkeypatch.setattr("trimreg.selection.bootstrap._TRIES", 2)

    class Stuck:
        def integers(self, high, size):
            return np.zeros(size, dtype=int)

    with pytest.raises(ValueError, match="y must have more samples of its rarest class"):
        draw_counts(np.arange(4), 4, Stuck(), np.array([0, 0, 0, 1]))


# -- replicates ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "model",
    [
        TrimmedLasso(h=2),
        TrimmedLasso(h=1, alpha=0.2, standardize=False),
        TrimmedLogisticRegression(h=2),
        TrimmedPoissonRegressor(h=2),
        make_pipeline(StandardScaler(), Lasso(alpha=0.1)),
    ],
    ids=["exact", "soft", "logistic", "poisson", "pipeline"],
)
def test_a_replicate_is_a_fit_to_resampled_rows(data, model):
    """Weights stand for repetitions: a plain loop over copied rows gives the same coefficients."""
    X, y = data
    if isinstance(model, TrimmedLogisticRegression):
        y = np.where(y + np.random.default_rng(1).logistic(size=80) * 3 > y.mean(), "yes", "no")
    elif isinstance(model, TrimmedPoissonRegressor):
        y = np.random.default_rng(1).poisson(np.exp(0.2 * y - 1)).astype(float)
    count = 4
    boot = Bootstrap(model, n_replicates=count, random_state=3).fit(X, y)
    classes = y if isinstance(model, TrimmedLogisticRegression) else None
    for k, seed in enumerate(seeds_of(3, count)[:-1]):
        counts = draw_counts(np.arange(80), 80, np.random.default_rng(seed), classes)
        rows = np.repeat(np.arange(80), counts)
        if hasattr(model, "steps"):  # a scaler before the model sees all rows, not the draw
            fit = model.fit(X, y, lasso__sample_weight=counts)
        else:
            fit = model.set_params(random_state=int(seed)).fit(X[rows], y[rows])
            model.set_params(random_state=None)
        coef, intercept = coefficients(fit, 12)
        assert boot.coefs_[k] == pytest.approx(coef, rel=1e-5, abs=1e-7)
        assert boot.intercepts_[k] == pytest.approx(intercept, rel=1e-5, abs=1e-6)


def test_what_is_made_of_the_coefficients(data):
    X, y = data
    boot = Bootstrap(TrimmedLasso(h=3), n_replicates=30).fit(X, y)
    assert boot.coefs_.shape == (30, 12)
    assert boot.intercepts_.shape == (30,)
    assert boot.frequencies_ == pytest.approx(np.count_nonzero(boot.coefs_, axis=0) / 30)
    assert boot.frequencies_[[2, 7]].tolist() == [1.0, 1.0]
    assert boot.frequencies_.sum() == pytest.approx(3.0)
    assert boot.standard_errors_ == pytest.approx(np.std(boot.coefs_, axis=0, ddof=1))
    low, high = boot.interval(0.8)
    assert low == pytest.approx(np.quantile(boot.coefs_, 0.1, axis=0))
    assert high == pytest.approx(np.quantile(boot.coefs_, 0.9, axis=0))
    whole = TrimmedLasso(h=3).fit(X, y)
    assert boot.estimator_.coef_ == pytest.approx(whole.coef_)


def test_standard_errors_are_those_of_least_squares():
    """With the model known, the spread of the coefficients is the textbook's."""
    rng = np.random.default_rng(5)
    X = rng.standard_normal((400, 3))
    y = X @ [1.0, 2.0, -1.0] + rng.standard_normal(400)
    boot = Bootstrap(TrimmedLasso(h=3), n_replicates=150).fit(X, y)
    assert boot.standard_errors_ == pytest.approx(np.full(3, 0.05), rel=0.25)


def test_jobs_do_not_matter(data):
    X, y = data
    settings = {"estimator": TrimmedLasso(h=3), "n_replicates": 6, "random_state": 7}
    one = Bootstrap(**settings).fit(X, y)
    with parallel_config("threading"):
        two = Bootstrap(n_jobs=2, **settings).fit(X, y)
    assert np.array_equal(one.coefs_, two.coefs_)
    other = Bootstrap(**settings | {"random_state": 8}).fit(X, y)
    assert not np.array_equal(one.coefs_, other.coefs_)
    longer = Bootstrap(**settings | {"n_replicates": 9}).fit(X, y)
    assert longer.coefs_.shape[0] == 9


def test_weights(data):
    """A sample of weight 0 is not there; one of weight 2 keeps it in every draw it is in."""
    X, y = data
    weight = np.ones(80)
    weight[:5] = 0.0
    y = y.copy()
    y[:5] = 1e6
    settings = {"estimator": TrimmedLasso(h=2), "n_replicates": 5}
    boot = Bootstrap(**settings).fit(X, y, sample_weight=weight)
    without = Bootstrap(**settings).fit(X[5:], y[5:])
    assert boot.coefs_ == pytest.approx(without.coefs_, rel=1e-6, abs=1e-9)
    weight[5:] = np.linspace(0.5, 2.0, 75)
    heavy = Bootstrap(**settings).fit(X, y, sample_weight=weight)
    counts = draw_counts(np.arange(5, 80), 80, np.random.default_rng(seeds_of(0, 5)[0]))
    fit = TrimmedLasso(h=2).fit(X, y, sample_weight=weight * counts)
    assert heavy.coefs_[0] == pytest.approx(fit.coef_)
    assert heavy.estimator_.coef_ == pytest.approx(TrimmedLasso(h=2).fit(X, y, sample_weight=weight).coef_)


def test_far_and_sparse_data_give_the_same(data):
    X, y = data
    settings = {"estimator": TrimmedLasso(h=2), "n_replicates": 4}
    near = Bootstrap(**settings).fit(X, y)
    rows = ArrayRows(X, block_rows=17)
    far = Bootstrap(**settings).fit(rows, y)
    assert far.coefs_ == pytest.approx(near.coefs_, rel=1e-8, abs=1e-10)
    assert rows.passes <= 5 * 6
    sparse = Bootstrap(**settings).fit(sp.csr_array(X), y)
    assert sparse.coefs_ == pytest.approx(near.coefs_, rel=1e-8, abs=1e-10)


def test_several_outputs():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 6))
    Y = X[:, [1, 4]] @ [[2.0, -1.0], [1.0, 3.0]] + 0.3 * rng.standard_normal((60, 2))
    boot = Bootstrap(MultiTaskTrimmedLasso(h=2), n_replicates=5).fit(X, Y)
    assert boot.coefs_.shape == (5, 2, 6)
    assert boot.intercepts_.shape == (5, 2)
    assert boot.frequencies_.tolist() == [0, 1, 0, 0, 1, 0]
    assert boot.interval()[0].shape == (2, 6)
    table = boot.summary().to_dict()
    assert len(boot.summary()) == 2
    assert "x4" in str(table)


# -- the table ----------------------------------------------------------------------------------------------


def test_summary(data):
    pd = pytest.importorskip("pandas")
    X, y = data
    names = [f"gene {j}" for j in range(12)]
    boot = Bootstrap(TrimmedLasso(h=3), n_replicates=20).fit(pd.DataFrame(X, columns=names), y)
    frame = boot.summary(confidence=0.9).to_frame()
    assert list(frame.columns) == ["coef", "std error", "5 %", "95 %", "frequency"]
    assert list(frame.index[:2]) in (["gene 2", "gene 7"], ["gene 7", "gene 2"])
    assert (np.diff(frame["frequency"]) <= 0).all()
    assert len(frame) == np.count_nonzero((boot.frequencies_ > 0) | (boot.estimator_.coef_ != 0))
    low, high = boot.interval(0.9)
    assert frame.loc["gene 2", "coef"] == pytest.approx(boot.estimator_.coef_[2])
    assert frame.loc["gene 2", ["5 %", "95 %"]].tolist() == pytest.approx([low[2], high[2]])
    text = str(boot.summary(max_rows=1))
    assert "replicates: 20" in text
    assert "more" in text


# -- what is refused ----------------------------------------------------------------------------------------


def test_bad_input(data):
    X, y = data
    for count in (1, 0, 2.5, "many", None):
        with pytest.raises(ValueError, match="n_replicates must be an integer >= 2"):
            Bootstrap(n_replicates=count).fit(X, y)
    with pytest.raises(ValueError, match="estimator must take sample_weight in fit; Lars does not"):
        Bootstrap(Lars()).fit(X, y)
    for nothing in (3, Lars):
        with pytest.raises(TypeError, match="estimator must be an object with a method fit; got"):
            Bootstrap(nothing).fit(X, y)
    with pytest.raises(ValueError, match="Lasso needs X in memory, and X is an ArrayRows"):
        Bootstrap(Lasso(), n_replicates=2).fit(ArrayRows(X, 10), y)
    with pytest.raises(ValueError, match="y must have one entry per sample, 80 in all; got 79"):
        Bootstrap(n_replicates=2).fit(ArrayRows(X, 10), y[1:])
    with pytest.raises(ValueError, match="sample_weight must have shape"):
        Bootstrap(n_replicates=2).fit(X, y, sample_weight=np.ones(3))
    with pytest.raises(NotFittedError):
        Bootstrap().interval()
    boot = Bootstrap(TrimmedLasso(h=2), n_replicates=2).fit(X, y)
    for confidence in (0.0, 1.0, 95, "high", None, np.nan):
        with pytest.raises(ValueError, match=r"confidence must be a number in \(0, 1\)"):
            boot.interval(confidence)


def test_a_failure_leaves_nothing(data):
    X, y = data

    class Failing(TrimmedLasso):
        def fit(self, X, y, sample_weight=None):
            if sample_weight is not None:
                raise KeyboardInterrupt
            return super().fit(X, y)

    boot = Bootstrap(Failing(h=2), n_replicates=2)
    with pytest.raises(KeyboardInterrupt):
        boot.fit(X, y)
    assert [name for name in vars(boot) if name.endswith("_")] == []


def test_check_estimator():
    results = check_estimator(Bootstrap(TrimmedLasso(h=1), n_replicates=2), on_skip=None, on_fail=None)
    failed = [one["check_name"] for one in results if one["status"] == "failed"]
    assert failed == []


def test_standard_errors_of_huge_coefficients(data):
    X, y = data[:2]
    boots = [Bootstrap(TrimmedLasso(h=2), n_replicates=3).fit(X * unit, y) for unit in (1.0, 1e-200)]
    np.testing.assert_allclose(boots[1].standard_errors_, boots[0].standard_errors_ * 1e200)

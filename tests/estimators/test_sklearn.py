"""The scikit-learn side: its own checks, containers, and the tools that estimators go into."""

import pickle

import numpy as np
import pandas as pd
import pytest
from sklearn import config_context
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.feature_selection import SelectFromModel
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

from trimreg import (
    MCP,
    SCAD,
    SLOPE,
    MEstimator,
    MultiTaskTrimmedLasso,
    TrimmedCoxRegressor,
    TrimmedGammaRegressor,
    TrimmedGraphicalLasso,
    TrimmedGroupLasso,
    TrimmedHuberRegressor,
    TrimmedL1,
    TrimmedLasso,
    TrimmedLogisticRegression,
    TrimmedNegativeBinomialRegressor,
    TrimmedOrdinalRegression,
    TrimmedPoissonRegressor,
    TrimmedQuantileRegressor,
)

# The only skip: the check wants the environment variable SCIPY_ARRAY_API set before SciPy is imported, a
# choice for the whole process that is not a test's to make. With the variable set it passes.
SKIPPED = {"check_array_api_input"}

# By Efron a repeated sample is a tie among events, which a weight of two is not; R's coxph has the same.
# Breslow does not tell the two apart. Samples that may be left out are counted, whatever they weigh.
WEIGHTS_ARE_NOT_REPETITIONS = {
    "check_sample_weight_equivalence_on_dense_data",
    "check_sample_weight_equivalence_on_sparse_data",
}


class RoundedNegativeBinomial(TrimmedNegativeBinomialRegressor):
    """It refuses what is not a count, and the targets of the checks are not."""

    def _target(self, y, sample_weight):
        numbers = np.asarray(y)
        return (np.round(numbers) if numbers.dtype.kind == "f" else y), sample_weight

    def score(self, X, y):
        return super().score(X, np.round(y))


# Solvers and penalties are behind the checked interface: tests/estimators/test_models.py has them all.
MODELS = [
    TrimmedPoissonRegressor(),
    TrimmedGammaRegressor(),
    TrimmedGammaRegressor(alpha=0.1, positive=True, solver="prox"),
    TrimmedHuberRegressor(),
    RoundedNegativeBinomial(alpha=0.1),
    TrimmedOrdinalRegression(),
    TrimmedQuantileRegressor(),
    TrimmedGroupLasso(),
    TrimmedGroupLasso(alpha=0.1, q=np.inf),
    MultiTaskTrimmedLasso(solver="prox"),
    MultiTaskTrimmedLasso(alpha=0.1, warm_start=True),
    TrimmedLogisticRegression(effort="low"),
    TrimmedLogisticRegression(h=0.9, alpha=0.05, class_weight="balanced"),  # so that scores are checked
    TrimmedCoxRegressor(ties="breslow"),
    TrimmedCoxRegressor(ties="breslow", alpha=0.1, positive=True),
    MEstimator(penalty=SLOPE(), alpha=0.1, solver="prox"),
]

ESTIMATORS = [
    TrimmedLasso(),
    TrimmedLasso(alpha=0.1, effort="low", lower=-1.0, upper=2.0),
    TrimmedLasso(effort="high", warm_start=True),
    TrimmedLasso(solver="prox"),
    MEstimator(penalty="trimmed_l1", alpha="exact"),
    MEstimator(penalty="mcp", alpha=0.1, solver="prox"),
    MEstimator(penalty=TrimmedL1(h=1), alpha=0.1, standardize=True, solver_options={"effort": "high"}),
]

GRAPHS = [
    TrimmedGraphicalLasso(),
    TrimmedGraphicalLasso(kind="spearman"),
    TrimmedGraphicalLasso(kind="kendall", warm_start=True),
    TrimmedGraphicalLasso(scores="npn"),
    TrimmedGraphicalLasso(penalty="mcp", alpha=0.1),
    TrimmedGraphicalLasso(h=0.5, alpha=0.1, standardize=True, assume_centered=True),
]


def failures(estimator, at_least=45):
    """The checks of scikit-learn that fail, with their exceptions."""
    results = check_estimator(estimator, on_skip=None, on_fail=None)
    assert {r["check_name"] for r in results if r["status"] == "skipped"} <= SKIPPED
    assert len(results) >= at_least
    return {r["check_name"]: r["exception"] for r in results if r["status"] not in ("passed", "skipped")}


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=repr)
def test_check_estimator(estimator):
    assert failures(estimator) == {}


@pytest.mark.parametrize("estimator", MODELS, ids=repr)
def test_check_estimator_of_every_model(estimator):
    assert set(failures(estimator)) == set()


@pytest.mark.parametrize("estimator", GRAPHS, ids=repr)
def test_check_estimator_of_graphs(estimator):
    assert failures(estimator, at_least=40) == {}  # fewer of them, for there is no y


@pytest.mark.parametrize(
    "estimator", [TrimmedCoxRegressor(), TrimmedLasso(n_outliers=1, effort="low")], ids=repr
)
def test_check_estimator_where_weights_are_not_repetitions(estimator):
    assert set(failures(estimator)) == WEIGHTS_ARE_NOT_REPETITIONS


@pytest.fixture
def frame(make_data):
    data = make_data(n=60, p=6)
    return pd.DataFrame(data.X, columns=[f"x{j}" for j in range(6)]), pd.Series(data.y, index=range(100, 160))


def test_names_in_and_out(frame):
    X, y = frame
    model = TrimmedLasso(h=3).fit(X, y)
    assert list(model.feature_names_in_) == list(X.columns)
    assert model.n_features_in_ == 6
    np.testing.assert_array_equal(model.coef_, TrimmedLasso(h=3).fit(X.to_numpy(), y.to_numpy()).coef_)
    with pytest.raises(ValueError, match="feature names"):
        model.predict(X.rename(columns={"x0": "other"}))


def test_select_from_model_gives_frames(frame):
    X, y = frame
    selector = SelectFromModel(TrimmedLasso(h=3)).set_output(transform="pandas").fit(X, y)
    kept = selector.transform(X)
    assert isinstance(kept, pd.DataFrame)
    assert list(kept.columns) == ["x0", "x1", "x2"]
    assert list(selector.get_feature_names_out()) == ["x0", "x1", "x2"]


def test_pipeline_grid_search_and_cross_validation(frame):
    X, y = frame
    pipeline = make_pipeline(StandardScaler(), TrimmedLasso())
    search = GridSearchCV(pipeline, {"trimmedlasso__h": [0, 1, 2, 3]}, cv=3).fit(X, y)
    assert search.best_params_ == {"trimmedlasso__h": 3}
    assert search.best_score_ > 0.9
    scores = cross_val_score(MEstimator(penalty=MCP(), alpha=0.1), X, y, cv=3)
    assert scores.min() > 0.8
    penalties = {"penalty": [TrimmedL1(1), TrimmedL1(3), SCAD()]}
    assert GridSearchCV(MEstimator(alpha=0.1), penalties, cv=3).fit(X, y).best_score_ > 0.9


@pytest.mark.parametrize(
    "model",
    [TrimmedLasso(h=2, random_state=3), MEstimator(penalty=SCAD(gamma=4.0), alpha=0.2, positive=True)],
    ids=repr,
)
def test_clone_pickle_and_representations(model, frame):
    X, y = frame
    fitted = clone(model).fit(X, y)
    with pytest.raises(NotFittedError):
        clone(fitted).predict(X)
    again = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(again.predict(X), fitted.predict(X))
    assert again.result_.message == fitted.result_.message
    with config_context(print_changed_only=False):
        assert "fit_intercept=True" in repr(model)
    assert type(model).__name__ in fitted._repr_html_()


def test_fit_leaves_parameters_and_data_alone(frame):
    X, y = frame
    factor = [1.0, 1.0, 1.0, 0.0, 1.0, np.inf]
    model = TrimmedLasso(h=0.5, penalty_factor=factor)
    before, copy = model.get_params(), X.copy()
    model.fit(X, y, sample_weight=np.ones(60))
    assert all(model.get_params()[name] is value for name, value in before.items())
    pd.testing.assert_frame_equal(X, copy)


def test_fitted_attributes_are_those_of_the_result(frame):
    X, y = frame
    model = TrimmedLasso(h=2).fit(X, y)
    result = model.result_
    assert model.coef_ is result.coef
    assert model.intercept_ == result.intercept
    assert model.objective_ == result.objective
    assert model.stationarity_ == result.stationarity
    assert model.alpha_ == result.alpha
    assert model.n_iter_ == result.n_iter == len(result.history["objective"])
    np.testing.assert_array_equal(model.trim_weights_, result.weights)
    np.testing.assert_array_equal(model.support_, np.flatnonzero(model.coef_))
    np.testing.assert_array_equal(np.flatnonzero(model.trim_weights_ == 0), model.support_)


def test_h_by_default_is_a_tenth_of_the_features(make_data):
    data = make_data(n=60, p=35)
    assert TrimmedLasso().fit(data.X, data.y).support_.size == 3
    assert TrimmedLasso().fit(data.X[:, :4], data.y).support_.size == 1
    assert TrimmedLasso(h=0.2).fit(data.X, data.y).support_.size == 7


def test_warm_start_goes_on_from_the_last_fit(make_data):
    data = make_data(n=50, p=20)
    settings = {"h": 5, "alpha": 0.05, "solver": "prox"}
    cold = TrimmedLasso(**settings).fit(data.X, data.y)
    warm = TrimmedLasso(**settings, warm_start=True).fit(data.X, data.y)
    first = warm.n_iter_
    assert first == cold.n_iter_
    warm.fit(data.X, data.y)
    assert warm.n_iter_ == 1 < first
    np.testing.assert_allclose(warm.coef_, cold.coef_, atol=1e-5)
    warm.fit(data.X[:, :7], data.y)  # other features: nothing to start from
    assert warm.coef_.size == 7

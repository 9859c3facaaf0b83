"""Every estimator on X that is not in memory: the same fit, the same predictions, and clear refusals."""

import numpy as np
import pytest
from sklearn.base import clone, is_classifier

from trimreg import (
    MEstimator,
    MultiTaskTrimmedLasso,
    TrimmedCoxRegressor,
    TrimmedGammaRegressor,
    TrimmedGraphicalLasso,
    TrimmedGraphicalLassoCV,
    TrimmedGroupLasso,
    TrimmedHuberRegressor,
    TrimmedL1,
    TrimmedLasso,
    TrimmedLogisticRegression,
    TrimmedPoissonRegressor,
    solve,
    steps,
)
from trimreg.designs.far.rows import ArrayRows

N, P = 120, 10


def matrix(seed=0, dtype=float):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((N, P)) * np.geomspace(0.2, 5.0, P) + np.linspace(-2.0, 2.0, P)
    X[:, 4] = 1.0  # constant
    return X.astype(dtype)


def target_for(model, X):
    rng = np.random.default_rng(1)
    Z = (X - X.mean(axis=0)) / np.maximum(X.std(axis=0), 1e-9)
    eta = Z[:, 2] - 0.8 * Z[:, 7] + 0.2
    name = type(model).__name__
    if name == "TrimmedLogisticRegression":
        return np.where(2 * eta + rng.logistic(size=N) > 0, "yes", "no")
    if name == "TrimmedPoissonRegressor":
        return rng.poisson(np.exp(eta)).astype(float)
    if name == "TrimmedGammaRegressor":
        return rng.gamma(3.0, np.exp(eta) / 3.0) + 1e-3
    if name == "TrimmedCoxRegressor":
        return np.column_stack([rng.exponential(np.exp(eta)), rng.random(N) < 0.8])
    if name == "MultiTaskTrimmedLasso":
        return np.column_stack([eta, -eta, Z[:, 7]]) + 0.1 * rng.standard_normal((N, 3))
    return eta + 0.3 * rng.standard_normal(N)


MODELS = [
    TrimmedLasso(h=2),
    TrimmedLasso(h=2, alpha=0.1, standardize=False),
    TrimmedLasso(h=2, fit_intercept=False),
    TrimmedGroupLasso(h=1, groups=[0, 0, 1, 1, 2, 2, 3, 3, 4, 4]),
    MultiTaskTrimmedLasso(h=2),
    TrimmedLogisticRegression(h=2),
    TrimmedPoissonRegressor(h=2),
    TrimmedGammaRegressor(h=2, alpha=0.05),
    TrimmedHuberRegressor(h=2),
    TrimmedCoxRegressor(h=2),
    MEstimator(penalty="mcp", alpha=0.1, standardize=True),
    MEstimator(penalty=TrimmedL1(2), alpha=0.2, solver="bcd", standardize=True),
]


@pytest.mark.parametrize("dtype", [float, np.float32])
@pytest.mark.parametrize("model", MODELS, ids=lambda model: repr(model)[:60])
def test_the_same_fit_and_predictions(model, dtype):
    X = matrix(dtype=dtype)
    y = target_for(model, X.astype(float))
    near, far, rows = clone(model).fit(X, y), clone(model), ArrayRows(X, block_rows=37)
    far.fit(rows, y)
    scale = float(np.max(np.abs(near.coef_)))
    assert far.coef_.dtype == near.coef_.dtype == dtype
    assert far.coef_ == pytest.approx(near.coef_, abs=(1e-6 if dtype is float else 1e-5) * scale)
    assert np.array_equal(far.support_, near.support_)
    assert far.n_features_in_ == P
    assert far.result_.converged
    assert np.sqrt(far.stationarity_) <= 1e-5 + 10 * np.sqrt(near.stationarity_)
    assert np.array_equal(far.entry_order_, near.entry_order_)

    where = ArrayRows(X, block_rows=50)
    if is_classifier(model):
        assert np.array_equal(near.predict(X), near.predict(where))
        for method in ("decision_function", "predict_proba", "predict_log_proba"):
            assert getattr(near, method)(where) == pytest.approx(getattr(near, method)(X), rel=1e-4, abs=1e-5)
    else:
        assert near.predict(where) == pytest.approx(near.predict(X), rel=1e-4, abs=1e-5)
        assert near.predict(where).dtype == near.predict(X).dtype
    assert where.passes == (4 if is_classifier(model) else 2)  # a prediction is one pass
    assert near.score(where, y) == pytest.approx(near.score(X, y), rel=1e-4)


def test_solve_and_steps():
    X = matrix()
    y = target_for(TrimmedLasso(), X)
    near = solve(X, y, penalty=TrimmedL1(2), alpha=0.1, fit_intercept=True)
    far = solve(ArrayRows(X, 33), y, penalty=TrimmedL1(2), alpha=0.1, fit_intercept=True)
    assert far.coef == pytest.approx(near.coef, abs=1e-7)
    assert far.objective == pytest.approx(near.objective, rel=1e-9)
    first = next(steps(ArrayRows(X, 33), y, penalty=TrimmedL1(2), alpha=0.1, solver="bcd"))
    assert first.coef == pytest.approx(
        next(steps(X, y, penalty=TrimmedL1(2), alpha=0.1, solver="bcd")).coef, abs=1e-9
    )


def test_cut_and_warm_starts():
    X = matrix()
    y = target_for(TrimmedLasso(), X)
    model = TrimmedLasso(h=2, warm_start=True).fit(ArrayRows(X, 33), y)
    again = model.coef_.copy()
    model.fit(ArrayRows(X, 33), y)
    assert model.coef_ == pytest.approx(again, abs=1e-9)


# -- refusals -----------------------------------------------------------------------------------------------


class Untouchable(ArrayRows):
    """Rows that must not be read."""

    def sweep(self, *arguments, **more):
        raise AssertionError("X was read")


def test_outliers_need_memory():
    X = matrix()
    y = target_for(TrimmedLasso(), X)
    rows = Untouchable(X, 33)
    with pytest.raises(ValueError, match="n_outliers needs X in memory, and X is an Untouchable; leave n_"):
        TrimmedLasso(h=2, n_outliers=3).fit(rows, y)
    with pytest.raises(ValueError, match="n_outliers needs X in memory"):
        solve(rows, y, penalty=TrimmedL1(2), alpha=0.1, n_outliers=0.1)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"y": lambda y: y[1:]}, r"y must have shape \(120,\)"),
        ({"y": lambda y: np.where(np.arange(N) == 3, np.nan, y)}, "y contains NaN at row 3"),
        ({"sample_weight": lambda y: -np.ones(N)}, "sample_weight must be >= 0"),
        ({"h": 99}, "h must be"),
        ({"alpha": -1.0}, "alpha must be"),
        ({"tol": 0.0}, "tol must be"),
    ],
    ids=["short", "nan", "negative", "h", "alpha", "tol"],
)
def test_everything_else_is_checked_before_a_pass(change, message):
    X = matrix()
    y = target_for(TrimmedLasso(), X)
    model = TrimmedLasso(**{name: value for name, value in change.items() if not callable(value)})
    arguments = {name: value(y) for name, value in change.items() if callable(value)}
    with pytest.raises(ValueError, match=message):
        model.fit(Untouchable(X, 33), **{"y": y} | arguments)
    assert [name for name in vars(model) if name.endswith("_")] == []


def test_a_hole_in_the_data_is_named():
    X = matrix()
    y = target_for(TrimmedLasso(), X)
    bad = X.copy()
    bad[101, 3] = np.nan
    model = TrimmedLasso(h=2)
    with pytest.raises(ValueError, match="X contains NaN at row 101, column 3"):
        model.fit(ArrayRows(bad, 33), y)
    assert not hasattr(model, "n_features_in_")
    model.fit(X, y)
    bad[101, 3], bad[55, 2] = 1.0, np.inf
    with pytest.raises(ValueError, match=r"X contains NaN or inf at row 55 \(and in 0 more rows\)"):
        model.predict(ArrayRows(bad, 33))


def test_shapes_are_checked():
    X = matrix()
    y = target_for(TrimmedLasso(), X)
    model = TrimmedLasso(h=2).fit(X, y)
    with pytest.raises(ValueError, match="X has 9 features, but TrimmedLasso is expecting 10"):
        model.predict(ArrayRows(X[:, 1:], 33))
    with pytest.raises(ValueError, match="X must be a matrix with at least one row and one column"):
        TrimmedLasso().fit(ArrayRows(np.empty((0, 3)), 3), [])


# -- where y lies -------------------------------------------------------------------------------------------


def test_tensors():
    torch = pytest.importorskip("torch")
    X = matrix()
    y = target_for(TrimmedLasso(), X)
    weight = np.linspace(0.5, 2.0, N)
    near = TrimmedLasso(h=2).fit(X, y, weight)
    far = TrimmedLasso(h=2).fit(torch.tensor(X), torch.tensor(y), torch.tensor(weight))
    assert isinstance(far.coef_, np.ndarray)
    assert far.coef_ == pytest.approx(near.coef_, abs=1e-9)
    assert far.score(torch.tensor(X), torch.tensor(y), torch.tensor(weight)) == pytest.approx(
        near.score(X, y, weight)
    )
    mixed = TrimmedLasso(h=2).fit(X, torch.tensor(y, requires_grad=True), weight)
    assert mixed.coef_ == pytest.approx(near.coef_, abs=1e-9)
    labels = (y > 0).astype(int)
    classes = TrimmedLogisticRegression(h=2, alpha=0.05).fit(torch.tensor(X), torch.tensor(labels))
    assert classes.score(torch.tensor(X), torch.tensor(labels)) > 0.8


def test_arrays_of_other_libraries_in_memory(exchange):
    """DLPack hands over a view: no PyTorch is asked for."""

    X = matrix()
    y = target_for(TrimmedLasso(), X)
    near, other = TrimmedLasso(h=2).fit(X, y), TrimmedLasso(h=2).fit(exchange(X), exchange(y))
    assert np.array_equal(other.coef_, near.coef_)
    assert np.array_equal(other.predict(exchange(X)), near.predict(X))
    assert other.score(exchange(X), exchange(y)) == near.score(X, y)


def test_dask_frames_have_names():
    dd, pd = pytest.importorskip("dask.dataframe"), pytest.importorskip("pandas")
    X = matrix()
    y = target_for(TrimmedLasso(), X)
    names = [f"v{j}" for j in range(P)]
    frame = pd.DataFrame(X, columns=names)
    frame["y"] = y
    far = dd.from_pandas(frame, npartitions=3)
    model = TrimmedLasso(h=2).fit(far[names], far["y"])
    near = TrimmedLasso(h=2).fit(frame[names], y)
    assert model.feature_names_in_.tolist() == names
    assert model.coef_ == pytest.approx(near.coef_, abs=1e-9)
    assert model.predict(far[names]) == pytest.approx(near.predict(frame[names]))
    assert model.score(far[names], far["y"]) == pytest.approx(near.score(frame[names], y))
    with pytest.raises(ValueError, match="feature names should match"):
        model.predict(far[names[::-1]])
    with pytest.warns(UserWarning, match="X does not have valid feature names"):
        model.predict(far[names].to_dask_array(lengths=True))


# -- graphs -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("centred", [True, False])
def test_graphs(centred):
    X = np.delete(matrix(), 4, axis=1)
    near = TrimmedGraphicalLasso(h=3, assume_centered=not centred).fit(X)
    rows = ArrayRows(X, 33)
    far = TrimmedGraphicalLasso(h=3, assume_centered=not centred).fit(rows)
    assert rows.passes <= 2
    assert far.precision_ == pytest.approx(near.precision_, rel=1e-6, abs=1e-8)
    assert far.location_ == pytest.approx(near.location_, abs=1e-12)
    test = matrix(seed=5)[:, :9] + 0.3
    assert far.score(ArrayRows(test, 33)) == pytest.approx(near.score(test))
    with pytest.raises(ValueError, match="the distance of every sample needs X in memory"):
        far.mahalanobis(Untouchable(X, 33))


def test_graphs_that_need_rows():
    X = np.delete(matrix(), 4, axis=1)
    rows = Untouchable(X, 33)
    for settings in ({"kind": "spearman"}, {"scores": "npn"}):
        with pytest.raises(ValueError, match=r"needs X in memory.*use kind='pearson' with scores=None"):
            TrimmedGraphicalLasso(**settings).fit(rows)
    with pytest.raises(ValueError, match=r"needs X in memory.*choose by criterion='ebic'"):
        TrimmedGraphicalLassoCV().fit(rows)
    far = TrimmedGraphicalLassoCV(criterion="ebic", hs=[0, 1, 2]).fit(ArrayRows(X, 33))
    near = TrimmedGraphicalLassoCV(criterion="ebic", hs=[0, 1, 2]).fit(X)
    assert far.h_ == near.h_
    assert far.precision_ == pytest.approx(near.precision_, abs=1e-8)
    with pytest.raises(
        ValueError, match="X must have no constant columns, because they have no edges: drop 4"
    ):
        TrimmedGraphicalLasso().fit(ArrayRows(matrix(), 33))


def test_a_covariance_may_be_a_tensor():
    torch = pytest.importorskip("torch")
    S = np.cov(np.delete(matrix(), 4, axis=1).T)
    near = TrimmedGraphicalLasso(h=2, covariance="precomputed").fit(S)
    far = TrimmedGraphicalLasso(h=2, covariance="precomputed").fit(torch.tensor(S))
    assert np.array_equal(far.precision_, near.precision_)

"""Input that is odd but sound: a correct answer, no NaN, and no warning but those that are promised."""

import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning, DataConversionWarning

from trimreg import L1, MCP, SCAD, MEstimator, TrimmedL1, TrimmedLasso, diagnostics, solve

HOW = {
    "mm-low": {"solver": "mm", "effort": "low"},
    "mm": {"solver": "mm"},
    "mm-high": {"solver": "mm", "effort": "high"},
    "mm-positive": {"solver": "mm", "positive": True},
    "bcd": {"solver": "bcd"},
    "dc": {"solver": "dc", "ties": "aware"},
    "prox": {"solver": "prox"},
}
MM = {name: how for name, how in HOW.items() if how["solver"] == "mm"}


def each(table):
    return pytest.mark.parametrize("how", table.values(), ids=table.keys())


each_setting = pytest.mark.parametrize(
    ("fit_intercept", "standardize"), [(False, False), (False, True), (True, False), (True, True)]
)


def sound(X, y, result, *, how, penalty, **setting):
    """Finite, and a local minimum where the solver promises one."""
    assert np.isfinite(result.coef).all()
    assert np.isfinite([result.intercept, result.objective, result.stationarity]).all()
    if how["solver"] == "mm" and isinstance(penalty, TrimmedL1):
        check = diagnostics.is_local_minimum(
            X,
            y,
            result.coef,
            alpha=result.alpha,
            intercept=result.intercept,
            penalty=penalty,
            positive=how.get("positive", False),
            tol=2e-6,
            **setting,
        )
        assert check, check.reason
    return result


@pytest.fixture
def solved():
    """``solved(X, y, penalty, alpha, how, ...)``: solve and check that the result is sound."""

    def run(X, y, penalty, alpha, how, **setting):
        result = solve(X, y, penalty=penalty, alpha=alpha, **setting, **how)
        return sound(X, y, result, how=how, penalty=penalty, **setting)

    return run


# -- columns ----------------------------------------------------------------------------------------------


@each(HOW)
@each_setting
@pytest.mark.parametrize("alpha", ["exact", 0.1])
def test_constant_and_zero_columns(how, fit_intercept, standardize, alpha, layout, make_data, solved):
    data = make_data(p=7)
    X = data.X.copy()
    X[:, 3], X[:, 4] = 5.0, 0.0
    setting = {"fit_intercept": fit_intercept, "standardize": standardize}
    result = solved(layout(X), data.y, TrimmedL1(3), alpha, how, **setting)
    gone = [3, 4] if fit_intercept else [4]
    np.testing.assert_array_equal(result.coef[gone], 0)
    kept = np.setdiff1d(np.arange(7), gone)
    if how["solver"] != "bcd":  # its start w0 = (p - h)/p depends on p
        without = solved(X[:, kept], data.y, TrimmedL1(3), alpha, how, **setting)
        assert result.objective == pytest.approx(without.objective, rel=1e-6)


@pytest.mark.parametrize("value", [0.0, 1.0, 0.1, 1e8])
@each({name: how for name, how in HOW.items() if name != "mm-positive"})
def test_only_constant_columns(how, value, make_data, solved):
    y = make_data().y
    X = np.full((y.size, 3), value)
    for alpha in ("exact", 0.0, 0.1):
        result = solved(X, y, TrimmedL1(1), alpha, how, fit_intercept=True, standardize=True)
        np.testing.assert_array_equal(result.coef, 0)
        assert result.intercept == pytest.approx(y.mean())
        assert result.objective == pytest.approx(y.var() / 2)


@each(HOW)
@pytest.mark.parametrize("alpha", ["exact", 0.1])
def test_duplicate_and_collinear_columns(how, alpha, make_data, solved):
    data = make_data(p=8)
    X = data.X.copy()
    X[:, 3], X[:, 4], X[:, 5] = X[:, 0], -2 * X[:, 1], X[:, 0] + X[:, 2]
    result = solved(X, data.y, TrimmedL1(3), alpha, how, fit_intercept=True)
    if how["solver"] == "mm" and how.get("effort") != "low" and "positive" not in how:
        without = solved(data.X[:, [0, 1, 2, 6, 7]], data.y, TrimmedL1(3), alpha, how, fit_intercept=True)
        assert result.objective <= without.objective * (1 + 1e-8)


@each(HOW)
def test_every_column_the_same(how, make_data, solved):
    data = make_data()
    X = np.repeat(data.X[:, :1], 5, axis=1)
    for h in (1, 3, 5):
        result = solved(X, data.y, TrimmedL1(h), "exact", how, fit_intercept=True)
        one = solved(X[:, :1], data.y, TrimmedL1(1), "exact", how, fit_intercept=True)
        if how["solver"] == "mm":
            assert result.objective == pytest.approx(one.objective)
            assert result.coef.sum() == pytest.approx(one.coef.sum())


SCALED = {
    "one small": (1, 1e-150),
    "one large": (1, 1e150),
    "all small": (slice(None), 1e-150),
    "all large": (slice(None), 1e150),
    "far apart": (slice(None), np.array([1e150, 1e-150, 1.0, 1e-150, 1e150, 1.0, 1.0])),
}


@pytest.mark.parametrize(("which", "scale"), SCALED.values(), ids=SCALED.keys())
@each_setting
@each(MM)
def test_columns_of_extreme_units(how, fit_intercept, standardize, which, scale, layout, make_data, solved):
    """Best subsets do not depend on units at all."""
    data = make_data(p=7)
    unit = np.ones(7)
    unit[which] = scale
    setting = {"fit_intercept": fit_intercept, "standardize": standardize}
    plain = solved(data.X, data.y, TrimmedL1(3), "exact", how, **setting)
    scaled = solved(layout(data.X * unit), data.y, TrimmedL1(3), "exact", how, **setting)
    if "positive" not in how and how.get("effort") != "low":
        np.testing.assert_allclose(scaled.coef * unit, plain.coef, atol=1e-6)
        assert scaled.objective == pytest.approx(plain.objective)
        assert scaled.swap_optimal is True
    assert np.count_nonzero(scaled.coef) <= 3


@each(MM)
@each_setting
def test_columns_too_small_to_divide_by_count_as_zero(
    how, fit_intercept, standardize, layout, make_data, solved
):
    data = make_data(p=5)
    setting = {"fit_intercept": fit_intercept, "standardize": standardize}
    unit = np.array([1e-310, 1.0, 1.0, 1.0, 1e-320])
    result = solved(layout(data.X * unit), data.y, TrimmedL1(2), "exact", how, **setting)
    without = solved(data.X[:, 1:4], data.y, TrimmedL1(2), "exact", how, **setting)
    np.testing.assert_array_equal(result.coef[[0, 4]], 0)
    np.testing.assert_allclose(result.coef[1:4], without.coef, atol=1e-8)


@pytest.mark.parametrize(("which", "scale"), SCALED.values(), ids=SCALED.keys())
@pytest.mark.parametrize("penalty", [TrimmedL1(3), L1(), MCP(), SCAD()], ids=repr)
@pytest.mark.parametrize("solver", ["mm", "prox"])
def test_standardized_columns_of_extreme_units(penalty, solver, which, scale, make_data):
    data = make_data(p=7)
    unit = np.ones(7)
    unit[which] = scale
    setting = {"penalty": penalty, "alpha": 0.2, "fit_intercept": True, "standardize": True, "solver": solver}
    plain = solve(data.X, data.y, tol=1e-8, **setting)
    scaled = solve(data.X * unit, data.y, tol=1e-8, **setting)
    np.testing.assert_allclose(scaled.coef * unit, plain.coef, atol=1e-6)


@pytest.mark.parametrize("scale", [1e-150, 1e150])
@pytest.mark.parametrize("solver", ["bcd", "dc", "prox"])
@pytest.mark.parametrize("alpha", ["exact", 0.1])
def test_first_order_solvers_survive_extreme_units(scale, solver, alpha, make_data):
    data = make_data(p=7)
    for X in (data.X * scale, data.X * np.array([1, scale, 1, 1, 1, 1, 1])):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # one step for all units cannot get far
            result = solve(X, data.y, penalty=TrimmedL1(3), alpha=alpha, solver=solver, max_iter=300)
        assert np.isfinite(result.coef).all()
        assert np.isfinite([result.objective, result.stationarity]).all()


@each(HOW)
@pytest.mark.parametrize("standardize", [False, True])
@pytest.mark.parametrize("kind", [np.asarray, sp.csr_array])
def test_columns_with_a_huge_mean(how, standardize, kind, make_data, solved):
    data = make_data(p=7)
    setting = {"fit_intercept": True, "standardize": standardize}
    plain = solved(data.X, data.y, TrimmedL1(3), 0.1, how, **setting)
    moved = solved(kind(data.X + 1e8), data.y, TrimmedL1(3), 0.1, how, **setting)
    np.testing.assert_allclose(moved.coef, plain.coef, atol=1e-5)
    assert moved.objective == pytest.approx(plain.objective, rel=1e-6)


# -- sizes ------------------------------------------------------------------------------------------------


@each(HOW)
@each_setting
@pytest.mark.parametrize(("n", "p"), [(1, 1), (1, 5), (2, 1), (2, 5), (30, 1)])
@pytest.mark.parametrize("alpha", ["exact", 0.0, 0.1])
@pytest.mark.filterwarnings("ignore:h = :UserWarning")
def test_few_samples_or_features(how, fit_intercept, standardize, n, p, alpha, make_data, solved):
    data = make_data(n=n, p=p)
    setting = {"fit_intercept": fit_intercept, "standardize": standardize}
    for h in {0, 1, p}:
        result = solved(data.X, data.y, TrimmedL1(h), alpha, how, **setting)
        if alpha == "exact":
            assert np.count_nonzero(result.coef) <= h
    if n == 1 and fit_intercept:
        np.testing.assert_array_equal(result.coef, 0)
        assert result.intercept == data.y[0]


@pytest.mark.parametrize("penalty", [L1(), MCP(), SCAD()], ids=repr)
@pytest.mark.parametrize("solver", ["mm", "prox"])
@pytest.mark.parametrize(("n", "p"), [(1, 1), (1, 5), (2, 1), (2, 5), (30, 1)])
def test_few_samples_or_features_with_other_penalties(penalty, solver, n, p, make_data):
    data = make_data(n=n, p=p)
    for alpha in (0.0, 0.1, 1e6):
        model = MEstimator(penalty=penalty, alpha=alpha, solver=solver).fit(data.X, data.y)
        assert np.isfinite(model.coef_).all()
        assert np.sqrt(model.stationarity_) < 1e-5


@pytest.mark.parametrize("effort", ["low", "medium", "high"])
@pytest.mark.parametrize("alpha", ["exact", 0.1])
@pytest.mark.parametrize("weighted", [False, True])
@each_setting
def test_h_of_p_above_n_is_the_solution_of_least_norm(
    effort, alpha, weighted, fit_intercept, standardize, make_data, by_hand
):
    data = make_data(n=8, p=20)
    weight = data.weight if weighted else None
    X = data.X * np.geomspace(0.1, 10, 20)  # so that units matter to a norm
    with pytest.warns(UserWarning, match="h = 20 is not below the number of samples"):
        result = solve(
            X,
            data.y,
            penalty=TrimmedL1(20),
            alpha=alpha,
            effort=effort,
            sample_weight=weight,
            fit_intercept=fit_intercept,
            standardize=standardize,
        )
    scale = by_hand.scales(X, weight, fit_intercept, standardize)
    theta, _ = by_hand.least_squares(X / scale, data.y, fit_intercept=fit_intercept, sample_weight=weight)
    np.testing.assert_allclose(result.coef * scale, theta, atol=1e-8)
    assert by_hand.loss(X, data.y, result, weight) < 1e-20


@pytest.mark.parametrize("effort", ["low", "medium", "high"])
@pytest.mark.parametrize("h", [8, 12])
def test_h_of_n_or_more(effort, h, make_data, by_hand):
    data = make_data(n=8, p=20)
    with pytest.warns(UserWarning, match=f"h = {h} is not below the number of samples 8"):
        model = TrimmedLasso(h=h, effort=effort, standardize=False).fit(data.X, data.y)
    assert model.support_.size <= h
    np.testing.assert_allclose(model.predict(data.X), data.y, atol=1e-10)
    free = np.flatnonzero(model.trim_weights_ == 0)
    coef, _ = by_hand.least_squares(data.X[:, free], data.y, fit_intercept=True)
    np.testing.assert_allclose(model.coef_[free], coef, atol=1e-8)


def test_h_of_n_finds_independent_columns(make_data):
    # The columns of largest gradient are copies of one: a perfect fit needs others too.
    data = make_data(n=5, p=9)
    X = data.X.copy()
    X[:, :5] = X[:, :1]
    with pytest.warns(UserWarning, match="h = 5 is not below the number of samples 5"):
        model = TrimmedLasso(h=5, fit_intercept=False).fit(X, 3 * X[:, 0] + 1e-3 * data.y)
    np.testing.assert_allclose(model.predict(X), 3 * X[:, 0] + 1e-3 * data.y, atol=1e-10)


def test_samples_of_weight_zero_do_not_count_as_samples(make_data):
    data = make_data(n=12, p=20)
    weight = np.where(np.arange(12) < 6, 1.0, 0.0)
    with pytest.warns(UserWarning, match="h = 8 is not below the number of samples 6"):
        weighted = TrimmedLasso(h=8).fit(data.X, data.y, weight)
    with pytest.warns(UserWarning, match="h = 8 is not below the number of samples 6"):
        dropped = TrimmedLasso(h=8).fit(data.X[:6], data.y[:6])
    np.testing.assert_allclose(weighted.coef_, dropped.coef_, atol=1e-10)


# -- targets ----------------------------------------------------------------------------------------------


@each(HOW)
@each_setting
@pytest.mark.parametrize("value", [0.0, 3.0, 0.1, -1e10])
def test_a_constant_target(how, fit_intercept, standardize, value, make_data, solved):
    data = make_data(p=6)
    y = np.full(40, value)
    for alpha in ("exact", 0.1):
        result = solved(
            data.X, y, TrimmedL1(2), alpha, how, fit_intercept=fit_intercept, standardize=standardize
        )
        if fit_intercept or value == 0:
            np.testing.assert_array_equal(result.coef, 0)
            assert result.objective == 0
            assert result.stationarity == 0
            assert result.intercept == pytest.approx(value if fit_intercept else 0.0, rel=1e-15)


@pytest.mark.parametrize("penalty", [L1(), MCP(), SCAD()], ids=repr)
@pytest.mark.parametrize("solver", ["mm", "prox"])
@pytest.mark.parametrize("value", [0.0, 0.1])
def test_a_constant_target_with_other_penalties(penalty, solver, value, make_data):
    data = make_data()
    for alpha in (0.0, 0.1):
        model = MEstimator(penalty=penalty, alpha=alpha, solver=solver).fit(data.X, np.full(40, value))
        np.testing.assert_array_equal(model.coef_, 0)
        assert model.intercept_ == pytest.approx(value)


@each(HOW)
def test_a_target_with_a_huge_mean(how, make_data, solved):
    data = make_data(p=6)
    plain = solved(data.X, data.y, TrimmedL1(2), 0.1, how, fit_intercept=True)
    moved = solved(data.X, data.y + 1e8, TrimmedL1(2), 0.1, how, fit_intercept=True)
    np.testing.assert_allclose(moved.coef, plain.coef, atol=1e-5)
    assert moved.intercept - 1e8 == pytest.approx(plain.intercept, abs=1e-5)


@pytest.mark.parametrize("scale", [1e-150, 1e-100, 1e100, 1e150])
@pytest.mark.parametrize("effort", ["low", "medium", "high"])
def test_targets_of_extreme_units(scale, effort, make_data):
    data = make_data(p=6)
    plain = TrimmedLasso(h=3, effort=effort).fit(data.X, data.y)
    scaled = TrimmedLasso(h=3, effort=effort).fit(data.X, data.y * scale)
    np.testing.assert_allclose(scaled.coef_ / scale, plain.coef_, atol=1e-6)


# -- containers -------------------------------------------------------------------------------------------


def with_gaps(X, tmp_path):
    wide = np.full((2 * X.shape[0], 3 * X.shape[1]), np.nan)
    wide[::2, ::3] = X
    return wide[::2, ::3]


def read_only(X, tmp_path):
    X = X.copy()
    X.flags.writeable = False
    return X


def memory_mapped(X, tmp_path):
    np.save(tmp_path / "X.npy", X)
    return np.load(tmp_path / "X.npy", mmap_mode="r")


def unsorted(X, tmp_path):
    """CSR with its entries in reverse order, one of them stored in two parts, and a stored zero."""
    coo = sp.coo_array(X)
    rows = np.concatenate([coo.row[::-1], coo.row[:1], [0]])
    cols = np.concatenate([coo.col[::-1], coo.col[:1], [1]])
    half = coo.data[0] / 2
    data = np.concatenate([coo.data[::-1], [half, 0.0]])
    data[coo.data.size - 1] = half
    return sp.csr_array(sp.coo_array((data, (rows, cols)), shape=X.shape))


CONTAINERS = {
    "gaps": with_gaps,
    "reversed": lambda X, tmp_path: X[::-1, ::-1].copy()[::-1, ::-1],
    "read-only": read_only,
    "memmap": memory_mapped,
    "memmap-fortran": lambda X, tmp_path: memory_mapped(np.asfortranarray(X), tmp_path),
    "list": lambda X, tmp_path: X.tolist(),
    "tuple": lambda X, tmp_path: tuple(map(tuple, X)),
    "object": lambda X, tmp_path: X.astype(object),
    "longdouble": lambda X, tmp_path: X.astype(np.longdouble),
    "big-endian": lambda X, tmp_path: X.astype(">f8"),
    "coo": lambda X, tmp_path: sp.coo_array(X),
    "unsorted": unsorted,
}


@pytest.mark.parametrize("store", CONTAINERS.values(), ids=CONTAINERS.keys())
@pytest.mark.parametrize("model", [TrimmedLasso(h=3), MEstimator(penalty=MCP(), alpha=0.1)], ids=repr)
def test_containers(store, model, make_data, tmp_path):
    data = make_data(zeros=0.3)
    stored = store(data.X, tmp_path)
    expected = model.fit(data.X, data.y).coef_
    predicted = model.predict(data.X)
    np.testing.assert_allclose(model.fit(stored, data.y.tolist()).coef_, expected, atol=1e-8)
    np.testing.assert_allclose(model.predict(stored), predicted, atol=1e-8)


@pytest.mark.parametrize("dtype", [bool, np.int8, np.int64, np.uint8, np.float16])
@each(HOW)
def test_integers_and_booleans(dtype, how, make_data, solved):
    data = make_data()
    X = (3 * np.abs(data.X)).astype(dtype)
    given = solved(X, data.y, TrimmedL1(3), 0.1, how, fit_intercept=True)
    as_float = solved(X.astype(float), data.y, TrimmedL1(3), 0.1, how, fit_intercept=True)
    np.testing.assert_array_equal(given.coef, as_float.coef)
    assert given.coef.dtype == float
    np.testing.assert_allclose(
        solve(X, data.y > 0, penalty=L1(), alpha=0.1).coef,
        solve(X.astype(float), (data.y > 0).astype(float), penalty=L1(), alpha=0.1).coef,
    )


def test_a_column_for_a_target_is_taken_with_a_warning(make_data):
    data = make_data()
    expected = TrimmedLasso(h=3).fit(data.X, data.y).coef_
    with pytest.warns(DataConversionWarning, match="column-vector"):
        model = TrimmedLasso(h=3).fit(data.X, data.y[:, None])
    np.testing.assert_array_equal(model.coef_, expected)


# -- alpha ------------------------------------------------------------------------------------------------


@each(HOW)
@pytest.mark.parametrize("alpha", [0.0, 1e-300, 1e6, 1e300])
def test_alpha_of_any_size(how, alpha, make_data, solved):
    if how["solver"] == "dc" and alpha == 1e300:
        alpha = 1e9  # its steps take a difference of two numbers of the size of alpha
    data = make_data(p=6)
    result = solved(data.X, data.y, TrimmedL1(2), alpha, how, fit_intercept=True)
    if alpha > 1:
        assert np.count_nonzero(result.coef) <= 2


@pytest.mark.parametrize("penalty", [TrimmedL1(3), L1(), MCP(), SCAD()], ids=repr)
@pytest.mark.parametrize("positive", [False, True])
def test_alpha_of_zero_with_more_features_than_samples(penalty, positive, make_data):
    data = make_data(n=15, p=40)
    result = solve(data.X, data.y, penalty=penalty, alpha=0.0, fit_intercept=True, positive=positive)
    assert np.isfinite(result.coef).all()
    assert np.sqrt(result.stationarity) < 1e-4
    if not positive:
        np.testing.assert_allclose(data.X @ result.coef + result.intercept, data.y, atol=1e-4)

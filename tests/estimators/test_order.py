"""The order of entry: forward selection by brute force gives the same."""

import numpy as np
import pytest

from trimreg import MEstimator, TrimmedL1, TrimmedLasso, TrimmedLogisticRegression
from trimreg.estimators import order
from trimreg.estimators.order import forward_order, order_by_size
from trimreg.losses import Cox, Gamma, Huber, Logistic, Multinomial, MultiTaskQuadratic, Poisson, Quadratic


def by_refits(Z, y, parts, first):
    """Forward selection by least squares on the columns of Z: the part that lowers the squares most."""

    def squares(columns):
        used = Z[:, columns]
        return np.sum((y - used @ np.linalg.lstsq(used, y, rcond=None)[0]) ** 2) if len(columns) else y @ y

    taken, left, order = list(np.flatnonzero(first)), sorted(set(parts[~first])), []
    while left:
        left_over = [squares(taken + list(np.flatnonzero(parts == k))) for k in left]
        best = left.pop(int(np.argmin(left_over)))
        order.append(best)
        taken += list(np.flatnonzero(parts == best))
    return order


def quadratic(Z, y):
    return Z.T @ Z / len(y), Z.T @ y / len(y)


PARTS = {
    "singles": np.arange(8),
    "singles in another order": np.array([3, 7, 1, 0, 2, 6, 5, 4]),
    "pairs": np.repeat(np.arange(4), 2),
    "mixed": np.array([5, 0, 5, 1, 1, 5, 9, 2]),
    "one": np.zeros(8, dtype=int),
}


@pytest.mark.parametrize("parts", PARTS.values(), ids=PARTS.keys())
@pytest.mark.parametrize("seed", range(10))
def test_forward_selection_by_refits_has_the_same_order(parts, seed):
    rng = np.random.default_rng(seed)
    Z = rng.standard_normal((30, 8)) + rng.standard_normal((30, 1))
    y = Z @ rng.standard_normal(8) + rng.standard_normal(30)
    for n_first in (0, 1, 2):
        first = np.isin(parts, np.unique(parts)[:n_first])
        expected = by_refits(Z, y, parts, first)
        assert forward_order(*quadratic(Z, y), parts, first).tolist() == expected


@pytest.mark.parametrize("scale", [1e-140, 1e140])
@pytest.mark.parametrize("target", [1e-170, 1e160])
@pytest.mark.parametrize("parts", [PARTS["singles"], PARTS["mixed"]], ids=["singles", "mixed"])
def test_units_do_not_matter(scale, target, parts):
    rng = np.random.default_rng(1)
    Z = rng.standard_normal((30, 8)) + rng.standard_normal((30, 1))
    H, c = quadratic(Z, Z @ rng.standard_normal(8) + rng.standard_normal(30))
    unit = np.ones(8)
    unit[::3] = scale
    plain = forward_order(H, c, parts)
    np.testing.assert_array_equal(forward_order(H * unit * unit[:, None], c * unit, parts), plain)
    np.testing.assert_array_equal(forward_order(H, c * target, parts), plain)


def test_arguments_are_left_alone():
    rng = np.random.default_rng(0)
    H, c = np.cov(rng.standard_normal((5, 20))), rng.standard_normal(5)
    before = H.copy(), c.copy()
    for parts in (np.arange(5), np.array([0, 0, 1, 1, 1])):
        forward_order(H, c, parts, first=parts == 0)
    np.testing.assert_array_equal(H, before[0])
    np.testing.assert_array_equal(c, before[1])


def test_copies_and_zero_columns_come_late_and_ties_by_number():
    rng = np.random.default_rng(0)
    Z = rng.standard_normal((40, 6))
    Z[:, 1], Z[:, 2] = 4 * Z[:, 0], 0.0
    H, c = quadratic(Z, 2 * Z[:, 0] + Z[:, 4] - 0.5 * Z[:, 5] + 0.3 * Z[:, 3])
    order = forward_order(H, c, np.arange(6)).tolist()
    assert order[0] == 0  # before its copy
    assert set(order[:4]) == {0, 3, 4, 5}
    assert sorted(order) == list(range(6))
    grouped = forward_order(H, c, np.array([0, 1, 2, 2, 3, 3]))  # the part of column 1 is a copy of part 0
    assert grouped.tolist().index(0) < grouped.tolist().index(1)
    assert forward_order(np.eye(4), np.array([1.0, -2.0, 2.0, 1.0]), np.arange(4)).tolist() == [1, 2, 0, 3]
    assert forward_order(np.zeros((3, 3)), np.zeros(3), np.arange(3)).tolist() == [0, 1, 2]


def test_singles_and_parts_are_one_method():
    rng = np.random.default_rng(0)
    for _ in range(20):
        H, c = np.cov(rng.standard_normal((7, 12))), rng.standard_normal(7)
        np.testing.assert_array_equal(
            order._order_of_singles(H, c), order._order_of_parts(H, c, np.arange(7))
        )


# -- of fitted models --------------------------------------------------------------------------------------


def steps_of(model):
    """The features by their step of entry."""
    order = model.entry_order_
    return sorted(np.flatnonzero(order > 0), key=lambda j: order[j])


@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("standardize", [False, True])
def test_order_of_a_least_squares_fit(fit_intercept, standardize, make_data, layout):
    data = make_data(n=60, p=10, noise=2.0)
    X, y = data.X * np.geomspace(0.1, 10, 10), data.y
    model = TrimmedLasso(h=5, fit_intercept=fit_intercept, standardize=standardize).fit(layout(X), y)
    Z = X - X.mean(axis=0) if fit_intercept else X
    A = model.support_
    expected = by_refits(
        Z[:, A], y - y.mean() if fit_intercept else y, np.arange(A.size), np.zeros(A.size, dtype=bool)
    )
    assert steps_of(model) == A[expected].tolist()
    assert sorted(model.entry_order_[A]) == [1, 2, 3, 4, 5]
    np.testing.assert_array_equal(np.delete(model.entry_order_, A), -1)


def test_what_is_never_penalized_enters_first(make_data):
    data = make_data(n=60, p=8, noise=2.0)
    factor = np.ones(8)
    factor[[2, 5]], factor[7] = 0.0, np.inf
    model = TrimmedLasso(h=3, penalty_factor=factor).fit(data.X, data.y)
    np.testing.assert_array_equal(model.entry_order_[[2, 5]], 0)
    assert model.entry_order_[7] == -1
    Z, A = data.X - data.X.mean(axis=0), model.support_
    expected = by_refits(Z[:, A], data.y - data.y.mean(), np.arange(A.size), np.isin(A, [2, 5]))
    assert steps_of(model) == A[expected].tolist()


@pytest.mark.parametrize("weighted", [False, True])
def test_groups_and_sample_weights(weighted, make_data):
    data = make_data(n=80, p=12, noise=2.0)
    groups = np.arange(12) // 2
    weight = data.weight if weighted else np.ones(80)
    model = TrimmedLasso(h=4, groups=groups).fit(data.X, data.y, weight)
    root = np.sqrt(weight)
    Z = root[:, None] * (data.X - np.average(data.X, axis=0, weights=weight))
    y, A = root * (data.y - np.average(data.y, weights=weight)), model.support_
    expected = by_refits(Z[:, A], y, groups[A], np.zeros(A.size, dtype=bool))
    assert [groups[model.entry_order_ == step][0] for step in (1, 2, 3, 4)] == expected


def test_outliers_have_no_say(make_data):
    data = make_data(n=60, p=8, noise=0.5)
    y = data.y.copy()
    y[:6] += 500.0
    model = TrimmedLasso(h=3, n_outliers=6).fit(data.X, y)
    np.testing.assert_array_equal(model.outliers_, np.arange(6))
    clean = TrimmedLasso(h=3).fit(data.X[6:], y[6:])
    np.testing.assert_array_equal(model.entry_order_, clean.entry_order_)


LOSSES = {
    "lasso": Quadratic,
    "binary": Logistic,
    "classes": Multinomial,
    "poisson": Poisson,
    "gamma": Gamma,
    "huber": Huber,
    "cox": Cox,
    "multitask": MultiTaskQuadratic,
}


@pytest.mark.parametrize("name", LOSSES)
def test_order_is_that_of_the_quadratic_model_at_the_solution(name, make):
    """The Hessian by differences of the gradient, in the units of X and with a column for the intercept."""
    case = make(name, n=150, p=8)
    model = case.kind(h=4).fit(case.X, case.y)
    A, d = model.support_, np.full(150, 1 / 150)
    y = np.searchsorted(["a", "b", "c"], case.y) if name == "classes" else case.y
    y = y.astype(float)
    loss = LOSSES[name]().bound(y, d)
    Z = np.column_stack([case.X[:, A], np.ones(150)])
    theta = np.vstack([np.atleast_2d(model.coef_)[:, A].T, np.atleast_1d(model.intercept_)])

    def gradient(flat):
        eta = Z @ flat.reshape(theta.shape)
        slope = loss.gradient(eta if loss.multi_output else eta[:, 0], y, d)
        return (Z.T @ slope).ravel()

    step = 1e-5
    H = np.array(
        [gradient(theta.ravel() + e) - gradient(theta.ravel() - e) for e in step * np.eye(theta.size)]
    )
    H = (H + H.T) / (4 * step)
    parts = np.repeat(np.arange(5), theta.shape[1])
    order = forward_order(H, H @ theta.ravel() - gradient(theta.ravel()), parts, first=parts == 4)
    assert steps_of(model) == A[order].tolist()


def test_order_of_a_logistic_fit_is_that_of_weighted_least_squares(make):
    case = make("binary", n=150, p=8)
    model = TrimmedLogisticRegression(h=5).fit(case.X, case.y)
    A = model.support_
    eta = model.decision_function(case.X)
    p = model.predict_proba(case.X)[:, 1]
    weight = p * (1 - p)
    response = eta + (case.y - p) / weight  # of iteratively reweighted least squares
    Z = np.column_stack([case.X[:, A], np.ones(150)]) * np.sqrt(weight)[:, None]
    expected = by_refits(Z, np.sqrt(weight) * response, np.arange(6), np.arange(6) == 5)
    assert steps_of(model) == A[expected].tolist()


def test_large_models_are_ordered_by_size(make_data, monkeypatch):
    data = make_data(n=60, p=10, noise=2.0)
    monkeypatch.setattr(order, "LARGEST_MODEL", 4)
    model = TrimmedLasso(h=5).fit(data.X, data.y)
    size = np.abs(model.coef_) * data.X.std(axis=0)
    assert steps_of(model) == [j for j in order_by_size(size) if size[j] > 0]


def test_deviations_are_those_of_the_columns(make_data, layout):
    data = make_data()
    X = layout(data.X)
    for standardize in (False, True):
        centred = TrimmedLasso(h=2, standardize=standardize).fit(X, data.y)
        np.testing.assert_allclose(centred.feature_deviation_, data.X.std(axis=0))
        raw = MEstimator(penalty=TrimmedL1(2), alpha=0.1, standardize=standardize, fit_intercept=False)
        squares = np.mean(data.X**2, axis=0)
        np.testing.assert_allclose(raw.fit(X, data.y).feature_deviation_, np.sqrt(squares))

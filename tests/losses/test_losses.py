"""Every loss of the registry: derivatives by finite differences, convexity, weights, extremes, bounds."""

import pickle

import numpy as np
import pytest

from trimreg.designs import MultiOutput, as_design
from trimreg.losses import LOSSES, Loss, MultiTaskQuadratic, Quadratic, get_loss

STEP = 1e-5


# -- derivatives --------------------------------------------------------------------------------------------


def test_gradient_is_the_derivative_of_the_value(make_case):
    for seed in range(4):
        case = make_case(seed)
        gradient = case.gradient(case.eta)
        assert gradient.shape == case.eta.shape
        numerical = np.empty_like(gradient)
        for index in np.ndindex(gradient.shape):
            move = np.zeros_like(case.eta)
            move[index] = STEP
            numerical[index] = (case.value(case.eta + move) - case.value(case.eta - move)) / (2 * STEP)
        np.testing.assert_allclose(gradient, numerical, atol=2e-9)


def test_gram_is_the_hessian_in_the_coefficients(make_case):
    for seed in range(4):
        case = make_case(seed)
        design, K = case.design(n_features=4), case.loss.n_outputs
        theta = 0.3 * case.rng.standard_normal(4 * K)
        W = np.concatenate([np.arange(j * K, (j + 1) * K) for j in (0, 2, 3)])

        def gradient(point, case=case, design=design, W=W):
            return design.rmatvec(case.gradient(design.matvec(point)))[W]

        moves = STEP * np.eye(4 * K)[W]
        numerical = [(gradient(theta + move) - gradient(theta - move)) / (2 * STEP) for move in moves]
        gram = case.loss.gram(design, W, design.matvec(theta), case.y, case.d)
        assert gram.shape == (len(W), len(W))
        if case.loss.convex:
            np.testing.assert_allclose(gram, numerical, atol=1e-8)
        else:
            assert np.linalg.eigvalsh(gram - numerical)[0] > -1e-8
        np.testing.assert_allclose(gram, gram.T, atol=1e-14)


def numerical_hessian(case):
    """In eta, flat."""
    size = case.eta.size
    moves = STEP * np.eye(size).reshape(size, *case.eta.shape)
    return np.array(
        [(case.gradient(case.eta + m) - case.gradient(case.eta - m)).ravel() / (2 * STEP) for m in moves]
    )


def test_curvature_is_the_diagonal_or_bounds_the_hessian(make_case):
    for seed in range(4):
        case = make_case(seed)
        loss, hessian = case.loss, numerical_hessian(case)
        curvature = loss.curvature(case.eta, case.y, case.d)
        assert curvature.shape == case.eta.shape
        assert np.all(curvature >= 0)
        if loss.separable:
            np.testing.assert_allclose(curvature.ravel(), np.diag(hessian), atol=2e-9)
        else:
            excess = np.diag(curvature) - hessian
            assert np.linalg.eigvalsh((excess + excess.T) / 2)[0] > -1e-8


def test_curvature_keeps_what_the_loss_says_of_it(make_case):
    for seed in range(4):
        case = make_case(seed)
        hessian, limit = numerical_hessian(case), case.loss.curvature_bound
        weights = np.repeat(case.d, case.loss.n_outputs)
        if np.isfinite(limit):
            assert np.linalg.eigvalsh(np.diag(weights) * limit - hessian)[0] > -1e-8
        elsewhere = case.loss.curvature(case.eta + 3 * case.predictor(), case.y, case.d)
        same = np.allclose(case.loss.curvature(case.eta, case.y, case.d), elsewhere)
        assert same == case.loss.constant_curvature


# -- shape --------------------------------------------------------------------------------------------------


def test_value_is_convex_and_above_its_tangents(make_case):
    for seed in range(6):
        case = make_case(seed)
        if not case.loss.convex:
            return
        start, end = case.predictor(4.0), case.predictor(4.0)
        values = np.array([case.value(start + t * (end - start)) for t in np.linspace(0, 1, 41)])
        assert np.all(np.diff(values, 2) > -1e-12)
        tangent = values[0] + np.sum(case.gradient(start) * (end - start))
        assert values[-1] >= tangent - 1e-12


def test_value_is_the_weighted_sum_of_pointwise(make_case):
    for seed in range(3):
        case = make_case(seed)
        if case.loss.separable:
            losses = case.loss.pointwise(case.eta, case.y)
            assert losses.shape == case.d.shape
            assert case.value(case.eta) == pytest.approx(case.d @ losses, rel=1e-12)


def test_pointwise_says_what_leaving_a_sample_out_changes(make_case):
    case = make_case(2)
    losses = case.loss.pointwise(case.eta, case.y, case.d)
    unit = case.d.sum() / np.sum(case.d**2) if case.loss.name == "cox" else 1.0
    for i in np.flatnonzero(case.d > 0):

        def unnormalized(t, i=i):
            d = case.d.copy()
            d[i] += t
            value = case.loss.value(case.eta, case.y, d)
            if case.loss.name == "cox":  # undo the change of unit
                events = d[case.loss.classes(case.y) > 0].sum()
                value += events * (np.log(unit) - np.log(d.sum() / np.sum(d**2)))
            return value

        numerical = (unnormalized(1e-6) - unnormalized(-1e-6)) / 2e-6
        assert losses[i] == pytest.approx(numerical, abs=1e-7)


# -- weights ------------------------------------------------------------------------------------------------


def scrambled(case, i):
    """The case with another target and predictor for sample i."""
    y, eta = case.y.copy(), case.eta.copy()
    y[i], eta[i] = case.y[0], case.eta[i] + 5.0
    if case.loss.name == "cox":
        y[i, 1] = 1.0
    return eta, y


def test_a_sample_of_weight_zero_has_no_influence(make_case):
    for seed in range(3):
        case = make_case(seed)
        eta, y = scrambled(case, 3)
        other = case.unbound.bound(y, case.d)
        assert other.value(eta, y, case.d) == pytest.approx(case.value(case.eta), rel=1e-14)
        for part in ("gradient", "curvature"):
            found = getattr(other, part)(eta, y, case.d)
            np.testing.assert_allclose(
                found, getattr(case.loss, part)(case.eta, case.y, case.d), rtol=1e-12, atol=1e-16
            )
            np.testing.assert_array_equal(found[3], 0)
        assert other.slope_bound(y, case.d) == pytest.approx(case.loss.slope_bound(case.y, case.d), rel=1e-14)
        np.testing.assert_allclose(
            other.null_predictor(y, case.d), case.loss.null_predictor(case.y, case.d), rtol=1e-10
        )
        kept = np.flatnonzero(case.d > 0)
        fewer = case.unbound.bound(case.y[kept], case.d[kept])
        assert fewer.value(case.eta[kept], case.y[kept], case.d[kept]) == pytest.approx(
            case.value(case.eta), rel=1e-12
        )


def test_weights_may_change_after_the_loss_is_bound(case):
    d = case.d.copy()
    d[[0, 5]] = 0.0
    d /= d.sum()
    kept = np.flatnonzero(d)
    y, eta = case.y[kept], case.eta[kept]
    fresh = case.unbound.bound(y, d[kept])
    assert case.loss.value(case.eta, case.y, d) == pytest.approx(fresh.value(eta, y, d[kept]), rel=1e-12)
    np.testing.assert_allclose(
        case.loss.gradient(case.eta, case.y, d)[kept], fresh.gradient(eta, y, d[kept]), rtol=1e-12, atol=1e-16
    )


@pytest.mark.parametrize(
    "name", [*sorted(LOSSES.keys() - {"cox"}), "cox, breslow"]
)  # Efron: a repeated event is a tie
def test_a_sample_counts_as_its_weight_says(name, case_of):
    case = case_of(name, seed=5)
    twice = np.repeat(np.arange(len(case.d)), 2)
    y, eta, d = case.y[twice], case.eta[twice], case.d[twice] / 2
    loss = case.unbound.bound(y, d)
    value = loss.value(eta, y, d)
    if loss.name == "cox":  # its risk sets are counted in samples
        value -= np.log(2.0) * case.d[case.y[:, 1] > 0].sum()
    assert value == pytest.approx(case.value(case.eta), rel=1e-12)
    np.testing.assert_allclose(
        loss.gradient(eta, y, d)[::2] * 2, case.gradient(case.eta), rtol=1e-10, atol=1e-15
    )


def test_the_unbound_loss_computes_the_same(case):
    if case.unbound.name == "multinomial":
        assert case.unbound.slope_bound(case.y, case.d) == case.loss.slope_bound(case.y, case.d)
    for part in ("value", "gradient", "curvature"):
        bound, unbound = getattr(case.loss, part), getattr(case.unbound, part)
        np.testing.assert_array_equal(unbound(case.eta, case.y, case.d), bound(case.eta, case.y, case.d))
    y = case.y[::-1].copy()  # a target that it is not bound to
    assert case.loss.value(case.eta, y, case.d) == pytest.approx(
        case.unbound.value(case.eta, y, case.d), rel=1e-14
    )


def test_a_loss_can_be_sent_to_another_process(case):
    other = pickle.loads(pickle.dumps(case.loss))
    assert other.value(case.eta, case.y, case.d) == case.value(case.eta)
    assert other.n_outputs == case.loss.n_outputs


# -- extremes -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [30.0, 1e4, 1e9])
def test_large_predictors_are_never_nan(make_case, size):
    for seed in range(4):
        case = make_case(seed)
        signs = np.sign(case.predictor())
        for eta in (size * signs, np.full_like(signs, size), np.full_like(signs, -size), size * case.eta):
            value = case.value(eta)
            assert not np.isnan(value)
            assert value > -np.inf
            gradient, curvature = case.gradient(eta), case.loss.curvature(eta, case.y, case.d)
            assert np.all(np.isfinite(gradient))
            assert np.all(np.isfinite(curvature))
            assert np.all(curvature >= 0)
            assert not np.any(np.isnan(case.loss.pointwise(eta, case.y, case.d)))
            assert not np.any(np.isnan(case.loss.inverse_link(eta)))
            assert not np.isnan(case.loss.deviance(eta, case.y, case.d, 14))
            design = case.design(2)
            W = np.arange(2 * case.loss.n_outputs)
            assert np.all(np.isfinite(case.loss.gram(design, W, eta, case.y, case.d)))


def test_an_infinite_loss_of_weight_zero_counts_zero():
    for name in ("poisson", "gamma"):
        loss, y, d = get_loss(name), np.array([1.0, 2.0]), np.array([1.0, 0.0])
        eta = np.array([0.5, 1e4 if name == "poisson" else -1e4])
        assert loss.pointwise(eta, y)[1] == np.inf
        assert loss.value(eta, y, d) == loss.value(eta[:1], y[:1], d[:1])
        assert loss.value(eta, y, d[::-1]) == np.inf


# -- slope bound, null predictor, deviance ------------------------------------------------------------------


def slope(case, eta):
    counted = case.d > 0
    gradient = case.gradient(eta)[counted].reshape(int(counted.sum()), -1)
    return np.sqrt(np.sum(gradient**2 / case.d[counted][:, None]))


def back_to_the_level_of_zero(case, eta):
    """The largest multiple of eta, up to 1, with a loss not above that of 0; never 0 unless eta ascends."""
    limit = case.value(np.zeros_like(eta)) * (1 + 1e-14)
    low, high = 0.0, 1.0
    if case.value(eta) <= limit:
        return eta
    for _ in range(25):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if case.value(middle * eta) <= limit else (low, middle)
    return low * eta


def test_no_predictor_with_a_loss_below_that_of_zero_breaks_the_slope_bound(make_case):
    worst = 0.0
    for seed in range(2):
        case = make_case(seed)
        bound = case.loss.slope_bound(case.y, case.d)
        assert np.isfinite(bound)
        rng = np.random.default_rng(seed)
        trials = [np.zeros_like(case.eta)]
        for size in (0.1, 1.0, 10.0, 100.0):
            trials += [case.predictor(size) for _ in range(5)]
            # one sample far off, the others at their best as far as a descent step goes
            for i in np.flatnonzero(case.d > 0):
                eta = -3.0 * case.gradient(np.zeros_like(case.eta)) / np.max(case.d)
                eta[i] += size * rng.standard_normal(eta[i].shape)
                trials.append(eta)
        for eta in trials[:: 5 if case.loss.has_nuisance else 1]:
            worst = max(worst, slope(case, back_to_the_level_of_zero(case, eta)) / bound)
    assert worst <= 1 + 1e-9
    assert worst >= (0.05 if case.loss.name.startswith(("neg", "tw")) else 0.2)  # the bound is no empty one


def test_null_predictor_is_the_best_constant(make_case):
    for seed in range(4):
        case = make_case(seed)
        best = case.loss.null_predictor(case.y, case.d)
        assert np.shape(best) == ((case.loss.n_outputs,) if case.loss.multi_output else ())
        assert np.all(np.isfinite(best))
        gradient = case.gradient(np.zeros_like(case.eta) + best).sum(axis=0)
        np.testing.assert_allclose(gradient, 0, atol=1e-9)


@pytest.mark.parametrize("scale", [1e-3, 1e3])
def test_deviance_falls_with_the_loss(make_case, scale):
    case = make_case(0)
    near = case.eta - 0.05 * case.gradient(case.eta) / np.max(case.d)
    assert case.value(near) < case.value(case.eta)
    high, low = (case.loss.deviance(eta, case.y, case.d, scale * 14) for eta in (case.eta, near))
    assert low < high


# -- targets ------------------------------------------------------------------------------------------------

BAD = {
    "quadratic": [(1e160, "at most 1e152"), (np.nan, "finite; got nan at position 2")],
    "logistic": [(1.5, r"0 or 1, .* got 1.5 at position 2"), (-1.0, "got -1.0"), (np.inf, "finite; got inf")],
    "multinomial": [
        (0.5, "classes 0, 1, 2, ...; got 0.5 at position 2"),
        (-1.0, "got -1.0"),
        (np.nan, "nan"),
    ],
    "poisson": [(-1.0, ">= 0; got -1.0 at position 2"), (-np.inf, "finite; got -inf"), (1e200, "1e152")],
    "gamma": [
        (0.0, "> 0; got 0.0 at position 2"),
        (-3.0, "> 0; got -3.0"),
        (np.nan, "finite"),
        (1e200, "1e152"),
    ],
    "huber": [(np.nan, "finite; got nan at position 2"), (-1e200, "1e152")],
    "cox": [
        ((-1.0, 1.0), "times >= 0; got -1.0 at position 2, 0"),
        ((1.0, 0.5), "events 0 or 1; got 0.5 at position 2, 1"),
        ((np.nan, 1.0), "finite; got nan at position 2, 0"),
    ],
    "negative_binomial": [
        (0.5, "counts 0, 1, 2, ...; got 0.5 at position 2"),
        (-1.0, "got -1.0"),
        (1e200, "1e152"),
    ],
    "tweedie": [(-1.0, ">= 0; got -1.0 at position 2"), (np.nan, "finite"), (1e200, "1e152")],
    "quantile": [(np.nan, "finite; got nan at position 2"), (-1e200, "1e152")],
    "ordinal": [
        (0.5, "classes 0, 1, 2, ...; got 0.5 at position 2"),
        (-1.0, "got -1.0"),
        (1e9, "got 1000000000"),
    ],
    "squared_hinge": [(0.5, "be 0 or 1; got 0.5 at position 2"), (-1.0, "got -1.0")],
    "multitask": [((0.0, np.nan, 1.0), "finite; got nan at position 2, 1"), ((1e200, 0.0, 0.0), "1e152")],
}


@pytest.mark.parametrize(("name", "bad", "message"), [(n, *row) for n, rows in BAD.items() for row in rows])
def test_check_target_names_the_value_and_its_position(name, bad, message, case_of):
    case = case_of(name, seed=0)
    y = case.y.copy()
    y[2] = bad
    with pytest.raises(ValueError, match=f"^y must .*{message}"):
        case.loss.check_target(y)


def test_check_target_wants_the_right_shape(case):
    wrong = case.y[:, 0] if case.loss.matrix_target else case.y[:, None]
    with pytest.raises(ValueError, match=r"^y must .*got shape"):
        case.loss.check_target(wrong)


# -- by name, and by hand -----------------------------------------------------------------------------------


def test_quadratic_is_half_the_mean_square():
    eta, y = np.array([1.0, 2.0, 4.0]), np.array([0.0, 2.0, 1.0])
    assert Quadratic().value(eta, y, np.full(3, 1 / 3)) == pytest.approx(np.mean((eta - y) ** 2) / 2)


def test_deviance_of_least_squares_is_the_gaussian_one():
    rng = np.random.default_rng(0)
    eta, y, d = rng.standard_normal(9), rng.standard_normal(9), np.full(9, 1 / 9)
    assert Quadratic().deviance(eta, y, d, 9) == pytest.approx(9 * np.log(np.mean((y - eta) ** 2)))
    assert Quadratic().deviance(y, y, d, 9) == pytest.approx(9 * np.log(np.finfo(float).tiny))
    several = MultiTaskQuadratic()
    Y, E = y.reshape(3, 3), eta.reshape(3, 3)
    assert several.deviance(E, Y, np.full(3, 1 / 3), 3) == pytest.approx(9 * np.log(np.mean((y - eta) ** 2)))


def test_one_target_is_least_squares():
    rng = np.random.default_rng(0)
    eta, y = rng.standard_normal((2, 6))
    d = np.full(6, 1 / 6)
    one = MultiTaskQuadratic().bound(y[:, None], d)
    assert one.n_outputs == 1
    assert one.value(eta[:, None], y[:, None], d) == pytest.approx(Quadratic().value(eta, y, d))
    np.testing.assert_allclose(
        one.gradient(eta[:, None], y[:, None], d)[:, 0], Quadratic().gradient(eta, y, d)
    )


def test_a_loss_of_three_formulas_is_enough():
    class Cosh(Loss):
        def pointwise(self, eta, y, d=None):
            return np.log(np.cosh(eta - y))

    loss, y, d = Cosh(), np.zeros(3), np.full(3, 1 / 3)
    assert loss.value(np.ones(3), y, d) == pytest.approx(np.log(np.cosh(1.0)))
    assert loss.bound(y, d) is loss
    assert loss.slope_bound(y, d) == np.inf
    assert loss.null_predictor(y, d) == 0.0
    assert loss.deviance(np.ones(3), y, d, 5) == pytest.approx(10 * np.log(np.cosh(1.0)))
    for part in (loss.gradient, loss.curvature, Loss().value):
        with pytest.raises(NotImplementedError):
            part(y, y, d)


def test_get_loss():
    loss = Quadratic()
    assert get_loss(loss) is loss
    for name, kind in LOSSES.items():
        assert type(get_loss(name)) is kind
        assert get_loss(name).name == name


@pytest.mark.parametrize("bad", ["squared", None, 3, Quadratic])
def test_get_loss_refuses(bad):
    with pytest.raises(ValueError, match="loss must be one of"):
        get_loss(bad)


def test_the_hessian_of_certain_classes_is_positive_semidefinite():
    y, eta = np.array([0.0, 1.0, 2.0]), np.array([[25.0, 1.0, 0.0], [0.0, 30.0, 2.0], [1.0, 0.0, 28.0]])
    d = np.full(3, 1 / 3)
    loss, design = LOSSES["multinomial"]().bound(y, d), MultiOutput(as_design(np.eye(3), d), 3)
    hessian = loss.gram(design, np.arange(9), eta, y, d)
    values = np.linalg.eigvalsh(hessian)
    assert values[0] > -1e-14 * values[-1]
    slopes = loss.gradient(eta, y, d)
    assert np.all(np.abs(slopes.sum(axis=1)) <= 1e-15 * np.abs(slopes).max(axis=1))

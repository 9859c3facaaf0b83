"""The partial likelihood against its definition, sample by sample, with ties."""

import numpy as np
import pytest
from scipy.optimize import minimize

from trimreg.losses import Cox
from trimreg.losses.cox.terms import partial_likelihood_terms, risk_set_means, sort_by_time


def direct(eta, y, w, ties):
    """Minus the weighted log partial likelihood as R's coxph defines it, term by term."""
    time, event = y[:, 0], (y[:, 1] > 0) & (w > 0)
    total = 0.0
    for t in np.unique(time[event]):
        tied = np.flatnonzero(event & (time == t))
        at_risk = np.sum(w[time >= t] * np.exp(eta[time >= t]))
        dying = np.sum(w[tied] * np.exp(eta[tied]))
        total -= np.sum(w[tied] * eta[tied])
        for l in range(len(tied)):
            part = l / len(tied) if ties == "efron" else 0.0
            total += np.mean(w[tied]) * np.log(at_risk - part * dying)
    return total


def tied_target(rng, sizes, n_censored):
    """So many events at each time, and censored samples between and at the times of events."""
    time = np.repeat(np.arange(1.0, len(sizes) + 1), sizes)
    censored = rng.integers(0, 2 * len(sizes) + 2, n_censored) / 2
    y = np.column_stack([np.append(time, censored), np.append(np.ones(time.size), np.zeros(n_censored))])
    return rng.permutation(y)


@pytest.mark.parametrize("ties", ["efron", "breslow"])
@pytest.mark.parametrize("sizes", [[1, 2, 3, 4], [4, 1, 1], [1], [4], [2, 2, 2, 2, 2]])
@pytest.mark.parametrize("weighted", [False, True])
def test_value_is_the_definition(ties, sizes, weighted):
    for seed in range(3):
        rng = np.random.default_rng(seed)
        y = tied_target(rng, sizes, n_censored=6)
        n = len(y)
        w = rng.uniform(0.2, 3.0, n) if weighted else np.ones(n)
        d = w / w.sum()
        w = d / np.sum(d**2)  # the unit of the loss
        eta = 2 * rng.standard_normal(n)
        loss = Cox(ties).bound(y, d)
        assert loss.value(eta, y, d) == pytest.approx(direct(eta, y, w, ties) / w.sum(), rel=1e-12)
        if not weighted:
            assert loss.deviance(eta, y, d, n) == pytest.approx(2 * direct(eta, y, np.ones(n), ties))


def test_without_ties_both_are_the_same():
    rng = np.random.default_rng(0)
    y = np.column_stack([rng.permutation(20.0 * np.arange(15)), rng.random(15) < 0.6])
    eta, d = rng.standard_normal(15), np.full(15, 1 / 15)
    assert Cox("efron").value(eta, y, d) == pytest.approx(Cox("breslow").value(eta, y, d), rel=1e-14)


def test_with_ties_they_differ():
    rng = np.random.default_rng(0)
    y = tied_target(rng, [3, 3], 4)
    eta, d = rng.standard_normal(10), np.full(10, 0.1)
    assert Cox("efron").value(eta, y, d) < Cox("breslow").value(eta, y, d) - 0.01


def test_a_constant_does_not_change_it():
    rng = np.random.default_rng(1)
    y = tied_target(rng, [2, 3, 1], 5)
    eta, d = rng.standard_normal(11), np.full(11, 1 / 11)
    loss = Cox().bound(y, d)
    for shift in (5.0, -700.0, 1e4):
        assert loss.value(eta + shift, y, d) == pytest.approx(loss.value(eta, y, d), abs=1e-10)
        np.testing.assert_allclose(loss.gradient(eta + shift, y, d), loss.gradient(eta, y, d), atol=1e-10)
    assert abs(loss.gradient(eta, y, d).sum()) < 1e-15


@pytest.mark.parametrize("ties", ["efron", "breslow"])
def test_far_apart_predictors_agree_with_exact_arithmetic(ties):
    """Where one sample outweighs all others by e^2000, sums are decided by the largest of each risk set."""
    y = np.array([[1.0, 1.0], [2.0, 1.0], [3.0, 1.0], [4.0, 0.0]])
    eta, d = np.array([0.0, 2000.0, -2000.0, -2000.0]), np.full(4, 0.25)
    loss = Cox(ties).bound(y, d)
    # the first event loses 2000 to the second, the second nothing, the third shares with one equal
    assert loss.value(eta, y, d) == pytest.approx((2000.0 + np.log(2.0)) / 4, rel=1e-14)
    np.testing.assert_allclose(loss.gradient(eta, y, d), np.array([-1.0, 1.0, -0.5, 0.5]) / 4, atol=1e-12)


class Columns:
    streamed = False

    def __init__(self, Z):
        self.Z = Z

    def columns(self, W):
        return self.Z[:, W]


def test_gram_of_predictors_far_apart():
    """The last risk set has a Hessian of its own size, though its sums are e^-4000 of the first."""
    y = np.array([[1.0, 1.0], [2.0, 1.0], [3.0, 1.0], [4.0, 0.0]])
    eta, d = np.array([0.0, 2000.0, -2000.0, -2000.0]), np.full(4, 0.25)
    Z = np.random.default_rng(0).standard_normal((4, 3)) + 100.0
    gram = Cox().bound(y, d).gram(Columns(Z), np.arange(3), eta, y, d)
    difference = Z[2] - Z[3]
    np.testing.assert_allclose(gram, 0.25 * np.outer(difference, difference) / 4, atol=1e-11)


@pytest.mark.parametrize("ties", ["efron", "breslow"])
def test_gram_is_right_for_columns_far_from_zero(ties):
    rng = np.random.default_rng(0)
    y = tied_target(rng, [1, 4, 2], 8)
    n = len(y)
    eta, d, Z = rng.standard_normal(n), np.full(n, 1 / n), rng.standard_normal((n, 3))
    loss = Cox(ties).bound(y, d)
    gram = loss.gram(Columns(Z), np.arange(3), eta, y, d)
    np.testing.assert_allclose(loss.gram(Columns(Z + 1e6), np.arange(3), eta, y, d), gram, rtol=1e-7)
    assert np.linalg.eigvalsh(gram)[0] > 0.01


def test_risk_set_means():
    rng = np.random.default_rng(0)
    Z, log_weight = rng.standard_normal((40, 2)), 300.0 * rng.standard_normal(40)
    log_weight[-2:] = -np.inf  # weight 0 at the end
    log_risk = np.logaddexp.accumulate(log_weight[::-1])[::-1]
    means = risk_set_means(Z, log_weight, log_risk)
    for i in range(38):
        shares = np.exp(log_weight[i:] - log_weight[i:].max())
        np.testing.assert_allclose(means[i], shares @ Z[i:] / shares.sum(), atol=1e-10)
    np.testing.assert_array_equal(means[38:], 0)


def test_risk_set_means_go_on_from_stretch_to_stretch():
    """Weights that grow by e a sample: a third of a mean is the next one, also where the scale changes."""
    log_weight = np.arange(2000.0)[::-1]
    log_risk = np.logaddexp.accumulate(log_weight[::-1])[::-1]
    Z = np.random.default_rng(0).standard_normal((2000, 1))
    means = risk_set_means(Z, log_weight, log_risk)
    share = np.exp(log_weight - log_risk)[:-1, None]
    np.testing.assert_allclose(means[:-1], share * Z[:-1] + (1 - share) * means[1:], atol=1e-10)


def test_the_hazards_of_a_time_sum_to_its_events():
    """The shares of the samples in the risk sets add up to the weight of the events."""
    rng = np.random.default_rng(0)
    y = tied_target(rng, [2, 1, 4], 6)
    d = rng.random(13)
    d /= d.sum()
    terms = partial_likelihood_terms(sort_by_time(y), 3 * rng.standard_normal(13), d, "efron")
    share = np.exp(terms.log_weight + terms.log_hazard()).sum()
    assert share == pytest.approx(d[y[:, 1] > 0].sum(), rel=1e-12)


def test_pointwise_is_the_loss_and_the_events():
    rng = np.random.default_rng(3)
    y = tied_target(rng, [2, 1, 3], 6)
    d = rng.random(12)
    d /= d.sum()
    eta = rng.standard_normal(12)
    loss = Cox().bound(y, d)
    events = d[y[:, 1] > 0].sum()
    assert d @ loss.pointwise(eta, y, d) == pytest.approx(loss.value(eta, y, d) + events, rel=1e-12)


def test_pointwise_finds_the_sample_to_leave_out():
    """Of samples that follow the model and one that has its event late by mistake, the latter stands out."""
    rng = np.random.default_rng(0)
    eta = 2 * rng.standard_normal(60)
    time = rng.exponential(np.exp(-eta))
    worst = int(np.argmax(eta))
    time[worst] = time.max() + 1
    y, d = np.column_stack([time, np.ones(60)]), np.full(60, 1 / 60)
    losses = Cox().pointwise(eta, y)
    assert np.argmax(losses) == worst
    without = np.array(
        [Cox().value(np.delete(eta, i), np.delete(y, i, 0), np.full(59, 1 / 59)) for i in range(60)]
    )
    assert np.argmin(without) == worst
    d[worst] = 0.0
    assert (
        Cox().pointwise(eta, y, d / d.sum())[worst] > np.sort(losses)[-2]
    )  # nor does it look good from outside


def test_minimizer_agrees_with_newton_on_the_definition():
    rng = np.random.default_rng(0)
    Z = rng.standard_normal((50, 2))
    time = np.ceil(4 * rng.exponential(np.exp(-Z @ [0.8, -0.5])))
    y, d = np.column_stack([time, rng.random(50) < 0.8]), np.full(50, 0.02)
    loss = Cox().bound(y, d)
    found = minimize(
        lambda v: loss.value(Z @ v, y, d),
        np.zeros(2),
        jac=lambda v: Z.T @ loss.gradient(Z @ v, y, d),
        tol=1e-10,
    )
    expected = minimize(lambda v: direct(Z @ v, y, np.ones(50), "efron"), np.zeros(2), tol=1e-10)
    np.testing.assert_allclose(found.x, expected.x, atol=1e-4)
    assert np.abs(found.x - [0.8, -0.5]).max() < 0.5


def test_agrees_with_statsmodels():
    phreg = pytest.importorskip("statsmodels.duration.hazard_regression")
    rng = np.random.default_rng(0)
    Z = rng.standard_normal((80, 2))
    time = np.ceil(4 * rng.exponential(np.exp(-Z @ [0.8, -0.5])))
    event = (rng.random(80) < 0.8).astype(float)
    y, d = np.column_stack([time, event]), np.full(80, 1 / 80)
    for ties in ("efron", "breslow"):
        model = phreg.PHReg(time, Z, status=event, ties=ties)
        v = rng.standard_normal(2)
        assert 80 * Cox(ties).value(Z @ v, y, d) == pytest.approx(-model.loglike(v))


# -- baseline -----------------------------------------------------------------------------------------------


def test_baseline_of_equal_samples_is_nelson_and_aalen():
    y = np.array([[1.0, 1.0], [2.0, 1.0], [2.0, 1.0], [3.0, 0.0], [4.0, 1.0]])
    strata, times, log_hazard = Cox().bound(y, np.full(5, 0.2)).baseline(np.zeros(5), y, np.full(5, 0.2))
    assert strata is None
    np.testing.assert_array_equal(times, [1.0, 2.0, 4.0])
    np.testing.assert_allclose(np.exp(log_hazard), [1 / 5, 2 / 4, 1 / 1])


def test_baseline_with_weights_and_predictors():
    rng = np.random.default_rng(0)
    y = tied_target(rng, [2, 3, 1], 5)
    d, eta = rng.random(11), rng.standard_normal(11)
    d[4] = 0.0
    d /= d.sum()
    _, times, log_hazard = Cox().baseline(eta, y, d)
    jumps = [d[(y[:, 0] == t) & (y[:, 1] > 0)].sum() / (d * np.exp(eta))[y[:, 0] >= t].sum() for t in times]
    np.testing.assert_allclose(np.exp(log_hazard), jumps, rtol=1e-12)
    np.testing.assert_allclose(Cox().baseline(eta + 3.0, y, d)[2], log_hazard - 3.0, rtol=1e-12)


# -- targets ------------------------------------------------------------------------------------------------


def test_events_are_needed():
    y = np.array([[1.0, 0.0], [2.0, 0.0]])
    with pytest.raises(ValueError, match="y must have at least one event"):
        Cox().check_target(y)
    y[0, 1] = 1.0
    Cox().check_target(y)
    with pytest.raises(ValueError, match="y must have at least one event"):
        Cox().bound(y, np.array([0.0, 1.0]))


def test_no_event_left_is_a_loss_of_zero():
    """As when all events are trimmed: nothing to fit, and no warning."""
    y, d = np.array([[1.0, 1.0], [2.0, 0.0], [3.0, 0.0]]), np.array([0.0, 0.5, 0.5])
    loss, eta = Cox().bound(y, np.full(3, 1 / 3)), np.array([0.3, 1.0, -1.0])
    assert loss.value(eta, y, d) == 0.0
    np.testing.assert_array_equal(loss.gradient(eta, y, d), 0)
    np.testing.assert_array_equal(loss.curvature(eta, y, d), 0)
    np.testing.assert_array_equal(loss.gram(Columns(np.ones((3, 2))), np.arange(2), eta, y, d), 0)
    assert loss.slope_bound(y, d) == 0.0
    assert np.all(np.isfinite(loss.pointwise(eta, y, d)))
    _, times, log_hazard = loss.baseline(eta, y, d)
    assert times.size == log_hazard.size == 0


def test_times_of_zero_and_one_sample():
    y, d = np.array([[0.0, 1.0]]), np.ones(1)
    loss = Cox()
    loss.check_target(y)
    assert loss.value(np.array([2.0]), y, d) == 0.0
    assert loss.gradient(np.array([2.0]), y, d) == pytest.approx(0.0, abs=1e-15)


def test_slope_bound_is_the_formula_and_sees_only_who_is_at_risk():
    y = np.array([[1.0, 0.0], [2.0, 1.0], [3.0, 1.0], [4.0, 0.0]])
    d = np.array([0.01, 0.2, 0.5, 0.29])
    assert Cox().slope_bound(y, d) == pytest.approx(np.sqrt(0.7 + 0.49 / 0.2))


@pytest.mark.parametrize("ties", ["exact", None, "Efron"])
def test_unknown_ties(ties):
    with pytest.raises(ValueError, match="ties must be one of"):
        Cox(ties)

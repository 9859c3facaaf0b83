"""The partial likelihood with late starts and strata against its definition, sample by sample."""

import numpy as np
import pytest

from trimreg.designs import as_design
from trimreg.losses import Cox
from trimreg.losses.cox.ranges import Ranges
from trimreg.losses.cox.terms import sort_by_time


def rows(rng, n, n_strata=3, largest=6):
    """Samples with starts, ties and strata, of which each has an event."""
    start = rng.integers(0, largest, n)
    y = np.column_stack(
        [start, start + rng.integers(1, largest, n), rng.random(n) < 0.6, np.arange(n) % n_strata]
    )
    y[:n_strata, 2] = 1
    return y.astype(float)


def direct(eta, y, w, ties):
    """Minus the weighted log partial likelihood, one event time of one stratum after another."""
    start, stop, event, stratum = y.T
    event, total = (event > 0) & (w > 0), 0.0
    for s, t in {(s, t) for s, t in zip(stratum[event], stop[event], strict=True)}:
        at_risk = (stratum == s) & (start < t) & (t <= stop)
        tied = event & (stratum == s) & (stop == t)
        size = w * np.exp(eta)
        total -= w[tied] @ eta[tied]
        for l in range(tied.sum()):
            part = l / tied.sum() if ties == "efron" else 0.0
            total += w[tied].mean() * np.log(size[at_risk].sum() - part * size[tied].sum())
    return total


@pytest.mark.parametrize("ties", ["efron", "breslow"])
@pytest.mark.parametrize("n_strata", [1, 4])
def test_the_loss_and_its_derivatives_are_those_of_the_definition(ties, n_strata):
    for seed in range(6):
        rng = np.random.default_rng(seed)
        n = 8 + 5 * seed
        y, d, eta, Z = (
            rows(rng, n, n_strata),
            rng.random(n),
            rng.standard_normal(n),
            rng.standard_normal((n, 3)),
        )
        d[-2:] = 0.0
        d /= d.sum()
        w = d / np.sum(d**2)
        loss, step = Cox(ties).bound(y, d), 1e-6
        assert loss.value(eta, y, d) == pytest.approx(direct(eta, y, w, ties) / w.sum(), rel=1e-12)
        slope = [
            (direct(eta + step * u, y, w, ties) - direct(eta - step * u, y, w, ties)) / (2 * step * w.sum())
            for u in np.eye(n)
        ]
        np.testing.assert_allclose(loss.gradient(eta, y, d), slope, atol=1e-8)
        change = [
            Z.T @ (loss.gradient(eta + step * z, y, d) - loss.gradient(eta - step * z, y, d)) / (2 * step)
            for z in Z.T
        ]
        np.testing.assert_allclose(loss.gram(as_design(Z, d), np.arange(3), eta, y, d), change, atol=1e-8)


@pytest.mark.parametrize("spread", [1.0, 400.0])
def test_sums_over_ranges_of_any_size(spread):
    """Also of numbers that have no common scale, beside which a difference of sums would have no digit."""
    rng = np.random.default_rng(0)
    for count in (1, 2, 5, 8, 13):
        low = rng.integers(0, count + 1, 20)
        high = np.maximum(low, rng.integers(0, count + 1, 20))
        ranges = Ranges(low, high, count)
        logs, of_events = spread * rng.standard_normal(20), spread * rng.standard_normal(count)
        logs[3] = -np.inf
        Z = rng.standard_normal((20, 2))
        inside = (low[:, None] <= np.arange(count)) & (np.arange(count) < high[:, None])
        at_events = np.logaddexp.reduce(np.where(inside, logs[:, None], -np.inf), axis=0)
        over = np.logaddexp.reduce(np.where(inside, of_events, -np.inf), axis=1)
        np.testing.assert_allclose(ranges.at_events(logs), at_events, rtol=1e-13)
        np.testing.assert_allclose(ranges.over_ranges(of_events), over, rtol=1e-13)
        for k in np.flatnonzero(np.isfinite(at_events)):
            share = np.where(inside[:, k], np.exp(np.minimum(logs - at_events[k], 0.0)), 0.0)
            np.testing.assert_allclose(ranges.means(Z, logs)[k], share @ Z, atol=1e-10)


def test_late_starts_lose_no_digits_beside_large_hazards():
    """A sample with e^2000 times the hazard of others ends; the sets at risk after it are as without it."""
    y = np.array([[0.0, 1, 1, 0], [0.0, 3, 1, 0], [2.0, 4, 1, 0], [2.0, 5, 0, 0]])
    eta, d = np.array([2000.0, 0.3, -0.2, 0.1]), np.full(4, 0.25)
    loss = Cox().bound(y, d)
    assert loss.value(eta, y, d) == pytest.approx(direct(eta[1:], y[1:], np.ones(3), "efron") / 4, rel=1e-13)
    alone, third = Cox().bound(y[1:], np.full(3, 1 / 3)), np.full(3, 1 / 3)
    expected = alone.gradient(eta[1:], y[1:], third) * 0.75
    np.testing.assert_allclose(loss.gradient(eta, y, d), np.append(0.0, expected), atol=1e-12)


def test_starts_before_all_events_and_one_stratum_change_nothing():
    rng = np.random.default_rng(0)
    y = rows(rng, 30, 1)[:, 1:3]
    d, eta = np.full(30, 1 / 30), rng.standard_normal(30)
    for more in (np.column_stack([y[:, 0] * 0, y]), np.column_stack([-y[:, 0], y, np.full(30, 7.0)])):
        assert sort_by_time(more).ranges is None  # at no cost
        assert Cox().value(eta, more, d) == Cox().value(eta, y, d)


def test_a_stratum_without_the_last_samples_is_a_sum():
    """The loss of two strata is the sum of theirs, and so is the baseline."""
    rng = np.random.default_rng(1)
    y, eta, d = rows(rng, 40, 2), rng.standard_normal(40), np.full(40, 1 / 40)
    strata, times, log_hazard = Cox().baseline(eta, y, d)
    total = 0.0
    for s in (0.0, 1.0):
        mine = y[:, 3] == s
        part = y[mine, :3], np.full(20, 1 / 20)
        total += Cox().value(eta[mine], *part) / 2
        _, at, logs = Cox().baseline(eta[mine], *part)
        np.testing.assert_array_equal(times[strata == s], at)
        np.testing.assert_allclose(log_hazard[strata == s], logs, rtol=1e-12, atol=1e-12)
    assert Cox().value(eta, y, d) == pytest.approx(total, rel=1e-13)


@pytest.mark.parametrize(
    ("row", "match"),
    [
        ([5.0, 5.0, 1.0, 0.0], "y must have start < time; got start 5 and time 5 of sample 1"),
        ([0.0, 1.0, 2.0, 0.0], "y must have events 0 or 1; got 2.0 at position 1, 2"),
        ([0.0, 1.0, 0.0, 4.0], "y must have an event in every stratum; got none in 4"),
        ([0.0, np.inf, 1.0, 0.0], "y must be finite"),
    ],
)
def test_rows_that_are_refused(row, match):
    y = np.array([[0.0, 2.0, 1.0, 0.0], row])
    for columns in (3, 4) if row[3] == 0 else (4,):
        with pytest.raises(ValueError, match=match):
            Cox().check_target(y[:, :columns])

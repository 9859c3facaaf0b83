"""Algorithm 1 for many problems: each is solved as it would be alone, whenever the others end."""

import numpy as np
import pytest

from trimreg.designs import as_design
from trimreg.losses import LOSSES, get_loss
from trimreg.penalties import TrimmedL1
from trimreg.penalties.simplex import project_rows
from trimreg.solvers import Problem, run
from trimreg.solvers.first_order import arrays as batches
from trimreg.solvers.first_order import batch as batched
from trimreg.solvers.first_order import bcd
from trimreg.solvers.first_order.arrays import (
    GramBatch,
    SampleBatch,
    eigenvalues_by_powers,
    largest_eigenvalues,
)
from trimreg.solvers.first_order.batch import Terms, largest_change, run_batch

COUNT, N, P = 6, 25, 12
H = np.array([0, 1, 3, 5, 11, 12])
QUADRATIC = get_loss("quadratic")
AGNOSTIC = [name for name, kind in LOSSES.items() if kind.array_agnostic]


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(5)
    X = rng.standard_normal((COUNT, N, P)) * rng.uniform(0.5, 2.0, (COUNT, 1, 1))
    y = X[:, :, :3] @ np.array([3.0, -2.0, 0.5]) + 0.3 * rng.standard_normal((COUNT, N))
    d = rng.uniform(0.5, 1.5, (COUNT, N))
    return X, y, d / d.sum(axis=1, keepdims=True)


def column(values):
    return np.broadcast_to(np.asarray(values, dtype=float), COUNT)[:, None].copy()


def terms_of(batch, alpha=0.3, tau=1.0, tol=1e-6, eta=None):
    eta = 1.0 / batch.lipschitz()[:, None] if eta is None else column(eta)
    scale = np.abs(batch.gradient(np.zeros((COUNT, P)))).max(axis=1, keepdims=True)
    return Terms(column(alpha), column(P - H), eta, column(tau), tol * scale)


def solved(batch, terms, **options):
    w = terms.total / P * np.ones((COUNT, P))
    return run_batch(batch, np.zeros((COUNT, P)), w, terms, project=project_rows, **options)


def alone(X, y, d, h, alpha, tau=1.0, tol=1e-6, max_iter=20_000, loss="quadratic", eta=None):
    problem = Problem(as_design(X, d), get_loss(loss), y, d, TrimmedL1(int(h)).bind(P), alpha)
    steps = bcd.iterate(problem, np.zeros(P), tol=tol, tau=tau, eta=eta, record_stationarity=False)
    return run(steps, max_iter)


@pytest.mark.parametrize("form", ["samples", "gram"])
@pytest.mark.parametrize("tau", [1.0, 0.3])
def test_each_problem_ends_where_it_would_alone(data, form, tau):
    batch = SampleBatch(*data, QUADRATIC)
    alphas = np.array([0.3, 0.1, 1.0, 0.02, 0.3, 5.0])
    terms = terms_of(batch, alphas, tau)
    end = solved(batch if form == "samples" else batch.gram(), terms)
    for b, (X, y, d) in enumerate(zip(*data, strict=True)):
        expected = alone(X, y, d, H[b], alphas[b], tau)
        np.testing.assert_allclose(end.theta[b], expected.step.theta, atol=1e-11)
        np.testing.assert_allclose(end.w[b], expected.step.weights, atol=1e-11)
        assert end.n_iter[b] == expected.n_iter
    assert end.converged.all()
    assert np.unique(end.n_iter).size > 3  # they do end at different times
    assert not end.interrupted


@pytest.mark.filterwarnings("ignore:not converged")
def test_logistic_problems_too(data):
    X, y, d = data
    labels = (y > 0).astype(float)
    batch = SampleBatch(X, labels, d, get_loss("logistic"))
    end = solved(batch, terms_of(batch, 0.05), max_iter=200)
    for b in range(COUNT):
        expected = alone(X[b], labels[b], d[b], H[b], 0.05, loss="logistic", max_iter=200)
        np.testing.assert_allclose(end.theta[b], expected.step.theta, atol=1e-11)
        assert (end.n_iter[b], end.converged[b]) == (expected.n_iter, expected.step.converged)


@pytest.mark.parametrize("steps", [1, 7, 10])
def test_looks_at_any_interval_find_the_same(data, monkeypatch, steps):
    batch = SampleBatch(*data, QUADRATIC)
    expected = solved(batch, terms_of(batch))
    monkeypatch.setattr(batched, "STEPS_BETWEEN_LOOKS", steps)
    end = solved(batch, terms_of(batch))
    np.testing.assert_array_equal(end.n_iter, expected.n_iter)
    np.testing.assert_allclose(end.theta, expected.theta, atol=1e-13)


@pytest.mark.filterwarnings("ignore:not converged")
@pytest.mark.parametrize("max_iter", [1, 13])
def test_no_problem_takes_more_than_max_iter_steps(data, max_iter):
    end = solved(SampleBatch(*data, QUADRATIC), terms_of(SampleBatch(*data, QUADRATIC)), max_iter=max_iter)
    np.testing.assert_array_equal(end.n_iter, max_iter)
    assert not end.converged.any()
    X, y, d = (part[2] for part in data)
    expected = alone(X, y, d, H[2], 0.3, max_iter=max_iter)
    np.testing.assert_allclose(end.theta[2], expected.step.theta, atol=1e-13)


def test_one_matrix_for_all_is_that_matrix_for_each(data):
    X, y, d = data
    own = SampleBatch(np.broadcast_to(X[0], X.shape), y, np.broadcast_to(d[0], d.shape), QUADRATIC)
    shared = SampleBatch(X[0], own.y, own.d, QUADRATIC)
    expected = solved(own, terms_of(own))
    gram = GramBatch(own.take(slice(0, 1)).gram().gram[0], own.gram().c)
    for batch in (shared, gram, shared.gram()):
        end = solved(batch, terms_of(own))
        np.testing.assert_allclose(end.theta, expected.theta, atol=1e-11)
        np.testing.assert_array_equal(end.n_iter, expected.n_iter)
    np.testing.assert_allclose(shared.lipschitz(), own.lipschitz(), rtol=1e-13)


def test_offsets_and_scales_are_those_of_columns(data):
    X, y, d = data
    rng = np.random.default_rng(0)
    offset, scale = rng.standard_normal((COUNT, P)), rng.uniform(0.0, 2.0, (COUNT, P))
    scale[:, 4] = 0.0
    Z = np.concatenate([(X - offset[:, None]) * scale[:, None], np.ones((COUNT, N, 1))], axis=2)
    implicit, explicit = SampleBatch(X, y, d, QUADRATIC, offset, scale, True), SampleBatch(Z, y, d, QUADRATIC)
    theta = rng.standard_normal((COUNT, P + 1))
    np.testing.assert_allclose(implicit.matrices(), Z)
    np.testing.assert_allclose(implicit.gradient(theta), explicit.gradient(theta), atol=1e-12)
    np.testing.assert_allclose(implicit.gram().gram, explicit.gram().gram, atol=1e-12)
    np.testing.assert_allclose(implicit.values(theta), explicit.values(theta), rtol=1e-12)
    np.testing.assert_allclose(implicit.lipschitz(), explicit.lipschitz(), rtol=1e-12)
    for small in ([part.gram().gram for part in implicit.parts(1)], [implicit.gram().gram]):
        np.testing.assert_allclose(np.concatenate(small), explicit.gram().gram, atol=1e-12)


@pytest.mark.parametrize("loss", AGNOSTIC)
def test_losses_take_tensors_and_rows(loss):
    torch = pytest.importorskip("torch")
    eta = np.array([[-800.0, -3.0, 0.0, 0.5, 800.0], [1.0, 2.0, 3.0, -4.0, 0.0]])
    y, d = np.array([[0.0, 1.0, 1.0, 0.25, 1.0]] * 2), np.full((2, 5), 0.2)
    ours, tensors = get_loss(loss), [torch.from_numpy(part) for part in (eta, y, d)]
    each = [ours.gradient(*row) for row in zip(eta, y, d, strict=True)]
    np.testing.assert_allclose(ours.gradient(*tensors).numpy(), each, rtol=1e-13, atol=1e-300)
    each = [ours.value(*row) for row in zip(eta, y, d, strict=True)]
    np.testing.assert_allclose((tensors[2] * ours.pointwise(*tensors[:2])).sum(-1).numpy(), each, rtol=1e-14)


@pytest.mark.parametrize("scale", [1e-100, 1.0, 1e100])
def test_largest_eigenvalues_by_powers(scale):
    rng = np.random.default_rng(3)
    Z = rng.standard_normal((5, 8, 6)) * np.sqrt(scale)
    Z[1, :, 0] = Z[1, :, 1] = 5.0 * np.sqrt(scale)
    Z[2] = 0.0
    Z[3] = np.sqrt(scale) * np.eye(8, 6)  # all eigenvalues the same
    A = np.swapaxes(Z, 1, 2) @ Z
    A[4] = scale * np.diag([1.0, 1.0 - 1e-9, 0.5, 0.0, 0.0, 0.0])
    expected = np.linalg.eigvalsh(A)[:, -1]
    np.testing.assert_allclose(eigenvalues_by_powers(A), expected, rtol=1e-9, atol=0)
    np.testing.assert_allclose(largest_eigenvalues(A), expected, rtol=1e-13, atol=0)
    np.testing.assert_allclose(eigenvalues_by_powers(A)[:2], expected[:2], rtol=1e-13)


def test_a_design_of_zeros_has_a_step(data):
    X, y, d = data
    zeros = SampleBatch(np.zeros_like(X), y, d, QUADRATIC)
    np.testing.assert_array_equal(zeros.lipschitz(), 1.0)
    np.testing.assert_array_equal(zeros.gram().lipschitz(), 1.0)


def moved(terms, seed):
    """A state of the batch and the next, nothing of which is any near to an end."""
    rng = np.random.default_rng(seed)
    before, after = rng.standard_normal((2, 3, COUNT, P))
    return batched.State(*before, None, None), *after


def test_the_bound_is_that_of_algorithm_1(data):
    """u and v of the proof, also where the steps in w are not 1."""
    terms = terms_of(SampleBatch(*data, QUADRATIC), 0.7, 0.3)
    before, theta, w, gradient = moved(terms, 0)
    found = batched.proof_bound(before, theta, w, gradient, terms)[:, 0]
    for b in range(COUNT):
        u = gradient[b] - before.gradient[b] - (theta[b] - before.theta[b]) / terms.eta[b]
        v = 0.7 * (np.abs(theta[b]) - np.abs(before.theta[b]) - (w[b] - before.w[b]) / 0.3)
        assert found[b] == pytest.approx(np.sqrt(u @ u + v @ v), rel=1e-13)


def test_the_largest_change_is_of_coefficients_or_of_weights(data):
    terms = terms_of(SampleBatch(*data, QUADRATIC), 0.7)
    before, theta, w, gradient = moved(terms, 1)
    by_theta = largest_change(before, theta, before.w, gradient, terms)
    by_w = largest_change(before, before.theta, w, gradient, terms)
    np.testing.assert_allclose(by_theta, np.abs(theta - before.theta).max(axis=1, keepdims=True) / terms.eta)
    np.testing.assert_allclose(by_w, 0.7 * np.abs(w - before.w).max(axis=1, keepdims=True))
    both = largest_change(before, theta, w, gradient, terms)
    np.testing.assert_array_equal(both, np.maximum(by_theta, by_w))


def test_the_other_rule_ends_when_nothing_moves(data):
    batch = SampleBatch(*data, QUADRATIC)
    terms = terms_of(batch)
    end = solved(batch, terms, distance=largest_change)
    state = batched.State(
        end.theta, end.w, batch.gradient(end.theta), end.converged[:, None] & False, 0 * H[:, None]
    )
    after = batched.one_step(state, batch, terms, project=project_rows)
    assert end.converged.all()
    assert (np.abs(after.theta - end.theta) <= 1.01 * terms.eta * terms.goal).all()
    assert (np.abs(after.w - end.w) <= 1.01 * terms.goal / terms.alpha).all()


def test_advance_hears_of_every_problem_once(data):
    heard = []
    solved(SampleBatch(*data, QUADRATIC), terms_of(SampleBatch(*data, QUADRATIC)), advance=heard.append)
    assert sum(heard) == COUNT
    assert min(heard) > 0


def test_an_interrupt_leaves_what_there_is(data):
    batch = SampleBatch(*data, QUADRATIC)
    whole = solved(batch, terms_of(batch))

    def stop(count):
        raise KeyboardInterrupt

    end = solved(batch, terms_of(batch), advance=stop)
    assert end.interrupted
    assert end.converged.any()
    assert not end.converged.all()
    np.testing.assert_array_equal(end.theta[end.converged], whole.theta[end.converged])
    assert (end.n_iter[~end.converged] >= end.n_iter[end.converged].max() // 10 * 10).all()
    assert (end.theta[~end.converged] != 0).any(axis=1).all()


def test_tensors_are_solved_as_arrays_are(data, monkeypatch):
    torch = pytest.importorskip("torch")
    batch = SampleBatch(*data, QUADRATIC)
    expected, terms = solved(batch, terms_of(batch)), terms_of(batch)
    monkeypatch.setattr(batches, "on_host", lambda array: False)  # as if it were a device
    for form in ("samples", "gram"):
        tensors = SampleBatch(*(torch.from_numpy(part.copy()) for part in data), QUADRATIC)
        np.testing.assert_allclose(1.0 / tensors.lipschitz().numpy(), terms.eta[:, 0], rtol=1e-12)
        tensors = tensors if form == "samples" else tensors.gram()
        theirs = Terms(*(torch.from_numpy(np.array(one)) for one in terms))
        ones = torch.ones((COUNT, P), dtype=torch.float64)
        end = run_batch(tensors, 0.0 * ones, theirs.total / P * ones, theirs, project=project_rows)
        np.testing.assert_allclose(end.theta.numpy(), expected.theta, atol=1e-11)
        np.testing.assert_array_equal(end.n_iter.numpy(), expected.n_iter)
        np.testing.assert_array_equal(end.converged.numpy(), True)


@pytest.mark.parametrize("loss", AGNOSTIC)
@pytest.mark.parametrize("shared", [False, True])
def test_a_step_never_waits_for_a_device(loss, shared):
    """Tensors of the device "meta" have no values: to look at one, or to mix devices, is an error."""
    torch = pytest.importorskip("torch")

    def empty(*shape):
        return torch.empty(shape, dtype=torch.float64, device="meta")

    X = empty(N, P) if shared else empty(COUNT, N, P)
    constant = loss == "logistic"
    moments = empty(COUNT, P), empty(COUNT, P)
    batch = SampleBatch(X, empty(COUNT, N), empty(COUNT, N), get_loss(loss), *moments, constant)
    terms = Terms(empty(COUNT, 1), empty(COUNT, 1), 1.0 / batch.lipschitz()[:, None], *empty(2, COUNT, 1))
    theta = empty(COUNT, P + constant)
    for form in [batch] if constant else [batch, batch.gram()]:
        state = batched.State(
            theta, empty(COUNT, P), form.gradient(theta), empty(COUNT, 1) > 0, empty(COUNT, 1)
        )
        for distance in (batched.proof_bound, largest_change):
            state = batched.one_step(state, form, terms, project=project_rows, distance=distance)
        assert {array.device.type for array in state} == {"meta"}
        assert state.theta.shape == theta.shape

"""Many problems in one call: the answers of ``solve``, whatever is shared, and clear errors."""

import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning

import trimreg
from trimreg import TrimmedL1, solve, solve_batch
from trimreg.estimators.batch import batch_input as batchinput
from trimreg.estimators.batch import solve_batch as batch
from trimreg.losses import get_loss

COUNT, N, P = 5, 30, 16
H = [0, 2, 3, 6, 16]


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(11)
    X = rng.standard_normal((COUNT, N, P)) * rng.uniform(0.5, 2.0, P) + 1.5
    X[:, :, 5] = 3.0  # a constant column
    y = X[:, :, :3] @ np.array([3.0, -2.0, 1.0]) + 0.3 * rng.standard_normal((COUNT, N)) + 4.0
    return X, y


def alone(X, y, h, alpha, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return solve(
            X, y, penalty=TrimmedL1(h), alpha=alpha, solver="bcd", record_stationarity=False, **options
        )


def assert_same(result, b, expected):
    np.testing.assert_allclose(result.coef[b], expected.coef, atol=1e-10)
    np.testing.assert_allclose(result.weights[b], expected.weights, atol=1e-10)
    assert result.intercept[b] == pytest.approx(expected.intercept, abs=1e-9)
    assert result.n_iter[b] == expected.n_iter
    assert result.converged[b] == expected.converged
    assert result.objective[b] == pytest.approx(expected.objective, rel=1e-10)
    assert result.stationarity[b] == pytest.approx(expected.stationarity, rel=1e-6, abs=1e-20)
    assert result.alpha[b] == pytest.approx(expected.alpha, rel=1e-12)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("kind", ["numpy", "torch"])
@pytest.mark.parametrize("loss", ["quadratic", "logistic"])
@pytest.mark.parametrize("alpha", [0.1, "exact"])
@pytest.mark.parametrize("fit_intercept", [False, True])
def test_each_problem_is_solved_as_solve_does(data, kind, loss, alpha, fit_intercept, monkeypatch):
    X, y = data
    y = y if loss == "quadratic" else (y > np.median(y, axis=1, keepdims=True)).astype(float)
    options = {"fit_intercept": fit_intercept, "standardize": fit_intercept, "loss": loss, "max_iter": 150}
    weight = np.random.default_rng(0).uniform(0.5, 1.5, (COUNT, N))
    weight[:, :2] = 0.0
    arrays = X, y
    if kind == "torch":
        torch = pytest.importorskip("torch")
        arrays = torch.from_numpy(X), torch.from_numpy(y)
        monkeypatch.setattr(batchinput, "_numpy_is_faster", lambda X: False)  # as on a GPU
    result = solve_batch(*arrays, h=H, alpha=alpha, sample_weight=weight, **options)
    assert isinstance(result.coef, np.ndarray)
    for b in range(COUNT):
        assert_same(result, b, alone(X[b], y[b], H[b], alpha, sample_weight=weight[b], **options))
    if alpha == "exact":
        assert (np.count_nonzero(result.coef, axis=1) <= H).all()


def test_exact_means_at_most_h_nonzeros(data):
    """Of two columns that are the same Algorithm 1 frees half of each; MM decides."""
    X, y = np.repeat(data[0][:2, :, :1], 2, axis=2), data[0][:2, :, 0]
    result = solve_batch(X, y, h=1, alpha="exact")
    np.testing.assert_array_equal(np.count_nonzero(result.coef, axis=1), 1)
    np.testing.assert_allclose(result.coef.sum(axis=1), 1.0)
    soft = solve_batch(X, y, h=1, alpha=result.alpha)
    np.testing.assert_array_equal(np.count_nonzero(soft.coef, axis=1), 2)
    for b in range(2):
        assert_same(result, b, alone(X[b], y[b], 1, "exact"))


@pytest.mark.parametrize("form", ["samples", "gram", "auto"])
@pytest.mark.parametrize("size", [None, 1, 3])
def test_neither_form_nor_size_of_a_batch_matters(data, form, size):
    X, y = data
    result = solve_batch(X, y, h=3, alpha=0.2, fit_intercept=True, form=form, batch_size=size)
    expected = solve_batch(X, y, h=3, alpha=0.2, fit_intercept=True, form="samples")
    np.testing.assert_allclose(result.coef, expected.coef, atol=1e-10)
    np.testing.assert_array_equal(result.n_iter, expected.n_iter)
    assert result.converged.all()
    assert result.message == "5 of 5 problems have converged"


@pytest.mark.parametrize("form", ["samples", "gram"])
def test_a_path_over_one_matrix(data, form):
    X, y = data[0][0], data[1][0]
    alphas, hs = [0.05, 0.2, 0.2, 0.8, 3.0], [1, 1, 4, 4, 0.25]
    result = solve_batch(X, y, h=hs, alpha=alphas, fit_intercept=True, standardize=True, form=form)
    for b in range(COUNT):
        h = hs[b]
        assert_same(result, b, alone(X, y, h, alphas[b], fit_intercept=True, standardize=True))


@pytest.mark.parametrize("form", ["samples", "gram"])
def test_folds_are_weights_of_zero(data, form):
    X, y = data[0][0], data[1][0]
    weight = np.ones((3, N))
    for fold in range(3):
        weight[fold, fold::3] = 0.0
    result = solve_batch(X, y, h=2, alpha=0.2, sample_weight=weight, fit_intercept=True, form=form)
    for fold in range(3):
        kept = weight[fold] > 0
        assert_same(result, fold, alone(X[kept], y[kept], 2, 0.2, fit_intercept=True))


def test_a_bootstrap_is_counts(data):
    X, y = data[0][0], data[1][0]
    drawn = np.random.default_rng(2).integers(0, N, (4, N))
    counts = np.array([np.bincount(rows, minlength=N) for rows in drawn])
    result = solve_batch(X, y, h=2, alpha=0.2, sample_weight=counts, fit_intercept=True)
    for b in range(4):
        assert_same(result, b, alone(X[drawn[b]], y[drawn[b]], 2, 0.2, fit_intercept=True))


def test_matrices_of_different_length(data):
    X, y = data
    lengths = [30, 12, 25]
    matrices, targets = ([part[b][:n] for b, n in enumerate(lengths)] for part in (X, y))
    result = solve_batch(matrices, targets, h=2, alpha=0.3, fit_intercept=True)
    for b in range(3):
        assert_same(result, b, alone(matrices[b], targets[b], 2, 0.3, fit_intercept=True))


def test_a_start_is_in_the_units_of_x(data):
    X, y = data
    labels = (y > np.median(y)).astype(float)
    theta0 = np.random.default_rng(3).standard_normal((COUNT, P))
    for loss, target in (("quadratic", y), ("logistic", labels)):
        options = {"loss": loss, "fit_intercept": True, "standardize": True, "max_iter": 3}
        with pytest.warns(ConvergenceWarning, match="0 of 5 problems have converged"):
            result = solve_batch(X, target, h=3, alpha=0.1, theta0=theta0, **options)
        for b in range(COUNT):
            expected = alone(X[b], target[b], 3, 0.1, theta0=theta0[b], **options)
            np.testing.assert_allclose(result.coef[b], expected.coef, atol=1e-10)
            assert result.intercept[b] == pytest.approx(expected.intercept, abs=1e-10)


def test_steps_of_every_problem(data):
    X, y = data
    eta, tau = np.linspace(1e-3, 5e-3, COUNT), np.linspace(0.2, 1.0, COUNT)
    with pytest.warns(ConvergenceWarning, match="the first that has not is problem 0, after 20 steps"):
        result = solve_batch(X, y, h=3, alpha=0.1, eta=eta, tau=tau, max_iter=20)
    for b in range(COUNT):
        expected = alone(X[b], y[b], 3, 0.1, eta=eta[b], tau=tau[b], max_iter=20)
        np.testing.assert_allclose(result.coef[b], expected.coef, atol=1e-12)


def test_narrow_types_are_solved_in_float64(data):
    X, y = (part.astype(np.float32) for part in data)
    result = solve_batch(X, y, h=3, alpha=0.2)
    expected = solve_batch(X.astype(float), y.astype(float), h=3, alpha=0.2)
    assert result.coef.dtype == np.float64
    np.testing.assert_array_equal(result.coef, expected.coef)
    integers = solve_batch(np.arange(12).reshape(4, 3) % 5, [1, 2, 3, 4], h=1, alpha=0.1)
    assert integers.coef.shape == (1, 3)


def test_nothing_is_written_to_the_data(data):
    X, y = (part.copy() for part in data)
    X.flags.writeable = y.flags.writeable = False
    solve_batch(X, y, h=3, alpha="exact", fit_intercept=True, standardize=True)
    np.testing.assert_array_equal(X, data[0])


def test_targets_without_variation():
    X = np.random.default_rng(0).standard_normal((2, 10, 4))
    result = solve_batch(X, np.full((2, 10), 0.1), h=1, alpha="exact", fit_intercept=True)
    np.testing.assert_array_equal(result.coef, 0.0)
    np.testing.assert_allclose(result.intercept, 0.1)
    assert result.converged.all()


def test_progress(data):
    heard = []
    solve_batch(*data, h=3, alpha=0.2, fit_intercept=True, batch_size=2, advance=heard.append)
    assert sum(heard) == COUNT


def test_an_interrupt_returns_what_there_is(data):
    heard = []

    def stop(count):
        heard.append(count)
        if sum(heard) >= 3:
            raise KeyboardInterrupt

    with pytest.warns(ConvergenceWarning, match="interrupted: 3 of 5 problems have converged"):
        result = solve_batch(*data, h=3, alpha=0.2, fit_intercept=True, batch_size=1, advance=stop)
    whole = solve_batch(*data, h=3, alpha=0.2, fit_intercept=True)
    np.testing.assert_array_equal(result.converged, [True] * 3 + [False] * 2)
    np.testing.assert_allclose(result.coef[:3], whole.coef[:3], atol=1e-12)
    np.testing.assert_array_equal(result.n_iter[3:], 0)
    assert np.isnan(result.objective[3:]).all()


def test_an_interrupt_before_anything_is_there_is_one(data, monkeypatch):
    def stop(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(batch, "_terms", stop)
    with pytest.raises(KeyboardInterrupt):
        solve_batch(*data, h=3, alpha=0.2)


def test_a_device_without_room_says_what_to_do(data, monkeypatch):
    torch = pytest.importorskip("torch")

    def full(*arguments, **options):
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(batch, "_terms", full)
    monkeypatch.setattr(batchinput, "_numpy_is_faster", lambda X: False)
    X, y = (torch.from_numpy(part) for part in data)
    with pytest.raises(MemoryError, match=r"5 problems at a time .* give a smaller batch_size, such as 2"):
        solve_batch(X, y, h=3, alpha=0.2, batch_size=8)


@pytest.mark.parametrize("moved", [True, False])
def test_tensors_of_all_kinds(data, moved, monkeypatch):
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(batchinput, "_numpy_is_faster", lambda X: moved)
    X, y = data
    expected = solve_batch(X, y, h=3, alpha=0.2, fit_intercept=True)
    tensor = torch.from_numpy(X).requires_grad_()
    for a, b in (
        (tensor, y),
        (X, torch.from_numpy(y)),
        (list(tensor), list(y)),
        (tensor.mT.contiguous().mT, y),
    ):
        np.testing.assert_allclose(
            solve_batch(a, b, h=3, alpha=0.2, fit_intercept=True).coef, expected.coef, atol=1e-12
        )
    half = torch.from_numpy(X).bfloat16()
    result = solve_batch(half, y, h=3, alpha=0.2, fit_intercept=True)
    np.testing.assert_allclose(
        result.coef,
        solve_batch(half.double().numpy(), y, h=3, alpha=0.2, fit_intercept=True).coef,
        atol=1e-12,
    )


def test_a_gpu_gives_the_same(data):
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device here")
    X, y = (torch.from_numpy(part).cuda() for part in data)
    for form in ("samples", "gram"):
        result = solve_batch(X, y, h=H, alpha=0.2, fit_intercept=True, standardize=True, form=form)
        expected = solve_batch(*data, h=H, alpha=0.2, fit_intercept=True, standardize=True, form=form)
        np.testing.assert_allclose(result.coef, expected.coef, atol=1e-9)
        assert np.abs(result.n_iter - expected.n_iter).max() <= 1


def nan_at(X, *place):
    X = X.copy()
    X[place] = np.nan
    return X


BAD = {
    "X of four axes": (lambda X, y: ((X[None], y), {}), "X must have shape .*got shape \\(1, 5, 30, 16\\)"),
    "no feature": (lambda X, y: ((X[:, :, :0], y), {}), "X must have shape"),
    "NaN": (lambda X, y: ((nan_at(X, 2, 7, 3), y), {}), "X of problem 2 contains NaN at row 7, column 3"),
    "NaN, one X": (lambda X, y: ((nan_at(X[0], 7, 3), y), {}), "X contains NaN at row 7, column 3"),
    "NaN in y": (lambda X, y: ((X, nan_at(y, 1, 4)), {}), "y of problem 1 contains NaN at row 4"),
    "complex": (lambda X, y: ((X * 1j, y), {}), "X must be real"),
    "short y": (
        lambda X, y: ((X, y[:, :9]), {}),
        "y must have shape \\(n_problems, 30\\).*got shape \\(5, 9\\)",
    ),
    "problems": (lambda X, y: ((X, y[:3]), {}), "y is for 3 problems, but X is for 5"),
    "alphas": (lambda X, y: ((X, y), {"alpha": [1.0, 2.0]}), "alpha is for 2 problems, but X is for 5"),
    "alpha": (lambda X, y: ((X, y), {"alpha": -1.0}), "alpha must be a finite number >= 0"),
    "a word": (lambda X, y: ((X, y), {"alpha": "all"}), "alpha must be 'exact'"),
    "axes": (
        lambda X, y: ((X, y), {"alpha": np.ones((5, 1))}),
        "alpha must be a number, or one",
    ),
    "h": (lambda X, y: ((X, y), {"h": [1, 2, 3, 4, 17]}), "h must be an integer from 0 to"),
    "eta": (lambda X, y: ((X, y), {"eta": 0.0}), "eta must be a finite number > 0"),
    "tau": (lambda X, y: ((X, y), {"tau": "x"}), "tau must be a finite number > 0"),
    "loss": (lambda X, y: ((X, y), {"loss": "cox"}), "loss must be one of"),
    "labels": (lambda X, y: ((X, y), {"loss": "logistic"}), "y must be 0 or 1"),
    "form": (lambda X, y: ((X, y), {"form": "rows"}), "form must be one of"),
    "Gram": (lambda X, y: ((X, y > 3), {"loss": "logistic", "form": "gram"}), "form='gram' is for"),
    "size": (lambda X, y: ((X, y), {"batch_size": 0}), "batch_size must be an integer >= 1"),
    "weights": (
        lambda X, y: ((X, y), {"sample_weight": np.r_[-1.0, np.ones(29)]}),
        "sample_weight must be >= 0; got -1.0 for sample 0 of problem 0",
    ),
    "no weight": (
        lambda X, y: ((X, y), {"sample_weight": np.arange(5.0)[:, None] * np.ones((5, 30))}),
        "sample_weight must not be all zero; it is for problem 0",
    ),
    "start": (lambda X, y: ((X, y), {"theta0": np.zeros(3)}), "theta0 must have shape"),
    "features": (lambda X, y: (([X[0], X[1][:, :3]], y[:2]), {}), "X\\[1\\] has shape \\(30, 3\\)"),
    "targets": (lambda X, y: (([X[0], X[1]], y[:1]), {}), "y must hold one vector for each of the 2"),
    "target": (lambda X, y: (([X[0], X[1][:9]], y[:2]), {}), "y\\[1\\] must have shape \\(9,\\)"),
    "nothing": (lambda X, y: ((X[:0], y[0]), {}), "at least one problem"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_named(data, case):
    make, message = BAD[case]
    arguments, options = make(*data)
    with pytest.raises(ValueError, match=message):
        solve_batch(*arguments, **{"h": 2, "alpha": 0.1} | options)


def test_a_tensor_that_cannot_be_used(data):
    torch = pytest.importorskip("torch")
    with pytest.raises(ValueError, match="X must be real"):
        solve_batch(torch.ones((2, 3, 4), dtype=torch.complex128), np.ones(3), h=1, alpha=1.0)
    with pytest.raises(ValueError, match="X of problem 1 contains inf at row 0, column 2"):
        solve_batch(torch.tensor([[[1.0, 2.0, 3.0]], [[1.0, 2.0, torch.inf]]]), np.ones(1), h=1, alpha=1.0)


def test_forms_and_sizes_are_chosen(data):
    X = data[0]
    chosen = {}
    for name, matrices, weight in (
        ("stacked", X, None), ("wide", np.zeros((2, 4, 20)), None), ("one", X[0], None),
        ("one, weights", X[0], np.ones((3, N))), ("long, weights", np.zeros((200, 4)), np.ones((3, 200))),
    ):  # fmt: skip
        part = batchinput.as_batch(matrices, np.zeros(matrices.shape[-2]), weight)
        chosen[name] = batch._form(part, get_loss("quadratic"))
        assert batch._form(part, get_loss("logistic")) == "samples"
        assert batch._batch_size(part, chosen[name]) >= 8
    assert chosen == {
        "stacked": "gram", "wide": "samples", "one": "gram", "one, weights": "samples",
        "long, weights": "gram",
    }  # fmt: skip


def test_it_is_a_public_name():
    assert "solve_batch" in trimreg.__all__
    assert trimreg.solve_batch is solve_batch


def test_sparse_matrices_are_refused():
    with pytest.raises(TypeError, match="X must be dense, but is a sparse matrix"):
        solve_batch(sp.csc_array(np.eye(4)), np.ones(4), h=1, alpha=0.1)


def test_bfloat16_wherever_numbers_are_taken(data):
    torch = pytest.importorskip("torch")
    X, y = (torch.tensor(array, dtype=torch.bfloat16) for array in data)
    weight = torch.tensor(np.random.default_rng(0).uniform(0.5, 2.0, (COUNT, N)), dtype=torch.bfloat16)
    alpha, theta0 = torch.full((COUNT,), 0.25, dtype=torch.bfloat16), torch.zeros(P, dtype=torch.bfloat16)
    wide = {"h": 3, "alpha": 0.25, "sample_weight": weight.double().numpy(), "theta0": np.zeros(P)}
    expected = solve_batch(X.double().numpy(), y.double().numpy(), **wide)
    options = {"h": 3, "alpha": alpha, "sample_weight": weight, "theta0": theta0}
    found = solve_batch(X, y, **options)
    np.testing.assert_allclose(found.coef, expected.coef, atol=1e-10)
    options["sample_weight"] = list(weight)
    listed = solve_batch(list(X), list(y), **options)
    np.testing.assert_allclose(listed.coef, expected.coef, atol=1e-10)


def test_tensors_without_numbers_to_read_are_named(data):
    torch = pytest.importorskip("torch")
    X, y = map(torch.tensor, data)
    options = {"h": 2, "alpha": 0.1}
    with pytest.raises(ValueError, match="X is on the meta device"):
        solve_batch(X.to("meta"), y, **options)
    with pytest.raises(ValueError, match="y is on the meta device"):
        solve_batch(X, y.to("meta"), **options)
    with pytest.raises(TypeError, match=r"X\[1\] must be dense, but is a sparse tensor.*X\[1\].to_dense"):
        solve_batch([X[0], X[1].to_sparse()], list(y[:2]), **options)
    with pytest.raises(TypeError, match="y must be dense, but is a sparse tensor"):
        solve_batch(X, y.to_sparse(), **options)


@pytest.mark.parametrize("scale", [1e-200, 1e-155, 1e155, 1e300])
def test_entries_whose_squares_overflow_are_refused_unless_standardized(scale):
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((3, 20, 6)) * scale, rng.standard_normal((3, 20))
    with pytest.raises(ValueError, match=r"X must have a largest entry between 1e-140 and 1e\+140"):
        solve_batch(X, y, h=2, alpha=0.1)
    result = solve_batch(X, y, h=2, alpha=0.1, standardize=True)
    plain = solve_batch(X / scale, y, h=2, alpha=0.1, standardize=True)
    np.testing.assert_allclose(result.theta, plain.theta, rtol=1e-6, atol=1e-9)

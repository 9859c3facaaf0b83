"""Fits on tensors against fits on arrays in memory: every loss, every storage, the same certificates."""

import numpy as np
import pytest

from trimreg import TrimmedCoxRegressor, TrimmedL1, TrimmedLasso, TrimmedLogisticRegression, solve

torch = pytest.importorskip("torch")

from trimreg.designs.torch import design as torchdense  # noqa: E402
from trimreg.designs.torch.design import TorchDesign, TorchMatrix  # noqa: E402

N, P, H = 160, 30, 4
DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
LOSSES = ["quadratic", "logistic", "multinomial", "poisson", "gamma", "huber", "cox", "multitask"]


class OnDevice(TorchMatrix):
    """A tensor that is never taken for an array in memory, wherever it lies."""

    def design(self, weights, *, center=False, scale=False):
        return TorchDesign(self, weights, center=center, scale=scale)


@pytest.fixture(params=DEVICES)
def device(request):
    return request.param


@pytest.fixture(autouse=True)
def no_restriction_on_the_host(monkeypatch):
    monkeypatch.setattr(torchdense, "_SMALL", 0)


def data(loss="quadratic", n=N, p=P, h=H, seed=0):
    """Correlated columns of unequal size and place, one constant; few of them matter."""
    rng = np.random.default_rng(seed)
    Z = rng.standard_normal((n, p))
    for j in range(1, p):
        Z[:, j] = 0.5 * Z[:, j - 1] + np.sqrt(0.75) * Z[:, j]
    coef = np.zeros(p)
    coef[rng.choice(p - 1, h, replace=False) + 1] = rng.choice([-1.0, 1.0], h)
    eta = Z @ coef
    X = Z * np.geomspace(0.1, 10, p) + 3.0
    X[:, 0] = 2.0
    noise, time = rng.standard_normal(n), np.exp(-0.4 * eta) * rng.exponential(1, n)
    y = {
        "quadratic": lambda: eta + noise,
        "logistic": lambda: (eta + 2 * noise > 0).astype(float),
        "multinomial": lambda: np.digitize(eta + noise, [-1.0, 1.0]).astype(float),
        "poisson": lambda: rng.poisson(np.exp(0.4 * eta)).astype(float),
        "gamma": lambda: np.exp(0.3 * eta) * rng.gamma(4.0, 0.25, n),
        "huber": lambda: eta + rng.standard_t(2, n),
        "cox": lambda: np.column_stack([np.round(time, 2) + 0.01, rng.random(n) < 0.7]),
        "multitask": lambda: np.column_stack([eta + noise, 0.5 * eta - noise]),
    }[loss]()  # fmt: skip
    return X, y


def options(loss, alpha, **others):
    how = {"loss": loss, "penalty": TrimmedL1(H), "alpha": alpha, "standardize": True, "tol": 1e-9}
    if loss != "cox":
        how["fit_intercept"] = True
    return {**how, **others}


def contrasts(values):
    """Of several classes only differences are determined, where no penalty holds them."""
    return values - values.mean(axis=0) if np.ndim(values) else values


def assert_same_fit(ours, reference, atol=1e-6, determined=np.asarray):
    np.testing.assert_allclose(determined(ours.coef), determined(reference.coef), rtol=0, atol=atol)
    intercepts = determined(ours.intercept), determined(reference.intercept)
    np.testing.assert_allclose(*intercepts, rtol=0, atol=10 * atol)
    np.testing.assert_allclose(ours.objective, reference.objective, rtol=1e-9)
    assert ours.converged
    assert ours.swap_optimal == reference.swap_optimal
    assert np.array_equal(ours.weights, reference.weights)
    assert ours.stationarity <= max(10 * reference.stationarity, 1e-14)


@pytest.mark.parametrize("loss", LOSSES)
def test_every_loss(device, loss):
    X, y = data(loss)
    alpha = 0.05 if loss in ("quadratic", "multinomial", "huber") else "exact"
    reference = solve(X, y, **options(loss, alpha))
    assert reference.converged
    determined = contrasts if loss == "multinomial" else np.asarray
    for tensor in (torch.from_numpy(X), torch.from_numpy(X.T.copy()).t()):
        ours = solve(OnDevice(tensor.to(device)), y, **options(loss, alpha))
        assert_same_fit(ours, reference, determined=determined)


@pytest.mark.parametrize("storage", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("loss", ["quadratic", "logistic"])
def test_a_fit_is_that_of_the_stored_numbers(device, storage, loss):
    """Not of their rounding on the way: tolerances below the storage's precision are reached."""
    X, y = data(loss)
    stored = torch.from_numpy(X).to(getattr(torch, storage))
    reference = solve(stored.double().numpy(), y, **options(loss, "exact"))
    ours = solve(OnDevice(stored.to(device)), y, **options(loss, "exact"))
    assert ours.coef.dtype == np.float32
    np.testing.assert_allclose(ours.coef, reference.coef, rtol=3e-7, atol=1e-9)
    np.testing.assert_allclose(ours.objective, reference.objective, rtol=1e-10)
    assert ours.converged
    assert ours.stationarity <= 1e-14


@pytest.mark.parametrize("loss", ["quadratic", "logistic", "multitask"])
@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("standardize", [False, True])
def test_weights_scale_and_intercept(device, loss, fit_intercept, standardize):
    X, y = data(loss)
    weight = np.random.default_rng(1).random(N)
    weight[::7] = 0.0
    how = options(loss, 0.05, fit_intercept=fit_intercept, standardize=standardize, sample_weight=weight)
    assert_same_fit(solve(OnDevice(torch.from_numpy(X).to(device)), y, **how), solve(X, y, **how))


@pytest.mark.parametrize("solver", ["bcd", "dc", "prox"])
@pytest.mark.parametrize("p", [30, 80])  # so wide that no few rows stand for it: every step asks the tensor
def test_other_solvers(device, solver, p):
    X, y = data(n=60, p=p)
    how = options("quadratic", 0.3, solver=solver, tol=1e-7, max_iter=20_000)
    stored = torch.from_numpy(X).float()
    ours = solve(OnDevice(stored.to(device)), y, **how)
    reference = solve(stored.double().numpy(), y, **how)
    np.testing.assert_allclose(ours.coef, reference.coef, rtol=1e-5, atol=1e-6)
    assert ours.converged


def test_more_columns_than_rows(device):
    X, y = data(n=60, p=200, seed=3)
    reference = solve(X, y, **options("quadratic", "exact"))
    assert_same_fit(
        solve(OnDevice(torch.from_numpy(X).to(device)), y, **options("quadratic", "exact")), reference
    )


@pytest.mark.parametrize(("loss", "most"), [("quadratic", 12), ("logistic", 16)])
def test_passes_of_a_wide_fit(device, loss, most):
    """Wider than what is compressed: the engine itself goes over X, and no more often than this."""
    X, y = data(loss, n=1500, p=3300, h=10)
    X = OnDevice(torch.from_numpy(X).float().to(device))
    result = solve(X, y, **options(loss, "exact", penalty=TrimmedL1(10), tol=1e-6))
    assert result.converged
    assert np.count_nonzero(result.coef) == 10
    assert 3 <= X.passes <= most


def test_estimators_take_tensors_and_return_arrays(device):
    X, y = data()
    for storage in (torch.float64, torch.float32, torch.bfloat16):
        tensor = torch.from_numpy(X).to(storage)
        array = tensor.double().numpy()
        model = TrimmedLasso(h=H).fit(tensor.to(device), torch.from_numpy(y).to(device))
        reference = TrimmedLasso(h=H).fit(array, y)
        assert type(model.coef_) is np.ndarray
        assert model.n_features_in_ == P
        np.testing.assert_allclose(model.coef_, reference.coef_, rtol=1e-5, atol=1e-6)
        predicted = model.predict(tensor.to(device))
        assert type(predicted) is np.ndarray
        np.testing.assert_allclose(predicted, array @ model.coef_ + model.intercept_, rtol=0, atol=1e-5)
        np.testing.assert_allclose(model.score(tensor.to(device), y), reference.score(array, y), rtol=1e-5)


def test_classifier_and_survival_take_tensors(device):
    X, y = data("logistic")
    tensor = torch.from_numpy(X).bfloat16()
    array = tensor.double().numpy()
    model = TrimmedLogisticRegression(h=H).fit(tensor.to(device), y)
    reference = TrimmedLogisticRegression(h=H).fit(array, y)
    np.testing.assert_allclose(model.coef_, reference.coef_, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(
        model.predict_proba(tensor.to(device)), reference.predict_proba(array), atol=1e-5
    )
    X, y = data("cox")
    tensor = torch.from_numpy(X).bfloat16()
    reference = TrimmedCoxRegressor(h=H).fit(tensor.double().numpy(), y)
    np.testing.assert_allclose(
        TrimmedCoxRegressor(h=H).fit(tensor.to(device), y).coef_, reference.coef_, rtol=1e-4, atol=1e-5
    )


def test_a_failed_fit_leaves_nothing(device):
    X, y = data()
    X[17, 5] = np.nan
    model = TrimmedLasso(h=H)
    with pytest.raises(ValueError, match="X contains NaN at row 17, column 5"):
        model.fit(torch.from_numpy(X).bfloat16().to(device), y)
    assert not [name for name in vars(model) if name.endswith("_")]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_cuda_out_of_memory():
    """With a limit on what this process may take, so that others on the device are left alone."""
    X, y = data()
    tensor = torch.from_numpy(X).float().cuda()
    wide = torch.zeros(1, 1, dtype=torch.int8, device="cuda").expand(1 << 15, 1 << 12)
    torch.cuda.empty_cache()
    total = torch.cuda.mem_get_info()[1]
    torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_reserved() + (48 << 20)) / total)
    try:
        with pytest.raises(MemoryError, match=r"cuda:0 has no memory left .* GiB are free"):
            TorchMatrix(wide)
        with pytest.raises(MemoryError, match=r"cuda:0 has no memory left .* GiB are free"):
            TrimmedLasso(h=H).fit(wide, np.zeros(1 << 15))
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    model = TrimmedLasso(h=H).fit(tensor, y)  # and the device works as before
    assert np.count_nonzero(model.coef_) == H


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("library", ["cupy", "jax.numpy"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_arrays_of_other_libraries_on_a_device(library, dtype):
    """By DLPack, without a copy: the fit of the same numbers in memory."""
    other = pytest.importorskip(library)
    X, y = data()
    X = X.astype(dtype)
    if library == "jax.numpy":
        import jax

        jax.config.update("jax_enable_x64", True)
        if jax.default_backend() != "gpu":
            pytest.skip("JAX sees no GPU")
    there = other.asarray(X)
    model = TrimmedLasso(h=H).fit(there, other.asarray(y))
    known = TrimmedLasso(h=H).fit(X.astype(float), y)
    assert isinstance(model.coef_, np.ndarray)
    np.testing.assert_allclose(model.coef_, known.coef_, atol=1e-6 if dtype == "float64" else 1e-5)
    np.testing.assert_allclose(model.predict(there), known.predict(X), atol=1e-4)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_predictions_refuse_what_is_no_number_also_where_no_coefficient_is(device, dtype, bad):
    X, y = data(p=80)
    model = TrimmedLasso(h=2).fit(X, y)
    unused = int(np.flatnonzero(model.coef_ == 0)[3])
    X[7, unused] = bad
    kind = "NaN" if np.isnan(bad) else "inf"
    with pytest.raises(ValueError, match=f"X contains {kind} at row 7, column {unused}"):
        model.predict(torch.tensor(X, dtype=dtype, device=device))
    X[7, unused] = 3e38  # whose sums overflow, and which is a number
    X[8, unused] = 3e38
    large = torch.tensor(X, dtype=dtype, device=device)
    assert np.isfinite(model.predict(large)).all()

"""Matrices known by their type, and vectors fetched from wherever they lie."""

import subprocess
import sys

import numpy as np
import pytest
import scipy.sparse as sp

from trimreg.designs import VirtualMatrix, as_design
from trimreg.designs.convert import as_virtual, feature_names, is_far, is_virtual, stays_in_process, to_host
from trimreg.designs.far.rows import ArrayRows

X = np.arange(12.0).reshape(4, 3) ** 2


class Nowhere(VirtualMatrix):
    """A matrix of our own with as little as a virtual matrix may have."""

    shape, dtype = (4, 3), np.dtype(float)

    def design(self, weights, *, center=False, scale=False):
        return "a design", center, scale

    def product(self, coef, intercept=0.0):
        return X @ coef + intercept

    def describe(self):
        return "nowhere"


def of_module(name, module, **members):
    """An instance of a class that says it is of that module."""
    return type(name, (), {"__module__": module, **members})()


@pytest.mark.parametrize(
    "value",
    [X, X.tolist(), sp.csr_array(X), X.astype("f4"), None, "text", [1, 2], 3.0],
    ids=lambda value: type(value).__name__,
)
def test_what_is_in_memory_is_not_virtual(value):
    assert as_virtual(value) is None
    assert not is_far(value)
    assert not stays_in_process(value)
    assert to_host(value) is value


def test_a_data_frame_is_in_memory():
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(X, columns=list("abc"))  # it has a product and a describe, but no design
    assert as_virtual(frame) is None
    assert feature_names(frame) is None  # scikit-learn reads these itself


def test_a_memory_map_is_an_array(tmp_path):
    np.save(tmp_path / "X.npy", X)
    mapped = np.load(tmp_path / "X.npy", mmap_mode="r")
    assert isinstance(mapped, np.memmap)
    assert as_virtual(mapped) is None


def test_a_virtual_matrix_is_taken_as_it_is():
    for value in (Nowhere(), ArrayRows(X, block_rows=2)):
        assert is_virtual(value)
        assert is_far(value)
        assert as_virtual(value) is value
        assert not stays_in_process(value)
    assert not is_virtual(of_module("Half", "user", design=lambda self: 0, product=lambda self: 0))
    assert as_design(Nowhere(), None, center=True) == ("a design", True, False)


def test_names_of_columns():
    assert feature_names(Nowhere()) is None
    named = Nowhere()
    named.feature_names = ["a", "b", "c"]
    assert feature_names(named) == ["a", "b", "c"]


def test_dask():
    da = pytest.importorskip("dask.array")
    far = da.from_array(X, chunks=2)
    assert is_far(far)
    assert not is_virtual(far)
    rows = as_virtual(far)
    assert rows.shape == (4, 3)
    assert stays_in_process(rows)
    assert rows.product(np.ones(3)) == pytest.approx(X.sum(axis=1))
    assert np.array_equal(to_host(far[:, 0]), X[:, 0])
    assert isinstance(to_host(far[:, 0]), np.ndarray)
    pd, dd = pytest.importorskip("pandas"), pytest.importorskip("dask.dataframe")
    frame = dd.from_pandas(pd.DataFrame(X, columns=list("abc")), npartitions=2)
    assert is_far(frame)
    assert feature_names(frame) == ["a", "b", "c"]
    assert feature_names(as_virtual(frame)) == ["a", "b", "c"]
    assert np.asarray(to_host(frame["b"])) == pytest.approx(X[:, 1])


def test_torch():
    torch = pytest.importorskip("torch")
    tensor = torch.tensor(X, requires_grad=True)
    matrix = as_virtual(tensor)
    assert matrix.shape == (4, 3)
    assert stays_in_process(matrix)
    assert np.array_equal(to_host(tensor), X)
    assert np.array_equal(to_host(torch.nn.Parameter(tensor.detach())), X)  # a class of another module
    half = torch.tensor([1.5, -2.0], dtype=torch.bfloat16)
    assert to_host(half).dtype == np.float32
    assert to_host(half).tolist() == [1.5, -2.0]
    assert to_host(torch.tensor([True, False])).tolist() == [True, False]


def test_a_subclass_of_a_tensor_is_one():
    torch = pytest.importorskip("torch")

    class Named(torch.Tensor):
        pass

    assert is_far(torch.ones(2, 2).as_subclass(Named))


def test_cupy_and_jax_by_name():
    assert is_far(of_module("ndarray", "cupy"))
    assert is_far(of_module("ArrayImpl", "jaxlib._jax"))
    assert not is_far(of_module("Array", "jaxonomy"))
    assert to_host(of_module("ndarray", "cupy", get=lambda self: X)) is X
    jax_like = of_module("ArrayImpl", "jaxlib", __array__=lambda self, dtype=None, copy=None: X)
    assert np.array_equal(to_host(jax_like), X)


def test_bfloat16_of_numpy_is_float32():
    """As JAX has it in memory: a type of the package ml_dtypes, which NumPy knows by its size alone."""
    bfloat16 = pytest.importorskip("ml_dtypes").bfloat16
    short = X.astype(bfloat16)
    jax_like = of_module("ArrayImpl", "jaxlib", __array__=lambda self, dtype=None, copy=None: short)
    for value in (short, jax_like):
        assert to_host(value).dtype == np.float32
        assert np.array_equal(to_host(value), short.astype(np.float32))


def test_what_speaks_nothing_but_dlpack(exchange):
    assert not is_far(exchange(X))
    assert as_virtual(exchange(X)) is None  # NumPy can look at it
    assert np.array_equal(to_host(exchange(X[:, 0].copy())), X[:, 0])
    assert np.shares_memory(to_host(exchange(X)), X)

    class Elsewhere(exchange):
        def __dlpack_device__(self):
            return 2, 0  # CUDA

    assert is_far(Elsewhere(X))

    class Both(Elsewhere):
        def __array__(self, dtype=None, copy=None):
            return self.array

    assert not is_far(Both(X))


def test_nothing_is_imported_that_is_not_there():
    code = (
        "import sys, numpy as np; from trimreg import TrimmedLasso;"
        "TrimmedLasso(h=1).fit(np.eye(4), np.arange(4.0)).predict(np.eye(4));"
        "print(sorted({'torch', 'dask', 'distributed', 'zarr'} & set(sys.modules)))"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "[]"

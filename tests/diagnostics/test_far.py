"""Diagnostics read X in blocks of columns: what is not in memory is refused, not fetched."""

import numpy as np
import pytest

from trimreg import TrimmedL1
from trimreg.designs.far.rows import ArrayRows
from trimreg.diagnostics import exact_penalty_alpha, incoherence, stationarity

X = np.random.default_rng(0).standard_normal((20, 3))
y = X[:, 0]


class Untouchable(ArrayRows):
    """Rows that must not be read."""

    def sweep(self, *arguments, **more):
        raise AssertionError("X was read")


def far_kinds():
    yield Untouchable(X, 7)
    da = pytest.importorskip("dask.array")
    yield da.from_array(X, chunks=5).map_blocks(_unread, meta=X)


def _unread(block):
    raise AssertionError("X was read")


def test_far_data_are_refused():
    for far in far_kinds():
        for ask in (
            lambda far: stationarity(far, y, np.zeros(3), penalty=TrimmedL1(1), alpha=0.1),
            lambda far: exact_penalty_alpha(far, y),
            lambda far: incoherence(far, support=[0], h=1),
        ):
            with pytest.raises(
                ValueError, match=f"X must be in memory for a diagnostic; got {type(far).__name__}"
            ):
                ask(far)


def test_tensors_in_memory_are_read():
    torch = pytest.importorskip("torch")
    assert exact_penalty_alpha(torch.tensor(X), y) == exact_penalty_alpha(X, y)

r"""Dask arrays and DataFrames: rows in chunks, on the workers of a cluster or for threads of this process.

Each operation of the design is one task per chunk:

.. math:: X'r = \sum_{b} X_b' r_b, \qquad Z_W' D Z_W = \sum_{b} Z_{b,W}' D_b Z_{b,W} .

The kernel goes to the worker that has the chunk :math:`X_b`, with the rows of the vectors for this chunk, and
a small array comes back. ``X`` itself is never moved. Partial sums are added in the order of the chunks, so
the result has the same bits for any number of workers.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any

import dask
import dask.array as da
import numpy as np
from dask.delayed import Delayed
from dask.optimization import cull
from dask.utils import ensure_dict

from . import kernels
from .dask_tasks import Threads, runner_for, size_of
from .rows import NEAR_MEMORY, FarRows, block_columns

#: Smaller chunks are joined: a task costs a few milliseconds, about as long as the work on 64 MB.
CHUNK_BYTES = 64 << 20
_CHUNKS_AT_MOST = 1 << 15  # a scheduler handles about a thousand tasks per second
#: Kernels whose results are only added up.
SUMMED = frozenset({
    kernels.transposed_product, kernels.raw_sums, kernels.gram_and_sums, kernels.cross_gram,
    kernels.every_gram, kernels.normal_equations, kernels.combination_moments,
})  # fmt: skip
_FAN = 8  # results that a worker adds up
_TREE = 64  # blocks whose results come here as one sum


@dataclass
class Traffic:
    """The communication of this process for a matrix and the columns taken from it."""

    sweeps: int = 0
    tasks: int = 0
    sent: int = 0  # bytes of vectors and arguments
    received: int = 0  # bytes of results


class UnlikeChunk(TypeError):
    """A chunk is not of the dtype that the collection declares."""


class DaskRows(FarRows):
    """The rows of a Dask array or DataFrame.

    Estimators create this from a Dask ``X``; create it yourself to set the options.

    Parameters
    ----------
    X : dask.array.Array of shape (n, p), or dask.dataframe.DataFrame with numeric columns
        float32 and float64 are kept, integers become float64. All columns are brought into one chunk. If the
        number of rows per chunk is not known, as in DataFrames, one pass counts them.
    client : distributed.Client or str, optional
        The client, or the address of a scheduler. By default Dask's default client, if there is one, else
        threads of this process.
    persist : bool, optional
        Whether the workers keep the chunks in memory, so that they are read or generated only once. By
        default they do if this takes at most half of their memory (without a cluster: a quarter of the
        memory of this machine or container).
    chunk_bytes : int
        Neighboring chunks are joined until they have this many bytes. The joining depends on X alone, so the
        sums have the same bits on any number of workers.
    memory : int
        Bytes that columns may take in the memory of this process.

    Examples
    --------
    >>> import dask.array as da, numpy as np
    >>> from trimreg.designs.far.dask import DaskRows
    >>> rows = DaskRows(da.from_array(np.arange(6.0).reshape(3, 2), chunks=(2, 1)), chunk_bytes=1)
    >>> rows
    <Dask array 3 x 2 float64 in 2 chunks>
    >>> rows.product(np.array([1.0, -1.0]), 1.0)
    array([0., 0., 0.])
    """

    kind = "Dask array"
    portable = False  # a client holds it

    def __init__(
        self, X: Any, client: Any = None, persist: bool | None = None, chunk_bytes: float | None = None,
        memory: float = NEAR_MEMORY,
    ):  # fmt: skip
        _check_options(persist, chunk_bytes, memory)
        _check_collection(X)
        self._runner = runner_for(client)
        self.memory = memory
        _check_kept(X, self._runner)
        self.traffic = Traffic()
        self.feature_names = None
        lengths = None
        if hasattr(X, "to_dask_array") and hasattr(X, "dtypes"):
            self.kind = "Dask DataFrame"
            names = list(X.columns)
            if any(isinstance(name, str) for name in names):  # scikit-learn accepts only strings as names
                self.feature_names = names
            declared, p = _storage_of_columns(X.dtypes), len(names)
        else:
            declared, p = np.dtype(X.dtype), _check_array(X)
            X = X.rechunk({1: -1})
            lengths = X.chunks[0]
        sources = _own_graphs(X)
        self.dtype, self._declared = _storage_of(declared), declared
        if lengths is None or any(math.isnan(rows) for rows in lengths):
            lengths = self._count(sources)
        self._sources = list(zip(sources, map(int, lengths), strict=True))
        self.shape = (sum(map(int, lengths)), p)
        blocks, lengths = _joined_blocks(self._sources, declared, self.shape, chunk_bytes)
        self._set_blocks(blocks, lengths, persist)

    def design(self, weights: np.ndarray, *, center: bool = False, scale: Any = False) -> Any:
        self._used_again = True  # a fit needs many passes, a prediction one
        return super().design(weights, center=center, scale=scale)

    def _set_blocks(self, blocks, lengths, persist, whole=None):
        self._whole = whole  # the rows that these are columns of
        self._used_again = whole is not None
        self._lazy, self._persisted = blocks, None
        self._edges = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
        self._persist = persist

    def _count(self, sources):
        """The number of rows of each source, by one pass."""
        self.passes += 1
        count = dask.delayed(len, pure=False)
        return list(self.runner.each(len(sources), lambda index: count(sources[index])))

    def describe(self) -> str:
        return f"{super().describe()} in {len(self._lazy)} chunks"

    def sweep(self, kernel: Callable, vectors: Sequence = (), arguments: Sequence = ()) -> Iterator[Any]:
        """Yield ``kernel(block, *parts, *arguments)`` for each chunk, in order: one task each.

        The workers add up the results of kernels in ``SUMMED`` over 64 neighboring chunks, in a fixed order:
        one Gram matrix per chunk would be too much for this process.
        """
        self.passes += 1
        self.traffic.sweeps += 1
        if self._whole is not None and self._persisted is None:
            self._whole.passes += 1
        make = self._tasks(kernel, vectors, arguments)
        count = len(self._lazy)
        if kernel not in SUMMED:
            yield from self._run(count, make)
            return

        def tree(index):
            return _tree([make(block) for block in range(index * _TREE, min(count, (index + 1) * _TREE))])

        yield from self._run(-(-count // _TREE), tree)

    def _tasks(self, kernel, vectors, arguments):
        perform = dask.delayed(_perform, pure=False)
        edges, p = self._edges, self.shape[1]

        def make(index):
            blocks = self._blocks()  # looked up each time: they change after a loss of workers
            part = slice(int(edges[index]), int(edges[index + 1]))
            parts = tuple(np.ascontiguousarray(vector[part]) for vector in vectors)
            self.traffic.tasks += 1
            self.traffic.sent += size_of(parts) + size_of(arguments)
            return perform(blocks[index], (part.stop - part.start, p), kernel, parts, tuple(arguments))

        return make

    def _run(self, count, make):
        try:
            for result in self.runner.each(count, make, self._restore):
                self.traffic.received += size_of(result)
                yield result
        except UnlikeChunk:
            self._persisted = None
            raise TypeError(self._dtypes_in_words()) from None

    def _blocks(self):
        if self._persisted is None and self._is_kept():
            self._keep()
        return self._lazy if self._persisted is None else self._persisted

    def _is_kept(self):
        if self._persist is None and self._used_again:
            self._persist = bool(self.nbytes <= self.runner.share * self.runner.memory())
        return bool(self._persist)

    def _keep(self):
        """Let the workers keep the blocks; after a loss, compute them again from their source."""
        self._persisted = None  # first release the blocks that were lost
        self._persisted = self.runner.persist(self._lazy)

    def _restore(self):
        if self._persisted is not None:
            self._keep()

    @property
    def runner(self) -> Any:
        if self._runner is None:  # unpickled, for example in a task of a worker
            self._runner = runner_for()
        return self._runner

    def __getstate__(self):
        return self.__dict__ | {"_runner": None, "_persisted": None}

    def _far_columns(self, W):
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__)
        take = dask.delayed(block_columns, pure=False)
        other.shape = (self.shape[0], W.size)
        other.feature_names = None if self.feature_names is None else [self.feature_names[j] for j in W]
        other.passes = 0
        other._set_blocks([take(block, W) for block in self._blocks()], np.diff(self._edges), None, self)
        return other

    def _dtypes_in_words(self):
        kind = dask.delayed(_kind_of, pure=False)
        found = list(self.runner.each(len(self._sources), lambda i: kind(self._sources[i][0])))
        edges = np.cumsum([0, *(length for _, length in self._sources)])
        start = next(i for i, name in enumerate(found) if name != str(self._declared))
        stop = next((i for i in range(start, len(found)) if found[i] != found[start]), len(found))
        return (
            f"X is declared {self._declared}, but rows {edges[start]} to {edges[stop] - 1} are {found[start]}"
            "; declare their dtype, or convert X with X.map_blocks(np.asarray, float, dtype=float)"
        )


# -- tasks of the workers -----------------------------------------------------------------------------------


def _perform(block, shape, kernel, parts, arguments):
    if block.shape != shape:
        raise ValueError(
            f"a chunk of X has shape {block.shape}, but is declared {shape}; call X.compute_chunk_sizes()"
        )
    return kernel(block, *parts, *arguments)


def added(results):
    """The sum, from left to right, of results that are arrays or tuples of arrays."""
    first, *others = results
    if isinstance(first, tuple):
        return tuple(added(list(parts)) for parts in zip(*results, strict=True))
    whole = np.array(first, copy=True)
    for other in others:
        whole += other
    return whole


def _tree(tasks):
    add = dask.delayed(added, pure=False)
    while len(tasks) > 1:
        tasks = [add(tasks[start : start + _FAN]) for start in range(0, len(tasks), _FAN)]
    return tasks[0]


def _kind_of(source):
    if hasattr(source, "dtypes"):
        return str(_storage_of_columns(source.dtypes))
    return str(getattr(source, "dtype", type(source).__name__))


def _joined(sources, declared, storage):
    """The sources below each other, in the storage dtype."""
    blocks = [_as_block(source, declared, storage) for source in sources]
    return blocks[0] if len(blocks) == 1 else np.concatenate(blocks)


def _as_block(source, declared, storage):
    if _kind_of(source) != str(declared):
        raise UnlikeChunk(f"{_kind_of(source)} instead of {declared}")
    if hasattr(source, "dtypes"):
        return source.to_numpy(dtype=storage, na_value=np.nan)
    if not isinstance(source, np.ndarray) or isinstance(source, np.ma.MaskedArray):
        raise TypeError(
            f"X has chunks of type {type(source).__name__}; convert them to NumPy arrays with map_blocks"
        )
    return source.astype(storage, copy=False)


# -- checks of X --------------------------------------------------------------------------------------------


def _check_options(persist, chunk_bytes, memory):
    if persist is not None and not isinstance(persist, (bool, np.bool_)):
        raise TypeError(f"persist={persist!r} must be True, False or None")
    for name, value in (("chunk_bytes", 0 if chunk_bytes is None else chunk_bytes), ("memory", memory)):
        if isinstance(value, bool) or not isinstance(value, Real):
            raise TypeError(f"{name}={value!r} must be a number of bytes, as in {name}=64_000_000")
        if not value >= 0:
            raise ValueError(f"{name}={value!r} must be a number of bytes, 0 or more")


def _check_collection(X):
    """Refuse objects that are neither a Dask array nor a Dask DataFrame."""
    kind = type(X).__name__
    if isinstance(X, da.Array):
        return
    if type(X).__module__.partition(".")[0] == "distributed":
        raise TypeError(
            f"X is a {kind} of distributed, not a Dask array or DataFrame; pass X.result() if it fits in "
            "memory, or create an array with dask.array.from_delayed"
        )
    if isinstance(X, Delayed) or not hasattr(X, "to_dask_array"):
        raise TypeError(
            f"X must be a Dask array or DataFrame, not {kind}; create one with dask.array.from_array, "
            "from_delayed or dask.dataframe.from_pandas, or pass data in memory to the estimator directly"
        )
    if X.ndim != 2:
        raise ValueError(f"X is a Dask {kind}, but must have 2 dimensions; pass X.to_frame()")


def _kept(X) -> list:
    """The chunks that X has on workers, as futures."""
    if "distributed" not in sys.modules:
        return []
    from distributed import Future

    return [value for value in ensure_dict(X.__dask_graph__()).values() if isinstance(value, Future)]


def _check_kept(X, runner):
    """Refuse chunks on workers that the runner cannot reach."""
    kept = _kept(X)
    if any(one.client.status in ("closing", "closed") or one.status == "cancelled" for one in kept):
        raise ValueError(
            "X was persisted on a cluster whose client is closed, so its chunks are lost; create X again and "
            "keep the client open until the fit is done"
        )
    if kept and isinstance(runner, Threads):
        raise ValueError(
            "X was persisted on a cluster that is not Dask's default; pass DaskRows(X, client=...) with its "
            "client"
        )


def _check_array(X) -> int:
    """The number of columns of a Dask array."""
    if X.ndim != 2:
        raise ValueError(f"X must be 2-dimensional, with one row per sample; it is {X.ndim}-dimensional")
    if math.isnan(X.shape[1]):
        raise ValueError("X must have a known number of columns; call X.compute_chunk_sizes()")
    return int(X.shape[1])


def _storage_of(dtype) -> np.dtype:
    """The storage type for numbers of this dtype: float32 up to 32-bit floats, else float64."""
    if dtype.kind == "f" and dtype.itemsize <= 8:
        return np.dtype(np.float32 if dtype.itemsize <= 4 else np.float64)
    if dtype.kind in "iub":
        return np.dtype(np.float64)
    raise TypeError(f"X has dtype {dtype}; it must hold real numbers of at most 64 bits")


def _storage_of_columns(dtypes) -> np.dtype:
    """The common storage type of the columns of a DataFrame, which must be numeric."""
    found = []
    for name, dtype in dtypes.items():
        known = getattr(dtype, "numpy_dtype", dtype)  # of Float64 and other nullable types
        if not isinstance(known, np.dtype) or known.kind not in "fiub":
            raise TypeError(f"column {name!r} of X has dtype {dtype}; drop it or convert it to numbers")
        found.append(_storage_of(known))
    return max(found, key=lambda dtype: dtype.itemsize, default=np.dtype(np.float64))


def _own_graphs(X):
    """The chunks of X, each with only the tasks that it needs, so that a batch sends no more than that."""
    # Dask's optimization loses chunks that are persisted on workers, or X's references to them.
    for optimize in (False,) if _kept(X) else (True, False):
        blocks = list(np.ravel(X.to_delayed(optimize_graph=optimize)))
        graph = ensure_dict(blocks[0].__dask_graph__()) if blocks else {}
        if all(block.key in graph for block in blocks):
            break
    return [Delayed(block.key, dict(cull(graph, [block.key])[0])) for block in blocks]


def grouped(lengths, row_bytes, at_least):
    """Positions of chunks with rows, in consecutive groups; all but the last have ``at_least`` bytes."""
    groups: list[list[int]] = []
    rows = 0
    for index, length in enumerate(lengths):
        if length and (not groups or rows * row_bytes >= at_least):
            groups.append([])
            rows = 0
        if length:
            groups[-1].append(index)
            rows += length
    return groups


def _joined_blocks(sources, declared, shape, chunk_bytes):
    """Blocks made of one or more neighboring sources, and their numbers of rows."""
    storage = _storage_of(declared)
    row_bytes = shape[1] * storage.itemsize
    if chunk_bytes is None:
        chunk_bytes = max(CHUNK_BYTES, shape[0] * row_bytes // _CHUNKS_AT_MOST)
    join = dask.delayed(_joined, pure=True)
    groups = grouped([length for _, length in sources], row_bytes, chunk_bytes)
    blocks = [join([sources[i][0] for i in group], declared, storage) for group in groups]
    return blocks, [sum(sources[i][1] for i in group) for group in groups]

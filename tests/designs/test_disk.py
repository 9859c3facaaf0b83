"""Matrices on disk: the same numbers as in memory, whatever holds them; and what is refused."""

import copy
import itertools
import os
import pickle
import threading

import numpy as np
import pytest
import zarr

import trimreg
from trimreg.designs.far import disk
from trimreg.designs.far.disk import OnDisk
from trimreg.designs.far.rows import FarRows, block_columns

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

N, P = 237, 7


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    """Blocks of about 40 rows, so that every pass has several."""
    monkeypatch.setattr(disk, "BLOCK_BYTES", 40 * P * 8)


@pytest.fixture
def X():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((N, P)) * 10.0 ** np.arange(-3, 4)
    X[:, 2] = 0.0
    X[5:9] = X[4]  # ties
    return X


def saved(X, folder, name="X.npy"):
    path = folder / name
    np.save(path, X)
    return path


def table(X, names=None):
    names = names or [f"x{j}" for j in range(X.shape[1])]
    return pa.table({name: X[:, j] for j, name in enumerate(names)})


def parquet(X, folder, **options):
    path = folder / "X.parquet"
    pq.write_table(table(X), path, **{"row_group_size": 50, **options})
    return path


def parquet_folder(X, folder):
    path = folder / "parts"
    path.mkdir()
    pq.write_table(table(X[100:]), path / "b.parquet", row_group_size=30)
    pq.write_table(table(X[:100]), path / "a.parquet")
    (path / "_SUCCESS.parquet").write_text("no data")
    return path


def zarr_store(X, folder, chunks=(25, 3), **options):
    path = str(folder / "X.zarr")
    zarr.create_array(store=path, shape=X.shape, chunks=chunks, dtype=X.dtype, **options)[:] = X
    return path


def memory_map(X, folder, mode="r"):
    return np.load(saved(X, folder), mmap_mode=mode)


def raw_map(X, folder):
    """A map that begins in the middle of a file, at no multiple of a page or of a number."""
    path = folder / "X.bin"
    path.write_bytes(b"x" * 8209 + X.tobytes() + b"the end")
    return np.memmap(path, dtype=X.dtype, mode="r", offset=8209, shape=X.shape)


def with_columns_left_out(X, folder):
    wide = np.full((N, 2 * P), np.nan, dtype=X.dtype)
    wide[:, 3 : 3 + P] = X
    return memory_map(wide, folder)[:, 3 : 3 + P]


def with_rows_left_out(X, folder):
    tall = np.full((3 * N + 2, P), np.nan, dtype=X.dtype)
    tall[2::3] = X
    return memory_map(tall, folder)[2::3]


def rows_of_fortran(X, folder):
    tall = np.full((N + 20, P), np.nan, dtype=X.dtype)
    tall[11 : 11 + N] = X
    return memory_map(np.asfortranarray(tall), folder)[11 : 11 + N]


SOURCES = {
    "npy": saved,
    "npy-F": lambda X, folder: saved(np.asfortranarray(X), folder),
    "npy-version-2": lambda X, folder: saved_version_2(X, folder),
    "path-as-text": lambda X, folder: str(saved(X, folder)),
    "no-suffix": lambda X, folder: saved(X, folder).rename(folder / "matrix"),
    "memmap": memory_map,
    "memmap-F": lambda X, folder: memory_map(np.asfortranarray(X), folder),
    "memmap-writable": lambda X, folder: memory_map(X, folder, "r+"),
    "memmap-unaligned": raw_map,
    "memmap-as-array": lambda X, folder: np.asarray(memory_map(X, folder)),
    "memmap-transposed": lambda X, folder: memory_map(X.T.copy(), folder).T,
    "memmap-some-columns": with_columns_left_out,
    "memmap-some-rows": with_rows_left_out,
    "memmap-F-some-rows": rows_of_fortran,
    "parquet": parquet,
    "parquet-large-groups": lambda X, folder: parquet(X, folder, row_group_size=1000),
    "parquet-tiny-groups": lambda X, folder: parquet(X, folder, row_group_size=3),
    "parquet-folder": parquet_folder,
    "zarr": zarr_store,
    "zarr-one-chunk-of-columns": lambda X, folder: zarr_store(X, folder, chunks=(10, P)),
    "zarr-2": lambda X, folder: zarr_store(X, folder, zarr_format=2),
    "zarr-array": lambda X, folder: zarr.open(zarr_store(X, folder), mode="r"),
    "zarr-group": lambda X, folder: zarr_group(X, folder),
}


def saved_version_2(X, folder):
    path = folder / "X.npy"
    with open(path, "wb") as file:
        np.lib.format.write_array(file, X, version=(2, 0))
    return path


def zarr_group(X, folder):
    group = zarr.open_group(folder / "G.zarr", mode="w")
    group.create_array("y", shape=(N,), chunks=(N,), dtype="f8")
    group.create_array("data", shape=X.shape, chunks=(25, 3), dtype=X.dtype)[:] = X
    return folder / "G.zarr"


@pytest.fixture(params=SOURCES)
def source(request):
    return SOURCES[request.param]


@pytest.fixture(params=["npy", "npy-F", "memmap-some-columns", "parquet-folder", "zarr", "zarr-array"])
def one_of_each(request):
    """A source of each reader, for what does not depend on how the file was written."""
    return SOURCES[request.param]


def pulled(block, weights=None):
    """A kernel: the block itself, and its part of a vector."""
    return block.copy() if weights is None else (block.copy(), weights.copy())


def open_files(path):
    """How often this process has a file below the path open."""
    links = []
    for name in os.listdir("/proc/self/fd"):
        try:
            links.append(os.readlink(f"/proc/self/fd/{name}"))
        except FileNotFoundError:  # the one that lists the folder
            continue
    return sum(link.startswith(str(path)) for link in links)


# -- the same numbers -----------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_sweep_gives_every_row_once_and_in_order(source, dtype, X, tmp_path):
    X = X.astype(dtype)
    rows = OnDisk(source(X, tmp_path))
    v = np.random.default_rng(1).standard_normal((N, 2))
    blocks, parts = zip(*rows.sweep(pulled, (v,)), strict=True)
    assert len(blocks) > 2
    assert (rows.shape, rows.dtype, rows.nbytes, rows.ndim) == ((N, P), dtype, X.nbytes, 2)
    assert all(block.dtype == dtype for block in blocks)
    np.testing.assert_array_equal(np.concatenate(blocks), X)
    np.testing.assert_array_equal(np.concatenate(parts), v)
    assert [len(block) for block in blocks] == [len(part) for part in parts]


@pytest.mark.parametrize("memory", [512_000_000, "too little for a column"])
def test_narrowed_columns(source, memory, X, tmp_path):
    rows = OnDisk(source(X, tmp_path))
    if memory != 512_000_000:
        rows.memory = 100
    for W in ([0], [6, 2, 3], [], list(range(P))[::-1], [-1, 0]):
        narrow = rows.narrowed(np.array(W, dtype=int))
        if memory == 512_000_000 or not W:
            assert narrow.flags.f_contiguous
        else:
            assert isinstance(narrow, FarRows)
            assert narrow.shape == (N, len(W))
            one = narrow.narrowed(np.array([len(W) - 1]))  # narrowed again
            np.testing.assert_array_equal(np.concatenate(list(one.sweep(pulled)))[:, 0], X[:, W[-1]])
            narrow = np.concatenate(list(narrow.sweep(pulled)))
        np.testing.assert_array_equal(narrow, X[:, W])
    with pytest.raises(IndexError):
        rows.narrowed(np.array([P]))


def test_product(one_of_each, X, tmp_path):
    coef, source = np.arange(1.0, P + 1), one_of_each
    np.testing.assert_allclose(OnDisk(source(X, tmp_path)).product(coef, 0.5), X @ coef + 0.5, rtol=1e-14)


@pytest.mark.filterwarnings("ignore:.*chunks have no file")  # Zarr leaves out chunks of zeros
@pytest.mark.parametrize(
    ("store", "dtype"),
    [
        *itertools.product((saved, memory_map, zarr_store, parquet), ("int8", "bool", "float16")),
        *itertools.product((saved, zarr_store), (">f4", ">f8", ">i4", "uint64")),
        (memory_map, ">f4"), (saved, "longdouble"), (memory_map, "longdouble"),
    ],
)  # fmt: skip
def test_other_numbers_are_converted_block_by_block(store, dtype, X, tmp_path):
    X = np.round(np.clip(X, 0, 5)).astype(dtype)
    rows = OnDisk(store(X, tmp_path))
    got = np.concatenate(list(rows.sweep(pulled)))
    assert rows.dtype == got.dtype == (np.float32 if dtype == ">f4" else np.float64)
    assert got.dtype.isnative
    np.testing.assert_array_equal(got, X.astype(float))
    np.testing.assert_array_equal(rows.narrowed([3, 1]), X[:, [3, 1]].astype(float))


@pytest.mark.parametrize("shape", [(1, 1), (1, 5), (5, 1), (2, 3), (41, 7), (40, 7), (80, 7)])
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("store", [saved, memory_map, zarr_store, parquet])
def test_small_shapes(store, shape, order, tmp_path):
    X = np.asarray(np.random.default_rng(0).standard_normal(shape), order=order)
    rows = OnDisk(store(X, tmp_path))
    np.testing.assert_array_equal(np.concatenate(list(rows.sweep(pulled))), X)


def can_be_read(view):
    """Forwards, and without gaps in rows or in columns."""
    row, column = (
        stride if length > 1 else 8 for stride, length in zip(view.strides, view.shape, strict=True)
    )
    return min(row, column) == 8


def test_every_view_of_a_map_is_right_or_refused(tmp_path):
    whole = memory_map(np.random.default_rng(0).standard_normal((30, 20)), tmp_path)
    steps = [slice(None), slice(3, 17), slice(1, None, 3), slice(None, None, -1), slice(4, 5), slice(0, 2)]
    read = refused = 0
    for matrix in (whole, whole.T, whole[5:, 2:], np.asarray(whole)[7:]):
        for rows in steps:
            for columns in steps:
                view = matrix[rows, columns]
                if can_be_read(view):
                    np.testing.assert_array_equal(np.concatenate(list(OnDisk(view).sweep(pulled))), view)
                    read += 1
                    continue
                with pytest.raises(ValueError, match="cannot be read by rows"):
                    OnDisk(view)
                refused += 1
    assert read > 60
    assert refused > 30


def test_overlapping_rows_of_a_map(tmp_path):
    long = memory_map(np.arange(40.0).reshape(1, 40), tmp_path)[0]
    windows = np.lib.stride_tricks.sliding_window_view(long, 5, writeable=False)
    np.testing.assert_array_equal(np.concatenate(list(OnDisk(windows).sweep(pulled))), windows)


def test_what_was_written_to_a_map_is_read(X, tmp_path):
    mapped = memory_map(X, tmp_path, "r+")
    mapped[3, 3] = 1234.5
    assert OnDisk(mapped).narrowed([3])[3, 0] == 1234.5


# -- passes and bytes -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "share"),
    [
        ("npy", 1),
        ("npy-F", 2 / P),
        ("memmap-transposed", 2 / P),
        ("parquet", 2 / P),
        ("parquet-folder", 2 / P),
    ],
)
def test_passes_are_counted(kind, share, X, tmp_path):
    rows = OnDisk(SOURCES[kind](X, tmp_path))
    assert rows.passes == 0
    list(rows.sweep(pulled))
    rows.product(np.ones(P))
    assert rows.passes == 2
    rows.narrowed([1, 5])
    assert rows.passes == pytest.approx(2 + share)
    rows.memory = 0
    far = rows.narrowed([1, 5])
    assert rows.passes == pytest.approx(2 + share)
    list(far.sweep(pulled))
    assert rows.passes == far.passes == pytest.approx(2 + 2 * share)


@pytest.mark.parametrize(("W", "share"), [([0, 2], 1 / 3), ([0, 3], 2 / 3), ([0, 3, 6], 1)])
def test_columns_of_zarr_count_by_their_chunks(W, share, X, tmp_path):
    rows = OnDisk(zarr_store(X, tmp_path))
    rows.narrowed(W)
    assert rows.passes == pytest.approx(share)


def test_only_the_columns_asked_for_are_decoded(X, tmp_path, monkeypatch):
    rows = OnDisk(parquet(X, tmp_path))
    asked = []
    original = pq.ParquetFile.iter_batches

    def noted(self, *arguments, **options):
        asked.append(options["columns"])
        return original(self, *arguments, **options)

    monkeypatch.setattr(pq.ParquetFile, "iter_batches", noted)
    rows.narrowed([4, 1])
    rows.memory = 0
    list(rows.narrowed([6]).sweep(pulled))
    assert asked == [["x4", "x1"], ["x6"]]


def arrow_bytes(block):
    """A kernel: what pyarrow holds while the block is worked on."""
    return pa.total_allocated_bytes()


def test_a_large_row_group_is_not_held_whole(tmp_path, monkeypatch):
    monkeypatch.setattr(disk, "BLOCK_BYTES", 1 << 18)
    X = np.random.default_rng(0).standard_normal((100_000, 10))
    rows = OnDisk(parquet(X, tmp_path, row_group_size=len(X), use_dictionary=False))
    before = pa.total_allocated_bytes()
    assert max(rows.sweep(arrow_bytes)) - before < rows._store.live_bytes < X.nbytes


def test_damaged_columns_do_not_matter_to_others(X, tmp_path):
    path = zarr_store(X, tmp_path)
    for row in range(10):
        with open(f"{path}/c/{row}/2", "wb") as chunk:
            chunk.write(b"broken")
    rows = OnDisk(path)
    np.testing.assert_array_equal(rows.narrowed([1, 5]), X[:, [1, 5]])
    with pytest.raises(ValueError, match=r"X.zarr: rows 0 to \d+ cannot be read"):
        rows.narrowed([6])


def test_the_next_block_is_read_while_one_is_worked_on(X, tmp_path, monkeypatch):
    rows = OnDisk(saved(X, tmp_path))
    started = threading.Semaphore(0)
    original = type(rows._store)._fill

    def noted(self, *arguments):
        started.release()
        return original(self, *arguments)

    monkeypatch.setattr(type(rows._store), "_fill", noted)
    sweep = rows.sweep(pulled)
    next(sweep)
    assert all(started.acquire(timeout=300) for _ in range(2))  # the first block and, unasked, the second
    assert not started.acquire(timeout=0.05)  # but no third: its buffer is in use
    sweep.close()


def test_blocks_are_small_and_the_buffers_are_two(X, tmp_path):
    rows = OnDisk(saved(X, tmp_path))
    addresses = [block.__array_interface__["data"][0] for block in rows._store.blocks()]
    assert len(addresses) == 6
    assert addresses == addresses[:2] * 3
    assert rows._store.live_bytes == 2 * 40 * P * 8


def test_short_reads_are_gone_on_with(X, tmp_path, monkeypatch):
    rows = OnDisk(saved(X, tmp_path))

    class Slow:
        def __init__(self, file):
            self.file = file

        def seek(self, position):
            self.file.seek(position)

        def readinto(self, view):
            return self.file.readinto(view[: 1 + len(view) // 3])

    original = type(rows._store)._fill
    monkeypatch.setattr(
        type(rows._store), "_fill", lambda self, file, *rest: original(self, Slow(file), *rest)
    )
    np.testing.assert_array_equal(np.concatenate(list(rows.sweep(pulled))), X)


# -- nothing stays open ---------------------------------------------------------------------------------


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="open files are listed in /proc")
@pytest.mark.parametrize(
    ("kind", "end"),
    [
        ("npy", "finished"), ("npy", "closed"), ("npy", "forgotten"), ("npy-F", "error in the kernel"),
        ("parquet", "finished"), ("parquet-folder", "closed"), ("parquet", "error in the kernel"),
    ],
)  # fmt: skip
def test_files_and_threads_are_closed(kind, end, X, tmp_path):
    before = threading.active_count()
    rows = OnDisk(SOURCES[kind](X, tmp_path))
    assert open_files(tmp_path) == 0
    sweep = rows.sweep(block_columns if end != "error in the kernel" else fails_at_once, arguments=([0],))
    if end == "error in the kernel":
        with pytest.raises(ZeroDivisionError):
            next(sweep)
    else:
        next(sweep)
        assert open_files(tmp_path) == 1
    if end == "finished":
        list(sweep)
    elif end == "closed":
        sweep.close()
    del sweep
    assert open_files(tmp_path) == 0
    assert threading.active_count() == before


def test_a_sweep_that_is_closed_waits_for_the_read_under_way(X, tmp_path, monkeypatch):
    rows = OnDisk(saved(X, tmp_path))
    go_on, reads = threading.Event(), []
    original = type(rows._store)._fill

    def slow(self, *arguments):
        reads.append(None)
        if len(reads) == 2:
            threading.Timer(0.05, go_on.set).start()
            assert go_on.wait(300)
        return original(self, *arguments)

    monkeypatch.setattr(type(rows._store), "_fill", slow)
    sweep = rows.sweep(pulled)
    next(sweep)
    sweep.close()
    assert go_on.is_set()
    assert len(reads) == 2


def fails_at_once(block, columns):
    return 1 / 0


def test_copies_and_pickles_read_the_same(one_of_each, X, tmp_path):
    rows = OnDisk(one_of_each(X, tmp_path))
    for other in (copy.copy(rows), copy.deepcopy(rows), pickle.loads(pickle.dumps(rows))):
        np.testing.assert_array_equal(np.concatenate(list(other.sweep(pulled))), X)
        assert other.describe() == rows.describe()
    assert len(pickle.dumps(rows)) < 10_000


def test_two_sweeps_at_once_do_not_disturb_each_other(one_of_each, X, tmp_path):
    rows = OnDisk(one_of_each(X, tmp_path))
    pairs = list(zip(rows.sweep(pulled), rows.sweep(pulled), strict=True))
    for side in zip(*pairs, strict=True):
        np.testing.assert_array_equal(np.concatenate(side), X)


def test_a_relative_path_survives_a_change_of_folder(X, tmp_path, monkeypatch):
    saved(X, tmp_path)
    monkeypatch.chdir(tmp_path)
    rows = OnDisk("X.npy")
    monkeypatch.chdir("/")
    np.testing.assert_array_equal(rows.narrowed([0]), X[:, [0]])


def test_its_face(X, tmp_path):
    rows = trimreg.OnDisk(saved(X.astype(np.float32), tmp_path))
    assert type(rows) is OnDisk
    assert repr(rows) == "<array on disk 237 x 7 float32 (X.npy)>"
    assert len(rows) == N
    assert rows.feature_names is None
    with pytest.raises(TypeError, match="not loaded into memory"):
        np.asarray(rows)

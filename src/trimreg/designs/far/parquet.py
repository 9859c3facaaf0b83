"""Matrices in Parquet files: one file, or a folder of files with the same columns."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np

from .npy import check_shape, check_unchanged, imported, stamp

_STREAM = 1 << 16  # bytes of a column that are read at a time
_PAGE = 1 << 20  # writers keep dictionaries, and most pages, below this size


def _opened(file, **options):
    return imported("pyarrow.parquet", "Parquet files").ParquetFile(file, **options)


def parts_of(path: str) -> list[str]:
    """The files of a Parquet source, sorted by name, without those that begin with _ or a dot.

    Numbers in names are compared as numbers, ``part.2`` before ``part.10``, as Dask does: the rows must come
    in the order of ``y``.
    """
    if not os.path.isdir(path):
        return [path]
    return [
        os.path.join(path, name)
        for name in sorted(os.listdir(path), key=_by_number)
        if name.endswith((".parquet", ".pq")) and not name.startswith(("_", "."))
    ]


def _by_number(name: str):
    parts = re.split(r"(\d+)", name)  # every second part is a number
    return [int(part) if at % 2 else part for at, part in enumerate(parts)], name


def parquet_file(path: str, columns, block_bytes: int) -> ParquetFiles:
    """The reader of the columns of a Parquet file or folder."""
    files, columns = parts_of(path), _listed(columns)
    schemas, counts, live = [], [], 0
    for file in files:
        before = stamp(file)
        try:
            with _opened(file) as opened:
                schema, metadata = opened.schema_arrow, opened.metadata
        except (OSError, ValueError) as error:  # pyarrow's own errors are subclasses of these
            raise ValueError(f"{file} cannot be read as Parquet (truncated?): {error}") from error
        names = _chosen(schema, columns, file)
        schemas.append({name: schema.field(name).type for name in names})
        counts.append((file, metadata.num_rows, before))
        live = max(live, _decoding_bytes(metadata, names))
    for file, types in zip(files, schemas, strict=True):
        _check_same(files[0], schemas[0], file, types)
    shape = (sum(rows for _, rows, _ in counts), len(schemas[0]))
    check_shape(shape, path)
    single = all(str(kind) == "float" for kind in schemas[0].values())
    dtype = np.dtype(np.float32 if single else float)
    return ParquetFiles(path, tuple(counts), shape, dtype, tuple(schemas[0]), live, block_bytes)


def _listed(columns):
    """The columns as a list of names or positions."""
    if columns is None or isinstance(columns, str):
        return columns if columns is None else [columns]
    try:
        columns = list(columns)
    except TypeError:
        raise TypeError(f"columns={columns!r} must be a list of column names or positions") from None
    if any(isinstance(one, (bool, np.bool_)) for one in columns):
        raise TypeError(
            f"columns={columns} are booleans; pass names or positions, such as np.flatnonzero of a mask"
        )
    return columns


def _named(schema, one, file):
    """The name of a column, from its name or position."""
    if not isinstance(one, (int, np.integer)):
        return one
    count = len(schema.names)
    if not -count <= one < count:
        raise ValueError(
            f"columns contains the position {one}, but {file} has {count} columns; pass 0 to {count - 1}, or "
            "names"
        )
    return schema.names[one]


def _chosen(schema, columns, file):
    """The names of the selected columns, which must be numeric."""
    if columns is None:  # all except the index of a pandas frame
        index = (schema.pandas_metadata or {}).get("index_columns", [])
        names = [name for name in schema.names if name not in index]
    else:
        names = [_named(schema, one, file) for one in columns]
    missing = [name for name in names if name not in schema.names]
    if missing:
        raise ValueError(f"columns={missing} are not in {file}, which has {schema.names}")
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(f"the columns {twice} of {file} occur or were selected twice; names must be unique")
    types = import_module("pyarrow.types")
    numeric = (types.is_integer, types.is_floating, types.is_boolean)
    kinds = {name: schema.field(name).type for name in names}
    bad = {name: str(kind) for name, kind in kinds.items() if not any(test(kind) for test in numeric)}
    if bad:
        raise TypeError(f"{file} has columns that are not numeric: {bad}; select others by columns=[...]")
    return names


def _check_same(first, expected, file, types):
    if list(types) != list(expected):
        raise ValueError(f"{file} has the columns {list(types)}, but {first} has {list(expected)}")
    for name, kind in types.items():
        if kind != expected[name]:
            raise TypeError(
                f"column {name!r} is {expected[name]} in {first} but {kind} in {file}; use one type"
            )


def _decoding_bytes(metadata, names) -> int:
    """About the memory that pyarrow needs to decode these columns together.

    Measured with pyarrow 26: a few pages of each column, and two and a half times its dictionary.
    """
    at = {metadata.schema.column(j).path: j for j in range(metadata.num_columns)}

    def of_column(chunk):
        size = min(chunk.total_uncompressed_size, _PAGE)
        return min(size, 400_000) + (int(2.5 * size) if chunk.has_dictionary_page else 0)

    groups = map(metadata.row_group, range(metadata.num_row_groups))
    return max((sum(of_column(group.column(at[name])) for name in names) for group in groups), default=0)


@dataclass(frozen=True)
class ParquetFiles:
    """A matrix in Parquet files. Only the requested columns are read and decoded."""

    path: str
    files: tuple[tuple[str, int, tuple], ...]  # path, rows, stamp
    shape: tuple[int, int]
    dtype: np.dtype
    names: tuple[str, ...]
    decoding: int
    block_bytes: int
    advice = ", or write the files with smaller row groups and without dictionaries"

    def step(self, p: int) -> int:
        """Number of rows in a block of p columns."""
        return min(self.shape[0], max(1, self.block_bytes // (p * self.dtype.itemsize)))

    @property
    def live_bytes(self) -> int:
        # two blocks, and the batch from which the second is filled
        return 3 * self.step(self.shape[1]) * self.shape[1] * self.dtype.itemsize + self.decoding

    def share(self, columns: Any) -> float:
        """The fraction of the columns that is read."""
        return len(columns) / self.shape[1]

    def blocks(self, columns: Any = None) -> Iterator[np.ndarray]:
        """Yield the blocks of rows in order, of all or some columns, in two alternating buffers."""
        names = list(self.names) if columns is None else [self.names[int(j)] for j in columns]
        step = self.step(len(names))
        buffers = [np.empty((len(names), step), dtype=self.dtype) for _ in range(2)]
        turn = filled = total = 0
        for batch in self._batches(names, step):
            taken = 0
            while taken < batch.num_rows:
                count = min(batch.num_rows - taken, step - filled)
                part = slice(filled, filled + count)
                for j, name in enumerate(names):
                    buffers[turn][j, part] = self._numbers(batch, name, taken, count, total)
                filled, taken, total = filled + count, taken + count, total + count
                if filled == step:
                    yield buffers[turn].T
                    turn, filled = 1 - turn, 0
        if total != self.shape[0]:
            raise ValueError(f"{self.path} has {total} rows instead of {self.shape[0]}")
        if filled:
            yield buffers[turn][:, :filled].T

    def _batches(self, names, step):
        for file, _, before in self.files:
            check_unchanged(file, before)
            try:
                # pre_buffer would keep whole row groups in memory, whatever the size of a batch
                with _opened(file, pre_buffer=False, buffer_size=_STREAM) as opened:
                    yield from opened.iter_batches(step, columns=names, use_threads=False)
            except (OSError, ValueError) as error:
                raise ValueError(f"{file} cannot be read (damaged?): {error}") from error

    def _numbers(self, batch, name, start, count, total):
        column = batch.column(name).slice(start, count)
        if column.null_count:
            row = int(np.argmax(np.asarray(column.is_null())))
            raise ValueError(
                f"X contains a missing value at row {total + row}, column {name!r} ({self.path}); "
                "drop or impute missing values"
            )
        return column.to_numpy(zero_copy_only=False)

"""Matrices in Zarr stores, format 2 or 3: blocks of rows along the chunks."""

from __future__ import annotations

import os
from dataclasses import dataclass

import numpy as np

from .npyfile import check_shape, storage_dtype

_MARKS = ("zarr.json", ".zarray", ".zgroup")


def is_zarr(folder: str) -> bool:
    """Whether a folder is a Zarr array or group."""
    return any(os.path.exists(os.path.join(folder, mark)) for mark in _MARKS)


def _zarr():
    try:
        import zarr
    except ImportError as missing:
        raise ImportError("Zarr stores are read by zarr: pip install 'trimreg[disk]'") from missing
    return zarr


def _opened(source):
    """The array at a path, or the array itself where one was given."""
    if not isinstance(source, str):
        return source
    if not is_zarr(source):
        raise FileNotFoundError(f"{source}: there is no Zarr store (any more)")
    return _zarr().open(source, mode="r")


def zarr_array(source, block_bytes: int) -> ZarrArray:
    """The matrix in a Zarr array, or in a group that holds exactly one matrix."""
    name = source if isinstance(source, str) else str(source.store_path)
    found = _opened(source)
    if not hasattr(found, "chunks"):
        inside = {key: array.shape for key, array in found.arrays()}
        matrices = [key for key, shape in inside.items() if len(shape) == 2]
        if len(matrices) != 1:
            raise ValueError(
                f"{name} is a Zarr group with the arrays {inside}; give the path of the one that is X, "
                f"as in {os.path.join(name, 'X')!r}"
            )
        source = os.path.join(name, matrices[0]) if isinstance(source, str) else found[matrices[0]]
        name, found = f"{name}/{matrices[0]}", found[matrices[0]]
    storage_dtype(found.dtype, name)
    check_shape(found.shape, name)
    return ZarrArray(
        source, name, tuple(found.shape), np.dtype(found.dtype), tuple(found.chunks), block_bytes
    )


@dataclass(frozen=True)
class ZarrArray:
    """A matrix in a Zarr array. A chunk is decoded once a pass: blocks are whole chunks of rows."""

    source: object  # a path, or an array of the package zarr
    path: str
    shape: tuple[int, int]
    stored: np.dtype
    chunks: tuple[int, int]
    block_bytes: int
    names = None

    @property
    def dtype(self):
        return storage_dtype(self.stored, self.path)

    def step(self, p: int) -> int:
        """How many rows of p columns are a block: as many whole chunks as fit, one at least."""
        chunk = self.chunks[0] * p * self.dtype.itemsize
        return min(self.shape[0], self.chunks[0] * max(1, self.block_bytes // chunk))

    @property
    def advice(self) -> str:
        return (
            f", or write it in chunks of fewer rows: these are chunks of {self.chunks[0]} x {self.chunks[1]}"
        )

    @property
    def live_bytes(self) -> int:
        # two blocks, and the chunks that are decoded into the second: ten at a time is zarr's default
        block = self.step(self.shape[1]) * self.shape[1]
        decoded = min(block, 10 * self.chunks[0] * self.chunks[1]) * self.stored.itemsize
        return 2 * block * self.dtype.itemsize + decoded

    def share(self, columns) -> float:
        """The part of the chunks that these columns lie in."""
        across = -(-self.shape[1] // self.chunks[1])
        touched = len(np.unique(np.asarray(columns) // self.chunks[1]))
        return touched / across if touched < across else 1

    def blocks(self, columns=None):
        """The blocks of rows in order, of all columns or of some; other chunks are not decoded."""
        array = _opened(self.source)
        if (getattr(array, "shape", None), getattr(array, "dtype", None)) != (self.shape, self.stored):
            raise ValueError(f"{self.path} has changed since it was opened; make a new OnDisk of it")
        step = self.step(self.shape[1] if columns is None else len(columns))
        for start in range(0, self.shape[0], step):
            stop = min(start + step, self.shape[0])
            try:
                block = array[start:stop] if columns is None else array.oindex[start:stop, columns]
            except Exception as error:  # each codec has errors of its own
                raise ValueError(
                    f"{self.path}: rows {start} to {stop - 1} cannot be read ({error})"
                ) from error
            yield np.asarray(block).astype(self.dtype, copy=False)

"""Matrices in Zarr stores (format 2 or 3), read in whole chunks of rows."""

from __future__ import annotations

import hashlib
import os
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Any

import numpy as np

from .npy import check_shape, check_unchanged, imported, storage_dtype

_MARKS = ("zarr.json", ".zarray", ".zgroup")
_WATCHED = 5000  # largest number of files to check before a pass: 0.1 s, where reading them takes 2 s


def is_zarr(folder: str) -> bool:
    """Whether a folder is a Zarr array or group."""
    return any(os.path.exists(os.path.join(folder, mark)) for mark in _MARKS)


def _opened(source):
    """The array at a path, or the given array itself."""
    if not isinstance(source, str):
        return source
    if not is_zarr(source):
        raise FileNotFoundError(f"{source}: no Zarr store (any more)")
    return imported("zarr", "Zarr stores").open(source, mode="r")


def zarr_array(source, block_bytes: int) -> ZarrArray:
    """The reader of a Zarr array, or of a group that contains exactly one matrix."""
    name = source if isinstance(source, str) else str(source.store_path)
    found = _opened(source)
    if not hasattr(found, "chunks"):
        inside = {key: array.shape for key, array in found.arrays()}
        matrices = [key for key, shape in inside.items() if len(shape) == 2]
        if len(matrices) != 1:
            raise ValueError(
                f"{name} is a Zarr group with the arrays {inside}; pass the path of X itself, "
                f"such as {os.path.join(name, 'X')!r}"
            )
        source = os.path.join(name, matrices[0]) if isinstance(source, str) else found[matrices[0]]
        name, found = f"{name}/{matrices[0]}", found[matrices[0]]
    storage_dtype(found.dtype, name)
    check_shape(found.shape, name)
    shape, chunks, folder = tuple(found.shape), tuple(found.chunks), _folder(found)
    files = None if folder is None else _files(folder)
    _warn_of_missing(found, name, files)
    return ZarrArray(source, name, shape, np.dtype(found.dtype), chunks, block_bytes, folder, _stamp(files))


def _folder(array) -> str | None:
    """The folder of an array in a local store; None in other stores, such as archives and buckets."""
    place = array.store_path
    if not isinstance(place.store, imported("zarr", "Zarr stores").storage.LocalStore):
        return None
    return os.path.join(os.path.abspath(place.store.root), place.path)


def _files(folder: str) -> dict[str, tuple] | None:
    """Size, time of writing and inode of each file of an array, by its key; None for too many files."""
    files: dict[str, tuple] = {}
    waiting = [""]
    while waiting:
        inside = waiting.pop()
        with os.scandir(os.path.join(folder, inside)) as entries:
            for entry in entries:
                if entry.is_dir():
                    waiting.append(f"{inside}{entry.name}/")
                    continue
                try:
                    found = os.stat(entry.path)
                except FileNotFoundError:  # just renamed by a writer
                    continue
                files[inside + entry.name] = found.st_size, found.st_mtime_ns, found.st_ino
                if len(files) > _WATCHED:
                    return None
    return files


def _stamp(files) -> tuple | None:
    """A short fingerprint that changes when a chunk is written, added or removed."""
    if files is None:
        return None
    every = repr(sorted(files.items())).encode()
    return sum(size for size, _, _ in files.values()), hashlib.blake2b(every, digest_size=16).hexdigest()


def _warn_of_missing(array, name, files) -> None:
    """Warn of chunks without a file: Zarr reads them as the fill value, whether omitted or lost."""
    shards = getattr(array, "shards", None)  # one file each, if there are any
    counts = [-(-n // size) for n, size in zip(array.shape, shards or array.chunks, strict=True)]
    if files is None or prod(counts) > _WATCHED:
        return
    keys = map(array.metadata.encode_chunk_key, product(*map(range, counts)))
    missing = sum(key not in files for key in keys)
    if missing:
        warnings.warn(
            f"{name}: {missing} of {prod(counts)} {'shards' if shards else 'chunks'} have no file and are "
            f"read as the fill value, {array.fill_value}. This is correct if they hold nothing else "
            "(write_empty_chunks=False); otherwise the store is incomplete: write it again",
            UserWarning,
            stacklevel=5,  # the caller of OnDisk
        )


@dataclass(frozen=True)
class ZarrArray:
    """A matrix in a Zarr array. Blocks are whole chunks of rows, so a pass decodes each chunk once."""

    source: object  # a path, or an array of the package zarr
    path: str
    shape: tuple[int, int]
    stored: np.dtype
    chunks: tuple[int, int]
    block_bytes: int
    folder: str | None = None  # of a local store
    before: tuple | None = None  # the stamp of its files, if they are watched
    names: tuple[str, ...] | None = None

    @property
    def dtype(self) -> np.dtype:
        return storage_dtype(self.stored, self.path)

    def step(self, p: int) -> int:
        """Number of rows in a block of p columns: as many whole chunks as fit, at least one."""
        chunk = self.chunks[0] * p * self.dtype.itemsize
        return min(self.shape[0], self.chunks[0] * max(1, self.block_bytes // chunk))

    @property
    def advice(self) -> str:
        return f", or write the array in chunks of fewer rows than {self.chunks[0]} x {self.chunks[1]}"

    @property
    def live_bytes(self) -> int:
        # two blocks, and the chunks being decoded into the second, by zarr's default ten at a time
        block = self.step(self.shape[1]) * self.shape[1]
        decoded = min(block, 10 * self.chunks[0] * self.chunks[1]) * self.stored.itemsize
        return 2 * block * self.dtype.itemsize + decoded

    def share(self, columns: Any) -> float:
        """The fraction of the chunks that contain these columns."""
        across = -(-self.shape[1] // self.chunks[1])
        touched = len(np.unique(np.asarray(columns) // self.chunks[1]))
        return touched / across if touched < across else 1

    def _check_files(self):
        if self.before is None:
            return
        try:
            now = _stamp(_files(self.folder))
        except FileNotFoundError:
            raise FileNotFoundError(f"{self.path}: no Zarr store (any more)") from None
        check_unchanged(self.path, self.before, now or (self.before[0], "too many files now"))

    def blocks(self, columns: Any = None) -> Iterator[np.ndarray]:
        """Yield the blocks of rows in order, of all or some columns; other chunks are not decoded."""
        array = _opened(self.source)
        if (getattr(array, "shape", None), getattr(array, "dtype", None)) != (self.shape, self.stored):
            raise ValueError(f"{self.path} has changed since it was opened; create a new OnDisk")
        self._check_files()
        step = self.step(self.shape[1] if columns is None else len(columns))
        for start in range(0, self.shape[0], step):
            stop = min(start + step, self.shape[0])
            try:
                block = array[start:stop] if columns is None else array.oindex[start:stop, columns]
            except Exception as error:  # each codec has its own errors
                raise ValueError(
                    f"{self.path}: rows {start} to {stop - 1} cannot be read ({error})"
                ) from error
            yield np.asarray(block).astype(self.dtype, copy=False)

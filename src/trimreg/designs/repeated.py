"""Columns that occur several times, for overlapping groups; nothing of the matrix is copied."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from .base import Design


class Repeated(Design):
    """``Z[:, index]`` over any design ``Z``, whose columns may occur several times.

    A product folds the coefficients of all copies of a column into their sum and reads Z once. In the units
    of X the coefficients are these sums.
    """

    def __init__(self, design: Design, index: np.ndarray):
        self.inner, self.index = design, np.asarray(index)
        self.shape, self.dtype = (design.shape[0], self.index.size), design.dtype
        self.near, self.streamed, self.room = design.near, design.streamed, design.room
        self.widest_gram = design.widest_gram

    @property
    def features(self) -> Any:
        return self.inner.features

    def folded(self, v: np.ndarray) -> np.ndarray:
        """The sums over the copies of each column."""
        if v.ndim == 1:
            return np.bincount(self.index, v, minlength=self.inner.shape[1])
        return np.stack([self.folded(one) for one in v.T], axis=1)

    def divided(self, v: np.ndarray) -> np.ndarray:
        """Equal parts for the copies of each column, which :meth:`folded` adds to ``v``."""
        return (v.T / np.bincount(self.index)).T[self.index]

    def _distinct(self, W):
        """The columns of Z among the columns W, and the place of each of W among them."""
        return np.unique(self.index[W], return_inverse=True)

    def matvec(self, v: np.ndarray) -> np.ndarray:
        return self.inner.matvec(self.folded(v))

    def rmatvec(self, r: np.ndarray) -> np.ndarray:
        return self.inner.rmatvec(r)[self.index]

    def columns(self, W: np.ndarray) -> np.ndarray:
        once, place = self._distinct(W)
        return self.inner.columns(once)[:, place]

    def row_blocks(self, W: np.ndarray) -> Iterator[np.ndarray]:
        once, place = self._distinct(W)
        for block in self.inner.row_blocks(once):
            yield block[:, place]

    def gram(self, rows: np.ndarray | None, d: np.ndarray, cols: np.ndarray) -> np.ndarray:
        once, place = self._distinct(cols)
        if rows is None or rows is cols:
            product = self.inner.gram(None if rows is None else once, d, once)
            return product[np.ix_(self.index if rows is None else place, place)]
        left, above = self._distinct(rows)
        return self.inner.gram(left, d, once)[np.ix_(above, place)]

    def gram_and_sums(self, W: np.ndarray, d: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        once, place = self._distinct(W)
        gram, sums = self.inner.gram_and_sums(once, d)
        return gram[np.ix_(place, place)], sums[place]

    def weighted_sums(self, W: np.ndarray, d: np.ndarray) -> np.ndarray:
        once, place = self._distinct(W)
        return self.inner.weighted_sums(once, d)[place]

    def column_norms(self, d: np.ndarray) -> np.ndarray:
        return self.inner.column_norms(d)[self.index]

    def expect(self, W: np.ndarray) -> None:
        W = self.index[W]
        self.inner.expect(W[np.sort(np.unique(W, return_index=True)[1])])

    def original_units(self, theta: np.ndarray) -> tuple[np.ndarray, Any]:
        return self.inner.original_units(self.folded(theta))

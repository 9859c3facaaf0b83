"""Gram matrices of the columns that a fit has touched, computed once each."""

from __future__ import annotations

import numpy as np

_FEW = 512


class GramPool:
    """The Gram matrix ``Z_W' diag(d) Z_W`` over a growing set W of columns.

    A column costs one product with the columns already there, once; a working set that shrinks and
    grows again, and the next set of weights, find it ready. ``d`` is fixed: a loss with changing
    curvature takes a new pool for each quadratic model.
    """

    def __init__(self, design, d):
        self.design = design
        self.d = d
        self.members = np.empty(0, dtype=np.intp)
        self.place = np.full(design.shape[1], -1, dtype=np.intp)
        self._store = np.empty((0, 0))

    def require(self, W: np.ndarray) -> None:
        """Make sure that every column of W is in the pool."""
        new = W[self.place[W] < 0]
        if new.size == 0:
            return
        old = self.members.size
        if self.design.shape[1] <= _FEW and self.design.shape[0] <= _FEW:
            # All columns at once cost less than many small products.
            new = np.flatnonzero(self.place < 0)
        members = np.concatenate([self.members, new])
        if members.size > self._store.shape[0]:
            room = min(max(64, 2 * members.size), self.design.shape[1])
            store = np.empty((room, room))
            store[:old, :old] = self._store[:old, :old]
            self._store = store
        cross, fresh = self._products(new)
        self._store[old : members.size, old : members.size] = (fresh + fresh.T) / 2
        if old:
            self._store[:old, old : members.size] = cross
            self._store[old : members.size, :old] = cross.T
        self.place[new] = np.arange(old, members.size)
        self.members = members

    def _products(self, new):
        """Of the new columns with those that are here already, and with one another."""
        old = self.members.size
        if old and not getattr(self.design, "near", True):  # a pass over X saved is worth more than symmetry
            both = self.design.gram(np.concatenate([self.members, new]), self.d, new)
            return both[:old], both[old:]
        fresh = self.design.gram(new, self.d, new)
        return (self.design.gram(self.members, self.d, new) if old else None), fresh

    def diagonal(self, W: np.ndarray) -> np.ndarray:
        place = self._places(W)
        return self._store[place, place]

    def block(self, rows: np.ndarray, cols: np.ndarray | None = None) -> np.ndarray:
        """The contiguous block of the Gram matrix for these columns of the design."""
        place = self._places(rows)
        return self._store[place[:, None], place if cols is None else self._places(cols)]

    def _places(self, W):
        place = self.place[W]
        if place.size and place.min() < 0:
            self.require(W)
            place = self.place[W]
        return place


class FixedPool(GramPool):
    """A Gram matrix that is there already, of the columns U: that of the quadratic model at a point."""

    def __init__(self, U, gram, n_features):
        self.members = U
        self.place = np.full(n_features, -1, dtype=np.intp)
        self.place[U] = np.arange(U.size)
        self._store = gram

    def require(self, W):
        if self.place[W].min(initial=0) < 0:
            raise ValueError("a column is asked for that the quadratic model does not have")

"""A design over a tensor: X stays on its device, and only vectors and small Gram matrices leave it.

float32, bfloat16 and float16 are only storage types: sums are float64 (:mod:`trimreg.designs.torch.kernels`),
so certificates are as accurate as for an array in memory.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..base import ColumnBlock, ScaledMatrix, compressed_rows, deviations_by_squares
from . import kernels
from .matrix import TorchMatrix, explain_shortage, gathered, refuse_nonfinite

__all__ = ["TorchDesign", "TorchMatrix"]

_SMALL = 1 << 17  # restrictions with fewer numbers go to the CPU, which launches no kernels
_WIDE_BYTES = 1 << 30  # restrictions up to this size are stored in float64, because they are read many times
_PILOT_ROWS = 256  # the first pass takes moments about the means of these rows


class TorchDesign(ScaledMatrix):
    """A design over a tensor, with the same results as a dense one.

    A *pass* reads all of X; operations on few columns gather these and are not counted.
    Apple's devices have float32 at most; there tolerances below about 1e-5 cannot be met.
    """

    near = False

    def __init__(self, X: Any, weights: np.ndarray, *, center: bool = False, scale: Any = False):
        matrix = X if isinstance(X, TorchMatrix) else TorchMatrix(X)
        super().__init__(matrix, weights, center=center, scale=scale)

    @explain_shortage
    def _moments(self, weights, center):
        X, d = self.X, self.X.vector(weights)
        pilot = X.vector(np.zeros(self.shape[1]))
        if center:
            # About the mean of a few rows nothing cancels, unless these rows are not typical.
            some = X.tensor[:: max(1, self.shape[0] // _PILOT_ROWS)][:_PILOT_ROWS]
            pilot = some.to(X.arithmetic).mean(dim=0).to(pilot).nan_to_num_(0.0, 0.0, 0.0)
        X.passes += 1
        first, square = (part.cpu().numpy() for part in kernels.moments(X.tensor, d, pilot))
        odd = np.flatnonzero(~(np.isfinite(first) & np.isfinite(square)))
        if odd.size:  # NaN, inf, or numbers whose squares overflow
            refuse_nonfinite(X.tensor, X.index(odd))
        mean = pilot.cpu().numpy() + first / weights.sum() if center else np.zeros(self.shape[1])
        deviation, redo = deviations_by_squares(square, first if center else 0.0)
        mean[redo], deviation[redo] = self._means_and_deviations(weights, mean[redo], redo, refine=center)
        return mean, deviation

    def _means_and_deviations(self, weights, mean, which, refine=False):
        """Means and root mean square deviations of the columns ``which``, about ``mean`` or a refined one."""
        X, d = self.X, self.X.vector(weights).to(self.X.tensor.device, self.X.arithmetic)
        deviation, mean = np.empty(which.size), np.array(mean)
        step = max(1, (4 << 20) // self.shape[0])
        for start in range(0, which.size, step):
            part = slice(start, start + step)
            center = X.vector(mean[part]).to(d)
            spread = X.taken(X.index(which[part])) - center
            if refine:
                better = center + (d @ spread) / d.sum()
                spread -= better - center
                mean[part] = better.cpu().numpy()
            largest = spread.abs().amax(dim=0)
            spread /= largest.where(largest > 0, 1.0)
            deviation[part] = (largest * (d @ spread.square_()).sqrt()).cpu().numpy()
        return mean, deviation

    @explain_shortage
    def _weighted_norms(self, d):
        offset = np.zeros(self.shape[1]) if self.offset is None else self.offset
        self.X.passes += 1
        square = kernels.moments(self.X.tensor, self.X.vector(d), self.X.vector(offset))[1].cpu().numpy()
        unsafe = (square < 1e-290) | ~np.isfinite(square)
        norms = np.sqrt(np.where(unsafe, 0.0, square))
        redo = np.flatnonzero(unsafe & (self.inverse_scale > 0))
        norms[redo] = self._means_and_deviations(d, offset[redo], redo)[1]
        return norms * self.inverse_scale

    @explain_shortage
    def _product(self, u):
        return self.X.times(u)

    @explain_shortage
    def _transposed_product(self, r):
        self.X.passes += 1
        return kernels.transposed_product(self.X.tensor, self.X.vector(r)).cpu().numpy()

    @explain_shortage
    def columns(self, W: np.ndarray) -> np.ndarray:
        taken = _Scaled(self, W)
        out = np.empty((self.shape[0], len(W)))
        for rows, Z in taken.blocks():
            out[rows] = Z.cpu().numpy()
        return out

    @explain_shortage
    def _sums(self, W, d):
        index, d = self.X.index(W), self.X.vector(d)
        total = d.new_zeros(len(W))
        for rows in kernels.row_blocks(self.X.tensor, len(W)) if len(W) else ():
            part = self.X.taken(index, rows)
            total += (d[rows].to(part) @ part).to(total)
        return total.cpu().numpy() * self.inverse_scale[W]

    @explain_shortage
    def gram(self, rows: np.ndarray | None, d: np.ndarray, cols: np.ndarray) -> np.ndarray:
        if rows is None:
            return self._every_gram(d, cols)
        if rows is cols or np.array_equal(rows, cols):
            return self.gram_and_sums(cols, d)[0]
        d = self.X.vector(d)
        left, right = _Scaled(self, rows), _Scaled(self, cols)
        total = d.new_zeros((len(rows), len(cols)))
        for part in kernels.row_blocks(self.X.tensor, len(rows) + len(cols)):
            Z = right.of(part)
            total += (left.of(part).t() @ (Z * d[part, None].to(Z))).to(total)
        return total.cpu().numpy()

    def _every_gram(self, d, cols):
        X, d, taken = self.X, self.X.vector(d), _Scaled(self, cols)
        total, sums = d.new_zeros((self.shape[1], len(cols))), d.new_zeros(len(cols))
        X.passes += 1
        for rows, block in kernels.converted(X.tensor):
            right = taken.scaled(gathered(block, taken.index)) * d[rows, None].to(block)
            total += (block.t() @ right).to(total)
            sums += right.sum(dim=0).to(sums)
        if self.offset is not None:
            total -= X.vector(self.offset)[:, None] * sums
        return (total * X.vector(self.inverse_scale)[:, None]).cpu().numpy()

    @explain_shortage
    def gram_and_sums(self, W: np.ndarray, d: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        d = self.X.vector(d)
        gram, sums = d.new_zeros((len(W), len(W))), d.new_zeros(len(W))
        for rows, Z in _Scaled(self, W).blocks():
            weighted = Z * d[rows, None].to(Z)
            sums += weighted.sum(dim=0).to(sums)
            gram += (Z.t() @ weighted).to(gram)
        gram = 0.5 * (gram + gram.mT)  # symmetric to the last bit
        return gram.cpu().numpy(), sums.cpu().numpy()

    @explain_shortage
    def combination_moments(self, W: np.ndarray, V: np.ndarray, positions: np.ndarray, d: np.ndarray) -> Any:
        V, d, positions = self.X.vector(V), self.X.vector(d), self.X.index(positions)
        square, product = d.new_zeros(V.shape[1]), d.new_zeros((len(positions), V.shape[1]))
        for rows, Z in _Scaled(self, W).blocks(V.shape[1]):
            C = Z @ V.to(Z)
            weighted = C * d[rows, None].to(Z)
            square += (weighted * C).sum(dim=0).to(square)
            product += (Z.index_select(1, positions).t() @ weighted).to(product)
        return square.cpu().numpy(), product.cpu().numpy()

    @explain_shortage
    def compressed(self, y: np.ndarray, d: np.ndarray) -> Any:
        X, every = self.X, _Scaled(self, np.arange(self.shape[1]))
        weights, target = X.vector(d), X.vector((d * y.T).T)
        gram = weights.new_zeros((self.shape[1], self.shape[1]))
        moment = weights.new_zeros((self.shape[1], *y.shape[1:]))
        X.passes += 1
        for rows, block in kernels.converted(X.tensor):
            Z = every.scaled(block)
            moment += (Z.t() @ target[rows].to(Z)).to(moment)
            gram += (Z.t() @ (Z * weights[rows, None].to(Z))).to(gram)
        gram = 0.5 * (gram + gram.mT)
        return compressed_rows(gram.cpu().numpy(), moment.cpu().numpy(), y, d, source=self)

    @explain_shortage
    def restricted(self, W: np.ndarray) -> Any:
        """``Z_W``: on the device, or in NumPy's memory if it is small."""
        W = np.asarray(W, dtype=np.intp)
        if self.shape[0] * W.size <= _SMALL:
            return ColumnBlock(self.columns(W))
        part = gathered(self.X.tensor, self.X.index(W))
        if 8 * part.numel() <= _WIDE_BYTES:
            part = part.to(self.X.arithmetic)
        other = self._part(TorchMatrix(part), W)
        other.near = True
        return other


class _Scaled:
    """Centered and scaled columns of a design, block by block, on the device."""

    def __init__(self, design, W):
        X = self.X = design.X
        device, dtype = X.tensor.device, X.arithmetic
        self.index = X.index(W)
        self.offset = None if design.offset is None else X.vector(design.offset[W]).to(device, dtype)
        self.scale = X.vector(design.inverse_scale[W]).to(device, dtype)

    def scaled(self, block):
        return block * self.scale if self.offset is None else (block - self.offset) * self.scale

    def of(self, rows):
        return self.scaled(self.X.taken(self.index, rows))

    def blocks(self, more=0):
        """Pairs of a slice of rows and its block; ``more`` columns are computed from each block."""
        width = len(self.index) + more
        return ((rows, self.of(rows)) for rows in (kernels.row_blocks(self.X.tensor, width) if width else ()))

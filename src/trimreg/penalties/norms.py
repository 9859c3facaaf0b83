r"""The parts of theta whose norms are the magnitudes ``r_j``: single coefficients, or groups of them.

A penalty weights the lengths :math:`\|\theta_G\|_q` of the parts of a partition of the coordinates. Solvers
see the partition only through these classes, so that single coefficients, groups of features, and the rows of
multi-task and multinomial models (all coefficients of a feature) share one code. Arrays "per part" have one
entry per part, arrays "per coordinate" one per coefficient; for single coefficients they are the same.
"""

from __future__ import annotations

from typing import Any

import numpy as np

_SAME = 1e-9  # coordinates within this relative distance of the largest of their group count as equal


def soft_threshold(z: np.ndarray, threshold: Any) -> np.ndarray:
    r""":math:`\arg\min_x \frac12 (x - z)^2 + t |x|`, elementwise; ``t`` may be inf.

    Examples
    --------
    >>> import numpy as np
    >>> from trimreg.penalties import soft_threshold
    >>> soft_threshold(np.array([3.0, -0.5]), 1.0)
    array([2., 0.])
    """
    return np.sign(z) * np.maximum(np.abs(z) - threshold, 0.0) + 0.0  # + 0.0 turns -0.0 into 0.0


def subgradient_residual(
    theta: np.ndarray, gradient: np.ndarray, threshold: Any, bounds: Any = None
) -> np.ndarray:
    r"""The element of :math:`g_j + t_j \partial|\theta_j| + N_j(\theta_j)` nearest to 0, for each j.

    At ``theta_j != 0`` the subdifferential is the point ``g_j + t_j sign(theta_j)``; at 0 it is the interval
    ``[g_j - t_j, g_j + t_j]``. N is the normal cone of ``lower <= theta <= upper`` if these ``bounds`` are
    given: the negative numbers at the lower bound, the positive ones at the upper bound, all numbers if the
    bounds are equal, and else only 0.

    Examples
    --------
    >>> import numpy as np
    >>> from trimreg.penalties import subgradient_residual
    >>> theta, gradient = np.array([1.0, 0.0, 0.0]), np.array([-0.5, 3.0, -3.0])
    >>> subgradient_residual(theta, gradient, 1.0)
    array([ 0.5,  2. , -2. ])
    >>> subgradient_residual(theta, gradient, 1.0, bounds=(np.zeros(3), np.full(3, 2.0)))
    array([ 0.5,  0. , -2. ])
    """
    with np.errstate(invalid="ignore"):
        away = gradient + np.sign(theta) * threshold
        if bounds is None:
            at_zero = np.sign(gradient) * np.maximum(np.abs(gradient) - threshold, 0.0)
            return np.where(theta == 0, at_zero, away)
        least, most = (np.where(theta == 0, gradient + end, away) for end in (-threshold, threshold))
    least = np.where(theta <= bounds[0], -np.inf, least)
    most = np.where(theta >= bounds[1], np.inf, most)
    return np.where(least > 0, least, np.minimum(most, 0.0))


class Singles:
    """Each coefficient is a part: ``r_j = |theta_j|``."""

    q = None

    def __init__(self, count: int):
        self.count = count

    @property
    def sizes(self):
        return np.ones(self.count, dtype=np.intp)

    def lengths(self, theta):
        return np.abs(theta)

    dual_lengths = lengths

    def spread(self, values):
        return values

    largest_in_part = spread
    coordinates = spread

    def shrink(self, z, threshold):
        return soft_threshold(z, threshold)

    def residual(self, theta, gradient, threshold, bounds=None):
        return subgradient_residual(theta, gradient, threshold, bounds)

    def polar(self, x):
        return np.sign(x)

    def common(self, norms):
        return norms

    def extended(self, count=1):
        return Singles(self.count + count)

    def restricted(self, parts):
        return Singles(len(parts))


class Groups:
    r"""Parts given by one label per coordinate, with lengths :math:`\|\theta_G\|_q`, ``q`` 2 or inf.

    The labels are 0 to the number of parts minus one, each at least once.
    """

    def __init__(self, label, q=2):
        self.label = np.asarray(label, dtype=np.intp)
        self.q = q
        sizes = np.bincount(self.label)
        self.count = sizes.size
        self.sizes = sizes
        self.order = np.argsort(self.label, kind="stable")
        self.starts = np.concatenate([[0], np.cumsum(sizes)])

    # -- between parts and coordinates ----------------------------------------------------------------

    def spread(self, values):
        """Values per part as values per coordinate."""
        return values[self.label]

    def largest_in_part(self, values):
        """The largest of the values per coordinate in each part."""
        return np.maximum.reduceat(values[self.order], self.starts[:-1])

    def coordinates(self, parts):
        """The coordinates of these parts, part after part."""
        parts = np.asarray(parts, dtype=np.intp)
        sizes = self.sizes[parts]
        within = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        return self.order[np.repeat(self.starts[parts], sizes) + within]

    def common(self, norms):
        """Root mean squares within the parts: a scaling must be constant in a part to preserve lengths."""
        return self.spread(self._euclidean(norms) / np.sqrt(self.sizes))

    def extended(self, count=1):
        """The same groups and one more part of ``count`` coordinates at the end."""
        return Groups(np.append(self.label, np.full(count, self.count)), self.q)

    def restricted(self, parts):
        """These parts only, with their coordinates one part after another."""
        return Groups(np.repeat(np.arange(len(parts)), self.sizes[parts]), self.q)

    # -- lengths ---------------------------------------------------------------------------------------

    def lengths(self, theta):
        return self._euclidean(theta) if self.q == 2 else self.largest_in_part(np.abs(theta))

    def dual_lengths(self, gradient):
        """The norms dual to the lengths: l2, or l1 for q = inf."""
        if self.q == 2:
            return self._euclidean(gradient)
        return np.bincount(self.label, np.abs(gradient), minlength=self.count)

    def _euclidean(self, x):
        unit = self.largest_in_part(np.abs(x))  # so that squares neither underflow nor overflow
        unit = np.where(unit > 0, unit, 1.0)
        return unit * np.sqrt(np.bincount(self.label, (x / self.spread(unit)) ** 2, minlength=self.count))

    # -- optimality --------------------------------------------------------------------------------------

    def shrink(self, z, threshold):
        r""":math:`\arg\min_x \frac12 \|x - z\|^2 + \sum_G t_G \|x_G\|_q`, exactly; ``t`` may be inf."""
        threshold = np.broadcast_to(np.asarray(threshold, dtype=float), (self.count,))
        if self.q == 2:
            length = self.lengths(z)
            with np.errstate(invalid="ignore", divide="ignore"):
                factor = np.where(length > threshold, 1.0 - threshold / length, 0.0)
            return z * self.spread(factor) + 0.0
        cap = self._caps(np.abs(z), threshold)
        return np.sign(z) * np.minimum(np.abs(z), self.spread(cap)) + 0.0

    def _caps(self, size, threshold):
        """The level at which the prox of ``t ||.||_inf`` truncates each part.

        The truncated amounts add up to t: they are the projection onto the l1 ball of radius t (Moreau).
        """
        width = int(self.sizes.max(initial=1))
        table = np.zeros((self.count, width))
        place = np.arange(self.order.size) - np.repeat(self.starts[:-1], self.sizes)
        table[self.label[self.order], place] = size[self.order]
        table = -np.sort(-table, axis=1)
        with np.errstate(invalid="ignore"):
            levels = (np.cumsum(table, axis=1) - threshold[:, None]) / np.arange(1, width + 1)
        # the level is the largest of these: the mean excess rises until the next coordinate is below it
        cap = np.maximum(levels.max(axis=1), 0.0)
        return np.where(threshold == 0, np.inf, cap)

    def residual(self, theta, gradient, threshold, bounds=None):
        r"""The element of :math:`g_G + t_G \partial\|\theta_G\|_q` nearest to 0, for each part."""
        threshold = np.broadcast_to(np.asarray(threshold, dtype=float), (self.count,))
        length = self.lengths(theta)
        at_zero = self.shrink(gradient, threshold)
        with np.errstate(invalid="ignore", divide="ignore"):
            if self.q == 2:
                slope = np.where(length > 0, threshold / length, 0.0)
                away = gradient + np.where(theta == 0, 0.0, self.spread(slope) * theta)
            else:
                away = self._residual_on_faces(theta, gradient, threshold, length)
        return np.where(self.spread(length) == 0, at_zero, away)

    def _residual_on_faces(self, theta, gradient, threshold, length):
        residual = gradient.copy()
        for part in np.flatnonzero((length > 0) & (threshold > 0)):
            j = self.coordinates([part])
            j = j[np.abs(theta[j]) >= (1.0 - _SAME) * length[part]]
            sign = np.sign(theta[j])
            pull = -sign * gradient[j]  # the subgradient of a solution, without the signs
            residual[j] = sign * (_onto_simplex(pull, threshold[part]) - pull)
        return residual

    def polar(self, x):
        r"""A maximizer u of :math:`\langle u_G, x_G\rangle` over the dual ball; 0 if ``x_G`` is 0.

        It is a subgradient of the length at x. If x is a gradient, ``-u`` is the direction in which a part at
        0 moves.
        """
        if self.q == 2:
            length = self.lengths(x)
            return x / self.spread(np.where(length > 0, length, 1.0))
        size = np.abs(x)
        first = np.full(self.count, x.size)
        top = size >= self.spread(self.largest_in_part(size))
        np.minimum.at(first, self.label[top], np.flatnonzero(top))
        u = np.zeros_like(x)
        u[first] = np.sign(x[first])
        return u


def _onto_simplex(y, total):
    """The projection of y onto ``{x >= 0, sum x = total}``; y itself if the total is infinite."""
    if not np.isfinite(total):
        return y
    top = -np.sort(-y)
    level = ((np.cumsum(top) - total) / np.arange(1, y.size + 1)).max()
    return np.maximum(y - level, 0.0)


#: The partitions that a penalty may have.
Norm = Singles | Groups


def partition(groups: Any, n_features: int) -> np.ndarray:
    """The label of each feature, from 0 to the number of groups minus one.

    ``groups`` has one label per column (of any kind; labels are numbered in sorted order), or consists of
    lists of column indices, with each column in one list.
    """
    expected = f"groups must hold a label for each of the {n_features} features, or lists of feature indices"
    if isinstance(groups, (str, bytes)) or not np.iterable(groups):
        raise ValueError(f"{expected}; got {groups!r}")
    if isinstance(groups, np.ndarray) and groups.ndim == 1 and groups.dtype.kind in "biuUS":
        if groups.size != n_features:
            raise ValueError(f"{expected}; got {groups.size} labels")
        return np.unique(groups, return_inverse=True)[1].reshape(-1)
    groups = list(groups)
    lists = [np.iterable(group) and not isinstance(group, (str, bytes)) for group in groups]
    if any(lists):
        if not all(lists):
            raise ValueError(f"{expected}; got both labels and lists")
        return _partition_from_lists([list(group) for group in groups], n_features)
    if len(groups) != n_features:
        raise ValueError(f"{expected}; got {len(groups)} labels")
    if any(label is None or label != label for label in groups):
        raise ValueError(f"{expected}; got a missing label")
    try:
        return np.unique(np.asarray(groups), return_inverse=True)[1].reshape(-1)
    except TypeError:
        raise ValueError(f"{expected}; labels of different kinds have no order") from None


def copies(groups: Any, n_features: int) -> tuple[np.ndarray, np.ndarray] | None:
    """For groups that overlap a copy of a feature for each group that it is in; None for all others.

    The first array has the feature of each copy, the second its group.

    Examples
    --------
    >>> from trimreg.penalties.norms import copies
    >>> copies([[0, 1], [1, 2]], 3)
    (array([0, 1, 1, 2]), array([0, 0, 1, 1]))
    """
    if not isinstance(groups, (list, tuple)):
        return None
    lists = [list(one) for one in groups if isinstance(one, (list, tuple, set, range, np.ndarray))]
    if not lists or len(lists) != len(groups) or _check_lists(lists, n_features) is None:
        return None
    return np.concatenate(lists).astype(np.intp), np.repeat(np.arange(len(lists)), [*map(len, lists)])


def _check_lists(groups, n_features):
    """Check lists of features. The first feature in two groups with their numbers, or None."""
    label, overlap = np.full(n_features, -1), None
    for number, group in enumerate(groups):
        if not group:
            raise ValueError(f"groups must not be empty; group {number} is")
        for j in group:
            whole = isinstance(j, (int, np.integer)) and not isinstance(j, bool)
            if not whole or not 0 <= j < n_features:
                allowed = f"feature indices from 0 to {n_features - 1}"
                raise ValueError(f"groups must hold {allowed}; got {j!r} in group {number}")
            if label[j] == number:
                raise ValueError(f"groups must hold a feature once; feature {j} is in group {number} twice")
            if label[j] >= 0 and overlap is None:
                overlap = j, label[j], number
            label[j] = number
    if (label < 0).any():
        missing = int(np.flatnonzero(label < 0)[0])
        raise ValueError(f"groups must hold every feature; feature {missing} is in none (make it a group)")
    return overlap


def _partition_from_lists(groups, n_features):
    overlap = _check_lists(groups, n_features)
    if overlap is not None:
        j, one, other = overlap
        raise ValueError(
            f"groups must not overlap; feature {j} is in groups {one} and {other}. Groups that overlap, "
            "given as a list of lists, are for solve and estimators with a given h and without n_outliers"
        )
    label = np.empty(n_features, dtype=np.intp)
    for number, group in enumerate(groups):
        label[group] = number
    return label

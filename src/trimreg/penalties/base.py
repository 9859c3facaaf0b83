r"""The base class of penalties: magnitudes, and a rule that turns them into weights.

Every penalty here is, or is majorized by, a weighted sum of lengths

.. math:: \alpha \sum_j w_j r_j(\theta), \qquad r_j(\theta) = f_j \|\theta_j\|,

where the parts ``theta_j`` are single coefficients, groups, or rows (:mod:`trimreg.penalties.norms`), and
``f`` are the penalty factors of the parts. A part with ``f = 0`` is never penalized and not counted in h; a
part with ``f = inf`` is excluded from the model. A subclass states its value, its weights and its prox for
the parts with ``0 < f < inf``; the base class handles the other two kinds.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Mapping
from typing import Any

import numpy as np

from .norms import Groups, Norm, Singles, copies, partition, soft_threshold, subgradient_residual

__all__ = [
    "PENALTIES",
    "Penalty",
    "get_penalty",
    "largest_violation",
    "soft_threshold",
    "subgradient_residual",
]


def largest_violation(
    theta: np.ndarray, gradient: np.ndarray, threshold: np.ndarray, bounds: Any = None,
    norm: Norm | None = None,
) -> float:  # fmt: skip
    """The largest absolute entry of the nearest subgradient: 0 if every optimality condition holds."""
    nearest = subgradient_residual if norm is None else norm.residual
    return float(np.max(np.abs(nearest(theta, gradient, threshold, bounds)), initial=0.0))


PENALTIES: dict[str, type[Penalty]] = {}  # those of the library by name; trimreg.penalties fills it


def get_penalty(penalty: str | Penalty) -> Penalty:
    """The penalty of that name with its default parameters, or the object itself.

    Examples
    --------
    >>> from trimreg.penalties import get_penalty
    >>> get_penalty("mcp").gamma
    2.5
    """
    if isinstance(penalty, str) and penalty in PENALTIES:
        return PENALTIES[penalty]()
    if isinstance(penalty, Penalty):
        return penalty
    raise ValueError(f"penalty must be one of {sorted(PENALTIES)} or a penalty object; got {penalty!r}")


class Penalty:
    """Parts, factors and binding; the base of every penalty of the library.

    Parameters
    ----------
    penalty_factor : array-like, optional
        ``f``, one per feature (or group); 0 means never penalized and not counted in h, inf means excluded.
        The default is 1, and for groups the square root of their number of features.
    groups : array-like of labels, or list of lists of int, optional
        Features that are penalized together: one label per feature, or lists of their indices. Lists may
        overlap (:class:`~trimreg.TrimmedGroupLasso` says what that means) in :func:`trimreg.solve`, and in
        estimators with a given h.
    q : 2 or inf
        The norm of a group (or of the coefficients of a feature, if there are several outputs).
    """

    name: str = "custom"
    n_free: int | None = None  # number of parts that the penalty leaves free, or None if it does not trim
    majorizes: bool = True  # whether ``weights`` are those of a majorizer, which MM needs
    constant_weights: bool = False  # whether the weights are the same everywhere, so that it is convex
    norm: Norm  # the parts and their lengths, once the penalty is bound

    def __init__(self, penalty_factor: Any = None, *, groups: Any = None, q: float = 2):
        self.penalty_factor, self.groups, self.q = penalty_factor, groups, q

    def __repr__(self):
        hidden = {"norm"} | ({"q"} if self.groups is None and self.q == 2 else set())
        shown = {k: v for k, v in vars(self).items() if k[0] != "_" and k not in hidden and v is not None}
        return f"{type(self).__name__}({', '.join(f'{k}={v!r}' for k, v in shown.items())})"

    # -- parameters, as scikit-learn reads them: a grid search may vary ``penalty__gamma`` -------

    _stored: Mapping[str, str] = {}  # arguments of the constructor whose attribute has another name

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The arguments of the constructor and their values."""
        names = {one: self._stored.get(one, one) for one in inspect.signature(type(self)).parameters}
        return {one: getattr(self, attribute) for one, attribute in names.items() if hasattr(self, attribute)}

    def set_params(self, **values: Any) -> Penalty:
        """Change arguments of the constructor in place."""
        for name, value in values.items():
            if name not in (known := self.get_params()):
                raise ValueError(f"{type(self).__name__} has no parameter {name!r}; it has {list(known)}")
            setattr(self, self._stored.get(name, name), value)
        return self

    def __sklearn_clone__(self):
        return copy.deepcopy(self)

    # -- binding -------------------------------------------------------------------------------

    def bind(self, n_features: int, n_outputs: int = 1) -> Penalty:
        """A copy for that many features, with checked arguments and one factor per part.

        With several outputs theta holds ``n_outputs`` coefficients per feature, one after another, which are
        penalized together.
        """
        bound = copy.copy(self)
        bound.norm, sizes = self._parts(n_features, n_outputs)
        count = sizes.size
        each = "features" if self.groups is None else "groups"
        factor = np.sqrt(sizes) if self.penalty_factor is None else self.penalty_factor
        try:
            factor = np.asarray(factor, dtype=float)
        except (TypeError, ValueError):
            raise ValueError(f"penalty_factor must be an array of numbers; got {factor!r}") from None
        if factor.shape != (count,):
            expected = f"penalty_factor must hold one number for each of the {count} {each}"
            raise ValueError(f"{expected}; got shape {factor.shape}")
        if np.isnan(factor).any() or (factor < 0).any():
            bad = int(np.flatnonzero(~(factor >= 0))[0])
            raise ValueError(
                f"penalty_factor must be >= 0 (inf excludes a feature); got {factor[bad]} "
                f"for {each[:-1]} {bad}"
            )
        return bound._with_factor(factor)

    def for_copies(self, n_features: int) -> tuple[Penalty, np.ndarray | None]:
        """The penalty on copies of the features, one for each group that holds them, and which they copy.

        Without groups that overlap it is the penalty itself, and None.
        """
        found = None if self.groups is None else copies(self.groups, n_features)
        if found is None:
            return self, None
        other = copy.copy(self)
        index, other.groups = found
        return other, index

    def _parts(self, n_features, n_outputs):
        """The norm, and the number of features of each part."""
        q = self.q
        if isinstance(q, (bool, str)) or q not in (2, np.inf):
            raise ValueError(f"q must be 2 or inf; got {q!r}")
        if self.groups is None:
            label = np.arange(n_features)
            norm = Singles(n_features) if n_outputs == 1 else Groups(np.repeat(label, n_outputs), q)
            return norm, np.ones(n_features)
        label = partition(self.groups, n_features)
        return Groups(np.repeat(label, n_outputs), q), np.bincount(label).astype(float)

    def _with_factor(self, factor):
        self._factor = factor
        self._regular = np.flatnonzero((factor > 0) & np.isfinite(factor))
        every = self._regular.size == factor.size
        self._at_regular: Any = slice(None) if every else self._regular  # a slice copies nothing
        self._excluded = np.isinf(factor)
        return self

    def rescaled(self, scale: np.ndarray) -> Penalty:
        """The same penalty for coefficients multiplied by ``scale``: its value and the ``r_j`` do not change.

        ``scale`` is constant within a part, as from ``norm.common``.
        """
        per_part = self.norm.largest_in_part(scale)
        with np.errstate(invalid="ignore"):
            factor = np.where(self._excluded, np.inf, self._factor / per_part)
        return copy.copy(self)._with_factor(factor)

    def extended(self, count: int = 1) -> Penalty:
        """The same penalty with ``count`` more coordinates that are never penalized, such as intercepts.

        They form one more part, or ``count`` more if the parts are single coefficients.
        """
        other = copy.copy(self)
        other.norm = self.norm.extended(count)
        return other._with_factor(np.append(self._factor, np.zeros(other.norm.count - self.norm.count)))

    def restricted(self, parts: np.ndarray) -> Penalty:
        """The same penalty on these parts only, with their coordinates one part after another."""
        other = copy.copy(self)
        other.norm = self.norm.restricted(parts)
        return other._with_factor(self._factor[parts])

    # -- for solvers -----------------------------------------------------------------------------

    def magnitudes(self, theta: np.ndarray) -> np.ndarray:
        """``r_j = f_j ||theta_j||``; 0 for excluded parts."""
        factor, length = (np.where(self._excluded, 0.0, x) for x in (self._factor, self.norm.lengths(theta)))
        return factor * length

    def thresholds(self, weights: np.ndarray, alpha: float) -> np.ndarray:
        """``alpha f_j w_j``, the penalties on ||theta_j|| in the weighted problem with these weights."""
        with np.errstate(invalid="ignore"):
            return np.where(self._excluded, np.inf, alpha * self._factor * weights)

    def levels(self, alpha: float = 1.0) -> np.ndarray:
        """The thresholds ``alpha f_j`` of parts with weight 1."""
        return self.thresholds(np.ones(self._factor.size), alpha)

    def ridge(self, l2: float) -> np.ndarray:
        """``l2 f_j`` for every coordinate, the curvature of a ridge term; 0 for excluded parts."""
        return self.norm.spread(l2 * np.where(self._excluded, 0.0, self._factor))

    def value(self, theta: np.ndarray, alpha: float) -> float:
        """The penalty at theta; inf if an excluded part is not 0."""
        length = self.norm.lengths(theta)
        if np.any(length[self._excluded]):
            return np.inf
        j = self._at_regular
        return float(self._value(length[j], alpha, self._factor[j]))

    def weights(self, theta: np.ndarray, alpha: float, gradient: np.ndarray | None = None) -> np.ndarray:
        """The weights at theta: the minimizer over S (trimmed), or those of the tangent majorizer.

        A part that is never penalized has weight 0, an excluded one 1. The ``gradient`` of the loss breaks
        ties between equal magnitudes.
        """
        weights = self._excluded.astype(float)
        j = self._at_regular
        tie = None if gradient is None else self.norm.dual_lengths(gradient)[j] / self._factor[j]
        weights[j] = self._weights(self.norm.lengths(theta)[j], alpha, self._factor[j], tie)
        return weights

    def checked_weights(self, weights: Any, name: str = "weights") -> np.ndarray:
        """``weights`` as an array in [0, 1], one per part; a ValueError about ``name`` if they are not that.

        Entries of parts that are never penalized or excluded do not matter.
        """
        expected = f"{name} must hold {self._factor.size} numbers in [0, 1]"
        try:
            weights = np.asarray(weights, dtype=float)
        except (TypeError, ValueError):
            raise ValueError(f"{expected}; got {weights!r}") from None
        if weights.shape != self._factor.shape:
            raise ValueError(f"{expected}; got shape {weights.shape}")
        regular = weights[self._regular]
        inside = (regular >= -1e-9) & (regular <= 1 + 1e-9)
        if not inside.all():
            raise ValueError(f"{expected}; got {regular[~inside][0]}")
        return weights

    def prox(self, z: np.ndarray, alpha: float, step: float = 1.0, bounds: Any = None) -> np.ndarray:
        r""":math:`\arg\min_{l \le x \le u} \frac{1}{2 \eta}\|x - z\|^2 + P_\alpha(x)`, with step ``eta``.

        The ``bounds`` l and u, one per coefficient, have 0 between them; without them x is any. A penalty
        does not fall in \|x\|, so x has the sign of z or is 0. It is the minimum over
        :math:`0 \le |x_j| \le m_j`, where :math:`m_j` is the bound on the side of :math:`z_j`. If the
        objective is convex in each :math:`x_j`, as with l1, it falls up to its minimum without bounds, and
        the prox is that minimum, clipped.
        """
        z = np.asarray(z, dtype=float)
        if bounds is None:
            return self._whole_prox(z, alpha, step)
        limit = np.where(z > 0, bounds[1], -np.asarray(bounds[0]))
        return self._whole_prox(np.where(limit > 0, z, 0.0), alpha, step, limit)

    def _whole_prox(self, z, alpha, step, limit=None):
        """The prox of a penalty that depends only on Euclidean lengths: z shrinks along itself."""
        if self.norm.q == np.inf:
            name = type(self).__name__
            raise ValueError(f"the prox of {name} has no closed form for q = inf; use solver='mm'")
        length, j = self.norm.lengths(z), self._regular
        size = length.copy() if limit is None else np.minimum(length, limit)
        size[self._excluded] = 0.0
        within = () if limit is None else (limit[j],)
        prox = self._prox if limit is None else self._bounded_prox
        size[j] = prox(length[j], alpha, step, self._factor[j], *within)
        if self.norm.q is None:
            return np.where(size == 0, 0.0, np.copysign(size, z))
        ratio = np.divide(size, length, out=np.zeros_like(size), where=length > 0)
        return np.where(self.norm.spread(size == length), z, self.norm.spread(ratio) * z) + 0.0

    def stationarity(
        self, theta: np.ndarray, weights: np.ndarray, gradient: np.ndarray, alpha: float,
        bounds: Any = None,
    ) -> float:  # fmt: skip
        r"""The paper's :math:`T(\theta, w)`: squared distance of 0 from the subdifferential of F.

        The theta part is :math:`\sum_j \mathrm{dist}^2(-g_j, \alpha f_j w_j\, \partial\|\theta_j\|)`.
        A penalty whose weights are variables adds the w part, and bounds that are reached add their normal
        cones.
        """
        residual = self.norm.residual(theta, gradient, self.thresholds(weights, alpha), bounds)
        with np.errstate(over="ignore"):
            square = float(residual @ residual)
        return square if square < np.inf or np.isinf(residual).any() else float(np.finfo(float).max)

    # -- for a subclass to state, on the lengths of the regular parts --------------------------------

    def _value(self, size, alpha, factor):
        raise NotImplementedError

    def _weights(self, size, alpha, factor, tie):
        raise NotImplementedError

    def _prox(self, size, alpha, step, factor):
        raise NotImplementedError

    def _bounded_prox(self, size, alpha, step, factor, limit):
        """:meth:`_prox` over ``0 <= x <= limit``: clipped, which is right for a convex penalty."""
        return np.minimum(self._prox(size, alpha, step, factor), limit)

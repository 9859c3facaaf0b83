r"""From data to the matrix S of a graphical model: covariances, rank correlations, normal scores.

In a Gaussian copula (or *nonparanormal*) model, :math:`(f_1(x_1), \dots, f_p(x_p))` is Gaussian for some
increasing functions. Its graph is given by the correlations after the transformations. They can be estimated
without the functions, from ranks, or with them, from normal scores (:class:`Nonparanormal`).

References
----------
Liu, Lafferty and Wasserman (2009). The nonparanormal: semiparametric estimation of high dimensional
undirected graphs. Journal of Machine Learning Research 10, 2295-2328.

Liu, Han, Yuan, Lafferty and Wasserman (2012). High-dimensional semiparametric Gaussian copula graphical
models. Annals of Statistics 40(4), 2293-2326.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtri
from scipy.stats import kendalltau, rankdata
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from ..designs import as_design
from ..designs.convert import is_virtual
from ..estimators import validation as check

KINDS = ("pearson", "spearman", "kendall")
SCORES = (None, "npn")

#: Up to this number of samples, Kendall's tau multiplies the signs of all pairs, n^2 p^2 operations in BLAS;
#: above, it sorts pairs of columns, p^2 n log n. Ranks up to this number are exact in float32.
SIGNS_UP_TO = 4000


# -- S and the samples in its coordinates ------------------------------------------------------------------


class GraphData(NamedTuple):
    """The matrix S of a graphical model, and how samples are brought into its coordinates."""

    covariance: np.ndarray  # S in float64; a correlation matrix if it comes from ranks or normal scores
    location: np.ndarray  # subtracted from a sample (from its normal scores, if these are used)
    scale: np.ndarray  # divisor after that; ones except for rank correlations
    scores: Nonparanormal | None  # applied before both
    n_samples: int | None
    dtype: np.dtype  # of the results: float32 if the data are

    def rows(self, X: np.ndarray) -> np.ndarray:
        """Samples in the coordinates of S: transformed as the data were, and centered."""
        X = X if self.scores is None else self.scores.transform(X)
        return (X - self.location) / self.scale


def given_covariance(S: Any, names: Sequence[str] | None = None) -> GraphData:
    """The data of a covariance matrix that the user passes, checked."""
    S, dtype = check_covariance(S, names)
    p, S = S.shape[0], (S + S.T) / 2
    dtype = _wide_enough(S, dtype)
    return GraphData(S, np.zeros(p, dtype), np.ones(p, dtype), None, None, dtype)


def read_covariance(
    X: Any, *, kind: str, scores: str | None, assume_centered: bool, names: Sequence[str] | None = None
) -> GraphData:
    """S of a checked matrix of samples; ``names`` of the columns are for messages."""
    n, p = X.shape
    if n < 2:
        raise ValueError("X must have at least two samples; got n_samples = 1")
    if p < 2:
        raise ValueError(f"X must have at least two columns to have an edge; got n_features = {p}")
    around_zero = assume_centered and kind == "pearson" and scores is None
    if is_virtual(X):
        design, S = design_and_moments(X, center=not assume_centered)
        constant = np.flatnonzero(design.inverse_scale == 0)
    else:
        constant = np.flatnonzero(~X.any(axis=0)) if around_zero else constant_columns(X)
    if constant.size:
        listed = ", ".join(shown(j, names) for j in constant[:6])
        which = "zero" if around_zero else "constant"
        raise ValueError(f"X must have no {which} columns, because they have no edges: drop {listed}")
    if scores == "npn":
        transformer = Nonparanormal().fit(X)
        S = covariance_of(transformer.transform(X)).covariance
        return GraphData(S, np.zeros(p, X.dtype), np.ones(p, X.dtype), transformer, n, X.dtype)
    if is_virtual(X):
        location = np.zeros(p) if assume_centered else design.offset
    else:
        S, location, scale = covariance_of(X, kind=kind, assume_centered=assume_centered)
    if kind == "pearson":
        scale = np.ones(p)
    dtype = _wide_enough(S, X.dtype)
    return GraphData(S, location.astype(dtype), scale.astype(dtype), None, n, dtype)


def design_and_moments(X: Any, center: bool) -> tuple[Any, np.ndarray]:
    """The design of a matrix that is not in memory, and its covariance (around 0 if not centered)."""
    d, every = np.full(X.shape[0], 1.0 / X.shape[0]), np.arange(X.shape[1])
    design = as_design(X, d, center=center)
    return design, design.gram(every, d, every)


def _wide_enough(S, dtype):
    """The dtype that holds S and its inverse: float64 if float32 would overflow."""
    low, high = float(np.diagonal(S).min()), float(np.diagonal(S).max())
    if not (low > 1e-280 and high < 1e280):
        raise ValueError(
            f"the variances of X must lie between 1e-280 and 1e280; got {low:.3g} to {high:.3g}; scale the "
            "columns"
        )
    return dtype if low > 1e-25 and high < 1e25 else np.dtype(np.float64)


def check_covariance(S: Any, names: Sequence[str] | None = None) -> tuple[np.ndarray, np.dtype]:
    """``S`` as a float64 covariance matrix of at least two variables, and the dtype of the results."""
    S = check.check_real("S", S)
    if S.ndim != 2 or S.shape[0] != S.shape[1]:
        raise ValueError(f"S must be a square matrix; got shape {S.shape}")
    if S.shape[0] < 2:
        raise ValueError(f"S must have at least 2 variables to have an edge; got n_features = {S.shape[0]}")
    dtype = np.dtype(np.float32) if S.dtype == np.float32 else np.dtype(np.float64)
    S = np.asarray(S.toarray() if hasattr(S, "toarray") else S, dtype=float)
    check.check_finite(S, "S")
    diagonal = np.diagonal(S)
    if not (diagonal > 0).all():
        bad = int(np.flatnonzero(~(diagonal > 0))[0])
        raise ValueError(
            f"S must have a positive diagonal; variable {shown(bad, names)} has variance "
            f"{diagonal[bad]:.6g}. A constant variable has no edges: drop it"
        )
    scale = np.multiply.outer(np.sqrt(diagonal), np.sqrt(diagonal))
    if not (np.abs(S - S.T) <= 1e-6 * scale).all():
        i, j = (int(k) for k in np.unravel_index(np.argmax(np.abs(S - S.T) / scale), S.shape))
        raise ValueError(f"S must be symmetric; S[{i}, {j}] = {S[i, j]:.6g} and S[{j}, {i}] = {S[j, i]:.6g}")
    return S, dtype


def shown(index: int, names: Sequence[str] | None) -> str:
    """A variable in a message: its name if there is one, else its index."""
    return str(int(index)) if names is None else repr(str(names[index]))


# -- covariances ---------------------------------------------------------------------------------------------


class CovarianceOf(NamedTuple):
    """A covariance, with the means and standard deviations of the columns (or of their normal scores).

    For a correlation matrix R, the covariance in the units of the data is ``scale[:, None] * R * scale``.
    """

    covariance: np.ndarray
    location: np.ndarray  # zeros if assumed centered
    scale: np.ndarray  # standard deviations around that location


def covariance_of(X: np.ndarray, *, kind: str = "pearson", assume_centered: bool = False) -> CovarianceOf:
    r"""The empirical covariance of X, or a correlation matrix from ranks, in float64.

    - ``"pearson"``: :math:`S = \frac1n \sum_i (x_i - \bar x)(x_i - \bar x)'`, divided by n and not n - 1, as
      in scikit-learn.
    - ``"spearman"``: :math:`S_{jk} = 2 \sin(\frac{\pi}{6} r_{jk})`, r the correlation of the ranks.
    - ``"kendall"``: :math:`S_{jk} = \sin(\frac{\pi}{2} \tau_{jk})`, :math:`\tau` Kendall's tau-b.

    The last two estimate the correlations of a Gaussian copula (Liu et al. 2012), for columns that are not
    constant. If the estimate is not positive semidefinite, it is replaced by :func:`nearest_correlation`.
    ``assume_centered`` takes the means of the columns to be zero; ranks are centered in any case.
    """
    X = np.asarray(X, dtype=float)
    location = np.zeros(X.shape[1]) if assume_centered else _means(X)
    scale = _lengths(X - location) / np.sqrt(len(X))
    if kind == "pearson":
        with np.errstate(over="ignore", invalid="ignore"):
            S = _second_moments(X - location)
        if not np.isfinite(S).all():
            raise ValueError("X is too large: its covariance overflows; scale the columns")
        return CovarianceOf(S, location, scale)
    R = 2.0 * np.sin(np.pi / 6.0 * spearman(X)) if kind == "spearman" else np.sin(np.pi / 2.0 * kendall(X))
    return CovarianceOf(nearest_correlation(_unit_diagonal(R)), location, scale)


def spearman(X: np.ndarray) -> np.ndarray:
    """Spearman's rank correlations of the columns, none of them constant; ties get average ranks."""
    ranks = rankdata(X, axis=0)
    return _normalized(_second_moments(ranks - (len(ranks) + 1) / 2))  # half-integers: exact


def kendall(X: np.ndarray) -> np.ndarray:
    r"""Kendall's tau-b of the columns, none of them constant.

    With :math:`g_{jk} = \sum_{a<b} \mathrm{sign}(x_{aj} - x_{bj})\,\mathrm{sign}(x_{ak} - x_{bk})` it is
    :math:`\tau_{jk} = g_{jk} / \sqrt{g_{jj} g_{kk}}`: the diagonal counts the pairs that are not tied.
    """
    return _kendall_by_signs(X) if len(X) <= SIGNS_UP_TO else _kendall_by_pairs(X)


def _kendall_by_signs(X):
    # Differences of ranks are exact; those of X can overflow or vanish.
    ranks = rankdata(X, axis=0).astype(np.float32)
    g = np.zeros((X.shape[1], X.shape[1]))
    for a in range(len(X) - 1):
        signs = np.sign(ranks[a + 1 :] - ranks[a])
        g += signs.T @ signs
    return _normalized(g)


def _kendall_by_pairs(X):
    p = X.shape[1]
    ranks = np.asfortranarray(rankdata(X, axis=0))
    tau = np.eye(p)
    for j in range(p):
        for k in range(j):
            # The method concerns the p-value, which is not used; the exact one would take longer.
            pair = kendalltau(ranks[:, j], ranks[:, k], method="asymptotic")
            tau[j, k] = tau[k, j] = pair.statistic
    return tau


def nearest_correlation(R: np.ndarray) -> np.ndarray:
    r"""R itself if it is positive semidefinite (up to rounding), else the correlations of its positive part.

    The positive part :math:`R_+ = \sum_i \max(\lambda_i, 0) u_i u_i'` is the nearest positive semidefinite
    matrix. Its diagonal is at least that of R, which is one, and dividing by it gives a correlation matrix
    again. This takes one eigendecomposition. It is not the exact projection (Higham 2002 alternates between
    the two sets), but close to it if R is nearly semidefinite.

    References
    ----------
    Higham (2002). Computing the nearest correlation matrix: a problem from finance. IMA Journal of Numerical
    Analysis 22(3), 329-343.
    """
    values, vectors = np.linalg.eigh(R)
    if values[0] >= -len(R) * np.finfo(float).eps * values[-1]:
        return R
    positive = (vectors * np.maximum(values, 0.0)) @ vectors.T
    return _normalized((positive + positive.T) / 2.0)


# -- normal scores ------------------------------------------------------------------------------------------


class Nonparanormal(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):
    r"""Transform columns to Gaussian by their ranks: normal scores with mean 0 and variance 1.

    With :math:`\hat F` the empirical distribution function of a column, rank / n with average ranks for ties,

    .. math:: z = \frac{\Phi^{-1}(\tilde F(x)) - m}{s}, \qquad
              \tilde F = \min(\max(\hat F, \delta_n), 1 - \delta_n), \qquad
              \delta_n = \frac{1}{4 n^{1/4} \sqrt{\pi \log n}},

    where m and s are the mean and the standard deviation over the training samples. Liu, Lafferty and
    Wasserman (2009) give the scores the mean and standard deviation of the column. Here they have unit
    variance: the scale of a column carries no information once an unknown function is applied to it, and the
    covariance of the scores is a correlation matrix.

    New values are placed by linear interpolation of the distribution function. Values outside the range of
    the training samples get the score of the nearest sample.

    Attributes
    ----------
    knots_, levels_ : list of ndarray
        For each column its distinct values in ascending order, and :math:`\tilde F` at these.
    mean_, scale_ : ndarray of shape (n_features,)
        The m and s of the formula.
    n_features_in_ : int
    """

    def fit(self, X: ArrayLike, y: Any = None) -> Nonparanormal:
        """Learn the distribution functions of the columns; ``y`` is ignored."""
        X = validate_data(self, X, dtype=np.float64, ensure_min_samples=2)
        constant = constant_columns(X)
        if constant.size:
            raise ValueError(f"X must have no constant columns; got constant {constant.tolist()}")
        n = len(X)
        delta = 1.0 / (4.0 * n**0.25 * np.sqrt(np.pi * np.log(n)))
        levels = np.clip(rankdata(X, axis=0) / n, delta, 1.0 - delta)
        scores = ndtri(levels)
        self.mean_, self.scale_ = scores.mean(axis=0), scores.std(axis=0)
        self.knots_, self.levels_ = [], []
        for column, level in zip(X.T, levels.T, strict=True):
            knots, first = np.unique(column, return_index=True)
            self.knots_.append(knots)
            self.levels_.append(level[first])
        return self

    def transform(self, X: ArrayLike) -> np.ndarray:
        """Normal scores of the rows of X."""
        check_is_fitted(self)
        X = validate_data(self, X, dtype=np.float64, reset=False)
        scores = np.empty(X.shape)
        for j, (knots, levels) in enumerate(zip(self.knots_, self.levels_, strict=True)):
            scores[:, j] = ndtri(np.interp(X[:, j], knots, levels))
        return (scores - self.mean_) / self.scale_


# -- constant columns and copies ----------------------------------------------------------------------------


def constant_columns(X: np.ndarray) -> np.ndarray:
    """Indices of the columns of X with a single value."""
    X = np.asarray(X)
    return np.flatnonzero(X.max(axis=0) == X.min(axis=0))


def duplicate_columns(S: np.ndarray) -> np.ndarray:
    r"""Pairs i < j of variables with :math:`1 - |\mathrm{correlation}| \le 10` eps, one pair per row.

    S is their covariance matrix; variables without variance are in no pair.
    """
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        deviation = np.sqrt(np.maximum(np.diag(S), 0.0))
        closeness = np.abs(S / deviation[:, None] / deviation)
    close = closeness >= 1.0 - 10.0 * np.finfo(float).eps
    return np.argwhere(np.triu(close, 1) & np.isfinite(closeness))


def _lengths(X):
    """Euclidean lengths of the columns, also where squares would overflow or vanish."""
    largest = np.abs(X).max(axis=0)
    largest[largest == 0.0] = 1.0
    return largest * np.sqrt(np.sum((X / largest) ** 2, axis=0))


def _means(X):
    """Means of the columns; for a constant column exactly its value, so that rounding leaves no residue."""
    means = X.mean(axis=0)
    constant = constant_columns(X)
    means[constant] = X[0, constant]
    return means


def _second_moments(X):
    S = X.T @ X / len(X)
    return (S + S.T) / 2.0


def _normalized(S):
    deviation = np.sqrt(np.diag(S))
    return _unit_diagonal(np.clip(S / np.outer(deviation, deviation), -1.0, 1.0))


def _unit_diagonal(S):
    np.fill_diagonal(S, 1.0)
    return S

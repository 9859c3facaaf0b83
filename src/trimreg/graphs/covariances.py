r"""From data to the matrix S of a graphical model: covariances, rank correlations, normal scores.

A Gaussian copula (or *nonparanormal* model) says that :math:`(f_1(x_1), \dots, f_p(x_p))` is Gaussian for
some increasing functions. Its graph is that of the correlations after the transforms, and these can be had
without the functions, from ranks; or with them, from normal scores (:class:`Nonparanormal`).

References
----------
Liu, Lafferty and Wasserman (2009). The nonparanormal: semiparametric estimation of high dimensional
undirected graphs. Journal of Machine Learning Research 10, 2295-2328.

Liu, Han, Yuan, Lafferty and Wasserman (2012). High-dimensional semiparametric Gaussian copula graphical
models. Annals of Statistics 40(4), 2293-2326.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.special import ndtri
from scipy.stats import kendalltau, rankdata
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from ..estimators.validation import check_choice, check_flag, check_matrix

KINDS = ("pearson", "spearman", "kendall")
TRANSFORMS = (None, "npn")
ECDFS = ("winsorized", "shrunken")

#: Up to so many samples the signs of all pairs are multiplied, n^2 p^2 by BLAS; above, pairs of columns are
#: sorted, p^2 n log n. About where the two take the same time. Ranks are exact in float32 up to here.
SIGNS_UP_TO = 4000


class CovarianceOf(NamedTuple):
    """A covariance and what was taken from the data to make it.

    Attributes
    ----------
    covariance : ndarray of shape (n_features, n_features)
        Of rank correlations and of normal scores: a correlation matrix.
    location : ndarray of shape (n_features,)
        Means of the columns (of their normal scores if these are used); zeros if taken as centred.
    scale : ndarray of shape (n_features,)
        Standard deviations of the columns (or of their normal scores) around that location: the covariance
        in the units of the data is ``scale[:, None] * R * scale`` for a correlation matrix R.
    """

    covariance: np.ndarray
    location: np.ndarray
    scale: np.ndarray


def covariance_of(X, *, kind="pearson", transform=None, assume_centered=False) -> CovarianceOf:
    r"""The empirical covariance of X, or a correlation matrix from ranks, in float64.

    - ``"pearson"``: :math:`S = \frac1n \sum_i (x_i - \bar x)(x_i - \bar x)'`, with n and not n - 1 below, as
      in scikit-learn.
    - ``"spearman"``: :math:`S_{jk} = 2 \sin(\frac{\pi}{6} r_{jk})`, r the correlation of the ranks.
    - ``"kendall"``: :math:`S_{jk} = \sin(\frac{\pi}{2} \tau_{jk})`, :math:`\tau` Kendall's tau-b.

    The last two estimate the correlations of a Gaussian copula (Liu et al. 2012). They need not be positive
    semidefinite; where they are not, see :func:`nearest_correlation`.

    Parameters
    ----------
    X : array-like of shape (n_samples, n_features)
        At least two samples.
    kind : {"pearson", "spearman", "kendall"}
    transform : None or "npn"
        ``"npn"`` replaces the columns by their winsorized normal scores, :class:`Nonparanormal`. It is for
        ``kind="pearson"``; ranks do not change by it.
    assume_centered : bool
        Take the means of the columns to be zero. Ranks and normal scores are centred all the same.

    Returns
    -------
    CovarianceOf

    Examples
    --------
    >>> import numpy as np
    >>> from trimreg.graphs.covariances import covariance_of
    >>> X = np.array([[0.0, 1.0], [1.0, 0.0], [2.0, 3.0], [3.0, 2.0]])
    >>> covariance_of(X).covariance
    array([[1.25, 0.75],
           [0.75, 1.25]])
    >>> covariance_of(X, kind="spearman").covariance.round(3)
    array([[1.   , 0.618],
           [0.618, 1.   ]])
    >>> bool(np.isclose(covariance_of(X, kind="kendall").covariance[0, 1], np.sin(np.pi / 6)))
    True
    """
    check_choice("kind", kind, KINDS)
    check_choice("transform", transform, TRANSFORMS)
    assume_centered = check_flag("assume_centered", assume_centered)
    if transform is not None and kind != "pearson":
        raise ValueError(
            f"transform={transform!r} is for kind='pearson'; ranks do not change by it; got {kind!r}"
        )
    X = _data(X)
    if transform == "npn":
        X = nonparanormal(X)
    location = np.zeros(X.shape[1]) if assume_centered else _means(X)
    scale = _lengths(X - location) / np.sqrt(len(X))
    if kind == "pearson":
        return CovarianceOf(_covariance(X - location), location, scale)
    _refuse_constant(X, f"kind={kind!r}")
    R = from_spearman(spearman(X)) if kind == "spearman" else from_kendall(kendall(X))
    return CovarianceOf(nearest_correlation(R), location, scale)


def _covariance(centered):
    with np.errstate(over="ignore", invalid="ignore"):
        S = _second_moments(centered)
    if not np.isfinite(S).all():
        raise ValueError("X is too large: its covariance overflows; scale the columns")
    return S


# -- ranks --------------------------------------------------------------------------------------------------


def spearman(X) -> np.ndarray:
    """Spearman's rank correlations of the columns, none of them constant; ties get average ranks.

    Examples
    --------
    >>> import numpy as np
    >>> from trimreg.graphs.covariances import spearman
    >>> spearman(np.array([[1.0, 1.0], [2.0, 8.0], [3.0, 4.0]]))
    array([[1. , 0.5],
           [0.5, 1. ]])
    """
    ranks = rankdata(X, axis=0)
    return _normalized(_second_moments(ranks - (len(ranks) + 1) / 2))  # half-integers: exact


def kendall(X) -> np.ndarray:
    r"""Kendall's tau-b of the columns, none of them constant.

    With :math:`g_{jk} = \sum_{a<b} \mathrm{sign}(x_{aj} - x_{bj})\,\mathrm{sign}(x_{ak} - x_{bk})` it is
    :math:`\tau_{jk} = g_{jk} / \sqrt{g_{jj} g_{kk}}`: the diagonal counts the pairs that are not tied.

    Examples
    --------
    >>> import numpy as np
    >>> from trimreg.graphs.covariances import kendall
    >>> kendall(np.array([[1.0, 1.0], [2.0, 8.0], [3.0, 4.0]])).round(4)
    array([[1.    , 0.3333],
           [0.3333, 1.    ]])
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
            # "asymptotic" is of the p-value, which is not used: the exact one would take longer.
            pair = kendalltau(ranks[:, j], ranks[:, k], method="asymptotic")
            tau[j, k] = tau[k, j] = pair.statistic
    return tau


def from_spearman(r) -> np.ndarray:
    r"""The Gaussian correlations that belong to Spearman's: :math:`2 \sin(\frac{\pi}{6} r)`.

    Examples
    --------
    >>> from trimreg.graphs.covariances import from_spearman
    >>> from_spearman([[1.0, 0.0], [0.0, 1.0]])
    array([[1., 0.],
           [0., 1.]])
    """
    return _unit_diagonal(2.0 * np.sin(np.pi / 6.0 * np.asarray(r)))


def from_kendall(tau) -> np.ndarray:
    r"""The Gaussian correlations that belong to Kendall's: :math:`\sin(\frac{\pi}{2} \tau)`.

    Examples
    --------
    >>> from trimreg.graphs.covariances import from_kendall
    >>> from_kendall([[1.0, 0.0], [0.0, 1.0]])
    array([[1., 0.],
           [0., 1.]])
    """
    return _unit_diagonal(np.sin(np.pi / 2.0 * np.asarray(tau)))


def nearest_correlation(R) -> np.ndarray:
    r"""R itself if it is positive semidefinite (up to rounding), else the correlations of its positive part.

    The positive part :math:`R_+ = \sum_i \max(\lambda_i, 0) u_i u_i'` is the nearest positive semidefinite
    matrix. Its diagonal is at least that of R, one, and dividing by it gives a correlation matrix again. One
    eigendecomposition; not the exact projection (which alternates between the two sets, Higham 2002), but
    near it where R is off by little.

    References
    ----------
    Higham (2002). Computing the nearest correlation matrix: a problem from finance. IMA Journal of Numerical
    Analysis 22(3), 329-343.

    Examples
    --------
    >>> import numpy as np
    >>> from trimreg.graphs.covariances import nearest_correlation
    >>> R = np.array([[1.0, 0.9, -0.9], [0.9, 1.0, 0.9], [-0.9, 0.9, 1.0]])
    >>> nearest_correlation(R).round(3)
    array([[ 1. ,  0.5, -0.5],
           [ 0.5,  1. ,  0.5],
           [-0.5,  0.5,  1. ]])
    """
    values, vectors = np.linalg.eigh(R)
    if values[0] >= -len(R) * np.finfo(float).eps * values[-1]:
        return R
    positive = (vectors * np.maximum(values, 0.0)) @ vectors.T
    return _normalized((positive + positive.T) / 2.0)


# -- normal scores ------------------------------------------------------------------------------------------


def winsorizing_level(n: int) -> float:
    r""":math:`\delta_n = 1 / (4 n^{1/4} \sqrt{\pi \log n})`, of Liu, Lafferty and Wasserman (2009).

    Examples
    --------
    >>> from trimreg.graphs.covariances import winsorizing_level
    >>> round(winsorizing_level(100), 4)
    0.0208
    """
    return float(1.0 / (4.0 * n**0.25 * np.sqrt(np.pi * np.log(n))))


def nonparanormal(X, *, ecdf="winsorized") -> np.ndarray:
    """The normal scores of the columns of X; see :class:`Nonparanormal`.

    Examples
    --------
    >>> import numpy as np
    >>> from trimreg.graphs.covariances import nonparanormal
    >>> X = np.array([[1.0], [10.0], [100.0]])
    >>> nonparanormal(X, ecdf="shrunken").round(3).ravel().tolist()
    [-1.225, 0.0, 1.225]
    """
    return Nonparanormal(ecdf=ecdf).fit_transform(X)


class Nonparanormal(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):
    r"""Columns made Gaussian by their ranks: normal scores of mean 0 and variance 1.

    With :math:`\hat F` the empirical distribution function of a column, ties by average ranks,

    .. math:: z = \frac{\Phi^{-1}(\tilde F(x)) - m}{s}, \qquad
              \tilde F = \min(\max(\hat F, \delta_n), 1 - \delta_n),

    where m and s are the mean and the standard deviation over the samples that were fitted. Liu, Lafferty and
    Wasserman (2009) give the scores the mean and deviation of the column. Here they are of unit variance,
    since the scale of a column says nothing once an unknown function of it is taken: the covariance of the
    scores is a correlation matrix.

    New values are placed by linear interpolation of the distribution function, and those beyond the samples
    get the score of the nearest.

    Parameters
    ----------
    ecdf : {"winsorized", "shrunken"}
        ``"winsorized"``: :math:`\hat F` is rank / n, cut at :func:`winsorizing_level`. ``"shrunken"``: it is
        rank / (n + 1), not cut.

    Attributes
    ----------
    knots_, levels_ : list of ndarray
        For each column its different values in ascending order, and :math:`\tilde F` at them.
    mean_, scale_ : ndarray of shape (n_features,)
        The m and s of the formula.
    n_features_in_ : int

    Examples
    --------
    >>> import numpy as np
    >>> from trimreg.graphs.covariances import Nonparanormal
    >>> X = np.random.default_rng(0).exponential(size=(200, 2))
    >>> Z = Nonparanormal().fit(X).transform(X)
    >>> bool(np.allclose(Z.mean(axis=0), 0.0)), bool(np.allclose(Z.var(axis=0), 1.0))
    (True, True)
    """

    def __init__(self, ecdf="winsorized"):
        self.ecdf = ecdf

    def fit(self, X, y=None):
        """Learn the distribution functions of the columns; ``y`` is not used."""
        check_choice("ecdf", self.ecdf, ECDFS)
        X = validate_data(self, X, dtype=np.float64, ensure_min_samples=2)
        _refuse_constant(X, "a nonparanormal transform")
        levels = _levels(X, self.ecdf)
        scores = ndtri(levels)
        self.mean_, self.scale_ = scores.mean(axis=0), scores.std(axis=0)
        self.knots_, self.levels_ = [], []
        for column, level in zip(X.T, levels.T, strict=True):
            knots, first = np.unique(column, return_index=True)
            self.knots_.append(knots)
            self.levels_.append(level[first])
        return self

    def transform(self, X):
        """Normal scores of the rows of X."""
        check_is_fitted(self)
        X = validate_data(self, X, dtype=np.float64, reset=False)
        scores = np.empty(X.shape)
        for j, (knots, levels) in enumerate(zip(self.knots_, self.levels_, strict=True)):
            scores[:, j] = ndtri(np.interp(X[:, j], knots, levels))
        return (scores - self.mean_) / self.scale_


def _levels(X, ecdf):
    """Values of the distribution functions at the samples, within (0, 1)."""
    n = len(X)
    if ecdf == "shrunken":
        return rankdata(X, axis=0) / (n + 1)
    cut = winsorizing_level(n)
    return np.clip(rankdata(X, axis=0) / n, cut, 1.0 - cut)


# -- columns that carry nothing -----------------------------------------------------------------------------


def constant_columns(X) -> np.ndarray:
    """Indices of the columns of X with a single value.

    Examples
    --------
    >>> import numpy as np
    >>> from trimreg.graphs.covariances import constant_columns
    >>> constant_columns(np.array([[0.1, 1.0], [0.1, 2.0]]))
    array([0])
    """
    X = np.asarray(X)
    return np.flatnonzero(X.max(axis=0) == X.min(axis=0))


def duplicate_columns(X, *, precomputed=False) -> np.ndarray:
    r"""Pairs i < j of columns with :math:`1 - |\mathrm{correlation}| \le 10` eps, each a row.

    For unit vectors :math:`1 - |u'v| = \|u \mp v\|^2 / 2`, and the right side is free of cancellation: it
    decides where the product says that a pair is close. Columns without variance are in no pair.

    Parameters
    ----------
    X : ndarray
        Data, or a covariance if ``precomputed``.
    precomputed : bool

    Examples
    --------
    >>> import numpy as np
    >>> from trimreg.graphs.covariances import duplicate_columns
    >>> x = np.array([1.0, 2.0, 4.0])
    >>> duplicate_columns(np.column_stack([x, x**2, 3.0 - 2.0 * x]))
    array([[0, 2]])
    """
    X = np.asarray(X, dtype=float)
    eps = np.finfo(float).eps
    if precomputed:
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            deviation = np.sqrt(np.maximum(np.diag(X), 0.0))
            closeness = np.abs(X / deviation[:, None] / deviation)
        return np.argwhere(np.triu(closeness >= 1.0 - 10.0 * eps, 1) & np.isfinite(closeness))
    unit = _unit_columns(X)
    product = unit.T @ unit
    close = np.argwhere(np.triu(np.abs(product) > 1.0 - 1e-8, 1))
    same = [np.sum((unit[:, i] - np.sign(product[i, j]) * unit[:, j]) ** 2) <= 20.0 * eps for i, j in close]
    return close[np.array(same, dtype=bool)]


def _unit_columns(X):
    """Centred columns of length one; of length zero if constant."""
    X = X - _means(X)
    length = _lengths(X)
    return X / np.where(length > 0.0, length, 1.0)


def _lengths(X):
    """Euclidean lengths of the columns, also where squares would overflow or vanish."""
    largest = np.abs(X).max(axis=0)
    largest[largest == 0.0] = 1.0
    return largest * np.sqrt(np.sum((X / largest) ** 2, axis=0))


# -- small parts --------------------------------------------------------------------------------------------


def _data(X):
    if sp.issparse(X):
        raise ValueError("X must be dense; pass X.toarray()")
    X = np.asarray(check_matrix(X), dtype=float)
    if len(X) < 2:
        raise ValueError("X must have at least two samples (rows); got n_samples = 1")
    return X


def _refuse_constant(X, what):
    constant = constant_columns(X)
    if constant.size:
        raise ValueError(f"X must have no constant columns with {what}; constant are {constant.tolist()}")


def _means(X):
    """Means of the columns; of a constant column its value, so that nothing is left of it by rounding."""
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

"""Information criteria: the deviance of a model plus a price for every coefficient in it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import gammaln

from ..estimators import validation as check

#: Criteria by name, for linear models and graphs; a criterion added here is available to both. Each is a
#: function of the deviance D, the degrees of freedom k, and by name ``n`` samples, ``p`` features or
#: variables, the logarithm ``log_models`` of the number of models of the same size, and ``gamma`` of EBIC.
FORMULAS: dict[str, Callable[..., Any]] = {
    "aic": lambda D, k, **_: D + 2.0 * k,
    "bic": lambda D, k, *, n, **_: D + k * np.log(n),
    "ebic": lambda D, k, *, n, log_models, gamma, **_: D + (k * np.log(n) + 2.0 * gamma * log_models),
    "gic": lambda D, k, *, n, p, **_: D + k * (max(np.log(max(np.log(n), 1)), 1) * max(np.log(p), 1)),
}
CRITERIA = tuple(FORMULAS)


def criterion_value(
    name: str, deviance: ArrayLike, df: ArrayLike, n: float, p: int, *, ebic_gamma: float = 1.0,
    n_selected: ArrayLike | None = None,
) -> Any:  # fmt: skip
    r"""The value of an information criterion; smaller is better.

    With :math:`D` the deviance, :math:`k` the degrees of freedom, and :math:`s` features selected among
    :math:`p`,

    .. math::
        \mathrm{AIC} = D + 2k, \quad
        \mathrm{BIC} = D + k \log n, \quad
        \mathrm{EBIC} = D + k \log n + 2 \gamma \log \binom{p}{s}, \quad
        \mathrm{GIC} = D + k \log(\log n) \log p.

    Parameters
    ----------
    name : {"aic", "bic", "ebic", "gic"}
    deviance : float or ndarray
        -2 log-likelihood, up to a constant that all models share. See :func:`gaussian_deviance`. NaN gives
        NaN.
    df : float or ndarray
        k, the number of nonzero coefficients including the intercept (for groups: of all their coefficients).
        With a ridge term it is smaller, see :func:`effective_df`.
    n : float
        Number of samples.
    p : int
        Number of features (or groups) that the model was selected from.
    ebic_gamma : float, default=1.0
        0 gives BIC; 1 is consistent when p grows as any power of n.
    n_selected : int or ndarray of int, optional
        s, how many of the p are in the model. None is ``df - 1``, all but the intercept. It has to be given
        with groups, several targets, a ridge term or no intercept.

    Returns
    -------
    float or ndarray
        Of the shape that ``deviance``, ``df`` and ``n_selected`` broadcast to. A model with ``df >= n``
        interpolates the data. Its deviance says nothing, and its value is ``inf``.

    Notes
    -----
    The theory of GIC is about large n and p. For n < 16 and p < 3 its factors :math:`\log \log n` and
    :math:`\log p` fall below 1 and then below 0, which would make coefficients free or even reward them. So
    each factor is at least 1 here.

    References
    ----------
    Akaike, A new look at the statistical model identification, IEEE Transactions on Automatic Control 19
    (1974). Schwarz, Estimating the dimension of a model, Annals of Statistics 6 (1978). Chen and Chen,
    Extended Bayesian information criteria for model selection with large model spaces, Biometrika 95 (2008).
    Fan and Tang, Tuning parameter selection in high dimensional penalized likelihood, Journal of the Royal
    Statistical Society B 75 (2013).

    Examples
    --------
    >>> import numpy as np
    >>> from trimreg.selection import criterion_value
    >>> deviance, df = np.array([230.0, 180.0, 177.0]), np.array([1, 2, 3])
    >>> [int(criterion_value(name, deviance, df, n=100, p=50).argmin()) for name in ("aic", "ebic")]
    [2, 1]
    """
    check.check_choice("criterion", name, CRITERIA)
    check.check_number("n", n, 0, strict=True)
    check.check_number("p", p, 1, integral=True)
    check.check_number("ebic_gamma", ebic_gamma, 0.0)
    deviance = _numbers("deviance", deviance)
    df = _nonnegative("df", df)
    selected = _counts("n_selected", np.maximum(df - 1, 0) if n_selected is None else n_selected)
    if (selected > p).any():
        raise ValueError(f"n_selected must be at most p = {p}; got {selected.max():g}")
    log_models = log_binomial(p, selected)
    value = FORMULAS[name](deviance, df, n=float(n), p=p, log_models=log_models, gamma=ebic_gamma)
    value = np.where(df >= n, np.inf, value)
    return value if value.ndim else float(value)


def log_binomial(p, k):
    r""":math:`\log \binom{p}{k}`."""
    return gammaln(p + 1.0) - gammaln(k + 1.0) - gammaln(p - k + 1.0)


def effective_df(hessian: np.ndarray, ridge: np.ndarray) -> float:
    r"""The effective degrees of freedom of coefficients with a ridge term,

    .. math:: \mathrm{tr}\bigl(H (H + R)^{-1}\bigr).

    Without a ridge it is the rank of H: the number of coefficients, if none is redundant. For least squares
    it is the trace of the matrix that maps y to its fit (Hastie, Tibshirani and Friedman, The elements of
    statistical learning, 2nd edition, section 3.4.1).

    Parameters
    ----------
    hessian : ndarray of shape (k, k)
        H, the second derivatives of the loss in the nonzero coefficients and the intercept.
    ridge : ndarray of shape (k,)
        The diagonal of R: the coefficient of :math:`\theta_j^2 / 2` in the objective, 0 for an intercept.

    Examples
    --------
    >>> import numpy as np
    >>> from trimreg.selection.criteria import effective_df
    >>> effective_df(np.diag([1.0, 1.0, 3.0]), np.array([0.0, 1.0, 1.0]))
    2.25
    """
    if hessian.size == 0:
        return 0.0
    # A pseudoinverse: a redundant direction without a ridge, as in multinomial models, counts nothing.
    return float(np.sum(np.linalg.pinv(hessian + np.diag(ridge), hermitian=True) * hessian))


def gaussian_deviance(mean_squared_error: ArrayLike, n: float) -> Any:
    r"""-2 log-likelihood of a linear model at the variance that fits best,

    .. math:: n \log(2 \pi s^2) + n, \qquad s^2 = \frac{1}{n} \|y - X\theta - b\|^2.

    A perfect fit gives ``-inf``.

    Parameters
    ----------
    mean_squared_error : float or ndarray
        :math:`s^2`.
    n : float
        Number of samples.

    Returns
    -------
    float or ndarray

    Examples
    --------
    >>> from trimreg.selection import gaussian_deviance
    >>> round(gaussian_deviance(0.25, n=100), 3)
    145.158
    """
    check.check_number("n", n, 0, strict=True)
    mse = _numbers("mean_squared_error", mean_squared_error)
    if (mse < 0).any():
        raise ValueError(f"mean_squared_error must be >= 0; got {np.nanmin(mse):g}")
    with np.errstate(divide="ignore"):
        value = n * (np.log(2.0 * np.pi) + np.log(mse) + 1.0)
    return value if value.ndim else float(value)


def _numbers(name, value):
    return np.asarray(check.check_real(name, value), dtype=float)


def _nonnegative(name, value, kind="finite numbers"):
    numbers = _numbers(name, value)
    bad = ~((numbers >= 0) & np.isfinite(numbers))
    if bad.any():
        raise ValueError(f"{name} must be {kind} >= 0; got {numbers[bad].flat[0]:g}")
    return numbers


def _counts(name, value):
    """Nonnegative integers."""
    counts = _nonnegative(name, value, "integers")
    bad = counts != np.floor(counts)
    if bad.any():
        raise ValueError(f"{name} must be integers >= 0; got {counts[bad].flat[0]:g}")
    return counts

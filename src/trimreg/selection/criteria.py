"""Information criteria: how well a model fits, plus a price for every coefficient in it."""

from __future__ import annotations

import numpy as np
from scipy.special import gammaln

from ..estimators import validation as check

CRITERIA = ("aic", "bic", "ebic", "gic")


def criterion_value(name, deviance, df, n, p, *, ebic_gamma=1.0, n_selected=None):
    r"""The value of an information criterion; smaller is better.

    With :math:`D` the deviance, :math:`k` the coefficients in the model, of them s chosen among p,

    .. math::
        \mathrm{AIC} = D + 2k, \quad
        \mathrm{BIC} = D + k \log n, \quad
        \mathrm{EBIC} = D + k \log n + 2 \gamma \log \binom{p}{s}, \quad
        \mathrm{GIC} = D + k \log(\log n) \log p.

    Parameters
    ----------
    name : {"aic", "bic", "ebic", "gic"}
    deviance : float or ndarray
        -2 log-likelihood; constants that all models share may be left out. See :func:`gaussian_deviance`.
        NaN gives NaN.
    df : int or ndarray of int
        k, the number of nonzero coefficients and the intercept (of groups: their coefficients).
    n : float
        Number of samples.
    p : int
        Number of features (of groups: their number) that the model was chosen from.
    ebic_gamma : float, default=1.0
        0 is BIC; 1 is consistent for p of any power of n.
    n_selected : int or ndarray of int, optional
        s, how many of the p are in the model. None is ``df - 1``, what is left without the intercept. To be
        given where that is not so: with groups, several targets or no intercept.

    Returns
    -------
    float or ndarray
        Of the shape that ``deviance``, ``df`` and ``n_selected`` broadcast to. A model with ``df >= n``
        interpolates the data, its deviance says nothing, and its value is ``inf``.

    Notes
    -----
    GIC's theory is about large n and p. Below n = 16 and p = 3 its factors :math:`\log \log n` and
    :math:`\log p` fall under 1 and soon under 0, where coefficients would be free or even rewarded; so each
    factor is at least 1 here.

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
    df = _counts("df", df)
    selected = np.maximum(df - 1, 0) if n_selected is None else _counts("n_selected", n_selected)
    if (selected > p).any():
        raise ValueError(f"n_selected must be at most p = {p}; got {selected.max():g}")
    price = df * _price(name, float(n), p)
    if name == "ebic":
        price = price + 2.0 * ebic_gamma * log_binomial(p, selected)
    value = np.where(df >= n, np.inf, deviance + price)
    return value if value.ndim else float(value)


def _price(name, n, p):
    """What one coefficient costs."""
    if name == "aic":
        return 2.0
    if name == "gic":
        return max(np.log(max(np.log(n), 1.0)), 1.0) * max(np.log(p), 1.0)
    return np.log(n)


def log_binomial(p, k):
    r""":math:`\log \binom{p}{k}`, exact up to rounding for any size.

    Examples
    --------
    >>> from trimreg.selection.criteria import log_binomial
    >>> round(float(log_binomial(5, 2)), 6)  # log 10
    2.302585
    """
    return gammaln(p + 1.0) - gammaln(k + 1.0) - gammaln(p - k + 1.0)


def gaussian_deviance(mean_squared_error, n):
    r"""-2 log-likelihood of a linear model at the variance that fits best,

    .. math:: n \log(2 \pi s^2) + n, \qquad s^2 = \frac{1}{n} \|y - X\theta - b\|^2.

    A perfect fit has ``-inf``.

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


def _counts(name, value):
    """Whole numbers that are not negative."""
    counts = _numbers(name, value)
    bad = ~((counts >= 0) & (counts == np.floor(counts)) & np.isfinite(counts))
    if bad.any():
        raise ValueError(f"{name} must be whole numbers >= 0; got {counts[bad].flat[0]:g}")
    return counts

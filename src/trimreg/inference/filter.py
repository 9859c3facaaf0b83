"""Knockoffs: features whose importance beats that of an imitation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from ..designs import as_design
from ..estimators import validation as check
from ..estimators.summary import Summary
from ..losses import Loss
from ..selection import MEstimatorCV, auto_hs, trimmed_path
from .base import Selector, check_share, dense, selected
from .pvalues import e_bh
from .refits import fit_columns
from .sampler import GaussianKnockoffs


def entry_difference(Z: np.ndarray, y: np.ndarray, loss: Loss, seed: int) -> np.ndarray:
    r"""Signed maxima of how early features and knockoffs enter a path of best subsets.

    With :math:`e_j` the smallest h at which column j is in the best subset of size h (H + 1 if in none),
    :math:`W_j = \max(H + 1 - e_j, H + 1 - \tilde e_j)\, \mathrm{sign}(\tilde e_j - e_j)`. The path ends at
    the size H of :func:`trimreg.selection.auto_hs`, or at p if there are many samples.
    """
    n, p = Z.shape[0], Z.shape[1] // 2
    most = p if n > 10 * p else auto_hs(n, p)[-1]
    path = trimmed_path(
        Z, y, hs=range(1, most + 1), alphas=["exact"], loss=loss, effort="low", fit_intercept=True,
        standardize=True, random_state=int(seed), l2=0.0 if loss.constant_curvature else 1e-4,
    )  # fmt: skip
    inside = path.coefs[:, 0] != 0
    early = np.where(inside.any(axis=0), most - inside.argmax(axis=0), 0)
    return np.maximum(early[:p], early[p:]) * np.sign(early[:p] - early[p:]).astype(float)


def swap_difference(Z: np.ndarray, y: np.ndarray, loss: Loss, seed: int) -> np.ndarray:
    r"""How much better a sparse model is with a feature than with its knockoff in the feature's place.

    Let S be the best subset of a size chosen by AIC, among features and knockoffs. Column j lowers the
    quadratic model of the loss at S (exact for least squares) beside :math:`A = S \setminus \{j, \tilde j\}`
    by :math:`\Delta_j = c_j^2 / (2 s_j)`, with :math:`c_j` the gradient and :math:`s_j` the curvature in j
    that A leaves. :math:`W_j = \Delta_j - \tilde\Delta_j` is the exact score of the exchange of a feature and
    its knockoff (:mod:`trimreg.diagnostics.swap`).
    """
    n, columns = Z.shape
    d, p = np.full(n, 1.0 / n), columns // 2
    S, _ = selected(None, Z, y, y, loss, seed, criterion="aic")
    model = np.column_stack([Z, np.ones(n)]) if loss.sees_constants else Z
    fit = fit_columns(Z, y, loss, S)
    theta = np.zeros(model.shape[1])
    theta[S] = fit.coef
    if loss.sees_constants:
        theta[-1] = fit.intercept
    bound, eta = loss.bound(y, d), model @ theta
    H = bound.gram(as_design(model, d), np.arange(theta.size), eta, y, d)
    b = H @ theta - model.T @ bound.gradient(eta, y, d)
    always = np.arange(columns, theta.size)
    gains = _gains(H, b, np.concatenate([S, always]), np.arange(columns))
    for j in np.unique(S % p):
        pair = np.array([j, j + p])
        gains[pair] = _gains(H, b, np.concatenate([np.setdiff1d(S, pair), always]), pair)
    return gains[:p] - gains[p:]


def _gains(H, b, A, columns):
    """How much each column lowers ``theta'H theta / 2 - b'theta`` beside the columns A."""
    solved = np.linalg.solve(H[np.ix_(A, A)], np.column_stack([H[np.ix_(A, columns)], b[A]]))
    c = b[columns] - H[np.ix_(columns, A)] @ solved[:, -1]
    s = H[columns, columns] - np.einsum("ij,ji->i", H[np.ix_(columns, A)], solved[:, :-1])
    return np.where(s > 1e-10 * H[columns, columns], c**2 / (2 * np.maximum(s, 1e-300)), 0.0)


def lasso_difference(Z: np.ndarray, y: np.ndarray, loss: Loss, seed: int) -> np.ndarray:
    r""":math:`|\theta_j| - |\tilde\theta_j|` of a lasso whose penalty is chosen by cross-validation."""
    model = MEstimatorCV(loss=loss, hs=[0], alphas="auto", l2s=0.0, random_state=int(seed)).fit(Z, y)
    size = np.abs(model.coef_) * model.feature_deviation_
    return size[: size.size // 2] - size[size.size // 2 :]


#: W by name, from the matrix [X, knockoffs], y and the loss.
STATISTICS: dict[str, Callable] = {
    "swap": swap_difference,
    "entry": entry_difference,
    "lasso": lasso_difference,
}


def knockoff_threshold(W: ArrayLike, q: float) -> float:
    r"""The smallest t > 0 at which the estimated share of mistakes is at most q, or inf,

    .. math:: \frac{1 + \#\{j : W_j \le -t\}}{\#\{j : W_j \ge t\}} \le q.

    It keeps at least 1 / q features, or none (Barber and Candès, Controlling the false discovery rate via
    knockoffs, Annals of Statistics 43, 2015: "knockoff+").
    """
    W = np.asarray(W, dtype=float)
    for t in np.unique(np.abs(W[W != 0])):
        mistakes, kept = 1 + np.count_nonzero(W <= -t), np.count_nonzero(W >= t)  # noqa: SIM300
        if mistakes <= q * kept * (1 + 1e-12):
            return float(t)
    return float("inf")


def knockoff_evalues(W: np.ndarray, q: float) -> np.ndarray:
    r""":math:`p\, 1\{W_j \ge T\} / (1 + \#\{k : W_k \le -T\})` with T of :func:`knockoff_threshold`."""
    T = knockoff_threshold(W, q)
    return W.size * (W >= T) / (1.0 + np.count_nonzero(W <= -T))


class Knockoffs(Selector):
    r"""Keep features with a bounded false discovery rate, by comparing each with its knockoff.

    A knockoff :math:`\tilde X_j` is random, does not see y, and has the same covariances with all others as
    :math:`X_j`. A statistic :math:`W_j` is large if :math:`X_j` matters more than :math:`\tilde X_j`. If
    feature j has no effect given all others, :math:`W_j` is as likely to be negative as positive, so negative
    values estimate the number of mistakes among positive ones.

    With one draw of the knockoffs, features with :math:`W_j \ge T` are kept. The result depends on the draw.
    With several draws (derandomized), each gives e-values at the level q/2, and those are averaged; this is
    stable, but has less power unless there are many signals (at least 2 / q).

    Parameters
    ----------
    loss : {"quadratic", "logistic", "poisson", "gamma", "cox"} or such a loss object, default="quadratic"
    statistic : {"swap", "entry", "lasso"} or callable, default="swap"
        ``"swap"``: the exact difference that the exchange of a feature and its knockoff makes in a best
        subset. ``"entry"``: the model size at which each enters. ``"lasso"``: the difference of coefficients.
        A callable takes ``(Z, y, loss, seed)``, Z = [X, knockoffs], and returns W.
    q : float in (0, 1), default=0.1
        The false discovery rate. One draw keeps at least 1 / q features, or none.
    sampler : callable, optional
        ``sampler(X, rng)`` returns knockoffs of X, drawn with the generator. None is
        :class:`GaussianKnockoffs` with an estimated covariance, right if rows are roughly Gaussian.
    n_draws : int, default=1
    n_jobs : int, optional
        Number of draws at the same time, by joblib. The result does not depend on it.
    verbose : int, default=0
        1 shows progress on standard error.
    random_state : int, Generator or RandomState, default=0

    Attributes
    ----------
    support_ : ndarray of bool of shape (n_features,)
        The features kept.
    statistics_ : ndarray of shape (n_draws, n_features)
        W.
    evalues_ : ndarray of shape (n_features,)
        Their mean over the draws.
    threshold_ : float
        T of a single draw.
    n_features_in_ : int
    feature_names_in_ : ndarray of str
        Only if X had string column names.

    Notes
    -----
    Before a statistic is computed, each feature is exchanged with its knockoff with probability 1/2, and the
    sign of W after it. So a search whose result depends on the order of columns does no harm.

    References
    ----------
    Candès, Fan, Janson and Lv, Panning for gold, JRSS B 80 (2018). Ren and Barber, Derandomised knockoffs:
    leveraging e-values for false discovery rate control, Journal of the Royal Statistical Society B 86
    (2024).

    Examples
    --------
    >>> import numpy as np
    >>> from trimreg.inference import Knockoffs
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((200, 30))
    >>> y = X[:, :12].sum(axis=1) + rng.standard_normal(200)
    >>> Knockoffs(q=0.1).fit(X, y).get_support(indices=True)
    array([ 0,  1,  2,  3,  4,  5,  6,  7,  8,  9, 10, 11])
    """

    def __init__(
        self, loss: Any = "quadratic", statistic: Any = "swap", q: float = 0.1, sampler: Any = None,
        n_draws: int = 1, n_jobs: int | None = None, verbose: int = 0, random_state: Any = 0,
    ) -> None:  # fmt: skip
        self._store(locals())

    def fit(self, X: Any, y: Any) -> Knockoffs:
        """Draw knockoffs and compare.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
            Numbers, two classes, or times and events, as the estimator with that loss takes it.

        Returns
        -------
        self
        """
        check_share("q", self.q)
        check.check_number("n_draws", self.n_draws, 1, integral=True)
        if not callable(self.statistic):
            check.check_choice("statistic", self.statistic, STATISTICS)
        if not (self.sampler is None or callable(self.sampler)):
            raise ValueError(f"sampler must be None or a callable (X, rng); got {self.sampler!r}")
        rng = check.check_random_state(self.random_state)
        statistic = self.statistic if callable(self.statistic) else STATISTICS[self.statistic]
        with check.all_or_nothing(self):
            X, target, loss = self._samples(X, y)
            X = dense(X, slice(None))
            sampler = GaussianKnockoffs(X) if self.sampler is None else self.sampler
            seeds: Any = rng.integers(2**31, size=self.n_draws)
            tasks = [(statistic, sampler, X, target, loss, seed) for seed in seeds]
            self.statistics_ = np.array(self._in_parallel(_one_draw, tasks, "knockoffs"))
            single = self.n_draws == 1
            level = self.q if single else self.q / 2
            self.evalues_ = np.mean([knockoff_evalues(W, level) for W in self.statistics_], axis=0)
            self.threshold_ = knockoff_threshold(self.statistics_[0], self.q) if single else np.nan
            self.support_ = self.statistics_[0] >= self.threshold_ if single else e_bh(self.evalues_, self.q)
        return self

    def summary(self, max_rows: int | None = 50) -> Summary:
        """A table with one row per feature with a positive statistic, the kept ones and the largest first."""
        check_is_fitted(self)
        W = self.statistics_.mean(axis=0)
        order = np.lexsort((-W, -self.evalues_, ~self.support_))
        order = order[(W > 0)[order]]
        facts = {
            "draws": self.n_draws, "features": self.n_features_in_, "false discovery rate": self.q,
            "kept": int(self.support_.sum()), "threshold": None if self.n_draws > 1 else self.threshold_,
        }  # fmt: skip
        columns = {"W": W[order], "e-value": self.evalues_[order], "kept": self.support_[order]}
        return Summary("Knockoffs", facts, self._names[order], columns, max_rows=max_rows)


def _one_draw(statistic, sampler, X, y, loss, seed):
    """W of one draw of the knockoffs."""
    rng = np.random.default_rng(seed)
    knockoffs = np.asarray(sampler(X, rng), dtype=float)
    if knockoffs.shape != X.shape or not np.isfinite(knockoffs).all():
        raise ValueError(f"sampler must return finite numbers of shape {X.shape}; got {knockoffs.shape}")
    swapped = rng.random(X.shape[1]) < 0.5
    Z = np.hstack([np.where(swapped, knockoffs, X), np.where(swapped, X, knockoffs)])
    W = np.asarray(statistic(Z, y, loss, int(rng.integers(2**31))), dtype=float)
    if W.shape != (X.shape[1],) or not np.isfinite(W).all():
        raise ValueError(f"statistic must return {X.shape[1]} finite numbers; got shape {W.shape}")
    return np.where(swapped, -W, W)

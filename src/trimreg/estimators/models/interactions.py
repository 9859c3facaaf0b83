"""Least squares with products of features, chosen under a rule of heredity."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from ...penalties.trimmed_l1 import count_from
from .. import validation as check
from ..summary import Summary

_DEPENDENT = 1e-9  # a term with less than this left of its square is a combination of those in the model
_IMPROVED = 1e-9  # the part of the variance of y by which an exchange has to lower the loss
HEREDITIES = ("strong", "weak", "none")


class TrimmedInteractions(RegressorMixin, BaseEstimator):
    r"""Least squares on at most h terms: features and products of two features.

    .. math:: \min \frac{1}{2} \sum_i d_i \Bigl( y_i - b - \sum_j \theta_j x_{ij}
              - \sum_{j<k} \gamma_{jk} (x_{ij} - m_j)(x_{ik} - m_k) \Bigr)^2
              \quad \text{with} \quad \|\theta\|_0 + \|\gamma\|_0 \le h,

    where m are the means of the features and d the sample weights divided by their sum. By strong heredity a
    product is in the model only if both of its features are, by weak heredity if at least one is. With
    strong heredity the centering changes no prediction.

    The products are never formed: those of all pairs with a vector r are the entries of :math:`Z'
    \mathrm{diag}(d \circ r) Z`. The model grows by the term, or the product together with the features that
    it lacks, that explains most (per term, and in all). Then terms are taken out, with the products that need
    them, and the model grows again, until no such exchange is better.

    Parameters
    ----------
    h : int, float in (0, 1) or None, default=None
        The largest number of terms, or their fraction. None is a tenth of the features, at least one.
    heredity : {"strong", "weak", "none"}, default="strong"
    effort : {"low", "medium", "high"}, default="medium"
        Whether to exchange no terms, single ones, or pairs too.

    Attributes
    ----------
    coef_ : ndarray of shape (n_features,)
        The coefficients of the features.
    interactions_ : ndarray of int of shape (n_products, 2)
        The pairs of features whose products are in the model.
    interaction_coef_ : ndarray of shape (n_products,)
    center_ : ndarray of shape (n_features,)
        The means m.
    intercept_ : float
    support_ : ndarray of int
        The features with a nonzero coefficient.
    term_names_ : list of str
        Names of the terms, such as ``"age"`` and ``"age*bmi"``: features, then products.
    h_, n_iter_ : int
        The number of terms that were allowed, and the number of exchanges.
    objective_ : float
    n_features_in_ : int
    feature_names_in_ : ndarray of str
        Only if X had string column names.

    References
    ----------
    Bien, Taylor and Tibshirani, A lasso for hierarchical interactions, Annals of Statistics 41, 2013, for the
    two kinds of heredity.

    Examples
    --------
    >>> import numpy as np
    >>> from trimreg import TrimmedInteractions
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((200, 30))
    >>> y = X[:, 3] + X[:, 8] - 2 * X[:, 3] * X[:, 8] + 0.1 * rng.standard_normal(200)
    >>> model = TrimmedInteractions(h=3).fit(X, y)
    >>> model.term_names_, model.interaction_coef_.round(1)
    (['x3', 'x8', 'x3*x8'], array([-2.]))
    """

    def __init__(self, h: int | float | None = None, heredity: str = "strong", effort: str = "medium"):
        self.h, self.heredity, self.effort = h, heredity, effort

    def fit(self, X: Any, y: Any, sample_weight: ArrayLike | None = None):
        """Fit the model.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
        sample_weight : array-like of shape (n_samples,), optional

        Returns
        -------
        self
        """
        check.check_choice("heredity", self.heredity, HEREDITIES)
        check.check_choice("effort", self.effort, ("low", "medium", "high"))
        X, y = validate_data(self, X, y, dtype=float, y_numeric=True, ensure_all_finite=False)
        self._check_finite(X)
        check.check_finite(y, "y")
        n, p = X.shape
        h = count_from(self.h, p + p * (p - 1) // 2 if self.h is not None else p, of="the number of terms")
        d = check.check_sample_weight(sample_weight, n)
        mean = d @ X
        Z = X - mean
        rest = d @ Z  # the rounding of a large mean
        Z, mean = Z - rest, mean + rest
        largest = np.abs(Z).max(axis=0)
        Z /= np.where(largest > 0, largest, 1.0)  # squares of the entries neither over- nor underflow
        part = np.sqrt(d @ Z**2)
        scale = largest * part
        alive = scale > 10 * np.finfo(float).eps * np.abs(mean)
        Z *= np.divide(1.0, part, out=np.zeros(p), where=alive)
        level = d @ y
        terms = _Terms(Z, d, y - level, self.heredity)
        chosen, self.n_iter_ = _search(terms, h, {"low": 0, "medium": 1, "high": 2}[self.effort])
        theta, value = terms.solve(chosen)
        unit = np.where(alive, scale, 1.0)
        self.coef_, pairs, products = np.zeros(p), [], []
        self.intercept_ = level
        for t, one in sorted(zip(chosen, theta, strict=True)):
            j, k = terms.parents(t)
            if k is None:
                self.coef_[j] = one / unit[j]
                continue
            pairs.append((j, k))
            products.append(one / unit[j] / unit[k])
            self.intercept_ -= one * (d @ (Z[:, j] * Z[:, k]))
        self.intercept_ = float(self.intercept_ - mean @ self.coef_)
        self.interactions_ = np.array(pairs, dtype=np.intp).reshape(-1, 2)
        self.interaction_coef_, self.center_ = np.array(products), mean
        self.support_ = np.flatnonzero(self.coef_)
        self.objective_, self.h_ = value, h
        names = list(getattr(self, "feature_names_in_", [f"x{j}" for j in range(p)]))
        self.term_names_ = [str(names[j]) for j in self.support_]
        self.term_names_ += [f"{names[j]}*{names[k]}" for j, k in self.interactions_]
        return self

    def _check_finite(self, X):
        """Refuse NaN and infinity by the name of the column."""
        names = getattr(self, "feature_names_in_", None)
        check.check_finite(X, "X", None if names is None else names.tolist())

    def predict(self, X: Any) -> np.ndarray:
        """Predicted means of the target.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        check_is_fitted(self)
        X = validate_data(self, X, dtype=float, reset=False, ensure_all_finite=False)
        self._check_finite(X)
        j, k = self.interactions_.T
        products = (X[:, j] - self.center_[j]) * (X[:, k] - self.center_[k])
        return X @ self.coef_ + products @ self.interaction_coef_ + self.intercept_

    def summary(self, max_rows: int | None = 50) -> Summary:
        """A table with one row per term.

        Parameters
        ----------
        max_rows : int or None, default=50
            The number of rows shown; None shows all.

        Returns
        -------
        Summary
        """
        check_is_fitted(self)
        facts = {"features": self.n_features_in_, "h": self.h_, "heredity": self.heredity,
                 "objective": self.objective_, "intercept": self.intercept_}  # fmt: skip
        coef = np.append(self.coef_[self.support_], self.interaction_coef_)
        return Summary(type(self).__name__, facts, self.term_names_, {"coef": coef}, max_rows=max_rows)


class _Terms:
    """Inner products of terms. Term j < p is a feature, and term p + j p + k the product of j and k."""

    def __init__(self, Z, d, y, heredity):
        self.Z, self.d, self.y, self.heredity = Z, d, y, heredity
        self.p = p = Z.shape[1]
        self.cross = Z.T @ (d[:, None] * Z)
        squares = Z**2
        self.with_first = squares.T @ (d[:, None] * Z)  # of feature j with the product of j and k
        norms = squares.T @ (d[:, None] * squares) - self.cross**2
        self.norms = np.append(np.diagonal(self.cross), norms)
        self.of_y = self._row(y)
        self.total = float(d @ y**2)
        self.rows: dict[int, np.ndarray] = {}
        self.upper = np.triu(np.ones((p, p), dtype=bool), 1)

    def parents(self, t):
        """The features of a product; of a feature itself and None."""
        return (t, None) if t < self.p else divmod(t - self.p, self.p)

    def row(self, t):
        """The products of term t with all terms."""
        if t not in self.rows:
            j, k = self.parents(t)
            v = self.Z[:, j] if k is None else self.Z[:, j] * self.Z[:, k] - self.cross[j, k]
            self.rows[t] = self._row(v)
        return self.rows[t]

    def _row(self, v):
        weighted = self.d * v
        return np.append(self.Z.T @ weighted, self.Z.T @ (weighted[:, None] * self.Z))

    def solve(self, chosen):
        """The coefficients of these terms, and the loss."""
        if not chosen:
            return np.empty(0), 0.5 * self.total
        G = np.array([self.row(t)[chosen] for t in chosen])
        theta = np.linalg.lstsq((G + G.T) / 2, self.of_y[chosen], rcond=None)[0]
        return theta, 0.5 * max(self.total - float(theta @ self.of_y[chosen]), 0.0)

    def needing(self, t, chosen):
        """Term t and the products of the model that may not stay without it."""
        out = {t}
        if t < self.p and self.heredity != "none":
            for other in chosen:
                pair = self.parents(other)
                alone = self.heredity == "strong" or not any(q in chosen for q in pair if q != t)
                if pair[1] is not None and t in pair and alone:
                    out.add(other)
        return out

    def bundles(self, chosen):
        """What may be added: for sizes 1 to 3 the gains of candidates and a function to their terms."""
        p, inside = self.p, np.zeros(self.p + self.p**2, dtype=bool)
        inside[chosen] = True
        C = np.array([self.row(t) for t in chosen]).reshape(len(chosen), p + p * p)
        num, den, W = self.of_y.copy(), self.norms.copy(), C
        if len(chosen):
            L = np.linalg.cholesky(C[:, chosen])
            W = np.linalg.solve(L, C)
            num -= np.linalg.solve(L, self.of_y[chosen]) @ W
            den -= np.einsum("st,st->t", W, W)
        floor = _DEPENDENT * self.norms
        a, A, fa = num[:p, None], den[:p, None], floor[:p, None]
        b, B, fb = (x[p:].reshape(p, p) for x in (num, den, floor))
        one, out = inside[:p], inside[p:].reshape(p, p)
        allowed = {
            "none": np.ones((p, p), dtype=bool),
            "weak": one[:, None] | one,
            "strong": one[:, None] & one,
        }[self.heredity]
        single = np.append(
            np.where(one, 0.0, _ratio(num[:p], den[:p], floor[:p])),
            np.where(allowed & ~out & self.upper, _ratio(b, B, fb), 0.0),
        )
        yield single, lambda i: [i]
        if self.heredity == "none":
            return
        # Feature j, then the product of j and k, given all that is in the model.
        products = W[:, p:].reshape(len(chosen), p, p)
        r = self.with_first - np.einsum("sj,sjk->jk", W[:, :p], products)
        first = _ratio(a, A, fa)
        b1, B1 = b - _share(r, A, fa) * a, B - _share(r, A, fa) * r
        lacking = ~one[:, None] & ~np.eye(p, dtype=bool)
        lacking &= (fa < A) & (fb < B1)  # else the bundle would end in a combination of other terms
        two = lacking & (one if self.heredity == "strong" else ~one)
        yield np.where(two, first + _ratio(b1, B1, fb), 0.0).ravel(), lambda i: [i // p, self._product(i)]
        if self.heredity == "strong":
            s = self.cross - W[:, :p].T @ W[:, :p]
            c1, D1 = a.T - _share(s, A, fa) * a, A.T - _share(s, A, fa) * s
            q = r.T - _share(s, A, fa) * r
            b2, B2 = b1 - _share(q, D1, fa.T) * c1, B1 - _share(q, D1, fa.T) * q
            gain = first + _ratio(c1, D1, fa.T) + _ratio(b2, B2, fb)
            free = ~one[:, None] & ~one & self.upper
            three = free & (fa < A) & (D1 > fa.T) & (fb < B2)
            yield np.where(three, gain, 0.0).ravel(), lambda i: [i // p, i % p, self._product(i)]

    def _product(self, i):
        j, k = sorted(divmod(i, self.p))
        return self.p + j * self.p + k


def _share(x, square, floor):
    """``x / square``; 0 for what depends on the terms before."""
    return np.divide(x, square, out=np.zeros(np.broadcast(x, square).shape), where=square > floor)


def _ratio(x, square, floor):
    return _share(x**2, square, floor)


def _grown(terms, chosen, h, per_term):
    """The terms and those that greedy growth adds, up to h."""
    chosen = list(chosen)
    while len(chosen) < h:
        best, added = _DEPENDENT * terms.total, None
        for size, (gain, members) in enumerate(terms.bundles(chosen), 1):
            i, worth = int(np.argmax(gain)), gain.max() / (size if per_term else 1)
            if size <= h - len(chosen) and worth > best:
                best, added = worth, members(i)
        if added is None:
            break
        chosen += [int(t) for t in added]
    return chosen


def _search(terms, h, at_once):
    """The best terms found, and the number of exchanges; ``at_once`` terms are taken out together."""

    def regrown(rest):
        ends = [_grown(terms, rest, h, per_term) for per_term in (True, False)]
        return min(((terms.solve(end)[1], end) for end in ends), key=lambda found: found[0])

    value, chosen = regrown([])
    count, better = 0, True
    while better:
        better = False
        terms.rows = {t: terms.rows[t] for t in chosen if t in terms.rows}  # each has p^2 entries
        for some in (out for size in range(1, at_once + 1) for out in combinations(chosen, size)):
            out = set().union(
                *(terms.needing(t, [u for u in chosen if u not in some or u == t]) for t in some)
            )
            out |= set(some)
            lower, end = regrown([t for t in chosen if t not in out])
            if lower < value - _IMPROVED * terms.total:
                value, chosen, better, count = lower, end, True, count + 1
                break
    return chosen, count

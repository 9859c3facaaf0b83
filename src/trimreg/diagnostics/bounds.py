r"""A check of a certificate of :func:`trimreg.certify`: its tree is replayed, and every bound computed anew.

A certificate is a tree over the sets of h free parts. Each entry has a dual point. It either branches on a
part (free, or not free), or decides parts for which the other choice has a bound at least as large, or is a
leaf. The tree covers all sets if every branch has both sides; an entry whose children are missing counts as a
leaf. The smallest bound of a leaf, or of a choice ruled out, is the lower bound of the problem.

For least squares, let K be the Gram matrix plus the ridge of the columns scaled to a unit diagonal, minimized
over the parts that an entry's relaxation has made free, in coordinates that may have another scale. A dual
point u gives

.. math:: D(u) = \text{constant} - \tfrac12 u'Mu - \sum_g B_g - \text{(the largest) } (A_g - B_g), \quad
          A_g = \frac{\|q_g\|^2}{2 \delta_g},\; B_g = \frac{(\|q_g\| - t_g)_+^2}{2 \delta_g},\; q = c - Mu,

where M has the eigenvalues :math:`\max(\lambda, 1.01 \tau) - \tau`, and :math:`\delta_g` is the smallest
:math:`K_{ii} - M_{ii}` in the part less the sum of the k - 1 largest :math:`|K_{ij} - M_{ij}|`, with k the
largest number of nonzeros. For other losses a dual point is a vector g with one entry per sample, and
:math:`D(g) = -L^*(g) - \ldots` with :math:`q = -Z'g` and :math:`\delta` the ridge.
"""

from __future__ import annotations

import json
import os
import zipfile
from collections import defaultdict
from typing import Any, NamedTuple

import numpy as np

from ..losses import LOSSES
from ..penalties import TrimmedL1
from .candidate import read_data

_EPS = float(np.finfo(float).eps)
_FLOOR = 0.01
_NEARLY = 1e-9  # relative difference of bounds that are computed by two programs
FORMAT = "trimreg-certificate-1"


class CertificateCheck(NamedTuple):
    """The outcome of :func:`verify_certificate`.

    ``holds`` says whether the lower bound and the objective of the best point are what the certificate
    claims; ``lower`` and ``upper`` are recomputed. ``bounds`` is the number of bounds that were needed.
    """

    holds: bool
    lower: float
    upper: float
    bounds: int
    message: str


def read_certificate(path: str | os.PathLike) -> dict[str, Any]:
    """The content of a file that ``Certificate.save`` has written; a ``ValueError`` if it is none."""
    try:
        with open(path, "rb") as stream, np.load(stream, allow_pickle=False) as file:
            content: dict[str, Any] = {name: file[name] for name in file.files}
        header = json.loads(bytes(content.pop("header")).decode())
    except FileNotFoundError:
        raise
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, UnicodeDecodeError) as error:
        raise ValueError(f"{os.fspath(path)!r} is not a whole certificate of trimreg: {error}") from None
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        raise ValueError(f"{os.fspath(path)!r} is not a certificate of trimreg")
    return {"header": header, **content}


def verify_certificate(certificate: Any, X: Any, y: Any, sample_weight: Any = None) -> CertificateCheck:
    """Replay a certificate of :func:`trimreg.certify` against the data.

    The bounds are computed from the formulas in the head of this module by other code than the search uses.

    Parameters
    ----------
    certificate : path or Certificate
        A file that ``Certificate.save`` has written, or the certificate itself.
    X, y, sample_weight
        The data that it is about. For a classifier y may hold labels: the larger one is class 1.

    Returns
    -------
    CertificateCheck

    Examples
    --------
    >>> import numpy as np, trimreg
    >>> from trimreg.diagnostics import verify_certificate
    >>> X = np.random.default_rng(0).standard_normal((50, 8))
    >>> y = X[:, 2] - X[:, 5] + 0.1 * X[:, 0]
    >>> certificate = trimreg.certify(X, y, h=2)
    >>> verify_certificate(certificate, X, y).holds
    True
    >>> verify_certificate(certificate, X, -y + X[:, 1]).holds
    False
    """
    is_path = isinstance(certificate, (str, os.PathLike))
    content = read_certificate(certificate) if is_path else certificate.content()
    header = content["header"]
    try:
        checker = _checker(header, X, y, sample_weight)
        upper = checker.objective(np.asarray(content["coef"], dtype=float), float(header["intercept"]))
        lower, count = _replay(checker, content)
        lower = max(lower, checker.least)
    except (KeyError, IndexError, TypeError) as error:
        raise ValueError(f"certificate is damaged: {error!r}") from None
    scale = max(abs(upper), checker.constant)
    claimed = float(header["lower"]), float(header["upper"])
    good_lower = lower >= claimed[0] - _NEARLY * scale
    good_upper = abs(upper - claimed[1]) <= _NEARLY * scale
    message = "the bounds hold"
    if not good_lower:
        message = f"the leaves give the lower bound {lower:.6g}, not {claimed[0]:.6g}"
    elif not good_upper:
        message = f"the best point has the objective {upper:.6g}, not {claimed[1]:.6g}"
    return CertificateCheck(bool(good_lower and good_upper), float(lower), float(upper), count, message)


# -- the tree ---------------------------------------------------------------------------------------------


def _pieces(content, name):
    """A list of arrays that were stored one after another."""
    values, ends = content[name], np.asarray(content[name + "_end"], dtype=np.int64)
    if ends.size and (ends[-1] != values.size or np.any(np.diff(ends) < 0) or ends[0] < 0):
        raise KeyError(name)
    return np.split(values, ends[:-1]) if ends.size else []


def _replay(checker, content):
    """The smallest bound that the tree needs, and how many it needs."""
    parent, side = content["parent"].astype(int), content["side"].astype(int)
    branch, which = content["branch"].astype(int), content["relaxation"].astype(int)
    index, value = _pieces(content, "index"), _pieces(content, "value")
    made_free, made_not_free = _pieces(content, "made_free"), _pieces(content, "made_not_free")
    relaxations = list(
        zip(
            _pieces(content, "free"),
            _pieces(content, "kept"),
            content["tau"].astype(float),
            _pieces(content, "scale"),
            strict=True,
        )
    )
    children: dict[int, dict[int, int]] = defaultdict(dict)
    for entry, (above, on) in enumerate(zip(parent, side, strict=True)):
        if above >= entry:
            raise KeyError("parent")
        children[above].setdefault(int(on), entry)
    if list(children.get(-1, {})) != [0]:
        raise KeyError("root")
    lower, count = np.inf, 0
    nothing = np.zeros(checker.n_parts, dtype=np.int8)
    stack = [(children[-1][0], nothing)]
    while stack:
        entry, state = stack.pop()
        below, free, not_free = children[entry], made_free[entry], made_not_free[entry]
        bound = None
        if free.size + not_free.size and 0 in below:
            bound = checker.bound(relaxations[which[entry]], state, index[entry], value[entry])
            lower = min(lower, bound.without(free, not_free))
            count += free.size + not_free.size
            state = state.copy()
            state[free], state[not_free] = 1, -1
            stack.append((below[0], state))
        elif branch[entry] >= 0 and {1, -1} <= set(below):
            for on in (1, -1):
                other = state.copy()
                if other[branch[entry]] != 0:
                    raise KeyError("branch")
                other[branch[entry]] = on
                stack.append((below[on], other))
        else:
            bound = checker.bound(relaxations[which[entry]], state, index[entry], value[entry])
            lower, count = min(lower, bound.value), count + 1
    return lower, count


class _Bound(NamedTuple):
    """The value of a dual point, and what freedom gains for each part; nan for decided parts."""

    value: float
    gain: np.ndarray
    n_free: int

    def without(self, free, not_free):
        """The least value if a part of ``free`` is not free, or one of ``not_free`` is."""
        ordered = np.sort(self.gain[~np.isnan(self.gain)])[::-1]
        last = ordered[self.n_free - 1] if 0 < self.n_free <= ordered.size else np.inf
        following = ordered[self.n_free] if self.n_free < ordered.size else -np.inf
        losses = np.concatenate([
            np.where(self.gain[free] >= last, self.gain[free] - following, 0.0),
            np.maximum(last - self.gain[not_free], 0.0),
        ])  # fmt: skip
        return self.value + np.min(np.nan_to_num(losses, nan=0.0, posinf=np.inf), initial=np.inf)


# -- the bounds -------------------------------------------------------------------------------------------


def _checker(header, X, y, sample_weight):
    loss = LOSSES[header["loss"]](**header["loss_options"])
    y = np.asarray(y)
    if header["loss"] == "logistic" and not np.isin(y, (0.0, 1.0)).all() and np.unique(y).size == 2:
        y = (y == np.unique(y)[1]).astype(float)
    setting = {name: header[name] for name in ("fit_intercept", "standardize")}
    data = read_data(X, y, loss=loss, sample_weight=sample_weight, **setting)
    p = data.columns.shape[1]
    if p != header["n_features"] or len(data.y) != header["n_samples"]:
        raise ValueError(
            f"X must have the shape of the certificate's data, "
            f"{(header['n_samples'], header['n_features'])}; got {(len(data.y), p)}"
        )
    factor = header["factor"] and [float(one) for one in header["factor"]]  # inf is text
    penalty = TrimmedL1(header["h"], factor, groups=header["groups"], q=float(header["q"])).bind(p)
    kind = _LeastSquares if data.loss.least_squares else _Conjugate
    return kind(data, penalty, float(header["alpha"]), float(header["l2"]), bool(header["hard"]))


class _Checker:
    """Columns, ridge, thresholds and parts, scaled so that K has a unit diagonal."""

    def __init__(self, data, penalty, alpha, l2, hard):
        self.data, self.penalty, self.alpha, self.l2, self.hard = data, penalty, alpha, l2, hard
        self.n_parts = penalty.norm.count
        factor, ridge = penalty.levels(1.0), penalty.ridge(l2)
        norms = penalty.norm.common(np.hypot(data.norms, np.sqrt(ridge)))
        live = penalty.norm.largest_in_part(norms) > 0
        norms = np.where(norms > 0, norms, 1.0)
        self.regular = (factor > 0) & np.isfinite(factor) & live
        self.always = (factor == 0) & live
        self.total = min(penalty.n_free, int(np.count_nonzero(self.regular)))
        self.ridge = ridge / norms**2
        self.Z = data.columns.dense(np.arange(data.columns.shape[1])) / norms
        common = penalty.norm.largest_in_part(norms)
        self.threshold = np.full(self.n_parts, np.inf) if hard else alpha * factor / common
        self.label = penalty.norm.spread(np.arange(self.n_parts))

    def coordinates(self, parts):
        """The coordinates of these parts, part after part."""
        return self.penalty.norm.coordinates(np.asarray(parts, dtype=np.intp))

    def objective(self, coef, intercept):
        data = self.data
        theta = coef * data.columns.scale
        eta = data.columns.predictor(coef) + intercept
        value = float(data.loss.value(eta, data.y, data.d)) + 0.5 * float(
            self.penalty.ridge(self.l2) @ theta**2
        )
        if not self.hard:
            return value + self.penalty.value(theta, self.alpha)
        free = np.count_nonzero(self.penalty.norm.lengths(theta)[self.regular])
        return value if free <= self.total else np.inf

    def summed(self, base, q, delta, parts, state, free_before):
        """The bound with products q and curvatures of these parts, of which the state decides some."""
        of = np.repeat(np.arange(len(parts)), [len(self.coordinates([one])) for one in parts])
        square = np.bincount(of, q**2, minlength=len(parts)) if len(parts) else np.zeros(0)
        most = square / (2.0 * delta)
        least = np.maximum(np.sqrt(square) - self.threshold[parts], 0.0) ** 2 / (2.0 * delta)
        decided = state[parts]
        count = self.total - free_before - int(np.count_nonzero(decided == 1))
        gain = np.full(self.n_parts, np.nan)
        gain[parts[decided == 0]] = (most - least)[decided == 0]
        top = np.sort((most - least)[decided == 0])[::-1][: max(count, 0)].sum()
        value = base - least[decided != 1].sum() - most[decided == 1].sum() - top
        return _Bound(value - 1e-12 * self.constant, gain, count)


class _LeastSquares(_Checker):
    least = 0.0  # of any objective

    def __init__(self, *arguments):
        super().__init__(*arguments)
        root = np.sqrt(self.data.d)
        Z, t = root[:, None] * self.Z, root * self.data.target
        A = self.coordinates(np.flatnonzero(self.always))
        if A.size:
            U, s, _ = np.linalg.svd(Z[:, A], full_matrices=False)
            U = U[:, s > 1e-13 * s[0]]
            for _ in range(2):
                Z, t = Z - U @ (U.T @ Z), t - U @ (U.T @ t)
        self.K = Z.T @ Z + np.diag(self.ridge)
        self.c, self.constant = Z.T @ t, 0.5 * float(t @ t)
        self._known: dict[tuple, Any] = {}

    def bound(self, relaxation, state, index, value):
        free, parts, tau, scale = relaxation
        allowed = self.regular & (state == 0)
        inside = np.zeros(self.n_parts, dtype=bool)
        inside[free] = inside[parts] = True
        # parts that the relaxation leaves out must have been decided, and so must those it has made free
        if np.any(state[free] != 1) or np.any(allowed & ~inside) or np.any((state == 1) & ~inside):
            raise KeyError("relaxation")
        c, constant, M, delta = self._relaxed(free, parts, tau, scale)
        if not np.all(delta > 0):
            return _Bound(-np.inf, np.full(self.n_parts, np.nan), 0)
        u = np.zeros(c.size)
        u[index] = value
        Mu = M @ u
        if parts.size == 0:
            return _Bound(constant - 1e-12 * self.constant, np.full(self.n_parts, np.nan), 0)
        return self.summed(constant - 0.5 * float(u @ Mu), c - Mu, delta, parts, state, free.size)

    def _relaxed(self, free, parts, tau, scale):
        key = free.tobytes(), parts.tobytes(), tau, scale.tobytes()
        if key not in self._known:
            self._known.clear()  # leaves of a relaxation come one after another
            self._known[key] = self._relax(free, parts, tau, scale)
        return self._known[key]

    def _relax(self, free, parts, tau, scale):
        F, W = self.coordinates(free), self.coordinates(parts)
        K, c, constant = self.K[np.ix_(W, W)], self.c[W], self.constant
        if F.size:
            solved = np.linalg.solve(self.K[np.ix_(F, F)], np.column_stack([self.K[np.ix_(F, W)], self.c[F]]))
            K = K - self.K[np.ix_(W, F)] @ solved[:, :-1]
            K = 0.5 * (K + K.T)
            c, constant = (
                c - self.K[np.ix_(W, F)] @ solved[:, -1],
                constant - 0.5 * float(self.c[F] @ solved[:, -1]),
            )
        if W.size == 0:
            return c, constant, K, np.zeros(0)
        if scale.shape != c.shape or not np.all((scale > 0) & np.isfinite(scale)):
            raise KeyError("scale")
        if not self.hard and np.any(scale != 1.0):
            raise KeyError("scale")  # thresholds are those of the unscaled parts
        K, c = K / np.outer(scale, scale), c / scale
        sizes = np.array([len(self.coordinates([one])) for one in parts])
        M, slack = K - tau * np.eye(len(K)), 8.0 * _EPS * len(K) * float(np.trace(K))
        try:
            np.linalg.cholesky(M - 0.5 * _FLOOR * tau * np.eye(len(K)))
        except np.linalg.LinAlgError:
            if not self.hard:
                return c, constant, M, np.full(len(parts), -1.0)
            values, vectors = np.linalg.eigh(K)
            M = (vectors * (np.maximum(values, (1.0 + _FLOOR) * tau) - tau)) @ vectors.T
        away = np.abs(K - M)
        np.fill_diagonal(away, 0.0)
        count = int(np.sort(sizes)[::-1][: self.total - free.size].sum()) if self.hard else len(K)
        away = np.sort(away, axis=1)[:, ::-1][:, : max(count - 1, 0)].sum(axis=1)
        delta = np.diagonal(K) - np.diagonal(M) - away - slack
        delta = np.minimum.reduceat(delta, np.cumsum(sizes) - sizes)
        return c, constant, M, delta


class _Conjugate(_Checker):
    least = -np.inf

    def __init__(self, *arguments):
        super().__init__(*arguments)
        data = self.data
        self.constant = abs(float(data.loss.value(np.zeros_like(data.y), data.y, data.d)))
        A = self.Z[:, self.coordinates(np.flatnonzero(self.always))]
        self.A = np.column_stack([A, np.ones(len(A))]) if data.fit_intercept else A
        parts = np.flatnonzero(self.regular)
        starts = np.cumsum([0, *(len(self.coordinates([one])) for one in parts)])[:-1]
        self.delta = np.minimum.reduceat(self.ridge[self.coordinates(parts)], starts)

    def bound(self, relaxation, state, index, value):
        data, parts = self.data, np.flatnonzero(self.regular)
        g = np.zeros(len(data.y))
        g[index] = value
        left = np.abs(self.A.T @ g) if self.A.shape[1] else np.zeros(1)
        # g must be orthogonal to the columns that are never penalized
        feasible = np.max(left) <= 1e-10 * np.abs(g).sum()
        base = -float(data.loss.conjugate(g, data.y, data.d)) if feasible else -np.inf
        q = -(self.Z[:, self.coordinates(parts)].T @ g)
        return self.summed(base, q, self.delta, parts, state, 0)

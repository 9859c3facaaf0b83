"""What the estimators of graphical models share, in the manner of scikit-learn's covariance module.

What a selection of h and alpha needs is here in parts: :func:`read_covariance` takes S from data,
:meth:`GraphData.rows` puts new samples in its coordinates, :meth:`GraphicalModel._task` is the checked
problem (``task.at(h=..., alpha=..., start=...)`` is another point of the same one), and
:meth:`GraphicalModel._take` sets the fitted attributes from a result and its task.
"""

from __future__ import annotations

import copy
import warnings
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from sklearn.covariance import EmpiricalCovariance, log_likelihood
from sklearn.utils.validation import check_is_fitted

from ..designs import as_design
from ..designs.convert import is_far, is_virtual, to_host
from ..diagnostics import certify_graph
from ..estimators import validation as check
from ..estimators.summary import fit_facts
from ..penalties import PENALTIES, Penalty, TrimmedL1, get_penalty
from ..solvers import EFFORTS, get_solver
from .covariances import KINDS, TRANSFORMS, Nonparanormal, constant_columns, covariance_of
from .edges import EdgeTable, edge_table, partial_correlations, to_networkx
from .solver import GRAPHICAL_SOLVERS
from .task import (
    GraphTask,
    bind_edges,
    check_covariance,
    check_shrinkage,
    check_start_names,
    duplicates_message,
    prepare_graph,
)

COVARIANCES = (None, "precomputed")


class GraphData(NamedTuple):
    """The matrix S of a graphical model, and how samples come into its coordinates.

    Attributes
    ----------
    covariance : ndarray of shape (p, p)
        S in float64; a correlation matrix where it is made from ranks or normal scores.
    location : ndarray of shape (p,)
        What is subtracted from a sample (from its normal scores, where these are used).
    scale : ndarray of shape (p,)
        What it is divided by after that: ones, but for rank correlations.
    scores : Nonparanormal or None
        What comes before both.
    n_samples : int or None
    dtype : dtype
        Of the results: float32 if the data were.
    """

    covariance: np.ndarray
    location: np.ndarray
    scale: np.ndarray
    scores: Nonparanormal | None
    n_samples: int | None
    dtype: np.dtype

    def rows(self, X) -> np.ndarray:
        """Samples in the coordinates of S: centred, and transformed as the data were."""
        X = X if self.scores is None else self.scores.transform(X)
        return (X - self.location) / self.scale


def read_covariance(
    X, *, covariance=None, kind="pearson", transform=None, assume_centered=False, names=None
) -> GraphData:
    """S from data, or from itself, checked; ``names`` of the columns are for messages.

    Examples
    --------
    >>> import numpy as np
    >>> from trimreg.graphs.model import read_covariance
    >>> X = np.array([[0.0, 1.0], [1.0, 0.0], [2.0, 3.0], [3.0, 2.0]])
    >>> data = read_covariance(X)
    >>> data.covariance
    array([[1.25, 0.75],
           [0.75, 1.25]])
    >>> data.rows(X)[0]
    array([-1.5, -0.5])
    """
    if covariance == "precomputed":
        S, dtype = check_covariance(X, names)
        p, S = S.shape[0], (S + S.T) / 2
        dtype = _wide_enough(S, dtype)
        return GraphData(S, np.zeros(p, dtype), np.ones(p, dtype), None, None, dtype)
    if kind != "pearson" or transform is not None:
        X = check.check_near(X, "a correlation of ranks or scores", "use kind='pearson' without a transform")
    X = check.check_matrix(X)
    n, p = X.shape
    if n < 2:
        raise ValueError("X must have at least two samples; got n_samples = 1")
    if p < 2:
        raise ValueError(f"X must have at least two columns, for one has no edges; got n_features = {p}")
    around_zero = assume_centered and kind == "pearson" and transform is None
    if is_virtual(X):
        design, S = _second_moments(X, center=not assume_centered)
        constant = np.flatnonzero(design.inverse_scale == 0)
    else:
        constant = np.flatnonzero(~X.any(axis=0)) if around_zero else constant_columns(X)
    if constant.size:
        listed = ", ".join(str(j) if names is None else repr(str(names[j])) for j in constant[:6])
        what = "zero" if around_zero else "constant"
        raise ValueError(f"X must have no {what} columns, for they have no edges: drop {listed}")
    if transform == "npn" and kind == "pearson":
        scores = Nonparanormal().fit(X)
        S = covariance_of(scores.transform(X)).covariance
        return GraphData(S, np.zeros(p, X.dtype), np.ones(p, X.dtype), scores, n, X.dtype)
    if is_virtual(X):
        location = np.zeros(p) if assume_centered else design.offset
    else:
        S, location, scale = covariance_of(X, kind=kind, transform=transform, assume_centered=assume_centered)
    if kind == "pearson":
        scale = np.ones(p)
    dtype = _wide_enough(S, X.dtype)
    return GraphData(S, location.astype(dtype), scale.astype(dtype), None, n, dtype)


def _second_moments(X, center):
    """The design of a matrix that is not in memory, and its covariance (about 0 if not centred)."""
    d, every = np.full(X.shape[0], 1.0 / X.shape[0]), np.arange(X.shape[1])
    design = as_design(X, d, center=center)
    return design, design.gram(every, d, every)


def _wide_enough(S, dtype):
    """The dtype that holds S and its inverse: float64 where float32 would overflow."""
    low, high = float(np.diagonal(S).min()), float(np.diagonal(S).max())
    if not (low > 1e-280 and high < 1e280):
        raise ValueError(
            f"the variances must lie between 1e-280 and 1e280; they go from {low:.3g} to {high:.3g}. "
            "Scale the columns"
        )
    return dtype if low > 1e-25 and high < 1e25 else np.dtype(np.float64)


def edge_penalty(penalty, h, penalty_factor) -> tuple[Penalty, bool]:
    """The penalty that an estimator's parameters stand for, and whether its h is left to the default.

    Examples
    --------
    >>> from trimreg.graphs.model import edge_penalty
    >>> edge_penalty("trimmed_l1", 3, None)
    (TrimmedL1(h=3), False)
    >>> edge_penalty("mcp", 3, None)
    Traceback (most recent call last):
        ...
    ValueError: h is for trimmed penalties; with penalty MCP leave it None; got h = 3
    """
    named = isinstance(penalty, str) and penalty in PENALTIES
    if not (named or isinstance(penalty, Penalty)) or not get_penalty(penalty).majorizes:
        allowed = sorted(name for name, kind in PENALTIES.items() if kind.majorizes)
        raise ValueError(f"penalty must be one of {allowed} or an object of these; got {penalty!r}")
    own = copy.copy(get_penalty(penalty))
    if penalty_factor is not None:
        if own.penalty_factor is not None:
            raise ValueError("penalty_factor must be None where the penalty has its own")
        own.penalty_factor = penalty_factor
    if not isinstance(own, TrimmedL1):
        if h is not None:
            raise ValueError(
                f"h is for trimmed penalties; with penalty {type(own).__name__} leave it None; got h = {h!r}"
            )
        return own, False
    if own.h is not None and h is not None and own.h != h:
        raise ValueError(f"h must be None or that of the penalty, {own.h!r}; got h = {h!r}")
    own.h = h if own.h is None else own.h
    return own, own.h is None


_HIDDEN = {"transform": "_transform"}


class _Parameter:
    """A parameter that can be set, but is no attribute.

    Whatever has an attribute ``transform`` is taken by scikit-learn for a transformer.
    """

    def __set_name__(self, owner, name):
        self.name = name

    def __set__(self, model, value):
        model.__dict__[_HIDDEN[self.name]] = value

    def __get__(self, model, owner=None):
        raise AttributeError(f"{self.name!r} is a parameter: get_params()[{self.name!r}]")


class GraphicalModel(EmpiricalCovariance):
    """A Gaussian graphical model fitted to a covariance matrix. A subclass says which h and alpha."""

    store_precision = True  # of scikit-learn's base class, whose constructor is not called
    transform = _Parameter()

    def get_params(self, deep=True):
        """The parameters of the constructor by name.

        Parameters
        ----------
        deep : bool
            Not used: no parameter is an estimator.

        Returns
        -------
        dict
        """
        return {name: getattr(self, _HIDDEN.get(name, name)) for name in self._get_param_names()}

    # -- fit ---------------------------------------------------------------------------------------

    def _read(self, X) -> GraphData:
        """S from what the user passes, after every check that needs no more than its shape."""
        X = to_host(X) if self.covariance == "precomputed" else X
        if sp.issparse(X):
            raise ValueError("X must be dense, not sparse; pass X.toarray()")
        what = "S" if self.covariance == "precomputed" else "X"
        X = X if hasattr(X, "shape") else check.check_real(what, X)
        check.check_choice("covariance", self.covariance, COVARIANCES)
        check.check_choice("kind", self.kind, KINDS)
        check.check_choice("transform", self._transform, TRANSFORMS)
        if self.covariance == "precomputed" and (self.kind != "pearson" or self._transform is not None):
            name, value = ("transform", self._transform) if self.kind == "pearson" else ("kind", self.kind)
            raise ValueError(f"{name}={value!r} needs data; with covariance='precomputed' leave it out")
        assume_centered = check.check_flag("assume_centered", self.assume_centered)
        if len(X.shape) == 2 and X.shape[1] > 1:
            self._check_parameters(X.shape[1])
        check.check_features(self, X)  # their names and number
        return read_covariance(
            X, covariance=self.covariance, kind=self.kind, transform=self._transform,
            assume_centered=assume_centered, names=getattr(self, "feature_names_in_", None),
        )  # fmt: skip

    def _check_parameters(self, p: int) -> None:
        """Refuse what is wrong in any data, before S is computed."""
        check.check_flag("warm_start", self.warm_start)
        check.check_flag("standardize", self.standardize)
        check.check_choice("effort", self.effort, EFFORTS)
        spec = get_solver(self.solver, GRAPHICAL_SOLVERS)
        alpha = check.check_alpha(self.alpha)
        check_shrinkage(self.shrinkage)
        check.check_number("tol", self.tol, 0.0, strict=True)
        if self.max_iter is not None:
            check.check_number("max_iter", self.max_iter, 1, integral=True)
        check.check_random_state(self.random_state)
        penalty = bind_edges(edge_penalty(self.penalty, self.h, self.penalty_factor)[0], p)
        check.check_options(spec, {}, penalty, positive=False)
        check_start_names(self.start, penalty)
        if alpha == "exact" and penalty.n_free is None:
            check.check_exact(None, penalty, None, None)

    def _task(self, data: GraphData, precision0=None) -> GraphTask:
        """The problem of these parameters."""
        penalty, default_h = edge_penalty(self.penalty, self.h, self.penalty_factor)
        if default_h:
            penalty.h = 0  # safe with any S
        S, names = data.covariance, getattr(self, "feature_names_in_", None)
        options = {"effort": self.effort, "start": self.start} if self.solver == "mm" else {}
        task = prepare_graph(
            S, penalty=penalty, alpha=self.alpha, solver=self.solver, standardize=self.standardize,
            shrinkage=self.shrinkage, precision0=precision0, tol=self.tol, max_iter=self.max_iter,
            random_state=self.random_state, options=options, names=names,
        )  # fmt: skip
        task = replace(task, dtype=data.dtype)
        if default_h:
            p = S.shape[0]
            task = task.at(h=max(min(p, p * (p - 1) // 2, task.safe_h), 0), start=task.start)
        copies = duplicates_message(S, names)
        if copies:
            warnings.warn(f"{copies}: an edge between them has no finite value", UserWarning, stacklevel=3)
        return task

    def _take(self, result, task: GraphTask, data: GraphData) -> None:
        """The fitted attributes, from a result, the task it solves and the data it was made from."""
        p = data.covariance.shape[0]
        n_free = task.problem.penalty.n_free
        penalty = edge_penalty(self.penalty, None, self.penalty_factor)[0]
        if n_free is not None:
            penalty.h = n_free
        self._data, self._penalty = data, bind_edges(penalty, p)
        self._scaling = {"standardize": bool(self.standardize), "shrinkage": float(self.shrinkage)}
        # What a relative duality gap of tol promises: see :meth:`certificate`.
        self._violation = float(np.sqrt(2.0 * self.tol * max(1.0, abs(result.objective))))
        self.result_ = result
        self.empirical_covariance_ = data.covariance
        self.location_ = data.location
        self.covariance_ = result.covariance
        self.precision_ = result.precision
        self.partial_correlation_ = partial_correlations(result.precision).astype(data.dtype)
        self.trim_weights_ = result.weights
        self.edges_ = edge_table(result.precision, getattr(self, "feature_names_in_", None), result.weights)
        self.n_edges_ = len(self.edges_)
        self.h_ = 0 if n_free is None else n_free
        self.alpha_ = result.alpha
        self.objective_ = result.objective
        self.dual_gap_ = result.dual_gap
        self.stationarity_ = result.stationarity
        self.n_iter_ = result.n_iter

    # -- new samples ---------------------------------------------------------------------------------

    def _rows(self, X):
        check_is_fitted(self)
        X = check.check_near(X, "the distance of every sample", "pass a part of the rows")
        if sp.issparse(X):
            raise ValueError("X must be dense, not sparse; pass X.toarray()")
        rows = check.check_matrix(X)
        check.check_features(self, X, reset=False)
        return self._data.rows(rows)

    def _covariance_of_samples(self, X):
        """The second moments of new samples about ``location_``, in the coordinates of S."""
        if not is_far(X) or self._data.scores is not None:
            rows = np.asarray(self._rows(X), dtype=float)
            return rows.T @ rows / len(rows)
        check_is_fitted(self)
        check.check_features(self, X, reset=False)
        design, S = _second_moments(check.check_matrix(X), center=True)
        moved = design.offset - self._data.location
        return (S + np.outer(moved, moved)) / np.outer(self._data.scale, self._data.scale)

    def score(self, X_test, y=None) -> float:
        r"""The mean Gaussian log-likelihood of new samples, as in scikit-learn:

        .. math:: \frac12 \bigl(\log\det\Theta - \mathrm{tr}(S_{test}\Theta) - p \log 2\pi\bigr)

        With normal scores it is that of the scores, with rank correlations that of the samples in units of
        the deviations of the data.

        Parameters
        ----------
        X_test : array-like of shape (n_samples, n_features)
        y : ignored

        Returns
        -------
        float
        """
        S = self._covariance_of_samples(X_test)
        return float(log_likelihood(S, np.asarray(self.precision_, dtype=float)))

    def mahalanobis(self, X):
        r"""Squared Mahalanobis distances :math:`(x - \mu)'\Theta(x - \mu)` of samples.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        rows = self._rows(X)
        return np.sum((rows @ self.precision_) * rows, axis=1)

    # -- what was found ------------------------------------------------------------------------------

    def certificate(self, tol=None):
        r"""What the fit claims, computed again from S and the precision alone.

        Parameters
        ----------
        tol : float, optional
            Allowed violation of a condition of a local minimum, in units of correlations. By default what the
            stopping rule promises. With a duality gap g the eigenvalues of :math:`\Theta W` for a feasible W
            are :math:`1 + d_k` with :math:`\sum_k d_k^2 \approx 2 g` at most, so that no entry of the inverse
            of Theta is further than :math:`\sqrt{2 g}` from that of W.

        Returns
        -------
        GraphCertificate
            See :func:`trimreg.diagnostics.certify_graph`.
        """
        check_is_fitted(self)
        tol = self._violation if tol is None else tol
        return certify_graph(
            self.empirical_covariance_, self.precision_, penalty=self._penalty, alpha=self.alpha_,
            weights=self.trim_weights_, tol=tol, **self._scaling,
        )  # fmt: skip

    def to_networkx(self):
        """The graph with its partial correlations; all variables are nodes.

        Returns
        -------
        networkx.Graph
            See :func:`trimreg.estimators.to_networkx`.
        """
        check_is_fitted(self)
        names = getattr(self, "feature_names_in_", None)
        return to_networkx(self.partial_correlation_, names, precision=self.precision_)

    def summary(self, max_rows=50) -> EdgeTable:
        """One table of the fitted model: a row an edge, the strongest first.

        Parameters
        ----------
        max_rows : int or None, default=50
            How many rows are drawn; None draws all.

        Returns
        -------
        EdgeTable
            Prints as text; ``to_html``, ``to_latex`` and ``to_frame`` give the rest.
        """
        check_is_fitted(self)
        facts = fit_facts(
            n_samples=self._data.n_samples,
            n_features=self.n_features_in_,
            h=self._penalty.n_free,
            alpha=self.alpha_,
            objective=self.objective_,
            stationarity=self.stationarity_,
            converged=self.result_.converged,
            edges=self.n_edges_,
            dual_gap=self.dual_gap_,
        )
        return edge_table(
            self.precision_, getattr(self, "feature_names_in_", None), self.trim_weights_,
            title=type(self).__name__, facts=facts, max_rows=max_rows,
        )  # fmt: skip

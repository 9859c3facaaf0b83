"""The trimmed graphical lasso, in the manner of scikit-learn's covariance estimators."""

from __future__ import annotations

import warnings
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike
from sklearn.covariance import EmpiricalCovariance, log_likelihood
from sklearn.utils.validation import check_is_fitted

from ..designs.convert import is_far, to_host
from ..estimators import validation as check
from ..penalties import Penalty
from ..solvers import EFFORTS
from .covariances import (
    KINDS,
    SCORES,
    GraphData,
    design_and_moments,
    duplicate_columns,
    given_covariance,
    read_covariance,
    shown,
)
from .diagnostics.certificate import GraphCertificate, certify_graph
from .edges import EdgeTable, edge_table, partial_correlations, to_networkx
from .solve import GraphicalResult, GraphSettings, GraphTask, check_settings, edge_penalty, prepare_graph

COVARIANCES = (None, "precomputed")
_DENSE = "X must be dense, not sparse; pass X.toarray()"


class GraphicalModel(EmpiricalCovariance):
    """A Gaussian graphical model fitted to a covariance matrix; a subclass decides on h and alpha."""

    store_precision = True  # of scikit-learn's base class, whose constructor is not called

    def _store(self, parameters: dict[str, Any]) -> None:
        """Set the parameters of the constructor as attributes."""
        for name in self._get_param_names():
            setattr(self, name, parameters[name])

    # -- fit ---------------------------------------------------------------------------------------

    def _read(self, X, *, h, alpha, solver="mm", max_iter=None, options):
        """The checked parameters, S and X; all checks that need no data come before S is computed."""
        precomputed = self.covariance == "precomputed"
        X = to_host(X) if precomputed else X
        if sp.issparse(X):
            raise ValueError(_DENSE)
        X = X if hasattr(X, "shape") else check.check_real("S" if precomputed else "X", X)
        check.check_choice("covariance", self.covariance, COVARIANCES)
        check.check_choice("kind", self.kind, KINDS)
        check.check_choice("scores", self.scores, SCORES)
        check.check_flag("assume_centered", self.assume_centered)
        if self.scores is not None and self.kind != "pearson":
            raise ValueError(f"scores={self.scores!r} needs kind='pearson'; got kind={self.kind!r}")
        if precomputed and (self.kind != "pearson" or self.scores is not None):
            name, value = ("scores", self.scores) if self.kind == "pearson" else ("kind", self.kind)
            raise ValueError(f"{name}={value!r} needs data; leave it out with covariance='precomputed'")
        settings: Any = None
        if len(X.shape) == 2 and X.shape[1] > 1:  # anything else is refused below
            penalty, default_h = edge_penalty(self.penalty, h, self.penalty_factor)
            settings = check_settings(
                X.shape[1], penalty=penalty, alpha=alpha, solver=solver, standardize=self.standardize,
                shrinkage=self.shrinkage, tol=self.tol, max_iter=max_iter, random_state=self.random_state,
                options=options, default_h=default_h,
            )  # fmt: skip
        check.check_features(self, X)  # names and number
        if precomputed:
            return settings, given_covariance(X, self._names()), X
        if self.kind != "pearson" or self.scores is not None:
            X = check.check_near(X, "a correlation of ranks or scores", "use kind='pearson' with scores=None")
        X = check.check_matrix(X)
        return settings, self._covariance(X), X

    def _covariance(self, X) -> GraphData:
        """S of a checked matrix of samples."""
        own = {"kind": self.kind, "scores": self.scores, "assume_centered": self.assume_centered}
        return read_covariance(X, **own, names=self._names())

    def _names(self):
        return getattr(self, "feature_names_in_", None)

    def _task(self, settings: GraphSettings, data: GraphData, precision0=None) -> GraphTask:
        """The problem of these settings; warns about variables that are copies of each other."""
        S, names = data.covariance, self._names()
        task = prepare_graph(S, settings, dtype=data.dtype, precision0=precision0, names=names)
        pairs = duplicate_columns(S)
        if len(pairs):
            i, j = pairs[0]
            more = f" (and {len(pairs) - 1} more pairs)" if len(pairs) > 1 else ""
            warnings.warn(
                f"variables {shown(i, names)} and {shown(j, names)} are copies of each other{more}: an edge "
                "between them has no finite value",
                UserWarning,
                stacklevel=3,
            )
        return task

    def _take(self, result: GraphicalResult, task: GraphTask, data: GraphData) -> None:
        """Set the fitted attributes from a result, its task and its data."""
        n_free, penalty = task.problem.penalty.n_free, task.penalty
        if n_free is not None:
            penalty = penalty.freeing(n_free)
            penalty.h = n_free
        self._data, self._penalty = data, penalty
        self._scaling: dict[str, Any] = {"standardize": self.standardize, "shrinkage": self.shrinkage}
        # The accuracy that a relative duality gap of tol guarantees: see :meth:`certificate`.
        self._violation = float(np.sqrt(2.0 * self.tol * max(1.0, abs(result.objective))))
        for name in ("edges_", "partial_correlation_"):
            self.__dict__.pop(name, None)  # of an earlier fit
        self.result_ = result
        self.empirical_covariance_ = data.covariance
        self.location_ = data.location
        self.covariance_ = result.covariance
        self.precision_ = result.precision
        self.trim_weights_ = result.weights
        self.n_edges_ = int(np.count_nonzero(np.triu(result.precision, 1)))
        self.h_ = 0 if n_free is None else n_free
        self.alpha_ = result.alpha
        self.objective_ = result.objective
        self.dual_gap_ = result.dual_gap
        self.stationarity_ = result.stationarity
        self.n_iter_ = result.n_iter

    # -- new samples ---------------------------------------------------------------------------------

    def _rows(self, X):
        check_is_fitted(self)
        X = check.check_near(X, "the distance of every sample", "pass some of the rows")
        if sp.issparse(X):
            raise ValueError(_DENSE)
        rows = check.check_matrix(X)
        check.check_features(self, X, reset=False)
        return self._data.rows(rows)

    def _second_moments(self, X):
        """The second moments of new samples around ``location_``, in the coordinates of S."""
        if not is_far(X) or self._data.scores is not None:
            rows = np.asarray(self._rows(X), dtype=float)
            return rows.T @ rows / len(rows)
        check_is_fitted(self)
        check.check_features(self, X, reset=False)
        design, S = design_and_moments(check.check_matrix(X), center=True)
        moved = design.offset - self._data.location
        return (S + np.outer(moved, moved)) / np.outer(self._data.scale, self._data.scale)

    def score(self, X_test: Any, y: Any = None) -> float:
        r"""The mean Gaussian log-likelihood of new samples, as in scikit-learn:

        .. math:: \frac12 \bigl(\log\det\Theta - \mathrm{tr}(S_{test}\Theta) - p \log 2\pi\bigr)

        With normal scores it is the likelihood of the scores. With rank correlations it is that of the
        samples divided by the standard deviations of the training data.

        Parameters
        ----------
        X_test : array-like of shape (n_samples, n_features)
        y : ignored

        Returns
        -------
        float
        """
        return float(log_likelihood(self._second_moments(X_test), np.asarray(self.precision_, dtype=float)))

    def mahalanobis(self, X: Any) -> np.ndarray:
        r"""Squared Mahalanobis distances :math:`(x - \mu)'\Theta(x - \mu)` of the rows of X.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        rows = self._rows(X)
        return np.sum((rows @ self.precision_) * rows, axis=1)

    # -- the graph -----------------------------------------------------------------------------------

    @cached_property
    def partial_correlation_(self) -> np.ndarray:
        check_is_fitted(self)
        return partial_correlations(self.precision_).astype(self._data.dtype)

    @cached_property
    def edges_(self) -> EdgeTable:
        check_is_fitted(self)
        return edge_table(self.precision_, self._names(), self.trim_weights_)

    def certificate(self, tol: float | None = None) -> GraphCertificate:
        r"""Whether the fit is a local minimum, recomputed from S and the precision alone.

        Parameters
        ----------
        tol : float, optional
            Allowed violation of a condition of a local minimum, in units of correlations. The default is the
            accuracy that the stopping rule guarantees. With a duality gap g the eigenvalues of
            :math:`\Theta W` for a feasible W are :math:`1 + d_k` with :math:`\sum_k d_k^2` at most about
            :math:`2 g`, so the inverse of Theta differs from W by at most :math:`\sqrt{2 g}` per entry.

        Returns
        -------
        GraphCertificate
            See :func:`trimreg.diagnostics.certify_graph`.
        """
        check_is_fitted(self)
        return certify_graph(
            self.empirical_covariance_, self.precision_, penalty=self._penalty, alpha=self.alpha_,
            weights=self.trim_weights_, tol=self._violation if tol is None else tol, **self._scaling,
        )  # fmt: skip

    def to_networkx(self) -> Any:
        """The graph as a networkx.Graph, all variables as nodes; see :func:`trimreg.graphs.to_networkx`."""
        check_is_fitted(self)
        return to_networkx(self.partial_correlation_, self._names(), precision=self.precision_)

    def summary(self, max_rows: int | None = 50) -> EdgeTable:
        """A table of the fitted model: one row per edge, the strongest first.

        Parameters
        ----------
        max_rows : int or None, default=50
            The number of rows shown; None shows all.

        Returns
        -------
        EdgeTable
            Prints as text; see also its ``to_html``, ``to_latex`` and ``to_frame``.
        """
        check_is_fitted(self)
        facts = {
            "samples": self._data.n_samples, "features": self.n_features_in_, "h": self._penalty.n_free,
            "alpha": self.alpha_, "objective": self.objective_, "stationarity": self.stationarity_,
            "converged": self.result_.converged, "edges": self.n_edges_, "dual gap": self.dual_gap_,
        }  # fmt: skip
        return edge_table(
            self.precision_, self._names(), self.trim_weights_, title=type(self).__name__, facts=facts,
            max_rows=max_rows,
        )  # fmt: skip


class TrimmedGraphicalLasso(GraphicalModel):
    r"""Gaussian graphical model in which all but the h largest edges are penalized.

    .. math:: \min_{\Theta \succ 0}\; \mathrm{tr}(S\Theta) - \log\det\Theta
              + 2 \alpha \sum_{k > h} |\theta|_{(k)}

    where S is the covariance matrix of the data, :math:`\Theta` the precision matrix to be estimated, and
    :math:`|\theta|_{(1)} \ge |\theta|_{(2)} \ge \dots` are the absolute values of its entries above the
    diagonal in decreasing order. A nonzero entry is an edge: its two variables are dependent given all
    others. The diagonal is not penalized.

    Parameters
    ----------
    h : int, float in (0, 1) or None, default=None
        How many edges (or which fraction of the p(p-1)/2 pairs) carry no penalty. None means p edges, or
        fewer if there are fewer pairs, or if S is singular and p free edges could leave the objective without
        a minimum.
    alpha : float or "exact", default="exact"
        ``"exact"`` is just above the exact-penalty threshold: there are **at most h edges**, none of them
        shrunk, and nothing else to tune. A number gives the soft version: h edges free of shrinkage, and
        possibly more that are shrunk. Its scale is that of the entries of S, as in scikit-learn.
    penalty : {"trimmed_l1", "l1", "mcp", "scad"} or penalty object, default="trimmed_l1"
        All but the first need a number for alpha and no h; ``"l1"`` is the graphical lasso. A ``TrimmedL1``
        object may have its own h; if that is None, the h of the estimator is used.
    covariance : None or "precomputed", default=None
        ``"precomputed"``: X is S. Samples passed to :meth:`score` must then be centered.
    kind : {"pearson", "spearman", "kendall"}, default="pearson"
        ``"pearson"`` is the covariance. The other two are the correlations of a Gaussian copula, estimated
        from ranks: S is a correlation matrix, and new samples are divided by the standard deviations of the
        data.
    scores : None or "npn", default=None
        ``"npn"`` replaces the columns by their normal scores (the nonparanormal). S is then a correlation
        matrix, and new samples are transformed in the same way before they are scored. Only for
        ``kind="pearson"``.
    assume_centered : bool, default=False
        Whether the means are zero.
    standardize : bool, default=False
        Whether the penalty acts on the precision matrix of standardized variables, so that units do not
        affect it. ``covariance_`` and ``precision_`` are in the units of the data in either case.
    shrinkage : float in [0, 1), default=0.0
        S is replaced by ``(1 - shrinkage) S + shrinkage diag(S)``: a ridge for singular S.
    penalty_factor : array-like of shape (p, p) or (p(p-1)/2,), optional
        Factors of the penalty: a symmetric matrix, or the pairs i < j row by row. A pair with factor 0 is
        never penalized and not counted in h, a pair with ``inf`` is never an edge.
    solver : {"mm", "bcd", "dc", "prox"}, default="mm"
        See :func:`trimreg.solve_graphical`. All but the default are there for comparison.
    effort : {"low", "medium", "high"}, default="medium"
        How hard ``"mm"`` searches for a good local minimum; other solvers ignore it.
    start : "auto" or one or several of {"mle", "shrunk", "diagonal", "glasso", "homotopy"}, default="auto"
        Where ``"mm"`` starts; the lowest objective of several starts is kept. Other solvers ignore it.
    warm_start : bool, default=False
        Whether to start from the precision matrix of the last fit.
    tol : float, default=1e-8
        See the notes.
    max_iter : int or None, default=None
        Maximum number of steps; None is the default of the solver.
    random_state : int, Generator or RandomState, optional
        Seed of the random kicks of ``effort="high"``; None means seed 0, so that fits are reproducible.

    Attributes
    ----------
    precision_, covariance_ : ndarray of shape (p, p)
        Theta, with exact zeros, and its inverse.
    location_ : ndarray of shape (p,)
        The means of the columns; zeros if they are assumed centered, and for normal scores.
    partial_correlation_ : ndarray of shape (p, p)
        Of each pair of variables given all others; ones on the diagonal.
    edges_ : EdgeTable
        The edges with names, partial correlations and whether they are free, the strongest first.
    n_edges_ : int
    trim_weights_ : ndarray of shape (p, p)
        The weights w: 0 for a free pair, 1 for a penalized one, 0 on the diagonal.
    empirical_covariance_ : ndarray of shape (p, p)
        S, in float64, before ``shrinkage``.
    objective_ : float
        On the correlation scale if ``standardize``.
    dual_gap_ : float
        The duality gap of the weighted problem with the final weights, relative to ``max(1, |objective|)``.
    stationarity_ : float
        The largest violation of an optimality condition of that problem, in units of correlations.
    h_ : int
        The number of free pairs; 0 for a penalty that does not trim.
    alpha_ : float
        The alpha used.
    n_iter_ : int
    n_features_in_ : int
    feature_names_in_ : ndarray of str
        Only if X had string column names.
    result_ : GraphicalResult
        With the history of the solver.

    Notes
    -----
    ``"mm"`` stops when the weights of the weighted problem are those of its own solution, and that problem is
    solved to a relative duality gap of ``tol``. For MCP and SCAD, whose weights never settle, it stops when
    the optimality conditions hold within ``100 tol``. The other solvers stop when the root of the paper's T
    is below ``tol`` times the largest correlation. A fit that stops for another reason warns.
    :meth:`certificate` recomputes everything.

    The trimmed graphical lasso of Yang and Lozano (2015) is a different method: it trims samples (outliers),
    this one trims edges from the penalty.

    References
    ----------
    Yun, Zheng, Yang, Lozano and Aravkin, M-estimation with the trimmed l1 penalty, example 2; its h counts
    both triangles and is twice this one.

    Yang and Lozano (2015). Robust Gaussian graphical modeling with the trimmed graphical lasso. Advances in
    Neural Information Processing Systems 28.

    Examples
    --------
    >>> import numpy as np
    >>> from trimreg import TrimmedGraphicalLasso
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((300, 4))
    >>> X[:, 1] += X[:, 0]
    >>> X[:, 2] += X[:, 1]
    >>> model = TrimmedGraphicalLasso(h=2).fit(X)
    >>> [(edge.source, edge.target, round(edge.partial_correlation, 2)) for edge in model.edges_]
    [('x1', 'x2', 0.71), ('x0', 'x1', 0.51)]
    >>> model.dual_gap_ < 1e-8, model.certificate().local_minimum
    (True, True)
    """

    def __init__(
        self,
        h: int | float | None = None,
        alpha: float | str = "exact",
        *,
        penalty: str | Penalty = "trimmed_l1",
        covariance: str | None = None,
        kind: str = "pearson",
        scores: str | None = None,
        assume_centered: bool = False,
        standardize: bool = False,
        shrinkage: float = 0.0,
        penalty_factor: ArrayLike | None = None,
        solver: str = "mm",
        effort: str = "medium",
        start: Any = "auto",
        warm_start: bool = False,
        tol: float = 1e-8,
        max_iter: int | None = None,
        random_state: Any = None,
    ):
        self._store(locals())

    def fit(self, X: Any, y: Any = None) -> TrimmedGraphicalLasso:
        """Fit the model.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), or (n_features, n_features) if precomputed
        y : ignored

        Returns
        -------
        self
        """
        with check.all_or_nothing(self):
            check.check_flag("warm_start", self.warm_start)
            check.check_choice("effort", self.effort, EFFORTS)
            options = {"effort": self.effort, "start": self.start} if self.solver == "mm" else {}
            settings, data, _ = self._read(
                X, h=self.h, alpha=self.alpha, solver=self.solver, max_iter=self.max_iter, options=options
            )
            task = self._task(settings, data, self._last_precision())
            self._take(task.solve(), task, data)
        return self

    def _last_precision(self):
        """The precision of the last fit if it can be a warm start, else None."""
        if not self.warm_start or not hasattr(self, "result_"):
            return None
        start = np.asarray(self.result_.precision, dtype=float)
        if start.shape[0] != self.n_features_in_ or np.linalg.eigvalsh(start)[0] <= 0:
            return None  # other variables, or not positive definite in float32
        return start

"""The trimmed graphical lasso."""

from __future__ import annotations

import numpy as np

from ..estimators import validation as check
from .model import GraphData, GraphicalModel, edge_penalty, read_covariance

__all__ = ["GraphData", "GraphicalModel", "TrimmedGraphicalLasso", "edge_penalty", "read_covariance"]


class TrimmedGraphicalLasso(GraphicalModel):
    r"""Gaussian graphical model in which all but the h largest edges are penalized.

    .. math:: \min_{\Theta \succ 0}\; \mathrm{tr}(S\Theta) - \log\det\Theta
              + 2 \alpha \sum_{k > h} |\theta|_{(k)}

    where S is the covariance matrix of the data, :math:`\Theta` the precision matrix that is sought, and
    :math:`|\theta|_{(1)} \ge |\theta|_{(2)} \ge \dots` are the sizes of its entries above the diagonal in
    falling order. An entry that is not zero is an edge: its two variables depend on each other given all
    others. The diagonal is not penalized.

    Parameters
    ----------
    h : int, float in (0, 1) or None, default=None
        How many edges (or which fraction of the p(p-1)/2 pairs) carry no penalty. None is p edges, or as many
        as there are pairs, or as leave the objective a minimum where S is singular, if these are fewer.
    alpha : float or "exact", default="exact"
        ``"exact"`` is just over the exact-penalty threshold, so that there are **at most h edges**, none of
        them shrunk: nothing else is to be tuned. A number gives the soft version: h edges free of shrinkage,
        and some more that are shrunk. Its scale is that of the entries of S, as in scikit-learn.
    penalty : {"trimmed_l1", "l1", "mcp", "scad"} or penalty object, default="trimmed_l1"
        All but the first need a number for alpha and no h; ``"l1"`` is the graphical lasso. The h of a
        ``TrimmedL1`` object stands, or where it is None that of the estimator.
    covariance : None or "precomputed", default=None
        ``"precomputed"``: X is S. Then samples that are scored must be centred.
    kind : {"pearson", "spearman", "kendall"}, default="pearson"
        ``"pearson"`` is the covariance. The other two are the correlations of a Gaussian copula from ranks,
        so that S is a correlation matrix; new samples are divided by the deviations of the data.
    transform : None or "npn", default=None
        ``"npn"`` replaces the columns by their normal scores (the nonparanormal); then S is a correlation
        matrix, and new samples are scored after the same transform. For ``kind="pearson"``.
    assume_centered : bool, default=False
        Whether the means are zero.
    standardize : bool, default=False
        Whether the penalty acts on the precision matrix of standardized variables, so that units do not
        matter to it. ``covariance_`` and ``precision_`` are in the units of the data all the same.
    shrinkage : float in [0, 1), default=0.0
        S is replaced by ``(1 - shrinkage) S + shrinkage diag(S)``: a ridge for singular S.
    penalty_factor : array-like of shape (p, p) or (p(p-1)/2,), optional
        Factors of the penalty: a symmetric matrix, or the pairs i < j row by row. A pair with 0 is never
        penalized and not counted in h, one with ``inf`` is never an edge.
    solver : {"mm", "bcd", "dc", "prox"}, default="mm"
        See :func:`trimreg.solve_graphical`. All but the default are there for comparison.
    effort : {"low", "medium", "high"}, default="medium"
        How hard ``"mm"`` looks for a good local minimum; other solvers ignore it.
    start : "auto" or one or several of {"mle", "shrunk", "diagonal", "glasso", "homotopy"}, default="auto"
        Where ``"mm"`` starts; of several the lowest objective is kept. Other solvers ignore it.
    warm_start : bool, default=False
        Whether to start from the precision matrix of the last fit.
    tol : float, default=1e-8
        See the notes.
    max_iter : int or None, default=None
        Steps of the solver; None is the solver's own default.
    random_state : int, Generator or RandomState, optional
        Seed of the random kicks of ``effort="high"``; None is the seed 0, so that fits repeat.

    Attributes
    ----------
    precision_, covariance_ : ndarray of shape (p, p)
        Theta, whose zeros are exact, and its inverse.
    location_ : ndarray of shape (p,)
        The means of the columns; zeros if these are taken as centred, and of normal scores.
    partial_correlation_ : ndarray of shape (p, p)
        Of each pair of variables given all the others; ones on the diagonal.
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
        The number of pairs that are free; 0 for a penalty that does not trim.
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
    ``"mm"`` stops when the weighted problem whose weights are those of its own solution is solved to a
    relative duality gap of ``tol``; for MCP and SCAD, whose weights change without end, when its conditions
    hold within ``100 tol``. The other solvers stop when the root of the paper's T is below ``tol`` times the
    largest correlation. What did not stop so warns. :meth:`certificate` computes all of it again.

    The trimmed graphical lasso of Yang and Lozano (2015) is another method: it trims samples (outliers),
    where this one trims edges off the penalty.

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
        h=None,
        alpha="exact",
        *,
        penalty="trimmed_l1",
        covariance=None,
        kind="pearson",
        transform=None,
        assume_centered=False,
        standardize=False,
        shrinkage=0.0,
        penalty_factor=None,
        solver="mm",
        effort="medium",
        start="auto",
        warm_start=False,
        tol=1e-8,
        max_iter=None,
        random_state=None,
    ):
        self.h = h
        self.alpha = alpha
        self.penalty = penalty
        self.covariance = covariance
        self.kind = kind
        self.transform = transform
        self.assume_centered = assume_centered
        self.standardize = standardize
        self.shrinkage = shrinkage
        self.penalty_factor = penalty_factor
        self.solver = solver
        self.effort = effort
        self.start = start
        self.warm_start = warm_start
        self.tol = tol
        self.max_iter = max_iter
        self.random_state = random_state

    def fit(self, X, y=None):
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
            data = self._read(X)
            task = self._task(data, self._start())
            self._take(task.solve(), task, data)
        return self

    def _start(self):
        """The precision of the last fit, if a warm start is asked for and it can be one."""
        if not self.warm_start or not hasattr(self, "result_"):
            return None
        start = np.asarray(self.result_.precision, dtype=float)
        if start.shape[0] != self.n_features_in_ or np.linalg.eigvalsh(start)[0] <= 0:
            return None  # other variables, or not positive definite in float32
        return start

"""Graphical models over h and alpha, each from the solutions next to it."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import scipy.sparse as sp

from ...estimators import validation as check
from ...penalties import TrimmedL1
from ...selection.grid import alpha_grid, check_alphas, check_hs
from ...selection.progress import progress
from ...solvers import EFFORTS, many_fits
from ..edges import partial_correlations
from ..model import edge_penalty
from ..solver.solver import start_names
from ..task import GraphTask, check_safe_h, prepare_graph

DENSE_UP_TO = 1 << 28  # bytes of precision matrices; a path of more keeps them sparse
N_HS = 16  # sizes of "auto"
_TRIMMED_ALPHAS, _ALPHAS = 8, 20  # strengths of "auto", beside "exact" and without it
_EPS = 0.05  # the smallest of them, of the largest correlation


@dataclass
class GraphicalPath:
    """The fits of :func:`graphical_path`; the first two axes of every array are h and alpha.

    Attributes
    ----------
    hs : ndarray of int
        Rising.
    alphas : list of float or "exact"
        Falling; ``"exact"``, which is above any number, first.
    precisions : ndarray of shape (n_hs, n_alphas, p, p)
        Beyond 256 MB an array of objects of shape (n_hs, n_alphas), each a ``scipy.sparse.csr_array``.
    objectives, n_edges, dual_gaps, converged, alpha_values : ndarray of shape (n_hs, n_alphas)
        ``alpha_values`` has the number that ``"exact"`` stands for.
    """

    hs: np.ndarray
    alphas: list
    precisions: np.ndarray
    objectives: np.ndarray
    n_edges: np.ndarray
    dual_gaps: np.ndarray
    converged: np.ndarray
    alpha_values: np.ndarray

    def precision(self, i: int, j: int) -> np.ndarray:
        """The precision matrix of ``hs[i]`` and ``alphas[j]``, dense however it is kept."""
        one = self.precisions[i, j]
        return one.toarray() if sp.issparse(one) else one

    def edges(self) -> np.ndarray:
        """Which pairs are edges: bool, of shape (n_hs, n_alphas, p(p-1)/2), pairs i < j row by row."""
        return self.mapped(lambda one: one[np.triu_indices(len(one), 1)] != 0)

    def partial_correlations(self) -> np.ndarray:
        """Of shape (n_hs, n_alphas, p, p), as :func:`trimreg.plotting.path` takes them for one alpha."""
        return self.mapped(partial_correlations)

    def mapped(self, function) -> np.ndarray:
        """``function(precision)`` of every cell."""
        n_hs, n_alphas = self.objectives.shape
        return np.array([[function(self.precision(i, j)) for j in range(n_alphas)] for i in range(n_hs)])


def graphical_path(
    S,
    hs="auto",
    alphas="auto",
    *,
    penalty="trimmed_l1",
    penalty_factor=None,
    standardize=False,
    shrinkage=0.0,
    effort="medium",
    tol=1e-8,
    verbose=0,
) -> GraphicalPath:
    r"""Graphical models of a covariance matrix for every h and alpha.

    .. math:: \min_{\Theta \succ 0}\; \mathrm{tr}(S\Theta) - \log\det\Theta
              + 2 \alpha \sum_{k > h} |\theta|_{(k)}

    Parameters
    ----------
    S : array-like of shape (p, p)
        Covariance or correlation matrix.
    hs : "auto" or sequence of int or fractions, default="auto"
        How many edges go free. ``"auto"`` is :func:`edge_counts` up to 3p, or as many pairs as there are, or
        as leave the objective a minimum.
    alphas : "auto", "exact" or sequence, default="auto"
        ``"auto"`` is ``"exact"`` and 8 numbers (without ``"exact"`` 20, for penalties that do not trim) down
        from the least alpha at which no edge is in the graph with h = 0, to a twentieth of it.
    penalty, penalty_factor, standardize, shrinkage, tol
        As in :class:`~trimreg.TrimmedGraphicalLasso`. For penalties that do not trim ``hs`` stays "auto", and
        there is one row, of h = 0.
    effort : {"low", "medium", "high"}, default="medium"
        How hard every fit looks for the best free edges. Cells of the largest alpha take the solver's own
        starts beside those of their neighbours, with ``"high"`` all cells do.
    verbose : int, default=0
        1 shows a progress bar.

    Returns
    -------
    GraphicalPath

    Notes
    -----
    A cell starts from that of the next smaller h or of the next larger alpha, whichever leads lower. With
    p = 30, n = 100 and five alphas, on three kinds of graphs, 98 of 100 cells (low effort: 96) ended at most
    0.1 % above a fit of their own, many below it, in 0.4 of the time of single fits (low effort: 0.7).

    Examples
    --------
    >>> import numpy as np
    >>> from trimreg.selection import graphical_path
    >>> S = np.array([[1.0, 0.5, 0.25], [0.5, 1.0, 0.5], [0.25, 0.5, 1.0]])  # a chain: 0 - 1 - 2
    >>> path = graphical_path(S, hs=[0, 1, 2], alphas=["exact", 0.3])
    >>> path.n_edges
    array([[0, 2],
           [1, 2],
           [2, 2]])
    >>> path.precisions.shape, path.partial_correlations()[2, 0, 0].round(3)
    ((3, 2, 3, 3), array([1.   , 0.447, 0.   ]))
    """
    check.check_choice("effort", effort, EFFORTS)
    own = searched_penalty(penalty, penalty_factor)
    task = prepare_graph(
        S, penalty=own, alpha=1.0, standardize=standardize, shrinkage=shrinkage, tol=tol,
        options={"effort": effort},
    )  # fmt: skip
    hs, alphas = graph_grid(task, hs, alphas, [task.safe_h])
    with progress(hs.size * len(alphas), "fits", verbose) as advance:
        return solve_graph_path(task, hs, alphas, advance=advance)


# -- the grid ------------------------------------------------------------------------------------------


def searched_penalty(penalty, penalty_factor=None):
    """The penalty of a search, whose h is still open.

    Examples
    --------
    >>> from trimreg.graphs.selection.path import searched_penalty
    >>> searched_penalty("trimmed_l1")
    TrimmedL1(h=0)
    """
    own, is_open = edge_penalty(penalty, None, penalty_factor)
    if isinstance(own, TrimmedL1):
        if not is_open:
            raise ValueError(f"penalty must leave h None, for hs has its values; got {penalty!r}")
        own.h = 0
    return own


def edge_counts(largest: int, count: int = N_HS) -> np.ndarray:
    r"""About ``count`` sizes from 0 to ``largest``, denser at the small end: :math:`c\,(k / K)^2`.

    Examples
    --------
    >>> from trimreg.graphs.selection.path import edge_counts
    >>> edge_counts(90)
    array([ 0,  1,  2,  4,  6, 10, 14, 20, 26, 32, 40, 48, 58, 68, 78, 90])
    >>> edge_counts(6)
    array([0, 1, 2, 3, 4, 5, 6])
    """
    if largest < count:
        return np.arange(largest + 1)
    squares = largest * np.linspace(0.0, 1.0, count) ** 2
    return np.unique(np.maximum(np.round(squares).astype(int), np.minimum(np.arange(count), 2)))


def graph_grid(task: GraphTask, hs, alphas, safe):
    """The hs and alphas that the user's stand for; ``safe`` are the largest safe h of all problems to solve.

    An ``"auto"`` goes up to the least of them, an h of the user's beyond it is refused.
    """
    trimmed, p = task.problem.penalty.n_free is not None, task.problem.p
    kind = type(task.problem.penalty).__name__
    least = max(min(safe), 0)
    if not trimmed:
        if not (isinstance(hs, str) and hs == "auto"):
            raise ValueError(f"hs must be 'auto' with the penalty {kind}, which does not trim; got {hs!r}")
        hs = np.zeros(1, dtype=int)
    elif isinstance(hs, str) and hs == "auto":
        hs = edge_counts(min(3 * p, least, _n_regular(task)))
    else:
        of = "the number of pairs p(p-1)/2 ="
        hs = check_hs(hs, 2, p * (p - 1) // 2, of)  # the number of samples is for "auto"
        if hs[-1] > least < task.safe_h:
            raise ValueError(
                f"hs must be at most {least}, the largest h that is safe with the samples of every fit; got "
                f"{hs[-1]}. Fewer samples than variables leave the objective without a minimum for more free "
                "edges: use larger training sets, or add a ridge, such as shrinkage=0.05"
            )
        check_safe_h(int(hs[-1]), task.safe_h)
    alphas = check_alphas(alphas)
    if isinstance(alphas, str):  # "auto"
        largest = largest_alpha(task) * (1 + 1e-12)  # no entry by rounding
        numbers = alpha_grid(largest, _TRIMMED_ALPHAS if trimmed else _ALPHAS, _EPS).tolist()
        alphas = ["exact", *numbers] if trimmed else numbers
    elif "exact" in alphas and not trimmed:
        raise ValueError(f"alphas must be 'auto' or numbers with the penalty {kind}, which does not trim")
    elif alphas[-1] == 0 and least < _n_regular(task):
        raise ValueError("alphas must be above 0: without a penalty a singular covariance has no minimum")
    return hs, alphas


def _regular(task):
    """The factors of the pairs that are penalized and can be edges, and which these are."""
    factor = task.problem.penalty.levels(1.0)[: task.problem.n_edges]
    regular = (factor > 0) & np.isfinite(factor)
    return factor[regular], regular


def _n_regular(task) -> int:
    return int(np.count_nonzero(_regular(task)[1]))


def largest_alpha(task: GraphTask) -> float:
    """The least alpha at which the graphical lasso has no penalized edge, but for edges that are always free.

    Examples
    --------
    >>> import numpy as np
    >>> from trimreg.graphs.task import prepare_graph
    >>> from trimreg.graphs.selection.path import largest_alpha
    >>> largest_alpha(prepare_graph(np.array([[4.0, 1.0], [1.0, 1.0]]), penalty="l1", alpha=1.0))
    1.0
    """
    factor, regular = _regular(task)
    problem = task.problem
    return float(np.max(np.abs(problem.S[np.triu_indices(problem.p, 1)][regular]) / factor, initial=0.0))


# -- the fits ------------------------------------------------------------------------------------------


@many_fits()
def solve_graph_path(task: GraphTask, hs, alphas, *, advance=None) -> GraphicalPath:
    """The path of a checked task, column by column from the largest alpha, each from the smallest h."""
    dtype, task = task.dtype, replace(task, dtype=np.dtype(float))  # a start in float32 may be indefinite
    effort = task.options["effort"]
    trimmed = task.problem.penalty.n_free is not None
    own = start_names(task.problem, "auto", effort)
    with_own = replace(task, options=task.options | {"start": own}) if trimmed else task
    quick = replace(task, options=task.options | {"effort": "low"})
    cells = np.empty((len(hs), len(alphas)), dtype=object)
    thetas, before = [None] * len(hs), None
    for j, alpha in enumerate(alphas):
        for i, h in enumerate(hs):
            place = {"h": int(h) if trimmed else None, "alpha": alpha}
            start = thetas[i]
            if i and j:  # two neighbours: the search for better edges begins at the lower end
                ends = [quick.at(**place, start=theta).solve() for theta in (before, start)]
                start = task.theta(min(ends, key=lambda end: end.objective).precision)
            elif i:
                start = before
            whole = with_own if effort == "high" or j == 0 else task
            best = whole.at(**place, start=start).solve()
            thetas[i] = before = task.theta(best.precision)
            cells[i, j] = replace(best, covariance=None, weights=None, history={})
            if advance is not None:
                advance()
    return _collected(hs, alphas, cells, dtype)


def _collected(hs, alphas, cells, dtype) -> GraphicalPath:
    def collect(pick):
        return np.array([[pick(cell) for cell in row] for row in cells])

    p = cells[0, 0].precision.shape[0]
    if cells.size * p * p * dtype.itemsize <= DENSE_UP_TO:
        precisions = collect(lambda cell: cell.precision.astype(dtype))
    else:
        precisions = np.empty(cells.shape, dtype=object)
        for place, cell in np.ndenumerate(cells):
            precisions[place] = sp.csr_array(cell.precision.astype(dtype))
    return GraphicalPath(
        hs=np.asarray(hs),
        alphas=list(alphas),
        precisions=precisions,
        objectives=collect(lambda cell: cell.objective),
        n_edges=collect(lambda cell: np.count_nonzero(np.triu(cell.precision, 1))),
        dual_gaps=collect(lambda cell: cell.dual_gap),
        converged=collect(lambda cell: cell.converged),
        alpha_values=collect(lambda cell: cell.alpha),
    )

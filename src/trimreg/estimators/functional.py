"""The functional interface: ``solve`` runs a solver to its end, ``steps`` yields the result of each step."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from numpy.typing import ArrayLike

from ..designs.convert import to_host
from ..solvers import SolverResult, Step
from .task import Settings, check_data, minimize, set_up, shifted


def solve(
    X: Any,
    y: Any,
    *,
    loss: Any = "quadratic",
    penalty: Any,
    alpha: float | str,
    l2: float = 0.0,
    solver: str = "auto",
    fit_intercept: bool = False,
    standardize: bool = False,
    sample_weight: ArrayLike | None = None,
    offset: ArrayLike | None = None,
    theta0: ArrayLike | None = None,
    tol: float = 1e-6,
    max_iter: int | None = None,
    random_state: Any = None,
    positive: bool = False,
    lower: ArrayLike | None = None,
    upper: ArrayLike | None = None,
    n_outliers: int | float = 0,
    callback: Callable[[Step], Any] | None = None,
    **solver_options: Any,
) -> SolverResult:
    r"""Minimize a loss plus a penalty.

    .. math:: \min_{\theta, b}\; \sum_i d_i\, \ell(y_i, z_i'\theta + b + o_i)
              + \frac{l_2}{2} \sum_j f_j \theta_j^2 + P_\alpha(\theta),
              \qquad d_i = \text{sample weight} / \text{their sum},

    where z are the rows of X, with every column divided by its deviation if ``standardize``, f are the
    factors of the penalty, and o are offsets, 0 by default.

    Parameters
    ----------
    X : array-like or sparse matrix of shape (n_samples, n_features)
        float32 stays float32. C and Fortran order, read-only arrays and memory maps are used in place. X may
        also stay on disk (:class:`~trimreg.OnDisk`), on a cluster (a Dask array or DataFrame) or on a GPU (a
        torch tensor, a CuPy or JAX array).
    y : array-like of shape (n_samples,), or (n_samples, n_columns) for losses of several columns
    loss : str or loss object
        See :mod:`trimreg.losses`. With several outputs (multinomial, multi-task) ``coef`` has shape
        (n_outputs, n_features), and all coefficients of a feature are penalized together.
    penalty : str or penalty object
        ``TrimmedL1(h)``, ``L1()``, ``MCP(gamma)``, ``SCAD(gamma)``, ``SLOPE()``, or a name in
        ``trimreg.penalties.PENALTIES``. With ``groups=`` whole groups of features are penalized.
    alpha : float or "exact"
        ``"exact"`` (for the trimmed penalty) is just over the exact-penalty threshold: at most h coefficients
        (or groups) are nonzero, with any solver and also if it stops early.
    l2 : float
        The ridge term. It also shrinks coefficients that the trimmed penalty leaves free, which predicts
        better if many are kept or the signal is weak. With h = 0 the problem is the elastic net. Intercepts
        and parts with factor 0 have no ridge.
    solver : str
        A name in ``trimreg.solvers.SOLVERS``. ``"auto"`` is ``"mm"``, or ``"prox"`` for a penalty without
        weights such as SLOPE. ``"bcd"`` is the paper's Algorithm 1, and the others are there to compare with.
    fit_intercept, standardize : bool
    sample_weight : array-like of shape (n_samples,), optional
    offset : array-like of shape (n_samples,), optional
        A known part of the linear predictor, such as the logarithm of an exposure. Not for losses with one
        predictor per class.
    theta0 : array-like of shape (n_features,), optional
        Coefficients to start from, in the units of X.
    tol : float
        ``"mm"`` stops when no optimality condition is violated by more than ``tol`` times the largest
        gradient at 0 (for losses other than least squares, at the null model), for columns scaled to norm
        one. The other solvers stop when ``sqrt(T)`` is below it.
    max_iter : int, optional
        The largest number of steps: by default 1,000 for ``"mm"`` and 20,000 for the others.
    random_state : int, Generator or RandomState, optional
        Seed of the random kicks of ``"mm"``; None is the seed 0.
    positive : bool
        Whether to allow nonnegative coefficients only: ``lower=0``.
    lower, upper : float or array-like of shape (n_features,), optional
        Bounds :math:`l_j \le \theta_j \le u_j` of the coefficients, in the units of X; ``-inf`` and ``inf``
        are none. A coefficient that is penalized may be trimmed to 0, so 0 must be within its bounds; one
        with penalty factor 0 may have any. Not for groups or several outputs. Intercepts are never bounded.
    n_outliers : int, or float in (0, 1)
        The number (or fraction) of samples to leave out: those with the largest loss at the solution, listed
        in ``result.outliers``. See :mod:`trimreg.estimators.robust`.
    callback : callable, optional
        Called with every :class:`~trimreg.solvers.Step`; return True to stop.
    **solver_options
        Options of the solver, such as ``effort`` ("low", "medium", "high") for ``"mm"``. They are listed in
        ``trimreg.solvers.get_solver(name).options``.

    Returns
    -------
    SolverResult

    Notes
    -----
    Ctrl-C stops the solver: the best point so far is returned with
    ``converged=False``, a message that begins with "interrupted", and a ``ConvergenceWarning``. Estimators do
    the same. Before the first step is done, and in fits that are part of a search or a resampling, Ctrl-C
    raises ``KeyboardInterrupt`` as usual, and an estimator keeps its earlier state. So does a second Ctrl-C
    within two seconds: it stops loops over fits outside the library, such as scikit-learn's ``GridSearchCV``.
    A fit in a coroutine stops at its next step: ``asyncio.run`` answers Ctrl-C by cancelling its task.

    Examples
    --------
    >>> import numpy as np
    >>> from trimreg import TrimmedL1, solve
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((100, 20))
    >>> y = 3 * X[:, 4] - 2 * X[:, 7] + 0.1 * rng.standard_normal(100)
    >>> result = solve(X, y, penalty=TrimmedL1(h=2), alpha="exact")
    >>> np.flatnonzero(result.coef), result.coef[[4, 7]].round(1), result.swap_optimal
    (array([4, 7]), array([ 3., -2.]), True)
    """
    settings, y = shifted(Settings.of(locals(), options=solver_options), to_host(y), offset)
    return minimize(check_data(X, y, sample_weight, settings), settings, theta0, callback)[0]


def steps(
    X: Any,
    y: Any,
    *,
    loss: Any = "quadratic",
    penalty: Any,
    alpha: float | str,
    l2: float = 0.0,
    solver: str = "auto",
    fit_intercept: bool = False,
    standardize: bool = False,
    sample_weight: ArrayLike | None = None,
    offset: ArrayLike | None = None,
    theta0: ArrayLike | None = None,
    tol: float = 1e-6,
    random_state: Any = None,
    positive: bool = False,
    lower: ArrayLike | None = None,
    upper: ArrayLike | None = None,
    **solver_options: Any,
) -> Iterator[SolverResult]:
    """Yield the result of :func:`solve` after each of its steps.

    Takes the arguments of :func:`solve` except ``max_iter``, ``n_outliers`` and ``callback``: the caller
    decides when to stop. Stationarity is computed at every step. A step may have more than h nonzeros, even
    with ``alpha="exact"``.

    Examples
    --------
    >>> import numpy as np
    >>> from trimreg import TrimmedL1, steps
    >>> X, y = np.eye(3), np.array([5.0, 2.0, -1.0])
    >>> stepper = steps(X, y, penalty=TrimmedL1(h=1), alpha=0.5, solver="bcd")
    >>> first, second = next(stepper), next(stepper)
    >>> second.objective < first.objective
    True
    """
    settings, y = shifted(Settings.of(locals(), options=solver_options), to_host(y), offset)
    task = set_up(check_data(X, y, sample_weight, settings), settings, theta0, overlap=True)
    return (
        task.result(step, count, {"objective": [float(step.objective)]})
        for count, step in enumerate(task.steps(), 1)
    )

"""The functional entry point: data in, :class:`~trimreg.solvers.SolverResult` out."""

from __future__ import annotations

from collections.abc import Iterator

from ..losses import get_loss
from ..solvers import SolverResult
from . import validation as check
from .robust import solve_without_outliers
from .task import Task, prepare, solve_task


def solve(
    X,
    y,
    *,
    loss="quadratic",
    penalty,
    alpha,
    solver="mm",
    fit_intercept=False,
    standardize=False,
    sample_weight=None,
    theta0=None,
    tol=1e-6,
    max_iter=None,
    random_state=None,
    positive=False,
    n_outliers=0,
    callback=None,
    **solver_options,
) -> SolverResult:
    r"""Minimize a loss with a penalty.

    .. math:: \min_{\theta, b}\; \sum_i d_i\, \ell(y_i, z_i'\theta + b) + P_\alpha(\theta),
              \qquad d_i = \text{sample weight} / \text{their sum},

    where z are the rows of X, each column divided by its deviation if ``standardize``.

    Parameters
    ----------
    X : array-like or sparse matrix of shape (n_samples, n_features)
        float32 stays float32; C or Fortran order, read-only arrays and memory maps are used in place. Or a
        matrix that stays on disk (:class:`~trimreg.OnDisk`), on a cluster (a Dask array or DataFrame) or on a
        GPU (a torch tensor, a CuPy or JAX array).
    y : array-like of shape (n_samples,), or (n_samples, n_columns) for losses of a matrix
    loss : str or loss object
        See :mod:`trimreg.losses`. With several outputs (multinomial, multi-task) ``coef`` is (n_outputs,
        n_features), and the coefficients of a feature are penalized together.
    penalty : str or penalty object
        ``TrimmedL1(h)``, ``L1()``, ``MCP(gamma)``, ``SCAD(gamma)``, ``SLOPE()``, or a name in
        ``trimreg.penalties.PENALTIES``. With ``groups=`` whole groups of features are penalized.
    alpha : float or "exact"
        ``"exact"`` (trimmed penalty) is just over the exact-penalty threshold: then at most h coefficients
        (or groups) are nonzero, whatever the solver and also if it is cut short.
    solver : {"mm", "bcd", "dc", "prox"}
        The default solver; the paper's Algorithm 1; the DC baseline; proximal gradient.
    fit_intercept, standardize : bool
    sample_weight : array-like of shape (n_samples,), optional
    theta0 : array-like of shape (n_features,), optional
        Coefficients to start from, in the units of X.
    tol : float
        ``"mm"`` stops when no optimality condition is violated by more than ``tol`` times the largest
        gradient at 0 (at the null model if the loss is not quadratic; columns scaled to norm one); the others
        when ``sqrt(T)`` is below it.
    max_iter : int, optional
        Steps; by default 1,000 for ``"mm"`` and 20,000 for the others.
    random_state : int, Generator or RandomState, optional
        Seed of the kicks of ``"mm"``; None is the seed 0.
    positive : bool
        Whether to require coefficients that are not negative.
    n_outliers : int, or float in (0, 1)
        How many samples (or which fraction of them) to leave out: those of largest loss at the solution,
        ``result.outliers``. See :mod:`trimreg.estimators.robust`.
    callback : callable, optional
        Called with every :class:`~trimreg.solvers.Step`; return True to stop.
    **solver_options
        ``effort`` ("low", "medium", "high") for ``"mm"``; ``w0``, ``eta``, ``tau``,
        ``record_stationarity`` for ``"bcd"``; ``eta``, ``ties`` for ``"dc"``; ``eta``, ``accelerate`` for
        ``"prox"``.

    Returns
    -------
    SolverResult

    Notes
    -----
    Ctrl-C ends the solver after its first step: the best point so far is returned, with ``converged=False``,
    a message that begins with "interrupted", and a ``ConvergenceWarning``. Estimators do the same. Before
    the first step, and in fits that are part of a search or a resampling, Ctrl-C is a ``KeyboardInterrupt``
    as usual, and an estimator stays as it was. So is a second Ctrl-C within two seconds: it stops loops over
    fits that the library does not know of, such as scikit-learn's ``GridSearchCV``.

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
    return solve_with_task(
        X, y, loss=loss, penalty=penalty, alpha=alpha, solver=solver, fit_intercept=fit_intercept,
        standardize=standardize, sample_weight=sample_weight, theta0=theta0, tol=tol, max_iter=max_iter,
        random_state=random_state, positive=positive, n_outliers=n_outliers, callback=callback,
        **solver_options,
    )[0]  # fmt: skip


def solve_with_task(
    X, y, *, loss="quadratic", penalty, alpha, solver="mm", fit_intercept=False, standardize=False,
    sample_weight=None, theta0=None, tol=1e-6, max_iter=None, random_state=None, positive=False, n_outliers=0,
    callback=None, **solver_options,
) -> tuple[SolverResult, Task]:  # fmt: skip
    """:func:`solve`, and the problem in the solver's coordinates that its result is the solution of.

    Samples that were left out have weight 0 there, and columns may be on another scale.
    """
    arguments = {
        "loss": loss, "penalty": penalty, "alpha": alpha, "solver": solver, "fit_intercept": fit_intercept,
        "standardize": standardize, "sample_weight": sample_weight, "theta0": theta0, "tol": tol,
        "max_iter": max_iter, "random_state": random_state, "positive": positive, "options": solver_options,
    }  # fmt: skip
    if check.is_zero(n_outliers):
        task = prepare(X, y, **arguments)
        return solve_task(task, callback), task
    X = check.check_near(X, "n_outliers", "leave n_outliers at 0")
    X = check.check_matrix(X)  # here and not at every fit
    y = check.check_target(y, X.shape[0], matrix=get_loss(loss).matrix_target)
    result = solve_without_outliers(X, y, n_outliers, callback, **arguments)
    kept = check.check_sample_weight(sample_weight, X.shape[0])
    kept[result.outliers] = 0.0
    return result, prepare(X, y, **arguments | {"sample_weight": kept})


def steps(
    X,
    y,
    *,
    loss="quadratic",
    penalty,
    alpha,
    solver="mm",
    fit_intercept=False,
    standardize=False,
    sample_weight=None,
    theta0=None,
    tol=1e-6,
    random_state=None,
    positive=False,
    **solver_options,
) -> Iterator[SolverResult]:
    """The steps of :func:`solve`, one at a time: a generator of results as they stand.

    Takes the arguments of :func:`solve` but ``max_iter`` and ``callback``: the caller decides when to stop.
    The stationarity of a result is computed for every step. A step may have more than h nonzeros, also with
    ``alpha="exact"``.

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
    task = prepare(
        X, y, loss=loss, penalty=penalty, alpha=alpha, solver=solver, fit_intercept=fit_intercept,
        standardize=standardize, sample_weight=sample_weight, theta0=theta0, tol=tol, max_iter=None,
        random_state=random_state, positive=positive, options=solver_options,
    )  # fmt: skip
    return (
        task.result(step, count, {"objective": [float(step.objective)]})
        for count, step in enumerate(task.steps(), 1)
    )

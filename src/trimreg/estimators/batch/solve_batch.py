"""Many small problems in one call: the paper's Algorithm 1 for all of them at once, on a CPU or a GPU."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ...designs.convert import to_host
from ...losses import LOSSES
from ...losses.base import namespace
from ...penalties import TrimmedL1, count_from, subgradient_residual
from ...penalties.simplex import distance_to_optimal_weights, project_rows
from ...solvers import Step
from ...solvers.first_order.arrays import GramBatch, SampleBatch, on_host, to_numpy
from ...solvers.first_order.batch import Terms, run_batch
from .. import validation as check
from ..task import Settings, check_data, set_up
from .batch_input import BatchData, as_batch, moments

FORMS = ("auto", "samples", "gram")
_HOST_BYTES = 8 << 20  # matrices that one step reads: on a CPU they should stay in its cache
_DEVICE_SHARE = 0.25  # share of the free memory of a device


@dataclass
class BatchResult:
    """The outcome of :func:`solve_batch`: NumPy arrays with one entry or row per problem.

    Attributes
    ----------
    coef : ndarray of shape (n_problems, n_features)
        Coefficients, in the units of X.
    intercept : ndarray of shape (n_problems,)
    weights : ndarray of shape (n_problems, n_features)
        The trimming weights w: 0 free, 1 penalized, fractions between.
    objective : ndarray of shape (n_problems,)
        ``F`` at the solution, in the scaling that was solved.
    stationarity : ndarray of shape (n_problems,)
        The paper's T at ``(theta, w)``, recomputed from the samples at the end.
    n_iter : ndarray of int of shape (n_problems,)
        Steps taken; 0 for a problem that was not started because of Ctrl-C.
    converged : ndarray of bool of shape (n_problems,)
    alpha : ndarray of shape (n_problems,)
        The values used.
    message : str
        How many problems have converged.
    theta : ndarray of shape (n_problems, n_features)
        The solutions in the scaling that was solved.
    """

    coef: np.ndarray
    intercept: np.ndarray
    weights: np.ndarray
    objective: np.ndarray
    stationarity: np.ndarray
    n_iter: np.ndarray
    converged: np.ndarray
    alpha: np.ndarray
    message: str = ""
    theta: np.ndarray = field(default_factory=lambda: np.zeros((0, 0)), repr=False)

    @classmethod
    def empty(cls, count: int, p: int) -> BatchResult:
        """Of problems that were not started."""
        coef, weights, theta = np.zeros((3, count, p))
        objective, stationarity, alpha = np.full((3, count), np.nan)
        steps, converged = np.zeros(count, dtype=np.int64), np.zeros(count, dtype=bool)
        return cls(
            coef, np.zeros(count), weights, objective, stationarity, steps, converged, alpha, theta=theta
        )


def solve_batch(
    X: Any,
    y: Any,
    *,
    h: Any,
    alpha: Any,
    l2: float = 0.0,
    loss: str = "quadratic",
    fit_intercept: bool = False,
    standardize: bool = False,
    sample_weight: Any = None,
    theta0: Any = None,
    tol: float = 1e-6,
    max_iter: int = 20_000,
    eta: ArrayLike | None = None,
    tau: ArrayLike = 1.0,
    form: str = "auto",
    batch_size: int | None = None,
    advance: Callable[[int], object] | None = None,
) -> BatchResult:
    r"""Algorithm 1 for many problems with the trimmed l1 penalty at once; for b = 1, ..., B

    .. math:: \min_{\theta_b, \beta_b, w_b \in S_b}\; \sum_i d_{bi}\,
              \ell(y_{bi}, z_{bi}'\theta_b + \beta_b) + \frac{l_2}{2} \|\theta_b\|^2
              + \alpha_b \sum_j w_{bj} |\theta_{bj}|, \qquad
              S_b = \{0 \le w \le 1,\ 1'w = p - h_b\}.

    Each problem gets the answer of ``solve(..., solver="bcd", record_stationarity=False)`` after the same
    number of steps, up to rounding. The arithmetic is in float64.

    An argument that is given once is shared by all problems. So a single X serves a path (``alpha`` or ``h``
    a sequence), folds (``sample_weight`` with one row per fold, 0 for the samples left out), a bootstrap
    (``sample_weight`` with one row of counts per draw), or many responses (``y`` with one row each).

    PyTorch tensors on a GPU are solved there: many problems then cost little more than one. On a CPU a batch
    of problems of shape (160, 256) is about three times as fast as ``solve`` in a loop, and the gain is
    larger for smaller problems (``python -m benchmarks batched``). ``solver="mm"`` of :func:`trimreg.solve`
    needs far fewer steps.

    Parameters
    ----------
    X : array of shape (n_problems, n_samples, n_features) or (n_samples, n_features), or list of matrices
        NumPy or PyTorch. The matrices of a list may have different numbers of samples.
    y : array of shape (n_problems, n_samples) or (n_samples,), or list of vectors
    h : int, float in (0, 1) or None, or a sequence of n_problems of them
        How many coefficients (or which fraction of them) carry no penalty.
    alpha : float, "exact", or a sequence of n_problems numbers
    l2 : float
        The ridge term, the same for all problems.
    loss : {"quadratic", "logistic"}
    fit_intercept, standardize : bool
    sample_weight : array of shape (n_problems, n_samples) or (n_samples,), optional
    theta0 : array of shape (n_problems, n_features) or (n_features,), optional
        Coefficients to start from, in the units of X.
    tol : float
        A problem is done when the bound of ``sqrt(T)`` from the proof of Theorem 3 is at most ``tol`` times
        the largest gradient at 0.
    max_iter : int
        Largest number of steps per problem.
    eta, tau : float or sequence of n_problems numbers
        The steps in theta and in w. ``eta`` is ``1/L_f`` by default.
    form : {"auto", "samples", "gram"}
        Whether a step multiplies by X and its transpose, or (least squares only) by Gram matrices that are
        computed first. "auto" takes the one that should be faster.
    batch_size : int, optional
        Number of problems solved at a time. The default fits the cache of a CPU, or a quarter of the free
        memory of a GPU.
    advance : callable, optional
        Called with the number of problems that have ended since its last call, for a progress bar.

    Returns
    -------
    BatchResult
        Ctrl-C ends the call and returns the current state: ``converged`` is False for problems that were not
        done, and ``n_iter`` is 0 for those not started.

    Examples
    --------
    >>> import numpy as np
    >>> from trimreg import solve_batch
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((3, 50, 8))
    >>> y = 3 * X[:, :, 4] - 2 * X[:, :, 7] + 0.1 * rng.standard_normal((3, 50))
    >>> result = solve_batch(X, y, h=2, alpha=0.5)
    >>> result.coef[:, [4, 7]].round(1), result.converged
    (array([[ 3., -2.],
           [ 3., -2.],
           [ 3., -2.]]), array([ True,  True,  True]))

    A bootstrap of the first problem:

    >>> counts = rng.multinomial(50, np.full(50, 1 / 50), size=200)
    >>> draws = solve_batch(X[0], y[0], h=2, alpha=0.5, sample_weight=counts)
    >>> draws.coef.shape, float(draws.coef[:, 4].std().round(2))
    ((200, 8), 0.01)
    """
    data = as_batch(X, y, sample_weight, h=h, alpha=alpha, theta0=theta0, eta=eta, tau=tau)
    check.check_choice("loss", loss, [name for name, kind in LOSSES.items() if kind.array_agnostic])
    check.check_number("max_iter", max_iter, 1, integral=True)
    settings = Settings(
        loss=loss, penalty="l1", alpha=alpha if isinstance(alpha, str) else 0.0, l2=l2, solver="bcd",
        fit_intercept=fit_intercept, standardize=standardize, tol=tol, max_iter=max_iter,
    )  # fmt: skip
    model = _model(data, settings, h, alpha, eta, tau)
    check.check_choice("form", form, FORMS)
    if form == "gram" and not settings.loss.least_squares:
        raise ValueError(f"form='gram' is for loss='quadratic'; with loss {loss!r} use form='samples'")
    form = _form(data, settings.loss) if form == "auto" else form
    if batch_size is None:
        batch_size = _batch_size(data, form)
    size = check.check_number("batch_size", batch_size, 1, integral=True)
    result = BatchResult.empty(data.count, data.p)
    interrupted = False
    for start in range(0, data.count, size):
        part = slice(start, min(start + size, data.count))
        try:
            interrupted = _solve_part(data, model, form, part, result, advance)
        except RuntimeError as error:
            if type(error).__name__ != "OutOfMemoryError":
                raise
            raise MemoryError(
                f"{part.stop - part.start} problems at a time do not fit on {data.X.device}: give a smaller "
                f"batch_size, such as {max(1, size // 4)}"
            ) from None
        except KeyboardInterrupt:
            if start == 0:
                raise  # nothing to return yet
            interrupted = True
        if interrupted:
            break
    result.message = f"{np.count_nonzero(result.converged)} of {data.count} problems have converged"
    if not result.converged.all():
        _warn(result, interrupted)
    return result


_LARGEST = 1e140  # squares of entries of X, and steps of their inverse size, neither overflow nor vanish


@dataclass(frozen=True)
class _Model:
    """The checked arguments: the settings that the problems share, and arrays with one entry for each."""

    settings: Settings
    h: np.ndarray
    alpha: np.ndarray | str
    eta: np.ndarray | None
    tau: np.ndarray


def _model(data, settings, h, alpha, eta, tau):
    settings.loss.check_target(to_numpy(data.y).ravel())
    counts = h if np.ndim(h) else [h]
    counts = np.array([count_from(one, data.p) for one in np.array(counts, dtype=object).tolist()])
    alpha = alpha if isinstance(alpha, str) else _numbers("alpha", alpha, data.count, strict=False)
    eta = None if eta is None else _numbers("eta", eta, data.count)
    return _Model(settings, np.broadcast_to(counts, data.count), alpha, eta, _numbers("tau", tau, data.count))


def _numbers(name, value, count, strict=True):
    """One number per problem."""
    values = [check.check_number(name, one, 0.0, strict=strict) for one in np.ravel(to_host(value)).tolist()]
    return np.broadcast_to(np.array(values, dtype=float), count)


def _form(data: BatchData, loss):
    if not loss.least_squares:
        return "samples"
    n, p = data.n, data.p
    if data.same_matrix:  # one Gram matrix for all
        return "gram" if p <= 4 * n else "samples"
    # A shared X allows one product of matrices per step; separate Gram matrices must all be read.
    return "gram" if (4 * p <= n if data.X.ndim == 2 else p <= 2 * n) else "samples"


def _batch_size(data: BatchData, form):
    n, p = data.n, data.p
    matrix = 0 if data.same_matrix else p * p if form == "gram" else 0 if data.X.ndim == 2 else n * p
    each = 8 * (matrix + 4 * n + 24 * p)
    if on_host(data.X):
        return max(8, (_HOST_BYTES if matrix else 16 * _HOST_BYTES) // each)
    each += 8 * n * p  # for the copies of X behind Gram matrices and eigenvalues
    free = 1 << 30
    if data.X.device.type == "cuda":
        free = namespace(data.X).cuda.mem_get_info(data.X.device)[0]
    return max(1, int(_DEVICE_SHARE * free) // each)


def _solve_part(data, model, form, part, result, advance):
    """Solve some problems and fill their rows of ``result``; returns whether Ctrl-C stopped it."""
    batch, mean_y, norms = _problems(data, model, part)
    xp, p = namespace(data.X), data.p
    alpha = model.alpha[part] if norms is None else _exact_alpha(batch, norms)
    theta = _start(data, batch, part)
    terms, steps = _terms(data, model, form, batch, alpha, part, theta)
    w = terms.total / p * xp.ones_like(theta[:, :p])
    limit = model.settings.max_iter
    with np.errstate(over="ignore", invalid="ignore"):  # a violation of inf is not below the goal
        end = run_batch(steps, theta, w, terms, project=project_rows, max_iter=limit, advance=advance)
    theta, w = end.theta, end.w
    if norms is not None:
        theta, w = _at_most_h(data, model, part, end)
    result.n_iter[part], result.converged[part] = to_numpy(end.n_iter), to_numpy(end.converged)
    result.alpha[part] = alpha
    _fill(result, part, batch, theta, w, terms, mean_y)
    return end.interrupted


def _problems(data, model, part):
    """The batch, the means that were subtracted from y, and the column norms if alpha is "exact"."""
    X, y, d = data.arrays(part)
    xp, exact, settings = namespace(X), isinstance(model.alpha, str), model.settings
    quadratic, center = settings.loss.least_squares, settings.fit_intercept
    size = float(xp.amax(xp.abs(X)))
    if not settings.standardize and size != 0 and not 1 / _LARGEST < size < _LARGEST:
        raise ValueError(
            f"X must have a largest entry between {1 / _LARGEST:g} and {_LARGEST:g} unless standardize=True; "
            f"got {size:g}"
        )
    offset = inverse_scale = norms = None
    if center or settings.standardize or exact:
        offset, inverse_scale, norms = moments(X, d, center, settings.standardize, data.same_matrix)
    mean_y = xp.zeros_like(y[:, 0])
    if center and quadratic:
        mean = (d * y).sum(-1)[:, None]
        mean = mean + (d * (y - mean)).sum(-1)[:, None]
        target = y - mean
        spread = xp.amax(xp.abs(xp.where(d > 0, target, 0.0)), -1)[:, None]
        # exact zeros where y is constant but for rounding of its mean
        y = xp.where(spread <= 10 * np.finfo(float).eps * xp.abs(mean), 0.0, target)
        mean_y = mean[:, 0]
    constant = center and not quadratic
    batch = SampleBatch(X, y, d, settings.loss, offset, inverse_scale, constant, settings.l2)
    return batch, mean_y, norms if exact else None


def _start(data, batch, part):
    """The starting points in the solver's scale: the null model by default."""
    xp, p = namespace(data.X), data.p
    theta = data.like(np.zeros((batch.y.shape[0], batch.width)))
    if batch.constant:
        rows = zip(to_numpy(batch.y), to_numpy(batch.d), strict=True)
        theta[:, p] = data.like(np.array([batch.loss.null_predictor(y, d) for y, d in rows]))
    start, scale = data.start(part), batch.inverse_scale
    if start is None:
        return theta
    if scale is not None:
        start = xp.where(scale > 0, start / xp.where(scale > 0, scale, 1.0), 0.0)
    theta[:, :p] = start
    return theta


def _terms(data, model, form, batch, alpha, part, theta):
    """The parameters of the problems, and the batch in the form that steps use."""
    xp = namespace(theta)

    def column(values):
        return data.like(np.array(values, dtype=float))[:, None]

    one = batch.take(slice(0, 1)) if data.same_matrix else batch
    steps, gram = batch, None
    if form == "gram":
        gram = one.gram()
        c = batch.transposed(batch.d * batch.y)
        steps = GramBatch(gram.gram[0] if data.same_matrix else gram.gram, c)
    total = column(data.p - model.h[part])
    if model.eta is not None:
        eta = column(model.eta[part])
    else:
        smaller = gram if gram is not None and data.p <= data.n else one
        eta = xp.ones_like(total) / smaller.lipschitz()[:, None]
    scale = xp.amax(xp.abs(batch.gradient(xp.zeros_like(theta))), -1)[:, None]
    goal = max(model.settings.tol, 50 * np.finfo(float).eps) * xp.where(scale > 0, scale, 1.0)
    return Terms(column(alpha), total, eta, column(model.tau[part]), goal), steps


def _exact_alpha(batch, norms):
    """Just over the threshold above which every local minimum has at most h nonzeros."""
    largest = to_numpy(namespace(norms).amax(norms, -1))
    rows = zip(to_numpy(batch.y), to_numpy(batch.d), strict=True)
    slopes = np.array([batch.loss.slope_bound(y, d) for y, d in rows])
    alpha = slopes * largest * (1 + 1e-6)
    return np.where(alpha > 0, alpha, 1.0)  # if it is 0, any positive number will do


def _at_most_h(data, model, part, end):
    """The solutions; those with more nonzeros than ``alpha="exact"`` allows are continued by MM.

    Algorithm 1 may end at fractional weights, at a point that is stationary but not a local minimum.
    """
    nonzeros = to_numpy((end.theta[:, : data.p] != 0).sum(-1))
    for row in np.flatnonzero(nonzeros > model.h[part]):
        here = slice(part.start + int(row), part.start + int(row) + 1)
        X, y, d = (to_numpy(array) for array in data.arrays(here))
        settings = replace(model.settings, penalty=TrimmedL1(int(model.h[here][0])))
        task = set_up(check_data(X if X.ndim == 2 else X[0], y[0], d[0], settings), settings)
        step = task.at_most_h(Step(to_numpy(end.theta[row]), None, 0.0))
        end.theta[row] = data.like(step.theta)
        end.w[row] = data.like(step.weights[: data.p])
    return end.theta, end.w


def _fill(result, part, batch, theta, w, terms, mean_y):
    """The rows of the result in the user's units, with certificates from the samples."""
    xp, p = namespace(theta), w.shape[1]
    r = xp.abs(theta[:, :p])
    optimal = distance_to_optimal_weights(terms.alpha * r, w)
    gradient, value = to_numpy(batch.gradient(theta)), to_numpy(batch.values(theta))
    scale = xp.ones_like(r) if batch.inverse_scale is None else batch.inverse_scale
    coef = theta[:, :p] * scale
    intercept = mean_y if batch.offset is None else mean_y - (batch.offset * coef).sum(-1)
    intercept = intercept + theta[:, p] if batch.constant else intercept
    theta, w, alpha = to_numpy(theta), to_numpy(w), to_numpy(terms.alpha)
    threshold = np.zeros_like(theta)
    threshold[:, :p] = alpha * w
    residual = subgradient_residual(theta, gradient, threshold)
    ordered = np.sort(np.abs(theta[:, :p]), axis=1)
    penalized = np.arange(p) < to_numpy(terms.total)
    result.theta[part], result.coef[part] = theta[:, :p] + 0.0, to_numpy(coef) + 0.0  # no -0.0
    result.intercept[part], result.weights[part] = to_numpy(intercept), w
    result.objective[part] = value + alpha[:, 0] * (ordered * penalized).sum(axis=1)
    result.stationarity[part] = (residual**2).sum(axis=1) + to_numpy(optimal)


def _warn(result, interrupted):
    from sklearn.exceptions import ConvergenceWarning

    first = int(np.argmin(result.converged))
    if interrupted:
        text = f"interrupted: {result.message}; the others were not done or not started"
    else:
        text = (
            f"{result.message} (the first that has not is problem {first}, after {result.n_iter[first]} "
            "steps); increase max_iter or tol, or rescale the data"
        )
    warnings.warn(text, ConvergenceWarning, stacklevel=3)

r"""Certificates of global optimality: how far a trimmed fit is from the best possible."""

from __future__ import annotations

import json
import os
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from io import BytesIO
from itertools import chain
from numbers import Integral
from pathlib import Path
from typing import Any

import numpy as np
from joblib import effective_n_jobs
from numpy.typing import ArrayLike

from .._files import write_atomically
from ..diagnostics.bounds import FORMAT
from ..penalties import TrimmedL1
from ..solvers import SolverResult
from . import validation as check
from .task import Data, Settings, Task, check_data, minimize, set_up


@dataclass(repr=False)
class Certificate:
    """Bounds of the smallest objective of a trimmed problem, and the best point known.

    Attributes
    ----------
    lower, upper : float
        No point has a smaller objective than ``lower``; ``best`` has the objective ``upper``.
    gap : float
        ``(upper - lower) / |upper|``; 0 if the difference is below 1e-11 of the loss of the null model.
    proved : bool
        Whether the gap is at most the one asked for.
    nodes : int
    seconds : float
    best : SolverResult
        The best point known: the start, unless the search has found a better one.
    improved : bool
        Whether it has.
    screened : int
        The number of features (or groups) that were decided before any branching.
    history : dict of lists
        ``seconds``, ``lower``, ``upper`` and ``nodes``, whenever a bound has changed.
    message : str
    """

    lower: float
    upper: float
    gap: float
    proved: bool
    nodes: int
    seconds: float
    best: SolverResult
    improved: bool
    screened: int
    history: dict[str, list[float]]
    message: str
    _header: dict[str, Any] = field(default_factory=dict)
    _proof: Any = None

    def __repr__(self) -> str:
        return f"Certificate({self.message})"

    def content(self) -> dict[str, Any]:
        """The header and the arrays that :meth:`save` writes."""
        if self._proof is None or not self._proof.keep:
            raise ValueError("the certificate has no leaves: keep was False, or the tree too large")
        return {"header": self._header, "coef": np.asarray(self.best.coef, float), **_packed(self._proof)}

    def save(self, path: str | os.PathLike) -> Path:
        """Write the tree with its dual points to a file that :func:`trimreg.diagnostics.verify_certificate`
        and the command ``trimreg verify-certificate`` can check.

        Parameters
        ----------
        path : path-like
            By custom it ends in ``.npz``.
        """
        content = self.content()
        header = np.frombuffer(json.dumps(content.pop("header")).encode(), dtype=np.uint8)
        file = BytesIO()
        np.savez_compressed(file, header=header, **content)
        return write_atomically(path, file.getvalue())


def _packed(proof) -> dict[str, np.ndarray]:
    """The lists of a proof as flat arrays; those of unequal lengths with their ends."""
    none, entries, relaxations = np.empty(0, dtype=np.int64), proof.entries, proof.relaxations
    packed = {
        name: np.array([one[name] for one in entries]) for name in ("parent", "side", "branch", "relaxation")
    }
    packed["tau"] = np.array([one["tau"] for one in relaxations])
    ragged = {name: [one.get(name, none) for one in entries] for name in
              ("index", "value", "made_free", "made_not_free")}  # fmt: skip
    names = (("free", "free"), ("kept", "parts"), ("scale", "scale"))
    ragged |= {name: [one[key] for one in relaxations] for name, key in names}
    for name, arrays in ragged.items():
        packed[name] = np.concatenate(arrays) if arrays else none
        packed[name] = packed[name] if name in ("value", "scale") else packed[name].astype(np.int64)
        packed[name + "_end"] = np.cumsum([len(one) for one in arrays])
    return packed


def certify(
    X: Any,
    y: Any,
    *,
    h: int | float | None = None,
    alpha: float | str = "exact",
    l2: float = 0.0,
    loss: Any = "quadratic",
    groups: Any = None,
    penalty_factor: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
    fit_intercept: bool = True,
    standardize: bool = True,
    start: Any = None,
    time_limit: float = 60.0,
    gap: float = 1e-3,
    max_nodes: int = 100_000,
    keep: bool = True,
    n_jobs: int | None = None,
    verbose: int = 0,
) -> Certificate:
    r"""Bounds of the smallest objective of a trimmed problem, by branch and bound.

    .. math:: \min_{\theta, b}\; \sum_i d_i\, \ell(y_i, z_i'\theta + b)
              + \frac{l_2}{2} \sum_j f_j \theta_j^2 + \alpha \sum_{j > h} r_{(j)}

    as in :func:`trimreg.solve`. The lower bound comes from a dual point of every leaf of the tree, so it
    holds however well the search went.

    Parameters
    ----------
    X, y, sample_weight
        The data, in memory. X may be sparse, but its columns are used as a dense matrix: up to some thousand.
    h, alpha, l2, loss, groups, penalty_factor, fit_intercept, standardize
        As in :class:`~trimreg.TrimmedLasso`. The loss may be ``"quadratic"``, ``"logistic"``, ``"poisson"``,
        ``Huber(scale=...)``, or any that gives its conjugate. Losses other than least squares need ``l2 >
        0``. Least squares needs it only if the columns are close to dependent.
    start : fitted estimator or array-like of shape (n_features,), optional
        A fit of this problem, for the first upper bound. By default :func:`trimreg.solve` fits it.
    time_limit : float
        Seconds, at least 0. Ctrl-C ends the search too; the bounds reached by then are returned.
    gap : float
        The search ends when ``(upper - lower) / |upper|`` is at most this.
    max_nodes : int
        The largest number of open nodes in memory; beyond it the search goes on depth first.
    keep : bool
        Whether to keep the dual points of the leaves, so that the certificate can be saved and verified.
    n_jobs : int, optional
        Number of threads; -1 is one per core. By default one, with which the search is the same in every run.
    verbose : int
        1 shows bounds and nodes on standard error.

    Returns
    -------
    Certificate

    Notes
    -----
    With ``alpha="exact"`` the bound uses that at most h coefficients are nonzero, also for its curvature, see
    :mod:`trimreg.solvers.certify.relaxation`. It is strong where there are many samples per kept feature.

    Examples
    --------
    >>> import numpy as np, trimreg
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((100, 30))
    >>> y = 2 * X[:, 3] - X[:, 17] + 0.5 * rng.standard_normal(100)
    >>> certificate = trimreg.certify(X, y, h=3)
    >>> certificate.proved, certificate.gap <= 1e-3, np.flatnonzero(certificate.best.coef)
    (True, True, array([ 3,  8, 17]))
    """
    penalty = TrimmedL1(h, penalty_factor, groups=groups)
    settings = Settings(
        loss=loss, penalty=penalty, alpha=alpha, l2=l2, fit_intercept=fit_intercept, standardize=standardize
    )
    return certify_task(
        check_data(X, y, sample_weight, settings), settings, start, time_limit=time_limit, gap=gap,
        max_nodes=max_nodes, keep=keep, n_jobs=n_jobs, verbose=verbose,
    )[0]  # fmt: skip


def certify_task(
    data: Data, settings: Settings, start: Any = None, *, time_limit: float, gap: float, max_nodes: int,
    keep: bool, n_jobs: int | None, verbose: int,
) -> tuple[Certificate, Task]:  # fmt: skip
    """:func:`certify` for checked data and settings; also the task that it is about."""
    from ..solvers.certify.run import bound

    _check_limits(time_limit, gap, max_nodes)
    threads = _threads(n_jobs)
    task, theta = _started(data, settings, start)
    with _shown(verbose) as tell:
        found = bound(
            task.problem, theta, time_limit=time_limit, gap=gap, max_nodes=max_nodes, keep=keep,
            n_jobs=threads, callback=tell,
        )  # fmt: skip
    best = _result(task, found.theta)
    reached = relative_gap(found.lower, found.upper, found.rounding)
    proved = reached <= gap
    message = (
        f"{'proved' if proved else 'not proved'}: no fit is better by more than {100 * reached:.2g} %, "
        f"{found.nodes} node{'s' if found.nodes != 1 else ''}, {found.seconds:.1f} s"
        + (", interrupted" if found.interrupted else "")
    )
    names = ("seconds", "lower", "upper", "nodes")
    history = {
        name: list(values) for name, values in zip(names, zip(*found.history, strict=True), strict=True)
    }
    improved = found.upper < task.problem.objective(theta) - 1e-9 * abs(found.upper)
    certificate = Certificate(
        lower=found.lower, upper=found.upper, gap=reached, proved=proved, nodes=found.nodes,
        seconds=found.seconds, best=best, improved=bool(improved), screened=found.screened, history=history,
        message=message, _header=_header(task, settings, found, best), _proof=found.proof,
    )  # fmt: skip
    return certificate, task


def relative_gap(lower: float, upper: float, rounding: float = 0.0) -> float:
    """``(upper - lower) / |upper|``; 0 if the difference may be rounding."""
    distance = upper - lower
    if distance <= rounding:
        return 0.0
    return float(distance / abs(upper)) if upper != 0.0 else float("inf")


def _check_limits(time_limit, gap, max_nodes):
    check.check_number("time_limit", time_limit, 0.0)
    check.check_number("gap", gap, 0.0)
    check.check_number("max_nodes", max_nodes, 1, integral=True)


def _threads(n_jobs):
    if n_jobs is not None and (isinstance(n_jobs, bool) or not isinstance(n_jobs, Integral) or n_jobs == 0):
        raise ValueError(f"n_jobs must be None or an integer other than 0; got {n_jobs!r}")
    return effective_n_jobs(n_jobs)


def _started(data: Data, settings: Settings, start: Any) -> tuple[Task, np.ndarray]:
    """The task, and a local minimum of it: that of the start, or of the default solver."""
    settings.penalty.bind(data.X.shape[1])  # groups must not overlap
    if start is None:
        with warnings.catch_warnings():  # the certificate says how good the fit is
            warnings.filterwarnings("ignore", message=".*free coefficients are not determined")
            result, task = minimize(data, settings)
        return task, task.coordinates(result.coef, result.intercept)
    coef = np.asarray(getattr(start, "coef_", start), dtype=float)
    coef = coef[0] if coef.ndim == 2 and len(coef) == 1 else coef
    coef = check.check_vector("start", coef, data.X.shape[1], "feature")
    task = set_up(data, settings)
    penalty = task.problem.penalty
    lengths = penalty.norm.lengths(task.coordinates(coef, 0.0))
    count = np.count_nonzero(lengths[penalty.levels(1.0) > 0])
    if task.problem.alpha >= task.problem.exact_threshold() and count > penalty.n_free:
        raise ValueError(f"start must have at most h = {penalty.n_free} nonzero parts; got {count}")
    intercept = getattr(start, "intercept_", None)
    theta = task.coordinates(coef, None if intercept is None else float(np.ravel(intercept)[0]))
    *_, step = task.solver.iterate(task.problem, theta, tol=1e-9, effort="low")
    better = task.at_most_h(step).theta
    return task, min(better, theta, key=task.problem.objective)


def _result(task: Task, theta: np.ndarray) -> SolverResult:
    """A point of the task as a result of the solver."""
    from ..solvers import Step

    problem = task.problem
    weights = problem.weights(theta, problem.gradient(theta))
    step = Step(theta, weights, problem.objective(theta), converged=True, message="branch and bound")
    return task.result(step, 1, {"objective": [float(step.objective)]})


def _header(task, settings, found, best):
    """What a checker needs to set up the problem again."""
    problem, loss, penalty = task.problem, settings.loss, settings.penalty
    options = {"epsilon": loss.epsilon, "scale": loss.scale} if loss.name == "huber" else {}
    factor = penalty.penalty_factor
    groups = getattr(penalty, "groups", None)
    p = problem.design.features.shape[1]
    if groups is not None:
        from ..penalties.norms import partition

        groups = partition(groups, p).tolist()
    return {
        "format": FORMAT, "loss": loss.name, "loss_options": options, "h": int(problem.penalty.n_free),
        "alpha": float(problem.alpha), "l2": float(task.l2), "groups": groups, "q": str(penalty.q),
        "factor": None if factor is None else [str(float(one)) for one in np.asarray(factor)],
        "fit_intercept": bool(settings.fit_intercept), "standardize": bool(settings.standardize),
        "hard": bool(problem.alpha >= problem.exact_threshold()), "n_features": int(p),
        "n_samples": len(problem.y), "lower": float(found.lower), "upper": float(found.upper),
        "intercept": float(best.intercept),
    }  # fmt: skip


class _shown:
    """Gives a callback that shows the bounds and nodes: one line that changes, or a line now and then."""

    def __init__(self, verbose: int):
        check.check_number("verbose", int(verbose) if isinstance(verbose, bool) else verbose, 0)
        self.verbose, self.next, self.step = verbose, 0.0, 0.2 if sys.stderr.isatty() else 5.0

    def __enter__(self) -> Callable | None:
        return self._tell if self.verbose else None

    def _tell(self, reached):
        if reached.seconds < self.next and not reached.done:
            return
        self.next = reached.seconds + self.step
        share = relative_gap(reached.lower, reached.upper)
        line = (
            f"certify: {reached.lower:.6g} to {reached.upper:.6g}, gap {100 * share:.3g} %, "
            f"{reached.nodes} nodes, {reached.open} open, {reached.seconds:.0f} s"
        )
        end = "\r" if sys.stderr.isatty() else "\n"
        print(f"{line:<100}" if end == "\r" else line, end=end, file=sys.stderr, flush=True)

    def __exit__(self, *error) -> None:
        if self.verbose and sys.stderr.isatty():
            print(file=sys.stderr)


@dataclass(repr=False)
class NearBest:
    """All supports with nearly the best objective.

    Attributes
    ----------
    supports : list of ndarray
        The features (or groups) of each support, best first.
    objectives : ndarray
    complete : bool
        Whether no other support is within the limit.
    lower : float
        No support that is not listed has a smaller objective.
    in_all : ndarray of int
        Features (or groups) that are in every listed support.
    best : float
        The smallest objective.
    limit : float
        ``best + within |best|``.
    """

    supports: list[np.ndarray]
    objectives: np.ndarray
    complete: bool
    lower: float
    best: float
    limit: float
    nodes: int
    seconds: float

    @property
    def in_all(self) -> np.ndarray:
        common = set(chain.from_iterable(self.supports)).intersection(*map(set, self.supports))
        return np.array(sorted(common), dtype=np.intp)

    def __repr__(self) -> str:
        kind = "complete" if self.complete else f"others have at least {self.lower:.6g}"
        return f"NearBest({len(self.supports)} supports up to {self.limit:.6g}, {kind})"

    def to_frame(self) -> Any:
        """A pandas table with one row per support: its objective, its excess over the best, its features."""
        import pandas as pd

        excess = np.maximum(self.objectives - self.best, 0.0) / abs(self.best)
        features = [one.tolist() for one in self.supports]
        return pd.DataFrame({"objective": self.objectives, "excess": excess, "features": features})


def near_best(
    X: Any, y: Any, h: int | float | None = None, within: float = 0.01, *, l2: float = 0.0,
    loss: Any = "quadratic", groups: Any = None, penalty_factor: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None, fit_intercept: bool = True, standardize: bool = True,
    time_limit: float = 60.0, max_nodes: int = 100_000, n_jobs: int | None = None,
) -> NearBest:  # fmt: skip
    """All sets of h features whose fit is nearly as good as the best.

    Parameters
    ----------
    X, y, h, l2, loss, groups, penalty_factor, sample_weight, fit_intercept, standardize
        As in :func:`certify`, with ``alpha="exact"``.
    within : float
        The largest relative excess of the objective over the best, such as 0.01.
    time_limit, max_nodes, n_jobs
        As in :func:`certify`.

    Returns
    -------
    NearBest

    Examples
    --------
    >>> import numpy as np, trimreg
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((80, 12))
    >>> X[:, 1] = X[:, 0] + 0.05 * rng.standard_normal(80)
    >>> y = X[:, 0] + X[:, 5] + 0.5 * rng.standard_normal(80)
    >>> found = trimreg.near_best(X, y, h=2, within=0.05)
    >>> found.complete, [support.tolist() for support in found.supports], found.in_all
    (True, [[0, 5], [1, 5]], array([5]))
    """
    from ..solvers.certify.run import bound
    from ..solvers.certify.setup import Model

    check.check_number("within", within, 0.0)
    _check_limits(time_limit, 0.0, max_nodes)
    threads = _threads(n_jobs)
    settings = Settings(
        loss=loss, penalty=TrimmedL1(h, penalty_factor, groups=groups), alpha="exact", l2=l2,
        fit_intercept=fit_intercept, standardize=standardize,
    )  # fmt: skip
    task, theta = _started(check_data(X, y, sample_weight, settings), settings, None)
    found = bound(
        task.problem,
        theta,
        time_limit=time_limit,
        gap=-within,
        max_nodes=max_nodes,
        keep=False,
        n_jobs=threads,
    )
    model = Model(task.problem, found.theta)
    limit = model.upper + within * abs(model.upper)
    valued = sorted(((model.value(parts), np.sort(parts).tolist()) for _, parts in found.leaves))
    listed = [(value, support) for value, support in valued if value <= limit * (1 + 1e-12)]
    return NearBest(
        supports=[np.array(support, dtype=np.intp) for _, support in listed],
        objectives=np.array([value for value, _ in listed]),
        complete=found.closed, lower=limit if found.closed else min(found.open_bound, limit),
        best=model.upper, limit=limit, nodes=found.nodes, seconds=found.seconds,
    )  # fmt: skip

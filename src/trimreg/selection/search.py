"""One search over a grid of h and alpha, for linear models and for graphs.

A search needs two functions and knows nothing else about the model. ``fit(training)`` fits every cell of the
grid to the training samples of one part of the data and returns the surface of fits, in any form.
``score(surface, test)`` returns an array whose first two axes are h and alpha (a third may be l2): for
cross-validation one number per cell, greater is better. Both have to be picklable, because parts may run in
other processes.

``training`` and ``test`` are passed through as they are. Linear models pass indices of samples; graphs set up
the problem of each fold beforehand and pass that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import closing, nullcontext
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import numpy as np
from sklearn.model_selection import GroupKFold, StratifiedGroupKFold, check_cv
from sklearn.utils.parallel import Parallel, delayed

from ..estimators import validation as check
from ..solvers import many_fits
from ..solvers.driver import check_cancelled
from .criteria import CRITERIA
from .grid import RULES, choose
from .progress import progress


@dataclass(frozen=True, kw_only=True)
class Search:
    """How to choose a cell of the grid. The settings are checked on construction.

    ``criteria`` lists the values of ``criterion`` besides None, which stands for cross-validation; so does
    ``"cv"`` as the parameter of an estimator.
    """

    cv: Any = None
    rule: str = "min"
    criterion: str | None = None
    n_jobs: int | None = None
    verbose: int = 0
    criteria: Sequence[str] = CRITERIA

    def __post_init__(self) -> None:
        check.check_choice("rule", self.rule, RULES)
        check.check_choice("criterion", self.criterion, (None, "cv", *self.criteria))
        if self.criterion is not None and self.rule == "1se":
            raise ValueError("rule='1se' needs folds; with a criterion use rule='min'")
        if not isinstance(self.verbose, bool):
            check.check_number("verbose", self.verbose, 0)
        count = isinstance(self.n_jobs, Integral) and not isinstance(self.n_jobs, bool)
        if self.n_jobs is not None and (not count or self.n_jobs == 0):
            raise ValueError(f"n_jobs must be None or an integer other than 0; got {self.n_jobs!r}")

    @classmethod
    def of(cls, estimator: Any, criteria: Iterable[str] = CRITERIA) -> Search:
        """The search that an estimator's parameters ask for."""
        given = {name: getattr(estimator, name) for name in ("cv", "rule", "n_jobs", "verbose")}
        criterion = None if is_cv(estimator.criterion) else estimator.criterion
        return cls(**given, criterion=criterion, criteria=tuple(criteria))

    def folds(
        self,
        X: Any,
        y: Any,
        *,
        groups: Any = None,
        weights: np.ndarray | None = None,
        classifier: bool = False,
        classes: np.ndarray | None = None,
    ) -> list[tuple[np.ndarray, np.ndarray]]:
        """Indices of the training and test samples of every fold.

        Test samples of weight 0 are left out, and folds without test samples are dropped. A number of folds
        keeps ``groups`` together, and gives each fold its share of y for a classifier, or of ``classes`` if
        these have a sample for each. A splitter gets ``classes`` in place of y.
        """
        n = X.shape[0]
        if groups is not None and np.shape(groups) != (n,):
            shape = np.shape(groups)
            raise ValueError(f"cv_groups must have one group per sample, {n} in all; got shape {shape}")
        weights = np.ones(n) if weights is None else weights
        try:
            cv = 5 if self.cv is None else self.cv
            number = isinstance(cv, Integral)
            if classes is not None:
                y, classifier = classes, number and np.unique(classes, return_counts=True)[1].min() >= cv
            if number and groups is not None:
                cv = (StratifiedGroupKFold if classifier else GroupKFold)(cv)
            cv = check_cv(cv, y, classifier=classifier)
            folds = [(_rows(train, n), _rows(test, n)) for train, test in cv.split(X, y, groups)]
        except (TypeError, ValueError) as error:
            raise ValueError(f"cv must be a number of folds, a splitter or an iterable: {error}") from None
        if any(weights[train].sum() == 0 for train, _ in folds):
            raise ValueError("cv must give training samples of positive weight in every fold")
        folds = [(train, test[weights[test] > 0]) for train, test in folds if (weights[test] > 0).any()]
        needed = 2 if self.rule == "1se" else 1
        if len(folds) < needed:
            expected = f"at least {needed} folds with test samples of positive weight"
            raise ValueError(f"cv must give {expected}; got {len(folds)}")
        return folds

    def progress(self, total: int, label: str):
        """A context that gives ``advance``, to be called after each of ``total`` pieces of work."""
        return _reported(total, label, self.verbose)

    def over_parts(
        self, fit: Callable, score: Callable, parts: Iterable, *, label: str = "folds", shared: bool = False
    ) -> list[np.ndarray]:
        """``score(fit(training), test)`` for every part ``(training, test)``, in parallel."""
        tasks = [(fit, score, training, test) for training, test in parts]
        jobs = {"n_jobs": self.n_jobs, "verbose": self.verbose, "shared": shared}
        return parallel(_score_part, tasks, label=label, **jobs)

    def by_folds(
        self, fit: Callable, score: Callable, parts: Iterable, hs, alphas, *, repeats: float = 1.0,
        shared: bool = False,
    ) -> tuple[np.ndarray, tuple[int, ...]]:  # fmt: skip
        """Scores of shape (n_hs, n_alphas[, n_l2s], n_folds), and the indices of the cell that is chosen.

        ``repeats`` is :func:`times_tested` of the folds.
        """
        scores = np.stack(self.over_parts(fit, score, parts, shared=shared), axis=-1)
        return scores, choose(scores, hs, alphas, self.rule, repeats)

    def by_criterion(self, values: np.ndarray, hs, alphas) -> tuple[np.ndarray, tuple[int, ...]]:
        """The values, and the indices of the cell with the smallest one."""
        return values, choose(-values[..., None], hs, alphas)


def is_cv(criterion: Any) -> bool:
    """Whether this value of the parameter ``criterion`` stands for cross-validation."""
    return criterion is None or (isinstance(criterion, str) and criterion == "cv")


def times_tested(folds: Iterable[tuple[np.ndarray, np.ndarray]]) -> float:
    """How often the folds test a sample, on average over those that are tested at all: 1 for k folds."""
    tested = np.concatenate([test for _, test in folds])
    return tested.size / np.count_nonzero(np.bincount(tested))


def _score_part(fit, score, training, test):
    return np.asarray(score(fit(training), test))


def _rows(index, n):
    """Indices of samples, given as indices or as a mask."""
    index = np.asarray(index)
    if index.dtype == bool and index.shape == (n,):
        return np.flatnonzero(index)
    if index.ndim != 1 or index.dtype.kind not in "iu" or np.any((index < -n) | (index >= n)):
        raise ValueError(f"folds must hold indices of the {n} samples")
    return index % n


# -- work that takes a while -------------------------------------------------------------------------------


def parallel(
    function: Callable, tasks: Iterable[tuple], *, n_jobs=None, label: str = "", verbose=0, shared=False
) -> list:
    """``[function(*task) for task in tasks]``, run by joblib with a progress bar.

    The results are in the order of the tasks, so they do not depend on ``n_jobs``. Any joblib backend works:
    ``with joblib.parallel_config("dask"): ...``. With ``shared``, tasks run in threads, because their data
    cannot leave this process. On a ``KeyboardInterrupt`` no further task starts, and it is raised again.
    """
    tasks = list(tasks)
    with _reported(len(tasks), label, verbose) as advance:
        results = []
        jobs = Parallel(n_jobs=n_jobs, return_as="generator", require="sharedmem" if shared else None)
        with closing(jobs(delayed(_one_of_many)(function, *task) for task in tasks)) as outcomes:
            for result in outcomes:
                results.append(result)
                advance()
                check_cancelled()
    return results


def _one_of_many(function, *task):
    """``function(*task)`` in the worker; an interrupt is meant for all tasks."""
    with many_fits():
        return function(*task)


def _reported(total, label, verbose):
    """:func:`~trimreg.selection.progress.progress`, or nothing at all if ``verbose`` is 0."""
    return nullcontext(lambda count=1: None) if verbose == 0 else progress(total, label, verbose)

"""What the estimators share: checked input, the call of the solver, fitted attributes, a summary."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils.validation import check_is_fitted

from ...designs.convert import is_virtual, to_host
from ...penalties import TrimmedL1
from ...penalties.norms import partition
from ...solvers import EFFORTS, SolverResult, get_solver
from .. import validation as check
from ..order import FitDetails, fit_details
from ..summary import Summary, summarize
from ..task import Data, Settings, Task, check_data, minimize, shifted

if TYPE_CHECKING:
    from ..certificate import Certificate


class _Scored:
    """scikit-learn's score, with y and the weights fetched from a device or a cluster."""

    def score(
        self, X: Any, y: Any, sample_weight: ArrayLike | None = None, offset: ArrayLike | None = None
    ) -> float:
        """The score of the predictions: R^2 of a regressor, the share of correct classes of a classifier.

        They are :func:`sklearn.metrics.r2_score` and :func:`sklearn.metrics.accuracy_score`.

        Parameters
        ----------
        X, y, sample_weight, offset
            As in :meth:`fit`.

        Returns
        -------
        float
        """
        from sklearn.metrics import accuracy_score, r2_score

        metric = accuracy_score if isinstance(self, ClassifierMixin) else r2_score
        predicted = self.predict(X, offset=offset)  # type: ignore[attr-defined]
        return float(metric(to_host(y), predicted, sample_weight=to_host(sample_weight)))


class Regressor(_Scored, RegressorMixin):
    """A regressor that is scored by the share of the variance explained."""

    def score(
        self, X: Any, y: Any, sample_weight: ArrayLike | None = None, offset: ArrayLike | None = None,
        exposure: ArrayLike | None = None,
    ) -> float:  # fmt: skip
        """The share of the variance of y that the predictions explain, :func:`sklearn.metrics.r2_score`.

        Parameters
        ----------
        X, y, sample_weight, offset, exposure
            As in :meth:`fit`.

        Returns
        -------
        float
        """
        if exposure is not None:
            loss = self._settings().loss  # type: ignore[attr-defined]
            offset = check.check_offset(loss, len(to_host(y)), offset, exposure)
        return super().score(X, y, sample_weight, offset)


class Classifier(_Scored, ClassifierMixin):
    """A classifier that is scored by the share of samples classified correctly."""


class LinearEstimator(BaseEstimator):
    """A linear predictor fitted as :func:`trimreg.solve` does. A subclass gives the settings."""

    warm_start: bool

    def _store(self, parameters: dict[str, Any]) -> None:
        """Set the parameters of the constructor unchanged, as scikit-learn requires."""
        for name in self._get_param_names():
            setattr(self, name, parameters[name])

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    # -- to be overridden --------------------------------------------------------------------------

    def _settings(self) -> Settings:
        """The settings of the fit, from the parameters of the constructor."""
        raise NotImplementedError

    def _given(self) -> dict[str, Any]:
        """The parameters of the constructor; bounds by the names of features become one per feature."""
        given = self.get_params(deep=False)
        for name in {"lower", "upper"} & set(given):
            given[name] = check.bound_by_name(name, given[name], self)
        return given

    def _target(self, y: Any, sample_weight: Any) -> tuple[Any, Any]:
        """The target and the weights that the loss takes, from those that the user passes."""
        return y, sample_weight

    def _keep(self, task: Task, details: FitDetails) -> None:
        """Set further fitted attributes."""

    def _mean(self, eta: np.ndarray) -> np.ndarray:
        """The mean of y for these linear predictors."""
        return eta

    def _output_names(self) -> list | None:
        """Labels of several outputs, or None."""
        return None

    # -- fit ---------------------------------------------------------------------------------------

    def fit(
        self, X: Any, y: Any, sample_weight: ArrayLike | None = None, offset: ArrayLike | None = None,
        exposure: ArrayLike | None = None,
    ):  # fmt: skip
        """Fit the model.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            In memory; or on disk (:class:`~trimreg.OnDisk`), on a cluster (a Dask array or DataFrame) or on a
            GPU (a torch tensor, a CuPy or JAX array), where it stays. Coefficients are NumPy arrays.
        y : array-like of shape (n_samples,)
        sample_weight : array-like of shape (n_samples,), optional
        offset : array-like of shape (n_samples,), optional
            A known part of the linear predictor. Pass the offsets of new samples to ``predict``.
        exposure : array-like of shape (n_samples,), optional
            For counts and amounts (a logarithmic link): the time or the number of units that y was observed
            over. It multiplies the mean, so it is an offset of ``log(exposure)``.

        Returns
        -------
        self
        """
        check.check_flag("warm_start", self.warm_start)
        with check.all_or_nothing(self):
            X = X if hasattr(X, "shape") else check.check_real("X", X)
            check.check_features(self, X)
            y, sample_weight = self._target(to_host(y), to_host(sample_weight))
            settings, y = shifted(self._settings(), y, offset, exposure)
            data = check_data(X, y, sample_weight, settings)
            self._take(*minimize(data, settings, self._start(data, settings)))
        return self

    def _take(self, result: SolverResult, task: Task) -> None:
        """Set the fitted attributes, from a result and the task it solves."""
        details, problem = fit_details(task, result), task.problem
        self.result_ = result
        self.coef_ = result.coef
        self.intercept_ = result.intercept
        self.trim_weights_ = result.weights
        self.support_ = np.flatnonzero(np.atleast_2d(result.coef).any(axis=0))
        self.objective_ = result.objective
        self.stationarity_ = result.stationarity
        self.alpha_ = result.alpha
        self.l2_ = task.l2
        self.h_ = problem.penalty.n_free
        self.loss_name_ = problem.loss.name
        self.n_iter_ = result.n_iter
        self.outliers_ = result.outliers
        self.bounds_ = task.limits
        self.entry_order_ = details.order
        self.feature_deviation_ = details.deviation
        self._copies = None if task.copies is None else task.copies.index
        self._groups, self._group_names = groups_of(
            problem.penalty, self.n_features_in_ if self._copies is None else self._copies.size
        )
        if self._copies is not None:
            selected = problem.penalty.norm.lengths(task.coordinates_of(result)) > 0
            self._group_names = self._names_of_groups(selected)
        self._n_samples = problem.y.shape[0]
        eta = details.eta
        if problem.loss.has_nuisance and not problem.loss.sees_constants:  # eta is for centered columns
            means = task.features.offset  # type: ignore[attr-defined]
            eta = eta + float(means @ np.asarray(result.coef, dtype=float))
        self._estimates = problem.loss.estimates(eta, problem.y, problem.d)
        for name, value in self._estimates.items():
            setattr(self, f"{name}_", value)
        self._keep(task, details)

    def _free(self, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Which features are free with these weights, and which of their copies in groups."""
        copies = (weights if self._groups is None else weights[self._groups]) == 0
        if self._copies is None:
            return copies, copies
        return np.bincount(self._copies, copies) > 0, copies

    def _names_of_groups(self, selected):
        """The numbers of the selected groups that each feature is in, as text."""
        names: list[list[str]] = [[] for _ in range(self.n_features_in_)]
        for j, group in zip(self._copies, self._groups, strict=True):
            names[j] += [str(group)] if selected[group] else []
        return [", ".join(some) for some in names]

    def _start(self, data: Data, settings: Settings) -> np.ndarray | None:
        """The coefficients of the last fit, if a warm start is asked for and their shape is right."""
        if not self.warm_start or not hasattr(self, "result_"):
            return None
        start, loss = self.result_.coef, settings.loss
        outputs = (loss.bound(data.y, data.d).n_outputs,) if loss.multi_output else ()
        return start if start.shape == (*outputs, self.n_features_in_) else None

    def problem(
        self, X: Any, y: Any, sample_weight: Any = None, offset: Any = None, exposure: Any = None
    ) -> dict[str, Any]:
        """The problem that this fit solved, with its solution, as arguments of :mod:`trimreg.diagnostics`.

        Parameters
        ----------
        X, y, sample_weight, offset, exposure
            The data that the model was fitted to.

        Examples
        --------
        >>> import numpy as np
        >>> from trimreg import TrimmedLasso
        >>> from trimreg.diagnostics import stationarity
        >>> X = np.arange(12.0).reshape(6, 2) ** 2 % 7
        >>> model = TrimmedLasso(h=1).fit(X, X[:, 0])
        >>> stationarity(**model.problem(X, X[:, 0])) < 1e-12
        True
        """
        target, weight = self._target(y, sample_weight)
        settings, target = shifted(self._settings(), target, offset, exposure)
        penalty = copy.copy(settings.penalty)
        if self.h_ is not None:
            penalty.h = self.h_
        return {
            "X": X,
            "y": np.asarray(target),
            "coef": self.result_.coef,
            "intercept": self.result_.intercept,
            "penalty": penalty,
            "alpha": self.alpha_,
            "l2": self.l2_,
            "loss": settings.loss,
            "sample_weight": weight,
            **{
                name: getattr(settings, name)
                for name in ("fit_intercept", "standardize", "positive", "lower", "upper")
            },
        }

    def certify(
        self, X: Any, y: Any, sample_weight: Any = None, offset: Any = None, exposure: Any = None, *,
        time_limit: float = 60.0, gap: float = 1e-3, refit: bool = False, max_nodes: int = 100_000,
        n_jobs: int | None = None, verbose: int = 0,
    ) -> Certificate:  # fmt: skip
        """How far this fit is at most from the best possible, by :func:`trimreg.certify` from here.

        Parameters
        ----------
        X, y, sample_weight, offset, exposure
            The data that the model was fitted to.
        time_limit, gap, max_nodes, n_jobs, verbose
            As in :func:`trimreg.certify`.
        refit : bool
            Whether the model takes a better point if the search finds one.

        Returns
        -------
        Certificate

        Examples
        --------
        >>> import numpy as np
        >>> from trimreg import TrimmedLasso
        >>> X = np.random.default_rng(0).standard_normal((60, 10))
        >>> y = X[:, 1] - X[:, 4] + 0.1 * X[:, 7]
        >>> TrimmedLasso(h=2).fit(X, y).certify(X, y).proved
        True
        """
        from ..certificate import certify_task

        check_is_fitted(self)
        check.check_flag("refit", refit)
        if len(self.outliers_):
            raise ValueError("n_outliers must be 0 to certify a fit")
        check.check_features(self, X, reset=False)
        problem = self.problem(X, to_host(y), to_host(sample_weight), offset, exposure)
        settings = Settings.of(problem)
        data = check_data(X, problem["y"], problem["sample_weight"], settings)
        found, task = certify_task(
            data,
            settings,
            self,
            time_limit=time_limit,
            gap=gap,
            max_nodes=max_nodes,
            keep=True,
            n_jobs=n_jobs,
            verbose=verbose,
        )
        if refit and found.improved:
            self._take(found.best, task)
        return found

    # -- predictions ---------------------------------------------------------------------------------

    def _predictor(self, X, offset=None, exposure=None):
        """The linear predictors, of shape (n_samples,) or (n_samples, n_outputs)."""
        check_is_fitted(self)
        matrix = check.check_matrix(X)
        check.check_features(self, X, reset=False)
        intercept = np.asarray(self.intercept_, dtype=self.coef_.dtype)
        if is_virtual(matrix):
            eta = check.virtual_product(matrix, self.coef_, intercept)
        else:
            eta = matrix @ self.coef_.T + intercept
        if offset is None and exposure is None:
            return eta
        total = check.check_offset(self._settings().loss, eta.shape[0], offset, exposure)
        return (eta.T + total).T

    def predict(
        self, X: Any, offset: ArrayLike | None = None, exposure: ArrayLike | None = None
    ) -> np.ndarray:
        """Predicted means of the target.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Of any kind that :meth:`fit` takes.
        offset, exposure : array-like of shape (n_samples,), optional
            As in :meth:`fit`; without them the offset is 0.

        Returns
        -------
        ndarray of shape (n_samples,) or (n_samples, n_outputs)
        """
        return self._mean(self._predictor(X, offset, exposure))

    # -- summary -------------------------------------------------------------------------------------

    def summary(self, max_rows: int | None = 50) -> Summary:
        """A table of the fitted model with one row per selected variable.

        Parameters
        ----------
        max_rows : int or None, default=50
            The number of rows shown; None shows all.

        Returns
        -------
        Summary
            Prints as text; see also its ``to_html``, ``to_latex``, ``to_frame`` and ``to_dict``. The columns
            are the coefficient, the coefficient of the standardized variable, the step at which forward
            selection takes the variable (:mod:`trimreg.estimators.order`), and whether it is free, penalized
            or always in. With bounds, another column shows which of them are reached.
        """
        check_is_fitted(self)
        free, _ = self._free(self.trim_weights_)
        coef = np.asarray(self.coef_, dtype=float)
        coef = coef.ravel() if coef.shape[0] == 1 and coef.ndim == 2 else coef
        outputs = self._output_names() if coef.ndim == 2 else None
        intercept = np.ravel(np.asarray(self.intercept_, dtype=float)).tolist()
        labeled = intercept if outputs is None else dict(zip(map(str, outputs), intercept, strict=True))
        selected_at = getattr(self, "selection_l2_", self.l2_)  # of an estimator that chose its l2
        facts = {
            "loss": self.loss_name_,
            "samples": self._n_samples,
            "features": self.n_features_in_,
            "h": self.h_,
            "alpha": self.alpha_,
            "l2": self.l2_ or None,
            "l2 of the selection": None if selected_at == self.l2_ else selected_at,
            "objective": self.objective_,
            "stationarity": self.stationarity_,
            **({"intercept": intercept[0]} if len(intercept) == 1 else {"intercepts": labeled}),
            **self._estimates,
            "converged": self.result_.converged,
            "swap optimal": self.result_.swap_optimal,
            "outliers": len(self.outliers_) or None,
        }
        with np.errstate(over="ignore"):
            standardized = coef * self.feature_deviation_
        return summarize(
            getattr(self, "feature_names_in_", None),
            coef.T,
            standardized.T,
            self.entry_order_,
            ~free,
            always=self.entry_order_ == 0,
            groups=self._group_names,
            bounds=self.bounds_,
            outputs=outputs,
            title=type(self).__name__,
            facts=facts,
            max_rows=max_rows,
        )


class TrimmedEstimator(LinearEstimator):
    """A model whose h largest coefficients (or groups) carry no penalty. A subclass gives the loss."""

    _loss: Any  # a name or an object; may be a property

    def __init__(
        self,
        h: int | float | None = None,
        alpha: float | str = "exact",
        l2: float = 0.0,
        solver: str = "mm",
        effort: str = "medium",
        fit_intercept: bool = True,
        standardize: bool = True,
        positive: bool = False,
        lower: ArrayLike | None = None,
        upper: ArrayLike | None = None,
        penalty_factor: ArrayLike | None = None,
        groups: Any = None,
        n_outliers: int | float = 0,
        warm_start: bool = False,
        tol: float = 1e-6,
        max_iter: int | None = None,
        random_state: Any = None,
    ):
        self._store(locals())

    def _settings(self) -> Settings:
        check.check_choice("effort", self.effort, EFFORTS)
        given = self._given()
        penalty = TrimmedL1(self.h, self.penalty_factor, groups=self.groups, q=given.get("q", 2))
        options = {"effort": self.effort} if "effort" in get_solver(self.solver).options else {}
        return Settings.of(given, loss=self._loss, penalty=penalty, options=options)


def groups_of(penalty: Any, n_features: int) -> tuple[np.ndarray | None, list | None]:
    """The number of each feature's group, and the user's name for it; None twice without groups.

    Groups given as lists of features are named by their numbers.
    """
    groups = getattr(penalty, "groups", None)
    if groups is None:
        return None, None
    label, names = partition(groups, n_features), list(groups)
    are_lists = np.iterable(names[0]) and not isinstance(names[0], (str, bytes))
    return label, label.tolist() if are_lists else names

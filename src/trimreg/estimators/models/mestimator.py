"""Any loss with any penalty."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...losses import get_loss
from ..task import Settings
from .base import LinearEstimator, Regressor


class MEstimator(Regressor, LinearEstimator):
    r"""A linear model with any loss and any penalty, of the library or your own.

    .. math:: \min_{\theta, b}\; \sum_i d_i\, \ell(y_i, z_i'\theta + b) + P_\alpha(\theta)

    Parameters
    ----------
    loss : str or loss object, default="quadratic"
        See :mod:`trimreg.losses`.
    penalty : str or penalty object, default="l1"
        A name in ``trimreg.penalties.PENALTIES``, or an object such as ``TrimmedL1(h)`` or ``MCP(gamma)``,
        which also has the penalty factors and groups.
    alpha : float or "exact", default=1.0
        ``"exact"`` is for the trimmed penalty.
    l2 : float, default=0.0
        A ridge term :math:`\frac{l_2}{2} \sum_j f_j \theta_j^2` with the factors f of the penalty.
    solver : str, default="auto"
        As in :func:`trimreg.solve`: ``"mm"``, or ``"prox"`` for a penalty without weights such as SLOPE.
    fit_intercept : bool, default=True
    standardize, positive, warm_start : bool, default=False
    lower, upper : float or array-like of shape (n_features,), optional
        As in :class:`TrimmedLasso`.
    n_outliers : int, or float in (0, 1), default=0
        The number (or fraction) of samples to leave out: those with the largest loss.
    tol : float, default=1e-6
    max_iter : int or None, default=None
    random_state : int, Generator or RandomState, optional
    solver_options : dict, optional
        Options of the solver, such as ``{"effort": "high"}``.

    Attributes
    ----------
    coef_ : ndarray of shape (n_features,) or (n_outputs, n_features)
    intercept_ : float or ndarray of shape (n_outputs,)
    trim_weights_, support_, objective_, stationarity_, alpha_, n_iter_, outliers_, entry_order_, result_
        As in :class:`TrimmedLasso`.

    Notes
    -----
    The stopping rule is that of :func:`trimreg.solve`.

    Examples
    --------
    >>> import numpy as np
    >>> from trimreg import MCP, MEstimator
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((100, 30))
    >>> y = 2 * X[:, 3] - X[:, 17] + 0.1 * rng.standard_normal(100)
    >>> MEstimator(penalty=MCP(gamma=3.0), alpha=0.2).fit(X, y).support_
    array([ 3, 17])
    """

    def __init__(
        self,
        loss: Any = "quadratic",
        penalty: Any = "l1",
        alpha: float | str = 1.0,
        l2: float = 0.0,
        solver: str = "auto",
        fit_intercept: bool = True,
        standardize: bool = False,
        positive: bool = False,
        lower: Any = None,
        upper: Any = None,
        n_outliers: int | float = 0,
        warm_start: bool = False,
        tol: float = 1e-6,
        max_iter: int | None = None,
        random_state: Any = None,
        solver_options: dict[str, Any] | None = None,
    ):
        self._store(locals())

    def _settings(self) -> Settings:
        options = {} if self.solver_options is None else self.solver_options
        taken = {*self.get_params(deep=False), "theta0", "sample_weight", "callback"}
        if not isinstance(options, Mapping) or not taken.isdisjoint(options):
            raise ValueError(
                "solver_options must be a dict of options of the solver, none of which is a parameter of "
                f"MEstimator or of fit; got {options!r}"
            )
        return Settings.of(self._given(), options=dict(options))

    def _mean(self, eta):
        return get_loss(self.loss).inverse_link(eta)

"""What solvers return."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np


@dataclass
class SolverResult:
    """The outcome of a solve.

    Attributes
    ----------
    coef : ndarray of shape (n_features,) or (n_outputs, n_features)
        Coefficients, in the units of X.
    intercept : float or ndarray of shape (n_outputs,)
    weights : ndarray of shape (n_features,) or (n_groups,)
        The trimming weights w: 0 free, 1 penalized.
    objective : float
        ``F`` at the solution, in the scaling that was solved (standardized if so asked).
    stationarity : float
        The paper's T at ``(theta, w)``, recomputed from the data after the solver has stopped.
    n_iter : int
        Steps taken; what a step is each solver says.
    converged : bool
    history : dict of lists
        One entry a step; which series there are each solver says. Always ``objective``.
    message : str
        Why the solver stopped.
    swap_optimal : bool or None
        Whether no exchange of one free coordinate for another lowers F: True if all were scored and
        none does, None if that was not decided.
    theta : ndarray
        The solution in the scaling that was solved; ``coef`` is this in the units of X.
    alpha : float
        The number used.
    outliers : ndarray of int
        The samples that were left out; none unless ``n_outliers`` was asked for.
    """

    coef: np.ndarray
    intercept: float
    weights: np.ndarray
    objective: float
    stationarity: float
    n_iter: int
    converged: bool
    history: dict[str, list[float]] = field(default_factory=dict, repr=False)
    message: str = ""
    swap_optimal: bool | None = None
    theta: np.ndarray | None = field(default=None, repr=False)
    alpha: float = 0.0
    outliers: np.ndarray = field(default_factory=lambda: np.empty(0, dtype=np.intp), repr=False)

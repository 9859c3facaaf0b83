"""What the solver of graphical models returns."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np


@dataclass
class GraphicalResult:
    """The outcome of a solve of a graphical model.

    Attributes
    ----------
    precision, covariance : ndarray of shape (p, p)
        Theta and its inverse, in the units of S. Zeros of Theta are exact.
    weights : ndarray of shape (p, p)
        The trimming weights w: 0 free, 1 penalized; 0 on the diagonal.
    objective : float
        ``F`` at the solution, in the units of S (of its correlations where ``standardize``).
    dual_gap : float
        Duality gap of the weighted problem with these weights, relative to ``max(1, |F|)``.
    stationarity : float
        Largest violation of an optimality condition of that problem, in units of correlations.
    n_iter : int
    converged : bool
    history : dict of lists
        One entry a step. Always ``objective``.
    message : str
        Why the solver stopped.
    alpha : float
        The number used.
    """

    precision: np.ndarray
    covariance: np.ndarray
    weights: np.ndarray
    objective: float
    dual_gap: float
    stationarity: float
    n_iter: int
    converged: bool
    history: dict[str, list[float]] = field(default_factory=dict, repr=False)
    message: str = ""
    alpha: float = 0.0

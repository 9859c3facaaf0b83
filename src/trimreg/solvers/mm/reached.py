"""What stays of the default solver's run if it is interrupted before its first step.

Where X is far a start, several solves, may be most of the way. The points that it comes by are noted with
their linear predictors, so that nothing is computed for the sake of an interrupt that never comes. If one
does, the last of them is kept, or the null model or the user's start if that is lower.
"""

from __future__ import annotations

import numpy as np

from ..driver import Step


class Reached:
    """Points of a problem: the null model, or 0 before it; the last one noted; the start, if one is given.

    Examples
    --------
    >>> import numpy as np
    >>> from trimreg.designs import as_design
    >>> from trimreg.losses import Quadratic
    >>> from trimreg.penalties import L1
    >>> from trimreg.solvers import Problem
    >>> from trimreg.solvers.mm.reached import Reached
    >>> X, y, d = np.eye(2), np.array([1.0, -3.0]), np.array([0.5, 0.5])
    >>> reached = Reached(Problem(as_design(X, d), Quadratic(), y, d, L1().bind(2), 0.1))
    >>> reached.step() is None
    True
    >>> for theta in (np.zeros(2), np.array([0.0, -1.0])):
    ...     reached.note(theta, X @ theta, np.zeros(2))
    >>> reached.step().theta
    array([ 0., -1.])
    """

    def __init__(self, problem, start=None):
        self.problem, self.start = problem, start
        self.null = self.last = None
        self._open = True

    def note(self, theta, eta, gradient):
        """The solver stands there."""
        if self._open:
            self.last = (theta, eta, gradient)  # at once, for an interrupt may come anywhere
            self.null = self.null or self.last

    def note_null(self):
        """What was noted last is the null model."""
        self.null = self.last

    def forget(self):
        """Steps have begun: nothing is noted any more, and no predictor is held."""
        self._open, self.null, self.last = False, None, None

    def step(self) -> Step | None:
        """The point of lowest objective as a step, or None if there is none yet."""
        if self.last is None:
            return None
        steps = [self._step(*self.null), self._step(*self.last)]
        if self.start is not None:
            steps.append(self._step(self.start))
        finite = [step for step in steps if np.isfinite(step.objective)]
        return min(finite, key=lambda step: step.objective, default=None)

    def _step(self, theta, eta=None, gradient=None):
        problem, penalty = self.problem, self.problem.penalty
        weights = problem.weights(theta, np.zeros_like(theta) if gradient is None else gradient)
        # Above the threshold a start is a lasso's, at a smaller alpha: its tail is none of the solution's,
        # and would cost more than the null model. Without it a point may be compared.
        if penalty.n_free is not None and problem.alpha >= problem.exact_threshold():
            cut = np.where(penalty.norm.spread(weights > 0), 0.0, theta)
            theta, eta = cut, eta if np.array_equal(cut, theta) else None
        return Step(theta, weights, problem.objective(theta, eta), message="start")

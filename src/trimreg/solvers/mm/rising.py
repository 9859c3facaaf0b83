"""Warm starts along alpha, for a single fit; :mod:`trimreg.solvers.surface` has those over h and alpha."""

from __future__ import annotations

import numpy as np

from ..search.soft import SoftSearch


def rising_alpha(inner, theta, gradient, *, first=0.05, count=6):
    """A start for ``inner``'s alpha: follow local minima from a smaller alpha up to it.

    At a small alpha the problem is nearly unpenalized and its free set little committed; each larger
    alpha starts from the free set of the one before. Returns the better of the point given and the one
    found, by F.
    """
    problem = inner.problem
    rival, rival_gradient = theta, gradient
    for alpha in problem.alpha * np.geomspace(first, 1.0, count):
        search = SoftSearch(inner.at_alpha(alpha), rival, problem.free_set(rival, rival_gradient))
        rival, rival_gradient = search.theta, search.gradient
    incumbent = SoftSearch(inner, theta, problem.free_set(theta, gradient))
    if search.objective < incumbent.objective:
        return rival, rival_gradient
    return incumbent.theta, incumbent.gradient

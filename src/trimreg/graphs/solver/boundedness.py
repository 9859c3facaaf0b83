r"""How many edges may go free before the objective of a graphical model has no minimum.

Where a set of c variables is linearly dependent, S is singular on it. If all its :math:`c(c-1)/2` pairs are
free, :math:`\Theta` can grow without end along the null vector: the trace and the penalty do not see it, and
:math:`-\log\det\Theta` falls for ever. With fewer free edges than the smallest dependent set has pairs, and
variables otherwise in general position, there is a minimum: a graph whose vertices can be taken away one by
one, each with fewer than r neighbours left, has a maximum likelihood estimate for generic data of rank r, and
every graph with fewer than :math:`r(r+1)/2` edges is one: what could not be taken away would be more than r
vertices with at least r neighbours each.

References
----------
Gross, E. and Sullivant, S. (2018). The maximum likelihood threshold of a graph. Bernoulli 24(1), 386-407.
Uhler, C. (2012). Geometry of maximum likelihood estimation in Gaussian graphical models. Annals of Statistics
40(1), 238-261.
"""

from __future__ import annotations

import numpy as np

from ...solvers.gram import cholesky, cholesky_solve, independent_columns

_SINGULAR = 1e-10  # of a correlation matrix: the part of a variable that others leave unexplained
_TAKES_PART = 1e-6  # smallest coefficient, relative to the largest, of a member of a dependent set


def smallest_dependent_set(R: np.ndarray) -> np.ndarray | None:
    """The smallest dependent set of variables that elimination finds, or None if R is not singular.

    R is a correlation matrix. Every variable outside a maximal independent set depends on some of those in
    it; the smallest such set is returned. Variables in general position have no smaller one, and neither have
    copies of a variable.

    Examples
    --------
    >>> import numpy as np
    >>> from trimreg.graphs.solver.boundedness import smallest_dependent_set
    >>> smallest_dependent_set(np.array([[1.0, 0.3, 1.0], [0.3, 1.0, 0.3], [1.0, 0.3, 1.0]]))
    array([0, 2])
    """
    base = independent_columns(R, _SINGULAR)
    others = np.setdiff1d(np.arange(R.shape[0]), base)
    if others.size == 0:
        return None
    coefficients = np.abs(cholesky_solve(cholesky(R[np.ix_(base, base)]), R[np.ix_(base, others)]))
    members = coefficients > _TAKES_PART * np.maximum(coefficients.max(axis=0), 1e-300)
    smallest = int(np.argmin(members.sum(axis=0)))
    return np.sort(np.append(base[members[:, smallest]], others[smallest]))


def largest_safe_h(R: np.ndarray) -> tuple[int, np.ndarray | None]:
    """The largest number of free edges for which there is a minimum, and the dependent set that limits it.

    Examples
    --------
    >>> import numpy as np
    >>> from trimreg.graphs.solver.boundedness import largest_safe_h
    >>> X = np.random.default_rng(0).standard_normal((5, 20))  # of rank 4 once centred
    >>> largest_safe_h(np.corrcoef(X, rowvar=False))[0]
    9
    """
    p = R.shape[0]
    dependent = smallest_dependent_set(R)
    if dependent is None:
        return p * (p - 1) // 2, None
    return dependent.size * (dependent.size - 1) // 2 - 1, dependent

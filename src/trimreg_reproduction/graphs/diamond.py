r"""The diamond graph of the paper's supplement: how often is the true support recovered?

There are four variables, and every pair but (1, 4) is an edge (:func:`trimreg.datasets.diamond_covariance`).
A replicate is a draw of n samples; a method succeeds on it if its estimate is exactly zero at (1, 4) and
nowhere else. Two probabilities are estimated: that *some* alpha of a path succeeds, as in the paper, although
a user could not choose it without the truth; and that *one* alpha, the same for all replicates, succeeds.

**The paper's h.** It counts the entries of the p x p matrix, 16 here, and the axis of its figure
is the fraction :math:`(p^2 - h) / p^2`. An edge is two entries, so a fraction leaves

.. math:: h_\text{edges} = \tfrac12 \mathrm{round}\bigl(16\,(1 - \text{fraction})\bigr)

edges free: 5, 4, 3, 2.5, 1.5, 1 and 0 for .4, .5, ..., 1. Half an edge is one of its two entries: the edge
then has weight 1/2, and the penalty is the mean of the penalties of the two neighboring whole numbers. With
whole edges only, .7 and .8 would both be 2, which is included as a separate method. Fraction 1 is the
graphical lasso.

Every fit is MM from the weights of the maximum likelihood estimate, as in ``solve_graphical(start="mle",
effort="low")``. A call of that takes a millisecond, almost all of it to check its input, so the same loop is
written out here for small matrices. The tests compare the two.

References
----------
Yun, Zheng, Yang, Lozano and Aravkin, M-estimation with the trimmed l1 penalty, supplement, simulations for
Gaussian graphical models.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from trimreg.datasets import make_diamond
from trimreg.graphs.mm import kernels
from trimreg.penalties import L1, MCP, SCAD, Penalty, TrimmedL1

from ..intervals import wilson

FRACTIONS = (0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
#: The path, the same for all replicates.
ALPHAS = tuple(np.geomspace(0.25, 0.002, 64).tolist())
SUPPORT = np.array([True, True, False, True, True, True])  # of the pairs 12, 13, 14, 23, 24, 34
_PAIRS = np.triu_indices(4, 1)
_TOL = 1e-8  # relative duality gap of every weighted problem
_CHANGE = 1e-6  # of a threshold, at which the weights of MCP and SCAD count as converged
_MAX_STEPS = 500


def edges_of_fraction(fraction: float) -> float:
    """The number of edges, in halves, that the paper's fraction leaves free; see the module's docstring."""
    return round(16 * (1.0 - fraction)) / 2


def trimmed(edges: float) -> tuple[Penalty, ...]:
    """One or two trimmed penalties whose mean leaves that many edges free, in halves."""
    low, high = int(np.floor(edges)), int(np.ceil(edges))
    return (TrimmedL1(low),) if low == high else (TrimmedL1(low), TrimmedL1(high))


def default_methods() -> dict[str, tuple[Penalty, ...]]:
    """The methods by name. SCAD and MCP have the paper's parameters, 3.0 and 2.5."""
    methods: dict[str, tuple[Penalty, ...]] = {"glasso": (L1(),), "SCAD": (SCAD(3.0),), "MCP": (MCP(2.5),)}
    methods |= {f"trimmed {fraction:g}": trimmed(edges_of_fraction(fraction)) for fraction in FRACTIONS}
    return methods | {"trimmed, 2 edges": trimmed(2)}


@dataclass(frozen=True)
class Recovery:
    """How often each method recovers the support, on the same replicates for all methods.

    Attributes
    ----------
    rho : float
    alphas : ndarray of shape (k,)
        Descending.
    given_alpha : float
        The alpha that was fixed in advance; one of ``alphas``.
    recovered : dict of str to ndarray of shape (replicates,)
        For each method, 1 for every replicate that some alpha recovers, and 0 for the others.
    counts : dict of str to ndarray of shape (k,)
        For each method, the number of replicates that each alpha recovers.
    """

    rho: float
    alphas: np.ndarray
    given_alpha: float
    recovered: dict[str, np.ndarray] = field(repr=False)
    counts: dict[str, np.ndarray] = field(repr=False)

    @property
    def methods(self) -> tuple[str, ...]:
        return tuple(self.recovered)

    @property
    def replicates(self) -> int:
        return len(next(iter(self.recovered.values())))

    def any_alpha(self, method: str) -> float:
        """The share of replicates that some alpha of the path recovers."""
        return float(self.recovered[method].mean())

    def fixed_alpha(self, method: str) -> float:
        """The share that the alpha fixed in advance recovers."""
        return float(self.counts[method][self.alphas == self.given_alpha][0] / self.replicates)

    def best_alpha(self, method: str) -> tuple[float, float]:
        """The alpha that recovers most replicates (the largest if there are several), and their share.

        It is chosen by the truth on the same replicates, so a user cannot do as well.
        """
        best = int(np.argmax(self.counts[method]))
        return float(self.alphas[best]), float(self.counts[method][best] / self.replicates)

    def interval(self, method: str) -> tuple[float, float]:
        """Wilson's 95 % interval of :meth:`any_alpha`."""
        return wilson(int(self.recovered[method].sum()), self.replicates)

    def difference(self, method: str, other: str) -> tuple[float, float]:
        """:meth:`any_alpha` of one method minus that of another, and its standard error.

        Both methods see the same replicates, so this is the standard error of a mean of paired differences.
        """
        gap = self.recovered[method].astype(float) - self.recovered[other]
        return float(gap.mean()), float(gap.std(ddof=1) / np.sqrt(gap.size))


def recovery(
    rho: float,
    n_samples: int = 100,
    replicates: int = 1000,
    *,
    methods: Mapping[str, tuple[Penalty, ...]] | None = None,
    alphas: Sequence[float] = ALPHAS,
    given_alpha: float | None = None,
    random_state: int = 0,
) -> Recovery:
    r"""The probability of exact support recovery on the diamond graph.

    Parameters
    ----------
    rho : float
        With ``2 rho^2 < 1``; the paper takes 0.1 (incoherence holds) and 0.3 (it does not).
    n_samples, replicates : int
    methods : dict of str to tuple of penalties, optional
        By default :func:`default_methods`. The mean of several penalties is used.
    alphas : sequence of float
        The path.
    given_alpha : float, optional
        The alpha that is fixed in advance; it joins the path. By default :math:`\sqrt{\log p / n}`, the rate
        of the theory without a tuned constant.
    random_state : int

    Returns
    -------
    Recovery

    Examples
    --------
    >>> from trimreg_reproduction.graphs.diamond import recovery, trimmed
    >>> table = recovery(0.5, n_samples=5000, replicates=3, methods={"trimmed": trimmed(5)})
    >>> table.any_alpha("trimmed")
    1.0
    """
    methods = default_methods() if methods is None else methods
    if given_alpha is None:
        given_alpha = np.sqrt(np.log(4) / n_samples)
    alphas = np.unique([*alphas, given_alpha])[::-1]
    seeds = np.random.SeedSequence(random_state).spawn(replicates)
    # Methods with the same penalties (fraction 1 is the graphical lasso) are fitted once.
    rules = {name: _key(penalties) for name, penalties in methods.items()}
    distinct = {rules[name]: penalties for name, penalties in methods.items()}
    found = _recovered(seeds, rho, n_samples, list(distinct.values()), alphas)
    success = dict(zip(distinct, found, strict=True))
    return Recovery(
        float(rho),
        alphas,
        float(given_alpha),
        {name: success[rules[name]].any(axis=1).astype(int) for name in methods},
        {name: success[rules[name]].sum(axis=0) for name in methods},
    )


def _key(penalties):
    """Equal for methods that are the same: trimming nothing is the l1 norm."""
    zero = [isinstance(one, TrimmedL1) and one.h == 0 for one in penalties]
    return repr((L1(),) if all(zero) else tuple(penalties))


def _recovered(seeds, rho, n_samples, methods, alphas):
    """Whether each method succeeds, for these replicates and alphas."""
    success = np.zeros((len(methods), len(seeds), alphas.size), dtype=bool)
    for i, seed in enumerate(seeds):
        X = make_diamond(n_samples, rho, np.random.default_rng(seed)).X
        S = np.cov(X, rowvar=False, bias=True)
        for k, penalties in enumerate(methods):
            edges = path(S, penalties, alphas)
            success[k, i] = np.all((edges != 0.0) == SUPPORT, axis=1)
    return success


def path(S: np.ndarray, penalties: Sequence[Penalty], alphas: Sequence[float]) -> np.ndarray:
    """The edges of the fits to a 4 x 4 covariance along a path of alphas, one row per alpha.

    The weights start from the inverse of S at every alpha. The weighted problems are convex; each starts from
    the solution of the previous one.
    """
    rows, columns = _PAIRS
    # As in the library, S becomes a correlation matrix, and its scales become factors of the penalty.
    deviation = np.sqrt(np.diagonal(S))
    R = S / np.multiply.outer(deviation, deviation)
    R = (R + R.T) / 2
    np.fill_diagonal(R, 1.0)
    scale = deviation[rows] * deviation[columns]
    correlations = R[_PAIRS]
    bound = [penalty.bind(rows.size).rescaled(scale) for penalty in penalties]
    likelihood = np.linalg.inv(R)[_PAIRS]
    shift = 2.0 * float(np.log(deviation).sum())
    Theta, threshold = np.eye(4), np.zeros((4, 4))
    edges = np.empty((len(alphas), rows.size))
    for k, alpha in enumerate(alphas):
        levels = _levels(bound, likelihood, alpha, None)
        for _ in range(_MAX_STEPS):
            threshold[rows, columns] = threshold[columns, rows] = levels
            Theta, W, *_ = kernels.minimize_weighted(R, threshold, Theta, shift, _TOL, 200, 50)
            theta = Theta[_PAIRS]
            following = _levels(bound, theta, alpha, correlations - W[_PAIRS])
            if np.abs(following - levels).max() <= _CHANGE:
                break
            levels = following
        edges[k] = theta / scale
    return edges


def _levels(penalties, theta, alpha, gradient):
    """The thresholds for the weights at theta, the mean over the penalties."""
    total = 0.0
    for penalty in penalties:
        total = total + penalty.thresholds(penalty.weights(theta, alpha, gradient), alpha)
    return total / len(penalties)

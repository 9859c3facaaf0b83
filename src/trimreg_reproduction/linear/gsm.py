r"""Hard instances of the trimmed lasso, by Amir, Basri and Nadler, and their generalized soft-min homotopy.

They minimize :math:`F(\theta) = \tfrac12\|y - X\theta\|^2 + \lambda T_k(\theta)`, where T_k is the l1 norm
without the k largest coefficients, on data whose support is hard to find: a Gaussian X of 60 x 300 with
columns of norm one, k Gaussian coefficients, noise of 1 % in norm, and :math:`\lambda = 0.2\|y\|`. A method
succeeds if its F is at most that of the true coefficients. The larger examples, with noise of 5 %, are
those of the authors' public code (github.com/tal-amir/sparse-approximation-gsm).

**Their penalty** is a soft minimum over all sets L of d - k coefficients,

.. math:: \tau_\gamma(\theta) = -\frac1\gamma \log \frac{1}{\binom dk} \sum_{|L| = d - k}
          \exp\Bigl(-\gamma \sum_{i \in L} |\theta_i|\Bigr),

that is (d - k)/d times the l1 norm at :math:`\gamma = 0`, and T_k at :math:`\gamma = \infty`. It is concave
in :math:`|\theta|`, so the weighted l1 norm with weights :math:`\partial\tau_\gamma/\partial|\theta_i|`
majorizes it. The homotopy follows minimizers as gamma grows. It starts at small lambdas, where the fit
nearly interpolates; the authors' code, too, starts at :math:`10^{-5}\|y\|` and at lambda.

References
----------
Amir, Basri and Nadler (2021). The trimmed lasso: sparse recovery guarantees and practical optimization by the
generalized soft-min penalty. SIAM Journal on Mathematics of Data Science 3. arXiv:2005.09021.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from scipy.optimize import brentq
from scipy.special import expit, gammaln, log_expit

from ..intervals import share_line, wilson
from ..pictures import DASHES, MARKERS, PALETTE, draw, legend_below, new_figure
from ..spec import Cell, Chart, Experiment, Verdict, skipped
from . import gramkernels as kernels
from .bcm import admm, alternating, by_trimreg, fit_abess, objective

NAME = "gsm"
LAMBDA = 0.2  # times the norm of y
HARD = {"n": 60, "d": 300, "noise": 0.01}
#: The larger examples: n, d, k and draws.
LARGE = ((50, 1000, 14, 10), (100, 5000, 20, 5), (200, 50000, 30, 2))
#: Draws of the hard instances for each k.
DRAWS = {10: 40, 15: 40, 20: 100, 25: 100, 30: 40}
_BLOCK = 10  # draws per cell

OURS, HOMOTOPY = "trimreg high", "soft-min 8 lambdas"
DIRECT = ("Algorithm 1", "alternating", "ADMM")
FAMILIES = {
    "trimreg": ("trimreg medium", OURS, "trimreg exact medium", "trimreg exact high"),
    "soft-min": ("soft-min 1 lambda", HOMOTOPY),
    "direct": DIRECT,
    "abess": ("abess",),
}


def cells(size: str) -> list[Cell]:
    """The cells: one family of methods on a few draws."""
    found = []
    for k, draws in {10: 2, 20: 2}.items() if size == "quick" else DRAWS.items():
        count = min(draws, _BLOCK)
        for block in range(draws // count):
            found += [
                Cell.of(NAME, **HARD, k=k, draws=count, block=block, family=family) for family in FAMILIES
            ]
    for n, d, k, draws in LARGE if size == "full" else ():
        shape = {"n": n, "d": d, "noise": 0.05, "k": k, "draws": 1}
        found += [
            Cell.of(NAME, **shape, block=block, family=family)
            for block in range(draws)
            for family in FAMILIES
            if family != "direct"
        ]
    return found


def draw_data(rng: np.random.Generator, n: int, d: int, k: int, noise: float) -> tuple:
    """X with columns of norm one, y and the true coefficients; the noise is relative, in norm."""
    X = rng.standard_normal((n, d))
    X /= np.linalg.norm(X, axis=0)
    coef = np.zeros(d)
    coef[rng.choice(d, k, replace=False)] = rng.standard_normal(k)
    signal, error = X @ coef, rng.standard_normal(n)
    return X, signal + error * (noise * np.linalg.norm(signal) / np.linalg.norm(error)), coef


def run(cell: Cell) -> list[dict]:
    """One row per draw and method. All entries but ``seconds`` depend on the cell alone."""
    rng, k, rows = cell.rng("family"), cell["k"], []
    for i in range(cell["draws"]):
        X, y, coef = draw_data(rng, cell["n"], cell["d"], k, cell["noise"])
        start = rng.standard_normal(coef.size)
        lam = LAMBDA * float(np.linalg.norm(y))
        truth = objective(X, y, coef, lam, k)
        for method in FAMILIES[cell["family"]]:
            begin = time.process_time()
            try:
                theta = _METHODS[method](X, y, lam, k, start)
            except ImportError as missing:
                rows.append({"draw": i, "method": method, "skipped": str(missing)})
                continue
            seconds = time.process_time() - begin
            ratio = objective(X, y, theta, lam, k) / truth
            rows.append({
                "draw": i, "method": method, "skipped": None, "ratio": ratio,
                "success": bool(ratio <= 1.0 + 1e-9), "seconds": seconds,
            })  # fmt: skip
    return rows


# -- the generalized soft-min ------------------------------------------------------------------------------


def soft_min_weights(size: np.ndarray, k: int, gamma: float) -> np.ndarray:
    r"""The weights :math:`w_i = \partial\tau_\gamma/\partial|\theta_i|` at the absolute values ``size``.

    :math:`1 - w_i` is the probability that i is in a random set S of size k whose probability is proportional
    to :math:`\prod_{i \in S} e^{\gamma|\theta_i|}`. Such a set is the outcome of independent coins with odds
    :math:`e^{\gamma|\theta_i| - t}`, for any t, given that k of them show heads. With k heads on average no
    probability underflows, so we take that t. Recursions for the number of heads among the first and among
    the last coins give all weights. The zeros have equal coins, and the number of their heads is binomial; so
    s nonzero values take O(sk) operations.

    Examples
    --------
    >>> import numpy as np
    >>> from trimreg_reproduction.linear.gsm import soft_min_weights
    >>> soft_min_weights(np.array([3.0, 1.0, 0.0, 0.0]), 1, gamma=0.0)
    array([0.75, 0.75, 0.75, 0.75])
    >>> soft_min_weights(np.array([3.0, 1.0, 0.0, 0.0]), 1, gamma=10.0).round(3)
    array([0., 1., 1., 1.])
    """
    d, top = size.size, gamma * float(size.max())
    if top == 0.0:
        return np.full(d, (d - k) / d)
    nonzero = np.flatnonzero(size)
    logits, zeros = gamma * size[nonzero], d - nonzero.size
    low = np.log((d - k) / k)
    t = brentq(lambda t: expit(logits - t).sum() + zeros * expit(-t) - k, low, low + top)
    heads, tails = expit(logits - t), expit(t - logits)
    first, last = np.zeros((2, logits.size + 1, k + 1))
    j = np.arange(min(zeros, k) + 1)
    ways = gammaln(zeros + 1) - gammaln(j + 1) - gammaln(zeros - j + 1)
    first[0, j] = np.exp(ways + j * log_expit(-t) + (zeros - j) * log_expit(t))
    last[-1, 0] = 1.0
    for i in range(logits.size):
        first[i + 1] = tails[i] * first[i]
        first[i + 1, 1:] += heads[i] * first[i, :-1]
    for i in range(logits.size - 1, -1, -1):
        last[i] = tails[i] * last[i + 1]
        last[i, 1:] += heads[i] * last[i + 1, :-1]
    weights = np.ones(d)
    weights[nonzero] = tails * np.sum(first[:-1] * last[1:, ::-1], axis=1) / first[-1, k]
    if zeros:
        weights[size == 0.0] = (d - k - weights[nonzero].sum()) / zeros
    return np.clip(weights, 0.0, 1.0)


def weighted_lasso(X: np.ndarray, y: np.ndarray, theta: np.ndarray, thresholds: np.ndarray) -> np.ndarray:
    r"""Minimizes :math:`\tfrac12\|y - X\theta\|^2 + \sum_j t_j|\theta_j|` from theta, by working sets."""
    c = X.T @ y
    goal = 1e-5 * float(np.abs(c).max())
    working = np.flatnonzero(theta)
    while True:
        part, found = X[:, working], theta[working]
        kernels.weighted_lasso(part.T @ part, c[working], found, thresholds[working], 0.5 * goal)
        theta = np.zeros(theta.size)
        theta[working] = found
        excess = np.abs(X.T @ (y - part @ found)) - thresholds
        excess[working] = 0.0
        violated = np.flatnonzero(excess > goal)
        if not violated.size:
            return theta
        violated = violated[np.argsort(-excess[violated])[: y.size]]
        working = np.concatenate([working[found != 0.0], violated])


def homotopy(X: np.ndarray, y: np.ndarray, lam: float, k: int, growth: float = 1.5) -> np.ndarray:
    """Follows the soft-min from gamma near 0 until the weights are 0 or 1; least squares on the k largest.

    At each gamma the weighted lasso is solved until its solution moves by less than 1e-3.
    """
    d = X.shape[1]
    theta = weighted_lasso(X, y, np.zeros(d), np.full(d, lam * (d - k) / d))
    gamma = 1e-2 / max(float(np.abs(theta).sum()), 1e-12)
    while True:
        for _ in range(30):
            before = theta
            weights = soft_min_weights(np.abs(theta), k, gamma)
            theta = weighted_lasso(X, y, theta, lam * weights)
            if np.abs(theta - before).max() < 1e-3 * np.abs(theta).max():
                break
        if np.minimum(weights, 1.0 - weights).sum() < 1e-3 * k or gamma * np.abs(theta).max() > 1e7:
            break
        gamma *= growth
    free = np.argsort(-np.abs(theta), kind="stable")[:k]
    found = np.zeros(d)
    found[free] = np.linalg.lstsq(X[:, free], y, rcond=None)[0]
    return found


def by_homotopy(
    lambdas: Any, X: np.ndarray, y: np.ndarray, lam: float, k: int, start: Any = None
) -> np.ndarray:
    """The best of the homotopies with these lambdas, in units of the norm of y, by F at ``lam``."""
    norm = float(np.linalg.norm(y))
    found = [homotopy(X, y, float(value) * norm, k) for value in lambdas]
    return min(found, key=lambda theta: objective(X, y, theta, lam, k))


_METHODS: dict[str, Callable] = {
    "trimreg medium": by_trimreg(),
    OURS: by_trimreg(effort="high"),
    "trimreg exact medium": by_trimreg(exact=True),
    "trimreg exact high": by_trimreg(exact=True, effort="high"),
    "soft-min 1 lambda": partial(by_homotopy, (3e-3,)),
    HOMOTOPY: partial(by_homotopy, np.geomspace(1e-3, LAMBDA, 8)),
    "Algorithm 1": by_trimreg(solver="bcd"),
    "alternating": alternating,
    "ADMM": admm,
    "abess": fit_abess,
}


# -- what the rows say -------------------------------------------------------------------------------------

_SHAPE = ["n", "d", "k"]
_TOLD = (*FAMILIES["trimreg"], HOMOTOPY)


def _done(frame):
    return frame[frame["skipped"].isna()]


def rates(frame: Any) -> list[dict]:
    """For each shape and method: the share of successes with its interval, F over F of the truth, seconds."""
    rows = []
    for (n, d, k, method), group in _done(frame).groupby([*_SHAPE, "method"]):
        wins = int(group["success"].astype(bool).sum())
        low, high = wilson(wins, len(group))
        rows.append({
            "n": int(n), "d": int(d), "k": int(k), "method": method, "draws": len(group),
            "success": wins / len(group), "low": round(low, 3), "high": round(high, 3),
            "median F / F of the truth": float(f"{group['ratio'].astype(float).median():.3g}"),
            "median seconds": float(f"{group['seconds'].astype(float).median():.2g}"),
        })  # fmt: skip
    return rows


def judge(frame: Any) -> Verdict:
    """Two questions, each at every shape; "reproduced" needs both, "partly" one.

    Does the homotopy succeed at least as often as each direct method, and more often if these fail in half of
    the draws? Does this library's solver, with high effort, succeed at least as often as the homotopy?
    """
    table = rates(frame)
    share = {(row["n"], row["d"], row["k"], row["method"]): row["success"] for row in table}
    shapes = list(dict.fromkeys(key[:3] for key in share))
    ahead, ours, text = True, True, []
    for shape in shapes:
        own = share.get((*shape, OURS), 0.0)
        peer = share.get((*shape, HOMOTOPY), 0.0)
        direct = [share[(*shape, method)] for method in DIRECT if (*shape, method) in share]
        if direct:
            ahead &= peer >= max(direct) and (max(direct) > 0.5 or peer > max(direct) or peer == 0.0)
        ours &= own >= peer
        found = [f"{m} {share[(*shape, m)]:.2f}" for m in _TOLD if (*shape, m) in share]
        found += [f"best direct method {max(direct):.2f}"] if direct else []
        text.append(f"{shape[0]} x {shape[1]}, k = {shape[2]}: {', '.join(found)}.")
    text.insert(
        0, f"The homotopy is {'' if ahead else 'not '}ahead of the direct methods wherever these fail."
    )
    worse = [s for s in shapes if share.get((*s, OURS), 0.0) < share.get((*s, HOMOTOPY), 0.0)]
    text.insert(1, f"{OURS.capitalize()} is below {HOMOTOPY} at {len(worse)} of {len(shapes)} shapes.")
    text += skipped(frame)
    kind = ("not", "partly", "reproduced")[bool(ahead) + bool(ours)]
    return Verdict(kind, " ".join(text), table)


def charts(frame: Any) -> list[Chart]:
    """Success and seconds over k for the hard instances, and over d for the larger examples."""
    found = []
    rows = _done(frame)
    for hard, x in ((True, "k"), (False, "d")):
        part = rows[(rows["d"] == HARD["d"]) == hard]
        success, seconds = [], []
        for method, look in _looks().items():
            groups = [(place, group) for place, group in part[part["method"] == method].groupby(x)]
            if groups:
                places = [place for place, _ in groups]
                success.append(share_line(method, places, [g["success"].astype(bool) for _, g in groups]))
                times = [float(g["seconds"].astype(float).median()) for _, g in groups]
                seconds.append({"name": method, "x": [float(place) for place in places], "y": times})
                success[-1]["look"] = seconds[-1]["look"] = look
        if success:
            where = "60 x 300, 1 % noise" if hard else "larger examples, 5 % noise"
            along = "nonzeros k" if hard else "features d"
            found.append(
                Chart(f"F at most that of the truth: {where}", along, "share", success, log_x=not hard)
            )
            found.append(
                Chart(f"Time: {where}", along, "median seconds", seconds, log_x=not hard, log_y=True)
            )
    return found


def figure(frame: Any) -> Any:
    """Success to the left, seconds to the right; the hard instances above, the larger examples below."""
    drawn = charts(frame)
    picture, axes = new_figure(9.0, 3.3 * len(drawn) / 2 + 0.8, len(drawn) // 2, 2)
    for i, chart in enumerate(drawn):
        ax = draw(axes[i // 2, i % 2], chart, loc="left", band=0.08, shares=i % 2 == 0)
        ax.set_xticks(sorted({x for line in chart.lines for x in line["x"]}))
    legend_below(picture, axes[0, 0], handlelength=3.0)
    return picture


def _looks():
    """One color per family, other dashes and markers for each of its methods."""
    return {
        method: {"color": PALETTE[rank], "linestyle": DASHES[i], "marker": MARKERS[i], "linewidth": 1.4}
        for rank, methods in enumerate(FAMILIES.values())
        for i, method in enumerate(methods)
    }


EXPERIMENT = Experiment(
    name=NAME,
    title="Hard instances of the trimmed lasso, by Amir, Basri and Nadler",
    claim=(
        "The generalized soft-min homotopy finds an objective at most that of the true coefficients where "
        "direct methods (Algorithm 1, alternating minimization, ADMM) do not. Ours: the default solver of "
        "this library, with high effort, succeeds at least as often as the homotopy."
    ),
    cells=cells,
    run=run,
    charts=charts,
    figure=figure,
    judge=judge,
)

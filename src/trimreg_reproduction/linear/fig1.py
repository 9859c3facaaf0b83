r"""Figure 1: the paper's Algorithm 1 against Algorithm 2 of Khamaru and Wainwright.

n = 100 samples, p = 500 standard normal features, k = 10 coefficients 5 N(0, 1), noise 1, h = 25, and
:math:`F = \tfrac12\|y - X\theta\|^2 + \lambda T_h(\theta)` for lambda = 0.5, 5, 20; so alpha = lambda / n
here, and every objective below is F in that scaling. The first-order methods start from zero. The paper shows
one draw for each lambda; we count wins over many, with proximal gradient and the default solver beside them.
"""

from __future__ import annotations

import time
import warnings

import numpy as np

from ..intervals import wilson
from ..spec import Cell, Chart, Experiment, Verdict

N, P, K, H = 100, 500, 10, 25
LAMBDAS = (0.5, 5.0, 20.0)
SEEDS = {"quick": 3, "full": 20}
STEPS = {"quick": 2000, "full": 20000}
#: Name, solver and its options.
SOLVERS = {
    "Algorithm 1": ("bcd", {"record_stationarity": False}),
    "DC": ("dc", {"ties": "plain"}),
    "DC, tie-aware": ("dc", {"ties": "aware"}),
    "proximal gradient": ("prox", {}),
    "default solver": ("mm", {}),
}
_SAME = 1e-6  # relative difference of two objectives that counts as a draw
_POINTS = 60  # of a history that are kept


def cells(size: str) -> list[Cell]:
    """A cell for every lambda and seed."""
    return [
        Cell.of("fig1", lam=lam, steps=STEPS[size], replicate=seed)
        for seed in range(SEEDS[size])
        for lam in LAMBDAS
    ]


def run(cell: Cell) -> list[dict]:
    """A row a solver. ``seconds`` and ``times`` are of this machine; all else depends on the cell alone."""
    from trimreg.datasets import make_gaussian

    data = make_gaussian(N, P, K, random_state=cell.rng("lam", "steps"))
    return [{"method": name} | trace(data, cell["lam"], name, cell["steps"]) for name in SOLVERS]


def trace(data, lam, name, max_iter) -> dict:
    """The objective of a solver over its iterations and over time, thinned, and where it ends."""
    from trimreg import TrimmedL1, solve

    solver, options = SOLVERS[name]
    n = data.y.size
    values, times = [], []
    begin = time.perf_counter()

    def note(step):
        values.append(step.objective * n)
        times.append(time.perf_counter() - begin)

    if solver != "mm":
        options = options | {"max_iter": max_iter}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a first-order method may end at its last step, which the row says
        result = solve(
            data.X, data.y, penalty=TrimmedL1(H), alpha=lam / n, solver=solver, callback=note, **options
        )
    seconds = time.perf_counter() - begin
    kept = np.unique(np.geomspace(1, len(values), _POINTS).round().astype(int)) - 1
    return {
        "objective": float(result.objective * n),
        "seconds": seconds,
        "iterations": int(result.n_iter),
        "converged": bool(result.converged),
        "linear_fit": linear_fit(values),
        "steps_shown": (kept + 1).tolist(),
        "history": np.asarray(values)[kept].tolist(),
        "times": np.asarray(times)[kept].tolist(),
    }


def linear_fit(values) -> float | None:
    r"""How straight :math:`\log(F_k - F_{end})` is over k: the square of the correlation, None if too short.

    Taken over the gaps from 1e-2 to 1e-8 of F: a method that converges at a linear rate comes near 1 there.

    Examples
    --------
    >>> from trimreg_reproduction.linear.fig1 import linear_fit
    >>> round(linear_fit([1.0 + 0.5**k for k in range(60)]), 3), linear_fit([2.0, 1.0])
    (1.0, None)
    """
    values = np.asarray(values)
    gap = (values - values[-1]) / (abs(values[-1]) or 1.0)
    where = np.flatnonzero((gap < 1e-2) & (gap > 1e-8))
    if where.size < 5:
        return None
    return float(np.corrcoef(where, np.log(gap[where]))[0, 1] ** 2)


# -- what the rows say ------------------------------------------------------------------------------------


def wins(frame, rival="DC", method="Algorithm 1") -> list[dict]:
    """How often a method ends lower than its rival, by lambda: wins, draws, losses, Wilson's interval.

    The interval is that of the share of wins among the seeds that are no draw.
    """
    rows = []
    for lam, group in frame.groupby("lam", sort=True):
        table = group.pivot(index="replicate", columns="method", values="objective")[[method, rival]].dropna()
        gap = (table[method] - table[rival]) / table[rival].abs()
        won, lost = int((gap < -_SAME).sum()), int((gap > _SAME).sum())
        low, high = wilson(won, won + lost) if won + lost else (0.0, 1.0)
        rows.append({
            "lambda": float(lam), "method": method, "rival": rival, "wins": won,
            "draws": len(gap) - won - lost, "losses": lost, "low": low, "high": high,
            "mean F": float(table[method].mean()),
            "mean F of the rival": float(table[rival].mean()),
        })  # fmt: skip
    return rows


def judge(frame) -> Verdict:
    """Reproduced if Algorithm 1 ends lower than DC more often than not at every lambda, surely so."""
    table = wins(frame)
    sure = sum(row["low"] > 0.5 for row in table)
    more = sum(row["wins"] > row["losses"] for row in table)
    kind = "reproduced" if sure == len(table) else "partly" if more == len(table) or sure else "not"
    parts = [
        f"lambda {row['lambda']:g}: lower in {row['wins']} of {row['wins'] + row['losses'] + row['draws']} "
        f"({row['low']:.0%} to {row['high']:.0%} of what is no draw), mean F {row['mean F']:.3g} against "
        f"{row['mean F of the rival']:.3g}"
        for row in table
    ]
    fits = frame[frame["method"] == "Algorithm 1"]["linear_fit"].dropna().astype(float)
    rate = f" Its log gap is straight with R^2 {fits.median():.2f} (median)." if len(fits) else ""
    short = frame[(frame["method"] == "Algorithm 1") & ~frame["converged"].astype(bool)]
    if len(short):
        rate += f" It was cut short in {len(short)} runs, at {int(short['iterations'].max())} steps at most."
    best = wins(frame, rival="Algorithm 1", method="default solver")
    default = "; ".join(
        f"{r['lambda']:g}: lower in {r['wins']} of {r['wins'] + r['losses'] + r['draws']}, "
        f"mean F {r['mean F']:.3g}"
        for r in best
    )
    text = f"Algorithm 1 against DC. {'; '.join(parts)}.{rate} Default solver against Algorithm 1: {default}."
    others = [row for rival in list(SOLVERS)[2:4] for row in wins(frame, rival=rival)]
    return Verdict(kind, text, table + others + best)


def charts(frame) -> list[Chart]:
    """For every lambda the objective less the best, of the first seed, over iterations and over time."""
    found = []
    for lam, group in frame.groupby("lam", sort=True):
        group = group[group["replicate"] == group["replicate"].min()]
        best = float(group["objective"].min())
        for along, label in (("steps_shown", "iterations"), ("times", "seconds")):
            lines = []
            for row in group.itertuples():
                gap = np.maximum(np.asarray(row.history, dtype=float) - best, 1e-8 * abs(best))
                lines.append({"name": row.method, "x": list(getattr(row, along)), "y": gap.tolist()})
            title = f"Objective less the best found, lambda = {lam:g}"
            found.append(Chart(title, label, "F - best", lines, log_x=True, log_y=True))
    return found


def figure(frame):
    """A row of convergence over iterations, and one of where each seed ends."""
    from matplotlib.figure import Figure

    from trimreg.plotting.style import DASHES, PALETTE, tidy

    lams = sorted(frame["lam"].unique())
    picture = Figure(figsize=(11.0, 6.2), layout="constrained")
    axes = picture.subplots(2, len(lams), squeeze=False)
    for column, lam in enumerate(lams):
        here = frame[frame["lam"] == lam]
        first = here[here["replicate"] == here["replicate"].min()]
        ax = axes[0][column]
        for rank, name in enumerate(SOLVERS):
            look = {"color": PALETTE[rank], "linestyle": DASHES[rank % 4], "linewidth": 1.6}
            for row in first[first["method"] == name].itertuples():
                ax.plot(row.steps_shown, row.history, label=name, **look)
        ax.set(xscale="log", yscale="log", xlabel="iterations", ylabel="objective F")
        ax.set_title(f"({'abc'[column % 3]}) lambda = {lam:g}, one draw", fontsize=9.5)
        tidy(ax, grid="y")
        ax = axes[1][column]
        table = here.pivot(index="replicate", columns="method", values="objective")
        for rank, name in enumerate(SOLVERS):
            if name in table:
                ratio = table[name] / table["Algorithm 1"]
                spot = rank + np.linspace(-0.22, 0.22, len(ratio))
                ax.plot(spot, ratio, "o", color=PALETTE[rank], markersize=3.5, alpha=0.75)
        ax.axhline(1.0, color="0.4", linewidth=0.8)
        ax.set_xticks(range(len(SOLVERS)), ["Alg. 1", "DC", "DC aware", "prox", "default"], fontsize=8)
        ax.set_ylabel("final F / Algorithm 1's")
        ax.set_title(f"all {len(table)} draws", fontsize=9.5)
        tidy(ax, grid="y")
    axes[0][0].legend(frameon=False, fontsize=8)
    return picture


EXPERIMENT = Experiment(
    "fig1",
    "Algorithm 1 against the DC algorithm",
    "Algorithm 1 and the DC algorithm start alike; Algorithm 1 then goes on at a linear rate to a lower "
    "objective, while DC tapers off at a higher one; consistently, whatever lambda.",
    cells,
    run,
    charts,
    figure,
    judge,
)

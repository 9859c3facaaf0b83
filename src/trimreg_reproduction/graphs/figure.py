"""The figure of the supplement: support recovery on the diamond graph; :mod:`.diamond` has the fits."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trimreg.plotting import PALETTE

from ..intervals import wilson
from ..spec import Cell, Chart, Experiment, Verdict
from .diamond import ALPHAS, FRACTIONS, default_methods, recovery

NAME = "figS"
TITLES = {0.1: "rho = 0.1: incoherence holds", 0.3: "rho = 0.3: incoherence fails"}
OTHERS = {"MCP": (PALETTE[1], "--"), "SCAD": (PALETTE[2], "-."), "glasso": (PALETTE[6], ":")}
N_SAMPLES = 100
GIVEN_ALPHA = float(np.sqrt(np.log(4) / N_SAMPLES))  # the one fixed in advance: the rate of theory
#: Replicates of a cell, and cells for each rho.
BLOCK = 50
BLOCKS = {"quick": 1, "full": 20}


def cells(size: str) -> list[Cell]:
    """Blocks of replicates for each rho.

    Examples
    --------
    >>> from trimreg_reproduction import figs
    >>> [cell.name for cell in figs.cells("quick")]
    ['figS/rho=0.1,n=100,replicates=50,block=0', 'figS/rho=0.3,n=100,replicates=50,block=0']
    """
    return [
        Cell.of(NAME, rho=rho, n=N_SAMPLES, replicates=BLOCK, block=block)
        for rho in TITLES
        for block in range(BLOCKS[size])
    ]


def run(cell: Cell) -> list[dict]:
    """A row for each method: the replicates that some alpha recovers, and how many each alpha does.

    Examples
    --------
    >>> from trimreg_reproduction import figs
    >>> from trimreg_reproduction.spec import Cell
    >>> rows = figs.run(Cell.of("figS", rho=0.3, n=100, replicates=2, block=0))
    >>> rows[0]["method"], len(rows[0]["any_alpha"]), len(rows[0]["by_alpha"]) == len(figs.ALPHAS) + 1
    ('glasso', 2, True)
    """
    table = recovery(
        cell["rho"], cell["n"], cell["replicates"], methods=default_methods(), given_alpha=GIVEN_ALPHA,
        n_jobs=1, random_state=cell.seed(),
    )  # fmt: skip
    fixed = int(np.flatnonzero(table.alphas == table.given_alpha)[0])
    return [
        {
            "method": method,
            "any_alpha": success.any(axis=1).astype(int).tolist(),
            "by_alpha": success.sum(axis=0).tolist(),
            "fixed_alpha": int(success[:, fixed].sum()),
        }
        for method, success in zip(table.methods, table.success, strict=True)
    ]


# -- what the rows say -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Shares:
    """What :class:`~trimreg_reproduction.graphs.diamond.DiamondTable` says, from the rows of one rho.

    Attributes
    ----------
    rho : float
    recovered : dict of str to ndarray
        For each method, 1 for every replicate that some alpha recovers and 0 for the others.
    counts : dict of str to ndarray
        How many replicates each alpha recovers.
    fixed : dict of str to int
        How many the alpha does that was fixed in advance.
    """

    rho: float
    recovered: dict[str, np.ndarray]
    counts: dict[str, np.ndarray]
    fixed: dict[str, int]

    def any_alpha(self, method: str) -> float:
        return float(self.recovered[method].mean())

    def interval(self, method: str) -> tuple[float, float]:
        return wilson(int(self.recovered[method].sum()), self.recovered[method].size)

    def fixed_alpha(self, method: str) -> float:
        return self.fixed[method] / self.recovered[method].size

    def best_alpha(self, method: str) -> tuple[float, float]:
        alphas = np.unique([*ALPHAS, GIVEN_ALPHA])[::-1]
        best = int(np.argmax(self.counts[method]))
        return float(alphas[best]), float(self.counts[method][best] / self.recovered[method].size)

    def difference(self, method: str, other: str) -> tuple[float, float]:
        gap = self.recovered[method].astype(float) - self.recovered[other]
        return float(gap.mean()), float(gap.std(ddof=1) / np.sqrt(gap.size))


def shares(frame) -> dict[float, Shares]:
    """The shares for each rho, blocks put together in order."""
    found = {}
    for rho, group in frame.groupby("rho"):
        by_method = {name: rows.sort_values("block") for name, rows in group.groupby("method", sort=False)}

        def of(column, by_method=by_method):
            return {name: [np.asarray(one) for one in rows[column]] for name, rows in by_method.items()}

        found[float(rho)] = Shares(
            float(rho),
            {name: np.concatenate(blocks) for name, blocks in of("any_alpha").items()},
            {name: np.sum(blocks, axis=0) for name, blocks in of("by_alpha").items()},
            {name: int(np.sum(blocks)) for name, blocks in of("fixed_alpha").items()},
        )
    return found


def _trimmed(fraction):
    return f"trimmed {fraction:g}"


def judge(frame) -> Verdict:
    """The two claims at each rho: against SCAD and MCP over a range of h, and against the graphical lasso.

    A method is better on these replicates if the difference is above 1.96 of its standard errors.
    """
    tables, rows, text = shares(frame), [], []
    beaten, superior = [], []
    for rho, table in tables.items():
        gaps = {
            other: {fraction: table.difference(_trimmed(fraction), other) for fraction in FRACTIONS}
            for other in OTHERS
        }
        above = {
            other: [f for f, (gap, error) in gaps[other].items() if gap > 1.96 * error] for other in OTHERS
        }
        below = [f for f, (gap, error) in gaps["glasso"].items() if gap < -1.96 * error]
        both = sorted(set(above["SCAD"]) & set(above["MCP"]))
        beaten.append(len(both))
        superior.append(not below)
        best = max(FRACTIONS, key=lambda f: table.any_alpha(_trimmed(f)))
        low, high = table.interval(_trimmed(best))
        text.append(
            f"rho = {rho:g}: at best {table.any_alpha(_trimmed(best)):.2f} [{low:.2f}, {high:.2f}] at "
            f"fraction {best:g}, MCP {table.any_alpha('MCP'):.2f}, SCAD {table.any_alpha('SCAD'):.2f}, "
            f"graphical lasso {table.any_alpha('glasso'):.2f}. Better than both SCAD and MCP at "
            f"{_listed(both)}, better than the graphical lasso at {_listed(above['glasso'])}, "
            f"worse at {_listed(below)}."
        )
        for name in table.recovered:
            low, high = table.interval(name)
            rows.append(
                {
                    "rho": rho,
                    "method": name,
                    "any alpha": round(table.any_alpha(name), 3),
                    "low": round(low, 3),
                    "high": round(high, 3),
                    "best single alpha": round(table.best_alpha(name)[1], 3),
                    "alpha fixed in advance": round(table.fixed_alpha(name), 3),
                }
            )
    wide = [count >= 3 for count in beaten]  # of seven fractions: a range, and not a lucky one
    good = [*wide, *superior]
    kind = "reproduced" if all(good) else "partly" if any(good) or any(beaten) else "not"
    return Verdict(kind, " ".join(text), rows)


def _listed(fractions):
    return ", ".join(f"{fraction:g}" for fraction in fractions) if fractions else "none of the fractions"


# -- pictures ----------------------------------------------------------------------------------------------


def charts(frame) -> list[Chart]:
    """For each rho the probability over the fraction; the other methods are level lines."""
    found = []
    for rho, table in shares(frame).items():
        names = [_trimmed(fraction) for fraction in FRACTIONS]
        low, high = zip(*(table.interval(name) for name in names), strict=True)
        lines = [
            {"name": "trimmed, any alpha", "x": list(FRACTIONS), "y": [table.any_alpha(n) for n in names],
             "low": list(low), "high": list(high)},
            {"name": "trimmed, best single alpha", "x": list(FRACTIONS),
             "y": [table.best_alpha(n)[1] for n in names]},
        ]  # fmt: skip
        for other in OTHERS:
            ends = table.interval(other)
            level = {"y": table.any_alpha(other), "low": ends[0], "high": ends[1]}
            lines.append(
                {"name": f"{other}, any alpha", "x": list(FRACTIONS)}
                | {key: [value] * len(FRACTIONS) for key, value in level.items()}
            )
        title = f"Diamond graph, {TITLES.get(rho, f'rho = {rho:g}')}"
        found.append(Chart(title, "fraction (p² - h) / p² penalized", "probability of the support", lines))
    return found


def figure(frame):
    """A panel for each rho, as in the supplement."""
    return draw_tables(list(shares(frame).values()))


def draw_tables(tables):
    """A figure with a panel for each table, :class:`Shares` or ``DiamondTable``, and one legend."""
    from matplotlib.figure import Figure

    drawing = Figure(figsize=(9.6, 4.2), layout="constrained")
    axes = drawing.subplots(1, len(tables), sharey=True, squeeze=False)[0]
    for ax, table in zip(axes, tables, strict=True):
        draw(ax, table)
    axes[0].set_ylabel("probability of the exact support")
    handles, labels = axes[0].get_legend_handles_labels()
    drawing.legend(handles, labels, frameon=False, fontsize=9, ncols=5, loc="outside lower center")
    return drawing


def draw(ax, table):
    """The trimmed fits over the paper's fraction, with 95 % intervals; the others as lines."""
    names = [_trimmed(fraction) for fraction in FRACTIONS]
    share = np.array([table.any_alpha(name) for name in names])
    low, high = np.array([table.interval(name) for name in names]).T
    around = np.maximum([share - low, high - share], 0.0)  # at 0 and 1 they are 0 up to rounding
    ax.errorbar(
        FRACTIONS, share, yerr=around, color=PALETTE[0], marker="o", markersize=5, capsize=3, linewidth=1.6,
        label="trimmed, any alpha", zorder=3,
    )  # fmt: skip
    best = [table.best_alpha(name)[1] for name in names]
    ax.plot(
        FRACTIONS, best, color=PALETTE[0], marker="o", markerfacecolor="white", markersize=5, linewidth=0.9,
        label="trimmed, best single alpha",
    )  # fmt: skip
    for name, (color, dashes) in OTHERS.items():
        ax.axhline(
            table.any_alpha(name), color=color, linestyle=dashes, linewidth=1.4, label=f"{name}, any alpha"
        )
    ax.set_xlabel("fraction (p² - h) / p² of entries that are penalized")
    ax.set_ylim(0.0, 1.0)
    ax.set_title(TITLES.get(table.rho, f"rho = {table.rho:g}"), fontsize=10, loc="left")
    ax.spines[["top", "right"]].set_visible(False)


EXPERIMENT = Experiment(
    name=NAME,
    title="Support recovery on the diamond graph (supplement)",
    claim=(
        "For a wide range of h the trimmed graphical lasso recovers the support more often than SCAD and "
        "MCP, whether incoherence holds or not, and always more often than the graphical lasso, "
        "which fails where incoherence does not hold. A replicate counts if some lambda of the path "
        "recovers it."
    ),
    cells=cells,
    run=run,
    charts=charts,
    figure=figure,
    judge=judge,
)

"""The picture of the diamond graph: probability of exact support recovery over the fraction penalized.

``python docs/guide/pictures/diamond.py`` draws ``diamond.png`` beside this file. Another path may be given
for the picture, and a number of replicates.
"""

import sys
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from trimreg.experiments.diamond import FRACTIONS, recovery
from trimreg.plotting import PALETTE

HERE = Path(__file__).resolve().parent
OTHERS = {"MCP": (PALETTE[1], "--"), "SCAD": (PALETTE[2], "-."), "glasso": (PALETTE[6], ":")}
TITLES = {0.1: "rho = 0.1: incoherence holds", 0.3: "rho = 0.3: incoherence fails"}


def draw(ax, table):
    """The trimmed fits over the paper's fraction, with 95 % intervals; the others as lines."""
    names = [f"trimmed {fraction:g}" for fraction in FRACTIONS]
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


def main(picture=HERE / "diamond.png", replicates=1000, n_jobs=2):
    figure = Figure(figsize=(9.6, 4.2), layout="constrained")
    axes = figure.subplots(1, 2, sharey=True)
    for ax, rho in zip(axes, TITLES, strict=True):
        draw(ax, recovery(rho, replicates=int(replicates), n_jobs=n_jobs))
    axes[0].set_ylabel("probability of the exact support")
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, frameon=False, fontsize=9, ncols=5, loc="outside lower center")
    figure.savefig(picture, dpi=110)


if __name__ == "__main__":
    main(*sys.argv[1:])

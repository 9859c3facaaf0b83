"""The supplement's figure: rows put together are the table of the diamond graph, and the verdict follows."""

import numpy as np
import pandas as pd
import pytest

from trimreg_reproduction.graphs import figure as figs
from trimreg_reproduction.graphs.diamond import FRACTIONS, recovery
from trimreg_reproduction.spec import Cell


@pytest.fixture(scope="module")
def cells():
    return [Cell.of("figS", rho=rho, n=100, replicates=3, block=b) for rho in (0.1, 0.3) for b in (1, 0)]


@pytest.fixture(scope="module")
def frame(cells):
    return pd.DataFrame([dict(cell.parameters) | row for cell in cells for row in figs.run(cell)])


def test_blocks_together_are_the_tables(cells, frame):
    shares = figs.shares(frame)
    for rho in (0.1, 0.3):
        seeds = {cell["block"]: cell.seed() for cell in cells if cell["rho"] == rho}
        tables = [
            recovery(rho, replicates=3, given_alpha=figs.GIVEN_ALPHA, random_state=seeds[b]) for b in (0, 1)
        ]
        for method in tables[0].methods:
            wanted = np.concatenate([table.recovered[method] for table in tables])
            np.testing.assert_array_equal(shares[rho].recovered[method], wanted)
            both = np.mean([table.counts[method] for table in tables], axis=0) / 3
            alpha, share = shares[rho].best_alpha(method)
            assert (alpha, share) == (tables[0].alphas[np.argmax(both)], pytest.approx(both.max()))
            fixed = np.mean([table.fixed_alpha(method) for table in tables])
            assert shares[rho].fixed_alpha(method) == pytest.approx(fixed)


def test_cells_of_full_size_are_a_thousand_replicates():
    full = figs.cells("full")
    assert sum(cell["replicates"] for cell in full if cell["rho"] == 0.1) == 1000


def made_up(shares, replicates=200):
    """Rows of both rho in which a method recovers this share of the replicates, the same ones for all."""
    rows = []
    for rho in (0.1, 0.3):
        for method in figs.default_methods():
            share = shares.get(method, 0.5)
            hits = [int((i + 0.5) / replicates < share) for i in range(replicates)]
            row = {"rho": rho, "block": 0, "method": method, "any_alpha": hits}
            rows.append(row | {"by_alpha": [0] * 65, "fixed_alpha": 0})
    return pd.DataFrame(rows)


TRIMMED = [f"trimmed {fraction:g}" for fraction in FRACTIONS]


@pytest.mark.parametrize(
    ("shares", "kind"),
    [
        (dict.fromkeys(TRIMMED, 0.8), "reproduced"),
        (dict.fromkeys(TRIMMED[:3], 0.8), "reproduced"),
        (dict.fromkeys(TRIMMED[:1], 0.8), "partly"),
        (dict.fromkeys(TRIMMED[:3], 0.8) | {"trimmed 0.9": 0.2}, "partly"),
        (dict.fromkeys(TRIMMED, 0.2), "not"),
        ({}, "partly"),  # never below the graphical lasso, never above the others
    ],
)
def test_verdicts_follow_the_rows(shares, kind):
    verdict = figs.judge(made_up(shares))
    assert verdict.kind == kind
    assert len(verdict.table) == 2 * len(figs.default_methods())


def test_charts_and_figure_show_the_shares(frame):
    first, second = figs.charts(frame)
    assert "0.1" in first.title
    assert "0.3" in second.title
    table = figs.shares(frame)[0.3]
    lines = {line["name"]: line for line in second.lines}
    assert lines["trimmed, any alpha"]["y"] == [table.any_alpha(name) for name in TRIMMED]
    assert lines["MCP, any alpha"]["y"] == [table.any_alpha("MCP")] * len(FRACTIONS)
    drawing = figs.figure(frame)
    assert [ax.get_title(loc="left") for ax in drawing.axes] == list(figs.TITLES.values())

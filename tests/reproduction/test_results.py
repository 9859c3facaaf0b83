"""The committed results say what results/README.md says of them."""

import re
from functools import cache
from pathlib import Path

import pandas as pd
import pytest

from trimreg_reproduction.exported import Exported
from trimreg_reproduction.linear.methods import AUTHORS, METHODS
from trimreg_reproduction.networks.verdicts import summary, tuned
from trimreg_reproduction.registry import get_experiment, needs_torch

RESULTS = Path(__file__).resolve().parents[2] / "results"
PAGE = (RESULTS / "README.md").read_text(encoding="utf-8")
GUIDE = (RESULTS.parent / "docs" / "guide" / "networks.md").read_text(encoding="utf-8")
TABLES = Exported(RESULTS)
EXPERIMENTS = TABLES.experiments()
MISSING = {"tab3": 1, "nets": 8}  # cells that have not run


@cache
def verdict(name):
    return get_experiment(name).judge(TABLES.frame(name))


def rows_of(start):
    """The cells of the table whose heading begins so."""
    table = PAGE[PAGE.index(f"| {start} |") :].split("\n\n")[0]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]


def test_the_page_names_all_that_is_there():
    assert [row[0] for row in rows_of("name")] == EXPERIMENTS
    assert all((RESULTS / f"{name}.svg").stat().st_size > 10_000 for name in EXPERIMENTS)


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_verdicts_are_those_of_the_rows(name):
    if needs_torch(name):
        pytest.importorskip("torch")
    assert TABLES.size(name) == "full"
    assert TABLES.counts(name).missing == MISSING.get(name, 0)
    assert [verdict(name).kind] == [row[1] for row in rows_of("name") if row[0] == name]


@pytest.fixture(scope="module")
def shares():
    """Shares of recovery at p = 128, by design, n and method."""
    found = {}
    for design, name in (("incoherent", "fig2"), ("M_1(2/k)", "fig3")):
        frame = pd.read_parquet(RESULTS / f"{name}.parquet")
        frame = frame[(frame["panel"] == "recovery") & (frame["p"] == 128)]
        assert set(frame["k"]) == {8}
        for (n, method), group in frame.groupby(["n", "method"]):
            assert len(group) == (100 if method.endswith(AUTHORS) else 200)
            found[design, n, method] = float(group["recovered_any"].astype(bool).mean())
    return found


def test_the_table_of_support_recovery(shares):
    rows = rows_of("design")
    assert len(rows) == 5
    for design, n, *told in rows:
        for suffix, (own, best) in (("", told[:2]), (AUTHORS, told[2:])):
            others = [shares.get((design, int(n), method + suffix), 0.0) for method in METHODS[1:]]
            if suffix:  # the lasso has one solution, however it is solved
                others.append(shares[design, int(n), "lasso"])
            assert float(own) == pytest.approx(shares[design, int(n), "trimmed" + suffix])
            assert float(best) == pytest.approx(max(others))


@pytest.mark.parametrize(
    ("design", "n", "at_least"),
    [("incoherent", 50, 0.35), ("incoherent", 100, 0.48), ("M_1(2/k)", 30, 0.28), ("M_1(2/k)", 50, 0.60),
     ("M_1(2/k)", 100, 0.65)],
)  # fmt: skip
def test_trimming_recovers_as_often_as_it_must(shares, design, n, at_least):
    baselines = max(shares[design, n, method] for method in METHODS[1:])
    assert shares[design, n, "trimmed"] >= max(at_least, baselines)


def test_cross_validated_counts_are_those_of_the_rows():
    told = [tuple(map(int, pair)) for pair in re.findall(r"at (\d+) of (\d+)", PAGE.replace("\n", " "))]
    measured = []
    for name in ("fig2", "fig3"):
        found = re.search(r"Cross-validated lambda: above at (\d+) of (\d+)", verdict(name).measured)
        measured.append(tuple(map(int, found.groups())))
    assert told == measured


def short(count):
    return f"{count / 1e6:.2f}M" if count >= 1e6 else f"{count / 1e3:.1f}k"


def told_of(rows):
    """The mean error, and the parameters and multiplications of the exported networks."""
    if rows.empty:
        return ""
    assert len(rows) == 5
    assert rows["export_difference"].max() < 1e-6
    assert rows["exact"].all() or set(rows["method"]) - {"trimmed", "magnitude", "gradual magnitude"}
    return f"{rows['error'].mean():.2f} ({short(rows['parameters'].mean())}, {short(rows['macs'].mean())})"


def network_rows(name, network, size, part=None):
    """The rows of a method at a size, by recipe and method, and of the dense network."""
    frame = pd.read_parquet(RESULTS / f"{name}.parquet")
    frame = frame[frame["asked"].isin([size, "full"])]
    if "network" in frame:
        frame = frame[frame["network"] == network]
    frame = frame[frame["part"] == part] if part else frame
    frame = frame[frame["part"].isna()] if part is None and "part" in frame else frame
    return lambda method, recipe="ours": frame[(frame["method"] == method) & (frame["recipe"] == recipe)]


SIZED = ("trimmed", "gradual magnitude", "torchao PAT", "magnitude")


def test_the_table_of_networks():
    rows = rows_of("network")
    assert len(rows) == 7
    for network, size, paper, *told in rows:
        name = "tab3" if network.endswith("LeNet-5") else "tab2" if network.startswith("Bayesian") else "tab1"
        found = network_rows(name, network, size)
        assert told == [*(told_of(found(method)) for method in SIZED), told_of(found("trimmed", "paper"))]
        assert set(found("trimmed")["paper"]) == {float(paper)}


def test_the_table_of_networks_beyond_the_paper():
    parts = {"MNIST, plain": "curve", "Fashion-MNIST": "fashion", "MNIST": "anchors"}
    rows = rows_of("data")
    assert len(rows) == 17
    for data, net, size, *told in rows:
        where = "nets", net.removeprefix("Bayesian "), size, parts.get(data)
        if data == "Fashion-MNIST, plain":
            where = "tab1", net, size, "Fashion-MNIST"
        assert (data.endswith("plain")) == (not net.startswith("Bayesian"))
        found = network_rows(*where)
        assert told == [told_of(found(method)) for method in (*SIZED, "dense")]


def test_both_runs_of_half_a_network_are_told():
    places = (("tab1", None), ("nets", "curve"), ("tab1", "Fashion-MNIST"))
    found = [network_rows(name, "LeNet-300-100", "392-150-50", part) for name, part in places]
    pairs = [[rows(method)["error"].mean() for method in ("trimmed", "dense")] for rows in found]
    both = [sum(pair) / 2 for pair in zip(*pairs[:2], strict=True)]
    for mine, dense in (*pairs, both):
        assert f"{mine:.2f} for {dense:.2f}" in PAGE


def test_what_schedule_ranking_and_penalty_are_worth():
    told = [[float(text.split()[0]) for text in row[3:7] if text] for row in rows_of("network")]
    told = [row for row in told if len(row) == 4]  # trimmed, gradual magnitude, PAT, magnitude
    for first, second, where in ((3, 1, (PAGE,)), (1, 0, (PAGE, GUIDE))):
        gaps = [row[first] - row[second] for row in told]
        assert all(f"{min(gaps):.2f} to {max(gaps):.2f}" in page for page in where)
    small = network_rows("nets", "LeNet-5", "2-4-50-32", "curve")
    mine, by_norm = (f"{small(name)['error'].mean():.2f}" for name in SIZED[:2])
    assert f"{mine} for {by_norm}" in PAGE
    assert f"from {by_norm} to {mine} %" in GUIDE

    table = tuned(summary(TABLES.frame("penalty")))
    found = {(line["part"], line["asked"], line["method"]): line["error"] for line in table}
    methods = ("gradual magnitude", "trimmed", "soft", "bcd", "magnitude", "once, taylor")
    assert [list(map(float, row[2:])) for row in rows_of("images")] == [
        [round(found[*row[:2], method], 2) for method in methods] for row in rows_of("images")
    ]
    for method in set(methods) - {"once, taylor"}:
        pair = (f"{found[part, '97-71-33', method]:.2f}" for part in ("MNIST", "Fashion-MNIST"))
        assert f"| {' | '.join(pair)} |" in GUIDE
    better, all_of, worse = re.search(
        r"better in (\d+) of (\d+) comparisons, clearly worse in (\d+)", verdict("penalty").measured
    ).groups()
    for page in (PAGE, GUIDE):
        assert f"in {better} of {all_of} comparisons" in page
        assert f"clearly worse in {worse}." in page.replace("\n", " ")

    lines = [line for line in summary(TABLES.frame("nets")) if line["part"] == "distilled"]
    (chosen,), alone = tuned(lines), lines[0]
    assert f"gives {chosen['error']:.2f} with the weight" in PAGE
    assert f"chose, and {alone['error']:.2f} without" in PAGE


def test_the_table_of_hard_instances():
    from trimreg_reproduction.linear import gsm

    found = {(f"{r['n']} x {r['d']}, k = {r['k']}", r["method"]): r for r in gsm.rates(TABLES.frame("gsm"))}
    heading = PAGE[PAGE.index("| instances |") :].splitlines()[0]
    methods = [name.strip() for name in heading.strip("|").split("|")][2:]
    assert sorted(methods) == sorted(method for names in gsm.FAMILIES.values() for method in names)
    for instances, draws, *told in rows_of("instances"):
        for method, value in zip(methods, told, strict=True):
            row = found.pop((instances, method), None)
            assert (f"{row['success']:.2f}" if row else "") == value
            assert row is None or row["draws"] == int(draws)
    assert not found

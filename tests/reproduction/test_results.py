"""The committed results say what results/README.md says of them."""

import re
from functools import cache
from pathlib import Path

import pandas as pd
import pytest

from trimreg_reproduction.exported import Exported
from trimreg_reproduction.linear.methods import AUTHORS, METHODS
from trimreg_reproduction.registry import get_experiment, needs_torch

RESULTS = Path(__file__).resolve().parents[2] / "results"
PAGE = (RESULTS / "README.md").read_text(encoding="utf-8")
TABLES = Exported(RESULTS)
EXPERIMENTS = TABLES.experiments()
MISSING = {"tab1": 5, "tab2": 1, "tab3": 1, "nets": 13}  # cells that have not run


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


def test_the_table_of_networks():
    columns = [("ours", "trimmed"), ("paper", "trimmed"), ("ours", "torchao PAT"), ("ours", "magnitude")]
    frames = {name: pd.read_parquet(RESULTS / f"{name}.parquet") for name in ("tab1", "tab2", "tab3")}
    rows = rows_of("network")
    assert len(rows) == 7
    for network, size, paper, *told in rows:
        name = "tab3" if network.endswith("LeNet-5") else "tab2" if network.startswith("Bayesian") else "tab1"
        frame = frames[name][frames[name]["asked"] == size]
        for (recipe, method), value in zip(columns, told, strict=True):
            mine = frame[(frame["recipe"] == recipe) & (frame["method"] == method)]
            assert len(mine) == 5
            assert f"{mine['error'].mean():.2f}" == value
            assert set(mine["paper"].dropna()) <= {float(paper)}
            assert mine["exact"].all()
            assert mine["export_difference"].max() < 1e-6


def test_the_table_of_networks_beyond_the_paper():
    frame = pd.read_parquet(RESULTS / "nets.parquet")
    parts = {"MNIST, plain": "curve", "Fashion-MNIST": "fashion", "MNIST": "anchors"}
    rows = rows_of("data")
    assert len(rows) == 16
    for data, net, size, *told in rows:
        network = net.removeprefix("Bayesian ")
        assert (network == net) == (data == "MNIST, plain")
        mine = frame[(frame["part"] == parts[data]) & (frame["network"] == network)]
        for method, value in zip(("trimmed", "torchao PAT", "magnitude", "dense"), told, strict=True):
            errors = mine[(mine["method"] == method) & mine["asked"].isin([size, "full"])]["error"]
            assert (f"{errors.mean():.2f}" if len(errors) else "") == value
            assert len(errors) in (0, 5)
        trimmed = mine[(mine["method"] == "trimmed") & (mine["asked"] == size)]
        assert trimmed["exact"].all()
        assert trimmed["export_difference"].max() < 1e-6
        assert all(float(told[0]) <= float(peer) for peer in told[1:3] if peer)


def test_both_runs_of_half_a_network_are_told():
    runs = [pd.read_parquet(RESULTS / f"{name}.parquet") for name in ("tab1", "nets")]
    runs[1] = runs[1][(runs[1]["part"] == "curve") & (runs[1]["network"] == "LeNet-300-100")]
    pairs = [
        [run[(run["method"] == method) & (run["recipe"] == "ours") & (run["asked"] == size)]["error"].mean()
         for method, size in (("trimmed", "392-150-50"), ("dense", "full"))]
        for run in runs
    ]  # fmt: skip
    both = [sum(pair) / 2 for pair in zip(*pairs, strict=True)]
    for mine, dense in (*pairs, both):
        assert f"{mine:.2f} for {dense:.2f}" in PAGE


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

"""docs/scaling.md: its code prints what it says, and its plan is arithmetic that holds."""

import importlib.util
import re
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("distributed", reason="needs the extra cluster")

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "scaling.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def bench():
    sys.path.insert(0, str(ROOT))
    try:
        yield importlib.import_module("benchmarks.dask_rows")
    finally:
        sys.path.remove(str(ROOT))


def test_the_code_of_the_page_prints_what_it_says(capsys):
    namespace = {"__name__": "scaling"}
    for code in re.findall(r"^```python\n(.*?)^```$", PAGE, flags=re.DOTALL | re.MULTILINE):
        exec(code, namespace)
    said = re.findall(r"^```text\n(.*?)^```$", PAGE, flags=re.DOTALL | re.MULTILINE)
    assert len(said) == 2
    assert capsys.readouterr().out == "".join(said)


def test_what_the_page_links_to_exists():
    links = re.findall(r"\]\(([^)#]+)\)", PAGE)
    assert links
    assert [link for link in links if not (ROOT / "docs" / link).exists()] == []


def test_the_plan_adds_up(bench):
    counts = bench.Counts(passes=10, chunks=4, sent=6.0, received=2.0, gram=True, near=1e-6)
    constants = bench.Constants(read=1e9, made=5e8, flops=1e10, task=1e-3, link=2e8)
    hardware = bench.Hardware(workers=4, threads=2)
    found = bench.plan(10**6, 1000, counts, constants, hardware, chunks=100)
    assert found["bytes of X"] == 4e9
    assert found["client's network, bytes"] == 8e6 * 8
    assert found["memory per worker, X kept"] == 2e9
    assert list(found["seconds"].values()) == pytest.approx([10 * 4e9 / 8e9, 1e12 / 8e10, 1.0, 0.32, 1.0])
    assert found["total"] == pytest.approx(sum(found["seconds"].values()))


@pytest.mark.parametrize("slow", ["storage", "link", "made"])
def test_slower_parts_make_a_plan_longer(bench, slow):
    counts = bench.Counts(passes=10, chunks=4, sent=6.0, received=2.0, gram=False, near=0.0)
    constants = bench.Constants(read=1e9, made=5e8, flops=1e10, task=1e-3, link=2e8)
    arguments = {"storage": 1e8, "link": 1e8, "made": True}

    def total(**options):
        return bench.plan(10**6, 1000, counts, constants, bench.Hardware(4, 2, **options), chunks=100)[
            "total"
        ]

    assert total(**{slow: arguments[slow]}) > total()


def test_generated_chunks_are_the_same_whenever_they_are_made(bench):
    X = bench.generated(25, 3, 10)
    assert X.chunks == ((10, 10, 5), (3,))
    first, second = X.compute(scheduler="sync"), X.compute(scheduler="sync")
    assert first.dtype == np.float32
    assert np.array_equal(first, second)
    assert len(np.unique(first)) > 70

"""The README and the pages for contributors: their code runs and what they say holds, so they cannot rot."""

import doctest
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
GUIDE = ROOT / "CONTRIBUTING.md"
README = ROOT / "README.md"
RESULTS = ROOT / "benchmarks" / "RESULTS.md"
PAGES = sorted((ROOT / "docs" / "contributing").glob("*.md"))


def python_blocks(text: str) -> list[tuple[int, str]]:
    """The fenced Python blocks of a page, each with the line its code begins at."""
    found = []
    for match in re.finditer(r"^```python\n(.*?)^```$", text, flags=re.DOTALL | re.MULTILINE):
        found.append((text.count("\n", 0, match.start(1)), match.group(1)))
    return found


def run_page(text: str, name: str) -> dict:
    """The names that a page defines: its blocks are run in order, as one module."""
    namespace = {"__name__": name}
    for line, code in python_blocks(text):
        exec(
            compile("\n" * line + code, name, "exec"), namespace
        )  # blank lines: tracebacks name the page's line
    return namespace


def test_there_is_a_page_for_each_kind_of_addition():
    assert [page.stem for page in PAGES] == ["add_a_design", "add_a_loss", "add_a_penalty"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_code_of_a_page_runs_and_its_tests_pass(page):
    names = run_page(page.read_text(encoding="utf-8"), str(page))
    tests = [value for name, value in names.items() if name.startswith("test_")]
    assert len(tests) >= 3
    for test in tests:
        test()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_docstrings_of_a_page_are_true(page):
    names = run_page(page.read_text(encoding="utf-8"), str(page))
    classes = [value for value in names.values() if isinstance(value, type) and value.__module__ == str(page)]
    assert len(classes) == 1
    (examples,) = doctest.DocTestFinder(recurse=False).find(classes[0], classes[0].__name__, False, names)
    outcome = doctest.DocTestRunner().run(examples)
    assert outcome.attempted > 0
    assert outcome.failed == 0


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_is_written_as_the_code_is(page):
    for line, code in python_blocks(page.read_text(encoding="utf-8")):
        for offset, row in enumerate(code.splitlines()):
            assert len(row) <= 110, f"{page.name}, line {line + offset + 1} has {len(row)} characters"


def test_a_broken_page_is_noticed():
    page = "text\n\n```python\nx = 1\n```\n\n```sh\nnot python\n```\n\n```python\ny = x + nothing\n```\n"
    with pytest.raises(NameError, match="nothing") as caught:
        run_page(page, "page.md")
    assert caught.traceback[-1].lineno == 11  # counted from 0


def test_what_the_guide_speaks_of_exists():
    guide = GUIDE.read_text(encoding="utf-8")
    targets = set(
        re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE)
    )
    spoken = set(re.findall(r"\bmake ([a-z]+)", guide))
    assert spoken
    assert spoken <= targets
    links = re.findall(r"\]\(([^)#]+)\)", guide)
    assert {link for link in links if not link.startswith("http") and not (ROOT / link).exists()} == set()
    assert {f"docs/contributing/{page.name}" for page in PAGES} <= set(links)


# -- the README --------------------------------------------------------------------------------------------


def test_the_code_of_the_readme_prints_what_it_says(capsys):
    names = run_page(README.read_text(encoding="utf-8"), str(README))
    support, recovered, optimal, stationarity, minimum, swap = capsys.readouterr().out.strip().splitlines()
    assert len(support.strip("[]").split()) == 10
    assert (recovered, optimal, minimum) == ("True", "True", "True")
    assert float(stationarity) < 1e-25
    assert "enters=None" in swap
    assert names["result"].converged


def test_the_figures_of_the_readme_are_those_of_the_benchmarks():
    text = README.read_text(encoding="utf-8")
    table = text.partition("<!-- written by make bench -->")[2].partition("<!-- end -->")[0]
    figures = re.findall(r"\b\d+\.\d{2,3}\b", table)
    assert len(figures) >= 10
    results = RESULTS.read_text(encoding="utf-8")
    assert [figure for figure in figures if figure not in results] == []


def test_what_the_readme_links_to_exists():
    for target in re.findall(r"\]\(([^)#]+)\)", README.read_text(encoding="utf-8")):
        assert (ROOT / target).exists(), target

"""README, guide and pages for contributors: their code runs and what they say holds, so they cannot rot."""

import doctest
import re
import runpy
from pathlib import Path

import pytest

import trimreg
import trimreg.nn

ROOT = Path(__file__).resolve().parent.parent
GUIDE = ROOT / "CONTRIBUTING.md"
README = ROOT / "README.md"
RESULTS = ROOT / "benchmarks" / "RESULTS.md"
PAGES = sorted((ROOT / "docs" / "contributing").glob("*.md"))
GUIDES = sorted((ROOT / "docs" / "guide").glob("*.md"))
GUIDES.remove(ROOT / "docs" / "guide" / "commands.md")  # tests/cli/test_guide.py types its commands


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
    assert [page.stem for page in PAGES] == [
        "add_a_design",
        "add_a_loss",
        "add_a_penalty",
        "add_an_experiment",
    ]


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
    own = [value for value in names.values() if getattr(value, "__module__", None) == str(page)]
    with_examples = [value for value in own if callable(value) and ">>>" in (value.__doc__ or "")]
    assert len(with_examples) == 1
    (one,) = with_examples
    (examples,) = doctest.DocTestFinder(recurse=False).find(one, one.__name__, False, names)
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
    run_page(README.read_text(encoding="utf-8"), str(README))
    found, optimal, stationarity, size = capsys.readouterr().out.split()
    assert (found, optimal, size) == ("True", "True", "10")
    assert float(stationarity) < 1e-25


def test_the_readme_is_short_and_names_only_what_there_is():
    text = README.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 150
    named = set(re.findall(r"\b((?:Trimmed[A-Z]|MultiTask|MEstimator|Stability|OnDisk)\w*)", text))
    assert len(named) > 12
    assert {name for name in named if not hasattr(trimreg, name) and not hasattr(trimreg.nn, name)} == set()


def test_the_figures_of_the_readme_are_those_of_the_benchmarks():
    rows = [
        page.read_text(encoding="utf-8")
        .partition("<!-- written by make bench -->")[2]
        .partition("<!-- end -->")[0]
        for page in (README, RESULTS)
    ]
    few, all_ = (table.strip().splitlines()[2:] for table in rows)
    assert len(few) == 5
    assert set(few) < set(all_)
    sections = RESULTS.read_text(encoding="utf-8").partition("<!-- end -->")[2]
    assert [figure for figure in re.findall(r"\b\d+\.\d{2,4}\b", rows[1]) if figure not in sections] == []


def test_what_the_readme_links_to_exists():
    for target in re.findall(r"\]\(([^)#]+)\)", README.read_text(encoding="utf-8")):
        assert (ROOT / target).exists(), target


# -- the guide ---------------------------------------------------------------------------------------------


def differences(printed: str, expected: str) -> list[str]:
    """Where a print-out is not what a page says. The last digit of a number may differ, for rounding."""
    found, wanted = printed.split(), expected.split()
    if len(found) != len(wanted):
        return [f"{len(found)} words in place of {len(wanted)}"]
    return [f"{a} in place of {b}" for a, b in zip(found, wanted, strict=True) if not _same_word(a, b)]


def _same_word(a: str, b: str) -> bool:
    if a == b:
        return True
    a, b = (re.fullmatch(r"(\W*?)(-?\d+\.(\d+))(\W*)", word) for word in (a, b))
    if not a or not b or a.group(1, 4) != b.group(1, 4) or len(a[3]) != len(b[3]):
        return False
    return abs(float(a[2]) - float(b[2])) < 1.5 * 10.0 ** -len(a[3])


@pytest.mark.parametrize("page", GUIDES, ids=lambda page: page.stem)
def test_the_code_of_a_guide_prints_what_it_says(page, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = page.read_text(encoding="utf-8")
    said = re.findall(r"^```text\n(.*?)^```$", text, flags=re.DOTALL | re.MULTILINE)
    assert said
    run_page(text, str(page))
    assert differences(capsys.readouterr().out, "".join(said)) == []


@pytest.mark.parametrize("page", GUIDES, ids=lambda page: page.stem)
def test_what_a_guide_links_to_exists_and_is_small(page):
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8")):
        if not target.startswith("http"):
            assert (page.parent / target).exists(), target
            limit = 300_000 if target.endswith(".md") else 100_000
            assert (page.parent / target).stat().st_size < limit, target


@pytest.mark.parametrize(
    ("printed", "right"),
    [
        ("size 0.76 true", True),
        ("size  0.77\ntrue", True),
        ("size 0.78 true", False),
        ("size 0.8 true", False),
        ("size 0.76 false", False),
        ("size -0.76 true", False),
        ("size [0.76 true", False),
        ("size 0.76", False),
    ],
)
def test_a_wrong_print_out_is_noticed(printed, right):
    assert (differences(printed, "size 0.76 true") == []) == right
    assert differences("8 18", "8 19") == ["18 in place of 19"]


def test_the_picture_of_slope_is_drawn_and_its_table_is_that_of_the_page(tmp_path, capsys):
    script = ROOT / "docs" / "guide" / "pictures" / "slope.py"
    main = runpy.run_path(str(script))["main"]
    main(tmp_path / "slope.png", draws=1)
    assert (tmp_path / "slope.png").stat().st_size > 10_000
    heading, _, *rows = capsys.readouterr().out.strip().splitlines()
    page = (ROOT / "docs" / "guide" / "slope.md").read_text(encoding="utf-8")
    assert heading in page
    (said,) = re.findall(r"^method .*?^```$", page, flags=re.DOTALL | re.MULTILINE)
    for row, line in zip(rows, said.splitlines()[1:4], strict=True):  # one draw is the data set of the page
        name, found, false, kept, error = row.strip("| ").split(" | ")[:5]
        assert differences(f"{name} {float(found):.0f} {float(false):.0f} {kept} {error}", line) == []


def test_the_pictures_of_the_choice_are_drawn(tmp_path):
    from trimreg import StabilitySelection, TrimmedLassoCV
    from trimreg.datasets import make_ar1

    script = runpy.run_path(str(ROOT / "docs" / "guide" / "pictures" / "choosing.py"))
    data = make_ar1(n_samples=40, n_features=5, n_nonzero=2, rho=0.3, snr=5, random_state=0)
    fits = {  # what the page defines, of small data
        "model": TrimmedLassoCV(hs=range(4), cv=3).fit(data.X, data.y),
        "sparse": TrimmedLassoCV(hs=range(4), cv=3, rule="1se").fit(data.X, data.y),
        "surface": TrimmedLassoCV(hs=range(4), alphas=["exact", 1.0, 0.1], cv=3).fit(data.X, data.y),
        "stable": StabilitySelection(hs=[1, 2, 3], n_pairs=5).fit(data.X, data.y),
        "names": list("abcde"),
    }
    text = (ROOT / "docs" / "guide" / "choosing.md").read_text(encoding="utf-8")
    assert all(f"\n{name} = " in text or f"{name} = diabetes_interactions()" in text for name in fits)
    script["main"].__globals__["page_names"] = lambda: fits
    script["main"](tmp_path)
    drawn = sorted(path.name for path in tmp_path.iterdir())
    assert drawn == ["choosing.png", "choosing_stability.png", "choosing_surface.png"]
    assert all(path.stat().st_size > 5_000 for path in tmp_path.iterdir())


def test_the_picture_of_the_graph_is_drawn(tmp_path):
    runpy.run_path(str(ROOT / "docs" / "guide" / "pictures" / "graphs.py"))["main"](tmp_path)
    assert (tmp_path / "graphs.png").stat().st_size > 10_000

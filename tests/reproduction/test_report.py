"""The report of experiments, and the parts of its pages."""

import dataclasses
import json
from datetime import UTC, datetime
from html.parser import HTMLParser

import numpy as np
import pytest

from trimreg.reports import pages
from trimreg_reproduction.report import duration, findings, write_report
from trimreg_reproduction.spec import Cell, Chart, Experiment, Verdict
from trimreg_reproduction.worker import Outcome

HOSTILE = "<img src=x onerror=alert(1)></script><!--<script>alert(1)</script>\"'&amp;{{ 7*7 }}\u2028"


class Page(HTMLParser):
    """What a page holds: its elements with their attributes, its text, its blocks of scripts."""

    VOID = frozenset({"meta", "link", "img", "input", "br"})

    def __init__(self, html):
        super().__init__()
        self.elements, self.texts, self.open, self.scripts = [], [], [], []
        self.feed(html)
        self.close()
        assert self.open == [], "an element is not closed"

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        if tag not in self.VOID:
            self.open.append(tag)
            self.scripts += [""] if tag == "script" else []

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] == "script":
            self.scripts[-1] += data
        elif self.open and self.open[-1] != "style":
            self.texts.append(data)

    @property
    def text(self):
        return "".join(self.texts)

    def of(self, tag, **attributes):
        wanted = attributes.items()
        return [found for name, found in self.elements if name == tag and wanted <= found.items()]

    def charts(self):
        return json.loads(self.scripts[0])


def no_cells(size):
    return []


def draw(frame):
    from matplotlib import pyplot

    figure, ax = pyplot.subplots(figsize=(3, 2))
    ax.plot(frame["n"], frame["rate"])
    return figure


def curves(frame):
    return [Chart(HOSTILE, HOSTILE, HOSTILE, [{"name": HOSTILE, "x": frame["n"], "y": frame["rate"]}])]


def judge(frame):
    rows = [row | {HOSTILE: HOSTILE} for row in frame.to_dict("records")]
    return Verdict("partly", f"Rates {HOSTILE}\n\nand more.", rows)


TOY = Experiment("toy", f"Toy {HOSTILE}", f"Claim {HOSTILE}", no_cells, no_cells, curves, draw, judge)


def outcome(cell, rate, seconds=2.0):
    parameters = json.dumps(dict(cell.parameters))
    rows = None if rate is None else json.dumps([{"rate": rate}])
    error = "Traceback: it failed" if rate is None else None
    return Outcome("toy", cell.name, parameters, rows, error, seconds, "0.1.0")


def fill(store, rates, size="full"):
    cells = [Cell.of("toy", n=10 * (k + 1)) for k in range(len(rates))]
    store.plan("toy", size, [cell.name for cell in cells])
    for cell, rate in zip(cells, rates, strict=True):
        if rate != "missing":
            store.record(outcome(cell, rate))


def read(store, tmp_path, experiments=(TOY,), **options):
    return Page(write_report(store, tmp_path / "page.html", experiments, **options).read_text("utf-8"))


# -- the report -----------------------------------------------------------------------------------------


def test_a_section_has_claim_verdict_figure_table_charts_and_command(store, tmp_path):
    fill(store, [0.25, 0.5])
    page = read(store, tmp_path)
    for part in (f"Toy {HOSTILE}", f"Claim {HOSTILE}", f"Rates {HOSTILE}", "and more.", "partly reproduced"):
        assert part in page.text
    assert "trimreg reproduce toy --full" in page.text
    keys = [cell["data-key"] for cell in page.of("td") if "data-key" in cell]
    assert keys == ["10.0", "0.25", HOSTILE, "20.0", "0.5", HOSTILE]
    (picture,) = page.of("img")
    assert picture["src"].startswith("data:image/svg+xml;base64,")
    assert len(page.of("figure", **{"class": "chart", "data-chart": "0"})) == 1
    assert page.charts()[0]["data"][0]["y"] == [0.25, 0.5]
    for fact in ("2 of 2", "4.0 s", "0.1.0", "UTC"):
        assert fact in page.text
    assert "Not all cells" not in page.text
    assert "quick run" not in page.text


def test_a_page_asks_for_nothing_outside_it(store, tmp_path):
    fill(store, [0.25, 0.5])
    page = read(store, tmp_path)
    for _, attributes in page.elements:
        for key in ("src", "href", "action", "data", "srcset"):
            assert attributes.get(key, "#").startswith(("#", "data:"))
        assert not any(key.startswith("on") for key in attributes)
    (policy,) = page.of("meta", **{"http-equiv": "Content-Security-Policy"})
    assert policy["content"].startswith("default-src 'none'; script-src 'sha256-")
    assert "script-src 'unsafe-inline'" not in policy["content"]
    assert len(page.scripts) == 3  # the data, plotly (packed), our own
    assert not page.of("script", src="")


def test_plotly_is_in_a_page_once_and_only_if_there_are_charts(store, tmp_path):
    fill(store, [0.25])
    many = dataclasses.replace(TOY, charts=lambda frame: curves(frame) * 5)
    assert sum(len(script) > 1_000_000 for script in read(store, tmp_path, [many]).scripts) == 1
    assert len(read(store, tmp_path, []).scripts) == 2


def test_an_experiment_without_results_is_said_to_be_missing(store, tmp_path):
    fill(store, [0.25])
    page = read(store, tmp_path, [dataclasses.replace(TOY, name="other", title="Other")])
    assert "not run" in page.text
    assert "no results in the store" in page.text
    assert "trimreg reproduce other --full" in page.text
    assert page.of("section", id="other")


def test_all_of_the_registry_is_the_default(store, tmp_path, monkeypatch):
    from trimreg_reproduction import registry

    experiments = {name: dataclasses.replace(TOY, name=name) for name in ("toy", "other")}
    monkeypatch.setattr(registry, "EXPERIMENTS", dict.fromkeys(experiments))
    monkeypatch.setattr(registry, "get_experiment", experiments.__getitem__)
    fill(store, [0.25])
    page = Page(write_report(store, tmp_path / "page.html").read_text("utf-8"))
    assert [section["id"] for section in page.of("section")] == ["toy", "other"]


def test_cells_that_failed_or_were_not_run_are_counted(store, tmp_path):
    fill(store, [0.25, None, "missing", "missing"])
    page = read(store, tmp_path)
    assert "Of 4 cells, 1 failed and 2 did not run." in page.text
    assert "1 of 4" in page.text
    assert page.charts()[0]["data"][0]["x"] == [10]  # a failure is no result


def test_failures_alone_are_no_results(store, tmp_path):
    fill(store, [None])
    page = read(store, tmp_path)
    assert "no results" in page.text
    assert "cells failed" in page.text


def test_a_quick_run_is_marked_and_a_size_can_be_chosen(store, tmp_path):
    fill(store, [0.25, 0.5], size="full")
    fill(store, [0.25], size="quick")
    last = read(store, tmp_path)
    assert "no evidence" in last.text
    assert "partly reproduced, quick run" in last.text
    assert "reproduce toy --quick" in last.text
    full = read(store, tmp_path, size="full")
    assert "no evidence" not in full.text
    assert "quick run" not in full.text
    assert full.charts()[0]["data"][0]["x"] == [10, 20]
    other = read(store, tmp_path, [dataclasses.replace(TOY, name="other")], size="full")
    assert "not run" in other.text


@pytest.mark.parametrize(
    ("part", "what"), [("judge", "The verdict"), ("figure", "The figure"), ("charts", "The charts")]
)
def test_a_part_that_cannot_be_made_is_named_and_the_others_stay(store, tmp_path, part, what):
    fill(store, [0.25, 0.5])
    page = read(store, tmp_path, [dataclasses.replace(TOY, **{part: lambda frame: frame["absent"]})])
    assert f"{what} could not be made from these results (KeyError: 'absent')" in page.text
    assert ("partly reproduced" in page.text) == (part != "judge")
    assert ("not judged" in page.text) == (part == "judge")
    assert bool(page.of("img")) == (part != "figure")
    assert bool(page.charts()) == (part != "charts")


def test_one_part_cannot_change_the_results_of_another(store):
    import pandas

    def spoil(frame):
        frame["rate"] = 7.0
        return Verdict("not", "")

    found = findings(dataclasses.replace(TOY, judge=spoil), pandas.DataFrame({"n": [1], "rate": [0.5]}))
    assert found.charts[0]["data"][0]["y"] == [0.5]


def test_figures_are_closed_and_the_same_every_time(store):
    import pandas
    from matplotlib import pyplot

    frame, before = pandas.DataFrame({"n": [1, 2], "rate": [0.5, 0.1]}), pyplot.get_fignums()
    assert pages.svg_image(draw(frame)) == pages.svg_image(draw(frame))
    assert pyplot.get_fignums() == before


def test_charts_are_counted_across_sections(store, tmp_path):
    fill(store, [0.25])
    page = read(store, tmp_path, [dataclasses.replace(TOY, charts=lambda frame: curves(frame) * 2), TOY])
    assert [figure["data-chart"] for figure in page.of("figure", **{"class": "chart"})] == ["0", "1", "2"]
    assert len(page.charts()) == 3


@pytest.mark.parametrize(("seconds", "text"), [(0, "0.0 s"), (59.94, "59.9 s"), (3599.6, "1 h 0 min")])
def test_times_roll_over(seconds, text):
    assert duration(seconds) == text


# -- parts of a page --------------------------------------------------------------------------------------


def test_text_is_escaped_in_html_and_in_scripts():
    page = Page(pages.render("report.html", title=HOSTILE, sections=[], charts=[{"name": HOSTILE}]))
    assert HOSTILE in page.text
    assert page.charts() == [{"name": HOSTILE}]
    assert "</script" not in "".join(page.scripts)
    assert page.of("img") == []


def test_a_name_that_is_missing_in_a_template_is_an_error():
    import jinja2

    with pytest.raises(jinja2.UndefinedError):
        pages.render("report.html", title="")


def test_the_date_is_that_of_the_writing():
    page = pages.render("report.html", title="", sections=[], now=datetime(2024, 2, 3, 4, 5, tzinfo=UTC))
    assert "2024-02-03 04:05 UTC" in page


def test_numbers_that_are_not_finite_cannot_slip_into_the_json():
    with pytest.raises(ValueError):
        pages.script_json({"y": float("nan")})


@pytest.mark.parametrize(
    ("values", "is_number"),
    [
        ([1, 2.5, None], True),
        ([np.float64(1.0), np.int32(2)], True),
        ([1, "a"], False),
        ([True, False], False),
        ([None, float("nan")], False),
        ([[1, 2]], False),
    ],
)
def test_a_column_is_of_numbers_if_all_that_is_there_is(values, is_number):
    table = pages.table([{"a": value} for value in values])
    assert table["columns"] == [{"header": "a", "is_number": is_number}]


def test_cells_without_a_value_have_no_key():
    table = pages.table([{"a": None}, {"a": float("nan")}, {"b": 0}])
    assert [[cell["key"] for cell in row] for row in table["rows"]] == [["", ""], ["", ""], ["", "0.0"]]


def test_keys_hold_all_digits():
    table = pages.table([{"a": 0.1 + 0.2}, {"a": np.float32(1.5)}, {"a": True}])
    assert [row[0]["key"] for row in table["rows"]] == ["0.30000000000000004", "1.5", "1.0"]


@pytest.mark.parametrize("package", ["jinja2", "plotly.offline"])
def test_a_missing_package_says_what_to_install(monkeypatch, package):
    import sys

    pages._plotly.cache_clear()
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ImportError, match=r"pip install 'trimreg\[report\]'"):
        pages.render("report.html", title="", sections=[], charts=[{}])

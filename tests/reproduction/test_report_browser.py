"""The pages in a real browser."""

import json
from dataclasses import replace

import numpy as np
import pytest
from browser import CHROMIUM, Browser

from trimreg.reports import write_model_report
from trimreg_reproduction.report import write_report
from trimreg_reproduction.spec import Cell, Chart, Experiment, Verdict
from trimreg_reproduction.store import Outcome, Store

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium on this machine")

HOSTILE = '<img src=x onerror="window.hacked=1"></script><script>window.hacked=1</script><b>&lt;%{y}'


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    one = Browser(tmp_path_factory.mktemp("profile"))
    yield one
    one.close()


# -- pages ------------------------------------------------------------------------------------------------


def toy_charts(frame):
    n, rate = frame["n"].tolist(), frame["rate"].tolist()
    band = {"low": [value - 0.2 for value in rate], "high": [value + 0.2 for value in rate]}
    lines = [{"name": HOSTILE, "x": n, "y": rate, **band}, {"name": "lasso", "x": n, "y": rate[::-1]}]
    return [Chart("Rates", "n", "rate", lines), Chart(HOSTILE, "n", HOSTILE, lines[1:], log_y=True)]


def toy_figure(frame):
    from matplotlib.figure import Figure

    figure = Figure(figsize=(3, 2))
    figure.subplots().plot(frame["n"], frame["rate"])
    return figure


def toy_judge(frame):
    table = [
        {"method": f"m{n}", "n": n, "rate": rate} for n, rate in zip(frame["n"], frame["rate"], strict=True)
    ]
    return Verdict("partly", f"It was {HOSTILE}", [*table, {"method": HOSTILE, "n": None, "rate": 2e-5}])


TOY = Experiment(
    "toy", "A toy", "It claims.", lambda size: [], lambda cell: [], toy_charts, toy_figure, toy_judge
)


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    with Store(folder / "results.sqlite") as store:
        cells = [Cell.of("toy", n=n) for n in (100, 25, 400)]
        store.plan("toy", "full", [cell.name for cell in cells])
        for cell, rate in zip(cells, (0.5, 0.1, 0.9), strict=True):
            parameters, rows = json.dumps(dict(cell.parameters)), json.dumps([{"rate": rate}])
            store.record(Outcome("toy", cell.name, parameters, rows, None, 1.0, "0.1.0"))
        return write_report(store, folder / "page.html", [TOY, replace(TOY, name="other", title="Never run")])


@pytest.fixture(scope="module")
def model_page(tmp_path_factory):
    pandas = pytest.importorskip("pandas")
    from trimreg import TrimmedLassoCV

    rng = np.random.default_rng(0)
    X = pandas.DataFrame(rng.standard_normal((60, 4)), columns=["a", HOSTILE, "c", "d"])
    y = 3 * X[HOSTILE] - X["c"] + 0.1 * rng.standard_normal(60)
    model = TrimmedLassoCV(hs=[0, 1, 2, 3], alphas=["exact", 0.1]).fit(X, y)
    return write_model_report(
        model, tmp_path_factory.mktemp("model") / "page.html", X=X, y=y, target=HOSTILE, data=HOSTILE,
        scores={HOSTILE: 0.5}, notes=[HOSTILE], command=HOSTILE,
    )  # fmt: skip


@pytest.mark.parametrize("page", ["report", "model_page"])
def test_a_page_opens_without_a_complaint_and_hostile_text_stays_text(browser, page, request):
    browser.open(request.getfixturevalue(page))
    count = browser.run("document.querySelectorAll('figure.chart').length")
    assert count >= 2
    browser.run("dispatchEvent(new Event('beforeprint'))")  # draws the charts that are out of sight
    browser.wait(f"document.querySelectorAll('.plot .cartesianlayer').length === {count}")
    assert browser.complaints() == []
    assert browser.run("window.hacked === undefined")
    assert (
        browser.run(
            "document.querySelectorAll('img[onerror], main b, .plot a:not(.modebar-btn), main script').length"
        )
        == 0
    )
    assert browser.run("document.documentElement.scrollWidth <= innerWidth")
    shown = browser.run("document.querySelector('main').textContent")
    assert HOSTILE in shown
    assert browser.run(
        f"[...document.querySelectorAll('td')].some(td => td.textContent === {json.dumps(HOSTILE)})"
    )


def test_the_policy_of_the_page_stops_what_escaping_might_miss(browser, report):
    browser.open(report)
    browser.run(
        "document.body.insertAdjacentHTML('beforeend', '<img src=\"data:,\" onerror=\"window.hacked=1\">')"
    )
    browser.wait("[...document.images].every(image => image.complete)")
    assert browser.run("window.hacked === undefined")
    assert any("Content Security Policy" in text for text in browser.complaints())


def rows(browser, place, table=0):
    cells = f"[...document.querySelectorAll('table.sortable')[{table}].tBodies[0].rows]"
    return browser.run(f"{cells}.map(row => row.cells[{place}].textContent)")


def test_a_click_sorts_by_size_another_turns_round_and_missing_values_stay_last(browser, report):
    browser.open(report)
    assert rows(browser, 1) == ["100", "25", "400", "–"]  # noqa: RUF001
    click = "document.querySelectorAll('table.sortable th button')[{}].click()"
    browser.run(click.format(1))
    assert rows(browser, 1) == ["25", "100", "400", "–"]  # noqa: RUF001
    assert rows(browser, 0)[:3] == ["m25", "m100", "m400"]  # whole rows move
    assert browser.run("document.querySelectorAll('table.sortable th')[1].ariaSort") == "ascending"
    browser.run(click.format(1))
    assert rows(browser, 1) == ["400", "100", "25", "–"]  # noqa: RUF001
    browser.run(click.format(2))
    assert rows(browser, 2) == ["2e-05", "0.1", "0.5", "0.9"]  # as numbers, not as text
    assert browser.run("document.querySelectorAll('[aria-sort]').length") == 1
    browser.run(click.format(0))
    assert rows(browser, 0)[1:] == ["m25", "m100", "m400"]


def test_switches_turn_axes_to_logarithms_and_back(browser, report):
    browser.open(report)
    first = "document.querySelectorAll('figure.chart')[0].querySelector('{}')"
    plot, log_x, log_y = (first.format(what) for what in (".plot", "[data-axis=x]", "[data-axis=y]"))
    browser.run(f"{log_y}.click()")
    assert browser.run(f"{plot}.layout.yaxis.type") == "log"
    assert browser.run(f"{plot}.layout.xaxis.type") == "linear"
    assert browser.run(f"Math.min(...{plot}.data[0].y)") == pytest.approx(0.1)  # was below 0
    browser.run(f"Plotly.relayout({plot}, {{'xaxis.range': [90, 110]}}).then(() => 1)")
    browser.run(f"{log_x}.click()")  # shows all again, for a range of numbers is none of logarithms
    assert browser.run(f"{plot}.layout.xaxis.type") == "log"
    low, high = browser.run(f"{plot}._fullLayout.xaxis.range")
    assert 1.0 < low < np.log10(25) < np.log10(400) < high < 3.0
    browser.run(f"{log_y}.click()")
    assert browser.run(f"{plot}.layout.yaxis.type") == "linear"
    assert browser.run(f"Math.min(...{plot}.data[0].y)") == pytest.approx(-0.1)
    second = "document.querySelectorAll('figure.chart')[1].querySelector('[data-axis=y]')"
    assert browser.run(f"{second}.checked")  # begins as the chart asks
    assert browser.complaints() == []


def test_a_chart_out_of_sight_is_drawn_when_it_is_asked_for(browser, model_page):
    browser.ask("Emulation.setDeviceMetricsOverride", width=390, height=300, deviceScaleFactor=1, mobile=True)
    try:
        browser.open(model_page)
        last = "[...document.querySelectorAll('figure.chart')].at(-1)"
        assert not browser.run(f"{last}.dataset.drawn")
        browser.run(f"{last}.querySelector('[data-axis=x]').click()")
        browser.wait(f"{last}.querySelector('.cartesianlayer')")
        assert browser.run(f"{last}.querySelector('.plot').layout.xaxis.type") == "log"
        assert browser.complaints() == []
    finally:
        browser.ask("Emulation.clearDeviceMetricsOverride")


def test_pointing_at_a_curve_shows_its_value_and_interval(browser, report):
    browser.open(report)
    plot = "document.querySelector('.plot')"
    browser.wait(f"{plot}.querySelector('.legendtext')")
    assert browser.run(f"{plot}.querySelector('.legendtext').textContent").startswith("<img src=x onerror")
    browser.run(f"Plotly.Fx.hover({plot}, [{{curveNumber: 1, pointNumber: 0}}])")
    browser.wait(f"{plot}.querySelector('.hoverlayer text')")
    shown = browser.run(f"{plot}.querySelector('.hoverlayer').textContent")
    assert shown == f"{HOSTILE[:24]}…{HOSTILE[-23:]}0.5000 (0.3 to 0.7)"
    assert browser.run("window.hacked === undefined")
    assert browser.complaints() == []


def test_a_page_fits_a_phone(browser, report, model_page):
    browser.ask("Emulation.setDeviceMetricsOverride", width=390, height=844, deviceScaleFactor=1, mobile=True)
    try:
        for page in (report, model_page):
            browser.open(page)
            assert browser.run("document.documentElement.scrollWidth") <= 390
    finally:
        browser.ask("Emulation.clearDeviceMetricsOverride")

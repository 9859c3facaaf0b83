"""Charts as plotly's JSON: plotly itself checks them, and text in them stays text."""

import json

import numpy as np
import pytest

from trimreg.reports.charts import band, bar_json, chart_json, heat_json
from trimreg_reproduction.spec import Chart

HOSTILE = '<a href="https://example.org">%{y}</a> &lt; $x$'
SHOWN = '&lt;a href="https://example.org"&gt;%{y}&lt;/a&gt; &amp;lt; $x$'


def line(**more):
    return {"name": "a", "x": [1, 2, 3], "y": [0.5, 1.0, 2.0]} | more


def made(**options):
    chart = Chart("t", "x", "y", [line(low=[0.1, -0.5, 1.5], high=[1, 2, 3])], **options)
    return chart_json(chart)


def heat(**more):
    values = [[0.1, 0.2], [0.3, np.nan]]
    labels = {"x_label": "alpha", "y_label": "h", "value_label": "score"}
    return heat_json("t", ["exact", 0.1], [1, 2], values, **labels | more)


EXAMPLES = {
    "lines": made(),
    "log": made(log_x=True, log_y=True),
    "many": chart_json(Chart("t", "x", "y", [line(name=str(k)) for k in range(30)])),
    "one point": chart_json(Chart("t", "x", "y", [{"name": "a", "x": [1], "y": [2]}])),
    "names": chart_json(Chart("t", "x", "y", [line(x=["2020-01-01", HOSTILE, "c"])])),
    "none": chart_json(Chart("t", "x", "y", [])),
    "long": chart_json(Chart("t", "x", "y", [{"name": "a", "x": range(500), "y": range(500)}])),
    "heat": heat(chosen=("exact", 2)),
    "empty heat": heat_json("t", [], [], [], x_label="", y_label="", value_label=""),
    "bars": bar_json("t", [HOSTILE, "b"], [1.0, -2.0], x_label=HOSTILE),
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_plotly_takes_it_and_so_does_json(name):
    graph_objects = pytest.importorskip("plotly.graph_objects")
    chart = EXAMPLES[name]
    graph_objects.Figure({"data": chart["data"], "layout": chart["layout"]})  # raises if it knows a key not
    assert json.loads(json.dumps(chart, allow_nan=False)) == chart
    assert set(chart) == {"title", "data", "layout", "log", "bands"}


def test_intervals_lie_under_the_lines_and_follow_the_axis():
    chart = made()
    polygon, curve = chart["data"]
    assert polygon["fill"] == "toself"
    assert polygon["y"] == [1, 2, 3, 1.5, -0.5, 0.1]
    assert polygon["hoverinfo"] == "skip"
    assert not polygon["showlegend"]
    assert polygon["legendgroup"] == curve["legendgroup"]
    assert chart["bands"] == [{"trace": 0, "linear": polygon["y"], "log": [1, 2, 3, 1.5, 0.1, 0.1]}]
    assert made(log_y=True)["data"][0]["y"] == [1, 2, 3, 1.5, 0.1, 0.1]


def test_the_colour_of_an_interval_is_that_of_its_line():
    lines = [line(), line(name="b", low=[0, 0, 0], high=[1, 1, 1])]
    polygon, _, curve = chart_json(Chart("t", "x", "y", lines))["data"]
    red, green, blue = (int(curve["line"]["color"][k : k + 2], 16) for k in (1, 3, 5))
    assert polygon["fillcolor"].startswith(f"rgba({red},{green},{blue},")
    assert polygon["legendgroup"] == curve["legendgroup"] == "1"


def test_the_hover_text_has_the_interval():
    curve = made()["data"][-1]
    assert curve["customdata"][1] == " (-0.5 to 2)"
    assert curve["hovertemplate"] == "%{y:.4g}%{customdata}"
    assert "customdata" not in chart_json(Chart("t", "x", "y", [line()]))["data"][0]


def test_points_without_an_end_are_left_out_of_the_interval_only():
    chart = chart_json(Chart("t", "x", "y", [line(low=[0, None, 1], high=[1, 2, np.nan])]))
    polygon, curve = chart["data"]
    assert polygon["x"] == [1, 1]
    assert curve["y"] == [0.5, 1.0, 2.0]
    assert curve["customdata"] == [" (0 to 1)", "", ""]
    assert band({"name": "a", "x": [1], "low": [None], "high": [1]}, 0, 1.0) is None


def test_what_is_not_finite_is_a_gap():
    chart = chart_json(Chart("t", "x", "y", [line(y=np.array([np.nan, np.inf, 1.0]))]))
    assert chart["data"][0]["y"] == [None, None, 1.0]


@pytest.mark.parametrize(
    ("x", "y", "log"),
    [
        ([1, 2, 3], [0.0, 0.0, 1.0], {"x": True, "y": True}),
        ([0, -1, -2], [1, 1, 1], {"x": False, "y": True}),
        ([1, 2, 3], [-1.0, 0.0, np.nan], {"x": True, "y": False}),
        (["a", "b", "c"], [1, 2, 3], {"x": False, "y": True}),
        (["a", "b", 3], [1, 2, 3], {"x": False, "y": True}),
    ],
)
def test_an_axis_can_be_logarithmic_if_something_would_be_left_on_it(x, y, log):
    chart = chart_json(Chart("t", "x", "y", [line(x=x, y=y)], log_x=True, log_y=True))
    assert chart["log"] == log
    other = "category" if isinstance(x[0], str) else "linear"
    assert chart["layout"]["xaxis"]["type"] == ("log" if log["x"] else other)
    assert chart["layout"]["yaxis"]["type"] == ("log" if log["y"] else "linear")


def test_text_is_escaped_for_plotly_but_the_title_is_for_the_page():
    chart = chart_json(Chart(HOSTILE, HOSTILE, HOSTILE, [line(name=HOSTILE, x=[HOSTILE, "b", "c"])]))
    assert chart["title"] == HOSTILE
    assert chart["layout"]["xaxis"]["title"]["text"] == SHOWN
    assert chart["layout"]["yaxis"]["title"]["text"] == SHOWN
    assert chart["data"][0]["name"] == SHOWN
    assert chart["data"][0]["x"][0] == SHOWN
    for name in ("heat", "bars", "names"):
        assert "<a" not in json.dumps(EXAMPLES[name])


def test_a_label_inside_a_template_is_no_field_of_it():
    (trace,) = heat(x_label="%{z}")["data"]
    assert trace["hovertemplate"].startswith("&#37;{z} %{x}")


def test_long_names_are_cut_in_the_middle():
    name = chart_json(Chart("t", "x", "y", [line(name="a" * 60 + "b" * 60)]))["data"][0]["name"]
    assert name == "a" * 24 + "…" + "b" * 23


def test_lines_that_share_their_x_are_read_together():
    def mode(lines):
        return chart_json(Chart("t", "x", "y", lines))["layout"]["hovermode"]

    assert mode([line(), line(name="b")]) == "x unified"
    assert mode([line(), line(name="b", x=[1, 2, 4])]) == "closest"
    assert mode([line(name=str(k)) for k in range(9)]) == "closest"


def test_no_two_of_many_lines_look_alike():
    looks = [(t["line"]["color"], t["line"]["dash"]) for t in EXAMPLES["many"]["data"]]
    assert len(set(looks[:28])) == 28


@pytest.mark.parametrize(
    "bad", [line(y=[1]), {"name": "a", "y": [1]}, line(low=[1], high=[1]), {"name": "a", "x": [1]}]
)
def test_lines_of_unequal_length_are_refused(bad):
    with pytest.raises(ValueError, match="the line 'a' must have x and y of equal length"):
        chart_json(Chart("t", "x", "y", [bad]))


def test_colours_of_a_heat_map_are_not_taken_by_one_cell():
    values = np.arange(100.0).reshape(10, 10)
    values[0, 0] = -1e9
    chart = heat_json("t", range(10), range(10), values, x_label="", y_label="", value_label="")
    assert 5 <= chart["data"][0]["zmin"] < 15
    assert 85 <= chart["data"][0]["zmax"] < 95


def test_the_mark_stands_on_the_same_category_as_its_cell():
    chart = heat(chosen=(0.1, 2))
    cells, mark = chart["data"]
    assert mark["x"][0] in cells["x"]
    assert mark["y"][0] in cells["y"]
    assert chart["layout"]["xaxis"]["type"] == chart["layout"]["yaxis"]["type"] == "category"

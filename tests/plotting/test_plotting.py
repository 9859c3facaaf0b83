"""Pictures: ax in, ax out, nothing global, labels apart, and what must be refused."""

import io
import subprocess
import sys
from itertools import pairwise
from types import SimpleNamespace

import matplotlib
import numpy as np
import pytest
from matplotlib.figure import Figure

from trimreg.plotting import PALETTE, certificate, coefficient_path, coefficients, convergence, spread

matplotlib.use("Agg")

H = np.arange(1, 6)
RNG = np.random.default_rng(0)
COEFS = np.triu(RNG.standard_normal((5, 5)) + 2).T  # the j-th feature enters at h = j + 1
TABLE = {"one": [3.0, 0.0, -1.0], "two": [2.0, 0.5, 0.0]}


def new_ax():
    return Figure(figsize=(5, 4), layout="constrained").subplots()


DRAWINGS = {
    "path": lambda ax: coefficient_path(H, COEFS, ax=ax),
    "convergence": lambda ax: convergence({"mm": [3.0, 1.0], "prox": [3.0, 2.0, 1.0]}, ax=ax),
    "coefficients": lambda ax: coefficients(TABLE, ax=ax),
}


@pytest.mark.parametrize("name", DRAWINGS)
def test_ax_in_ax_out(name):
    ax = new_ax()
    assert DRAWINGS[name](ax) is ax
    ax.figure.savefig(io.BytesIO(), format="png")  # draws without a warning


@pytest.mark.parametrize("name", DRAWINGS)
def test_without_ax_a_new_figure_is_made_and_the_current_one_left_alone(name):
    import matplotlib.pyplot as plt

    before = plt.figure()
    try:
        ax = DRAWINGS[name](None)
        assert ax.figure is not before
        assert before.axes == []
    finally:
        plt.close("all")


def test_missing_matplotlib_says_what_to_install():
    code = (
        "import sys; sys.modules['matplotlib'] = None; sys.modules['matplotlib.pyplot'] = None\n"
        "from trimreg.plotting import coefficients\n"
        "try:\n    coefficients({'a': [1.0]})\n"
        "except ImportError as error:\n    print(error)"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "pip install 'trimreg[plot]'" in answer.stdout


# -- labels ---------------------------------------------------------------------------------------------


def test_spread_keeps_what_is_far_enough_apart():
    positions = np.array([3.0, 0.0, 1.0])
    np.testing.assert_array_equal(spread(positions, 1.0), positions)


@pytest.mark.parametrize("seed", range(20))
def test_spread_is_the_nearest_placement(seed):
    from scipy.optimize import minimize

    rng = np.random.default_rng(seed)
    positions, gap = rng.uniform(0, 1, 6), 0.15
    placed = spread(positions, gap)
    order = np.argsort(positions)
    assert np.diff(placed[order]).min() >= gap - 1e-12
    rival = minimize(
        lambda x: np.sum((x - positions) ** 2),
        positions,
        constraints=[
            {"type": "ineq", "fun": lambda x, a=a, b=b: x[b] - x[a] - gap} for a, b in pairwise(order)
        ],
    )
    assert np.sum((placed - positions) ** 2) <= rival.fun + 1e-6


def test_spread_of_nothing_and_of_ties():
    assert spread([], 1.0).size == 0
    np.testing.assert_allclose(np.diff(spread([2.0, 2.0, 2.0], 0.5)), 0.5)


@pytest.mark.parametrize("linear_below", [None, 1.0])
def test_labels_of_equal_coefficients_do_not_overlap(linear_below):
    coefs = np.vstack([np.zeros(8), np.full(8, 2.0) + 1e-3 * np.arange(8)])
    ax = coefficient_path([1, 2], coefs, highlight=8, linear_below=linear_below, ax=new_ax())
    ax.figure.draw_without_rendering()
    centres = [text.xyann[1] for text in ax.texts]
    assert len(centres) == 8
    axes_height = ax.get_window_extent().height
    letters = ax.texts[0].get_fontsize() * ax.figure.dpi / 72
    assert np.diff(np.sort(centres)).min() * axes_height > letters


# -- paths ----------------------------------------------------------------------------------------------


def test_path_names_the_strongest_and_greys_the_rest():
    ax = coefficient_path(H, COEFS, feature_names=list("abcde"), highlight=2, ax=new_ax())
    strongest = [list("abcde")[j] for j in np.argsort(-np.abs(COEFS[-1]))[:2]]
    assert [text.get_text() for text in ax.texts] == strongest
    colours = [line.get_color() for line in ax.lines]
    assert sum(colour in PALETTE for colour in colours) == 2


def test_path_highlights_by_name_and_index():
    ax = coefficient_path(H, COEFS, feature_names=list("abcde"), highlight=["c", 0], ax=new_ax())
    assert [text.get_text() for text in ax.texts] == ["c", "a"]


def test_path_does_not_draw_absent_features_along_the_axis():
    ax = coefficient_path(H, COEFS, feature_names=list("abcde"), ax=new_ax())
    last = next(line for line in ax.lines if line.get_label() == "e")
    np.testing.assert_array_equal(np.isnan(last.get_ydata()), [True, True, True, False, False])


def test_path_of_one_h():
    assert coefficient_path([3], [[1.0, 0.0]], ax=new_ax()).get_xlabel()


def test_path_is_logarithmic_only_where_it_has_to_be():
    assert coefficient_path(H, COEFS, linear_below=100.0, ax=new_ax()).get_yscale() == "linear"
    ax = coefficient_path(H, 100 * COEFS, linear_below=10.0, ax=new_ax())
    assert ax.get_yscale() == "symlog"
    assert "beyond 10" in ax.get_ylabel()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([1, 2], COEFS), "one row per point, 2 in all"),
        (([], np.zeros((0, 2))), "h_values must be a sequence"),
        ((H[::-1], COEFS), "h_values must be increasing"),
        ((H, COEFS * np.nan), "coefs must be finite"),
        ((H, COEFS, {"feature_names": ["a"]}), "feature_names must have one name per column, 5 in all"),
        (
            (H, COEFS, {"highlight": ["nobody"]}),
            "highlight must hold names or indices of features; got 'nobody'",
        ),
        ((H, COEFS, {"highlight": -1}), "highlight must be >= 0"),
        ((H, COEFS, {"linear_below": 0}), "linear_below must be positive"),
    ],
)
def test_path_refuses(arguments, message):
    h_values, coefs, *options = arguments
    with pytest.raises(ValueError, match=message):
        coefficient_path(h_values, coefs, ax=new_ax(), **(options[0] if options else {}))


# -- convergence ----------------------------------------------------------------------------------------


def test_convergence_measures_from_the_best_and_ends_at_the_floor():
    ax = convergence({"mm": [5.0, 1.0, 1.0, 1.0], "prox": [5.0, 3.0]}, floor=1e-6, ax=new_ax())
    mm, prox = ax.lines
    np.testing.assert_allclose(mm.get_ydata(), [4.0, 1e-6])
    np.testing.assert_allclose(prox.get_ydata(), [4.0, 2.0])
    np.testing.assert_array_equal(prox.get_xdata(), [1, 2])


def test_convergence_over_seconds_and_from_a_reference():
    ax = convergence({"mm": [2.0, 1.0]}, x={"mm": [0.1, 0.2]}, reference=0.5, ax=new_ax())
    np.testing.assert_allclose(ax.lines[0].get_ydata(), [1.5, 0.5])
    np.testing.assert_allclose(ax.lines[0].get_xdata(), [0.1, 0.2])
    assert ax.get_xlabel() == "seconds"


def test_convergence_tells_lines_apart_without_colour():
    ax = convergence({name: [2.0, 1.0] for name in "abcd"}, ax=new_ax())
    assert len({(line.get_linestyle(), line.get_marker()) for line in ax.lines}) == 4


@pytest.mark.parametrize(
    ("histories", "options", "message"),
    [
        ({}, {}, "at least one solver"),
        ({"mm": []}, {}, "history of 'mm'"),
        ({"mm": [np.nan]}, {}, "history of 'mm'"),
        ({"mm": [1.0]}, {"x": "hours"}, "x must be"),
        ({"mm": [1.0]}, {"x": {}}, "x must hold the times of every solver; 'mm' is missing"),
        ({"mm": [1.0]}, {"x": {"mm": [1.0, 2.0]}}, "x must have one time per step of 'mm', 1 in all"),
        ({"mm": [1.0]}, {"x": {"mm": [0.0]}}, "must be positive"),
        ({"mm": [1.0]}, {"floor": 0.0}, "floor must be positive"),
    ],
)
def test_convergence_refuses(histories, options, message):
    with pytest.raises(ValueError, match=message):
        convergence(histories, ax=new_ax(), **options)


# -- coefficients ---------------------------------------------------------------------------------------


def test_coefficients_leaves_zeros_without_a_mark():
    ax = coefficients(TABLE, feature_names=["a", "b", "c"], ax=new_ax())
    marks = {line.get_label(): sorted(line.get_xdata()) for line in ax.lines if line.get_marker() != "None"}
    assert marks == {"one": [-1.0, 3.0], "two": [0.5, 2.0]}


def test_coefficients_says_how_many_are_not_shown():
    ax = coefficients({"one": np.arange(1.0, 31.0)}, max_features=12, ax=new_ax())
    assert len(ax.get_yticks()) == 12
    assert "18 smaller" in ax.get_xlabel()


def test_coefficients_of_nothing_kept():
    assert len(coefficients({"one": [0.0, 0.0]}, ax=new_ax()).get_yticks()) == 0


@pytest.mark.parametrize(
    ("table", "options", "message"),
    [
        ({}, {}, "at least one method"),
        ({"a": [1.0], "b": [1.0, 2.0]}, {}, "vectors of one length"),
        (
            {"a": [1.0]},
            {"feature_names": ["x", "y"]},
            "feature_names must have one name per column, 1 in all",
        ),
    ],
)
def test_coefficients_refuses(table, options, message):
    with pytest.raises(ValueError, match=message):
        coefficients(table, ax=new_ax(), **options)


def test_certificate_draws_both_bounds():
    history = {
        "seconds": [0.0, 1.0, 2.0],
        "lower": [1.0, 2.0, 2.5],
        "upper": [3.0, 3.0, 2.6],
        "nodes": [1, 2, 3],
    }
    found = SimpleNamespace(history=history, nodes=3, gap=0.04)
    ax = certificate(found, ax=Figure().subplots())
    drawn = {line.get_label(): line.get_ydata().tolist() for line in ax.lines}
    assert drawn == {"upper bound": history["upper"], "lower bound": history["lower"]}
    assert "gap 4 %" in ax.get_xlabel()

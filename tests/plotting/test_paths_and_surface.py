"""Pictures for choosing h and alpha: the drawn data is the data given, marks sit where they are said to."""

import io
from itertools import pairwise

import matplotlib
import numpy as np
import pytest
from matplotlib.collections import QuadMesh
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from trimreg.plotting import PALETTE, coefficient_path_over_h, score_surface, stability_path
from trimreg.plotting.style import GREY

matplotlib.use("Agg")

HS = [1, 2, 5, 10, 20, 50]
ALPHAS = [10.0, 0.01, 0.1, 1.0, "exact"]  # not in order
RNG = np.random.default_rng(0)
SCORES = RNG.random((6, 5))
COEFS = np.triu(RNG.standard_normal((6, 6)) + 2).T  # the j-th feature enters at the j-th h
PROBABILITIES = np.clip(np.outer(np.linspace(0.2, 1, 6), [1.0, 0.8, 0.5, 0.0]), 0, 1)


def new_ax(size=(5, 4)):
    return Figure(figsize=size, layout="constrained").subplots()


def meshes(ax):
    return [artist for artist in ax.collections if isinstance(artist, QuadMesh)]


def legend(ax):
    return [text.get_text() for text in ax.get_legend().get_texts()]


def line_of(ax, label):
    return next(line for line in ax.lines if line.get_label() == label)


DRAWINGS = {
    "surface": lambda ax: score_surface(HS, ALPHAS, SCORES, chosen=(5, 0.1), ax=ax),
    "score line": lambda ax: score_surface(HS, "exact", SCORES[:, 0], std=SCORES[:, 1], ax=ax),
    "path": lambda ax: coefficient_path_over_h(HS, COEFS, chosen=5, ax=ax),
    "stability": lambda ax: stability_path(HS, PROBABILITIES, threshold=0.6, ax=ax),
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
        assert DRAWINGS[name](None).figure is not before
        assert before.axes == []
    finally:
        plt.close("all")


# -- the axis of h --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("hs", "scale"),
    [
        (np.arange(1, 11), "linear"),
        (np.arange(0, 40), "linear"),
        ([3], "linear"),
        ([1, 40], "linear"),
        ([2, 3, 5, 8], "linear"),  # the logarithm is a little better, and not worth it
        (HS, "log"),
        ([0, *HS], "function"),
    ],
)
def test_the_axis_of_h_has_the_scale_that_keeps_its_points_apart(hs, scale):
    for ax in (
        score_surface(hs, [0.1, 1.0], np.ones((len(hs), 2)), ax=new_ax()),
        score_surface(hs, "exact", np.ones(len(hs)), ax=new_ax()),
        coefficient_path_over_h(hs, np.ones((len(hs), 2)), ax=new_ax()),
    ):
        assert ax.get_xscale() == scale


@pytest.mark.parametrize(
    "hs", [HS, [0, *HS], np.arange(21), np.arange(0, 1001, 20), np.geomspace(1, 900, 40)]
)
@pytest.mark.parametrize("size", [(3, 3), (7, 4)])
def test_ticks_lie_at_values_of_h_and_their_labels_do_not_touch(hs, size):
    ax = score_surface(hs, [0.1, 1.0, "exact"], np.ones((len(hs), 3)), ax=new_ax(size))
    ax.figure.draw_without_rendering()
    ticks = ax.get_xticks()
    assert len(ticks) >= 3
    assert np.isin(ticks, hs).all()
    labels = ax.get_xticklabels()
    assert [label.get_text() for label in labels] == [f"{tick:.4g}" for tick in ticks]
    boxes = [label.get_window_extent() for label in labels]
    assert all(left.x1 < right.x0 for left, right in pairwise(boxes))


def test_even_grids_lose_labels_evenly():
    ax = score_surface(np.arange(30), "exact", np.ones(30), ax=new_ax())
    assert len(set(np.diff(ax.get_xticks()))) == 1


# -- the surface ----------------------------------------------------------------------------------------


def test_surface_draws_the_scores_with_alpha_rising_and_exact_above():
    ax = score_surface(HS, ALPHAS, SCORES, ax=new_ax())
    numbers, exact = meshes(ax)
    np.testing.assert_array_equal(numbers.get_array(), SCORES.T[[1, 2, 3, 0]])
    np.testing.assert_array_equal(exact.get_array(), SCORES.T[[4]])
    assert exact.get_coordinates()[0, 0, 1] > numbers.get_coordinates()[-1, 0, 1]
    assert ax.get_yscale() == "log"
    assert [label.get_text() for label in ax.get_yticklabels()] == ["0.01", "0.1", "1", "10", "exact"]
    np.testing.assert_allclose(ax.get_yticks()[:-1], [0.01, 0.1, 1.0, 10.0])


def test_both_parts_of_the_surface_have_one_scale_of_colours():
    numbers, exact = meshes(score_surface(HS, ALPHAS, SCORES, ax=new_ax()))
    assert numbers.get_clim() == exact.get_clim() == (SCORES.min(), SCORES.max())


def test_every_cell_of_the_surface_holds_its_h_and_alpha():
    ax = score_surface(HS, ALPHAS[:-1], SCORES[:, :-1], ax=new_ax())
    (mesh,) = meshes(ax)
    across, down = mesh.get_coordinates()[0, :, 0], mesh.get_coordinates()[:, 0, 1]
    assert (across[:-1] < HS).all()
    assert (across[1:] > HS).all()
    assert (down[:-1] < [0.01, 0.1, 1, 10]).all()
    assert (down[1:] > [0.01, 0.1, 1, 10]).all()


def test_rows_of_h_in_any_order_give_the_same_surface():
    turned = [3, 0, 5, 1, 2, 4]
    how = {"chosen": (2, 1.0), "one_se": (20, "exact")}
    one = score_surface(HS, ALPHAS, SCORES, std=SCORES, ax=new_ax(), **how)
    hs, scores = np.array(HS)[turned], SCORES[turned]
    two = score_surface(hs, ALPHAS, scores, std=scores, ax=new_ax(), **how)
    for first, second in zip(meshes(one), meshes(two), strict=True):
        np.testing.assert_array_equal(first.get_array(), second.get_array())
    assert legend(one) == legend(two)


@pytest.mark.parametrize(("greater", "word"), [(True, "higher"), (False, "lower")])
def test_bright_is_good_and_the_bar_says_which_way(greater, word):
    ax = score_surface(HS, [0.1, 1], SCORES[:, :2], greater_is_better=greater, label="R2", ax=new_ax())
    (mesh,) = meshes(ax)
    best = SCORES[:, :2].max() if greater else SCORES[:, :2].min()
    worst = SCORES[:, :2].min() if greater else SCORES[:, :2].max()
    assert sum(mesh.to_rgba(best)[:3]) > sum(mesh.to_rgba(worst)[:3])
    assert ax.figure.axes[1].get_ylabel() == f"R2 ({word} is better)"


def test_marks_lie_at_their_points_and_say_them():
    ax = score_surface(HS, ALPHAS, SCORES, chosen=(10, 0.1), one_se=(2, "exact"), std=SCORES, ax=new_ax())
    chosen, one_se = ax.lines
    np.testing.assert_allclose(chosen.get_xydata(), [[10, 0.1]])
    assert chosen.get_marker() == "*"
    assert one_se.get_xdata() == [2]
    assert one_se.get_ydata()[0] == ax.get_yticks()[-1]
    assert meshes(ax)[1].get_coordinates()[0, 0, 1] < ax.get_yticks()[-1] < ax.get_ylim()[1]
    assert legend(ax) == [
        f"chosen: h = 10, alpha = 0.1, {SCORES[3, 2]:.4g} ± {SCORES[3, 2]:.3g}",
        f"one standard error: h = 2, alpha exact, {SCORES[1, 4]:.4g} ± {SCORES[1, 4]:.3g}",
    ]


def test_a_chosen_alpha_may_differ_by_rounding():
    ax = score_surface(HS, [0.3, 1.0], SCORES[:, :2], chosen=(5, 0.1 + 0.2), ax=new_ax())
    np.testing.assert_allclose(ax.lines[0].get_xydata(), [[5, 0.3]])


def test_cells_without_a_score_are_hatched_and_the_others_keep_their_colours():
    scores = SCORES.copy()
    scores[2, 1], scores[0, 4], scores[5, 0] = np.nan, np.inf, -np.inf
    ax = score_surface(HS, ALPHAS, scores, chosen=(1, 1.0), ax=new_ax())
    boxes = [patch for patch in ax.patches if isinstance(patch, Rectangle) and patch.get_hatch()]
    inside = {
        (h, alpha)
        for box in boxes
        for h in HS
        for alpha in ax.get_yticks()
        if box.get_x() < h < box.get_x() + box.get_width()
        and box.get_y() < alpha < box.get_y() + box.get_height()
    }
    assert len(boxes) == 3
    assert inside == {(5, 0.01), (1, ax.get_yticks()[-1]), (50, 10.0)}
    numbers, exact = meshes(ax)
    assert np.ma.getmaskarray(numbers.get_array()).sum() + np.ma.getmaskarray(exact.get_array()).sum() == 3
    finite = scores[np.isfinite(scores)]
    assert numbers.get_clim() == (finite.min(), finite.max())
    assert legend(ax)[1:] == ["no score"]


def test_a_surface_of_nothing_but_missing_scores_and_of_one_h():
    ax = score_surface(HS, ALPHAS, np.full((6, 5), np.nan), ax=new_ax())
    assert len(ax.patches) == 30
    ax.figure.draw_without_rendering()
    ax = score_surface([3], [0.1, 1.0], [[1.0, 2.0]], chosen=(3, 1.0), ax=new_ax())
    assert ax.get_xlim()[0] < 3 < ax.get_xlim()[1]


@pytest.mark.parametrize("alphas", [np.geomspace(1e-6, 1e2, 60), np.geomspace(0.1, 0.5, 30)])
def test_labels_of_alpha_do_not_touch(alphas):
    ax = score_surface([1, 2], [*alphas, "exact"], np.ones((2, alphas.size + 1)), ax=new_ax((4, 3)))
    ax.figure.draw_without_rendering()
    boxes = [label.get_window_extent() for label in ax.get_yticklabels()]
    assert len(boxes) >= 4
    assert all(low.y1 <= high.y0 for low, high in pairwise(boxes))


@pytest.mark.parametrize("alpha", ["exact", ["exact"], 0.1, [0.1]])
@pytest.mark.parametrize("column", [False, True])
def test_one_alpha_is_a_line_with_a_band(alpha, column):
    scores, std = SCORES[:, 0], 0.1 + SCORES[:, 1]
    shape = (6, 1) if column else (6,)
    how = {"std": std.reshape(shape), "chosen": 5, "one_se": 2, "label": "R2", "ax": new_ax()}
    ax = score_surface(HS, alpha, scores.reshape(shape), **how)
    line, chosen, one_se = ax.lines
    np.testing.assert_allclose(line.get_xydata(), np.c_[HS, scores])
    np.testing.assert_allclose(chosen.get_xydata(), [[5, scores[2]]])
    np.testing.assert_allclose(one_se.get_xydata(), [[2, scores[1]]])
    (band,) = ax.collections
    vertices = band.get_paths()[0].vertices
    for h, low, high in zip(HS, scores - std, scores + std, strict=True):
        at_h = vertices[vertices[:, 0] == h, 1]
        np.testing.assert_allclose([at_h.min(), at_h.max()], [low, high])
    assert ax.get_ylabel() == "R2 (higher is better)"
    assert len(ax.figure.axes) == 1
    assert ("alpha exact" if "exact" in np.ravel(alpha) else "alpha = 0.1") in legend(ax)[0]


def test_a_line_without_marks_has_no_legend_and_leaves_out_missing_scores():
    ax = score_surface(HS, "exact", [1.0, np.nan, 2.0, np.inf, 1.0, 1.0], ax=new_ax())
    assert ax.get_legend() is None
    np.testing.assert_array_equal(ax.lines[0].get_ydata(), [1.0, np.nan, 2.0, np.nan, 1.0, 1.0])


@pytest.mark.parametrize(
    ("hs", "alphas", "scores", "options", "message"),
    [
        ([], ALPHAS, SCORES, {}, "hs must be a sequence"),
        ([[1]], ALPHAS, SCORES, {}, "hs must be a sequence"),
        ([1, 1, 2, 3, 4, 5], ALPHAS, SCORES, {}, "hs must be distinct"),
        (HS, [], SCORES, {}, "alphas must be distinct and at least one"),
        (HS, [1, 1, 2, 3, 4], SCORES, {}, "alphas must be distinct"),
        (HS, ["exact"] * 5, SCORES, {}, "alphas must be distinct"),
        (HS, [0, 1, 2, 3, 4], SCORES, {}, "alphas must be positive numbers or 'exact'; got 0"),
        (HS, [np.inf, 1, 2, 3, 4], SCORES, {}, "alphas must be positive"),
        (HS, ["best", 1, 2, 3, 4], SCORES, {}, "alphas must be positive.*'best'"),
        (HS, [None, 1, 2, 3, 4], SCORES, {}, "alphas must be positive.*None"),
        (HS, ALPHAS, SCORES.T, {}, r"scores must have one row per h and one column per alpha, \(6, 5\)"),
        (HS, ALPHAS, SCORES[:, 0], {}, "scores must have one row"),
        (HS, ALPHAS, SCORES, {"std": SCORES[:, 1:]}, "std must have one row"),
        (HS, ALPHAS, SCORES, {"std": -SCORES}, "std must not be negative"),
        (HS, ALPHAS, SCORES, {"chosen": (3, 0.1)}, "chosen must be a point of the grid; got 3"),
        (HS, ALPHAS, SCORES, {"chosen": (5, 0.2)}, "chosen must be a point of the grid; got 0.2"),
        (HS, ALPHAS[:-1], SCORES[:, :-1], {"chosen": (5, "exact")}, "chosen must be a point of the grid"),
        (HS, ALPHAS, SCORES, {"chosen": 5}, "chosen must be a pair of h and alpha"),
        (HS, ALPHAS, SCORES, {"one_se": (1, 2, 3)}, "one_se must be a pair"),
    ],
)
def test_surface_refuses(hs, alphas, scores, options, message):
    with pytest.raises(ValueError, match=message):
        score_surface(hs, alphas, scores, ax=new_ax(), **options)


# -- coefficients over h --------------------------------------------------------------------------------


def test_path_draws_the_coefficients_and_a_line_at_the_chosen_h():
    ax = coefficient_path_over_h(HS, COEFS, names=list("abcdef"), chosen=10, ax=new_ax())
    np.testing.assert_array_equal(line_of(ax, "a").get_xydata(), np.c_[HS, COEFS[:, 0]])
    vertical = [line for line in ax.lines if list(line.get_xdata()) == [10, 10]]
    assert len(vertical) == 1
    assert ax.texts[-1].get_text() == "h = 10"
    assert ax.texts[-1].xy[0] == 10


def test_path_names_the_largest_at_the_chosen_h():
    coefs = np.array([[1.0, 3.0, 0.0, 0.0], [1.0, 2.0, 0.0, 9.0]])
    ax = coefficient_path_over_h([1, 2], coefs, names=list("abcd"), chosen=1, ax=new_ax())
    assert [text.get_text() for text in ax.texts] == ["b", "a", "h = 1"]
    ax = coefficient_path_over_h([1, 2], coefs, names=list("abcd"), ax=new_ax())
    assert [text.get_text() for text in ax.texts] == ["d", "b", "a"]


def test_path_of_a_chosen_h_without_coefficients_falls_back_to_the_last():
    ax = coefficient_path_over_h([0, 1], [[0.0, 0.0], [0.0, 2.0]], chosen=0, ax=new_ax())
    assert [text.get_text() for text in ax.texts] == ["x1", "h = 0"]


def test_path_sorts_h():
    turned = [3, 0, 5, 1, 2, 4]
    ax = coefficient_path_over_h(np.array(HS)[turned], COEFS[turned], ax=new_ax())
    np.testing.assert_array_equal(line_of(ax, "x0").get_xydata(), np.c_[HS, COEFS[:, 0]])


def test_path_passes_the_scale_on():
    ax = coefficient_path_over_h(HS, 100 * COEFS, linear_below=10.0, ax=new_ax())
    assert ax.get_yscale() == "symlog"


@pytest.mark.parametrize(
    ("hs", "coefs", "options", "message"),
    [
        ([], COEFS, {}, "hs must be a sequence"),
        ([1, 2], COEFS, {}, "coefs must have one row per point, 2 in all"),
        (HS, COEFS[0], {}, "coefs must have one row"),
        (HS, COEFS * np.nan, {}, "coefs must be finite"),
        (HS, COEFS, {"names": ["a"]}, "names must have one name per column, 6 in all"),
        (HS, COEFS, {"chosen": 3}, "chosen must be a point of the grid; got 3"),
    ],
)
def test_path_refuses(hs, coefs, options, message):
    with pytest.raises(ValueError, match=message):
        coefficient_path_over_h(hs, coefs, ax=new_ax(), **options)


# -- stability ------------------------------------------------------------------------------------------


def test_stability_colours_and_names_what_reaches_the_threshold():
    ax = stability_path(HS, PROBABILITIES, threshold=0.8, names=list("abcd"), ax=new_ax())
    for j, (label, colour) in enumerate({"a": PALETTE[0], "b": PALETTE[1], "_c": GREY, "_d": GREY}.items()):
        line = line_of(ax, label)
        np.testing.assert_array_equal(line.get_xydata(), np.c_[HS, PROBABILITIES[:, j]])
        assert line.get_color() == colour
    assert [text.get_text() for text in ax.texts] == ["threshold 0.8", "b", "a"]
    assert any(list(line.get_ydata()) == [0.8, 0.8] for line in ax.lines)
    assert ax.get_xlabel() == "h"
    assert ax.get_ylim()[0] < 0 < 1 < ax.get_ylim()[1]


def test_stability_counts_the_peak_and_not_the_end():
    ax = stability_path([1, 2, 3], [[0.1, 0.2], [0.9, 0.2], [0.1, 0.2]], threshold=0.5, ax=new_ax())
    assert [text.get_text() for text in ax.texts] == ["threshold 0.5", "x0"]


def test_stability_without_a_threshold_names_the_eight_largest():
    probabilities = np.tile(np.linspace(1.0, 0.0, 11), (2, 1))
    ax = stability_path([0.01, 1], probabilities, ax=new_ax(), xlabel="alpha")
    assert [text.get_text() for text in ax.texts] == [f"x{j}" for j in range(7, -1, -1)]
    assert ax.get_xlabel() == "alpha"
    assert len(ax.lines) == 11


def test_stability_sorts_the_grid_and_takes_logarithms_of_a_geometric_one():
    ax = stability_path([10, 1, 0.1, 0.01], [[0.1], [0.2], [0.6], [1.0]], ax=new_ax())
    np.testing.assert_array_equal(ax.lines[0].get_ydata(), [1.0, 0.6, 0.2, 0.1])
    assert ax.get_xscale() == "log"


@pytest.mark.parametrize("value", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("count", [1, 8, 15, 200])
def test_stability_labels_of_equal_lines_lie_apart_and_inside(value, count):
    grid_values = np.full((2, count), value)
    ax = stability_path([1, 2], grid_values, threshold=0.0, ax=new_ax((6.4, 4.2)))
    labels = [text for text in ax.texts if not text.get_text().startswith("threshold")]
    assert 0 < len(labels) <= count
    assert len(labels) == count or count == 200
    heights = np.sort([text.xyann[1] for text in labels])
    assert heights[0] >= 0
    assert heights[-1] <= 1 + 1e-12
    letters = labels[0].get_fontsize() * ax.figure.dpi / 72
    assert count == 1 or np.diff(heights).min() * ax.get_window_extent().height > letters
    first = next(text for text in labels if text.get_text() == "x0")
    assert first.xyann[1] == heights[-1]  # the first of the ties stands at the top


@pytest.mark.parametrize("draw", [stability_path, coefficient_path_over_h])
def test_names_are_not_read_as_formulas(draw):
    ax = draw([1, 2], [[0.5, 1.0], [0.5, 1.0]], names=["$^$", "cost$_{"], ax=new_ax())
    ax.figure.draw_without_rendering()
    assert {text.get_text() for text in ax.texts} == {r"\$^\$", r"cost\$_{"}


@pytest.mark.parametrize(
    ("grid", "probabilities", "options", "message"),
    [
        ([], PROBABILITIES, {}, "grid must be a sequence"),
        ([1, 1], PROBABILITIES[:2], {}, "grid must be distinct"),
        ([1, 2], PROBABILITIES, {}, "probabilities must have one row per point, 2 in all"),
        (HS, PROBABILITIES - 0.5, {}, r"probabilities must lie in \[0, 1\]"),
        (HS, PROBABILITIES + 0.5, {}, r"probabilities must lie in \[0, 1\]"),
        (HS, PROBABILITIES * np.nan, {}, "probabilities must be finite"),
        (HS, PROBABILITIES, {"threshold": 1.5}, r"threshold must lie in \[0, 1\]"),
        (HS, PROBABILITIES, {"names": ["a"]}, "names must have one name per column, 4 in all"),
    ],
)
def test_stability_refuses(grid, probabilities, options, message):
    with pytest.raises(ValueError, match=message):
        stability_path(grid, probabilities, ax=new_ax(), **options)

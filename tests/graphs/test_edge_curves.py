"""Paths of edges and curves of precision and recall: the drawn data is the data given, and is readable."""

import io

import matplotlib
import numpy as np
import pytest
from matplotlib.figure import Figure

from trimreg.plotting import PALETTE, path, precision_recall
from trimreg.plotting.style import GREY

matplotlib.use("Agg")

FINAL = np.array([0.5, -0.45, 0.3, -0.2, 0.1, 0.05])  # the six edges of four variables
HS = [0, 2, 4, 6]
BY_H = np.array([np.where(np.arange(6) < h, FINAL, 0.0) for h in HS])
ALPHAS = np.geomspace(0.01, 1.0, 9)
BY_ALPHA = np.sign(FINAL) * np.maximum(np.abs(FINAL) - ALPHAS[:, None], 0.0)


def new_ax(size=(5, 4)):
    return Figure(figsize=size, layout="constrained").subplots()


def texts(ax):
    return [text.get_text() for text in ax.texts]


def named_lines(ax):
    return {line.get_label(): line for line in ax.lines if line.get_color() in PALETTE}


@pytest.mark.parametrize(
    "draw",
    [
        lambda ax: path(HS, BY_H, ax=ax),
        lambda ax: path(ALPHAS, BY_ALPHA, ax=ax),
        lambda ax: path([3], [[0.5, 0.0]], ["a", "b"], ax=ax),
        lambda ax: path(HS, 0 * BY_H, ax=ax),
        lambda ax: precision_recall([1, 2], {"a": [1.0, 0.5]}, {"a": [0.1, 0.1]}, ax=ax, title="t", mark=2),
        lambda ax: precision_recall([0], {"a": [np.nan]}, {"a": [0.0]}, ax=ax),
    ],
)
def test_ax_in_ax_out_and_drawn_without_a_warning(draw):
    ax = new_ax()
    assert draw(ax) is ax
    ax.figure.savefig(io.BytesIO(), format="png")


# -- path -------------------------------------------------------------------------------------------------


def test_path_over_h_rises_and_names_the_largest_by_their_variables():
    ax = path(HS, BY_H, top=3, ax=new_ax())
    assert texts(ax) == ["0 – 1", "0 – 2", "0 – 3"]  # noqa: RUF001
    assert ax.get_xlim() == (0, 6)
    assert sum(line.get_color() == GREY for line in ax.lines) == 3
    line = named_lines(ax)["0 – 2"]  # noqa: RUF001
    np.testing.assert_array_equal(line.get_xdata(), HS)
    np.testing.assert_array_equal(line.get_ydata(), BY_H[:, 1])


def test_path_over_alpha_falls_and_names_stand_at_the_dense_end():
    ax = path(ALPHAS, BY_ALPHA, list("abcdef"), top=2, xlabel="alpha", ax=new_ax())
    left, right = ax.get_xlim()
    assert (left, right) == (pytest.approx(1.0), pytest.approx(0.01))
    assert ax.get_xscale() == "log"
    assert texts(ax) == ["a", "b"]
    ax.figure.draw_without_rendering()
    for text, value in zip(ax.texts, BY_ALPHA[0], strict=False):
        fraction = ax.transAxes.inverted().transform(ax.transData.transform((0.01, value)))[1]
        assert text.xy == (1.0, pytest.approx(fraction, abs=1e-6))
    ticks = [label.get_text() for label in ax.get_xticklabels()]
    assert {"0.01", "0.1", "1"} <= set(ticks)


def test_path_takes_any_order():
    shuffled = np.array([2, 0, 3, 1])
    one, two = new_ax(), new_ax()
    path(HS, BY_H, ax=one)
    path(np.array(HS)[shuffled], BY_H[shuffled], ax=two)
    for a, b in zip(one.lines, two.lines, strict=True):
        np.testing.assert_array_equal(a.get_xydata(), b.get_xydata())
    assert texts(one) == texts(two)


def test_path_of_matrices_is_that_of_their_edges():
    rows, columns = np.triu_indices(4, 1)
    matrices = np.zeros((4, 4, 4))
    matrices[:, rows, columns] = matrices[:, columns, rows] = BY_H
    matrices[:, range(4), range(4)] = 1.0
    ax = path(HS, matrices, ["a", "b", "c", "$d"], ax=new_ax())
    assert sorted(named_lines(ax)) == sorted(
        ["a – b", "a – c", r"a – \$d", "b – c", r"b – \$d", r"c – \$d"]  # noqa: RUF001
    )


def test_path_of_some_pairs_and_of_names_like_formulas():
    ax = path([1, 2], [[0.5, 0.0], [0.4, 0.2]], [("$x_", "y$"), ("a_b", "c")], ax=new_ax())
    assert texts(ax) == [r"\$x_ – y\$", "a_b – c"]  # noqa: RUF001
    ax.figure.savefig(io.BytesIO(), format="png")
    assert texts(path([1, 2], np.ones((2, 4)), top=1, ax=new_ax())) == ["x0"]  # four edges are of no graph


def test_path_names_no_more_than_fit():
    many = np.linspace(0.1, 0.9, 300) * np.array([[0.5], [1.0]])
    ax = path([1, 2], many, top=300, ax=new_ax())
    places = np.sort([text.xyann[1] for text in ax.texts])
    assert 10 < len(places) < 40
    assert places[0] >= -1e-9
    assert places[-1] <= 1 + 1e-9
    assert np.diff(places).min() > 0.02
    assert texts(path([1, 2], many, top=0, ax=new_ax())) == []


@pytest.mark.parametrize(
    ("x", "values", "options", "message"),
    [
        ([1, 1], BY_H[:2], {}, "x must be distinct"),
        ([1, 2, 3], BY_H, {}, "one row per point, 3 in all"),
        (HS, BY_H * np.nan, {}, "finite"),
        (HS, BY_H, {"labels": ["a"]}, "labels must have one name per column, 6 in all"),
        (HS, BY_H, {"top": -1}, "top must be"),
        (HS, BY_H, {"top": 1.5}, "top must be"),
        (HS, np.zeros((4, 2, 3)), {}, "square matrix"),
        (HS, np.zeros((4, 2, 2)), {"labels": ["a"]}, "labels must have one name per column, 2 in all"),
    ],
)
def test_path_refuses(x, values, options, message):
    with pytest.raises(ValueError, match=message):
        path(x, values, ax=new_ax(), **options)


# -- precision and recall ---------------------------------------------------------------------------------

SIZES = [10, 5, 20]
PRECISION = {"trimmed": [0.8, 1.0, 0.5], "$glasso$": [0.6, 0.8, 0.4]}
RECALL = {"trimmed": [0.5, 0.3, 0.7], "$glasso$": [0.4, 0.2, 0.6]}


def curves(ax):
    return [line for line in ax.lines if not line.get_label().startswith("_")]


def test_curves_are_those_given_in_the_order_of_size():
    ax = precision_recall(SIZES, PRECISION, RECALL, ax=new_ax())
    one, two = curves(ax)
    np.testing.assert_array_equal(one.get_xydata(), [[0.3, 1.0], [0.5, 0.8], [0.7, 0.5]])
    np.testing.assert_array_equal(two.get_xydata(), [[0.2, 0.8], [0.4, 0.6], [0.6, 0.4]])
    assert (one.get_marker(), one.get_color()) != (two.get_marker(), two.get_color())
    assert [t.get_text() for t in ax.get_legend().get_texts()] == ["trimmed", r"\$glasso\$"]
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("recall", "precision")


def test_sizes_stand_at_their_marks():
    ax = precision_recall(SIZES, PRECISION, RECALL, ax=new_ax())
    written = {(text.get_text(), *np.round(text.xy, 9)) for text in ax.texts if text.get_text().isdigit()}
    expected = set()
    for method, up in PRECISION.items():
        expected |= set(zip(map(str, SIZES), RECALL[method], up, strict=True))
    assert written == expected


def test_sizes_by_method_the_mark_and_missing_values():
    sizes = {"a": [0, 3, 6], "b": [2, 6, 9]}
    precision = {"a": [np.nan, 1.0, 0.5], "b": [0.5, 0.4, 0.3]}
    recall = {"a": [0.0, 0.3, 0.4], "b": [0.1, 0.2, 0.3]}
    ax = precision_recall(sizes, precision, recall, mark=6, ax=new_ax())
    assert len(curves(ax)[0].get_xdata()) == 2
    marked = [line.get_xydata().tolist() for line in ax.lines if line.get_label() == "_6 edges"]
    assert marked == [[[0.4, 0.5]], [[0.2, 0.4]]]


def numbers_apart(ax):
    """The numbers beside the marks, which must not cover each other."""
    ax.figure.draw_without_rendering()
    numbers = [text for text in ax.texts if text.get_text().isdigit()]
    # Sizes are measured before the layout is final, so boxes may touch by a little.
    boxes = [text.get_window_extent().expanded(0.7, 0.7) for text in numbers]
    assert not any(a.overlaps(b) for k, a in enumerate(boxes) for b in boxes[:k])
    return [text.get_text() for text in numbers]


def test_equal_points_are_numbered_once():
    found, sizes = np.sort(np.random.default_rng(0).integers(1, 19, 25)), np.arange(19, 44)
    methods = [f"m{k}" for k in range(5)]
    precision, recall = dict.fromkeys(methods, found / sizes), dict.fromkeys(methods, found / 18)
    numbers = numbers_apart(precision_recall(sizes, precision, recall, ax=new_ax()))
    assert len(set(numbers)) == len(numbers) >= 5


def test_numbers_without_room_are_left_out():
    methods = [f"m{k}" for k in range(30)]
    sizes = {method: [100 + k] for k, method in enumerate(methods)}
    same = {method: [0.5] for method in methods}
    assert 2 <= len(numbers_apart(precision_recall(sizes, same, same, ax=new_ax((9, 4))))) <= 8


def test_lines_of_equal_f1():
    ax = precision_recall(SIZES, PRECISION, RECALL, ax=new_ax())
    levels = [line.get_xydata().T for line in ax.lines if line.get_label() == "_F1"]
    assert len(levels) == 4
    for (along, up), level in zip(levels, (0.2, 0.4, 0.6, 0.8), strict=True):
        np.testing.assert_allclose(2 * along * up / (along + up), level, rtol=1e-9)
        assert up.max() <= 1 + 1e-9


@pytest.mark.parametrize(
    ("sizes", "precision", "recall", "message"),
    [
        ([1], {}, {}, "the same methods"),
        ([1], {"a": [1.0]}, {"b": [1.0]}, "the same methods"),
        ([1, 2], {"a": [1.0]}, {"a": [1.0]}, "the same length"),
        ({"b": [1]}, {"a": [1.0]}, {"a": [1.0]}, "'a' is missing"),
        ([1], {"a": [1.5]}, {"a": [1.0]}, r"\[0, 1\]"),
        ([1], {"a": [0.5]}, {"a": [-0.1]}, r"\[0, 1\]"),
    ],
)
def test_precision_recall_refuses(sizes, precision, recall, message):
    with pytest.raises(ValueError, match=message):
        precision_recall(sizes, precision, recall, ax=new_ax())

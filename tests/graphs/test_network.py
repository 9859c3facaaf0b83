"""Pictures of graphs: every edge is drawn as it is, names are readable, and all nodes lie in the frame."""

import io
from itertools import combinations
from types import SimpleNamespace

import matplotlib
import numpy as np
import pytest
from matplotlib.colors import same_color, to_rgba
from matplotlib.figure import Figure

from trimreg.graphs.plots.network import NEGATIVE, POSITIVE, force_layout, label_offsets
from trimreg.plotting import network
from trimreg.plotting.style import GREY

matplotlib.use("Agg")

SMALL = np.array([[1.0, 0.5, 0.0, 0.0], [0.5, 1.0, -0.2, 0.0], [0.0, -0.2, 1.0, 0.1], [0.0, 0.0, 0.1, 1.0]])


def new_ax(size=(6, 6)):
    return Figure(figsize=size, layout="constrained").subplots()


def random_graph(p, edges, seed=0):
    rng = np.random.default_rng(seed)
    partial = np.eye(p)
    rows, columns = np.triu_indices(p, 1)
    chosen = rng.choice(rows.size, min(edges, rows.size), replace=False)
    values = rng.uniform(0.05, 0.5, chosen.size) * rng.choice([-1, 1], chosen.size)
    partial[rows[chosen], columns[chosen]] = partial[columns[chosen], rows[chosen]] = values
    return partial


def lines(ax, label):
    return next(c for c in ax.collections if c.get_label() == label)


def drawn_edges(ax, label):
    """Pairs of nodes, with colour and width, of the lines of a kind."""
    nodes = np.asarray(lines(ax, "_nodes").get_offsets())
    group = lines(ax, label)
    edges = {}
    for k, segment in enumerate(group.get_segments()):
        pair = tuple(sorted(int(np.flatnonzero(np.all(nodes == end, axis=1))[0]) for end in segment))
        widths, colors = group.get_linewidths(), group.get_colors()
        edges[pair] = colors[k % len(colors)], widths[k % len(widths)]
    return edges


def legend(ax):
    return [text.get_text() for text in ax.get_legend().get_texts()]


# -- every size -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("p", "edges", "layout"),
    [
        (1, 0, "spring"),
        (2, 0, "spring"),
        (3, 1, "spring"),
        (50, 60, "spring"),
        (200, 250, "circular"),
        (2, 1, "circular"),
        (7, 21, "circular"),
    ],
)
def test_every_node_and_edge_is_drawn_in_the_frame(p, edges, layout):
    partial = random_graph(p, edges)
    ax = new_ax()
    assert network(partial, layout=layout, ax=ax) is ax
    ax.figure.savefig(io.BytesIO(), format="png")  # without a warning
    nodes = np.asarray(lines(ax, "_nodes").get_offsets())
    assert nodes.shape == (p, 2)
    low, high = np.array([ax.get_xlim(), ax.get_ylim()]).T
    assert np.all((nodes > low) & (nodes < high))
    assert set(drawn_edges(ax, "_solid")) == set(map(tuple, np.argwhere(np.triu(partial, 1)).tolist()))
    assert len(ax.texts) == (p if p <= 60 else 0)
    distances = [np.linalg.norm(a - b) for a, b in combinations(nodes, 2)]
    assert min(distances, default=np.inf) > 0.01 * np.linalg.norm(high - low)


def test_colour_is_sign_and_width_is_strength():
    edges = drawn_edges(network(SMALL, ax=new_ax()), "_solid")
    blue = {pair for pair, (color, _) in edges.items() if same_color(color[:3], to_rgba(POSITIVE)[:3])}
    orange = {pair for pair, (color, _) in edges.items() if same_color(color[:3], to_rgba(NEGATIVE)[:3])}
    assert (blue, orange) == ({(0, 1), (2, 3)}, {(1, 2)})
    widths = {pair: width for pair, (_, width) in edges.items()}
    assert widths[0, 1] / widths[2, 3] == pytest.approx(5.0)
    assert widths[1, 2] / widths[2, 3] == pytest.approx(2.0)


def test_legend_shows_signs_and_a_scale_of_widths():
    ax = network(SMALL, ax=new_ax())
    assert legend(ax) == ["positive", "negative", "|ρ| = 0.1", "|ρ| = 0.5"]  # noqa: RUF001
    handles = ax.get_legend().legend_handles
    widths = {pair: width for pair, (_, width) in drawn_edges(ax, "_solid").items()}
    assert [line.get_linewidth() for line in handles[2:]] == [widths[2, 3], widths[0, 1]]
    assert legend(network(np.abs(SMALL), ax=new_ax()))[:2] == ["positive", "|ρ| = 0.1"]  # noqa: RUF001
    assert legend(network([[1.0, -0.5], [-0.5, 1.0]], ax=new_ax())) == ["negative", "|ρ| = 0.5"]  # noqa: RUF001
    assert legend(network(np.eye(3), ax=new_ax())) == ["no edges"]


def test_weak_edges_can_still_be_seen():
    partial = np.array([[1.0, 0.9, 1e-9], [0.9, 1.0, 0.0], [1e-9, 0.0, 1.0]])
    assert min(width for _, width in drawn_edges(network(partial, ax=new_ax()), "_solid").values()) >= 0.5


@pytest.mark.parametrize(("most", "left"), [(0, 0), (1, 1), (2, 2), (3, 3), (9, 3)])
def test_max_edges_keeps_the_strongest_and_says_so(most, left):
    ax = network(SMALL, max_edges=most, ax=new_ax())
    assert set(drawn_edges(ax, "_solid")) == set([(0, 1), (1, 2), (2, 3)][:left])
    note = ax.get_legend().get_title().get_text()
    assert note == (f"{3 - left} weaker edges not shown" if left < 3 else "")


# -- truth ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("truth", [[("b", "a"), ("d", "a")], [[1, 0], [3, 0]], np.array([[0, 1], [0, 3]])])
def test_truth_tells_hits_from_false_and_missed(truth):
    ax = network(SMALL, list("abcd"), truth=truth, ax=new_ax())
    assert set(drawn_edges(ax, "_solid")) == {(0, 1)}
    assert set(drawn_edges(ax, "_dashed")) == {(1, 2), (2, 3)}
    assert set(drawn_edges(ax, "_missed")) == {(0, 3)}
    assert legend(ax)[-3:] == ["true (1)", "false (2)", "missed (1)"]
    patterns = [lines(ax, label).get_linestyle()[0][1] for label in ("_solid", "_dashed", "_missed")]
    assert patterns[0] is None
    assert patterns[1] is not None
    assert patterns[2] is not None
    assert all(same_color(color, GREY) for color, _ in drawn_edges(ax, "_missed").values())


def test_dashes_of_thin_lines_are_not_dots():
    partial = np.array([[1.0, 0.9, 1e-3], [0.9, 1.0, 0.0], [1e-3, 0.0, 1.0]])
    false = lines(network(partial, truth=[], ax=new_ax()), "_dashed")
    assert len(false.get_linestyle()) == 2
    for _, (dash, gap) in false.get_linestyle():  # in points
        assert dash >= 5.0 - 1e-9
        assert gap >= 3.0 - 1e-9


def test_edges_left_out_are_not_missed():
    ax = network(SMALL, truth=[(2, 3)], max_edges=1, ax=new_ax())
    assert legend(ax)[-3:] == ["true (0)", "false (1)", "missed (0)"]
    assert legend(network(SMALL, truth=[], ax=new_ax()))[-3:] == ["true (0)", "false (3)", "missed (0)"]


# -- names ------------------------------------------------------------------------------------------------


def test_names_like_formulas_are_written_as_they_are():
    names = ["$x_", "a_b", "$\\frac$", "new\nline"]
    ax = network(SMALL, names, title="t", ax=new_ax())
    assert [text.get_text() for text in ax.texts] == ["$x_", "a_b", "$\\frac$", "new line"]
    assert ax.get_title() == "t"
    ax.figure.savefig(io.BytesIO(), format="png")


def test_long_names_keep_their_ends():
    ax = network(SMALL, [f"a long name of {k} words and the number {k}" for k in range(4)], ax=new_ax())
    assert [text.get_text()[-1] for text in ax.texts] == list("0123")
    assert max(len(text.get_text()) for text in ax.texts) <= 24


def test_labels_on_and_off():
    assert len(network(SMALL, labels=False, ax=new_ax()).texts) == 0
    assert len(network(random_graph(61, 5), labels=True, ax=new_ax()).texts) == 61


def test_a_large_graph_is_drawn_in_part_and_says_so():
    """A ring of 100 nodes with a hub, a pair that is apart, and 300 weak edges."""
    rng = np.random.default_rng(0)
    partial = np.zeros((130, 130))
    i, j = np.triu_indices(100, 1)
    weak = rng.choice(i.size, 300, replace=False)
    partial[i[weak], j[weak]] = 0.01 * rng.uniform(1.0, 2.0, 300)
    partial[np.arange(99), np.arange(1, 100)] = 0.2
    partial[7, 20:60] = 0.1
    partial[110, 111] = 0.9  # the strongest edge, but not of the largest component
    partial += partial.T
    names = [f"v{k}" for k in range(130)]
    ax = network(partial, names, ax=new_ax())
    note = ax.get_legend().get_title().get_text()
    assert "100 of 130 nodes, 250 of" in note
    assert "largest component" in note
    shown = [text.get_text() for text in ax.texts]
    assert len(shown) == 20
    assert "v7" in shown
    assert "v110" not in shown
    assert len(lines(ax, "_solid").get_segments()) == 250
    ax = network(np.eye(70), ax=new_ax())
    assert not ax.texts
    assert ax.get_legend().get_texts()[0].get_text() == "no edges"


@pytest.mark.parametrize(
    ("p", "edges", "layout"),
    [
        (2, 1, "spring"),
        (11, 17, "spring"),
        (30, 35, "spring"),
        (6, 0, "circular"),
        (16, 20, "circular"),
        (17, 20, "circular"),
    ],
)
def test_names_overlap_neither_each_other_nor_nodes_and_are_not_clipped(p, edges, layout):
    ax = network(random_graph(p, edges), [f"protein{k}" for k in range(p)], layout=layout, ax=new_ax())
    figure = ax.figure
    figure.draw_without_rendering()
    boxes = [text.get_window_extent() for text in ax.texts]
    for box in boxes:
        assert box.x0 >= -2
        assert box.y0 >= -2
        assert box.x1 <= figure.bbox.x1 + 2
        assert box.y1 <= figure.bbox.y1 + 2
    if layout == "circular" and p > 16:  # the boxes of turned texts are larger than the texts
        angles = np.sort([text.get_rotation() % 180 for text in ax.texts])
        assert len(np.unique(np.round(angles, 6))) >= p // 2
        return
    shrunk = [box.expanded(0.85, 0.85) for box in boxes]
    touching = sum(a.overlaps(b) for a, b in combinations(shrunk, 2))
    assert touching == 0
    nodes = ax.transData.transform(lines(ax, "_nodes").get_offsets())
    covered = sum(bool(box.contains(*node)) for box in boxes for node in nodes)
    assert covered == 0


def test_label_goes_away_from_neighbours_and_stays_in_the_frame():
    points = np.array([[50.0, 50.0], [50.0, 80.0], [20.0, 50.0]])
    sizes = np.array([[20.0, 8.0]] * 3)
    segments = points[[[0, 1], [0, 2]]]
    offsets = label_offsets(points, sizes, segments, 4.0, np.array([100.0, 100.0]))
    assert offsets[0, 0] > 0  # away from both neighbours
    assert offsets[0, 1] < 0
    assert offsets[1, 1] > 0
    assert offsets[2, 0] < 0
    tight = label_offsets(points[:1], sizes[:1], segments[:0], 4.0, np.array([61.0, 100.0]))
    assert points[0, 0] + tight[0, 0] + 10 <= 61.0


def test_label_gives_way_to_a_node_and_to_an_edge():
    frame, sizes = np.array([200.0, 200.0]), np.array([[20.0, 8.0]] * 3)
    # The first label would go straight to the right, away from the second node.
    points = np.array([[100.0, 100.0], [40.0, 100.0], [118.0, 100.0]])
    middle = points[0] + label_offsets(points, sizes, points[[[0, 1]]], 4.0, frame)[0]
    assert np.any(np.abs(middle - points[2]) >= sizes[0] / 2 + 4.0 - 1e-9)
    points[2] = 118.0, 180.0  # and an edge that passes there
    wall = np.array([[[118.0, 60.0], [118.0, 180.0]]])
    segments = np.concatenate([points[[[0, 1]]], wall])
    middle = points[0] + label_offsets(points, sizes, segments, 4.0, frame)[0]
    assert middle[0] + sizes[0, 0] / 2 <= 118.0


def test_names_around_a_circle_lie_in_the_frame():
    ax = Figure(figsize=(6, 6)).subplots()  # of a fixed place
    network(random_graph(40, 50), [f"protein{k}" for k in range(40)], layout="circular", ax=ax)
    ax.figure.draw_without_rendering()
    frame = ax.get_window_extent().expanded(1.01, 1.01)
    for text, place in zip(ax.texts, lines(ax, "_nodes").get_offsets(), strict=True):
        box = text.get_window_extent()
        assert frame.contains(box.x0, box.y0)
        assert frame.contains(box.x1, box.y1)
        outward = np.mean([box.p0, box.p1], axis=0) - ax.transData.transform((0, 0))
        assert outward @ place > np.linalg.norm(
            ax.transData.transform(place) - ax.transData.transform((0, 0))
        )


@pytest.mark.parametrize("size", [(2.5, 2.5), (12, 3)])
def test_legend_is_no_wider_than_its_axes_where_columns_can_be_fewer(size):
    ax = new_ax(size)
    width = ax.get_window_extent().width
    network(SMALL, truth=[(0, 1)], ax=ax)
    assert ax.get_legend().get_window_extent().width <= 1.15 * max(width, 140)


def test_panels_keep_their_room():
    figure = Figure(figsize=(12, 4.4), layout="constrained")
    for ax in figure.subplots(1, 3):
        network(random_graph(11, 15), truth=[(0, 1)], ax=ax)
    figure.draw_without_rendering()
    assert min(ax.get_window_extent().width for ax in figure.axes) > 150


# -- layouts ----------------------------------------------------------------------------------------------


def test_force_layout_is_deterministic_and_follows_the_seed():
    edges = np.argwhere(np.triu(random_graph(20, 30), 1))
    np.testing.assert_array_equal(force_layout(20, edges), force_layout(20, edges))
    assert not np.allclose(force_layout(20, edges), force_layout(20, edges, seed=1))


@pytest.mark.parametrize("seed", range(5))
def test_force_layout_brings_neighbours_together(seed):
    partial = random_graph(40, 45, seed)
    places = force_layout(40, np.argwhere(np.triu(partial, 1)))
    distance = np.linalg.norm(places[:, None] - places, axis=-1)
    joined = (partial != 0) & ~np.eye(40, dtype=bool)
    apart = (partial == 0) & ~np.eye(40, dtype=bool)
    assert distance[joined].mean() < 0.5 * distance[apart].mean()
    assert distance[joined | apart].min() > 0.1
    alone = ~joined.any(axis=1)
    assert np.linalg.norm(places, axis=1)[alone].max(initial=0.0) < 2.0 * np.sqrt(40)


def test_force_layout_of_little():
    np.testing.assert_array_equal(force_layout(1, []), [[0.0, 0.0]])
    (x0, y0), (x1, y1) = force_layout(2, [[0, 1]])
    assert abs(x1 - x0) > 0.5
    assert abs(y1 - y0) < 1e-9


def test_places_given_are_kept():
    places = np.array([[0.0, 0.0], [10.0, 0.0], [10.0, 5.0], [0.0, 5.0]])
    ax = network(SMALL, layout=places, ax=new_ax())
    np.testing.assert_array_equal(lines(ax, "_nodes").get_offsets(), places)
    assert ax.get_aspect() == 1.0


def test_circle_runs_as_a_clock_in_the_order_of_the_variables():
    nodes = lines(network(SMALL, layout="circular", ax=new_ax()), "_nodes").get_offsets()
    np.testing.assert_allclose(nodes, [[0, 1], [1, 0], [0, -1], [-1, 0]], atol=1e-12)


# -- what is given ----------------------------------------------------------------------------------------


def test_fitted_estimator():
    model = SimpleNamespace(partial_correlation_=SMALL, feature_names_in_=np.array(["a", "b", "c", "d"]))
    assert [text.get_text() for text in network(model, ax=new_ax()).texts] == list("abcd")
    assert [text.get_text() for text in network(model, list("wxyz"), ax=new_ax()).texts] == list("wxyz")
    bare = SimpleNamespace(partial_correlation_=SMALL)
    assert [text.get_text() for text in network(bare, ax=new_ax()).texts] == ["x0", "x1", "x2", "x3"]


def test_new_figure_by_default_and_a_diagonal_of_zeros():
    import matplotlib.pyplot as plt

    before = plt.figure()
    try:
        ax = network(SMALL - np.eye(4))
        assert ax.figure is not before
        assert before.axes == []
        assert set(drawn_edges(ax, "_solid")) == {(0, 1), (1, 2), (2, 3)}
    finally:
        plt.close("all")


@pytest.mark.parametrize(
    ("partial", "options", "message"),
    [
        ([1.0], {}, "square matrix"),
        (np.ones((0, 0)), {}, "square matrix"),
        (SMALL * np.nan, {}, "finite"),
        (np.triu(SMALL), {}, "symmetric"),
        (3 * SMALL, {}, "precision matrix"),
        (0.5 * SMALL, {}, "precision matrix"),
        (SMALL, {"names": ["a"]}, "one name per column, 4"),
        (SMALL, {"layout": "star"}, "layout must be"),
        (SMALL, {"layout": np.zeros((3, 2))}, r"shape \(4, 2\)"),
        (SMALL, {"max_edges": -1}, "max_edges must be"),
        (SMALL, {"max_edges": 1.5}, "max_edges must be"),
        (SMALL, {"truth": [(0, 4)]}, "indices below 4"),
        (SMALL, {"truth": [(0, -1)]}, "indices below 4"),
        (SMALL, {"truth": [("x0", "nobody")]}, "'nobody'"),
        (SMALL, {"truth": [("x0", "x0")]}, "different nodes"),
        (SMALL, {"truth": ["x0"]}, "pairs of nodes"),
        (SMALL, {"truth": [(0, 1, 2)]}, "pairs of nodes"),
        (SMALL, {"names": list("aabc"), "truth": [("a", "b")]}, "names that occur once"),
    ],
)
def test_network_refuses(partial, options, message):
    with pytest.raises(ValueError, match=message):
        network(partial, ax=new_ax(), **options)

"""Edges of graphs: partial correlations are those of the regressions, tables hold all, exports agree."""

import sys

import networkx
import numpy as np
import pytest

from trimreg.graphs.edges import Edge, EdgeTable, edge_table, partial_correlations, to_networkx


def sparse_precision(p, seed, share=0.4):
    rng = np.random.default_rng(seed)
    upper = np.triu(rng.standard_normal((p, p)) * (rng.uniform(size=(p, p)) < share), 1)
    precision = upper + upper.T
    np.fill_diagonal(precision, np.abs(precision).sum(axis=1) + rng.uniform(0.1, 2.0, p))
    return precision


PRECISION = np.array([[4.0, -1.0, 0.3], [-1.0, 1.0, 0.0], [0.3, 0.0, 1.0]])
NAMES = ["raf", "mek", "erk"]


# -- partial correlations ---------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(5))
def test_partial_correlations_are_those_of_residuals(seed):
    precision = sparse_precision(6, seed)
    covariance = np.linalg.inv(precision)
    partial = partial_correlations(precision)
    for i in range(6):
        for j in range(i):
            rest = [k for k in range(6) if k not in (i, j)]
            two = np.ix_([i, j], [i, j])
            across = covariance[np.ix_([i, j], rest)]
            left = covariance[two] - across @ np.linalg.solve(covariance[np.ix_(rest, rest)], across.T)
            expected = left[0, 1] / np.sqrt(left[0, 0] * left[1, 1])
            assert partial[i, j] == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("scale", [1e-100, 1e-6, 1.0, 1e6, 1e100])
def test_partial_correlations_do_not_depend_on_units(scale):
    precision = sparse_precision(8, 1)
    units = scale ** np.linspace(-1, 1, 8)
    rescaled = partial_correlations(precision * np.outer(units, units))
    np.testing.assert_allclose(rescaled, partial_correlations(precision), rtol=1e-12)


@pytest.mark.parametrize("seed", range(5))
def test_partial_correlations_are_symmetric_with_exact_zeros_and_ones(seed):
    precision = sparse_precision(15, seed)
    partial = partial_correlations(precision)
    np.testing.assert_array_equal(partial, partial.T)
    np.testing.assert_array_equal(partial == 0, precision == 0)
    np.testing.assert_array_equal(np.diag(partial), 1.0)
    assert not np.any(np.signbit(partial[partial == 0]))


def test_partial_correlations_forgive_rounding_and_leave_the_matrix_alone():
    given = PRECISION.copy()
    given[0, 1] *= 1 + 1e-14
    before = given.copy()
    partial = partial_correlations(given)
    np.testing.assert_array_equal(given, before)
    np.testing.assert_array_equal(partial, partial.T)
    nearly_one = np.array([[1.0, -1.0 - 1e-12], [-1.0 - 1e-12, 1.0]])
    assert partial_correlations(nearly_one)[0, 1] == 1.0


@pytest.mark.parametrize(
    ("precision", "message"),
    [
        ([1.0, 2.0], "square matrix"),
        (np.ones((2, 3)), "square matrix"),
        (np.ones((0, 0)), "square matrix"),
        ([[1.0, np.nan], [np.nan, 1.0]], "finite"),
        ([[1.0, 0.2], [0.3, 1.0]], "symmetric"),
        ([[1.0, 0.2], [0.2, 0.0]], "positive diagonal"),
        ([[1.0, 3.0], [3.0, 1.0]], "positive definite"),
    ],
)
def test_partial_correlations_refuse(precision, message):
    with pytest.raises(ValueError, match=message):
        partial_correlations(precision)


# -- the table --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(5))
def test_table_holds_every_edge_once_and_the_strongest_first(seed):
    precision = sparse_precision(12, seed)
    weights = np.random.default_rng(seed).integers(0, 2, (12, 12))
    weights = np.triu(weights, 1) + np.triu(weights, 1).T
    table = edge_table(precision, weights=weights)
    partial = partial_correlations(precision)
    assert len(table) == np.count_nonzero(np.triu(precision, 1))
    for edge in table:
        i, j = int(edge.source[1:]), int(edge.target[1:])
        assert i < j
        assert edge == (f"x{i}", f"x{j}", partial[i, j], precision[i, j], weights[i, j] == 0)
    assert len({edge[:2] for edge in table}) == len(table)
    sizes = [abs(edge.partial_correlation) for edge in table]
    assert sizes == sorted(sizes, reverse=True)
    assert table.facts["free edges"] == sum(edge.free for edge in table)


def test_table_keeps_ties_in_the_order_of_the_variables():
    sizes = np.triu(np.random.default_rng(0).choice([-0.2, -0.1, 0.1, 0.2], (30, 30)), 1)
    names = [f"{j:02d}" for j in range(30)]
    order = [
        (-abs(e.precision), e.source, e.target) for e in edge_table(sizes + sizes.T + 9 * np.eye(30), names)
    ]
    assert order == sorted(order)


def test_table_is_a_sequence():
    table = edge_table(PRECISION, NAMES)
    assert isinstance(table[0], Edge)
    assert table[0] in table
    assert table[-1].target == "erk"
    assert table.index(table[1]) == 1
    part = table[1:]
    assert isinstance(part, EdgeTable)
    assert list(part) == [table[1]]
    with pytest.raises(IndexError):
        table[2]


def test_table_without_weights_says_nothing_about_freedom():
    table = edge_table(PRECISION, NAMES)
    assert all(edge.free is None for edge in table)
    assert "status" not in str(table)
    assert "free" not in str(table)


def test_text_and_html_show_the_names_and_escape_them():
    table = edge_table(PRECISION, ["<b>", "a_b", "$x"], weights=np.zeros((3, 3)))
    assert "<b> – a_b" in str(table)  # noqa: RUF001
    html = table._repr_html_()
    assert "&lt;b&gt; – a_b" in html  # noqa: RUF001
    assert "<b>" not in html
    assert html.count("<td") == 2 * 3


def test_text_counts_the_rows_it_leaves_out():
    assert "… 1 more" in str(edge_table(PRECISION, NAMES, max_rows=1))


def test_empty_graph():
    table = edge_table(np.eye(3), NAMES, weights=np.ones((3, 3)))
    assert len(table) == 0
    assert "no edges" in str(table)
    assert "no variables" not in str(table)
    assert list(table.to_frame().columns) == list(Edge._fields)
    assert len(table.to_frame()) == 0


def test_frame_has_a_column_a_field():
    table = edge_table(PRECISION, NAMES, weights=[[0, 0, 1], [0, 0, 1], [1, 1, 0]])
    frame = table.to_frame()
    assert [Edge(*row) for row in frame.itertuples(index=False)] == list(table)
    assert frame["free"].tolist() == [True, False]
    assert frame.attrs["facts"] == {"variables": 3, "edges": 2, "free edges": 1}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"names": ["a"]}, "one name per column, 3"),
        ({"weights": np.zeros(3)}, "shape of precision"),
    ],
)
def test_table_refuses(options, message):
    with pytest.raises(ValueError, match=message):
        edge_table(PRECISION, **options)


# -- networkx ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
def test_graph_has_all_nodes_and_the_edges_of_the_table(seed):
    precision = sparse_precision(9, seed, share=0.15)
    graph = to_networkx(partial_correlations(precision), precision=precision)
    assert isinstance(graph, networkx.Graph)
    assert list(graph.nodes) == [f"x{j}" for j in range(9)]
    table = edge_table(precision)
    assert graph.number_of_edges() == len(table)
    for edge in table:
        assert graph.edges[edge.source, edge.target] == {
            "weight": edge.partial_correlation,
            "sign": 1 if edge.partial_correlation > 0 else -1,
            "precision": edge.precision,
        }


def test_graph_without_precision_and_with_a_diagonal_of_zeros():
    graph = to_networkx([[0.0, -0.5, 0.0], [-0.5 - 1e-15, 0.0, 0.0], [0.0, 0.0, 0.0]], NAMES)
    assert dict(graph.edges["raf", "mek"]) == {"weight": pytest.approx(-0.5), "sign": -1}
    assert list(networkx.isolates(graph)) == ["erk"]


@pytest.mark.parametrize(
    ("partial", "options", "message"),
    [
        (np.eye(2), {"names": ["a", "a"]}, "'a' twice"),
        (np.eye(2), {"names": ["a"]}, "one name per column, 2"),
        (np.eye(2), {"precision": np.eye(3)}, "shape of partial"),
        ([[1.0, 0.5], [0.0, 1.0]], {}, "symmetric"),
    ],
)
def test_graph_refuses(partial, options, message):
    with pytest.raises(ValueError, match=message):
        to_networkx(partial, **options)


@pytest.mark.parametrize(
    ("package", "call", "message"),
    [
        ("networkx", lambda: to_networkx([[1.0]]), r"pip install 'trimreg\[graph\]'"),
        ("pandas", lambda: edge_table([[1.0]]).to_frame(), "pip install pandas"),
    ],
)
def test_missing_package_says_what_to_install(monkeypatch, package, call, message):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ImportError, match=message):
        call()

"""Edges, conditioning, moments and seeds of the graphs."""

from __future__ import annotations

import time

import numpy as np
import pytest
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from trimreg.datasets import diamond_covariance, make_diamond, make_graph

KINDS = ("random", "scale_free", "band", "blocks")


def degrees(graph):
    return np.bincount(graph.edges.ravel(), minlength=len(graph.precision))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("p", "density"), [(1, 0.5), (2, 0.0), (2, 1.0), (12, 0.0), (12, 0.2), (25, 0.1), (9, 1.0)]
)
def test_edges_precision_and_covariance_belong_together(kind, p, density):
    graph = make_graph(kind, 7, p, density=density, n_blocks=min(3, p), random_state=4)
    assert graph.X.shape == (7, p)
    assert graph.X.flags.c_contiguous
    assert graph.X.dtype == graph.precision.dtype == graph.covariance.dtype == np.float64
    assert graph.edges.shape[1] == 2
    assert graph.edges.dtype.kind == "i"
    assert np.array_equal(graph.edges, np.argwhere(np.triu(graph.precision, 1) != 0))
    assert np.array_equal(graph.precision, graph.precision.T)
    assert np.array_equal(graph.covariance, graph.covariance.T)
    assert np.array_equal(np.diag(graph.covariance), np.ones(p))
    np.testing.assert_allclose(graph.precision @ graph.covariance, np.eye(p), atol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_a_seed_fixes_the_draw(kind):
    first = make_graph(kind, 5, 20, density=0.2, random_state=0)
    for again in (0, np.random.default_rng(0)):
        for a, b in zip(first, make_graph(kind, 5, 20, density=0.2, random_state=again), strict=True):
            assert np.array_equal(a, b)
    other = make_graph(kind, 5, 20, density=0.2, random_state=1)
    assert not np.array_equal(first.X, other.X)
    assert kind == "band" or not np.array_equal(first.edges, other.edges)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("condition", [1.5, 10.0, 1e4])
def test_values_and_condition_before_rescaling(kind, condition):
    graph = make_graph(kind, 2, 30, density=0.15, condition=condition, n_blocks=3, random_state=2)
    # Rescaling multiplied Theta by d_i d_j, and its diagonal was constant: undo it.
    scale = np.sqrt(np.diag(graph.precision))
    shape = graph.precision / np.outer(scale, scale)
    eigenvalues = np.linalg.eigvalsh(shape)
    assert eigenvalues[-1] / eigenvalues[0] == pytest.approx(condition, rel=1e-6)
    values = shape[graph.edges[:, 0], graph.edges[:, 1]]
    assert (values > 0).any()
    assert (values < 0).any()
    ratio = np.abs(values).max() / np.abs(values).min()
    assert 1.3 < ratio <= 2.0 + 1e-9  # sizes from 0.5 to 1, times one number


@pytest.mark.parametrize("p", [2, 11, 40])
@pytest.mark.parametrize("density", [0.0, 0.03, 0.5, 1.0])
def test_random_has_its_number_of_edges(p, density):
    graph = make_graph("random", 1, p, density=density, random_state=0)
    assert len(graph.edges) == round(density * p * (p - 1) / 2)
    if density == 0.0:
        assert np.array_equal(graph.precision, np.eye(p))


def test_random_edges_are_uniform():
    count = np.zeros((6, 6))
    for seed in range(300):
        edges = make_graph("random", 1, 6, density=0.4, random_state=seed).edges
        count[edges[:, 0], edges[:, 1]] += 1
    # binomial with mean 120 and deviation 8.5
    assert np.abs(count[np.triu_indices(6, 1)] - 120).max() < 40


@pytest.mark.parametrize(
    ("p", "density", "k"),
    [(50, 0.0, 1), (50, 0.05, 1), (50, 0.2, 5), (50, 0.22, 6), (12, 1.0, 11), (200, 0.05, 5)],
)
def test_neighbours_of_band_and_scale_free(p, density, k):
    band = make_graph("band", 1, p, density=density, random_state=0)
    assert (band.edges[:, 1] - band.edges[:, 0]).max() == k
    free = make_graph("scale_free", 1, p, density=density, random_state=0)
    assert len(free.edges) == len(band.edges) == k * p - k * (k + 1) // 2
    older = np.bincount(free.edges[:, 1], minlength=p)  # links to earlier nodes
    assert np.array_equal(older, np.minimum(np.arange(p), k))


def test_scale_free_has_hubs_and_is_connected():
    free = make_graph("scale_free", 1, 300, density=0.01, random_state=0)
    even = make_graph("random", 1, 300, density=len(free.edges) / (300 * 299 / 2), random_state=0)
    assert len(free.edges) == len(even.edges)
    assert degrees(free).max() > 2 * degrees(even).max()
    ends = coo_array((np.ones(len(free.edges)), free.edges.T), shape=(300, 300))
    assert connected_components(ends, directed=False)[0] == 1


def test_blocks_are_apart():
    graph = make_graph("blocks", 3, 23, density=0.5, n_blocks=4, random_state=0)
    block = np.repeat(np.arange(4), [6, 6, 6, 5])
    assert np.array_equal(block[graph.edges[:, 0]], block[graph.edges[:, 1]])
    apart = block[:, None] != block
    assert not graph.precision[apart].any()
    assert not graph.covariance[apart].any()
    per_block = np.bincount(block[graph.edges[:, 0]])
    assert per_block.tolist() == [round(0.5 * 15)] * 3 + [round(0.5 * 10)]


@pytest.mark.parametrize(
    "graph",
    [make_graph(kind, 40_000, 8, density=0.4, n_blocks=2, random_state=1) for kind in KINDS]
    + [make_diamond(40_000, -0.6, random_state=1)],
    ids=[*KINDS, "diamond"],
)
def test_moments(graph):
    # standard errors are at most sqrt(2/n) = 0.007
    assert np.abs(graph.X.mean(axis=0)).max() < 0.03
    assert np.abs(graph.X.T @ graph.X / 40_000 - graph.covariance).max() < 0.035
    assert np.abs(np.triu(graph.covariance, 1)).max() > 0.2  # so that the line above can fail


def test_an_ill_conditioned_graph_is_drawn():
    graph = make_graph("band", 20, 60, condition=1e12, random_state=0)
    assert np.isfinite(graph.X).all()
    assert np.linalg.eigvalsh(graph.precision)[0] > 0
    assert np.linalg.cond(graph.precision) > 1e11


def test_two_thousand_variables_in_blocks_are_fast():
    start = time.process_time()
    graph = make_graph("blocks", 100, 2000, n_blocks=20, random_state=0)
    assert time.process_time() - start < 3.0  # a tenth of a second; by the whole matrix it would be several
    assert len(graph.edges) == 20 * round(0.05 * 4950)


# -- the diamond --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rho", [0.1, 0.3, -0.4, 0.7])
def test_diamond_by_inversion(rho):
    covariance = diamond_covariance(rho)
    theta = np.linalg.inv(covariance)
    assert theta[0, 3] == pytest.approx(0.0, abs=1e-12 / (1 - 2 * rho**2))
    assert theta[1, 2] == pytest.approx(2 * rho**2 / (1 - 2 * rho**2), rel=1e-9)
    assert covariance[1, 2] == 0.0
    assert covariance[0, 3] == pytest.approx(2 * rho**2)
    graph = make_diamond(3, rho, random_state=0)
    np.testing.assert_allclose(graph.precision, theta, atol=1e-10)
    assert graph.precision[0, 3] == graph.precision[3, 0] == 0.0
    assert np.array_equal(graph.covariance, covariance)
    assert graph.edges.tolist() == [[0, 1], [0, 2], [1, 2], [1, 3], [2, 3]]


def test_diamond_without_correlation_has_no_edges():
    graph = make_diamond(3, 0.0, random_state=0)
    assert graph.edges.shape == (0, 2)
    assert np.array_equal(graph.precision, np.eye(4))


def test_diamond_seed():
    first = make_diamond(10, 0.3, random_state=5).X
    assert first.shape == (10, 4)
    assert np.array_equal(first, make_diamond(10, 0.3, random_state=5).X)
    assert not np.array_equal(first, make_diamond(10, 0.3, random_state=6).X)


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda: make_graph("ring", 5, 4), "kind"),
        (lambda: make_graph(None, 5, 4), "kind"),
        (lambda: make_graph("random", 0, 4), "n_samples"),
        (lambda: make_graph("random", 5, 4.0), "n_features"),
        (lambda: make_graph("random", 5, 4, density=1.1), "density"),
        (lambda: make_graph("random", 5, 4, density=np.nan), "density"),
        (lambda: make_graph("random", 5, 4, condition=1.0), "condition"),
        (lambda: make_graph("random", 5, 4, condition=0.5), "condition"),
        (lambda: make_graph("random", 5, 4, condition=np.inf), "condition"),
        (lambda: make_graph("blocks", 5, 4, n_blocks=5), "n_blocks"),
        (lambda: make_graph("blocks", 5, 4, n_blocks=0), "n_blocks"),
        (lambda: make_graph("blocks", 5, 4, n_blocks=True), "n_blocks"),
        (lambda: make_graph("blocks", 5, 4, n_blocks=2.0), "n_blocks"),
        (lambda: diamond_covariance(0.71), "rho"),
        (lambda: diamond_covariance("a"), "rho"),
        (lambda: make_diamond(5, -0.8), "rho"),
        (lambda: make_diamond(0, 0.3), "n_samples"),
    ],
)
def test_bad_arguments_are_named(call, name):
    with pytest.raises(ValueError, match=f"^{name}"):
        call()


def test_blocks_are_not_asked_for_elsewhere():
    assert make_graph("random", 5, 4, n_blocks=99, random_state=0).X.shape == (5, 4)

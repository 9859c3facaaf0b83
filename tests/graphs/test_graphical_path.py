"""Paths of graphs: against single fits, their grid, and how they are kept."""

import numpy as np
import pytest
from sklearn.covariance import GraphicalLasso

from trimreg import MCP, TrimmedL1, solve_graphical
from trimreg.datasets import make_graph
from trimreg.graphs.selection import graphical_path as graphpath
from trimreg.graphs.selection.graphical_path import edge_counts, graph_grid, largest_alpha
from trimreg.graphs.solve import check_settings, prepare_graph
from trimreg.selection import graphical_path


def task_of(S, **settings):
    return prepare_graph(S, check_settings(len(S), alpha=1.0, **settings))


def covariance(kind="random", n=100, p=10, seed=0, density=0.2):
    return np.cov(make_graph(kind, n, p, density=density, random_state=seed).X, rowvar=False, bias=True)


@pytest.mark.parametrize(
    ("kind", "seed", "effort"), [("random", 0, "low"), ("scale_free", 1, "medium"), ("band", 2, "medium")]
)
def test_warm_starts_end_no_higher_than_single_fits(kind, seed, effort):
    S, hs, alphas = covariance(kind, p=12, seed=seed), [0, 2, 6, 11, 16, 24], ["exact", 0.2, 0.08]
    path = graphical_path(S, hs, alphas, effort=effort, tol=1e-7)
    cold = np.array(
        [
            [
                solve_graphical(S, penalty=TrimmedL1(h), alpha=alpha, effort=effort, tol=1e-7).objective
                for alpha in alphas
            ]
            for h in hs
        ]
    )
    above = (path.objectives - cold) / np.maximum(1.0, np.abs(cold))
    assert np.mean(above <= 1e-3) >= 0.95
    assert above.max() < 5e-3


@pytest.mark.parametrize("effort", ["low", "medium", "high"])
def test_every_cell_is_a_solution_of_its_own(effort):
    S, hs, alphas = covariance(p=8), [0, 3, 7], ["exact", 0.3, 0.1]
    path = graphical_path(S, hs, alphas, effort=effort)
    assert path.converged.all()
    assert path.dual_gaps.max() < 1e-8
    assert path.alphas == alphas
    np.testing.assert_array_equal(path.n_edges[:, 0], hs)
    np.testing.assert_array_equal(path.edges().sum(axis=2), path.n_edges)
    assert (np.diff(path.objectives, axis=0) <= 1e-8).all()  # more free edges, less penalty
    assert (np.diff(path.objectives, axis=1) <= 1e-8).all()
    np.testing.assert_allclose(path.alpha_values[:, 1:], [[0.3, 0.1]] * 3)
    for (i, j), objective in np.ndenumerate(path.objectives):
        Theta = path.precision(i, j)
        sizes = np.sort(np.abs(Theta[np.triu_indices(8, 1)]))[::-1]
        direct = np.vdot(S, Theta) - np.linalg.slogdet(Theta)[1]
        direct += 2 * path.alpha_values[i, j] * sizes[hs[i] :].sum()
        assert objective == pytest.approx(direct, rel=1e-9)


def test_without_free_edges_it_is_the_graphical_lasso():
    S, alphas = covariance(p=6), [0.3, 0.1, 0.03]
    path = graphical_path(S, penalty="l1", alphas=alphas)
    assert path.hs.tolist() == [0]
    for j, alpha in enumerate(alphas):
        peer = GraphicalLasso(alpha=alpha, covariance="precomputed", tol=1e-9, enet_tol=1e-9, max_iter=500)
        np.testing.assert_allclose(path.precision(0, j), peer.fit(S).precision_, atol=1e-4)


def test_other_penalties_and_factors():
    S = covariance(p=6)
    path = graphical_path(S, penalty=MCP(3.0), alphas=[0.2])
    single = solve_graphical(S, penalty=MCP(3.0), alpha=0.2)
    assert path.objectives[0, 0] <= single.objective + 1e-8
    factor = np.ones((6, 6))
    factor[0, 1] = factor[1, 0] = 0.0
    factor[0, 2] = factor[2, 0] = np.inf
    path = graphical_path(S, [0, 4], "exact", penalty_factor=factor)
    assert path.precisions[:, 0, 0, 1].all()
    assert not path.precisions[:, 0, 0, 2].any()


def test_large_paths_are_kept_sparse(monkeypatch):
    S, grid = covariance(p=6), ([0, 2, 5], ["exact", 0.2])
    dense = graphical_path(S, *grid)
    monkeypatch.setattr(graphpath, "DENSE_UP_TO", 3 * 2 * 36 * 8 - 1)
    sparse = graphical_path(S, *grid)
    assert sparse.precisions.shape == (3, 2)
    assert dense.precisions.shape == (3, 2, 6, 6)
    np.testing.assert_array_equal(sparse.precision(1, 1), dense.precision(1, 1))
    np.testing.assert_array_equal(sparse.partial_correlations(), dense.partial_correlations())
    np.testing.assert_array_equal(sparse.edges(), dense.edges())


def test_float32_is_kept():
    S = covariance(p=5)
    path = graphical_path(S.astype(np.float32), [0, 2], "exact")
    assert path.precisions.dtype == np.float32
    np.testing.assert_allclose(path.precisions, graphical_path(S, [0, 2], "exact").precisions, rtol=1e-4)


def test_progress_is_told(capsys):
    graphical_path(covariance(p=4), [0, 1], "exact", verbose=2)
    assert capsys.readouterr().err.splitlines() == ["fits: 1/2", "fits: 2/2"]


# -- the grid ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("largest", [0, 1, 5, 15, 16, 17, 30, 90, 300, 10000])
def test_sizes_go_from_nothing_to_the_largest_and_are_denser_first(largest):
    sizes = edge_counts(largest)
    assert sizes[0] == 0
    assert sizes[-1] == largest
    assert (np.diff(sizes) > 0).all()
    assert min(largest + 1, 12) <= sizes.size <= 16
    assert sizes.size < 3 or np.diff(sizes)[-1] >= np.diff(sizes)[0]
    assert largest > 90 or sizes[: largest + 1][:3].tolist() == list(range(min(largest, 2) + 1))


def test_automatic_grid():
    task = task_of(covariance(p=10), penalty=TrimmedL1(0))
    hs, alphas = graph_grid(task, "auto", "auto", [task.safe_h])
    assert hs[-1] == 30
    assert alphas[0] == "exact"
    assert np.all(np.diff(alphas[1:]) < 0)
    assert alphas[1] == pytest.approx(largest_alpha(task))
    assert graph_grid(task, "auto", "exact", [task.safe_h, 7])[0][-1] == 7
    small = task_of(covariance(p=3), penalty=TrimmedL1(0))
    assert graph_grid(small, "auto", "exact", [small.safe_h])[0].tolist() == [0, 1, 2, 3]
    factor = np.ones(45)
    factor[:40] = np.inf
    few = task_of(covariance(p=10), penalty=TrimmedL1(0, factor))
    assert graph_grid(few, "auto", "exact", [few.safe_h])[0].tolist() == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("standardize", [False, True])
def test_largest_alpha_is_where_the_graphical_lasso_gets_its_first_edge(standardize):
    S = covariance(p=6) * np.multiply.outer(np.arange(1.0, 7.0), np.arange(1.0, 7.0))
    task = task_of(S, penalty="l1", standardize=standardize)
    largest = largest_alpha(task)
    alphas = [largest * (1 + 1e-6), largest * (1 - 1e-3)]
    path = graphical_path(S, penalty="l1", alphas=alphas, standardize=standardize)
    np.testing.assert_array_equal(path.n_edges[0] > 0, [False, True])


def test_grids_that_are_refused():
    S = covariance(p=5)
    singular = covariance(n=4, p=8)  # of rank 3: four variables are dependent, six edges join them
    cases = [
        ({"penalty": TrimmedL1(3)}, "penalty must have h=None"),
        ({"penalty": "l1", "alphas": "exact"}, "alphas .* does not trim"),
        ({"penalty": "l1", "alphas": [0.1], "hs": [2]}, "hs .* does not trim"),
        ({"hs": [11]}, r"hs\[0\]"),
        ({"hs": "all"}, "hs"),
        ({"alphas": "some"}, "alphas"),
        ({"effort": "huge"}, "effort"),
    ]
    for arguments, match in cases:
        with pytest.raises(ValueError, match=match):
            graphical_path(S, **arguments)
    with pytest.raises(ValueError, match="largest safe h is 5"):
        graphical_path(singular, [0, 6])
    with pytest.raises(ValueError, match="alphas must be above 0"):
        graphical_path(singular, [0], [0.1, 0.0])
    assert graphical_path(singular, alphas="exact").hs[-1] == 5
    inverse = graphical_path(S, [0], [0.1, 0.0]).precision(0, 1)
    np.testing.assert_allclose(inverse, np.linalg.inv(S), rtol=1e-5)

"""Likelihood, information criteria and stability of graphs, against their definitions."""

from itertools import combinations

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from trimreg.graphs.selection.criteria import instability, least_sparse, mean_log_likelihood, subsample_size
from trimreg.selection import ebic, graph_criterion


def model(p, seed, edges=3):
    rng = np.random.default_rng(seed)
    precision = np.diag(rng.uniform(3.0, 5.0, p))
    for i, j in list(combinations(range(p), 2))[:edges]:
        precision[i, j] = precision[j, i] = rng.uniform(-1.0, 1.0)
    return precision


@pytest.mark.parametrize("seed", range(4))
def test_likelihood_is_that_of_the_samples(seed):
    rng = np.random.default_rng(seed)
    precision, X = model(4, seed), rng.standard_normal((30, 4)) * 10.0 ** rng.integers(-2, 2)
    expected = multivariate_normal(np.zeros(4), np.linalg.inv(precision)).logpdf(X).mean()
    S = X.T @ X / 30
    assert mean_log_likelihood(S, precision) == pytest.approx(expected, rel=1e-10)
    several = mean_log_likelihood(S, [[np.eye(4), precision]])
    assert several.shape == (1, 2)
    assert several[0, 1] == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize(("n", "p", "gamma"), [(20, 3, 0.5), (1000, 5, 1.0), (50, 4, 0.0)])
def test_criteria_are_their_formulas(n, p, gamma):
    rng = np.random.default_rng(n)
    X, precision = rng.standard_normal((n, p)), model(p, 1, edges=2)
    S = X.T @ X / n
    deviance = -2.0 * multivariate_normal(np.zeros(p), np.linalg.inv(precision)).logpdf(X).sum()
    values = {name: graph_criterion(name, S, precision, n, gamma=gamma) for name in ("aic", "bic", "ebic")}
    assert values["aic"] == pytest.approx(deviance + 4.0)
    assert values["bic"] == pytest.approx(deviance + 2 * np.log(n))
    assert values["ebic"] == pytest.approx(deviance + 2 * np.log(n) + 8 * gamma * np.log(p))
    assert ebic(S, precision, n, gamma) == values["ebic"]
    assert isinstance(values["ebic"], float)


def test_criteria_of_several_graphs_and_default_gamma():
    S, models = np.eye(3), np.array([np.eye(3), model(3, 0, edges=1)])
    together = graph_criterion("ebic", S, models, 40)
    assert together.shape == (2,)
    np.testing.assert_allclose(together, [ebic(S, one, 40, gamma=0.5) for one in models])
    np.testing.assert_allclose(together, [ebic(S, one, 40) for one in models])


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: graph_criterion("stars", np.eye(2), np.eye(2), 5), "criterion"),
        (lambda: graph_criterion("bic", np.eye(2), np.eye(2), 0), "n must"),
        (lambda: ebic(np.eye(2), np.eye(2), 5, gamma=-1.0), "gamma"),
        (lambda: ebic(np.eye(2), np.eye(3), 5), "precisions"),
        (lambda: ebic(np.ones(2), np.eye(2), 5), "S must"),
        (lambda: ebic(np.eye(2), np.ones((2, 3)), 5), "precisions"),
        (lambda: mean_log_likelihood(np.eye(2), np.diag([1.0, -1.0])), "positive definite"),
    ],
)
def test_bad_input_of_criteria(call, match):
    with pytest.raises(ValueError, match=match):
        call()


# -- stability -----------------------------------------------------------------------------------------


def test_size_of_subsamples():
    assert [subsample_size(n) for n in (2, 3, 10, 156, 157, 10000)] == [2, 2, 8, 124, 125, 1000]


@pytest.mark.parametrize("seed", range(5))
def test_instability_against_pairs_of_subsamples(seed):
    """2 xi (1 - xi) is the chance that two subsamples, drawn with replacement, disagree on a pair."""
    rng = np.random.default_rng(seed)
    chosen = rng.random((6, 3, 2, 10)) < rng.random((3, 2, 10))
    D = np.zeros((3, 2))
    for i, j in np.ndindex(3, 2):
        D[i, j] = np.mean([chosen[a, i, j] != chosen[b, i, j] for a in range(6) for b in range(6)])
    expected = [[D[: i + 1, : j + 1].max() for j in range(2)] for i in range(3)]
    np.testing.assert_allclose(instability(chosen), expected, rtol=1e-12)


def test_instability_where_all_agree():
    assert not instability(np.ones((4, 2, 2, 3), dtype=bool)).any()


@pytest.mark.parametrize("seed", range(5))
def test_least_sparse_has_the_most_edges_of_what_is_stable(seed):
    rng = np.random.default_rng(seed)
    unstable, n_edges = rng.integers(0, 8, (4, 3)) / 40, rng.integers(0, 6, (4, 3))
    i, j = least_sparse(unstable, n_edges, 0.1)
    assert unstable[i, j] <= 0.1
    assert n_edges[i, j] == n_edges[unstable <= 0.1].max()
    ties = np.argwhere((unstable <= 0.1) & (n_edges == n_edges[i, j]))
    assert (j, i) == min((int(b), int(a)) for a, b in ties)


def test_least_sparse_counts_the_threshold_itself_and_may_find_nothing():
    assert least_sparse([[0.0], [0.05], [0.051]], [[0], [1], [2]], 0.05) == (1, 0)
    assert least_sparse([[0.2]], [[3]], 0.1) is None

"""The trimmed graphical lasso: what it means, against closed forms, scikit-learn and its own certificate."""

import numpy as np
import pytest
from sklearn.covariance import GraphicalLasso, empirical_covariance, log_likelihood

from trimreg import L1, MCP, SCAD, TrimmedGraphicalLasso, TrimmedL1, solve_graphical
from trimreg.graphs.covariances import Nonparanormal, covariance_of
from trimreg.graphs.solve import check_settings, prepare_graph

SOLVERS = ("mm", "bcd", "dc", "prox")
DASH = chr(0x2013)  # between the names of an edge


def chain(n=400, p=7, seed=0, strength=0.6):
    """Samples of a Markov chain, in units of very different size."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, p))
    for j in range(1, p):
        X[:, j] += strength * X[:, j - 1]
    return X * 2.0 ** np.arange(p) + 3.0


def mixed(seed, n=40, p=6):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n, p)) @ rng.standard_normal((p, p))


def pairs_of(model):
    return {tuple(pair) for pair in np.argwhere(np.triu(model.precision_, 1)).tolist()}


# -- ends of the range of h ------------------------------------------------------------------------------


@pytest.mark.parametrize("settings", [{"h": 0}, {"penalty": "l1"}, {"penalty": L1()}])
def test_without_free_edges_it_is_the_graphical_lasso(settings):
    X = mixed(1)
    alpha = 0.15 * np.abs(np.triu(empirical_covariance(X), 1)).max()
    peer = GraphicalLasso(alpha=alpha, tol=1e-9, enet_tol=1e-9, max_iter=1000).fit(X)
    model = TrimmedGraphicalLasso(alpha=alpha, tol=1e-12, **settings).fit(X)
    assert 0 < model.n_edges_ < 15
    assert pairs_of(model) == {tuple(pair) for pair in np.argwhere(np.triu(peer.precision_, 1)).tolist()}
    np.testing.assert_allclose(model.precision_, peer.precision_, atol=1e-5)
    np.testing.assert_allclose(model.covariance_, peer.covariance_, atol=1e-5)
    np.testing.assert_array_equal(model.location_, peer.location_)
    assert model.h_ == 0


@pytest.mark.parametrize("alpha", ["exact", 0.3, 0.0])
def test_with_all_edges_free_it_is_maximum_likelihood(alpha):
    X = mixed(2)
    model = TrimmedGraphicalLasso(h=15, alpha=alpha, tol=1e-12).fit(X)
    np.testing.assert_allclose(model.precision_ @ empirical_covariance(X), np.eye(6), atol=1e-6)
    np.testing.assert_allclose(model.covariance_, model.empirical_covariance_, rtol=1e-5)


def test_no_penalty_at_all_whatever_h_is():
    X = mixed(2)
    expected = np.linalg.inv(empirical_covariance(X))
    for h in (0, 3, None):
        model = TrimmedGraphicalLasso(h=h, alpha=0.0, tol=1e-12).fit(X)
        np.testing.assert_allclose(model.precision_, expected, rtol=1e-4, atol=1e-6)


def test_no_penalty_in_singular_data_with_edges_excluded():
    X = mixed(0, n=3, p=4)  # of rank 2: three variables are dependent, joined by three edges
    factor = np.full(6, np.inf)
    factor[[0, 5]] = 1.0
    model = TrimmedGraphicalLasso(h=0, alpha=0.0, penalty_factor=factor).fit(X)
    assert pairs_of(model) == {(0, 1), (2, 3)}
    factor[1] = 1.0
    for penalty_factor in (factor, None):
        with pytest.raises(ValueError, match="linearly dependent"):
            TrimmedGraphicalLasso(h=0, alpha=0.0, penalty_factor=penalty_factor).fit(X)


def test_no_edges_at_all():
    X = chain()
    model = TrimmedGraphicalLasso(h=0).fit(X)
    np.testing.assert_array_equal(model.precision_ != 0, np.eye(7, dtype=bool))
    np.testing.assert_allclose(np.diag(model.precision_), 1.0 / X.var(axis=0))
    assert model.n_edges_ == len(model.edges_) == 0
    assert "no edges" in str(model.edges_)


# -- at most h edges -------------------------------------------------------------------------------------


@pytest.mark.parametrize("solver", SOLVERS)
def test_exact_keeps_at_most_h_edges(solver):
    for seed in range(8) if solver == "mm" else (0, 1, 5):
        h = seed % 6
        scale = 10.0 ** np.random.default_rng(seed).integers(-2, 3, 6)
        model = TrimmedGraphicalLasso(h=h, solver=solver, tol=1e-5).fit(mixed(seed) * scale)
        assert model.n_edges_ <= h == model.h_
        if solver == "mm":
            assert model.n_edges_ == h
        # No edge is shrunk: on the edges and the diagonal the inverse agrees with S.
        deviation = np.sqrt(np.diag(model.empirical_covariance_))
        off = (model.covariance_ - model.empirical_covariance_) / np.outer(deviation, deviation)
        assert np.abs(off[model.precision_ != 0]).max() < 1e-2


def test_a_chain_is_found():
    model = TrimmedGraphicalLasso(h=6).fit(chain())
    assert pairs_of(model) == {(j, j + 1) for j in range(6)}
    assert model.certificate().local_minimum
    assert all(edge.free for edge in model.edges_)


def test_h_by_default_and_as_a_fraction():
    X = mixed(0, n=50, p=6)
    assert TrimmedGraphicalLasso().fit(X).h_ == 6
    assert TrimmedGraphicalLasso().fit(X[:, :2]).h_ == 1
    assert TrimmedGraphicalLasso(h=0.2).fit(X).h_ == 3
    few = TrimmedGraphicalLasso().fit(X[:4])  # of rank 3: four variables are dependent, joined by six edges
    assert few.h_ == few.n_edges_ == 5
    with pytest.raises(ValueError, match="largest safe h is 5"):
        TrimmedGraphicalLasso(h=6).fit(X[:4])


def test_soft_alpha_shrinks_the_edges_beyond_h():
    X = mixed(3, n=200)
    S = empirical_covariance(X)
    model = TrimmedGraphicalLasso(h=2, alpha=0.2, tol=1e-11).fit(X)
    free = {(edge.source, edge.target) for edge in model.edges_ if edge.free}
    assert len(free) == 2 < model.n_edges_
    penalized = (model.trim_weights_ == 1) & (model.precision_ != 0) & ~np.eye(6, dtype=bool)
    np.testing.assert_allclose(
        (S - model.covariance_)[penalized], -0.2 * np.sign(model.precision_[penalized]), atol=1e-5
    )
    assert np.abs(S - model.covariance_).max() < 0.2 + 1e-5


# -- symmetries ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "settings",
    [{"h": 4}, {"h": 3, "alpha": 0.1}, {"penalty": "mcp", "alpha": 0.2}, {"h": 4, "kind": "kendall"}],
    ids=str,
)
def test_the_order_of_variables_does_not_matter(settings):
    X = mixed(4, n=100)
    order = np.random.default_rng(0).permutation(6)
    here = TrimmedGraphicalLasso(tol=1e-11, **settings).fit(X)
    there = TrimmedGraphicalLasso(tol=1e-11, **settings).fit(X[:, order])
    np.testing.assert_allclose(there.precision_, here.precision_[np.ix_(order, order)], rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(there.trim_weights_ == 0, (here.trim_weights_ == 0)[np.ix_(order, order)])
    assert there.objective_ == pytest.approx(here.objective_, abs=1e-8)


@pytest.mark.parametrize(
    "settings",
    [
        {"h": 4},
        {"h": 3, "alpha": 0.1, "standardize": True},
        {"penalty": "scad", "alpha": 0.2, "standardize": True},
    ],
    ids=str,
)
def test_units_do_not_matter(settings):
    X, units = mixed(5, n=100), 10.0 ** np.array([-3, 2, 0, 4, -1, 1])
    here = TrimmedGraphicalLasso(tol=1e-11, **settings).fit(X)
    there = TrimmedGraphicalLasso(tol=1e-11, **settings).fit(X * units + 7.0)
    np.testing.assert_allclose(there.partial_correlation_, here.partial_correlation_, atol=1e-5)
    np.testing.assert_allclose(
        there.precision_ * np.outer(units, units), here.precision_, rtol=1e-4, atol=1e-5
    )
    assert pairs_of(there) == pairs_of(here)
    if "standardize" in settings:
        assert there.objective_ == pytest.approx(here.objective_, abs=1e-8)


def test_units_matter_to_a_soft_penalty_of_the_data():
    X = chain()
    rough = TrimmedGraphicalLasso(h=1, alpha=0.3).fit(X)
    fine = TrimmedGraphicalLasso(h=1, alpha=0.3).fit(X / 2.0 ** np.arange(7))
    assert rough.n_edges_ > fine.n_edges_


def test_standardize_is_a_fit_of_correlations():
    X = chain()
    model = TrimmedGraphicalLasso(h=2, alpha=0.1, standardize=True, tol=1e-11).fit(X)
    other = TrimmedGraphicalLasso(h=2, alpha=0.1, tol=1e-11).fit((X - X.mean(axis=0)) / X.std(axis=0))
    deviation = X.std(axis=0)
    np.testing.assert_allclose(model.precision_ * np.outer(deviation, deviation), other.precision_, atol=1e-6)


# -- where S comes from ----------------------------------------------------------------------------------


def test_a_precomputed_covariance_is_the_same_fit():
    X = mixed(6)
    data = TrimmedGraphicalLasso(h=4).fit(X)
    S = empirical_covariance(X)
    S[0, 1] *= 1 + 5e-8  # symmetric within what is taken for rounding
    given = TrimmedGraphicalLasso(h=4, covariance="precomputed").fit(S)
    np.testing.assert_allclose(given.precision_, data.precision_, rtol=1e-4, atol=1e-7)
    np.testing.assert_array_equal(given.location_, np.zeros(6))
    assert given.score(X - X.mean(axis=0)) == pytest.approx(data.score(X), rel=1e-6)
    assert given.certificate().local_minimum
    assert "samples" not in str(given.summary())
    assert "samples: 40" in str(data.summary())


def test_assume_centered():
    X = mixed(6) + 1.0
    model = TrimmedGraphicalLasso(h=4, assume_centered=True).fit(X)
    np.testing.assert_allclose(model.empirical_covariance_, X.T @ X / len(X))
    np.testing.assert_array_equal(model.location_, np.zeros(6))
    np.testing.assert_allclose(
        model.precision_, solve_graphical(X.T @ X / len(X), penalty=TrimmedL1(4), alpha="exact").precision
    )


@pytest.mark.parametrize("kind", ["spearman", "kendall"])
def test_rank_correlations(kind):
    X = chain()
    model = TrimmedGraphicalLasso(h=6, kind=kind).fit(X)
    found = covariance_of(X, kind=kind)
    np.testing.assert_array_equal(model.empirical_covariance_, found.covariance)
    assert pairs_of(model) == {(j, j + 1) for j in range(6)}
    # Increasing functions of the columns change nothing but the units of new samples.
    bent = TrimmedGraphicalLasso(h=6, kind=kind).fit(np.cbrt(X))
    np.testing.assert_array_equal(bent.precision_, model.precision_)
    Z = (X - X.mean(axis=0)) / X.std(axis=0)
    assert model.score(X) == pytest.approx(log_likelihood(Z.T @ Z / len(Z), model.precision_))
    np.testing.assert_allclose(model.mahalanobis(X), np.einsum("ij,jk,ik->i", Z, model.precision_, Z))


def test_normal_scores():
    X, new = chain(seed=0), chain(seed=1, n=30)
    model = TrimmedGraphicalLasso(h=6, scores="npn").fit(X)
    np.testing.assert_allclose(np.diag(model.empirical_covariance_), 1.0)
    assert pairs_of(model) == {(j, j + 1) for j in range(6)}
    Z = Nonparanormal().fit(X).transform(new)
    assert model.score(new) == pytest.approx(log_likelihood(Z.T @ Z / len(Z), model.precision_))
    np.testing.assert_allclose(model.mahalanobis(new), np.einsum("ij,jk,ik->i", Z, model.precision_, Z))
    bent = TrimmedGraphicalLasso(h=6, scores="npn").fit(np.cbrt(X))
    np.testing.assert_array_equal(bent.precision_, model.precision_)


def test_shrinkage():
    X = mixed(7)
    S = empirical_covariance(X)
    shrunk = 0.7 * S + 0.3 * np.diag(np.diag(S))
    model = TrimmedGraphicalLasso(h=15, shrinkage=0.3, tol=1e-12).fit(X)
    np.testing.assert_allclose(model.precision_ @ shrunk, np.eye(6), atol=1e-6)
    np.testing.assert_allclose(model.empirical_covariance_, S)
    assert model.certificate().local_minimum


# -- scikit-learn's methods ------------------------------------------------------------------------------


def test_scores_and_distances_are_those_of_scikit_learn():
    X, new = mixed(8), mixed(9, n=15)
    alpha = 0.1
    peer = GraphicalLasso(alpha=alpha, tol=1e-9, enet_tol=1e-9, max_iter=1000).fit(X)
    model = TrimmedGraphicalLasso(penalty="l1", alpha=alpha, tol=1e-13).fit(X)
    assert model.score(new) == pytest.approx(peer.score(new), rel=1e-5)
    np.testing.assert_allclose(model.mahalanobis(new), peer.mahalanobis(new), rtol=1e-4)
    assert model.get_precision() is model.precision_
    centred = new - X.mean(axis=0)
    assert model.score(new) == pytest.approx(log_likelihood(centred.T @ centred / 15, model.precision_))
    assert model.error_norm(model.covariance_ + np.eye(6)) == pytest.approx(1.0)


# -- penalties -------------------------------------------------------------------------------------------


def test_factors_keep_and_exclude_edges():
    X = chain()
    factor = np.ones((7, 7))
    factor[0, 1] = factor[1, 0] = np.inf
    factor[4, 6] = factor[6, 4] = 0.0
    model = TrimmedGraphicalLasso(h=5, penalty_factor=factor).fit(X)
    assert pairs_of(model) == {(4, 6)} | {(j, j + 1) for j in range(1, 6)}
    assert model.trim_weights_[0, 1] == 1
    assert model.trim_weights_[4, 6] == 0
    assert model.certificate().local_minimum
    as_vector = TrimmedGraphicalLasso(h=5, penalty_factor=factor[np.triu_indices(7, 1)]).fit(X)
    np.testing.assert_array_equal(as_vector.precision_, model.precision_)
    in_penalty = TrimmedGraphicalLasso(penalty=TrimmedL1(5, factor)).fit(X)
    np.testing.assert_array_equal(in_penalty.precision_, model.precision_)
    assert in_penalty.h_ == 5


def test_a_penalty_leaves_h_to_the_estimator():
    X = chain()
    assert TrimmedGraphicalLasso(h=3, penalty=TrimmedL1()).fit(X).n_edges_ == 3
    assert TrimmedGraphicalLasso(penalty=TrimmedL1(4)).fit(X).n_edges_ == 4
    assert TrimmedGraphicalLasso(penalty=TrimmedL1()).fit(X).h_ == 7
    assert TrimmedGraphicalLasso(h=4, penalty=TrimmedL1(4)).fit(X).h_ == 4


@pytest.mark.parametrize("penalty", ["mcp", "scad", MCP(gamma=4.0), SCAD(gamma=5.0)], ids=repr)
def test_folded_penalties(penalty):
    X = chain()
    model = TrimmedGraphicalLasso(penalty=penalty, alpha=0.2, standardize=True).fit(X)
    assert {(j, j + 1) for j in range(6)} <= pairs_of(model)
    assert model.h_ == 0
    assert "h:" not in str(model.summary())
    direct = solve_graphical(empirical_covariance(X), penalty=penalty, alpha=0.2, standardize=True)
    np.testing.assert_allclose(model.precision_, direct.precision)


# -- what is reported ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "settings",
    [
        {"h": 4},
        {"h": 3, "alpha": 0.2},
        {"h": 3, "alpha": 0.2, "standardize": True},
        {"penalty": "l1", "alpha": 0.3},
        {"penalty": "mcp", "alpha": 0.3, "standardize": True},
        {"h": 3, "alpha": 0.2, "standardize": True, "solver": "prox", "tol": 1e-6},
        {"h": 3, "alpha": 0.2, "standardize": True, "solver": "bcd", "tol": 1e-6},
        {"h": 3, "alpha": 0.2, "standardize": True, "solver": "dc", "tol": 1e-6},
    ],
    ids=str,
)
def test_the_certificate_agrees(settings):
    X = mixed(10, n=100) if "solver" not in settings else chain()
    model = TrimmedGraphicalLasso(**settings).fit(X)
    certificate = model.certificate()
    assert certificate.positive_definite
    assert certificate.objective == pytest.approx(model.objective_, rel=1e-10)
    assert certificate.relative_gap == pytest.approx(model.dual_gap_, rel=1e-3, abs=1e-13)
    assert certificate.n_edges == model.n_edges_
    assert model.result_.converged
    assert certificate.local_minimum, certificate.reason
    assert model.dual_gap_ <= 1e-8
    assert certificate.violation <= np.sqrt(2e-8 * max(1.0, abs(model.objective_)))
    model.precision_ = model.precision_ + 0.05 * np.diag(np.diag(model.precision_))
    assert not model.certificate().local_minimum


def test_the_certificate_is_as_strict_as_the_fit():
    X = mixed(10, n=100)
    rough = TrimmedGraphicalLasso(h=4, tol=1e-4).fit(X)
    assert rough.certificate().local_minimum
    assert not rough.certificate(tol=1e-9).local_minimum
    assert not TrimmedGraphicalLasso(h=4, tol=1e-12).fit(X).certificate(tol=1e-12).local_minimum


def test_the_certificate_is_that_of_the_fit():
    X = mixed(10, n=100)
    model = TrimmedGraphicalLasso(h=4, standardize=True).fit(X)
    before = str(model.certificate())
    model.set_params(h=1, standardize=False, shrinkage=0.5, tol=0.5)
    assert str(model.certificate()) == before


def test_the_edges_are_all_of_them_and_sorted():
    X = mixed(11, n=60)
    model = TrimmedGraphicalLasso(h=3, alpha=0.1).fit(X)
    sizes = [abs(edge.partial_correlation) for edge in model.edges_]
    assert sizes == sorted(sizes, reverse=True)
    assert model.n_edges_ == len(sizes) == np.count_nonzero(np.triu(model.precision_, 1))
    for edge in model.edges_:
        i, j = int(edge.source[1:]), int(edge.target[1:])
        assert edge.precision == model.precision_[i, j] != 0
        assert edge.partial_correlation == pytest.approx(model.partial_correlation_[i, j])
        assert edge.free == (model.trim_weights_[i, j] == 0)
    scale = np.sqrt(np.diag(model.precision_))
    partial = -model.precision_ / np.outer(scale, scale)
    np.fill_diagonal(partial, 1.0)
    np.testing.assert_allclose(model.partial_correlation_, partial)


def test_the_attributes_are_those_of_the_result():
    X = mixed(12)
    model = TrimmedGraphicalLasso(h=3, alpha=0.3, standardize=True).fit(X)
    result = solve_graphical(empirical_covariance(X), penalty=TrimmedL1(3), alpha=0.3, standardize=True)
    for name in ("precision", "covariance", "objective", "dual_gap", "stationarity", "alpha", "n_iter"):
        np.testing.assert_allclose(
            getattr(model, f"{name}_"), getattr(result, name), rtol=1e-9, atol=1e-12, err_msg=name
        )
        np.testing.assert_array_equal(getattr(model, f"{name}_"), getattr(model.result_, name))
    np.testing.assert_array_equal(model.trim_weights_, result.weights)
    assert model.alpha_ == 0.3


def test_summary_and_graph():
    model = TrimmedGraphicalLasso(h=6).fit(chain())
    text = str(model.summary())
    assert text.startswith("TrimmedGraphicalLasso")
    for fact in ("samples: 400", "features: 7", "h: 6", "edges: 6", "dual gap:", f"x0 {DASH} x1", "free"):
        assert fact in text, fact
    assert f"x0 {DASH} x1" in model.summary().to_html()
    assert "more" in str(model.summary(max_rows=2))
    graph = model.to_networkx()
    assert len(graph) == 7
    assert graph.edges["x0", "x1"]["weight"] == model.partial_correlation_[0, 1] > 0.3
    assert graph.edges["x0", "x1"]["precision"] == model.precision_[0, 1] < 0


# -- the task below --------------------------------------------------------------------------------------


def test_a_task_goes_from_exact_to_a_number_and_back():
    S = empirical_covariance(chain())
    exact, soft = (
        prepare_graph(S, check_settings(len(S), penalty=TrimmedL1(2), alpha=alpha))
        for alpha in ("exact", 0.4)
    )
    for here, there in ((exact.at(alpha=0.4), soft), (soft.at(alpha="exact"), exact), (soft.at(h=2), soft)):
        assert here.alpha == pytest.approx(there.alpha)
        assert here.exact == there.exact
        np.testing.assert_allclose(
            here.problem.penalty.levels(here.problem.alpha), there.problem.penalty.levels(there.problem.alpha)
        )
        np.testing.assert_allclose(here.solve().precision, there.solve().precision, rtol=1e-5, atol=1e-9)


@pytest.mark.parametrize("standardize", [False, True])
def test_the_exact_alpha_is_above_the_threshold_in_the_units_of_the_data(standardize):
    X = chain()
    model = TrimmedGraphicalLasso(h=3, standardize=standardize).fit(X)
    S = empirical_covariance(X)
    deviation = np.ones(7) if standardize else np.sqrt(np.diag(S))
    scale = np.outer(deviation, deviation)
    R = np.corrcoef(X, rowvar=False)
    threshold = np.max(((1 + np.abs(R)) * scale)[np.triu_indices(7, 1)])
    assert threshold < model.alpha_ < 1.001 * threshold
    assert model.n_edges_ == 3

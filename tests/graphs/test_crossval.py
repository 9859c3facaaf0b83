"""The trimmed graphical lasso that chooses: what it finds, and that it is what it says."""

import warnings

import numpy as np
import pandas as pd
import pytest
from joblib import parallel_config
from matplotlib.figure import Figure
from sklearn.base import clone
from sklearn.covariance import log_likelihood
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import KFold

from trimreg import TrimmedGraphicalLasso, TrimmedGraphicalLassoCV, TrimmedL1, solve_graphical
from trimreg.graphs.selection.criteria import draw_subsamples, instability, least_sparse, subsample_size
from trimreg.plotting import path as draw_path
from trimreg.plotting import score_surface
from trimreg.selection import graph_criterion


def chain(n, p, seed=0, strength=0.8):
    """x_j depends on x_(j-1) alone: the edges are (j - 1, j)."""
    X = np.random.default_rng(seed).standard_normal((n, p))
    strength = np.broadcast_to(strength, p - 1)
    for j in range(1, p):
        X[:, j] += strength[j - 1] * X[:, j - 1]
    return X


def blocks(n, seed=0):
    """Three blocks of three variables that share a factor each: nine edges."""
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n, 9)) + np.repeat(rng.standard_normal((n, 3)), 3, axis=1)


def pairs_of(model):
    return sorted(zip(*np.nonzero(np.triu(model.precision_, 1)), strict=True))


CHAIN = [(j, j + 1) for j in range(5)]
BLOCKS = [(3 * b + i, 3 * b + j) for b in range(3) for i, j in ((0, 1), (0, 2), (1, 2))]


@pytest.mark.parametrize(
    ("options", "scale"),
    [
        ({"criterion": "ebic"}, 1e-4),
        ({"criterion": "bic"}, 1e5),
        ({"criterion": "gic"}, 1.0),
        ({"rule": "1se"}, 1e5),
    ],
    ids=str,
)
def test_the_chain_is_found(options, scale):
    model = TrimmedGraphicalLassoCV(hs=range(9), **options).fit(scale * chain(2000, 6))
    assert pairs_of(model) == CHAIN
    assert model.h_ == model.n_edges_ == 5


def test_the_blocks_are_found():
    X = blocks(3000)
    assert pairs_of(TrimmedGraphicalLassoCV(range(6, 13), criterion="ebic").fit(X)) == BLOCKS
    folds = TrimmedGraphicalLassoCV(range(6, 13), alphas=["exact", 0.05], cv=3).fit(X)
    assert set(BLOCKS) <= set(pairs_of(folds))


def test_aic_keeps_at_least_what_bic_and_ebic_keep():
    X = chain(80, 8, strength=0.3)
    kept = [TrimmedGraphicalLassoCV(criterion=name).fit(X).n_edges_ for name in ("aic", "bic", "ebic")]
    assert kept == sorted(kept, reverse=True)
    assert kept[0] > kept[-1]
    strict = TrimmedGraphicalLassoCV(criterion="ebic", gamma=3.0).fit(X)
    assert strict.n_edges_ < kept[-1]


def test_one_standard_error_is_sparser():
    X = chain(60, 6, 0, strength=0.4)
    best, rough = (TrimmedGraphicalLassoCV(rule=rule).fit(X) for rule in ("min", "1se"))
    np.testing.assert_array_equal(best.score_path_, rough.score_path_)
    assert rough.h_ < best.h_
    mean = best.score_path_.mean(axis=2)[:, 0]
    error = best.score_path_.std(axis=2, ddof=1)[:, 0] / np.sqrt(5)
    i = best.best_index_[0]
    assert mean[i] == mean.max()
    assert rough.best_index_[0] == np.flatnonzero(mean >= mean[i] - error[i])[0]


# -- scores of folds -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"kind": "spearman"},
        {"scores": "npn"},
        {"assume_centered": True, "shrinkage": 0.1},
        {"standardize": True},
    ],
    ids=str,
)
def test_scores_are_those_of_the_estimator_on_each_fold(options):
    X, folds = np.exp(0.3 * chain(60, 5, seed=1)), KFold(3, shuffle=True, random_state=0)
    model = TrimmedGraphicalLassoCV([0, 3], ["exact", 0.1], cv=folds, **options).fit(X)
    for k, (train, test) in enumerate(folds.split(X)):
        for i, j in np.ndindex(2, 2):
            single = TrimmedGraphicalLasso(int(model.hs_[i]), model.alphas_[j], **options).fit(X[train])
            assert model.score_path_[i, j, k] == pytest.approx(single.score(X[test]), abs=1e-4)


def test_the_last_fit_is_that_of_the_estimator():
    X = chain(100, 6, seed=2)
    model = TrimmedGraphicalLassoCV(alphas=["exact", 0.2, 0.05], cv=3).fit(X)
    single = TrimmedGraphicalLasso(model.h_, model.chosen_alpha_).fit(X)
    assert model.objective_ <= single.objective_ + 1e-7
    np.testing.assert_allclose(model.precision_, model.precision_path_[model.best_index_], atol=1e-5)
    i, j = model.best_index_
    assert model.h_ == model.hs_[i]
    assert model.chosen_alpha_ == model.alphas_[j]
    assert model.alpha_ == pytest.approx(model.path_.alpha_values[i, j])
    assert model.n_edges_ == model.path_.n_edges[i, j]
    certificate = model.certificate()
    assert certificate.local_minimum
    assert model.dual_gap_ <= 1e-8
    empirical = np.cov(X, rowvar=False, bias=True)
    assert model.score(X) == pytest.approx(log_likelihood(empirical, model.precision_))
    assert model.precision_path_.shape == (model.hs_.size, 3, 6, 6)


def test_criterion_path_is_the_criterion_of_the_path():
    X = chain(70, 5)
    model = TrimmedGraphicalLassoCV(alphas=["exact", 0.1], criterion="ebic", gamma=0.25, shrinkage=0.1).fit(X)
    S = np.cov(X, rowvar=False, bias=True)
    expected = graph_criterion("ebic", S, model.precision_path_, 70, gamma=0.25)
    np.testing.assert_allclose(model.criterion_path_, expected)
    assert model.criterion_path_[model.best_index_] == expected.min()
    assert not hasattr(model, "score_path_")


def test_a_path_of_an_earlier_fit_is_gone():
    X = chain(50, 4)
    model = TrimmedGraphicalLassoCV(cv=2).fit(X)
    model.set_params(criterion="bic").fit(X)
    assert not hasattr(model, "score_path_")
    model.set_params(criterion=None).fit(X)
    assert not hasattr(model, "criterion_path_")


@pytest.mark.parametrize("penalty", ["l1", "mcp", "scad"])
def test_penalties_that_do_not_trim_choose_alpha(penalty):
    X = chain(400, 5)
    model = TrimmedGraphicalLassoCV(penalty=penalty, alphas="auto", criterion="ebic")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # the choice may be at the end of the grid
        model.fit(X)
    assert model.hs_.tolist() == [0]
    assert model.h_ == 0
    assert len(model.alphas_) == 20
    assert model.alpha_ == model.chosen_alpha_ == model.alphas_[model.best_index_[1]]
    assert set(CHAIN[:4]) <= set(pairs_of(model))
    single = solve_graphical(np.cov(X, rowvar=False, bias=True), penalty=penalty, alpha=model.alpha_)
    assert model.objective_ == pytest.approx(single.objective, abs=1e-5)


# -- StARS -------------------------------------------------------------------------------------------------


def test_stars_against_a_loop():
    X, grid = chain(60, 5, seed=4, strength=0.4), ([0, 2, 4, 6], ["exact", 0.15])
    model = TrimmedGraphicalLassoCV(*grid, criterion="stars", n_subsamples=4, random_state=7).fit(X)
    chosen = []
    for rows in draw_subsamples(60, 4, np.random.default_rng(7)):
        S = np.cov(X[rows], rowvar=False, bias=True)
        fits = [
            [solve_graphical(S, penalty=TrimmedL1(h), alpha=a).precision for a in grid[1]] for h in grid[0]
        ]
        chosen.append(np.array(fits)[:, :, *np.triu_indices(5, 1)] != 0)
    np.testing.assert_allclose(model.instability_path_, instability(chosen))
    stable = model.instability_path_ <= 0.05
    assert model.instability_path_[model.best_index_] <= 0.05
    assert model.n_edges_ == model.path_.n_edges[stable].max()


def test_stars_finds_the_chain_and_its_threshold_is_monotone():
    # Of different strengths: equal ones change their order between subsamples, so that small h are unstable.
    X, options = chain(500, 6, strength=[0.4, 0.6, 0.9, 1.4, 2.0]), {"n_subsamples": 6, "random_state": 0}
    model, loose = (
        TrimmedGraphicalLassoCV(range(12), criterion="stars", stars_threshold=at, **options).fit(X)
        for at in (0.05, 0.5)
    )
    unstable, n_edges = model.instability_path_, model.path_.n_edges
    edges = [n_edges[least_sparse(unstable, n_edges, at)] for at in (0.0, 0.05, 0.2, 0.5)]
    assert edges[:2] == [5, 5]
    assert 5 < edges[2] < edges[3] == loose.n_edges_ == 11
    assert pairs_of(model) == CHAIN


def test_stars_warns_where_nothing_is_stable():
    X = np.random.default_rng(0).standard_normal((40, 5))
    model = TrimmedGraphicalLassoCV([3, 5], criterion="stars", n_subsamples=5, random_state=0)
    with pytest.warns(UserWarning, match="stars_threshold = 0.05"):
        model.fit(X)
    assert model.h_ == 3


def test_subsamples_are_drawn_without_replacement():
    rows = draw_subsamples(30, 50, np.random.default_rng(0))
    assert rows.shape == (50, subsample_size(30))
    assert all(np.unique(one).size == 24 for one in rows)
    assert np.unique(rows).size == 30
    assert len({tuple(one) for one in rows}) > 40


# -- fewer samples than variables ----------------------------------------------------------------------------


def test_sizes_go_no_further_than_every_fold_allows():
    X = np.random.default_rng(0).standard_normal((8, 10))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = TrimmedGraphicalLassoCV(cv=4, effort="low").fit(X)
    assert model.hs_[-1] == 14  # six samples a fold, of rank five: six variables have 15 pairs
    with pytest.raises(ValueError, match="hs must be at most 14"):
        TrimmedGraphicalLassoCV(hs=[0, 15], cv=4).fit(X)
    with pytest.raises(ValueError, match="largest safe h is 27"):
        TrimmedGraphicalLassoCV(hs=[28], criterion="bic").fit(X)
    ridge = TrimmedGraphicalLassoCV(hs=[0, 15], cv=4, shrinkage=0.3, effort="low").fit(X)
    assert ridge.hs_.tolist() == [0, 15]


# -- the outside -----


@pytest.mark.parametrize("criterion", [None, "stars"])
def test_jobs_do_not_change_the_result(criterion):
    X = chain(60, 5)
    options = {"hs": [0, 2, 4], "alphas": ["exact", 0.1], "criterion": criterion, "n_subsamples": 4, "cv": 3}
    name = "score_path_" if criterion is None else "instability_path_"
    plain = TrimmedGraphicalLassoCV(**options, random_state=np.random.default_rng(3)).fit(X)
    with parallel_config("threading"):
        jobs = TrimmedGraphicalLassoCV(**options, n_jobs=2, random_state=np.random.default_rng(3)).fit(X)
    np.testing.assert_array_equal(getattr(jobs, name), getattr(plain, name))
    np.testing.assert_array_equal(jobs.precision_, plain.precision_)


def test_jobs_in_other_processes():
    X = chain(60, 5)
    plain, jobs = (TrimmedGraphicalLassoCV([0, 2, 4], cv=3, n_jobs=n).fit(X) for n in (1, 2))
    np.testing.assert_array_equal(jobs.score_path_, plain.score_path_)
    np.testing.assert_array_equal(jobs.precision_, plain.precision_)


def test_cv_is_a_criterion_as_on_the_command_line():
    X = chain(30, 4)
    named, default = (TrimmedGraphicalLassoCV([0, 1], cv=3, criterion=one).fit(X) for one in ("cv", None))
    np.testing.assert_array_equal(named.score_path_, default.score_path_)


def test_progress_is_told_where_there_is_no_terminal(capsys):
    X = chain(30, 4)
    TrimmedGraphicalLassoCV([0, 1], cv=3, verbose=2).fit(X)
    lines = capsys.readouterr().err.splitlines()
    assert lines == ["fits: 1/2", "fits: 2/2", "folds: 1/3", "folds: 2/3", "folds: 3/3"]
    TrimmedGraphicalLassoCV([0], criterion="stars", n_subsamples=2, verbose=2).fit(X)
    assert "subsamples: 2/2" in capsys.readouterr().err
    TrimmedGraphicalLassoCV([0, 1], cv=3).fit(X)
    assert capsys.readouterr().err == ""


def test_names_and_float32():
    frame = pd.DataFrame(chain(60, 4).astype(np.float32), columns=list("abcd"))
    model = TrimmedGraphicalLassoCV(criterion="ebic").fit(frame)
    assert model.precision_.dtype == model.precision_path_.dtype == np.float32
    assert {edge.source for edge in model.edges_} <= set("abcd")
    assert list(model.to_networkx().nodes) == list("abcd")
    assert "TrimmedGraphicalLassoCV" in str(model.summary())
    wide = clone(model).fit(frame.astype(float))
    assert wide.h_ == model.h_
    np.testing.assert_allclose(model.precision_, wide.precision_, rtol=1e-3, atol=1e-4)


def test_pictures_from_the_fitted_model():
    X = chain(80, 5)
    model = TrimmedGraphicalLassoCV([0, 2, 4, 6], ["exact", 0.2, 0.1], cv=3).fit(X)
    chosen = (model.h_, model.chosen_alpha_)
    ax = score_surface(
        model.hs_, model.alphas_, model.score_path_.mean(axis=2), chosen=chosen, ax=Figure().subplots()
    )
    assert f"h = {model.h_}" in ax.get_legend().get_texts()[0].get_text()
    line = TrimmedGraphicalLassoCV([0, 2, 4, 6], criterion="ebic").fit(X)
    score_surface(
        line.hs_, line.alphas_, line.criterion_path_, greater_is_better=False, ax=Figure().subplots()
    )
    partial = line.partial_correlation_path_[:, line.best_index_[1]]
    ax = draw_path(line.hs_, partial, list("abcde"), top=2, ax=Figure().subplots())
    assert len(ax.texts) == 2
    np.testing.assert_allclose(partial[line.best_index_[0]], line.partial_correlation_, atol=1e-6)


# -- warnings about the grid and the data ------------------------------------------------------------------


def test_a_choice_at_the_end_of_an_automatic_grid_warns_and_names_the_range():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((400, 9)) @ rng.standard_normal((9, 9))  # all 36 pairs are edges
    with pytest.warns(UserWarning, match=r"h = 27, the largest of hs='auto' \(0 to 27\)"):
        TrimmedGraphicalLassoCV().fit(X)
    with pytest.warns(UserWarning, match="the smallest of alphas='auto'"):
        TrimmedGraphicalLassoCV(penalty="l1", alphas="auto").fit(X)
    TrimmedGraphicalLassoCV(hs=[0, 27]).fit(X)  # the user's own grid


def test_heavy_tails_and_no_edge_suggest_normal_scores():
    X = np.random.default_rng(0).standard_normal((300, 4))
    X[7] = [90.0, -95.0, 1.0, 0.0]
    with pytest.warns(UserWarning, match="scores='npn'"):
        TrimmedGraphicalLassoCV(hs=[0]).fit(X)


def test_max_iter_reaches_every_fit():
    """The warning of an unconverged fit tells the user to raise it."""
    X = np.random.default_rng(0).standard_normal((40, 4))
    with pytest.warns(ConvergenceWarning, match="raise max_iter"):
        TrimmedGraphicalLassoCV([2], [0.1], criterion="bic", max_iter=1).fit(X)

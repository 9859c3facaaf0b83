"""What graphical models take and refuse, and the scikit-learn side of their estimator."""

import pickle
from unittest import mock

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import trimreg
from trimreg import L1, SLOPE, TrimmedGraphicalLasso, TrimmedL1
from trimreg.graphs import estimator as graphmodel
from trimreg.graphs.solve import GraphTask

N, P = 60, 5
X = np.random.default_rng(0).standard_normal((N, P))
X[:, 1] += X[:, 0]
X[:, 2] -= X[:, 1]
S = np.cov(X, rowvar=False, bias=True)
NAMES = ["raf", "mek", "plc", "erk", "akt"]


def changed(array, place, value, symmetric=False):
    array = array.copy()
    array[place] = value
    if symmetric:
        array[place[::-1]] = value
    return array


def refused(match, X=X, **parameters):
    """That these are refused, before a solver is called."""
    with (
        mock.patch.object(GraphTask, "solve", side_effect=AssertionError("work was begun")),
        pytest.raises(ValueError, match=match),
    ):
        TrimmedGraphicalLasso(**parameters).fit(X)


def refused_at_once(match, **parameters):
    """That these parameters are refused before S is computed."""
    with mock.patch.object(graphmodel, "read_covariance", side_effect=AssertionError("work was begun")):
        refused(match, **parameters)
    if "covariance" not in parameters and not {"kind", "scores"} & set(parameters):
        refused(match, S, covariance="precomputed", **parameters)


# -- parameters ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("h", [-1, 11, 2.5, 3.0, 0.0, 1.0, np.nan, np.inf, True, np.True_, "3", [2], 2j])
def test_h(h):
    message = r"h must be an integer from 0 to the number of pairs p\(p-1\)/2 = 10, or a fraction in \(0, 1\)"
    refused_at_once(message, h=h)
    refused_at_once(message, penalty=TrimmedL1(h))


@pytest.mark.parametrize("alpha", [-0.1, np.nan, np.inf, "exakt", True, None, [0.1], 1j])
def test_alpha(alpha):
    refused_at_once("alpha must be 'exact' or a finite number >= 0; got", alpha=alpha)


@pytest.mark.parametrize("penalty", ["l1", "mcp", "scad", L1()])
def test_exact_is_for_trimmed_penalties(penalty):
    refused_at_once("alpha='exact' is for trimmed penalties", penalty=penalty)


@pytest.mark.parametrize("value", ["other", "", 3, ["mm"], True])
@pytest.mark.parametrize("name", ["covariance", "kind", "scores", "solver", "effort", "start", "penalty"])
def test_words(name, value):
    refused_at_once(f"{name} must be ", **{name: value})


@pytest.mark.parametrize("name", ["assume_centered", "standardize", "warm_start"])
def test_flags(name):
    refused_at_once(f"{name} must be True or False; got 1", **{name: 1})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("shrinkage", -0.1),
        ("shrinkage", 1.0),
        ("shrinkage", 2),
        ("shrinkage", np.nan),
        ("shrinkage", "much"),
        ("tol", 0.0),
        ("tol", None),
        ("max_iter", 0),
        ("max_iter", 2.5),
        ("random_state", "seed"),
        ("random_state", -1),
    ],
)
def test_numbers(name, value):
    refused_at_once(f"{name} must be ", **{name: value})


@pytest.mark.parametrize(
    ("factor", "match"),
    [
        (np.ones(5), r"one number for each of the 10 pairs; got shape \(5,\)"),
        (np.ones((4, 4)), r"penalty_factor must have shape \(5, 5\); got \(4, 4\)"),
        (np.ones((2, 5, 5)), "penalty_factor must hold one number"),
        (changed(np.ones((5, 5)), (0, 1), 2.0), "penalty_factor must be symmetric"),
        (changed(np.ones((5, 5)), (0, 1), -1.0, symmetric=True), "penalty_factor must be >= 0 .* pair 0"),
        (changed(np.ones(10), 3, np.nan), "penalty_factor must be >= 0 .* pair 3"),
        ("large", "penalty_factor must be an array of numbers"),
        (np.full((5, 5), "a"), "penalty_factor must be numeric"),
    ],
    ids=str,
)
def test_penalty_factor(factor, match):
    refused_at_once(match, penalty_factor=factor)
    refused_at_once(match, penalty=TrimmedL1(2, factor))


def test_parameters_that_contradict_each_other():
    refused_at_once(
        "h must be None or equal to that of the penalty object, 2; got 3", h=3, penalty=TrimmedL1(2)
    )
    refused_at_once("h must be None with penalty L1", h=3, penalty="l1", alpha=0.1)
    refused_at_once("h must be None with penalty MCP", h=0, penalty="mcp", alpha=0.1)
    both = {"penalty": TrimmedL1(2, np.ones(10)), "penalty_factor": np.ones(10)}
    refused_at_once("penalty_factor must be None if the penalty object has its own", **both)
    refused_at_once("solver 'bcd' is defined for trimmed penalties", penalty="l1", alpha=0.1, solver="bcd")
    refused_at_once("start 'homotopy' is for trimmed", penalty="l1", alpha=0.1, start="homotopy")
    refused_at_once("must not have groups", penalty=TrimmedL1(1, groups=[0, 1] * 5))
    for penalty in ("slope", SLOPE()):
        refused_at_once(
            "penalty must be one of .*'l1', 'mcp', 'scad', 'trimmed_l1'", penalty=penalty, alpha=0.1
        )
    refused("scores='npn' needs kind='pearson'", kind="kendall", scores="npn")
    refused("kind='kendall' needs data", S, covariance="precomputed", kind="kendall")
    refused("scores='npn' needs data", S, covariance="precomputed", scores="npn")


# -- a covariance matrix ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("matrix", "match"),
    [
        (X, r"S must be a square matrix; got shape \(60, 5\)"),
        (S[0], r"S must be a square matrix; got shape \(5,\)"),
        (S[:1, :1], "at least 2 variables.*n_features = 1"),
        (changed(S, (0, 1), 0.3), r"S must be symmetric; S\[0, 1\] = 0.3"),
        (changed(S, (2, 3), np.nan, symmetric=True), "S contains NaN at row 2, column 3"),
        (changed(S, (1, 1), np.inf), "S contains inf at row 1, column 1"),
        (changed(S, (3, 3), 0.0), "S must have a positive diagonal; variable 3 has variance 0"),
        (changed(S, (3, 3), -2.0), "S must have a positive diagonal; variable 3 has variance -2"),
        (changed(S, (0, 1), 9.0, symmetric=True), "S must be positive semidefinite"),
        (S.astype(str), "S must be numeric"),
        (S.astype(complex), "Complex data not supported: S must be real"),
        (sp.csr_array(S), "must be dense, not sparse"),
        (S * 1e-300, "variances of X must lie between"),
        (S * 1e300, "variances of X must lie between"),
        ([[1.0, 0.0], [0.0]], "S must be an array of numbers"),
    ],
)
def test_precomputed(matrix, match):
    refused(match, matrix, covariance="precomputed")


def test_a_precomputed_frame_names_its_variables():
    frame = pd.DataFrame(changed(S, (3, 3), 0.0), columns=NAMES, index=NAMES)
    refused("variable 'erk' has variance 0", frame, covariance="precomputed")
    model = TrimmedGraphicalLasso(h=2, covariance="precomputed").fit(pd.DataFrame(S, columns=NAMES))
    assert {model.edges_[0].source, model.edges_[0].target} <= set(NAMES)


# -- data ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("settings", [{}, {"kind": "spearman"}, {"kind": "kendall"}, {"scores": "npn"}])
@pytest.mark.parametrize(
    ("data", "match"),
    [
        (X[:1], "n_samples = 1"),
        (X[:, :1], "n_features = 1"),
        (X[0], "X must be a matrix"),
        (X[:0], "X must be a matrix"),
        (changed(X, (4, 2), np.nan), "X contains NaN at row 4, column 2"),
        (X.astype(str), "X must be numeric"),
        (X.astype(complex), "Complex data not supported: X must be real"),
        (sp.csr_array(X), "X must be dense, not sparse"),
        (changed(X, (slice(None), 2), 0.1), "X must have no constant columns, .*: drop 2"),
        (
            pd.DataFrame(changed(X, (slice(None), slice(2, 4)), 7.0), columns=NAMES),
            "X must have no constant columns, .*: drop 'plc', 'erk'",
        ),
    ],
)
def test_data(data, match, settings):
    refused(match, data, **settings)


def test_a_constant_column_around_zero():
    shifted = changed(X, (slice(None), 2), 0.1)
    assert TrimmedGraphicalLasso(h=2, assume_centered=True).fit(shifted).n_edges_ == 2
    refused(
        "X must have no zero columns, .*: drop 2", changed(X, (slice(None), 2), 0.0), assume_centered=True
    )
    for settings in ({"kind": "kendall"}, {"scores": "npn"}):
        refused("no constant columns, .*: drop 2", shifted, assume_centered=True, **settings)


def test_scales_at_the_limits():
    refused("covariance overflows", X * 1e200)
    refused("variances of X must lie between .* scale the columns", X * 1e-200)
    expected = TrimmedGraphicalLasso(h=2, tol=1e-11).fit(X).partial_correlation_
    for scale in (1e-120, 1e120):  # the objective is large there, and gaps are relative to it
        model = TrimmedGraphicalLasso(h=2, tol=1e-11).fit(X * scale)
        np.testing.assert_allclose(model.partial_correlation_, expected, atol=1e-4)
    assert TrimmedGraphicalLasso(h=2, kind="kendall").fit(X * 1e-200).n_edges_ == 2


@pytest.mark.parametrize("copy", [X[:, 1], 3.0 - 2.0 * X[:, 1]])
def test_copies(copy):
    data = changed(X, (slice(None), 4), copy)
    refused("variables 1, 4 are copies of each other. The largest safe h is 0; .*shrinkage", data, h=1)
    refused("variables 'mek', 'akt' are copies", pd.DataFrame(data, columns=NAMES), h=1)
    for settings in ({"h": 0}, {"h": 0, "alpha": 0.2}, {"h": 2, "shrinkage": 0.1}, {}):
        with pytest.warns(UserWarning, match="variables 1 and 4 are copies of each other"):
            model = TrimmedGraphicalLasso(**settings).fit(data)
        assert model.h_ == settings.get("h", 0)
        assert np.isfinite(model.precision_).all()
        assert model.certificate().local_minimum


def test_what_is_scored_is_checked():
    model = TrimmedGraphicalLasso(h=2).fit(X)
    for method in (model.score, model.mahalanobis):
        with pytest.raises(ValueError, match="X contains NaN"):
            method(changed(X, (0, 0), np.nan))
        with pytest.raises(ValueError, match="4 features"):
            method(X[:, :4])
        with pytest.raises(ValueError, match="not sparse"):
            method(sp.csr_array(X))
    for method in ("score", "mahalanobis"):
        with pytest.raises(NotFittedError):
            getattr(TrimmedGraphicalLasso(), method)(X)
    for method in ("summary", "certificate", "to_networkx"):
        with pytest.raises(NotFittedError):
            getattr(TrimmedGraphicalLasso(), method)()


def test_too_few_steps_warn():
    with pytest.warns(ConvergenceWarning, match="not converged after 1 steps"):
        model = TrimmedGraphicalLasso(h=2, max_iter=1).fit(X)
    assert not model.result_.converged


# -- containers and tools --------------------------------------------------------------------------------


def test_names_in_and_out():
    frame = pd.DataFrame(X, columns=NAMES)
    model = TrimmedGraphicalLasso(h=2).fit(frame)
    assert list(model.feature_names_in_) == NAMES
    assert {(edge.source, edge.target) for edge in model.edges_} == {("raf", "mek"), ("mek", "plc")}
    assert "raf" in str(model.summary())
    assert set(model.to_networkx().nodes) == set(NAMES)
    assert model.score(frame) == pytest.approx(TrimmedGraphicalLasso(h=2).fit(X).score(X), rel=1e-9)
    with pytest.raises(ValueError, match="feature names"):
        model.score(frame.rename(columns={"raf": "other"}))


@pytest.mark.parametrize(
    "settings", [{}, {"kind": "spearman"}, {"scores": "npn"}, {"covariance": "precomputed"}]
)
def test_float32_stays(settings):
    data = S if "covariance" in settings else X
    model = TrimmedGraphicalLasso(h=2, **settings).fit(data.astype(np.float32))
    other = TrimmedGraphicalLasso(h=2, **settings).fit(data)
    for name in ("precision_", "covariance_", "location_", "partial_correlation_"):
        assert getattr(model, name).dtype == np.float32, name
        assert getattr(other, name).dtype == np.float64, name
        np.testing.assert_allclose(getattr(model, name), getattr(other, name), rtol=1e-3, atol=1e-4)
    assert model.certificate().local_minimum
    assert model.mahalanobis(X.astype(np.float32)).shape == (N,)


def test_float32_gives_way_where_it_would_overflow():
    model = TrimmedGraphicalLasso(h=2).fit((X * 1e-19).astype(np.float32))
    assert model.precision_.dtype == np.float64
    assert np.isfinite(model.precision_).all()


def test_integers_lists_and_read_only_data():
    whole = np.round(10 * X).astype(int)
    expected = TrimmedGraphicalLasso(h=3).fit(whole.astype(float)).precision_
    frozen = whole.copy()
    frozen.flags.writeable = False
    for data in (whole, whole.tolist(), frozen, np.asfortranarray(whole)):
        np.testing.assert_allclose(TrimmedGraphicalLasso(h=3).fit(data).precision_, expected, rtol=1e-6)


@pytest.mark.parametrize("settings", [{"h": 2}, {"h": 2, "scores": "npn"}, {"penalty": L1(), "alpha": 0.1}])
def test_clone_pickle_and_representations(settings):
    model = TrimmedGraphicalLasso(**settings)
    fitted = clone(model).fit(X)
    again = pickle.loads(pickle.dumps(fitted))
    assert again.score(X) == fitted.score(X)
    assert str(again.summary()) == str(fitted.summary())
    assert str(again.certificate()) == str(fitted.certificate())
    assert repr(clone(fitted)) == repr(model)
    assert all(f"{name}=" in repr(model) for name in settings)
    assert "TrimmedGraphicalLasso" in fitted._repr_html_()


def test_normal_scores_are_a_parameter_and_make_no_transformer():
    model = TrimmedGraphicalLasso(scores="npn")
    assert clone(model).scores == model.get_params()["scores"] == "npn"
    assert not hasattr(model, "transform")
    with pytest.raises(TypeError, match="transform"):
        TrimmedGraphicalLasso(transform="npn")


def test_fit_leaves_parameters_and_data_alone():
    factor, penalty, data = np.ones((P, P)), TrimmedL1(), X.copy()
    model = TrimmedGraphicalLasso(h=3, penalty=penalty, penalty_factor=factor)
    before = model.get_params()
    assert model.fit(data) is model
    assert all(model.get_params()[name] is value for name, value in before.items())
    assert penalty.h is None
    assert penalty.penalty_factor is None
    np.testing.assert_array_equal(data, X)


def test_pipeline_and_grid_search():
    rng = np.random.default_rng(1)
    data = rng.standard_normal((200, 5))
    for j in range(1, 5):
        data[:, j] += data[:, j - 1]
    pipeline = make_pipeline(StandardScaler(), TrimmedGraphicalLasso())
    grid = {"trimmedgraphicallasso__h": [0, 2, 4], "trimmedgraphicallasso__scores": [None]}
    search = GridSearchCV(pipeline, grid, cv=3).fit(data)
    assert search.best_params_["trimmedgraphicallasso__h"] == 4


def test_warm_start_goes_on_from_the_last_fit():
    settings = {"alpha": 0.05, "solver": "prox", "tol": 1e-4}
    cold = TrimmedGraphicalLasso(**settings).fit(X)
    warm = TrimmedGraphicalLasso(**settings, warm_start=True).fit(X)
    first = warm.n_iter_
    assert warm.fit(X).n_iter_ < first == cold.n_iter_
    np.testing.assert_allclose(warm.precision_, cold.precision_, atol=1e-2)
    assert warm.fit(X[:, :4]).precision_.shape == (4, 4)  # other variables: nothing to start from
    assert warm.fit(X).precision_.shape == (5, 5)


def test_warm_start_where_an_edge_is_now_excluded():
    model = TrimmedGraphicalLasso(h=2, warm_start=True).fit(X)
    assert model.precision_[0, 1] != 0
    factor = changed(np.ones((P, P)), (0, 1), np.inf, symmetric=True)
    model.set_params(penalty_factor=factor).fit(X)
    assert model.precision_[0, 1] == 0
    assert model.n_edges_ == 2
    assert model.certificate().local_minimum


def test_what_cannot_be_a_penalty_of_a_graph():
    for solver in ("mm", "prox"):
        with pytest.raises(ValueError, match=r"penalty must be TrimmedL1, .* got SLOPE"):
            trimreg.solve_graphical(np.eye(3), penalty="slope", alpha=0.1, solver=solver)


def test_pairs_are_what_h_is_counted_in():
    X = np.random.default_rng(0).standard_normal((40, 6))
    with pytest.raises(ValueError, match=r"hs\[1\] .* number of pairs p\(p-1\)/2 = 15"):
        trimreg.TrimmedGraphicalLassoCV(hs=[0, 99]).fit(X)


def test_any_alpha_beyond_the_exact_threshold_is_as_good():
    S = np.cov(np.random.default_rng(0).standard_normal((40, 6)), rowvar=False)
    huge = trimreg.solve_graphical(S, penalty=trimreg.TrimmedL1(h=2), alpha=1e300)
    exact = trimreg.solve_graphical(S, penalty=trimreg.TrimmedL1(h=2), alpha="exact")
    assert huge.objective == pytest.approx(exact.objective, rel=1e-9)

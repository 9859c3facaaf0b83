"""The grids of h and alpha, and the checks of those a user gives."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trimreg.selection import alpha_grid, auto_hs, check_alphas, check_hs, choose
from trimreg.selection.grid import RULES, strength


@given(n=st.integers(1, 10**6), p=st.integers(1, 10**6), growth=st.floats(1.01, 3), dense=st.integers(0, 30))
@settings(derandomize=True, max_examples=200, deadline=None)
def test_auto_hs_rises_from_0_in_steps_that_are_small_enough(n, p, growth, dense):
    hs = auto_hs(n, p, growth=growth, dense_up_to=dense)
    assert hs.dtype.kind == "i"
    assert hs[0] == 0
    assert 1 <= hs[-1] <= p
    assert (np.diff(hs) > 0).all()
    assert set(range(min(dense, hs[-1]) + 1)) <= set(hs.tolist())
    late = hs[hs > dense + 1]
    before = hs[:-1][-late.size :] if late.size else late
    assert (late <= np.maximum(before * growth, before + 1)).all()
    inner = late[:-1]  # all but the last step are as long as allowed
    assert (inner >= np.maximum(before[:-1] * growth - 1, before[:-1] + 1)).all()


@pytest.mark.parametrize(
    ("n", "p", "last"),
    [
        (200, 1000, 30),
        (2000, 1000, int(2000 / (math.log(math.log(2000)) * math.log(1000)))),
        (1000, 8, 8),
        (10**6, 10**5, int(10**6 / (math.log(math.log(10**6)) * math.log(10**5)))),
        (16, 3, 3),
        (10, 100, 10 // 3),
        (9, 12, int(9 / math.log(12))),  # log log 9 < 1 counts as 1
        (12, 2, 2),
        (5, 2, 2),
        (4, 2, 2),
        (3, 2, 1),  # n - 2
        (1, 1, 1),
        (1, 50, 1),
    ],
)
def test_the_largest_h(n, p, last):
    assert auto_hs(n, p)[-1] == last


@pytest.mark.parametrize(
    ("n", "p", "last"),
    [
        (50, 600, 48),
        (100, 600, 60),
        (300, 600, 150),
        (600, 1000, 200),
        (600, 40, 40),
        (10**4, 10**3, 651),
        (2, 9, 1),
    ],
)
def test_the_largest_h_with_a_ridge(n, p, last):
    assert auto_hs(n, p, shrunk=True)[-1] == last
    assert check_hs("auto", n, p, shrunk=True)[-1] == last


def test_max_h_is_taken_as_given():
    assert auto_hs(10, 100, max_h=0).tolist() == [0]
    assert auto_hs(10, 100, max_h=3).tolist() == [0, 1, 2, 3]
    assert auto_hs(10, 100, max_h=100)[-1] == 100
    assert auto_hs(10, 100, max_h=14).tolist() == [*range(11), 12, 14]


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({"n": 0, "p": 3}, "n must be"),
        ({"n": 5, "p": 0}, "p must be"),
        ({"n": 5.0, "p": 2}, "n must be"),
        ({"n": 5, "p": 3, "max_h": 4}, "max_h"),
        ({"n": 5, "p": 3, "max_h": -1}, "max_h"),
        ({"n": 5, "p": 3, "growth": 1.0}, "growth"),
        ({"n": 5, "p": 3, "dense_up_to": -1}, "dense_up_to"),
    ],
)
def test_auto_hs_names_what_is_bad(arguments, match):
    with pytest.raises(ValueError, match=match):
        auto_hs(**arguments)


@given(top=st.floats(1e-200, 1e200), count=st.integers(2, 60), eps=st.floats(1e-8, 0.99))
@settings(derandomize=True, max_examples=100, deadline=None)
def test_alpha_grid_falls_by_one_factor(top, count, eps):
    grid = alpha_grid(top, count, eps)
    assert grid.shape == (count,)
    assert grid[0] == top
    np.testing.assert_allclose(grid[-1], eps * top, rtol=1e-12)
    np.testing.assert_allclose(grid[1:] / grid[:-1], eps ** (1 / (count - 1)), rtol=1e-8)


def test_alpha_grid_at_the_edges():
    assert alpha_grid(3.0, 1).tolist() == [3.0]
    flat = alpha_grid(0.0, 5)
    assert flat.shape == (5,)
    assert (np.diff(flat) < 0).all()
    assert 0 < flat[-1] < flat[0] < 1e-14


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ((-1.0,), "alpha_max"),
        ((np.inf,), "alpha_max"),
        ((np.nan,), "alpha_max"),
        ((1.0, 0), "n_alphas"),
        ((1.0, 2.5), "n_alphas"),
        ((1.0, 5, 0.0), "eps"),
        ((1.0, 5, 1.0), "eps"),
    ],
)
def test_alpha_grid_names_what_is_bad(arguments, match):
    with pytest.raises(ValueError, match=match):
        alpha_grid(*arguments)


@pytest.mark.parametrize(
    ("hs", "expected"),
    [
        ([3, 1, 3, 0], [0, 1, 3]),
        (range(4), [0, 1, 2, 3]),
        (np.array([5, 2]), [2, 5]),
        ([0.5, 0.1, 4], [2, 4, 10]),
        ((20,), [20]),
        (7, [7]),
        (0.25, [5]),
        (np.int32(6), [6]),
    ],
)
def test_check_hs_sorts_and_counts(hs, expected):
    found = check_hs(hs, n=100, p=20)
    assert found.tolist() == expected
    assert found.dtype.kind == "i"


def test_hs_auto_is_the_grid():
    np.testing.assert_array_equal(check_hs("auto", 100, 40), auto_hs(100, 40))


@pytest.mark.parametrize(
    "hs",
    [
        [], "all", None, [21], [-1], [1, 1.5], [0.0], [True], ["1"], [[1, 2]], np.eye(2), {1: 2}, np.nan,
        25, [np.nan], np.array(3),
    ],
    ids=repr,
)  # fmt: skip
def test_check_hs_names_hs(hs):
    with pytest.raises(ValueError, match=r"^hs"):
        check_hs(hs, n=100, p=20)


@pytest.mark.parametrize(
    ("alphas", "expected"),
    [
        ("auto", "auto"),
        ("exact", ["exact"]),
        (0.5, [0.5]),
        ([0.1, 10, 1.0, 0.1], [10.0, 1.0, 0.1]),
        ([0, "exact", 1e300, "exact"], ["exact", 1e300, 0.0]),
        (np.array([0.2, 0.4]), [0.4, 0.2]),
    ],
)
def test_check_alphas_sorts(alphas, expected):
    assert check_alphas(alphas) == expected


@pytest.mark.parametrize(
    "alphas",
    [[], "all", None, [-1.0], [np.inf], [np.nan], ["auto"], [True], [[1.0]], np.ones((2, 2)), {1.0: 2}, -3],
    ids=repr,
)
def test_check_alphas_names_alphas(alphas):
    with pytest.raises(ValueError, match=r"^alphas"):
        check_alphas(alphas)


def test_exact_is_stronger_than_any_number():
    assert strength("exact") > strength(1e308) > strength(0)


# -- the choice, against a search through all cells written out ---------------------------------------------


def brute_force(scores, hs, alphas, rule):
    mean, n_folds = scores.mean(axis=2), scores.shape[2]
    cells = [(i, j) for i in range(len(hs)) for j in range(len(alphas)) if not np.isnan(mean[i][j])]
    if not cells:
        return None

    def sparsest(allowed):
        return min(allowed, key=lambda c: (hs[c[0]], -strength(alphas[c[1]])))

    def best(allowed):
        return sparsest([c for c in allowed if all(mean[c] >= mean[other] for other in allowed)])

    def error(values):
        return values.std(ddof=1) / math.sqrt(n_folds) if n_folds > 1 else 0.0

    top = best(cells)
    if rule == "1se":
        least = (
            mean[top] - error(scores[top]) - 1e-12
        )  # a mean on the bound is in, however the error was rounded
        return sparsest([c for c in cells if mean[c] >= least])
    strongest = max(strength(alpha) for alpha in alphas)
    edge = [(i, j) for i, j in cells if hs[i] == min(hs) or strength(alphas[j]) == strongest]
    if rule == "min" or not edge or n_folds == 1:
        return top
    difference = scores[top] - scores[best(edge)]
    return best(edge) if difference.mean() <= error(difference) + 1e-12 else top


@st.composite
def tables(draw):
    hs = draw(st.lists(st.integers(0, 30), min_size=1, max_size=4, unique=True))
    values = st.sampled_from(["exact", 0.0, 0.1, 1.0, 1e9])
    alphas = draw(st.lists(values, min_size=1, max_size=4, unique=True))
    scores = st.sampled_from([-2.0, -1.0, -0.5, 0.0, 0.25, 0.5, 1.0, np.nan])  # few, so that there are ties
    shape = (len(hs), len(alphas), draw(st.sampled_from([1, 2, 4])))
    size = int(np.prod(shape))
    return np.reshape(draw(st.lists(scores, min_size=size, max_size=size)), shape), hs, alphas


@given(table=tables(), rule=st.sampled_from(RULES), scale=st.sampled_from([1.0, 1e-150, 2.0**400]))
@settings(derandomize=True, max_examples=300, deadline=None)
def test_choice_is_that_of_brute_force(table, rule, scale):
    scores, hs, alphas = table
    expected = brute_force(scores, hs, alphas, rule)
    if expected is None:
        with pytest.raises(ValueError, match="every fit failed"):
            choose(scores, hs, alphas, rule)
        return
    found = choose(scores * scale, hs, alphas, rule)
    assert found == expected
    assert all(type(index) is int for index in found)


def test_rounding_is_a_tie_and_more_is_not():
    assert choose([[[0.3]], [[0.1 + 0.2]]], [1, 2], [1.0]) == (0, 0)
    assert choose([[[0.3]], [[0.3 + 1e-9]]], [1, 2], [1.0]) == (1, 0)
    perfect = [[[-2.0]], [[-4e-32]], [[-3e-32]]]  # squared errors of y that the second model has exactly
    assert choose(perfect, [0, 1, 2], [1.0]) == (1, 0)
    assert choose([[[-2.0]], [[-4e-20]], [[-3e-20]]], [0, 1, 2], [1.0]) == (2, 0)


def test_an_inner_cell_has_to_be_better_by_more_than_the_error_of_the_differences():
    inside = np.zeros((3, 3, 4))
    inside[0, 2] = 1.0, 2.0, 3.0, 4.0  # the best of the lasso: h = 0
    inside[2, 0] = 0.9, 1.9, 2.9, 3.9  # the best of best subsets
    grid = {"hs": [0, 1, 2], "alphas": ["exact", 1.0, 0.1], "rule": "paired"}
    inside[1, 1] = 1.1, 2.1, 3.1, 4.1  # always better, although the folds differ by far more
    assert choose(inside, **grid) == (1, 1)
    inside[1, 1] = 2.1, 2.0, 3.0, 3.9  # better on average, by 0.25, with an error of 0.28
    assert choose(inside, **grid) == (0, 2)
    inside[1, 1] = 2.1, 2.0, 3.2, 4.1
    assert choose(inside, **grid) == (1, 1)
    assert choose(inside, **grid, repeats=2.0) == (0, 2)  # two rounds of two folds: a larger error
    inside[0, 2] = 0.0  # best subsets are now the best of the edges
    assert choose(inside, **grid, repeats=2.0) == (1, 1)
    assert choose(inside, **grid, repeats=4.0) == (2, 0)


def test_scores_that_are_infinite():
    wild = [-np.inf, 1.0]
    assert choose([[[0.0] * 2], [[np.inf] * 2], [[np.inf] * 2]], [0, 1, 2], [1.0], "1se") == (1, 0)
    assert choose([[[-np.inf] * 2], [[np.nan] * 2], [wild]], [3, 1, 2], [1.0], "1se") == (2, 0)
    for rule in RULES:  # the edge h = 0 or alpha = 1 diverges
        assert choose([[wild, wild], [wild, [0.1, 0.1]]], [0, 1], [1.0, 0.1], rule) == (1, 1)
        assert choose([[[np.inf, -np.inf], wild], [wild, [0.1, 0.1]]], [0, 1], [1.0, 0.1], rule) == (1, 1)
    assert choose([[wild, [0.0, 0.0]], [wild, [0.1, -0.1]]], [0, 1], [1.0, 0.1], "paired") == (0, 1)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"rule": "max"}, "rule"),
        ({"rule": None}, "rule"),
        ({"scores": [1.0, 2.0]}, "scores must have shape"),
        ({"scores": [[1.0, 2.0]]}, "scores must have shape"),
        ({"scores": np.zeros((1, 2, 0))}, "scores must have shape"),
        ({"scores": [[[np.nan], [np.nan]]]}, "every fit failed"),
    ],
)
def test_bad_input_of_a_choice_is_named(change, match):
    arguments = {"scores": [[[1.0, 1.0], [2.0, 2.0]]], "hs": [0], "alphas": [2.0, 1.0], **change}
    with pytest.raises(ValueError, match=match):
        choose(**{"rule": "1se", **arguments})

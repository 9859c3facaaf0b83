"""The choice of a cell, against a search through all of them written out."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trimreg.selection import choose


def brute_force(mean, error, hs, alphas, rule):
    cells = [(i, j) for i in range(len(hs)) for j in range(len(alphas)) if not np.isnan(mean[i][j])]
    if not cells:
        return None

    def sparsest(allowed):
        return min(allowed, key=lambda c: (hs[c[0]], -np.inf if alphas[c[1]] == "exact" else -alphas[c[1]]))

    best = sparsest([c for c in cells if all(mean[c[0]][c[1]] >= mean[i][j] for i, j in cells)])
    if rule == "min":
        return best
    slack = error[best[0]][best[1]]
    slack = 0.0 if np.isnan(slack) else slack
    return sparsest([c for c in cells if mean[c[0]][c[1]] >= mean[best[0]][best[1]] - slack])


@st.composite
def tables(draw):
    hs = draw(st.lists(st.integers(0, 30), min_size=1, max_size=4, unique=True))
    values = st.sampled_from(["exact", 0.0, 0.1, 1.0, 1e9])
    alphas = draw(st.lists(values, min_size=1, max_size=4, unique=True))
    scores = st.sampled_from([-2.0, -1.0, -0.5, 0.0, 0.25, 0.5, 1.0, np.nan])  # few, so that there are ties
    errors = st.sampled_from([0.0, 0.25, 0.5, 1.0, 10.0, np.nan])
    shape = (len(hs), len(alphas))
    mean = draw(st.lists(scores, min_size=shape[0] * shape[1], max_size=shape[0] * shape[1]))
    error = draw(st.lists(errors, min_size=shape[0] * shape[1], max_size=shape[0] * shape[1]))
    return np.reshape(mean, shape), np.reshape(error, shape), hs, alphas


@given(table=tables(), rule=st.sampled_from(["min", "1se"]), scale=st.sampled_from([1.0, 1e-150, 2.0**400]))
@settings(derandomize=True, max_examples=400, deadline=None)
def test_choice_is_that_of_brute_force(table, rule, scale):
    mean, error, hs, alphas = table
    expected = brute_force(mean, error, hs, alphas, rule)
    if expected is None:
        with pytest.raises(ValueError, match="every fit failed"):
            choose(mean, error, hs, alphas, rule)
        return
    found = choose(mean * scale, error * scale, hs, alphas, rule)
    assert found == expected
    assert all(type(index) is int for index in found)


def test_rounding_is_a_tie_and_more_is_not():
    assert choose([[0.3], [0.1 + 0.2]], None, [1, 2], [1.0]) == (0, 0)
    assert choose([[0.3], [0.3 + 1e-9]], None, [1, 2], [1.0]) == (1, 0)


def test_the_rule_min_needs_no_errors():
    assert choose([[1.0, 2.0]], None, [0], [1.0, 0.5]) == (0, 1)
    with pytest.raises(ValueError, match="std_error"):
        choose([[1.0, 2.0]], None, [0], [1.0, 0.5], "1se")


def test_scores_that_are_infinite():
    error = [[np.inf], [np.inf], [np.inf]]
    assert choose([[0.0], [np.inf], [np.inf]], error, [0, 1, 2], [1.0], "1se") == (1, 0)
    assert choose([[-np.inf], [np.nan], [-np.inf]], error, [3, 1, 2], [1.0], "1se") == (2, 0)
    assert choose([[np.nan], [0.0], [1.0]], error, [0, 1, 2], [1.0], "1se") == (1, 0)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"rule": "max"}, "rule"),
        ({"rule": None}, "rule"),
        ({"mean": [1.0, 2.0]}, "mean must have shape"),
        ({"mean": [[np.nan, np.nan]]}, "every fit failed"),
        ({"std_error": [[1.0]]}, "std_error"),
        ({"std_error": [[0.0, -1.0]]}, "std_error"),
    ],
)
def test_bad_input_is_named(change, match):
    arguments = {"mean": [[1.0, 2.0]], "std_error": [[0.1, 0.1]], "hs": [0], "alphas": [2.0, 1.0], **change}
    with pytest.raises(ValueError, match=match):
        choose(**{"rule": "1se", **arguments})

"""The summary table: which rows, in which order, and what every rendering must hold."""

import json
import re
import subprocess
import sys

import numpy as np
import pytest

from trimreg.estimators.rendering import fact
from trimreg.estimators.summary import Summary, summarize

# -- which rows -----------------------------------------------------------------------------------------


def test_rows_are_the_nonzero_ones_by_order_of_entry_and_those_without_one_last(small):
    table = small()
    assert table.names == ["bmi", "sex", "map", "tc"]
    assert table.columns == {
        "coef": [3.0, -12.5, 0.25, 7.0],
        "standardized": [9.0, -6.25, 0.5, 1.0],
        "order": [1, 2, 3, None],
        "status": ["free", "free", "penalized", "free"],
    }


def test_rows_never_penalized_come_first_with_an_empty_order(small):
    table = small(always=[True, False, False, True, False, False])
    assert table.names == ["map", "bmi", "sex", "tc"]
    assert table.columns["order"] == [None, 1, 2, None]
    assert table.columns["status"] == ["always", "free", "free", "free"]


def test_ties_of_order_are_sorted_by_size_and_then_as_given():
    names, coef = list("abcd"), [1.0, -3.0, 1.0, 2.0]
    assert summarize(names, coef, order=[1, 1, 1, 1]).names == ["b", "d", "a", "c"]
    assert summarize(names, coef, [5.0, 1.0, 5.0, 1.0], order=[1, 1, 1, 1]).names == ["a", "c", "b", "d"]
    assert summarize(names, coef).names == ["b", "d", "a", "c"]


@pytest.mark.parametrize("seed", range(20))
def test_rows_agree_with_a_sort_by_hand(seed):
    rng = np.random.default_rng(seed)
    p = 12
    coef = rng.integers(-2, 3, (p, 2)) * 10.0 ** rng.integers(-200, 200)
    order, weights, always = rng.integers(-1, 4, p), rng.integers(0, 2, p), rng.random(p) < 0.2
    table = summarize([str(j) for j in range(p)], coef, coef, order, weights, always=always)
    scaled = coef / (np.abs(coef).max() or 1.0)
    size = np.sum(scaled**2, axis=1)

    def key(j):
        return (0 if always[j] else 1 if order[j] >= 0 else 2, 0 if always[j] else order[j], -size[j], j)

    rows = sorted((j for j in range(p) if coef[j].any()), key=key)
    assert table.names == [str(j) for j in rows]
    np.testing.assert_allclose(
        np.array(table.columns["norm"]) / (np.abs(coef).max() or 1.0), np.sqrt(size[rows])
    )
    expected = ["always" if always[j] else "penalized" if weights[j] else "free" for j in rows]
    assert table.columns["status"] == expected


def test_several_outputs_have_a_column_each_and_the_norm_of_the_standardized_row():
    coef = np.array([[3.0, 0.0], [0.0, 0.0], [0.0, 4.0]])
    table = summarize(list("abc"), coef, 2 * coef + [1, 0], outputs=["setosa", 7], order=[2, -1, 1])
    assert table.names == ["c", "a"]
    assert list(table.columns) == ["coef[setosa]", "coef[7]", "norm", "order"]
    assert table.columns["coef[setosa]"] == [0.0, 3.0]
    assert table.columns["norm"] == [np.hypot(1, 8), 7.0]
    assert list(summarize(list("abc"), coef).columns) == ["coef[0]", "coef[1]"]


def test_groups_have_a_column(small):
    table = small(groups=["g", "g", "h", "h", 3, 3])
    assert table.columns["group"] == ["h", "g", "h", 3]
    assert list(table.columns) == ["coef", "standardized", "group", "order", "status"]


def test_columns_that_are_not_given_are_not_shown():
    table = summarize(None, [0.0, -12.5, 3.0])
    assert (list(table.columns), table.names) == (["coef"], ["x1", "x2"])
    fractions = summarize(["a", "b"], [2.0, 1.0], weights=[1e-3, 0.0])
    assert fractions.columns["status"] == ["penalized", "free"]


def test_a_coefficient_that_is_not_a_number_is_shown():
    table = summarize(["a", "b"], [1.0, np.nan])
    assert table.names == ["b", "a"]
    assert "nan" in table.to_text(60)
    assert "nan" in table.to_latex()


@pytest.mark.parametrize("max_rows", [0, 2.5])
def test_the_number_of_rows_is_checked(max_rows):
    with pytest.raises(ValueError, match="max_rows must be an integer >= 1"):
        summarize(["a"], [1.0], max_rows=max_rows)


def test_summary_refuses_columns_of_another_length():
    with pytest.raises(
        ValueError, match=r"columns must have one entry for each of the 1 names; 'coef' has 2"
    ):
        Summary("", {}, ["a"], {"coef": [1, 2]})


# -- facts ----------------------------------------------------------------------------------------------


def test_facts_are_shown_in_two_columns_and_leave_out_what_is_none():
    facts = {"loss": "quadratic", "l2": None, "alpha": 0.123456, "objective": 1456.789, "swap optimal": True}
    text = Summary("TrimmedLasso", facts, [], {}).to_text(80)
    head = [re.split(r" {4,}", line) for line in text.split("\n\n")[0].splitlines()[1:]]
    assert head == [["loss: quadratic", "objective: 1457"], ["alpha: 0.1235", "swap optimal: yes"]]
    assert fact(dict(zip("abcdefgh", range(8), strict=True))) == "a 0, b 1, c 2, d 3, e 4, f 5, … 2 more"


@pytest.mark.parametrize("width", [40, 60, 80])
def test_facts_too_long_for_two_columns_have_a_line_each(width):
    facts = {"intercepts": "x" * 35, "converged": True, "h": 3}
    lines = Summary("T", facts, ["a"], {}).to_text(width).split("\n\n")[0].splitlines()
    assert len(lines) == (4 if width == 40 else 3)
    assert max(map(len, lines)) <= width


# -- data -----------------------------------------------------------------------------------------------


def test_frame_holds_the_numbers_in_full(small):
    frame = small(title="T", facts={"h": 2}).to_frame()
    assert list(frame.index) == ["bmi", "sex", "map", "tc"]
    assert frame.index.name == "name"
    assert frame["coef"].dtype == float
    assert list(frame["coef"]) == [3.0, -12.5, 0.25, 7.0]
    assert frame["order"].dtype == "Int64"
    assert frame["order"].isna().tolist() == [False, False, False, True]
    assert frame.attrs == {"title": "T", "facts": {"h": 2}}


def test_frame_without_pandas_says_what_to_install():
    code = (
        "import sys; sys.modules['pandas'] = None\n"
        "from trimreg.estimators.summary import Summary\n"
        "try:\n    Summary('', {}, ['a'], {}).to_frame()\n"
        "except ImportError as error:\n    print(error)"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "pip install pandas" in answer.stdout


def test_dict_goes_through_json_and_is_a_copy(odd):
    table = summarize(
        odd, np.arange(1.0, 11.0, dtype=np.float32), order=np.arange(10), groups=np.arange(10),
        facts={"h": np.int64(3), "intercepts": np.ones(2), "converged": np.bool_(True)},
    )  # fmt: skip
    plain = table.to_dict()
    assert json.loads(json.dumps(plain)) == plain
    assert plain["names"] == odd
    assert plain["facts"] == {"h": 3, "intercepts": [1.0, 1.0], "converged": True}
    plain["names"].clear()
    plain["columns"]["coef"].clear()
    plain["facts"].clear()
    assert len(table) == len(table.columns["coef"]) == 10
    assert table.facts


def test_names_that_are_not_text_become_text():
    assert summarize([3, None], [1.0, 2.0]).names == ["None", "3"]

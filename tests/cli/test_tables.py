"""Reading tables, and turning columns into numbers."""

import os

import numpy as np
import pandas as pd
import pytest

from trimreg.cli import tables
from trimreg.cli.common import BadInput
from trimreg.cli.data import load
from trimreg.cli.tables import learn, read_table
from trimreg.estimators import columns
from trimreg.estimators.columns import Recipe, as_numbers


def written(tmp_path, text, name="t.csv"):
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


# -- reading --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "a,b\n1.5,x\n2,z\n",
        "a;b\n1,5;x\n2;z\n",
        "a;b\n1.5;x\n2;z\n",
        "a\tb\n1.5\tx\n2\tz\n",
        "a|b\n1.5|x\n2|z\n",
    ],
)
def test_separators_and_decimals(tmp_path, text):
    frame = read_table(written(tmp_path, text))
    assert frame["a"].tolist() == [1.5, 2.0]
    assert frame["b"].tolist() == ["x", "z"]


def test_a_byte_order_mark_is_no_part_of_a_name(tmp_path):
    assert list(read_table(written(tmp_path, b"\xef\xbb\xbfa,b\n1,2\n"))) == ["a", "b"]


def test_parquet_is_read_and_its_index_left(tmp_path):
    pd.DataFrame({"a": [1, 2]}, index=[7, 9]).to_parquet(tmp_path / "t.parquet")
    frame = read_table(tmp_path / "t.parquet")
    assert frame.index.tolist() == [0, 1]
    assert frame["a"].tolist() == [1, 2]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty"),
        ("a,b\n", "no rows"),
        (b"\x89PNG\r\n\x1a\n\x00\x00", "UTF-8"),
        (b"a\x00b,c\n1,2\n", "not text"),
        ("1,2\n3,4\n", "names of the columns"),
        ("a,b\n1,2\n3,4,5\n", "cannot be read as CSV"),
        ("a,b\n1,2,3\n4,5,6\n", "more entries than the first line has names"),
        ("a,b\n0,2,3\n1,5,6\n", "more entries than the first line has names"),
    ],
)
def test_what_is_no_table_is_refused(tmp_path, text, message):
    with pytest.raises(BadInput, match=message):
        read_table(written(tmp_path, text))


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no permission bits")
def test_a_pipe_is_refused_and_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe.csv")
    with pytest.raises(BadInput, match="is a pipe"):
        read_table(tmp_path / "pipe.csv")


def test_two_columns_of_one_name_are_refused(tmp_path):
    (tmp_path / "t.csv").write_text("a,a.1,a.b\n1,2,3\n")
    assert list(read_table(tmp_path / "t.csv")) == ["a", "a.1", "a.b"]
    (tmp_path / "t.csv").write_text("a,y,b,y\n1,2,3,4\n")
    with pytest.raises(BadInput, match=r"t\.csv: two columns are called 'y'"):
        read_table(tmp_path / "t.csv")
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow.parquet import write_table

    write_table(
        pyarrow.Table.from_arrays([pyarrow.array([1.0])] * 2, names=["a", "a"]), tmp_path / "t.parquet"
    )
    with pytest.raises(BadInput, match=r"t\.parquet: two columns are called 'a'"):
        read_table(tmp_path / "t.parquet")


def test_kinds_of_parquet(tmp_path):
    """Decimals are numbers, dates are dates, and lists are refused by name also as a target."""
    from datetime import date
    from decimal import Decimal

    days = [date(2020, 1, day) for day in (1, 2, 3)]
    frame = pd.DataFrame({"price": [Decimal("1.5")] * 3, "day": days, "tags": [[1], [2], [3]]})
    frame.to_parquet(tmp_path / "t.parquet")
    found = read_table(tmp_path / "t.parquet")
    assert found["price"].tolist() == [1.5] * 3
    assert pd.api.types.is_datetime64_any_dtype(found["day"])
    with pytest.raises(BadInput, match="'tags' holds nested values"):
        load(tmp_path / "t.parquet", "tags")
    with pytest.raises(BadInput, match="'tags' must hold numbers; 3 values are not"):
        as_numbers(found["tags"])


def test_files_that_are_not_there(tmp_path):
    with pytest.raises(BadInput, match="there is no file"):
        read_table(tmp_path / "nothing.csv")
    with pytest.raises(BadInput, match="is a folder"):
        read_table(tmp_path)
    with pytest.raises(BadInput, match="cannot be read as Parquet"):
        read_table(written(tmp_path, "a,b\n1,2\n", "t.parquet"))


# -- columns --------------------------------------------------------------------------------------------


def test_the_base_of_a_category_is_its_most_common_level():
    frame = pd.DataFrame({"city": ["Rom", "Oslo", "Rom", "Bonn"]})
    recipe, notes = learn(frame)
    assert recipe.features == ["city=Bonn", "city=Oslo"]
    assert recipe.groups == ["city", "city"]
    X, _ = recipe.transform(frame)
    assert X.to_numpy().tolist() == [[0, 0], [0, 1], [0, 0], [1, 0]]
    assert notes == ["'city' is text: one-hot as 'city=Bonn', 'city=Oslo', against 'Rom'"]


def test_equally_common_levels_go_by_the_alphabet():
    recipe, _ = learn(pd.DataFrame({"s": ["m", "f"] * 3}))
    assert recipe.columns[0].base == "f"


def test_truth_values_are_numbers():
    recipe, notes = learn(pd.DataFrame({"t": [True, False, True]}))
    assert recipe.transform(pd.DataFrame({"t": [True, False]}))[0]["t"].tolist() == [1.0, 0.0]
    assert notes == []


def test_columns_of_plain_numbers_are_handled_at_once(monkeypatch):
    """Tables of thousands of columns: what is done per column would take most of the time of a fit."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.standard_normal((9, 30))).rename(columns=str)
    frame["int"], frame["bool"], frame["one"], frame["none"] = range(9), [True, False, True] * 3, 1, np.nan
    frame["text"], frame["maybe"] = list("aabbccabc"), pd.array([1, 2, None] * 3, dtype="Int64")
    frame.loc[0, "3"] = np.nan
    visited = []
    for room, name in ((tables, "distinct"), (tables, "as_numbers"), (columns, "as_numbers")):
        real = getattr(room, name)
        monkeypatch.setattr(room, name, lambda values, real=real: visited.append(values.name) or real(values))
    recipe, notes = learn(frame, impute="median")
    X, _ = recipe.transform(frame)
    assert set(visited) == {"text", "maybe"}
    assert notes[0] == "constant columns left out: 'one', 'none'"
    assert X["3"][0] == np.median(frame["3"][1:])
    assert X["maybe"].tolist() == [1.0, 2.0, 1.5] * 3
    assert X["bool"].tolist() == frame["bool"].tolist()
    np.testing.assert_array_equal(X.iloc[:, 4:31], frame.iloc[:, 4:31])


def test_numbers_can_be_categories_also_with_gaps():
    frame = pd.DataFrame({"zip": [1, 2, 2, 3]})
    recipe, _ = learn(frame, categorical=["zip"])
    assert recipe.features == ["zip=1", "zip=3"]
    with_gap = pd.DataFrame({"zip": [1.0, 2.0, 3.0]})  # as pandas reads integers beside a missing value
    assert recipe.transform(with_gap)[0].to_numpy().tolist() == [[1, 0], [0, 0], [0, 1]]


def test_missing_values_are_named_and_counted():
    frame = pd.DataFrame({"a": [1.0, None, None], "b": [1.0, 2.0, 3.0], "c": ["x", None, "z"]})
    with pytest.raises(BadInput, match=r"'a' \(2\), 'c' \(1\); .*--impute"):
        learn(frame)


@pytest.mark.parametrize(("impute", "value"), [("mean", 4.0), ("median", 2.0)])
def test_missing_values_are_filled_as_learnt(impute, value):
    frame = pd.DataFrame({"a": [1.0, 2.0, 9.0, None], "c": ["x", "x", "z", None]})
    recipe, notes = learn(frame, impute=impute)
    assert "'a (1)', 'c (1)'" in notes[-1]
    X, _ = recipe.transform(frame)
    assert X["a"].tolist() == [1.0, 2.0, 9.0, value]
    assert X["c=z"].tolist() == [0.0, 0.0, 1.0, 0.0]
    new = pd.DataFrame({"a": [None, 100.0], "c": [None, "z"]})  # other means are of no matter
    filled, notes = recipe.transform(new)
    assert filled.to_numpy().tolist() == [[value, 0.0], [100.0, 1.0]]
    assert notes == ["missing values filled as in the fit: 'a (1)', 'c (1)'"]


def test_what_was_learnt_without_imputing_refuses_missing_values_later():
    recipe, _ = learn(pd.DataFrame({"a": [1.0, 2.0]}))
    with pytest.raises(BadInput, match="missing in 'a'"):
        recipe.transform(pd.DataFrame({"a": [1.0, None]}))


def test_an_unknown_level_is_the_base_and_said():
    recipe, _ = learn(pd.DataFrame({"c": ["x", "x", "z"]}))
    X, notes = recipe.transform(pd.DataFrame({"c": ["z", "new"]}))
    assert X["c=z"].tolist() == [1.0, 0.0]
    assert notes == ["'c' has values unknown to the fit, treated as 'x': 'new'"]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([f"name {k}" for k in range(40)], "text with 40 different values"),
        ([*map(str, range(39)), "oops"], "numbers except for 1 values, such as 'oops'"),
        (pd.date_range("2020", periods=40), "dates"),
        ([*range(39), np.inf], "1 infinite"),
    ],
)
def test_columns_that_cannot_be_used_say_why(values, message):
    with pytest.raises(BadInput, match=message) as caught:
        learn(pd.DataFrame({"a": range(40), "bad": values}))
    assert "drop" in str(caught.value)


def test_all_columns_that_cannot_be_used_are_told_at_once():
    frame = pd.DataFrame(
        {
            "who": [f"name {k}" for k in range(40)],
            "a": range(40),
            "day one": pd.date_range("2020", periods=40),
            "tags": [[k] for k in range(40)],
        }
    )
    with pytest.raises(
        BadInput, match=r"'who' holds text.*'day one' holds dates.*'tags' holds nested"
    ) as caught:
        learn(frame)
    assert str(caught.value).endswith("or use --drop who --drop 'day one' --drop tags")


def test_many_levels_that_repeat_are_a_category():
    recipe, _ = learn(pd.DataFrame({"c": [f"v{k % 40}" for k in range(400)]}))
    assert len(recipe.features) == 39


def test_constant_columns_are_left_out_and_nothing_else():
    frame = pd.DataFrame({"one": [1, 1, 1], "same": ["x"] * 3, "a": [1, 2, 2]})
    recipe, notes = learn(frame)
    assert recipe.features == ["a"]
    assert notes == ["constant columns left out: 'one', 'same'"]
    with pytest.raises(BadInput, match="no column is left"):
        learn(frame[["one", "same"]])


def test_names_that_clash_are_refused():
    frame = pd.DataFrame({"c": ["x", "x", "z"], "c=z": [1, 2, 3]})
    with pytest.raises(BadInput, match="'c=z'; rename"):
        learn(frame)


def test_only_columns_that_are_needed_must_be_there():
    recipe, _ = learn(pd.DataFrame({"a": [1.0, 2.0], "b": [3.0, 5.0], "c": ["x", "z"]}))
    X, _ = recipe.transform(pd.DataFrame({"b": [7.0]}), only={"b"})
    assert X.to_numpy().tolist() == [[0.0, 7.0, 0.0]]
    with pytest.raises(BadInput, match="no column 'a', 'c'"):
        recipe.transform(pd.DataFrame({"b": [7.0]}))
    with pytest.raises(BadInput, match="column 'b' must hold numbers; 1 values are not, such as 'much'"):
        recipe.transform(pd.DataFrame({"b": ["much"]}), only={"b"})


def test_a_recipe_survives_its_list():
    frame = pd.DataFrame({"a": [1.0, 2.0, None], "c": ["x", "z", "x"]})
    recipe, _ = learn(frame, impute="mean")
    again = Recipe.from_list(recipe.to_list())
    assert again == recipe
    pd.testing.assert_frame_equal(again.transform(frame)[0], recipe.transform(frame)[0])

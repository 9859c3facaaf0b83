"""Tables in files: reading them, and learning how their columns become a matrix."""

from __future__ import annotations

import os
import shlex
import warnings
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from .._files import BadInput
from ..estimators.columns import Column, Recipe, as_numbers, as_text, is_plain, listed, missing_values
from .common import note, one_line

IMPUTE = ("mean", "median", "drop")
MOST_LEVELS = 100  # of a category; text with more levels is a name or a date
_SEPARATORS = (",", ";", "\t", "|")
_PARQUET = (".parquet", ".pq")


# -- reading --------------------------------------------------------------------------------------------


def read_table(path: str | os.PathLike) -> Any:
    """The data frame in a CSV or Parquet file; :class:`BadInput` if it cannot be read.

    The separator of a CSV file is the most frequent one of ``, ; |`` and tab in its first line. Decimal
    commas are understood if the separator is another character.
    """
    path = Path(path)
    if not path.exists():
        raise BadInput(f"there is no file {str(path)!r}; check the name")
    if path.is_dir():
        raise BadInput(f"{str(path)!r} is a folder; name a CSV or Parquet file in it")
    if not path.is_file():  # it would be read twice, and block
        raise BadInput(f"{str(path)!r} is a pipe or a device; save the table to a file")
    frame = _read_parquet(path) if path.suffix.lower() in _PARQUET else _read_csv(path)
    frame.columns = [str(name) for name in frame.columns]
    if frame.shape[0] == 0:
        raise BadInput(f"{path} has column names and no rows; add data")
    return frame.reset_index(drop=True).copy()  # in one block, or each operation visits every column


def pandas() -> Any:
    """The module pandas; :class:`BadInput` if it is missing."""
    try:
        import pandas
    except ImportError:
        raise BadInput("reading tables needs pandas: pip install 'trimreg[experiments]'") from None
    return pandas


def _read_parquet(path):
    pd = pandas()
    try:
        import pyarrow
        from pyarrow.parquet import ParquetFile
    except ImportError:
        raise BadInput("Parquet needs pyarrow: pip install 'trimreg[experiments]', or give a CSV") from None
    try:
        with ParquetFile(path) as file:
            schema = file.schema_arrow
            _refuse_equal(path, schema.names)
            frame = file.read(use_threads=False).to_pandas()  # threads cost more than they gain
    except (OSError, ValueError, pyarrow.ArrowException) as error:
        if isinstance(error, BadInput):
            raise
        raise BadInput(f"{path} cannot be read as Parquet ({_short(error)}); give a table") from None
    for field in schema:  # pandas would make columns of Python objects of these
        if field.name in frame and pyarrow.types.is_decimal(field.type):
            frame[field.name] = frame[field.name].astype(float)
        elif field.name in frame and pyarrow.types.is_date(field.type):
            frame[field.name] = pd.to_datetime(frame[field.name])
    return frame


def _refuse_equal(path, names):
    """:class:`BadInput` if two columns have one name; pandas would give one of them another name."""
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise BadInput(f"{path}: two columns are called {str(twice[0])!r}; rename one of them")


def _read_csv(path):
    pd = pandas()
    try:
        separator = _separator(path)
        frame = _parse_csv(path, sep=separator)
        if any(name.rpartition(".")[0] in frame for name in frame):  # pandas calls a second "a" "a.1"
            _refuse_equal(
                path, _parse_csv(path, sep=separator, header=None, nrows=1, dtype=str).iloc[0].dropna()
            )
        if separator != "," and any(_has_decimal_commas(frame[name]) for name in frame):
            frame = _parse_csv(path, sep=separator, decimal=",")
    except pd.errors.EmptyDataError:
        raise BadInput(f"{path} is empty; give a table with a line of names") from None
    except UnicodeDecodeError:
        raise BadInput(f"{path} is not text in UTF-8; save it as CSV in UTF-8, or as Parquet") from None
    except pd.errors.ParserWarning:
        raise BadInput(f"{path} has rows with more entries than the first line has names; fix it") from None
    except BadInput:
        raise
    except (OSError, ValueError, EOFError) as error:  # ParserError is a ValueError
        raise BadInput(f"{path} cannot be read as CSV ({_short(error)}); give a table") from None
    if all(_is_number(name) for name in frame.columns):
        raise BadInput(f"the first line of {path} must hold the names of the columns; got numbers")
    return frame


def _parse_csv(path, **how):
    pd = pandas()
    with warnings.catch_warnings():
        warnings.simplefilter("error", pd.errors.ParserWarning)
        # Without index_col, a first column that has no name would silently become row names.
        return pd.read_csv(path, index_col=False, encoding="utf-8-sig", low_memory=False, **how)


def _separator(path):
    if path.suffix.lower() in (".gz", ".bz2", ".zip", ".xz"):
        return ","  # the first line cannot be read without unpacking
    with path.open(encoding="utf-8-sig") as file:
        first = file.readline(1_000_000)
    if "\0" in first:
        raise ValueError("it holds bytes that are not text")
    return max(_SEPARATORS, key=first.count)


def _has_decimal_commas(column):
    pd = pandas()
    if pd.api.types.is_numeric_dtype(column) or column.dropna().empty:
        return False
    return bool(column.dropna().astype(str).str.fullmatch(r"\s*[-+]?\d+(,\d+)?\s*").all())


def _is_number(name):
    try:
        float(name)
    except ValueError:
        return False
    return True


def _short(error):
    text = one_line(error)
    return text if len(text) <= 160 else text[:157] + "..."


# -- writing --------------------------------------------------------------------------------------------


def csv_text(frame: Any) -> str:
    """The frame as CSV. Text that a spreadsheet would run as a formula gets an apostrophe, and a note."""
    changed: dict[str, None] = {}

    def safe(value):
        formula = isinstance(value, str) and len(value) > 1 and value[0] in "=+-@" and not _is_number(value)
        if formula:
            changed[value] = None
        return f"'{value}" if formula else value

    frame = frame.copy()
    for place, kind in enumerate(frame.dtypes):
        if not pandas().api.types.is_numeric_dtype(kind):
            frame.isetitem(place, frame.iloc[:, place].map(safe))
    frame.columns = [safe(name) for name in frame.columns]
    if changed:
        note(f"an apostrophe before text that a spreadsheet would take for a formula: {listed(changed)}")
    return frame.to_csv(index=False, lineterminator="\n")


# -- from columns to numbers ----------------------------------------------------------------------------


def refuse_missing(frame) -> None:
    """:class:`BadInput` that names the columns with missing values, if there are any."""
    missing = missing_values(frame)
    if missing:
        raise BadInput(f"{missing}; fill them in, or use --impute mean, median or drop")


def is_number(values: Any) -> bool:
    """Whether a column holds numbers or booleans, apart from missing values."""
    pd = pandas()
    return pd.api.types.is_numeric_dtype(values) or pd.api.types.is_bool_dtype(values) or values.isna().all()


def learn(
    frame: Any, *, impute: str | None = None, categorical: Iterable[str] = ()
) -> tuple[Recipe, list[str]]:
    """The recipe for the columns of these rows, and notes that describe it.

    Text becomes one-hot columns, and constant columns are left out. Missing values are refused, or filled
    with ``impute="mean"`` or ``"median"``; in a category, by its most common level. ``categorical`` names
    columns of numbers that are categories.
    """
    if impute not in ("mean", "median"):
        refuse_missing(frame)
    constant, columns, notes, refused = [], [], [], {}
    plain = _learn_plain(frame, impute, set(categorical))
    for name in frame.columns:
        try:
            column = plain[name] if name in plain else _learn(frame[name], impute, name in categorical)
        except BadInput as error:
            refused[name] = str(error).removesuffix("; correct them")
            continue
        if column is None:
            constant.append(name)
            continue
        columns.append(column)
        if column.levels is not None:
            kind = "a category" if name in categorical else "text"
            shown = listed(column.features, most=3)
            notes.append(f"{name!r} is {kind}: one-hot as {shown}, against {column.base!r}")
    _refuse(refused)
    if constant:
        notes.insert(0, f"constant column{'s' * (len(constant) > 1)} left out: {listed(constant)}")
    counts = frame.isna().sum()
    filled = counts[counts > 0]
    if len(filled):
        shown = listed([f"{name} ({count})" for name, count in filled.items()])
        notes.append(f"missing values filled by the {impute} (text: the most common value): {shown}")
    if not columns:
        raise BadInput("no column is left to predict from; give a table with a column that varies")
    recipe = Recipe(tuple(columns))
    if len(set(recipe.features)) != len(recipe.features):
        twice = next(name for name in recipe.features if recipe.features.count(name) > 1)
        raise BadInput(f"the one-hot columns clash with the column {twice!r}; rename it")
    return recipe, notes


def distinct(values: Any) -> int:
    """The number of different values in a column; :class:`BadInput` if it holds lists or the like."""
    try:
        return int(values.nunique(dropna=True))
    except TypeError:  # not hashable
        kind = type(values.dropna().iloc[0]).__name__
        raise BadInput(f"column {values.name!r} holds nested values ({kind})") from None


def _refuse(reasons, most=6):
    """:class:`BadInput` that says of all columns why they cannot be used."""
    if not reasons:
        return
    more = f"; {len(reasons) - most} more columns" if len(reasons) > most else ""
    drop = " ".join(f"--drop {shlex.quote(name)}" for name in reasons)
    raise BadInput(f"{'; '.join(list(reasons.values())[:most])}{more}; correct them, or use {drop}")


def _learn_plain(frame, impute, categorical):
    """The columns of finite numbers by name, all at once because there may be thousands; None if constant."""
    names = [name for name, kind in frame.dtypes.items() if is_plain(kind) and name not in categorical]
    values = pandas().DataFrame(frame[names].to_numpy(dtype=float), columns=names)
    low, high = values.min().to_numpy(), values.max().to_numpy()
    fills = _fill(values, impute)
    fills = [None] * len(names) if fills is None else fills.tolist()
    return {
        name: Column(name, fill=fill) if varies else None
        for name, fill, varies, bad in zip(names, fills, low < high, np.isinf(high - low), strict=True)
        if not bad
    }


def _fill(numbers, impute):
    """The values that replace missing ones, or None."""
    return {"mean": numbers.mean, "median": numbers.median}.get(impute, lambda: None)()


def _learn(values, impute, category):
    """What is learned of a column that is not plain; None if it is constant."""
    if distinct(values) <= 1:
        return None
    if category or not is_number(values):
        return _learn_category(values, impute)
    fill = _fill(as_numbers(values), impute)
    return Column(values.name, fill=None if fill is None else float(fill))


def _learn_category(values, impute):
    pd = pandas()
    name, there = values.name, values.dropna()
    if pd.api.types.is_datetime64_any_dtype(values):
        raise BadInput(f"column {name!r} holds dates, not numbers")
    text = as_text(there)
    parsed = pd.to_numeric(text, errors="coerce")
    if parsed.notna().mean() > 0.5 and parsed.isna().any():
        raise BadInput(
            f"column {name!r} holds numbers except for {int(parsed.isna().sum())} values, such as "
            f"{text[parsed.isna()].iloc[0]!r}"
        )
    counts = text.value_counts()
    if len(counts) > min(MOST_LEVELS, max(10, len(there) // 2)):
        raise BadInput(
            f"column {name!r} holds text with {len(counts)} different values, too many for a category"
        )
    levels = sorted(counts.index)
    base = min(levels, key=lambda level: (-counts[level], level))
    fill = base if impute in ("mean", "median") else None
    return Column(name, [level for level in levels if level != base], base, fill)

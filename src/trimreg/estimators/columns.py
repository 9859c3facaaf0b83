"""From the columns of a table to a matrix, in a fit and in later predictions alike."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from .._files import BadInput


@dataclass(frozen=True)
class Column:
    """A column in use: a number, or a category with an indicator for every level except its base."""

    name: str
    levels: list | None = None  # those with an indicator; None for a number
    base: str | None = None  # the level without an indicator: the most common one
    fill: float | str | None = None  # the value that replaces missing ones; None if these are refused

    @property
    def features(self) -> list[str]:
        """Names of the columns of the matrix that this one becomes."""
        return [self.name] if self.levels is None else [f"{self.name}={level}" for level in self.levels]

    def indicators(self, values: Any) -> tuple[np.ndarray, list[str]]:
        """The levels of these values as columns of the matrix, and notes."""
        assert self.levels is not None
        text = as_text(values).where(~values.isna(), self.fill)
        unknown = sorted(set(text) - {*self.levels, self.base})
        notes = [f"{self.name!r} has values unknown to the fit, treated as {self.base!r}: {listed(unknown)}"]
        return np.column_stack([text == level for level in self.levels]).astype(float), notes[: len(unknown)]


@dataclass(frozen=True)
class Recipe:
    """How the columns of a table become a matrix, as learned from the rows of a fit."""

    columns: tuple[Column, ...]

    @property
    def features(self) -> list[str]:
        return [feature for column in self.columns for feature in column.features]

    @property
    def groups(self) -> list[str]:
        """For every feature the column that it comes from."""
        return [column.name for column in self.columns for _ in column.features]

    def transform(self, frame: Any, only: Collection[str] | None = None) -> tuple[Any, list[str]]:
        """The matrix of these rows as a data frame, and notes on what was done to them.

        With ``only``, the other features are left at 0, and their columns need not be in the table.
        """
        import pandas as pd

        frame = in_pandas(frame)
        needed = [c for c in self.columns if only is None or any(f in only for f in c.features)]
        names = {column.name for column in needed}
        absent = [column.name for column in needed if column.name not in frame]
        if absent:
            raise BadInput(f"the table has no column {listed(absent)}, which the model needs; add it")
        missing = missing_values(frame[[column.name for column in needed if column.fill is None]])
        if missing:
            raise BadInput(f"{missing}; fill them in")
        X, notes, end = np.zeros((len(frame), len(self.features))), [], 0
        numbers, places = [], []
        for column in self.columns:
            start, end = end, end + len(column.features)
            if column.name not in names:
                continue
            if column.levels is None:
                numbers.append(column)
                places.append(start)
            else:
                X[:, start:end], more = column.indicators(frame[column.name])
                notes += more
        values = matrix(frame[[column.name for column in numbers]])
        fills = np.array([column.fill for column in numbers], dtype=float)  # None becomes NaN
        X[:, places] = np.where(np.isnan(values), fills, values)
        filled = frame[[column.name for column in needed]].isna().sum()
        if filled.any():
            shown = listed((f"{name} ({count})" for name, count in filled[filled > 0].items()), most=6)
            notes.append(f"missing values filled as in the fit: {shown}")
        return pd.DataFrame(X, columns=self.features), notes

    def to_list(self) -> list[dict]:
        return [{k: v for k, v in vars(column).items() if v is not None} for column in self.columns]

    @classmethod
    def from_list(cls, columns: Iterable[Mapping[str, Any]]) -> Recipe:
        return cls(tuple(Column(**column) for column in columns))


def in_pandas(frame: Any) -> Any:
    """A data frame of pandas; those of other libraries are read column by column."""
    import pandas as pd

    if isinstance(frame, pd.DataFrame):
        return frame
    return pd.DataFrame({name: np.asarray(frame[name]) for name in frame.columns})


def is_plain(kind: Any) -> bool:
    """Whether a column of this dtype holds numbers or booleans that need no parsing."""
    return isinstance(kind, np.dtype) and kind.kind in "biuf"


def matrix(frame: Any) -> np.ndarray:
    """Columns as floats; :class:`BadInput` if one of them holds text or infinities."""
    plain = np.array([is_plain(kind) for kind in frame.dtypes], dtype=bool)
    values = np.empty(frame.shape)
    values[:, plain] = frame.loc[:, plain].to_numpy(dtype=float)  # at once: there may be thousands
    for j in np.flatnonzero(~plain | np.isinf(values).any(axis=0)):
        values[:, j] = as_numbers(frame.iloc[:, j])
    return values


def as_numbers(values: Any) -> Any:
    """A column as floats; :class:`BadInput` if it holds text or infinities."""
    import pandas as pd

    numbers = (values if is_plain(values.dtype) else pd.to_numeric(values, errors="coerce")).astype(float)
    text = numbers.isna() & ~values.isna()
    if text.any():
        raise BadInput(
            f"column {values.name!r} must hold numbers; {int(text.sum())} values are not, such as "
            f"{str(values[text].iloc[0])!r}; correct them"
        )
    infinite = int(np.isinf(numbers.to_numpy()).sum())
    if infinite:
        raise BadInput(f"column {values.name!r} has {infinite} infinite values; correct them")
    return numbers


def as_text(values: Any) -> Any:
    """A column as text; whole numbers have no decimal point, whatever else is in the column."""

    def text(value):
        return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)

    return values.astype(object).map(text)


def missing_values(frame: Any) -> str:
    """A clause that names the columns with missing values; empty if there are none."""
    counts = frame.isna().sum()
    counts = counts[counts > 0]
    shown = [f"{name!r} ({count})" for name, count in counts[:6].items()]
    more = f" and {len(counts) - 6} more columns" if len(counts) > 6 else ""
    return f"values are missing in {', '.join(shown)}{more}" if shown else ""


def listed(names: Iterable, most: int = 5) -> str:
    """A few names in quotes, and how many more there are."""
    names = list(names)
    shown = ", ".join(repr(str(name)) for name in names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"

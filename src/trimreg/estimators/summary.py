"""The table of a fitted model, as text, HTML, LaTeX or a data frame."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Mapping
from numbers import Integral
from typing import Any

import numpy as np

from . import rendering
from .rendering import NARROWEST, Table

EMPTY_MODEL = "no variables in the model"


class Summary:
    """A table with one row per variable, under lines of facts about the fit.

    ``facts`` are the lines above the table, by label: text, numbers, booleans, or lists or dicts of these;
    None is left out. ``names`` are those of the variables. ``columns`` maps each header to one entry per
    name; None is an empty cell. At most ``max_rows`` rows are shown (None: all), and the others are counted;
    ``to_frame`` and ``to_dict`` have all.

    Examples
    --------
    >>> from trimreg.estimators.summary import Summary
    >>> table = Summary("Toy", {"samples": 20}, ["age", "bmi"], {"coef": [12.5, -0.25], "order": [1, 2]})
    >>> print(table)
    Toy
    samples: 20
    <BLANKLINE>
    name     coef  order
    --------------------
    age   12.50        1
    bmi   -0.2500      2
    """

    def __init__(
        self,
        title: str,
        facts: Mapping,
        names: Iterable,
        columns: Mapping,
        max_rows: int | None = 50,
    ):
        if max_rows is not None and (not isinstance(max_rows, Integral) or max_rows < 1):
            raise ValueError(f"max_rows must be an integer >= 1 or None; got {max_rows!r}")
        self.title = str(title)
        self.facts = {str(key): plain(value) for key, value in facts.items() if value is not None}
        self.names = [str(name) for name in names]
        self.columns = {str(header): [plain(value) for value in values] for header, values in columns.items()}
        self.max_rows = max_rows
        for header, values in self.columns.items():
            if len(values) != len(self.names):
                raise ValueError(
                    f"columns must have one entry for each of the {len(self.names)} names; "
                    f"{header!r} has {len(values)}"
                )

    def __len__(self):
        return len(self.names)

    def __str__(self):
        return self.to_text()

    __repr__ = __str__

    def _repr_html_(self):
        return self.to_html()

    def _drawn(self) -> Table:
        """The rows that are shown, and a line that counts the others."""
        count = len(self) if self.max_rows is None else min(len(self), self.max_rows)
        hidden = len(self) - count
        rest = EMPTY_MODEL if not self.names else f"… {hidden} more" if hidden else ""
        columns = {header: values[:count] for header, values in self.columns.items()}
        return Table(self.title, self.facts, self.names[:count], columns, rest)

    def to_text(self, width: int | None = None) -> str:
        """The table as aligned text.

        Parameters
        ----------
        width : int, optional
            The longest line, at least 40; by default that of the terminal. If necessary, names are shortened,
            and then columns in the middle are left out; a line at the end says how many.
        """
        if width is None:
            width = max(NARROWEST, shutil.get_terminal_size((100, 24)).columns)
        if not isinstance(width, Integral) or width < NARROWEST:
            raise ValueError(f"width must be an integer >= {NARROWEST}; got {width!r}")
        return rendering.to_text(self._drawn(), int(width))

    def to_html(self) -> str:
        """The table as an HTML fragment with its own style; all text is escaped."""
        return rendering.to_html(self._drawn())

    def to_latex(self, label: str | None = None) -> str:
        r"""The table as LaTeX; the document needs ``\usepackage{booktabs}``.

        Special characters are escaped, and Greek letters become commands. Names in other scripts need an
        engine that reads Unicode (LuaLaTeX or XeLaTeX) and a suitable font. The ``label``, for ``\ref``, is
        not escaped.
        """
        return rendering.to_latex(self._drawn(), label)

    def to_frame(self) -> Any:
        """All rows as a pandas data frame, with the names as its index and the facts in its ``attrs``."""
        try:
            import pandas as pd
        except ImportError as error:
            raise ImportError(
                f"to_frame needs pandas, which cannot be imported ({error}); pip install pandas"
            ) from error
        series = {}
        for header, values in self.columns.items():
            whole = values and all(
                v is None or (isinstance(v, int) and not isinstance(v, bool)) for v in values
            )
            series[header] = pd.array(values, dtype="Int64") if whole and None in values else values
        frame = pd.DataFrame(series, index=pd.Index(self.names, name="name"), columns=list(series))
        frame.attrs.update(title=self.title, facts=dict(self.facts))
        return frame

    def to_dict(self) -> dict:
        """All rows in Python's own types, ready for ``json``.

        The keys are ``title``, ``facts``, ``names`` and ``columns``.
        """
        columns = {header: list(values) for header, values in self.columns.items()}
        parts = {"title": self.title, "facts": dict(self.facts), "names": list(self.names)}
        return {**parts, "columns": columns}


def summarize(
    names: Iterable | None,
    coef: Any,
    standardized: Any = None,
    order: Any = None,
    weights: Any = None,
    *,
    always: Any = None,
    groups: Any = None,
    bounds: Any = None,
    outputs: Iterable | None = None,
    title: str = "",
    facts: Mapping | None = None,
    max_rows: int | None = 50,
) -> Summary:
    r"""The summary of a linear model: its nonzero rows, in the order of entry.

    Rows that are never penalized come first, and rows without an order last. Rows with the same order, such
    as the members of a group, are sorted by size: :math:`\|\tilde\theta_j\|_2` with the standardized
    coefficients :math:`\tilde\theta_j`.

    ``coef`` and ``standardized`` have one row per variable, unlike scikit-learn's ``coef_`` of several
    outputs; of the standardized coefficients of several outputs only the norm is shown. ``order`` is the step
    of entry, from 1, and negative without one. ``weights`` are the trimming weights: 0 is "free", anything
    above it "penalized". ``always`` marks variables that are never penalized.
    With ``bounds``, lower and upper ones of single coefficients, a column says which of them are reached.
    """
    coef = np.asarray(coef, dtype=float)
    p = len(coef)
    names = [f"x{j}" for j in range(p)] if names is None else list(names)
    values = coef if standardized is None else np.asarray(standardized, dtype=float)
    first = np.zeros(p, dtype=bool) if always is None else np.asarray(always, dtype=bool)
    step = np.where(first, -1, -1 if order is None else order)
    size = np.hypot.reduce(np.atleast_2d(values.T).T, axis=1)  # no overflow, unlike a sum of squares
    place = np.where(first, -1.0, np.where(step < 0, np.inf, step))
    ranked = np.lexsort((-np.nan_to_num(size, nan=np.inf), place))
    inside = np.atleast_2d((coef != 0).T).any(axis=0)
    rows = ranked[np.asarray(inside)[ranked]]

    columns: dict[str, Any] = {"coef": coef[rows]}
    if coef.ndim == 2:
        labels = range(coef.shape[1]) if outputs is None else outputs
        columns = {f"coef[{label}]": coef[rows, k] for k, label in enumerate(labels)}
    if standardized is not None:
        columns |= {"standardized": values[rows]} if coef.ndim == 1 else {"norm": size[rows]}
    if groups is not None:
        columns["group"] = [groups[j] for j in rows]
    if order is not None:
        columns["order"] = [None if step[j] < 0 else step[j] for j in rows]
    if weights is not None:
        status = np.where(first, "always", np.where(np.asarray(weights) <= 0, "free", "penalized"))
        columns["status"] = status[rows]
    if bounds is not None:
        ends = zip(("lower", "upper"), bounds, strict=True)
        reached = {side: np.isclose(coef, end, rtol=1e-6, atol=0.0) for side, end in ends}
        columns["at bound"] = [", ".join(side for side in reached if reached[side][j]) or None for j in rows]
    return Summary(title, facts or {}, [names[j] for j in rows], columns, max_rows=max_rows)


def plain(value: Any, convert: Callable[[Any], Any] = lambda entry: entry) -> Any:
    """The value in Python's own types, also inside containers; ``convert`` is applied to every entry."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, Mapping):
        return {str(key): plain(entry, convert) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(entry, convert) for entry in value]
    return convert(value)

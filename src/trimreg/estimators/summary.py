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

    ``facts`` are the lines above the table, by label: text, numbers, booleans, or lists or dicts of these.
    ``names`` are those of the variables. ``columns`` maps each header to one entry per name; None is an empty
    cell. ``note`` is a line below the table. At most ``max_rows`` rows are shown (None: all), and the others
    are counted; ``to_frame`` and ``to_dict`` have all.

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
        note: str = "",
        max_rows: int | None = 50,
    ):
        if max_rows is not None and (not isinstance(max_rows, Integral) or max_rows < 1):
            raise ValueError(f"max_rows must be an integer >= 1 or None; got {max_rows!r}")
        self.title = str(title)
        self.facts = {str(key): plain(value) for key, value in facts.items()}
        self.names = [str(name) for name in names]
        self.columns = {str(header): [plain(value) for value in values] for header, values in columns.items()}
        self.note = str(note)
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
        return Table(self.title, self.facts, self.names[:count], columns, rest, self.note)

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

        The keys are ``title``, ``facts``, ``names``, ``columns`` and ``note``.
        """
        columns = {header: list(values) for header, values in self.columns.items()}
        parts = {"title": self.title, "facts": dict(self.facts), "names": list(self.names)}
        return {**parts, "columns": columns, "note": self.note}


def summarize(
    names: Iterable | None,
    coef: Any,
    standardized: Any = None,
    order: Any = None,
    weights: Any = None,
    *,
    always: Any = None,
    groups: Iterable | None = None,
    outputs: Iterable | None = None,
    title: str = "",
    facts: Mapping | None = None,
    note: str = "",
    max_rows: int | None = 50,
) -> Summary:
    r"""The summary of a linear model: its nonzero rows, in the order of entry.

    Rows that are never penalized come first, and rows without an order last. Rows with the same order, such
    as the members of a group, are sorted by size: :math:`\|\tilde\theta_j\|_2` with the standardized
    coefficients :math:`\tilde\theta_j`.

    ``coef`` and ``standardized`` have one row per variable, unlike scikit-learn's ``coef_`` of several
    outputs; of the standardized coefficients of several outputs only the norm is shown. ``order`` is the step
    of entry, from 1, and negative or None without one. ``weights`` are the trimming weights: 0 is "free",
    anything above it "penalized". ``always`` marks variables that are never penalized. ``facts`` come from
    :func:`fit_facts`.
    """
    coef = np.asarray(coef, dtype=float)
    p = coef.shape[0] if coef.ndim else 0
    names = [f"x{j}" for j in range(p)] if names is None else list(names)
    if coef.ndim not in (1, 2) or p != len(names):
        raise ValueError(f"coef must have one row for each of the {len(names)} names; got shape {coef.shape}")
    values = coef if standardized is None else np.asarray(standardized, dtype=float)
    if values.shape != coef.shape:
        raise ValueError(f"standardized must have the shape of coef, {coef.shape}; got {values.shape}")
    given = {"order": order, "weights": weights, "always": always, "groups": groups}
    table = {key: list(column) for key, column in given.items() if column is not None}
    for key, column in table.items():
        if len(column) != p:
            raise ValueError(f"{key} must have one entry for each of the {p} names; got {len(column)}")

    is_always = np.array(table.get("always", [False] * p), dtype=bool)
    steps = [_step(step) for step in table.get("order", [None] * p)]
    steps = [None if unpenalized else step for step, unpenalized in zip(steps, is_always, strict=True)]
    size = np.hypot.reduce(np.atleast_2d(values.T).T, axis=1)  # no overflow, unlike a sum of squares
    place = [-1.0 if a else np.inf if s is None else s for s, a in zip(steps, is_always, strict=True)]
    ranked = np.lexsort((-np.nan_to_num(size, nan=np.inf), place))
    rows = [j for j in ranked if np.any(coef[j] != 0)]

    columns: dict[str, Any] = {}
    if coef.ndim == 1:
        columns["coef"] = coef[rows]
    else:
        labels = [str(label) for label in (range(coef.shape[1]) if outputs is None else outputs)]
        if len(labels) != coef.shape[1] or len(set(labels)) != len(labels):
            raise ValueError(f"outputs must be {coef.shape[1]} different labels; got {labels}")
        columns |= {f"coef[{label}]": coef[rows, k] for k, label in enumerate(labels)}
    if standardized is not None:
        columns |= {"standardized": values[rows]} if coef.ndim == 1 else {"norm": size[rows]}
    if groups is not None:
        columns["group"] = [table["groups"][j] for j in rows]
    if order is not None:
        columns["order"] = [steps[j] for j in rows]
    if weights is not None or always is not None:
        free = np.array(table.get("weights", [1.0] * p), dtype=float) <= 0
        columns["status"] = ["always" if is_always[j] else "free" if free[j] else "penalized" for j in rows]
    return Summary(title, facts or {}, [names[j] for j in rows], columns, note=note, max_rows=max_rows)


def fit_facts(
    *,
    loss: str | None = None,
    n_samples: int | None = None,
    n_features: int | None = None,
    h: int | None = None,
    alpha: float | None = None,
    l2: float | None = None,
    objective: float | None = None,
    stationarity: float | None = None,
    intercept: Any = None,
    converged: bool | None = None,
    outputs: Iterable | None = None,
    **more: Any,
) -> dict[str, Any]:
    """The facts above the table, under the same labels for every estimator; None is left out.

    Several intercepts become "intercepts", by the labels ``outputs`` if these are given. In the labels of
    further facts underscores become spaces.
    """
    intercept = plain(intercept)
    several = isinstance(intercept, list)
    if several and outputs is not None:
        intercept = {str(label): value for label, value in zip(outputs, intercept, strict=True)}
    facts = {
        "loss": loss, "samples": n_samples, "features": n_features, "h": h, "alpha": alpha,
        "l2": l2, "objective": objective, "stationarity": stationarity,
        "intercepts" if several else "intercept": intercept, "converged": converged,
    }  # fmt: skip
    facts |= {key.replace("_", " "): value for key, value in more.items()}
    return {key: value for key, value in facts.items() if value is not None}


def plain(value: Any, convert: Callable[[Any], Any] = lambda entry: entry) -> Any:
    """The value in Python's own types, also inside containers; ``convert`` is applied to every entry."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, Mapping):
        return {str(key): plain(entry, convert) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(entry, convert) for entry in value]
    return convert(value)


def _step(step):
    """A step as int, or None if there is none."""
    if step is None or step != step or step < 0:
        return None
    if step != int(step):
        raise ValueError(f"order must hold integers; got {step}")
    return int(step)

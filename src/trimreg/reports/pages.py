"""Pages as one HTML file that needs no network: a template, tables, charts, and the libraries inside.

The page has its own content policy: it loads nothing, and runs no script but the two inside it, which are
known by their hashes. The template escapes all text; the policy is the second line of defense.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from importlib import import_module, resources
from numbers import Integral, Real
from pathlib import Path
from typing import Any

from .. import __version__
from .._files import write_atomically

_MISSING = "–"  # noqa: RUF001


def write_page(out: str | Path, template: str, *, title: str, charts: list[dict], **context: Any) -> Path:
    """Fill a template and write the page atomically.

    Parameters
    ----------
    out : path-like
    template : str
        A file of the folder ``templates`` that extends ``base.html``.
    title : str
    charts : list of dict
        Made by :mod:`.charts`; a template places the k-th one with ``chart(k)``.
    **context
        The other variables of the template.

    Returns
    -------
    pathlib.Path
    """
    return write_atomically(out, render(template, title=title, charts=charts, **context).encode())


def render(
    template: str, *, title: str, charts: Iterable[dict] = (), now: datetime | None = None, **context: Any
) -> str:
    """The page as text."""
    charts, own = list(charts), _file("report.js")
    now = datetime.now(UTC) if now is None else now
    policy = _policy([_plotly(), own] if charts else [own])
    return _environment().get_template(template).render(
        title=title, charts=charts, charts_json=script_json(charts), style=_file("report.css"),
        plotly=_packed_plotly() if charts else "", own=own, policy=policy, version=__version__,
        written=now.strftime("%Y-%m-%d %H:%M UTC"), **context,
    )  # fmt: skip


def script_json(value: Any) -> str:
    """JSON for the inside of a ``<script>``: no text in it can end the element or open a comment."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    for letter in "<>&":
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    return text


def table(rows: Sequence[Mapping], name: str = "") -> dict:
    """A sortable table, with its columns in the order of their first occurrence.

    Parameters
    ----------
    rows : list of mapping
        Values are numbers, strings, bools, None, or lists of these.
    name : str
        The name of the table for screen readers.

    Returns
    -------
    dict
        ``name``; ``columns`` with ``header`` and whether it ``is_number``; ``rows`` of cells with ``text``
        and a sorting ``key``, which is empty for a missing value.

    Examples
    --------
    >>> from trimreg.reports.pages import table
    >>> made = table([{"method": "lasso", "n": 1000}, {"method": "mcp", "rate": 0.12345}])
    >>> [column["header"] for column in made["columns"]], [cell["text"] for cell in made["rows"][0]]
    (['method', 'n', 'rate'], ['lasso', '1,000', '–'])
    >>> made["rows"][1][2]
    {'text': '0.1235', 'key': '0.12345'}
    """
    headers = list(dict.fromkeys(key for row in rows for key in row))
    columns = []
    for header in headers:
        values = [_scalar(row.get(header)) for row in rows]
        there = [value for value in values if value is not None]
        numbers = bool(there) and all(isinstance(v, Real) and not isinstance(v, bool) for v in there)
        columns.append({"header": str(header), "is_number": numbers})
    cells = [[{"text": shown(row.get(h)), "key": _key(row.get(h))} for h in headers] for row in rows]
    return {"name": name, "columns": columns, "rows": cells}


def shown(value: Any) -> str:
    """The text of a value: numbers to four digits, yes or no, a dash if it is missing."""
    value = _scalar(value)
    if value is None:
        return _MISSING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Integral):
        return f"{value:,}"
    if isinstance(value, Real):
        return f"{value:.4g}"
    if isinstance(value, Mapping):
        return ", ".join(f"{key}: {shown(one)}" for key, one in value.items())
    if isinstance(value, (list, tuple)):
        return ", ".join(shown(one) for one in value)
    return str(value)


def svg_image(figure: Any) -> str:
    """A matplotlib figure as an SVG image in a data address.

    An image has its own names and styles, so two of them cannot interfere.
    """
    import matplotlib
    from matplotlib import pyplot

    buffer = io.BytesIO()
    with matplotlib.rc_context({"svg.hashsalt": "trimreg"}):
        figure.savefig(buffer, format="svg", metadata={"Date": None}, bbox_inches="tight")
    pyplot.close(figure)
    return "data:image/svg+xml;base64," + base64.b64encode(buffer.getvalue()).decode()


# -- parts ------------------------------------------------------------------------------------------------


def _scalar(value):
    """A NumPy scalar or array as Python's own type; None for NaN."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    return None if isinstance(value, float) and math.isnan(value) else value


def _key(value):
    """The sorting key of a cell: all digits of a number, or the text."""
    value = _scalar(value)
    if value is None:
        return ""
    return repr(float(value)) if isinstance(value, Real) else shown(value)


def _policy(scripts):
    digests = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in scripts]
    hashes = " ".join(f"'sha256-{digest}'" for digest in digests)
    return (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data: blob:; "
        "base-uri 'none'; form-action 'none'"
    )


def _environment():
    jinja2 = _need("jinja2")
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(_file), autoescape=True, undefined=jinja2.StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    environment.filters["paragraphs"] = lambda text: [p for p in str(text).split("\n\n") if p.strip()]
    environment.filters["shown"] = shown
    return environment


def _need(module):
    try:
        return import_module(module)
    except ImportError as error:
        package = module.split(".")[0]
        raise ImportError(
            f"reports need {package}, which cannot be imported ({error}); pip install 'trimreg[report]'"
        ) from error


@cache
def _file(name: str) -> str:
    return resources.files(__package__).joinpath("templates", name).read_text(encoding="utf-8").strip()


@cache
def _plotly() -> str:
    return _need("plotly.offline").get_plotlyjs().strip()


@cache
def _packed_plotly() -> str:
    """The library, compressed: two megabytes instead of five. The script of the page unpacks it."""
    return base64.b64encode(gzip.compress(_plotly().encode(), mtime=0)).decode()

"""A table of names and columns as text, HTML or LaTeX. Names may be any text and are always escaped."""

from __future__ import annotations

import html
import re
import unicodedata
from numbers import Integral, Real
from typing import Any, NamedTuple

NARROWEST = 40  # columns of text that always fit a name, a number and "…"
LEAST_NAME = 8  # letters of a name that are always shown
GAP = "  "
_CSS = (
    ".trimreg-summary table{border-collapse:collapse;font-variant-numeric:tabular-nums}"
    ".trimreg-summary caption{text-align:left;font-weight:bold}"
    ".trimreg-summary th,.trimreg-summary td{padding:.15em .8em;text-align:right}"
    ".trimreg-summary .text{text-align:left}"
    ".trimreg-summary thead th{border-bottom:1px solid currentColor}"
    ".trimreg-summary p{margin:.2em 0;font-size:.9em}"
)
_SMALL = (
    "αβγδεζηθικλμνξπρστυφχψω",
    r"\alpha \beta \gamma \delta \epsilon \zeta \eta \theta \iota \kappa \lambda \mu \nu \xi \pi \rho "
    r"\sigma \tau \upsilon \phi \chi \psi \omega",
)
_CAPITAL = "ΓΔΘΛΞΠΣΥΦΨΩ", r"\Gamma \Delta \Theta \Lambda \Xi \Pi \Sigma \Upsilon \Phi \Psi \Omega"
_LATEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\symbol{34}",
    "…": r"\dots{}",
    "\N{REPLACEMENT CHARACTER}": "?",
    **{letter: "\\" + letter for letter in "{}$&#%_"},
    **{letter: "{" + letter + "}" for letter in "[]*"},  # at the start of a row these would be options
    **{letter: "{}" + letter + "{}" for letter in "-'`,"},  # two of these would join into one sign
    **{
        a: f"${b}$"
        for letters, names in (_SMALL, _CAPITAL)
        for a, b in zip(letters, names.split(), strict=True)
    },
}


class Table(NamedTuple):
    """The parts of a table: ``columns`` maps headers to lists of entries; ``rest`` is the last row."""

    title: str
    facts: dict
    names: list
    columns: dict
    rest: str = ""


# -- text -----------------------------------------------------------------------------------------------


def to_text(table: Table, width: int) -> str:
    """The table as text with no line longer than ``width``.

    If necessary, names are shortened, and then columns in the middle are left out; the last line says how
    many.
    """
    blocks = [_column(cut(one_line(header), 20), values) for header, values in table.columns.items()]
    kept, left_out = _fitting(blocks, width)
    room = max(LEAST_NAME, width - _total(kept))
    names = [cut(one_line(name), room) for name in ["name", *table.names]]
    lines = [_pad(name, max(map(display_width, names))) for name in names]
    for block in kept:
        lines = [left + GAP + right for left, right in zip(lines, block, strict=True)]
    lines.insert(1, "-" * display_width(lines[0]))
    rest = [table.rest] if table.rest else []
    rest += [f"… {left_out} more columns"] if left_out else []
    head = [cut(one_line(table.title), width)] if table.title else []
    head += _fact_lines(table.facts, width)
    return "\n".join(line.rstrip() for line in [*head, *[""] * bool(head), *lines, *rest])


def one_line(text: str) -> str:
    """The text without characters that move the cursor or change direction; line ends become spaces."""
    turns = "\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
    for old in "\r\n", *"\t\n\r\v\f\x85\u2028\u2029":
        text = text.replace(old, " ")
    bad = [c in turns or unicodedata.category(c) in ("Cc", "Cs") for c in text]
    return "".join("\N{REPLACEMENT CHARACTER}" if is_bad else c for c, is_bad in zip(text, bad, strict=True))


def display_width(text: str) -> int:
    """The number of terminal columns: two for a wide character, none for a combining mark."""
    return sum(
        0 if unicodedata.category(c) in ("Mn", "Me", "Cf") else 1 + (unicodedata.east_asian_width(c) in "WF")
        for c in text
    )


def cut(text: str, width: int) -> str:
    """The text in at most ``width`` columns, with "…" in place of its middle.

    The end stays, because related names often differ only there.
    """
    if display_width(text) <= width:
        return text
    left, right = "", ""
    while True:  # letters from the front and the back in turn, while they fit
        at_front = len(left) <= len(right)
        letter = text[len(left)] if at_front else text[-len(right) - 1]
        if display_width(left + letter + right) > width - 1:
            return left + "…" + right
        left, right = (left + letter, right) if at_front else (left, letter + right)


def cell(value: Any, form: str = "#.4g") -> str:
    """A value as text: floats with four significant digits, integers in full, None empty."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Real) and not isinstance(value, Integral):
        return "0" if value == 0 else format(float(value), form).removesuffix(".")
    return one_line(str(value))


def fact(value: Any) -> str:
    """A fact as text: like a cell but without trailing zeros; at most six entries of a list or dict."""
    if isinstance(value, dict):
        parts = [f"{one_line(key)} {fact(entry)}" for key, entry in value.items()]
    elif isinstance(value, list):
        parts = [fact(entry) for entry in value]
    else:
        return cell(value, ".4g")
    return ", ".join(parts[:6] + ([f"… {len(parts) - 6} more"] if len(parts) > 6 else []))


def is_text(values: list) -> bool:
    """Whether a column is aligned to the left."""
    return any(isinstance(value, (str, bool)) for value in values)


def _pad(text, width, right=False):
    space = " " * (width - display_width(text))
    return space + text if right else text + space


def _column(header, values):
    """Header and cells of one width: text to the left, numbers aligned at their decimal points."""
    cells = [cut(cell(value), 24) for value in values]
    to_right = not is_text(values)
    if to_right:
        wholes = [text.partition(".")[0] for text in cells]
        left = max(map(len, wholes), default=0)
        cells = [" " * (left - len(whole)) + text for whole, text in zip(wholes, cells, strict=True)]
        cells = [text.ljust(max(map(len, cells))) for text in cells]
    width = max(map(display_width, [header, *cells]))
    return [_pad(text, width, to_right) for text in [header, *cells]]


def _total(blocks):
    return sum(len(GAP) + display_width(block[0]) for block in blocks)


def _fitting(blocks, width):
    """The columns that fit beside short names, with "…" for those left out, and the number left out."""
    for count in range(len(blocks), 0, -1):
        left_out = len(blocks) - count
        gone = [["…"] * len(blocks[0])] if left_out else []
        kept = blocks[: count - count // 2] + gone + blocks[len(blocks) - count // 2 :]
        if LEAST_NAME + _total(kept) <= width:
            return kept, left_out
    return [], len(blocks)


def _fact_lines(facts, width):
    """Facts in two columns, or in one if two do not fit; a fact too long for a line is shortened."""
    parts = [f"{one_line(key)}: {fact(value)}" for key, value in facts.items()]
    half = (len(parts) + 1) // 2
    edge = max(map(display_width, parts[:half]), default=0) + 2 * len(GAP)
    seconds = [*parts[half:], ""][:half]
    pairs = [_pad(left, edge) + right for left, right in zip(parts[:half], seconds, strict=True)]
    if len(parts) > 1 and all(display_width(line.rstrip()) <= width for line in pairs):
        return pairs
    return [cut(part, width) for part in parts]


# -- HTML -----------------------------------------------------------------------------------------------


def to_html(table: Table) -> str:
    """The table as an HTML fragment with its own style; all text is escaped."""
    kinds = [' class="text"' if is_text(values) else "" for values in table.columns.values()]
    heads = [f"<th{kind}>{_escape(text)}</th>" for kind, text in zip(kinds, table.columns, strict=True)]
    rows = []
    for name, *values in zip(table.names, *table.columns.values(), strict=True):
        cells = [f"<td{kind}>{_escape(cell(value))}</td>" for kind, value in zip(kinds, values, strict=True)]
        rows.append(f'<tr><th class="text">{_escape(name)}</th>{"".join(cells)}</tr>')
    if table.rest:
        rows.append(f'<tr><td class="text" colspan="{len(heads) + 1}">{_escape(table.rest)}</td></tr>')
    facts = "; ".join(f"{key}: {fact(value)}" for key, value in table.facts.items())
    lines = [
        f'<div class="trimreg-summary"><style>{_CSS}</style>',
        f"<p>{_escape(facts)}</p>" if facts else "",
        "<table>",
        f"<caption>{_escape(table.title)}</caption>" if table.title else "",
        f'<thead><tr><th class="text">name</th>{"".join(heads)}</tr></thead>',
        "<tbody>",
        *rows,
        "</tbody></table>",
        "</div>",
    ]
    return "\n".join(line for line in lines if line)


def _escape(text):
    return html.escape(one_line(text))


# -- LaTeX ----------------------------------------------------------------------------------------------


def to_latex(table: Table, label: str | None = None) -> str:
    r"""The table as LaTeX with booktabs; title and facts are its caption."""
    kinds = "l" + "".join("l" if is_text(values) else "r" for values in table.columns.values())
    rows = [
        " & ".join([latex(name), *map(_latex_cell, values)])
        for name, *values in zip(table.names, *table.columns.values(), strict=True)
    ]
    if table.rest:
        rows.append(rf"\multicolumn{{{len(kinds)}}}{{l}}{{{latex(table.rest)}}}")
    facts = "; ".join(f"{key}: {fact(value)}" for key, value in table.facts.items())
    caption = ". ".join(latex(text) for text in (table.title, facts) if text)
    lines = [
        r"\begin{table}",
        r"\centering",
        rf"\caption{{{caption}}}" if caption else "",
        rf"\label{{{label}}}" if label is not None else "",
        rf"\begin{{tabular}}{{{kinds}}}",
        r"\toprule",
        " & ".join(["name", *map(latex, table.columns)]) + r" \\",
        r"\midrule",
        *(row + r" \\" for row in rows),
        r"\bottomrule",
        r"\end{tabular}",
        r"\end{table}",
    ]
    return "\n".join(line for line in lines if line)


def latex(text: str) -> str:
    r"""The text with all special characters of LaTeX escaped; Greek letters become commands."""
    return "".join(_LATEX.get(letter, letter) for letter in one_line(text))


def _latex_cell(value):
    text = cell(value)
    number = re.fullmatch(r"(-?[\d.]+)(?:e([+-]\d+))?", text)
    if isinstance(value, str) or not number:
        return latex(text)
    return f"${number[1]}$" if number[2] is None else rf"${number[1]} \times 10^{{{int(number[2])}}}$"

"""The renderings of a table: widths, alignment, and names of any kind."""

import html
import re
from html.parser import HTMLParser

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trimreg.estimators.rendering import cell, cut, display_width, latex, one_line
from trimreg.estimators.summary import EMPTY_MODEL, Summary, summarize

REPEATABLE = settings(max_examples=80, deadline=None, derandomize=True, database=None)


def table_lines(text):
    """Header and rows of a text table, without what stands above and below."""
    lines = text.splitlines()
    rule = next(i for i, line in enumerate(lines) if set(line) == {"-"})
    return [lines[rule - 1], *lines[rule + 1 :]], len(lines[rule])


class Cells(HTMLParser):
    """Tags seen, and the text of every cell."""

    def __init__(self, source):
        super().__init__(convert_charrefs=True)
        self.tags, self.open, self.rows = [], [], []
        self.feed(source)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] in ("td", "th"):
            self.rows[-1][-1] += data


# -- numbers --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"), (-0.0, "0"), (2.0, "2.000"), (-0.25, "-0.2500"), (12345.6, "1.235e+04"), (1234.4, "1234"),
        (9999.9, "1.000e+04"), (1e-5, "1.000e-05"), (1e-300, "1.000e-300"), (12345, "12345"), (None, ""),
        (True, "yes"), (False, "no"), (np.inf, "inf"), (np.nan, "nan"), ("free", "free"), ("1.50", "1.50"),
        (np.float32(0.1), "0.1000"), (np.int64(7), "7"),
    ],
)  # fmt: skip
def test_numbers_have_four_significant_digits(value, text):
    assert cell(value) == text


@given(st.floats(1e-300, 1e300), st.sampled_from([-1, 1]))
@REPEATABLE
def test_a_number_reads_back_to_four_digits(size, sign):
    assert float(cell(sign * size)) == pytest.approx(sign * size, rel=5.001e-4, abs=0)


def test_points_stand_below_one_another():
    coef = [12.5, -0.25, 3.0, 1234.0, -1e-7]
    (header, *rows), _ = table_lines(summarize(list("abcde"), coef).to_text(60))
    whole = {row.split()[1]: row for row in rows}
    ends = {row.index(".") for text, row in whole.items() if "." in text}
    assert len(ends) == 1
    assert whole["1234"].index("1234") + 4 == ends.pop()
    assert header.split() == ["name", "coef"]


# -- text -----------------------------------------------------------------------------------------------


@given(
    st.lists(st.text(max_size=60), max_size=8),
    st.integers(40, 120),
    st.integers(0, 9),
    st.integers(0, 2**32 - 1),
)
@REPEATABLE
def test_no_line_is_too_long_and_all_rows_are_aligned(names, width, outputs, seed):
    rng = np.random.default_rng(seed)
    p = len(names)
    coef = rng.standard_normal((p, outputs + 1)) * 10.0 ** rng.uniform(-9, 9, (p, 1))
    table = summarize(
        names, coef, coef, rng.integers(0, 9, p), rng.integers(0, 2, p), title="t" * 130,
        groups=[name[::-1] for name in names], facts={"loss " + "y" * 50: "z" * 90, "h": 3},
    )  # fmt: skip
    text = table.to_text(width)
    assert max(display_width(line) for line in text.split("\n")) <= width
    lines, rule = table_lines(text)
    assert "coef[0]" in lines[0]
    assert max(map(display_width, lines[: p + 1])) <= rule <= width
    statuses = {display_width(line[: line.rindex(word)]) for line in lines[1 : p + 1]
                for word in ("free", "penalized") if line.endswith(word)}  # fmt: skip
    assert len(statuses) <= 1
    if p and outputs < 1:
        assert len(statuses) == (1 if "status" in lines[0] else 0)


def test_narrow_text_keeps_the_first_columns_and_the_last_and_says_what_is_missing():
    coef = np.arange(1.0, 31.0).reshape(3, 10)
    table = summarize(list("abc"), coef, coef, order=[1, 2, 3], weights=[0, 0, 1])
    header = table_lines(table.to_text(60))[0][0].split()
    at = header.index("…")
    assert header[:at] == ["name", *list(table.columns)[: at - 1]]
    assert header[at + 1 :] == list(table.columns)[at + 1 - len(header) :]
    assert table.to_text(60).splitlines()[-1] == f"… {13 - (len(header) - 2)} more columns"
    assert "…" not in table.to_text(200)


def test_the_width_of_the_terminal_is_the_default(monkeypatch):
    monkeypatch.setenv("COLUMNS", "50")
    table = summarize(["n" * 90], [1.0])
    assert str(table) == repr(table) == table.to_text(50)
    assert max(map(len, str(table).splitlines())) == 50
    monkeypatch.setenv("COLUMNS", "7")
    assert str(table) == table.to_text(40)


@pytest.mark.parametrize("width", [39, 0, -1, 50.5, "wide"])
def test_text_refuses_a_width(width, small):
    with pytest.raises(ValueError, match="width must be an integer >= 40"):
        small().to_text(width)


@given(st.text(max_size=40), st.integers(1, 30))
@REPEATABLE
def test_cut_keeps_both_ends_and_the_width(text, width):
    text = one_line(text)
    short = cut(text, width)
    assert display_width(short) <= width
    if display_width(text) <= width:
        assert short == text
    else:
        left, _, right = short.partition("…") if "…" not in text else ("", "", "")
        assert text.startswith(left)
        assert text.endswith(right)
        assert "…" in short


def test_cut_takes_as_little_as_it_can():
    assert cut("abcdefghij", 10) == "abcdefghij"
    assert cut("abcdefghij", 9) == "abcd…ghij"
    assert cut("体重体重体重", 7) == "体重…重"
    assert cut("体重体重体重", 6) == "体…重"
    assert cut("abc", 1) == "…"


def test_wide_letters_and_combining_marks_are_measured():
    assert display_width("e\u0301te\u0301") == 3
    lines, _ = table_lines(summarize(["体重", "e\u0301", "bmi"], [3.0, 2.0, 1.0]).to_text(60))
    assert {display_width(line) for line in lines} == {11}


def test_nothing_in_a_name_moves_the_cursor():
    text = summarize(["a\nb\r\nc\x1b[2J\u202ed\ud800"], [1.0]).to_text(60)
    assert text.splitlines()[-1].startswith("a b c\ufffd[2J\ufffdd\ufffd")
    text.encode("utf-8")


# -- HTML -----------------------------------------------------------------------------------------------


def test_html_holds_the_table(small):
    page = Cells(small(title="TrimmedLasso", facts={"h": 2}).to_html())
    assert page.rows == [
        ["name", "coef", "standardized", "order", "status"],
        ["bmi", "3.000", "9.000", "1", "free"],
        ["sex", "-12.50", "-6.250", "2", "free"],
        ["map", "0.2500", "0.5000", "3", "penalized"],
        ["tc", "7.000", "1.000", "", "free"],
    ]
    assert page.tags.count("table") == page.tags.count("caption") == 1
    assert page.tags.count("p") == 1


@given(st.lists(st.text(max_size=20), min_size=1, max_size=5))
@REPEATABLE
def test_html_escapes_every_text(texts):
    first = "<script>&\"'" + texts[0]
    how = {"title": first, "facts": {first: first}, "groups": [first] * len(texts)}
    table = summarize(texts, np.arange(len(texts), 0, -1.0), **how)
    page = Cells(table.to_html())
    assert set(page.tags) <= {"div", "style", "p", "table", "caption", "thead", "tbody", "tr", "th", "td"}
    assert [row[0] for row in page.rows[1:]] == [one_line(text) for text in texts]
    assert table.to_html().count(html.escape(one_line(first))) >= 3 + len(texts)
    multi = Cells(summarize(["a"], [[1.0]], outputs=[first]).to_html())
    assert multi.rows[0][1] == f"coef[{one_line(first)}]"


def test_notebooks_get_html(small):
    assert small()._repr_html_() == small().to_html()


# -- LaTeX ----------------------------------------------------------------------------------------------


def read_back(source):
    """What LaTeX would set for our escapes; anything that is still special is an error."""
    words = {
        r"\textbackslash{}": "\\", r"\textasciitilde{}": "~", r"\textasciicircum{}": "^", r"\textless{}": "<",
        r"\textgreater{}": ">", r"\textbar{}": "|", r"\symbol{34}": '"', r"\dots{}": "…", r"$\beta$": "β",
        "{[}": "[", "{]}": "]", "{*}": "*",
    }  # fmt: skip
    out, i = "", 0
    while i < len(source):
        word = next((word for word in words if source.startswith(word, i)), None)
        if word:
            out, i = out + words[word], i + len(word)
        elif source[i] == "\\":
            assert source[i + 1] in "{}$&#%_", source
            out, i = out + source[i + 1], i + 2
        elif source.startswith("{}", i):
            i += 2
        else:
            assert source[i] not in '{}$&#%_~^<>|"[]*\n', source
            out, i = out + source[i], i + 1
    return out


@given(st.text(st.sampled_from(list("ab1 -,'`\\{}$&#%_~^<>|\"[]*…β")), max_size=30))
@REPEATABLE
def test_latex_sets_the_text_that_was_given(text):
    assert read_back(latex(text)) == text
    assert not re.search(r"--|''|``|,,|[?!]`", latex(text))  # signs that fonts join


def test_latex_writes_greek_letters_as_commands():
    assert latex("βΔλΛ") == r"$\beta$$\Delta$$\lambda$$\Lambda$"
    assert latex("naïve 体\x00") == "naïve 体?"


def test_latex_is_a_table_with_the_rules_of_booktabs(small):
    source = small(title="T_1", facts={"h": 2, "loss": "a&b"}).to_latex(label="tab:one")
    assert source.splitlines() == [
        r"\begin{table}",
        r"\centering",
        r"\caption{T\_1. h: 2; loss: a\&b}",
        r"\label{tab:one}",
        r"\begin{tabular}{lrrrl}",
        r"\toprule",
        r"name & coef & standardized & order & status \\",
        r"\midrule",
        r"bmi & $3.000$ & $9.000$ & $1$ & free \\",
        r"sex & $-12.50$ & $-6.250$ & $2$ & free \\",
        r"map & $0.2500$ & $0.5000$ & $3$ & penalized \\",
        r"tc & $7.000$ & $1.000$ &  & free \\",
        r"\bottomrule",
        r"\end{tabular}",
        r"\end{table}",
    ]


def test_latex_numbers_and_words_that_look_like_numbers():
    table = Summary("", {}, list("abcd"), {"x": [1e-7, -2.5e12, np.inf, 0.0], "y": ["1e5", "-1", "x", ""]})
    rows = table.to_latex().splitlines()[6:10]
    assert rows[0] == r"a & $1.000 \times 10^{-7}$ & 1e5 \\"
    assert rows[1] == r"b & $-2.500 \times 10^{12}$ & {}-{}1 \\"
    assert rows[2:] == [r"c & inf & x \\", r"d & $0$ &  \\"]


def test_every_row_of_latex_has_as_many_cells_as_there_are_columns(odd):
    coef = np.arange(1.0, len(odd) + 1)
    source = summarize(odd, coef, coef, groups=odd, weights=coef).to_latex()
    rows = [line for line in source.splitlines() if line.endswith(r" \\")]
    assert len(rows) == len(odd) + 1
    assert {len(re.findall(r"(?<!\\)&", row)) for row in rows} == {4}
    assert source.count(r"\end{table}") == 1
    assert not any(row.startswith(("[", "*")) for row in rows)  # options of the row before


# -- long and empty tables ------------------------------------------------------------------------------


@pytest.mark.parametrize("render", [lambda t: t.to_text(60), Summary.to_html, lambda t: t.to_latex()])
def test_long_tables_say_how_many_rows_are_left_out(render):
    def drawn(max_rows):
        return render(summarize([f"v{j}" for j in range(60)], np.arange(60, 0, -1.0), max_rows=max_rows))

    assert len(re.findall(r"\bv\d", drawn(20))) == 20
    assert re.search(r"(…|\\dots\{\}) 40 more", drawn(20))
    assert "v19" in drawn(20)
    assert "v20" not in drawn(20)
    for max_rows in (60, 61, None):
        assert len(re.findall(r"\bv\d", drawn(max_rows))) == 60
        assert " more" not in drawn(max_rows)
    assert len(summarize(None, np.ones(60), max_rows=20).to_frame()) == 60


@pytest.mark.parametrize("coef", [np.zeros(6), np.zeros((6, 3)), np.zeros(0)])
def test_an_empty_model_says_so(coef):
    p = coef.shape[0]
    names = list("abcdef")[:p]
    table = summarize(names, coef, coef, order=[-1] * p, weights=np.ones(p), groups=[0] * p, title="T")
    assert len(table) == 0
    assert table.to_text(80).splitlines()[-1] == EMPTY_MODEL
    assert Cells(table.to_html()).rows[-1] == [EMPTY_MODEL]
    assert rf"\multicolumn{{{len(table.columns) + 1}}}{{l}}{{{EMPTY_MODEL}}} \\" in table.to_latex()
    assert list(table.to_frame().columns) == list(table.columns)
    assert table.to_dict()["names"] == []

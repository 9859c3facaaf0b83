"""What all commands share: help, lines, files, numbers for JSON."""

import io
import json
import sys

import numpy as np
import pytest

from trimreg.cli import app, main
from trimreg.cli.common import (
    BadInput,
    check_outputs,
    displayable,
    parse_alpha,
    parse_h,
    picture_bytes,
    write_json,
)
from trimreg.estimators.columns import listed

COMMANDS = [
    command.name or command.callback.__name__.replace("_", "-") for command in app.registered_commands
]


def test_there_is_help_with_examples_for_every_command(call):
    names = ["demo", "fit", "graph", "path", "predict", "report", "reproduce", "verify-certificate"]
    assert sorted(COMMANDS) == names
    for name in COMMANDS:
        answer = call(name, "--help")
        assert answer.exit_code == 0
        assert "Examples:" in answer.output
        assert f"  trimreg {name}" in answer.output
        assert "Exit status: 0" in answer.output
        assert f"trimreg {name}" in call("--help").output


def test_what_h_and_alpha_may_be():
    assert [parse_h(text) for text in ("auto", "0", "12", ".5")] == ["auto", 0, 12, 0.5]
    assert [parse_alpha(text) for text in ("exact", "auto", "0", "1e-3")] == ["exact", "auto", 0.0, 1e-3]
    for text in ("", "1.0", "nan", "inf", "-0.5", "exact"):
        with pytest.raises(BadInput, match="--h must be"):
            parse_h(text)
    for text in ("", "-1", "nan", "inf", "1,5"):
        with pytest.raises(BadInput, match="--alpha must be"):
            parse_alpha(text)


def test_json_holds_no_numpy_and_no_nan(tmp_path):
    content = {
        "a": np.float64(np.nan),
        "b": [np.int64(1), np.inf],
        "c": np.array([[True]]),
        "d": None,
        5: "é",
    }
    write_json(tmp_path / "x.json", content)
    expected = {"a": None, "b": [1, None], "c": [[True]], "d": None, "5": "é"}
    assert json.loads((tmp_path / "x.json").read_text(encoding="utf-8")) == expected


def test_names_are_quoted_so_that_they_cannot_move_the_cursor():
    assert listed(["a\x1b[31m", "b"]) == "'a\\x1b[31m', 'b'"


def test_checking_outputs_leaves_what_is_there(tmp_path):
    (tmp_path / "x.json").write_text("old")
    check_outputs(json=tmp_path / "x.json", report=tmp_path / "new" / "y.html")
    assert (tmp_path / "x.json").read_text() == "old"
    assert list((tmp_path / "new").iterdir()) == []


def test_checking_outputs_touches_no_other_file(tmp_path):
    (tmp_path / ".trimreg-probe").write_text("mine")
    check_outputs(json=tmp_path / "x.json")
    assert (tmp_path / ".trimreg-probe").read_text() == "mine"


def test_a_full_disk_is_one_line(call, table, tmp_path, monkeypatch):
    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("trimreg._files.os.fsync", full)
    out = tmp_path / "m.json"
    answer = call("fit", table("y"), "--target", "y", "--h", "1", "--json", out)
    assert answer.exit_code == 2
    assert answer.stderr.splitlines()[-1].startswith("error: a file cannot be read or written: No space left")
    assert str(out) in answer.stderr
    assert not out.exists()


@pytest.mark.parametrize("kind", ["svg", "png", "pdf"])
def test_equal_figures_are_equal_files(kind):
    from matplotlib.figure import Figure

    def drawn():
        figure = Figure()
        ax = figure.subplots()
        ax.fill_between([0, 1], [0, 1], [1, 2], hatch="/")
        ax.set_xlim(0.2, 0.8)  # a clip path, whose name would be random
        return picture_bytes(figure, kind)

    assert drawn() == drawn()


def test_names_beyond_the_letters_of_the_terminal_do_not_end_a_command(table, tmp_path, monkeypatch):
    name = "größe\u2013\u03b1"
    path = table("y", change=lambda frame: frame.rename(columns={"a": name}))
    command = ["path", path, "--target", "y", "--max-h", "1", "--out", tmp_path / f"{name}.csv"]
    terminal = io.BytesIO()
    monkeypatch.setattr(sys, "argv", ["trimreg", *map(str, command)])
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(terminal, encoding="ascii"))
    with pytest.raises(SystemExit) as ended:
        main()
    sys.stdout.flush()
    assert ended.value.code == 0
    assert terminal.getvalue().count(b"gr??e??") == 2  # in the table, and in the name of the file
    assert name in (tmp_path / f"{name}.csv").read_text(encoding="utf-8")


def test_letters_that_are_there_are_printed_as_they_are():
    assert displayable("größe", io.TextIOWrapper(io.BytesIO(), encoding="utf-8")) == "größe"
    assert displayable("größe", io.TextIOWrapper(io.BytesIO(), encoding="latin-1")) == "größe"
    assert displayable("größe", io.TextIOWrapper(io.BytesIO(), encoding="ascii")) == "gr??e"

"""Bars, lines and silence."""

import io
import sys

import numpy as np
import pytest

from trimreg.selection.progress import _timed_lines, progress


def lines_of(capsys, total, verbose, counts):
    with progress(total, "folds", verbose) as advance:
        for count in counts:
            advance(count)
    out, err = capsys.readouterr()
    assert out == ""
    return err.splitlines()


def test_silence(capsys):
    assert lines_of(capsys, 5, 0, [1] * 5) == []
    assert lines_of(capsys, 5, False, [1] * 5) == []
    assert lines_of(capsys, 0, 1, []) == []


def test_short_work_leaves_nothing_in_a_log(capsys):
    assert lines_of(capsys, 40, 1, [1] * 40) == []
    assert lines_of(capsys, 2, True, [1] * 2) == []


def test_a_line_for_every_piece(capsys):
    assert lines_of(capsys, 25, 2, [1] * 25) == [f"folds: {k}/25" for k in range(1, 26)]


def test_several_pieces_at_once(capsys):
    assert lines_of(capsys, 40, 2, [3, 30, 7]) == ["folds: 3/40", "folds: 33/40", "folds: 40/40"]


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_bar_on_a_terminal(monkeypatch):
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("TERM", "xterm")
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)
    with progress(7, "some [bold] work", 1) as advance:
        for _ in range(7):
            advance()
    assert "some [bold] work" in screen.getvalue()
    assert "7/7" in screen.getvalue()
    assert screen.getvalue().endswith("\x1b[2K")  # the bar is wiped away


@pytest.mark.parametrize("verbose", [-1, "loud", None, np.nan])
def test_verbose_is_checked(verbose):
    with pytest.raises(ValueError, match="verbose"), progress(3, "folds", verbose):
        pass


def test_lines_of_long_work_tell_the_time_left(capsys):
    times = iter([0.0, 1.0, 6.0, 7.0, 300.0, 400.0])
    advance = _timed_lines(10, "cells", 5.0, clock=lambda: next(times))
    for count in (1, 1, 1, 2, 5):
        advance(count)
    assert capsys.readouterr().err.splitlines() == [
        "cells: 2/10, about 24 s left",
        "cells: 5/10, about 5 min 0 s left",
        "cells: 10/10, took 6 min 40 s",
    ]

"""What the commands share: how they end, what they print, where they write."""

from __future__ import annotations

import sys
import warnings
from contextlib import contextmanager
from pathlib import Path

import typer

from .._files import BadInput, write_atomically

# -- how a command ends ---------------------------------------------------------------------------------


@contextmanager
def exit_codes(*bad_input: type[Exception], interrupted=None):
    """Bad input ends with status 2 and one line that says what to change; Ctrl-C with 130.

    Parameters
    ----------
    *bad_input : exception types
        Beside :class:`BadInput`.
    interrupted : callable, optional
        Gives the line to print after an interrupt; it says what was kept.
    """
    try:
        yield
    except (BadInput, *bad_input) as error:
        say(f"error: {one_line(error)}", err=True)
        raise typer.Exit(2) from None
    except KeyboardInterrupt:
        say("interrupted" if interrupted is None else interrupted(), err=True)
        raise typer.Exit(130) from None


@contextmanager
def refused_as_bad_input(what=""):
    """A ``ValueError`` of the library's own checks becomes :class:`BadInput`; warnings become lines.

    It is put around a call that checks its arguments, and nothing else: mistakes of our own stay what they
    are.

    Examples
    --------
    >>> from trimreg.cli.common import refused_as_bad_input
    >>> with refused_as_bad_input("the fit"):
    ...     raise ValueError("h must be at most 3")
    Traceback (most recent call last):
        ...
    trimreg.cli.common.BadInput: the fit: h must be at most 3
    """
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            yield
        except BadInput:
            raise
        except ValueError as error:
            raise BadInput(f"{what}: {error}" if what else str(error)) from None
    for text in dict.fromkeys(one_line(warning.message) for warning in caught):
        say(f"warning: {text}", err=True)


# -- printing -------------------------------------------------------------------------------------------


def one_line(text) -> str:
    """The text with runs of white space, line breaks too, as single spaces.

    Examples
    --------
    >>> from trimreg.cli.common import one_line
    >>> one_line("no\\n  table")
    'no table'
    """
    return " ".join(str(text).split())


def say(text, err: bool = False) -> None:
    """Print a line, in letters that the terminal has."""
    typer.echo(displayable(text, sys.stderr if err else sys.stdout), err=err)


def displayable(text, stream) -> str:
    """The text with question marks for letters that the stream does not have.

    Names of columns may hold anything, and a name must not end a command.
    """
    encoding = getattr(stream, "encoding", None) or "utf-8"
    return str(text).encode(encoding, errors="replace").decode(encoding)


def note(text) -> None:
    """Something the user should know of what was done to the data; on standard error."""
    say(f"note: {one_line(text)}", err=True)


def print_table(title: str, columns: list[tuple[str, str]], rows: list[list[str]]) -> None:
    """A table of text; ``columns`` are pairs of a heading and ``"left"`` or ``"right"``."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, pad_edge=False)
    for place, (name, justify) in enumerate(columns, start=1):
        # Where the terminal is narrow, text at the end of a row goes on below; other cells stay whole.
        wrapped = place == len(columns) and justify == "left"
        table.add_column(name, justify=justify, no_wrap=not wrapped)
    for row in rows:
        # Text, for brackets in names are no markup
        table.add_row(*(Text(displayable(entry, sys.stdout)) for entry in row))
    Console().print(table)


@contextmanager
def announcer(total: int):
    """A function to announce stages with: a bar on a terminal, a line each elsewhere."""
    from rich.console import Console

    console = Console(stderr=True)
    if not console.is_terminal:
        done = 0

        def line(stage: str) -> None:
            nonlocal done
            done += 1
            typer.echo(f"[{done}/{total}] {stage}", err=True)

        yield line
        return

    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (BarColumn(24), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("", total=total)
        started = False

        def advance(stage: str) -> None:
            nonlocal started
            bar.update(task, description=stage, advance=1 if started else 0)
            started = True

        yield advance


# -- options --------------------------------------------------------------------------------------------


def parse_h(text: str):
    """``"auto"``, an int, or a fraction in (0, 1).

    Examples
    --------
    >>> from trimreg.cli.common import parse_h
    >>> parse_h("10"), parse_h("0.2"), parse_h("auto")
    (10, 0.2, 'auto')
    """
    if text == "auto":
        return text
    try:
        return int(text)
    except ValueError:
        pass
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 < value < 1:
        raise BadInput(f"--h must be auto, a whole number, or a fraction between 0 and 1; got {text!r}")
    return value


def parse_alpha(text: str):
    """``"exact"``, ``"auto"`` or a number >= 0.

    Examples
    --------
    >>> from trimreg.cli.common import parse_alpha
    >>> parse_alpha("exact"), parse_alpha("0.1")
    ('exact', 0.1)
    """
    if text in ("exact", "auto"):
        return text
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise BadInput(f"--alpha must be exact, auto or a number >= 0; got {text!r}")
    return value


def check_count(h, most: int, what: str, option: str = "--h") -> None:
    """:class:`BadInput` if h is a number of things and there are not so many."""
    if isinstance(h, int) and not 0 <= h <= most:
        raise BadInput(f"{option} must be from 0 to {most}, the number of {what}; got {h}")


def check_choice(option: str, value, allowed) -> None:
    """:class:`BadInput` unless the value is one of a few words.

    Examples
    --------
    >>> from trimreg.cli.common import check_choice
    >>> check_choice("--rule", "max", ["min", "1se"])
    Traceback (most recent call last):
        ...
    trimreg.cli.common.BadInput: --rule must be min or 1se; got 'max'
    """
    allowed = list(allowed)
    if value not in allowed:
        raise BadInput(f"{option} must be {', '.join(allowed[:-1])} or {allowed[-1]}; got {value!r}")


# -- files ----------------------------------------------------------------------------------------------


def check_outputs(**files) -> None:
    """:class:`BadInput` unless all files, by the name of their option, can be written. Before any work."""
    taken: dict[Path, str] = {}
    for option, file in files.items():
        if file is None:
            continue
        if Path(file).is_dir():
            raise BadInput(f"--{option} must name a file; {file} is a folder")
        place = Path(file).resolve()
        if place in taken:
            raise BadInput(f"--{taken[place]} and --{option} name the same file, {file}; change one of them")
        taken[place] = option
        try:
            write_atomically(Path(file).parent / ".trimreg-probe", b"").unlink()
        except OSError as error:
            folder = Path(file).parent
            raise BadInput(
                f"cannot write into {folder} ({error.strerror}); choose another place with --{option}"
            ) from None


def check_matplotlib(option: str) -> None:
    """:class:`BadInput` where nothing can be drawn."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise BadInput(f"{option} needs matplotlib: pip install 'trimreg[plot]'") from None


def write_text(path, text: str) -> None:
    """Write a whole file or none, and say so."""
    say(f"wrote {write_atomically(path, text.encode())}")


def write_json(path, content) -> None:
    """Write the content of a model as JSON."""
    from ..estimators.io import json_text

    write_text(path, json_text(content))


PICTURES = (".png", ".svg", ".pdf")


def check_picture(option: str, path) -> None:
    """:class:`BadInput` unless the file has the ending of a picture and matplotlib is there."""
    if path is None:
        return
    if Path(path).suffix.lower() not in PICTURES:
        raise BadInput(f"{option} must end in {', '.join(PICTURES)}; got {str(path)!r}")
    check_matplotlib(option)


def write_picture(figure, path) -> None:
    """Save a matplotlib figure in the format that the name of the file says."""
    import io

    kind = Path(path).suffix.lower().lstrip(".")
    # Without date and version the same picture is the same file.
    metadata = {"png": {"Software": None}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}[kind]
    buffer = io.BytesIO()
    figure.savefig(buffer, format=kind, dpi=150, metadata=metadata)
    say(f"wrote {write_atomically(path, buffer.getvalue())}")

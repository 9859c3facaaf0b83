"""What the commands share: exit statuses, printing, parsing of options, writing of files."""

from __future__ import annotations

import contextlib
import errno
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import typer

from .._files import BadInput, write_atomically

# -- exit statuses --------------------------------------------------------------------------------------


@contextmanager
def exit_codes(
    interrupted: Callable[[], str] = lambda: "interrupted; nothing was written",
) -> Iterator[None]:
    """Exit with status 2 and one line after bad input or a full disk, and with 130 after Ctrl-C.

    ``interrupted`` returns the line to print after an interrupt, which says what was kept.
    """
    try:
        yield
    except BadInput as error:
        say(f"error: {one_line(error)}", err=True)
        raise typer.Exit(2) from None
    except OSError as error:
        if error.errno == errno.EPIPE or error.strerror is None:
            raise  # the reader of a pipe has ended, which typer handles; or no error of a file
        where = "" if error.filename is None else f" ({error.filename})"
        say(f"error: a file cannot be read or written: {error.strerror}{where}", err=True)
        raise typer.Exit(2) from None
    except KeyboardInterrupt:
        say(interrupted(), err=True)
        raise typer.Exit(130) from None


@contextmanager
def refused_as_bad_input() -> Iterator[None]:
    """Turn a ``ValueError`` of the library's own checks into :class:`BadInput`, and warnings into lines.

    Put it around a call that checks its arguments and nothing else, so that bugs still show as such.
    """
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            yield
        except BadInput:
            raise
        except ValueError as error:
            raise BadInput(str(error)) from None
    for text in dict.fromkeys(one_line(warning.message) for warning in caught):
        say(f"warning: {text}", err=True)


# -- printing -------------------------------------------------------------------------------------------


def one_line(text: object) -> str:
    """The text with every run of white space, also line breaks, as a single space."""
    return " ".join(str(text).split())


def say(text: object, err: bool = False) -> None:
    """Print a line, in characters that the terminal has."""
    typer.echo(displayable(text, sys.stderr if err else sys.stdout), err=err)


def displayable(text: object, stream: Any) -> str:
    """The text with question marks for characters that the stream cannot encode.

    Names of columns can hold any character, and no name may make a command fail.
    """
    encoding = getattr(stream, "encoding", None) or "utf-8"
    return str(text).encode(encoding, errors="replace").decode(encoding)


def note(text: object) -> None:
    """Tell the user on standard error what was done to the data."""
    say(f"note: {one_line(text)}", err=True)


def print_table(title: str, columns: Sequence[tuple[str, Any]], rows: list[list[str]]) -> None:
    """Print a table of text; ``columns`` are pairs of a heading and ``"left"`` or ``"right"``."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, pad_edge=False)
    for place, (name, justify) in enumerate(columns, start=1):
        # In a narrow terminal, text at the end of a row is wrapped; other cells stay whole.
        wrapped = place == len(columns) and justify == "left"
        table.add_column(name, justify=justify, no_wrap=not wrapped)
    for row in rows:
        # Text, because brackets in names are not markup
        table.add_row(*(Text(displayable(entry, sys.stdout)) for entry in row))
    Console().print(table)


@contextmanager
def announcer(total: int) -> Iterator[Callable[[str], None]]:
    """Yield a function that announces stages: by a bar on a terminal, by one line each elsewhere."""
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


EFFORTS = ("low", "medium", "high")

# -- options --------------------------------------------------------------------------------------------


def parse_h(text: str) -> int | float | str:
    """``"auto"``, an int, or a fraction in (0, 1)."""
    if text == "auto":
        return text
    with contextlib.suppress(ValueError):
        return int(text)
    allowed = "--h must be auto, an integer, or a fraction between 0 and 1"
    return _number(text, allowed, lambda value: 0 < value < 1)


def parse_alpha(text: str) -> float | str:
    """``"exact"``, ``"auto"`` or a number >= 0."""
    if text in ("exact", "auto"):
        return text
    return _number(text, "--alpha must be exact, auto or a number >= 0", _is_strength)


def parse_l2(text: str | None) -> float | str | None:
    """None, ``"auto"`` or a number >= 0."""
    if text is None or text == "auto":
        return text
    return _number(text, "--l2 must be auto or a number >= 0", _is_strength)


def _is_strength(value: float) -> bool:
    return 0 <= value < float("inf")


def _number(text: str, allowed: str, good: Callable[[float], bool]) -> float:
    """The number that the text is; :class:`BadInput` unless it is a good one."""
    with contextlib.suppress(ValueError):
        if good(value := float(text)):
            return value
    raise BadInput(f"{allowed}; got {text!r}")


def check_count(h: Any, most: int, what: str, option: str = "--h") -> None:
    """:class:`BadInput` if h is a count above ``most``, the number of things that there are."""
    if isinstance(h, int) and not 0 <= h <= most:
        raise BadInput(f"{option} must be from 0 to {most}, the number of {what}; got {h}")


def check_choice(option: str, value: Any, allowed: Iterable[str]) -> None:
    """:class:`BadInput` unless the value is one of the words allowed."""
    allowed = list(allowed)
    if value not in allowed:
        raise BadInput(f"{option} must be {', '.join(allowed[:-1])} or {allowed[-1]}; got {value!r}")


# -- files ----------------------------------------------------------------------------------------------


def check_seed_and_jobs(seed: int, jobs: int) -> None:
    """:class:`BadInput` unless both can be used."""
    if not 0 <= seed < 2**32:
        raise BadInput(f"--seed must be from 0 to {2**32 - 1}; got {seed}")
    if jobs == 0:
        raise BadInput("--jobs must be a number of processes, or -1 for all cores; got 0")


def check_outputs(**files: Path | None) -> None:
    """:class:`BadInput` unless all files, given by the names of their options, can be written."""
    taken: dict[Path, str] = {}
    for option, file in files.items():
        if file is None:
            continue
        if Path(file).is_dir():
            raise BadInput(f"--{option} must name a file; {file} is a folder")
        place = Path(file).resolve()
        if place in taken:
            raise BadInput(f"--{taken[place]} and --{option} name the same file, {file}; change one")
        taken[place] = option
        if Path(file).exists() and not Path(file).is_file():
            continue  # such as /dev/stdout
        folder = place.parent
        try:
            folder.mkdir(parents=True, exist_ok=True)
            tempfile.TemporaryFile(dir=folder).close()
        except OSError as error:
            raise BadInput(
                f"cannot write into {folder} ({error.strerror}); choose another place with --{option}"
            ) from None


def check_matplotlib(option: str) -> None:
    """:class:`BadInput` if matplotlib is missing."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise BadInput(f"{option} needs matplotlib: pip install 'trimreg[plot]'") from None


def write_text(path: Path, text: str) -> None:
    """Write a file, and say so."""
    say(f"wrote {write_atomically(path, text.encode())}")


def write_json(path: Path, content: Any) -> None:
    """Write the content of a model as JSON."""
    from ..estimators.io import json_text

    write_text(path, json_text(content))


PICTURES = (".png", ".svg", ".pdf")


def check_picture(option: str, path: Path | None) -> None:
    """:class:`BadInput` unless the file name ends as a picture's and matplotlib is installed."""
    if path is None:
        return
    if Path(path).suffix.lower() not in PICTURES:
        raise BadInput(f"{option} must end in {', '.join(PICTURES)}; got {str(path)!r}")
    check_matplotlib(option)


def write_picture(figure: Any, path: Path) -> None:
    """Save a matplotlib figure in the format of the file name."""
    kind = Path(path).suffix.lower().lstrip(".")
    say(f"wrote {write_atomically(path, picture_bytes(figure, kind, dpi=150))}")


def picture_bytes(figure: Any, kind: str, **settings: Any) -> bytes:
    """The file of a matplotlib figure, without date, version and random names: equal for equal figures."""
    import io

    import matplotlib

    metadata = {"png": {"Software": None}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}[kind]
    buffer = io.BytesIO()
    with matplotlib.rc_context({"svg.hashsalt": "trimreg"}):
        figure.savefig(buffer, format=kind, metadata=metadata, **settings)
    return buffer.getvalue()

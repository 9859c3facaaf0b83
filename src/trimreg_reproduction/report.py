"""The report of experiments: one page with each claim of the paper, what was measured, and the verdict."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trimreg.reports import chart_json, svg_image, table, write_page

from . import registry
from .spec import SIZES, BadInput, Experiment, Verdict
from .store import ORIGIN, Counts, StoreError

TITLE = "M-estimation with the trimmed l1 penalty: the paper, reproduced"
_BADGES = {"reproduced": "reproduced", "partly": "partly reproduced", "not": "not reproduced"}


@dataclass
class Findings:
    """The verdict, figure and charts of an experiment; ``problems`` says why one of them is missing."""

    verdict: Verdict | None = None
    picture: str | None = None
    charts: list[dict] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def write_report(
    store: Any,
    out: str | Path,
    experiments: Iterable[str | Experiment] | None = None,
    *,
    size: str | None = None,
    title: str = TITLE,
) -> Path:
    """Write the page of all experiments, or of some of them; it also names those without results.

    Parameters
    ----------
    store : Store or Exported
    out : path-like
        The page, which is written atomically.
    experiments : sequence of str or Experiment, optional
        Names of the registry, or experiments; by default all.
    size : {"quick", "full"}, optional
        By default, for each experiment, the size that was asked for last.
    title : str

    Returns
    -------
    pathlib.Path

    Examples
    --------
    >>> import tempfile
    >>> from trimreg_reproduction.report import write_report
    >>> from trimreg_reproduction.store import Store
    >>> with tempfile.TemporaryDirectory() as folder, Store(f"{folder}/results.sqlite") as store:
    ...     page = write_report(store, f"{folder}/report.html", experiments=[])
    ...     page.read_text().splitlines()[0]
    '<!DOCTYPE html>'
    """
    charts: list[dict] = []
    chosen = registry.expand_names(["all"]) if experiments is None else experiments
    found = [registry.get_experiment(one) if isinstance(one, str) else one for one in chosen]
    sections = [section(store, one, size, charts) for one in found]
    return write_page(out, "report.html", title=title, charts=charts, sections=sections)


def section(store: Any, experiment: Experiment, size: str | None, charts: list[dict]) -> dict:
    """The section of one experiment for the template; its charts are appended to ``charts``."""
    size = store.size(experiment.name) if size is None else size
    counts = _counts(store, experiment.name, size)
    frame = None if counts is None else store.frame(experiment.name, size, provenance=True)
    shown = {
        "name": experiment.name,
        "title": experiment.title,
        "claim": experiment.claim,
        "command": f"trimreg reproduce {experiment.name} --{size or 'full'}",
        "is_missing": frame is None or frame.empty,
        "cells": "" if counts is None else f"{size}, {counts.done:,} of {counts.planned:,}",
        "facts": {} if counts is None else _facts(counts, size, frame),
    }
    if counts is None or frame is None or frame.empty:
        return shown | {"badge": "missing", "verdict": "not run" if counts is None else "no results"}
    found = findings(experiment, frame.drop(columns=list(ORIGIN)))
    if counts.done < counts.planned:
        found.problems.insert(0, _incomplete(counts))
    if size == "quick":
        found.problems.insert(0, "A quick run has few replicates: it tests the pipeline and is no evidence.")
    places = range(len(charts), len(charts) + len(found.charts))
    charts += found.charts
    kind = found.verdict.kind if found.verdict else "missing"
    rows = found.verdict.table if found.verdict else []
    return shown | {
        "badge": kind,
        "verdict": _BADGES.get(kind, "not judged") + (", quick run" if size == "quick" else ""),
        "measured": found.verdict.measured if found.verdict else "",
        "table": table(rows, f"Figures behind {experiment.title}") if rows else None,
        "picture": found.picture,
        "charts": list(places),
        "problems": found.problems,
    }


def findings(experiment: Experiment, frame: Any) -> Findings:
    """The verdict, figure and charts of a frame of results.

    An interrupted run may have too few rows for one of them. Then the page shows the others, and says which
    one is missing.
    """
    found = Findings()

    def attempt(what: str, make: Callable[[Any], Any]) -> Any:
        try:
            return make(frame.copy())
        except Exception as error:
            found.problems.append(
                f"{what} could not be made from these results ({type(error).__name__}: {error})."
            )
            return None

    found.verdict = attempt("The verdict", experiment.judge)
    found.picture = attempt("The figure", lambda rows: svg_image(experiment.figure(rows)))
    drawn = attempt("The charts", lambda rows: [chart_json(one) for one in experiment.charts(rows)])
    found.charts = drawn or []
    return found


def _counts(store, name, size) -> Counts | None:
    """The counts of cells, or None if the experiment was not started at that size."""
    if size not in SIZES:
        return None
    try:
        return store.counts(name, size)
    except StoreError:
        raise  # a damaged file is not an experiment that was not run
    except BadInput:
        return None


def _facts(counts, size, frame):
    facts = {"size": size, "cells done": f"{counts.done:,} of {counts.planned:,}"}
    if counts.failed:
        facts["cells failed"] = counts.failed
    if not frame.empty:
        cells = frame.drop_duplicates("cell")
        facts["rows"] = len(frame)
        facts["time of all cells"] = duration(float(cells["cell_seconds"].sum()))
        facts["last result"] = f"{cells['cell_finished'].max()[:16].replace('T', ' ')} UTC"
        facts["version"] = ", ".join(sorted(cells["cell_version"].unique()))
    return facts


def _incomplete(counts):
    parts = [f"{counts.failed:,} failed"] if counts.failed else []
    parts += [f"{counts.missing:,} did not run"] if counts.missing else []
    return f"Of {counts.planned:,} cells, {' and '.join(parts)}. The same command runs the rest."


def duration(seconds: float) -> str:
    """A time in suitable units.

    Examples
    --------
    >>> from trimreg_reproduction.report import duration
    >>> [duration(seconds) for seconds in (2.34, 75, 5400)]
    ['2.3 s', '1 min 15 s', '1 h 30 min']
    """
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"

"""The report of experiments: one page with each claim of the paper, what was measured, and the verdict.

The page of one fitted model is :func:`write_model_report`, of :mod:`.modelreport`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from trimreg.reports import pages
from trimreg.reports.charts import chart_json
from trimreg.reports.model import write_model_report

from .spec import Experiment, Verdict

__all__ = ["write_model_report", "write_report"]

TITLE = "M-estimation with the trimmed l1 penalty: the paper, reproduced"
_ORIGIN = ("cell", "cell_seconds", "cell_version", "cell_finished")
_BADGES = {"reproduced": "reproduced", "partly": "partly reproduced", "not": "not reproduced"}


@dataclass
class Findings:
    """What one experiment has to show; a part that could not be made is None, and ``problems`` says why."""

    verdict: Verdict | None = None
    picture: str | None = None
    charts: list[dict] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def write_report(store, out, experiments=None, *, size: str | None = None, title: str = TITLE) -> Path:
    """Write the page of all experiments, or of some; those without results are said to be missing.

    Parameters
    ----------
    store : Store or Exported
    out : path-like
        The page; written in one step.
    experiments : sequence of str or Experiment, optional
        Names of the registry, or experiments themselves; all by default.
    size : {"quick", "full"}, optional
        Whose results; by default the size that each experiment was last run at.
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
    sections = [section(store, one, size, charts) for one in _experiments(experiments)]
    return pages.write_page(out, "report.html", title=title, charts=charts, sections=sections)


def section(store, experiment: Experiment, size: str | None, charts: list[dict]) -> dict:
    """What the template shows of one experiment; its charts are appended to ``charts``."""
    size = store.size(experiment.name) if size is None else size
    begun = size is not None and size in _sizes(store, experiment.name)
    frame = store.frame(experiment.name, size, provenance=True) if begun else None
    shown = {
        "name": experiment.name,
        "title": experiment.title,
        "claim": experiment.claim,
        "command": f"trimreg reproduce {experiment.name} --{size or 'full'}",
        "is_missing": frame is None or frame.empty,
        "cells": "",
        "facts": {},
    }
    if begun:
        counts = store.counts(experiment.name, size)
        shown["cells"] = f"{size}, {counts.done:,} of {counts.planned:,}"
        shown["facts"] = _facts(counts, size, frame)
    if shown["is_missing"]:
        return shown | {"badge": "missing", "verdict": "not run" if not begun else "no results"}
    found = findings(experiment, frame.drop(columns=list(_ORIGIN)))
    if counts.done < counts.planned:
        found.problems.insert(0, _incomplete(counts))
    if size == "quick":
        found.problems.insert(
            0, "A quick run: it tests the pipeline with few replicates, and is no evidence."
        )
    places = range(len(charts), len(charts) + len(found.charts))
    charts += found.charts
    kind = found.verdict.kind if found.verdict else "missing"
    label = _BADGES.get(kind, "not judged") + (", quick run" if size == "quick" else "")
    rows = found.verdict.table if found.verdict else []
    return shown | {
        "badge": kind,
        "verdict": label,
        "measured": found.verdict.measured if found.verdict else "",
        "table": pages.table(rows, f"Figures behind {experiment.title}") if rows else None,
        "picture": found.picture,
        "charts": list(places),
        "problems": found.problems,
    }


def findings(experiment: Experiment, frame) -> Findings:
    """Verdict, picture and charts of a frame of results.

    A run that was cut short may lack what one of them needs. Then the others are shown all the same, and the
    page says what is not there.
    """
    found = Findings()
    found.verdict = _attempt(found, "The verdict", experiment.judge, frame)
    found.picture = _attempt(
        found, "The figure", lambda all_: pages.svg_image(experiment.figure(all_)), frame
    )
    drawn = _attempt(
        found, "The charts", lambda all_: [chart_json(one) for one in experiment.charts(all_)], frame
    )
    found.charts = drawn or []
    return found


def _attempt(found, what, make, frame):
    try:
        return make(frame.copy())
    except Exception as error:
        found.problems.append(f"{what} could not be made of these results ({type(error).__name__}: {error}).")
        return None


def _experiments(chosen):
    from .registry import expand_names, get_experiment

    chosen = expand_names(["all"]) if chosen is None else chosen
    return [get_experiment(one) if isinstance(one, str) else one for one in chosen]


def _sizes(store, name):
    """The sizes at which an experiment was begun."""
    from trimreg.reports.demo import BadInput

    from .spec import SIZES

    begun = []
    for size in SIZES:
        try:
            store.counts(name, size)
        except BadInput:
            continue
        begun.append(size)
    return begun


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
    parts += [f"{counts.missing:,} not run"] if counts.missing else []
    return f"Not all cells are there: {' and '.join(parts)} of {counts.planned:,}. The same command goes on."


def duration(seconds: float) -> str:
    """A time in the unit that suits it.

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

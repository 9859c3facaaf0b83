"""Does the penalty help, or its schedule? Hard and soft penalties, all with the same schedule for h.

Plain LeNet-300-100 at three sizes, on MNIST and on Fashion-MNIST, with the settings of table 1 but 30 epochs.
All networks train on the first 50,000 images. For the soft penalty and for Algorithm 1 the strength (and the
step size tau) with the lowest mean error on the other 10,000 is chosen, and its test error compared.

- gradual magnitude, trimmed: the hard penalty, ranking by the norm and by weight times gradient;
- soft, bcd: the soft penalty by proximal steps and by Algorithm 1, which rank by the norm;
- magnitude, "once, taylor": the two rankings without the schedule.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from ..pictures import draw, legend_below, new_figure
from ..spec import Cell, Chart, Experiment, Verdict
from .pictures import error_line, wide
from .tables import make_trial, run_trial
from .training.recipes import ONCE
from .verdicts import compare, gap_text, kind_of, summary, tuned, with_deviation

if TYPE_CHECKING:
    from .training.trial import Trial

NAME = "penalty"
DATASETS = {"MNIST": "mnist", "Fashion-MNIST": "fashion-mnist"}
NETWORK = "LeNet-300-100"
SIZES = ("392-150-50", "196-75-25", "97-71-33")
EPOCHS = 30
ALPHAS = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
TAUS = (0.001, 0.01)
SOFT = {"soft": "soft penalty", "bcd": "Algorithm 1"}
HARD = {
    "gradual magnitude": "hard, by norm", "trimmed": "hard, by weight times gradient",
    "magnitude": "cut once, by norm", "once, taylor": "cut once, by weight times gradient",
}  # fmt: skip
_NAMES = HARD | SOFT


def cells(size: str) -> list[Cell]:
    """One cell per data set and method; two for the step sizes of Algorithm 1."""
    quick = size == "quick"
    sizes = "+".join(SIZES[-1:] if quick else SIZES)
    methods = [*((method, {}) for method in ("soft", *HARD)), *(("bcd", {"tau": tau}) for tau in TAUS)]
    return [
        Cell.of(NAME, part=part, network=NETWORK, method=method, sizes=sizes, recipe="ours",
                effort=size, **more)
        for part in (["MNIST"] if quick else DATASETS)
        for method, more in methods
    ]  # fmt: skip


def trial_of(cell: Cell) -> Trial:
    """The training of a cell."""
    known = dict(cell.parameters)
    changes = {"tau": known["tau"]} if "tau" in known else {}
    alphas = ALPHAS if cell["method"] in SOFT else ()
    trial = make_trial(cell, NETWORK, "tab1", DATASETS[cell["part"]], alphas, **{"epochs": EPOCHS} | changes)
    return dataclasses.replace(trial, validation=True)


def run(cell: Cell) -> list[dict]:
    """One row per size, seed and strength."""
    tau = f", tau {cell['tau']:g}" if cell["method"] == "bcd" else ""
    rows = run_trial(trial_of(cell))
    return [
        row | {"paper": None, "setting": "" if row["alpha"] is None else f"alpha {row['alpha']:g}{tau}"}
        for row in rows
    ]


def charts(frame: Any) -> list[Chart]:
    """Test error against alpha; methods without a strength are level."""
    table = [line for line in summary(frame) if line["error"] is not None]
    found = []
    for part, asked in dict.fromkeys((line["part"], line["asked"]) for line in table):
        groups: dict[str, list] = {}
        for line in table:
            if (line["part"], line["asked"]) == (part, asked):
                tau = line.get("setting", "").partition(", ")[2]
                groups.setdefault(", ".join(filter(None, (_NAMES[line["method"]], tau))), []).append(line)
        lines = [_line(name, group) for name, group in groups.items()]
        found.append(
            Chart(f"{asked} on {part}", "alpha", "test error in %", lines, log_x=True, log_y=wide(lines))
        )
    return found


def _line(name, group):
    method = group[0]["method"]
    if method in SOFT:
        return error_line(name, group, "alpha")
    level = [group[0] | {"alpha": alpha} for alpha in (ALPHAS[0], ALPHAS[-1])]
    look = {"marker": "", "linestyle": "--" if method in ONCE else "-"}
    return error_line(name, level, "alpha") | {"look": look}


def figure(frame: Any) -> Any:
    """The charts, one row per data set. Curves may leave the panel where alpha is too large."""
    drawn = charts(frame)
    columns = min(len(SIZES), len(drawn))
    rows = -(-len(drawn) // columns)
    picture, axes = new_figure(3.6 * columns + 0.4, 3.2 * rows + 0.6, rows, columns)
    for ax, chart in zip(axes.flat, drawn, strict=False):
        draw(ax, dataclasses.replace(chart, log_y=False), band=0.08)
        low = min(low for line in chart.lines for low in line["low"])
        high = max((line["high"][0] for line in chart.lines if "look" in line), default=None)
        ax.set_ylim(low - 0.05 * ((high or low) - low), high and high + 0.25 * (high - low))
    legend_below(picture, axes[0, 0])
    return picture


def judge(frame: Any) -> Verdict:
    """Met where the tuned soft penalty, or Algorithm 1, errs clearly less than hard pruning by the norm."""
    table = tuned(summary(frame))
    answers, text = [], []
    for part, asked in dict.fromkeys((line["part"], line["asked"]) for line in table):
        mine = {line["method"]: line for line in table if (line["part"], line["asked"]) == (part, asked)}
        hard = mine.get("gradual magnitude")
        if hard is None:
            continue
        said = [f"{HARD['gradual magnitude']} {with_deviation(hard)} %"]
        for method, line in mine.items():
            if line is hard or line["error"] is None:
                continue
            setting = f" ({line['setting']})" if "setting" in line else ""
            said.append(f"{_NAMES[method]}{setting} {gap_text(line, hard)}")
            if method in SOFT:
                answers.append(compare(line, hard))
        text.append(f"{part}, {asked}: {'; '.join(said)}.")
    if not answers:
        return Verdict("not", "There are no rows to compare.", table)
    counts = (
        f"Against hard pruning by the norm, the soft penalty or Algorithm 1 is clearly better in "
        f"{answers.count('less')} of {len(answers)} comparisons, clearly worse in {answers.count('more')}."
    )
    return Verdict(kind_of([answer == "less" for answer in answers]), " ".join([counts, *text]), table)


EXPERIMENT = Experiment(
    NAME,
    "The penalty and its schedule",
    "Not in the paper: with the same schedule for h the soft trimmed penalty and Algorithm 1, their strength "
    "tuned, err less than hard pruning by the norm.",
    cells,
    run,
    charts,
    figure,
    judge,
)

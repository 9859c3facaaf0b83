"""The table of a run: ``python benchmarks/benchopt/summary.py benchmarks/benchopt/outputs/RUN.parquet``.

For each solver the objective over the best of all solvers on the same data (mean and largest), how often it
is the best, the true features found, and the median time over that of trimreg with effort "medium".
"""

import sys

import pandas as pd

ROW = "| {} | {:.3f} | {:.3f} | {:.0f} % | {:.1f} | {:.2f} |"


def summary(file: str) -> str:
    """The table as Markdown."""
    rows = pd.read_parquet(file)
    last = (
        rows.sort_values("stop_val")
        .groupby(["dataset_name", "objective_name", "solver_name", "idx_rep"])
        .tail(1)
    )
    case = ["dataset_name", "objective_name", "idx_rep"]
    last = last.assign(
        ratio=last.objective_value / last.groupby(case).objective_value.transform("min"),
    )
    ours = last[last.solver_name == "trimreg[effort=medium]"].set_index(case).time
    last = last.join(ours.rename("ours"), on=case)
    lines = [
        "| solver | objective over the best, mean | largest | is the best | true features | time over ours |",
        "|---|---|---|---|---|---|",
    ]
    for name, part in sorted(last.groupby("solver_name"), key=lambda item: item[1].ratio.mean()):
        best = 100 * (part.ratio < 1 + 1e-9).mean()
        true = part["objective_true features"].mean()
        time = (part.time / part.ours).median()
        lines.append(ROW.format(name, part.ratio.mean(), part.ratio.max(), best, true, time))
    return "\n".join(lines)


if __name__ == "__main__":
    print(summary(sys.argv[1]))

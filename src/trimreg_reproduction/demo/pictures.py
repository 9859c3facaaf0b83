"""The pictures of the demonstration."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np

from trimreg import plotting
from trimreg._files import write_atomically

from .fits import H_VALUES, Demo

COMPARED = (0, 2, 3)  # of the fits: the trimmed lasso with the given h, the lasso, MCP
_UNFINISHED = ", not converged)"
_LEGEND = 22  # points between axes and title, for one row of the legend


def write_pictures(
    demo: Demo, directory: str | Path, copy_summary_to: str | Path | None = None
) -> list[Path]:
    """Draw everything into ``directory``; returns the files written.

    They are ``path.png``, ``coefficients.png``, ``convergence.png``, and ``demo.png`` with the first two side
    by side, of which ``copy_summary_to`` is a second place.
    """
    drawings = {
        "path.png": _panels(demo, (7.2, 4.6), _draw_path),
        "coefficients.png": _panels(demo, (6.6, 6.0), _draw_coefficients),
        "convergence.png": _convergence(demo),
        "demo.png": _panels(demo, (12.0, 5.6), _draw_path, _draw_coefficients),
    }
    files = [_save(figure, Path(directory) / name) for name, figure in drawings.items()]
    if copy_summary_to is not None:
        files.append(write_atomically(copy_summary_to, files[-1].read_bytes()))
    return files


def _save(figure, path):
    buffer = io.BytesIO()
    # Without the version of matplotlib, equal pictures are equal files.
    figure.savefig(buffer, format="png", dpi=150, metadata={"Software": None})
    return write_atomically(path, buffer.getvalue())


def _panels(demo, size, *draws):
    """A figure with panels side by side."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, layout="constrained")
    axes = figure.subplots(1, len(draws), width_ratios=(1.15, 1.0)[: len(draws)], squeeze=False)[0]
    for ax, draw in zip(axes, draws, strict=True):
        draw(demo, ax, _LEGEND if len(draws) > 1 else 6)
    return figure


def _draw_path(demo, ax, pad):
    # Models with more than about 15 variables contain all of the nearly collinear blood serum measurements s1
    # to s5, and their unshrunk coefficients are ten times those of any smaller model.
    plotting.coefficient_path(
        H_VALUES, demo.path, feature_names=demo.feature_names, highlight=10, linear_below=50, ax=ax
    )
    ax.set_title("Trimmed lasso: a fit for each h, nothing else to tune", loc="left", fontsize=11, pad=pad)
    if demo.h in H_VALUES:
        ax.axvline(demo.h, color="0.4", linewidth=0.8, linestyle=":", zorder=0)


def _draw_coefficients(demo, ax, _):
    fits = [demo.fits[index] for index in COMPARED]
    table = {f"{fit.method} ({fit.n_kept} kept)": fit.coef for fit in fits}
    plotting.coefficients(table, feature_names=demo.feature_names, max_features=18, ax=ax)
    ax.set_title(f"Three methods; trimmed lasso with h = {demo.h}", loc="left", fontsize=11, pad=_LEGEND)


def _convergence(demo):
    from matplotlib.figure import Figure

    race = demo.race
    names = {}
    for solver, clock in race.seconds.items():
        end = ")" if race.converged[solver] else _UNFINISHED
        names[solver] = f"{solver} ({clock[-1] * 1e3:.0f} ms{end}"
    histories = {names[solver]: np.array(values) for solver, values in race.histories.items()}
    figure = Figure(figsize=(10.4, 4.4), layout="constrained")
    left, right = figure.subplots(1, 2)
    floor = 1e-9 * abs(min(values.min() for values in histories.values()))
    plotting.convergence(histories, floor=floor, ax=left)
    left.set_title("Which minimum: above the best of all", loc="left", fontsize=11)
    own = {name: values - values[-1] for name, values in histories.items()}
    plotting.convergence(own, reference=0.0, floor=floor, ax=right)
    right.set_ylabel("objective minus its own limit")
    right.set_title("How fast: above its own limit", loc="left", fontsize=11)
    right.get_legend().remove()
    for line in list(right.lines):  # without convergence there is no limit to measure from
        if line.get_label().endswith(_UNFINISHED):
            line.remove()
    figure.suptitle(f"Trimmed l1 penalty, h = {demo.h}, alpha = {race.alpha:.3g}", fontsize=11)
    return figure

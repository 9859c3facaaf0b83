"""The pictures of the page on choosing h and alpha.

``python docs/guide/pictures/choosing.py`` runs the code of the page and draws ``choosing.png``,
``choosing_surface.png`` and ``choosing_stability.png`` beside this file, or in another folder that is given.
"""

import contextlib
import io
import re
import sys
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from trimreg.plotting import coefficient_path_over_h, score_surface, stability_path

HERE = Path(__file__).resolve().parent


def page_names() -> dict:
    """What the code of the page defines."""
    text = (HERE.parent / "choosing.md").read_text(encoding="utf-8")
    names = {}
    with contextlib.redirect_stdout(io.StringIO()):
        for code in re.findall(r"^```python\n(.*?)^```$", text, flags=re.DOTALL | re.MULTILINE):
            exec(code, names)
    return names


def errors(model):
    """Mean squared errors over the folds, and their standard errors."""
    mse = model.mse_path_
    return mse.mean(axis=2), mse.std(axis=2, ddof=1) / np.sqrt(mse.shape[2])


def draw_h(page):
    """The error over h and the coefficients over h, side by side."""
    figure = Figure(figsize=(10.5, 4.0), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(1, 1.25))
    model = page["model"]
    mean, error = errors(model)
    score_surface(
        model.hs_, model.alphas_, mean, std=error, chosen=model.h_, one_se=page["sparse"].h_,
        greater_is_better=False, label="mean squared error, 10 folds", ax=left,
    )  # fmt: skip
    coefficient_path_over_h(model.hs_, model.coef_path_[:, 0], names=page["names"], chosen=model.h_, ax=right)
    return figure


def draw_surface(page):
    """The error over h and alpha; that of the empty model would take all the colors."""
    figure = Figure(figsize=(7.0, 4.4), layout="constrained")
    model = page["surface"]
    mean, error = errors(model)
    score_surface(
        model.hs_, model.alphas_, np.minimum(mean, 3400.0), std=error, chosen=(model.h_, model.chosen_alpha_),
        greater_is_better=False, label="mean squared error, or 3400 if above", ax=figure.subplots(),
    )  # fmt: skip
    return figure


def draw_stability(page):
    """How often each feature is chosen on halves of the data."""
    figure = Figure(figsize=(7.0, 4.0), layout="constrained")
    stable = page["stable"]
    stability_path(
        stable.hs_, stable.stability_path_, threshold=stable.threshold_, names=page["names"],
        xlabel="h, coefficients left free", ax=figure.subplots(),
    )  # fmt: skip
    return figure


def main(folder=HERE):
    page, folder = page_names(), Path(folder)
    draw_h(page).savefig(folder / "choosing.png", dpi=90)
    draw_surface(page).savefig(folder / "choosing_surface.png", dpi=110)
    draw_stability(page).savefig(folder / "choosing_stability.png", dpi=110)


if __name__ == "__main__":
    main(*sys.argv[1:])

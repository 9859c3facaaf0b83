"""The pictures of the page How it works: ``python docs/_site/draw.py docs/img``."""

from __future__ import annotations

import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

import trimreg
from trimreg.datasets import make_ar1
from trimreg.plotting import PALETTE


def penalty(path: Path) -> None:
    """Level sets of the l1 norm and of the trimmed l1 norm in two dimensions."""
    grid = np.linspace(-1.5, 1.5, 301)
    a, b = np.abs(np.meshgrid(grid, grid))
    figure, axes = plt.subplots(1, 2, figsize=(6.4, 3.1), layout="constrained", sharey=True)
    for axis, values, title in zip(axes, (a + b, np.minimum(a, b)), ("l1", "trimmed l1, h = 1"), strict=True):
        axis.contourf(grid, grid, values, levels=8, cmap="Blues")
        axis.set(title=title, xlabel=r"$\theta_1$", aspect="equal", xticks=[-1, 0, 1], yticks=[-1, 0, 1])
    axes[0].set_ylabel(r"$\theta_2$")
    figure.savefig(path, dpi=110)
    plt.close(figure)


def homotopy(path: Path) -> None:
    """Coefficients of weighted lassos whose weights are a soft minimum of growing hardness."""
    data = make_ar1(n_samples=200, n_features=100, n_nonzero=10, rho=0.7, snr=4, random_state=1)
    hardness = np.concatenate([[0.0], np.geomspace(0.1, 100.0, 60)])
    theta, lines = np.zeros(100), []
    alpha = 0.15 * np.abs(data.X.T @ (data.y - data.y.mean())).max() / 200
    for gamma in hardness:
        weights = soft_weights(np.abs(theta) / max(np.abs(theta).max(), 1e-12), gamma, h=10)
        l1 = trimreg.L1(penalty_factor=weights)
        theta = trimreg.solve(data.X, data.y, penalty=l1, alpha=alpha, fit_intercept=True, theta0=theta).coef
        lines.append(theta)
    figure, axis = plt.subplots(figsize=(6.4, 3.1), layout="constrained")
    true = data.coef != 0
    for j in range(100):
        axis.plot(np.array(lines)[:, j], color=PALETTE[0] if true[j] else "0.7", lw=1.6 if true[j] else 0.8)
    axis.set(xlabel="step: weights harden", ylabel="coefficient")
    axis.margins(x=0)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def soft_weights(r: np.ndarray, gamma: float, h: int) -> np.ndarray:
    """Weights in [0, 1] with sum p - h: all equal for gamma = 0, those of trimming as gamma grows."""
    p = r.size
    low, high = r.min() - 50.0 / max(gamma, 1e-9), r.max() + 50.0 / max(gamma, 1e-9)
    if gamma == 0:
        return np.full(p, (p - h) / p)
    for _ in range(200):  # the level at which the weights have the right sum
        level = 0.5 * (low + high)
        weights = 1.0 / (1.0 + np.exp(np.clip(gamma * (r - level), -500, 500)))
        low, high = (level, high) if weights.sum() < p - h else (low, level)
    return weights


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    penalty(folder / "how_penalty.png")
    homotopy(folder / "how_homotopy.png")

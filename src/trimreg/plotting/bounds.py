"""Pictures of certificates."""

from __future__ import annotations

from typing import Any

from .style import PALETTE, legend_above, new_axes, tidy


def certificate(found: Any, ax: Any = None) -> Any:
    """Draw both bounds of a certificate over time.

    Parameters
    ----------
    found : Certificate
        The result of :func:`trimreg.certify`.
    ax : matplotlib Axes, optional

    Returns
    -------
    matplotlib Axes

    Examples
    --------
    >>> import numpy as np, trimreg
    >>> from matplotlib.figure import Figure
    >>> from trimreg.plotting import certificate
    >>> X = np.random.default_rng(0).standard_normal((60, 10))
    >>> found = trimreg.certify(X, X[:, 1] + 0.1 * X[:, 7], h=1)
    >>> certificate(found, ax=Figure().subplots()).get_ylabel()
    'objective'
    """
    ax = new_axes(ax)
    history = found.history
    for name, color in (("upper", PALETTE[1]), ("lower", PALETTE[0])):
        ax.step(history["seconds"], history[name], where="post", color=color, label=f"{name} bound")
    ax.fill_between(
        history["seconds"], history["lower"], history["upper"], step="post", color=PALETTE[0], alpha=0.12,
        linewidth=0,
    )  # fmt: skip
    ax.set_xlabel(f"seconds ({found.nodes} nodes, gap {100 * found.gap:.2g} %)")
    ax.set_ylabel("objective")
    legend_above(ax)
    tidy(ax)
    return ax

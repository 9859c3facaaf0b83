"""Coefficients over the trimming parameter."""

from __future__ import annotations

import numpy as np

from .style import GREY, label_right_ends, look, new_axes, tidy


def coefficient_path(
    h_values,
    coefs,
    *,
    feature_names=None,
    ax=None,
    highlight=None,
    linear_below=None,
    xlabel="h, coefficients left free",
):
    """Draw every coefficient as a line over h; the strongest in colour, named at the right end.

    Parameters
    ----------
    h_values : array-like of shape (k,)
        The trimming parameters, rising.
    coefs : array-like of shape (k, p)
        A row of coefficients for each of them.
    feature_names : sequence of str, optional
        Names of the p features; ``x0``, ``x1``, ... by default.
    ax : matplotlib axes, optional
        Where to draw; a new figure by default.
    highlight : int or sequence of str or int, optional
        How many features to colour and name (those with the largest last coefficients, then the
        largest anywhere), or which ones, by name or index. By default up to eight that are nonzero at
        the end.
    linear_below : float, optional
        The vertical scale is linear up to this size and logarithmic beyond, for coefficients of very
        different sizes (collinear columns at a large h). By default it is linear throughout.
    xlabel : str

    Returns
    -------
    matplotlib axes

    Examples
    --------
    >>> import numpy as np
    >>> from matplotlib.figure import Figure
    >>> from trimreg.plotting import coefficient_path
    >>> coefs = np.array([[2.0, 0.0, 0.0], [2.1, -1.0, 0.0], [2.0, -1.1, 0.3]])
    >>> ax = coefficient_path([1, 2, 3], coefs, feature_names=["bmi", "sex", "age"], ax=Figure().subplots())
    >>> [text.get_text() for text in ax.texts]
    ['bmi', 'sex', 'age']
    """
    h_values, coefs, names = _checked(h_values, coefs, feature_names)
    chosen = _chosen(coefs, names, highlight)
    ax = new_axes(ax)
    drawn = np.flatnonzero(np.any(coefs != 0, axis=0))
    lines = _without_zero_runs(coefs)
    for j in np.setdiff1d(drawn, chosen):
        ax.plot(h_values, lines[:, j], color=GREY, linewidth=0.9, zorder=1)
    colors = []
    for rank, j in enumerate(chosen):
        style = look(rank)
        colors.append(style["color"])
        ax.plot(h_values, lines[:, j], linewidth=1.7, zorder=3, label=names[j], **style)
    ax.axhline(0.0, color="0.4", linewidth=0.8, zorder=2)
    if h_values.size > 1:
        ax.set_xlim(h_values[0], h_values[-1])
    if np.all(h_values == np.round(h_values)):
        ax.xaxis.get_major_locator().set_params(integer=True)
    ax.set_xlabel(xlabel)
    ax.set_ylabel("coefficient")
    tidy(ax)
    if linear_below is not None and not linear_below > 0:
        raise ValueError(f"linear_below must be positive; got {linear_below}")
    if linear_below is not None and np.abs(coefs).max() > linear_below:
        _set_scale(ax, float(linear_below), coefs)
    ax.set_ylim(ax.get_ylim())  # final from here on, for the labels lie at fractions of it
    label_right_ends(ax, coefs[-1, chosen], [names[j] for j in chosen], colors)
    return ax


def _without_zero_runs(coefs):
    """NaN where a coefficient is zero between zeros: lines of absent features would pile up on the axis."""
    zero = np.pad(coefs == 0, ((1, 1), (0, 0)), constant_values=True)
    return np.where(zero[:-2] & zero[1:-1] & zero[2:], np.nan, coefs)


def _set_scale(ax, threshold, coefs):
    from matplotlib.ticker import FixedLocator, NullLocator, ScalarFormatter

    ax.set_yscale("symlog", linthresh=threshold, linscale=1.5)
    # Few round numbers, the same on both sides; those of a logarithmic axis would crowd around 0.
    largest = float(np.abs(coefs).max())
    ticks = threshold * np.array([0.5, 1, 2, 4, 10, 20, 40, 100, 200, 400, 1000])
    ticks = ticks[ticks <= largest]
    ax.yaxis.set_major_locator(FixedLocator(np.concatenate([-ticks[::-1], [0.0], ticks])))
    ax.yaxis.set_minor_locator(NullLocator())
    ax.yaxis.set_major_formatter(ScalarFormatter())
    ax.set_ylim(-1.1 * max(-coefs.min(), threshold / 2), 1.1 * max(coefs.max(), threshold / 2))
    ax.set_ylabel(f"coefficient (logarithmic beyond {threshold:g})")


def _checked(h_values, coefs, feature_names):
    h_values, coefs = np.asarray(h_values, dtype=float), np.asarray(coefs, dtype=float)
    if h_values.ndim != 1 or h_values.size == 0:
        raise ValueError(f"h_values must be a sequence of numbers; got shape {h_values.shape}")
    if coefs.ndim != 2 or coefs.shape[0] != h_values.size:
        raise ValueError(
            f"coefs must have a row for each of the {h_values.size} h_values; got shape {coefs.shape}"
        )
    if np.any(np.diff(h_values) <= 0):
        raise ValueError("h_values must rise")
    if not np.isfinite(coefs).all():
        raise ValueError("coefs must be finite")
    p = coefs.shape[1]
    names = [f"x{j}" for j in range(p)] if feature_names is None else [str(name) for name in feature_names]
    if len(names) != p:
        raise ValueError(f"feature_names must hold a name for each of the {p} features; got {len(names)}")
    return h_values, coefs, names


def _chosen(coefs, names, highlight):
    """Indices of the features to name, the strongest first."""
    last, peak = np.abs(coefs[-1]), np.abs(coefs).max(axis=0)
    order = np.lexsort((-peak, -last))
    if highlight is None:
        return order[last[order] > 0][:8]
    if isinstance(highlight, (int, np.integer)):
        if highlight < 0:
            raise ValueError(f"highlight must be >= 0; got {highlight}")
        return order[peak[order] > 0][:highlight]
    indices = []
    for item in highlight:
        known = item in names if isinstance(item, str) else 0 <= item < len(names)
        if not known:
            raise ValueError(f"highlight names no feature: {item!r}")
        indices.append(names.index(item) if isinstance(item, str) else int(item))
    return np.array(indices, dtype=int)

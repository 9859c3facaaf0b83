"""Coefficients with intervals."""

import numpy as np
import pytest
from matplotlib.figure import Figure

from trimreg.plotting import intervals


def test_rows_are_the_finite_intervals_the_largest_first():
    coef, half = np.array([0.5, -2.0, 0.1, 3.0]), np.array([1.0, 0.5, np.inf, 1.0])
    options = {"names": list("abcd"), "kept": [False, True, True, True], "ax": Figure().subplots()}
    ax = intervals(coef, coef - half, coef + half, **options)
    assert [label.get_text() for label in ax.get_yticklabels()] == ["d", "b", "a"]
    ends = [list(line.get_xdata()) for line in ax.lines if len(line.get_xdata()) == 2][1:]
    assert ends == [[2.0, 4.0], [-2.5, -1.5], [-0.5, 1.5]]
    assert ax.lines[-1].get_color() == "0.6"
    few = intervals(coef, coef - half, coef + half, max_features=1, ax=Figure().subplots())
    assert [label.get_text() for label in few.get_yticklabels()] == ["x3"]


def test_bad_shapes_are_named():
    with pytest.raises(ValueError, match="coef, low and high must be vectors of one length"):
        intervals([1.0, 2.0], [0.0], [3.0])
    with pytest.raises(ValueError, match="names"):
        intervals([1.0], [0.0], [3.0], names=["a", "b"])

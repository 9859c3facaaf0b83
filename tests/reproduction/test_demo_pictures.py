"""The demonstration's pictures, from numbers made up here."""

import numpy as np
import pytest

from trimreg_reproduction.demo import pictures as demo_pictures
from trimreg_reproduction.demo.fits import H_VALUES, Demo, Fit, Race


@pytest.fixture
def found():
    rng = np.random.default_rng(0)
    coef = np.where(np.arange(12) < 6, rng.standard_normal(12) * 20, 0.0)
    fits = [
        Fit(m, "x = 1", coef, 1.0, 0.5, 0.0, None) for m in ("trimmed lasso", "trimmed lasso", "lasso", "MCP")
    ]
    histories = {name: list(5 + 3.0 / np.arange(1, 20)) for name in ("mm", "bcd")}
    seconds = {name: list(np.arange(1, 20) / 1e3) for name in histories}
    race = Race(0.5, histories, seconds, {"mm": True, "bcd": False})
    path = np.outer(np.linspace(0.1, 1, len(H_VALUES)), coef)
    names = [f"f{j}" for j in range(12)]
    return Demo(5, 0, names, 30, 10, fits, 0.1, path, race)


def test_writes_four_pictures_and_a_copy(found, tmp_path):
    copy = tmp_path / "docs" / "picture.png"
    written = demo_pictures.write_pictures(found, tmp_path / "out", copy_summary_to=copy)
    names = [path.name for path in written]
    assert names == ["path.png", "coefficients.png", "convergence.png", "demo.png", "picture.png"]
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in written)
    assert written[-1].read_bytes() == written[-2].read_bytes()


def test_a_solver_without_an_end_has_no_limit_to_be_drawn_against(found):
    left, right = demo_pictures._convergence(found).axes
    assert [line.get_label() for line in left.lines] == ["mm (19 ms)", "bcd (19 ms, not converged)"]
    assert [line.get_label() for line in right.lines] == ["mm (19 ms)"]

"""The examples of the gallery run, are short, and draw something."""

import ast
import re
import warnings
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent.parent / "examples"
EXAMPLES = sorted(FOLDER.glob("*.py"))
plt = pytest.importorskip("matplotlib.pyplot")


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_runs_and_draws(path, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    plt.switch_backend("Agg")
    text = path.read_text(encoding="utf-8")
    assert len(text.splitlines()) < 80
    title = ast.get_docstring(ast.parse(text)).splitlines()
    assert re.fullmatch("=+", title[1])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            exec(compile(text, str(path), "exec"), {"__name__": "__main__", "__file__": str(path)})
            figures = [plt.figure(number) for number in plt.get_fignums()]
            drawn = [axis for figure in figures for axis in figure.axes if axis.has_data()]
        finally:
            plt.close("all")
    assert drawn
    assert capsys.readouterr().out.count("\n") < 60

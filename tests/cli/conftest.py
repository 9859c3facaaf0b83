"""A caller of commands, and tables to call them on."""

import numpy as np
import pytest
from typer.testing import CliRunner

from trimreg.cli import app


@pytest.fixture
def call():
    runner = CliRunner()
    return lambda *arguments: runner.invoke(app, [str(argument) for argument in arguments])


@pytest.fixture
def refused(call):
    """Calls a command that must end with status 2 and one line; returns the line."""

    def check(*arguments):
        answer = call(*arguments)
        assert answer.exit_code == 2, answer.output
        assert answer.stdout == ""
        assert answer.stderr.startswith("error: ")
        assert answer.stderr.count("\n") == 1
        return answer.stderr.strip()

    return check


def make_frame(n=60, seed=0):
    """Numbers a to d, text, a constant; targets that depend on a, b and the text."""
    import pandas as pd

    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(rng.standard_normal((n, 4)), columns=list("abcd"))
    frame["city"] = rng.choice(["Bonn", "Oslo", "Rom"], n, p=[0.3, 0.2, 0.5])
    frame["one"] = 1
    eta = 2 * frame["a"] - frame["b"] + 1.5 * (frame["city"] == "Oslo")
    frame["y"] = eta + 0.3 * rng.standard_normal(n)
    frame["ill"] = np.where(eta + rng.logistic(size=n) > 0, "yes", "no")
    frame["kind"] = np.array(["low", "mid", "top"])[np.digitize(eta + rng.logistic(size=n), [-1, 1])]
    frame["count"] = rng.poisson(np.exp(0.4 * eta))
    frame["cost"] = rng.gamma(3.0, np.exp(0.4 * eta) / 3.0)
    frame["stage"] = frame["kind"].map({"low": 1, "mid": 2, "top": 3})
    frame["months"] = rng.exponential(np.exp(-0.5 * eta))
    frame["died"] = (rng.random(n) < 0.7).astype(int)
    return frame


TARGETS = ["y", "ill", "kind", "stage", "count", "cost", "months", "died"]


@pytest.fixture
def frame():
    return make_frame()


@pytest.fixture
def table(tmp_path):
    """Writes the columns a, b, c, d, city, one and the targets named, and gives the file."""

    def write(*targets, name="data.csv", change=None, **options):
        frame = make_frame(**options).drop(columns=[name for name in TARGETS if name not in targets])
        if change is not None:
            frame = change(frame)
        path = tmp_path / name
        if path.suffix == ".parquet":
            frame.to_parquet(path)
        else:
            frame.to_csv(path, index=False)
        return path

    return write

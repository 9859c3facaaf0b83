"""``trimreg demo``: what it prints, what it writes, and how it ends."""

import os
import re
import signal
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from typer.testing import CliRunner

import trimreg
from trimreg.cli import app

runner = CliRunner()


def call(*arguments):
    return runner.invoke(app, [str(argument) for argument in arguments])


def test_version_and_help():
    assert call("--version").output == f"trimreg {trimreg.__version__}\n"
    for arguments in (["--help"], ["demo", "--help"]):
        answer = call(*arguments)
        assert answer.exit_code == 0
        assert "Examples:" in answer.output
        assert "trimreg demo --h 5" in answer.output


def test_demo_from_end_to_end(tmp_path):
    answer = call("demo", "--h", 6, "--out", tmp_path / "out", "--picture", tmp_path / "shown.png")
    assert answer.exit_code == 0, answer.output
    rows = [re.split(r"\s{2,}", line.strip()) for line in answer.stdout.splitlines()]
    methods = [row for row in rows if row[0] in ("trimmed lasso", "lasso", "MCP") and len(row) == 7]
    assert [row[0] for row in methods] == ["trimmed lasso", "trimmed lasso", "lasso", "MCP"]
    given = methods[0]
    assert given[1:3] == ["h = 6", "6"]
    assert given[-1] == "yes"  # swap optimal
    assert all(float(row[5]) < 1e-6 for row in methods)  # T
    assert all(40 < float(row[3]) < 75 for row in methods)  # RMSE: the target's deviation is 77
    names = set(trimreg.datasets.diabetes_interactions().feature_names)
    assert len([row for row in rows if row[0] in names and len(row) > 1]) >= 6
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "coefficients.png",
        "convergence.png",
        "demo.png",
        "path.png",
    ]
    assert f"wrote {tmp_path / 'shown.png'}" in answer.stdout.splitlines()
    assert "[1/8] reading the data" in answer.stderr  # plain lines where there is no terminal


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--h", 0], "h must be from 1 to 64, the number of features; got 0"),
        (["--h", 65], "h must be from 1 to 64"),
        (["--seed", -1], "seed must be from 0 to"),
        (["--no-pictures", "--picture", "a.png"], "drop one of them"),
    ],
)
def test_bad_input_is_one_line_and_status_2(arguments, message, tmp_path):
    answer = call("demo", "--out", tmp_path / "out", *arguments)
    assert answer.exit_code == 2
    assert answer.stdout == ""
    assert answer.stderr.count("\n") == 1
    assert message in answer.stderr
    assert not (tmp_path / "out").exists()


def test_a_file_in_the_way_is_named_before_any_work(tmp_path):
    blocker = tmp_path / "file"
    blocker.write_text("")
    assert "choose another place with --out" in call("demo", "--out", blocker).stderr
    assert "--picture must name a file" in call("demo", "--out", tmp_path, "--picture", tmp_path).stderr


def test_missing_matplotlib_is_said_before_any_work(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert "pip install 'trimreg[plot]'" in call("demo", "--out", tmp_path).stderr


@pytest.mark.parametrize("arguments", [["demo", "--h", "ten"], ["demo", "--nothing"], ["nothing"]])
def test_bad_usage_is_status_2(arguments):
    assert call(*arguments).exit_code == 2


def test_a_mistake_of_our_own_is_not_passed_off_as_bad_input(monkeypatch):
    def fail(**_):
        raise ValueError("a bug")

    monkeypatch.setattr("trimreg_reproduction.demo.fits.run", fail)
    answer = call("demo", "--no-pictures")
    assert answer.exit_code == 1
    assert isinstance(answer.exception, ValueError)


def test_interrupt_inside_the_work_is_status_130(monkeypatch):
    def interrupt(**_):
        raise KeyboardInterrupt

    monkeypatch.setattr("trimreg_reproduction.demo.fits.run", interrupt)
    answer = call("demo", "--no-pictures")
    assert answer.exit_code == 130
    assert answer.stderr.endswith("interrupted; nothing was written\n")


@pytest.mark.skipif(os.name == "nt", reason="signals")
def test_interrupt_of_the_process_is_status_130(tmp_path):
    code = "from trimreg.cli import main; main()"
    process = subprocess.Popen(
        [sys.executable, "-c", code, "demo", "--out", str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    first = process.stderr.readline()  # the work has begun
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=600)
    assert first.startswith("[1/8]")
    assert (process.returncode, out) == (130, "")
    assert list(tmp_path.iterdir()) == []


def test_tables_are_plain_where_the_output_is_ascii():
    """Nothing printed by us needs more than ASCII, and rich draws its rules in it too."""
    code = (
        "from types import SimpleNamespace as N; import numpy as np\n"
        "from trimreg_reproduction.demo import command as demo\n"
        "fit = N(method='lasso', chosen='alpha = 1', n_kept=1, rmse=1.0, r2=0.5, stationarity=0.0,"
        " swap_optimal=None, coef=np.array([1.0, 0.0]))\n"
        "found = N(feature_names=['a', 'b'], n_train=3, n_test=1, noise=0.1, fits=[fit])\n"
        "demo._print_methods(found); demo._print_coefficients(found)"
    )
    environment = {**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, env=environment, check=True)
    answer.stdout.decode("ascii")
    assert b"+1.00" in answer.stdout


def test_features_nobody_keeps_are_not_listed(capsys):
    from trimreg_reproduction.demo.command import _print_coefficients

    fit = SimpleNamespace(method="lasso", chosen="alpha = 1 by CV", coef=np.array([0.0, -2.0]))
    _print_coefficients(SimpleNamespace(feature_names=["absent", "present"], fits=[fit]))
    shown = capsys.readouterr().out
    assert "present" in shown
    assert "-2.00" in shown
    assert "absent" not in shown

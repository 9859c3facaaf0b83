"""The suite's own rules: reasons for skips, random order, how much of the library a fit goes through."""

import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from trimreg import OnDisk, TrimmedGraphicalLasso, TrimmedLasso, TrimmedLassoCV
from trimreg.estimators import validation

HERE = Path(__file__).parent


# -- reasons and order --------------------------------------------------------------------------------------


def run_suite(folder, text, *options):
    """Run pytest on a file of that text, with the conftest of this suite."""
    for name in ("conftest.py", "allowed_skips.txt"):
        shutil.copy(HERE / name, folder)
    (folder / "test_toy.py").write_text(text)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options]
    env = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    return subprocess.run([*command, str(folder)], cwd=folder, env=env, capture_output=True, text=True)


def test_a_skip_without_a_listed_reason_fails_the_run(tmp_path):
    text = "import pytest\ndef test_a():\n    pass\ndef test_b():\n    pytest.skip({!r})\n"
    ended = run_suite(tmp_path, text.format("nobody knows"))
    assert ended.returncode == 1
    assert "test_b: nobody knows" in ended.stdout
    assert run_suite(tmp_path, text.format("needs a GPU")).returncode == 0


def test_a_shuffled_run_has_all_tests_in_another_order(tmp_path):
    text = "import pytest\n@pytest.mark.parametrize('i', range(20))\ndef test_a(i):\n    print('ran', i)\n"
    runs = [run_suite(tmp_path, text, "-s", "--shuffle", seed).stdout for seed in ("1", "1", "2")]
    orders = [[line.split()[-1] for line in run.splitlines() if "ran" in line] for run in runs]
    assert orders[0] == orders[1] != orders[2]
    assert sorted(map(int, orders[0])) == list(range(20))


def test_products_of_parameters_are_thinned_out_so_that_all_pairs_stay(tmp_path):
    lines = [
        f"@pytest.mark.parametrize('{name}', range({count}))"
        for name, count in (("a", 5), ("b", 4), ("c", 3))
    ]
    text = "\n".join(["import pytest", *lines, "def test_a(a, b, c):", "    print('ran', a, b, c)", ""])
    found = re.findall(r"ran (\d) (\d) (\d)", run_suite(tmp_path, text, "-s").stdout)
    assert 20 <= len(found) <= 25
    for first, second, pairs in ((0, 1, 20), (0, 2, 15), (1, 2, 12)):
        assert len({(case[first], case[second]) for case in found}) == pairs
    everything = run_suite(tmp_path, text, "-s", "--every-combination").stdout
    assert len(re.findall("ran", everything)) == 60


# -- how much of the library a fit goes through -------------------------------------------------------------


def calls_during(run, prefix="trimreg.") -> Counter:
    """How often each function of ours is called while ``run()`` runs, by module and name."""
    seen: Counter = Counter()

    def note(frame, event, argument):
        if event == "call" and frame.f_globals.get("__name__", "").startswith(prefix):
            seen[frame.f_globals["__name__"], frame.f_code.co_name] += 1

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        run()
    finally:
        sys.setprofile(before)
    return seen


def modules_crossed(run) -> list[str]:
    """The modules of ours in which a function runs during ``run()``."""
    return sorted({module for module, _ in calls_during(run)})


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((200, 60))
    return X, X[:, :5].sum(axis=1) + rng.standard_normal(200)


@pytest.fixture(scope="module")
def file(data, tmp_path_factory):
    path = tmp_path_factory.mktemp("crossed") / "X.npy"
    np.save(path, data[0])
    return path


@pytest.mark.parametrize(
    ("fit", "at_most"),
    [
        (lambda X, y, file: TrimmedLasso(h=5).fit(X, y), 20),
        (lambda X, y, file: TrimmedLasso(h=5, alpha=0.1).fit(X, y), 20),
        (lambda X, y, file: TrimmedLassoCV(hs=[0, 2, 5, 8]).fit(X, y), 26),
        (lambda X, y, file: TrimmedGraphicalLasso(h=10).fit(X[:, :15]), 16),
        (lambda X, y, file: TrimmedLasso(h=5).fit(OnDisk(file), y), 24),
        (lambda X, y, file: TrimmedLasso(h=5).fit(OnDisk(file), y, sample_weight=(np.arange(200) < 50)), 24),
    ],
    ids=["exact", "soft", "cross-validation", "graph", "file", "file with few samples"],
)
def test_a_fit_goes_through_few_modules(fit, at_most, data, file):
    fit(*data, file)  # imports and compiles
    crossed = modules_crossed(lambda: fit(*data, file))
    assert len(crossed) <= at_most, "\n".join(crossed)


def test_cross_validation_checks_its_data_once(data):
    model = TrimmedLassoCV(hs=[0, 2, 5, 8])
    calls = calls_during(lambda: model.fit(*data))
    assert calls[validation.__name__, "check_matrix"] == 1


# -- mutants ------------------------------------------------------------------------------------------------


def test_every_mutant_stands_in_the_source():
    """``make mutants`` replaces pieces of lines: the list must follow the code."""
    sys.path.insert(0, str(HERE.parent))
    try:
        from benchmarks.mutants import MUTANTS
    finally:
        sys.path.remove(str(HERE.parent))
    for mutant in MUTANTS:
        mutant.file(HERE.parent / "src" / "trimreg")
    assert len(MUTANTS) >= 60

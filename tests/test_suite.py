"""The suite's own rules: reasons for skips, random order, how much of the library a fit goes through."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent


# -- reasons and order --------------------------------------------------------------------------------------


def run_suite(folder, text, *options):
    """Run pytest on a file of that text, with the conftest of this suite."""
    for name in ("conftest.py", "allowed_skips.txt"):
        shutil.copy(HERE / name, folder)
    (folder / "test_toy.py").write_text(text)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options]
    return subprocess.run([*command, str(folder)], cwd=folder, capture_output=True, text=True)


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

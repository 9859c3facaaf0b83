"""Cells that are run together on a device, and what the runner makes of them."""

import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent
if str(FOLDER) not in sys.path:
    sys.path.insert(0, str(FOLDER))  # worker processes import the toys by name

import runner_toys as toys  # noqa: E402

from trimreg_reproduction.runner import run  # noqa: E402
from trimreg_reproduction.spec import BadInput  # noqa: E402
from trimreg_reproduction.store import Store  # noqa: E402


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_cells_are_run_together_where_a_device_is_asked_for(tmp_path, n_jobs):
    with Store(tmp_path / "with.sqlite") as store:
        assert run([toys.sociable(range(9))], "quick", store, n_jobs=n_jobs, device="cpu").done == 9
        frame = store.frame("toy").set_index("n")
    assert frame["twice"].to_dict() == {n: 2 * n for n in range(9)}
    together = frame["beside"].dropna()
    assert sorted(together) == [2] * 2 + [4] * 4
    assert all(n % 3 for n in together.index)
    with Store(tmp_path / "without.sqlite") as store:
        run([toys.sociable(range(3))], "quick", store, n_jobs=1)
        assert "beside" not in store.frame("toy")


def test_a_group_that_fails_has_failed(tmp_path):
    with Store(tmp_path / "results.sqlite") as store:
        summary = run([toys.sociable([100, 101, 102])], "quick", store, n_jobs=1, device="cuda:7")
        assert (summary.done, summary.failed) == (1, 2)  # 102 is run alone
        assert all("no luck on cuda:7" in error for error in store.failed("toy").values())


def test_a_cluster_has_no_device(tmp_path):
    with Store(tmp_path / "results.sqlite") as store, pytest.raises(BadInput, match="backend joblib"):
        run([toys.sociable([1])], "quick", store, backend="dask", device="cuda")

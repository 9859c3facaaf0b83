"""Fixtures of the runner's tests, and toys that worker processes can import by name."""

import sys
from pathlib import Path

import pytest

if (folder := str(Path(__file__).parent)) not in sys.path:
    sys.path.insert(0, folder)


@pytest.fixture
def store(tmp_path):
    from trimreg_reproduction.store import Store

    with Store(tmp_path / "results.sqlite") as opened:
        yield opened

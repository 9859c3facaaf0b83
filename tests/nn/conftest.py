"""Lets the tests of this folder import what they share, and seeds each of them."""

import sys
from pathlib import Path

import pytest
import torch

if str(Path(__file__).parent) not in sys.path:
    sys.path.insert(0, str(Path(__file__).parent))


#: Most tests of these folders export networks that were cut without training.
UNTRAINED = {Path(__file__).parent / folder for folder in ("exporting", "groups", "structure")}


def pytest_collection_modifyitems(items):
    expected = pytest.mark.filterwarnings("ignore:(export|finalize_) cuts groups that are not zero")
    for item in items:
        if item.path.parent in UNTRAINED:
            item.add_marker(expected)


@pytest.fixture(autouse=True)
def _seeded():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        yield

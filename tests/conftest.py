"""For all tests: their order, the reasons for which they may be skipped, and what they share."""

import random
import re
import signal
from pathlib import Path

import pytest

REASONS = Path(__file__).with_name("allowed_skips.txt")

# A job in the background of a shell is started with Ctrl-C ignored, and so would be the processes that the
# tests start and interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser):
    parser.addoption(
        "--shuffle", type=int, metavar="SEED", help="run files, and tests within, in random order"
    )


def pytest_collection_modifyitems(config, items):
    """With ``--shuffle`` files come in random order, and the tests of a file too; its fixtures are kept."""
    seed = config.getoption("--shuffle")
    if seed is None:
        return
    draw = random.Random(seed)
    files: dict = {}
    for item in items:
        files.setdefault(item.location[0], []).append(item)
    order = sorted(files)
    draw.shuffle(order)
    for file in order:
        draw.shuffle(files[file])
    items[:] = [item for file in order for item in files[file]]


def allowed_reasons() -> list[re.Pattern]:
    """One pattern per line of the list; empty lines and comments do not count."""
    lines = (line.strip() for line in REASONS.read_text(encoding="utf-8").splitlines())
    return [re.compile(line) for line in lines if line and not line.startswith("#")]


def unexpected_skips(reports) -> list[str]:
    """The skipped tests whose reason is not on the list, one line each."""
    allowed = allowed_reasons()
    reasons = {str(report.nodeid): str(report.longrepr[-1]).removeprefix("Skipped: ") for report in reports}
    return [f"{test}: {why}" for test, why in reasons.items() if not any(one.search(why) for one in allowed)]


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session):
    """A test that is skipped for a reason that nobody has written down fails the run."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None:  # a worker of pytest-xdist; the controller sees all reports
        return
    found = unexpected_skips(reporter.stats.get("skipped", []))
    if found:
        reporter.write_line("")
        reporter.write_line(f"skipped for a reason that is not in {REASONS.name}:", red=True)
        for line in found:
            reporter.write_line(f"  {line}")
        session.exitstatus = session.exitstatus or 1


@pytest.fixture
def exchange():
    """A class of arrays that speak nothing but DLPack."""

    class Exchange:
        def __init__(self, array):
            self.array, self.shape = array, array.shape

        def __dlpack__(self, **how):
            return self.array.__dlpack__(**how)

        def __dlpack_device__(self):
            return self.array.__dlpack_device__()

    return Exchange

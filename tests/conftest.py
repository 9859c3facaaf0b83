"""For all tests: which combinations are run, in which order, why a test may be skipped, and fixtures."""

import gc
import itertools
import os
import random
import re
import signal
import sys
from pathlib import Path

import pytest

# One thread for all that the tests import or start: small problems gain nothing from a second one, and the
# workers of pytest-xdist would wait for each other's cores.
for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

REASONS = Path(__file__).with_name("allowed_skips.txt")

# A job in the background of a shell is started with Ctrl-C ignored, and so would be the processes that the
# tests start and interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser):
    parser.addoption("--shuffle", type=int, metavar="SEED", help="run the tests in random order")
    parser.addoption("--every-combination", action="store_true", help="all combinations, 1,000 damaged files")


def pytest_collection_modifyitems(config, items):
    """Thin out products of three or more parameters; with ``--shuffle`` draw a random order.

    Files come in random order, and the tests within a file: so fixtures of a file are still set up once.
    """
    if not config.getoption("--every-combination"):
        functions: dict = {}
        for item in items:
            functions.setdefault(getattr(item, "function", item), []).append(item)
        kept = [item for group in functions.values() for item in pairwise_cover(group)]
        config.hook.pytest_deselected(items=list(set(items) - set(kept)))
        items[:] = kept
    seed = config.getoption("--shuffle")
    if seed is not None:
        draw = random.Random(seed)
        files: dict = {}
        for item in items:
            files.setdefault(item.location[0], []).append(item)
        order = sorted(files)
        draw.shuffle(order)
        for file in order:
            draw.shuffle(files[file])
        items[:] = [item for file in order for item in files[file]]


def pytest_collection_finish():
    """What was imported stays to the end: the garbage collector need not go through it, over and over."""
    gc.collect()
    gc.freeze()


def pairwise_cover(group: list) -> list:
    """Of the cases of one test, a few in which every two values of two parameters still meet.

    Most faults need one value or two to show (Kuhn, Wallace and Gallo, 2004, Software fault interactions and
    implications for software testing), and a full product repeats each pair many times. Cases of fewer than
    three parameters are returned as they are.
    """
    values = [item.callspec.params if hasattr(item, "callspec") else {} for item in group]
    if min(map(len, values)) < 3:
        return group
    # The values of a list of parameters are the same objects in all cases, and need not be hashable.
    pairs = [
        set(itertools.combinations(sorted((name, id(value)) for name, value in one.items()), 2))
        for one in values
    ]
    missing, kept = set().union(*pairs), []
    while missing:
        best = max(range(len(group)), key=lambda k: len(pairs[k] & missing))
        missing -= pairs[best]
        kept.append(best)
    return [group[k] for k in sorted(kept)]


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


@pytest.fixture(autouse=True)
def no_cluster_is_left_behind():
    """A Dask client that a test leaves open would be the default of the next one, and might never answer."""
    yield
    distributed = sys.modules.get("distributed")
    client = None if distributed is None else distributed.client._get_global_client()
    if client is not None:
        distributed.client._set_global_client(None)
        client.close(timeout=1)
        pytest.fail(f"the test left {client} open")


@pytest.fixture
def mutations(request):
    """Damaged copies of some bytes: 60 of them, 1,000 with ``--every-combination``."""
    words = [b"null", b"NaN", b"1e999", b"-1", b"9" * 400, b'"x"', b"[]", b"{}", b"true", b"[[", b"Infinity"]
    draw = random.Random(0)

    def mutated(content):
        for _ in range(1000 if request.config.getoption("--every-combination") else 60):
            start = draw.randrange(len(content))
            end = min(len(content), start + draw.randrange(1, 40))
            middle = draw.choice(
                [
                    draw.randbytes(1) + content[start + 1 : end],
                    b"",
                    content[start:end] * draw.randrange(2, 50),
                    draw.randbytes(3) + content[start:end],
                    draw.choice(words),
                ]
            )
            yield content[:start] + middle + (b"" if draw.random() < 0.1 else content[end:])

    return mutated


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

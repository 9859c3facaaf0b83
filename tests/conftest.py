"""For all tests."""

import signal

import pytest

# A job in the background of a shell is started with Ctrl-C ignored, and so would be the processes that the
# tests start and interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


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

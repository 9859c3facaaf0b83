"""For all tests."""

import signal

# A job in the background of a shell is started with Ctrl-C ignored, and so would be the processes that the
# tests start and interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

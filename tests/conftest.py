"""Before anything else: numpy's threads, which would spin beside those under test, and Ctrl-C, for who tests it."""

from __future__ import annotations

import os
import signal

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# A shell that starts something in the background makes it deaf to Ctrl-C, and the processes of the tests with it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

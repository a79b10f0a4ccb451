"""Before anything else: numpy's threads, which would spin beside those under test, Ctrl-C, what Hypothesis draws."""

from __future__ import annotations

import os
import signal

from hypothesis import HealthCheck, settings

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# A shell that starts something in the background makes it deaf to Ctrl-C, and the processes of the tests with it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# How long an example takes says how busy the machine is. The same ones are drawn each time, so that who changes nothing
# breaks nothing; a release looks for others.
settings.register_profile(
    "imp",
    deadline=None,
    derandomize=os.environ.get("IMP_RELEASE") != "1",
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("imp")

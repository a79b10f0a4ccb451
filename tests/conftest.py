"""Before anything else: numpy's threads, which would spin beside those under test, Ctrl-C, what Hypothesis draws.

Then what of the tests a run takes, in how many processes.
"""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from support import quick_run
from support.alone import turn

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# Options of this run are no options of those that its tests start.
os.environ.pop("PYTEST_ADDOPTS", None)

# A shell that starts something in the background makes it deaf to Ctrl-C, and the processes of the tests with it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# How long an example takes says how busy the machine is. The same ones are drawn each time, so that who changes nothing
# breaks nothing; a release looks for others.
settings.register_profile(
    "all",
    deadline=None,
    derandomize=os.environ.get("IMP_RELEASE") != "1",
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("quick", settings.get_profile("all"), max_examples=30)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--all", action="store_true", dest="all_cases", help="all cases of every sweep, and the long tests"
    )


def pytest_configure(config: pytest.Config) -> None:
    settings.load_profile("all" if config.option.all_cases else "quick")


@pytest.fixture(scope="session")
def repeats(request: pytest.FixtureRequest) -> quick_run.Repeats:
    """How often a test does for a quick run what it does so many times for `--all`: a fifth."""
    return lambda n: n if request.config.option.all_cases else n // 5


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out what is more of the same, unless all is asked for, or a test by its name."""
    if config.option.all_cases or any("::" in argument for argument in config.args):
        return
    left_out = quick_run.left_out(items)
    config.hook.pytest_deselected(items=[item for item in items if item in left_out])
    items[:] = [item for item in items if item not in left_out]


def pytest_collection_finish() -> None:
    """Excludes all objects that exist now from garbage collection: tests call gc.collect() hundreds of times.

    The modules of the tests and of their oracles are half a million objects, which take half a second each time.
    """
    gc.collect()
    gc.freeze()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Two processes for the whole suite, and none but pytest's own for a few files: starting one takes seconds."""
    is_whole = config.args_source is pytest.Config.ArgsSource.TESTPATHS
    return 2 if is_whole and len(os.sched_getaffinity(0)) > 1 else 0


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """A test that is marked `alone` waits for those in the other processes, and they for it."""
    with turn(item.config, is_alone=item.get_closest_marker("alone") is not None):
        return (yield)

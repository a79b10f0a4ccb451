"""Sets up the test process (NumPy's threads, Ctrl-C, Hypothesis), selects tests and sets the number of processes."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from support.run import quick_run
from support.run.alone import turn
from support.run.loop_verdict import LoopVerdict
from support.run.release_run import IS_RELEASE, SECONDS
from support.run.run_record import record_run

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# The options of this run do not apply to runs of pytest that tests start.
os.environ.pop("PYTEST_ADDOPTS", None)

# A shell makes its background jobs ignore SIGINT, and processes that tests start would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# No deadline: the time of an example depends on the load of the machine. Examples are the same in each run, so that
# only a change can break a test; a release run draws new ones.
settings.register_profile(
    "all",
    deadline=None,
    derandomize=not IS_RELEASE,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("quick", settings.get_profile("all"), max_examples=30)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--all", action="store_true", dest="all_cases", help="all cases of every sweep, and the long tests"
    )
    parser.addoption("--long", action="store_true", dest="takes_long", help="the long tests too, each with few cases")
    parser.addoption(
        "--rest", action="store_true", dest="only_rest", help="only what --all adds to a run without options"
    )


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    settings.load_profile("quick" if is_quick(config) else "all")
    record_run(config)
    config.pluginmanager.register(LoopVerdict())
    if IS_RELEASE and config.option.timeout is None:
        config.option.timeout = SECONDS


def is_quick(config: pytest.Config) -> bool:
    """Returns whether this run makes fewer repetitions than `--all`."""
    return not (config.option.all_cases or config.option.only_rest)


@pytest.fixture(scope="session")
def repeats(request: pytest.FixtureRequest) -> quick_run.Repeats:
    """Maps the number of repetitions of `--all` to that of this run: a quick run makes a fifth of them."""
    return lambda n: n // 5 if is_quick(request.config) else n


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselects what this run leaves out, unless the command line names a test."""
    if any("::" in argument for argument in config.args):
        return
    left_out = set() if config.option.all_cases else quick_run.left_out(items, takes_long=config.option.takes_long)
    if config.option.only_rest:
        left_out = {item for item in items if item not in left_out and not quick_run.repeats_less(item)}
    config.hook.pytest_deselected(items=[item for item in items if item in left_out])
    items[:] = [item for item in items if item not in left_out]


def pytest_collection_finish() -> None:
    """Excludes all objects that exist now from garbage collection: tests call gc.collect() hundreds of times.

    The modules of the tests and of their oracles have half a million objects, which take half a second each time.
    """
    gc.collect()
    gc.freeze()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Returns two worker processes for the whole suite; none for named files, because a worker starts slowly."""
    is_whole = config.args_source is pytest.Config.ArgsSource.TESTPATHS
    return 2 if is_whole and len(os.sched_getaffinity(0)) > 1 else 0


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Runs a test that is marked `alone` or `timing` while no other worker process runs a test."""
    with turn(item.config, is_alone=any(map(item.get_closest_marker, ("alone", "timing")))):
        return (yield)

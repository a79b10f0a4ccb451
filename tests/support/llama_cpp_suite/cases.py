"""A pytest plugin that runs llama.cpp's test suite of llama-server against imp.

`cases.toml` says what runs, and which cases imp cannot pass, with the reason. They must fail: a listed case that
passes fails the run, and so does an entry that names no case. So the list only shrinks.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from support.llama_cpp_suite.llama_server import command

HERE = Path(__file__).parent
LISTED: dict[str, Any] = tomllib.loads((HERE / "cases.toml").read_text())


def pytest_configure(config: pytest.Config) -> None:
    """Sets the folder, the server and the port that the suite expects."""
    os.chdir(config.rootpath)
    os.environ["LLAMA_SERVER_BIN_PATH"] = str(HERE / "llama_server.py")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        os.environ["PORT"] = str(probe.getsockname()[1])


class Shared(subprocess.Popen[bytes]):
    """A server that outlives the case that started it. The next case takes it over if it needs the same settings."""

    last: Shared | None = None

    def terminate(self) -> None:
        """Leaves it running."""

    def wait(self, timeout: float | None = None) -> int:
        """Does not wait, for the same reason."""
        return 0


def start(arguments: Sequence[str], **more: Any) -> Shared:
    """Starts imp in place of llama-server, or returns the last server if it has the same settings."""
    words = command(arguments[1:])
    if Shared.last is not None and Shared.last.args == words and Shared.last.poll() is None:
        return Shared.last
    stop_last()
    Shared.last = Shared(words, **{**more, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL})
    return Shared.last


def stop_last() -> None:
    """Stops the server that runs."""
    if Shared.last is not None:
        subprocess.Popen.terminate(Shared.last)
        subprocess.Popen.wait(Shared.last)


def pytest_unconfigure() -> None:
    """Stops the last server."""
    stop_last()


def share_servers() -> None:
    """Replaces what starts servers in the suite, because most of a run's time would be starts."""
    import utils  # of the suite; its conftest has imported it

    utils.subprocess = SimpleNamespace(Popen=start, TimeoutExpired=subprocess.TimeoutExpired)
    # The original starts a server for each model to download it.
    utils.ServerPreset.load_all = staticmethod(lambda: None)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Removes cases that are left out, and marks those that are expected to fail."""
    share_servers()
    fails, left_out = cases_of("fails"), cases_of("left_out")
    unknown = (fails.keys() | left_out.keys()) - {name for item in items for name in names_of(item)}
    if unknown:
        raise pytest.UsageError(f"cases.toml names what the suite does not have: {sorted(unknown)}")
    out = [item for item in items if is_marked(item) or any(name in left_out for name in names_of(item))]
    config.hook.pytest_deselected(items=out)
    items[:] = [item for item in items if item not in out]
    for item in items:
        for name in names_of(item):
            if name in fails:
                item.add_marker(pytest.mark.xfail(reason=fails[name], strict=True))


def is_marked(item: pytest.Item) -> bool:
    """Returns whether the suite itself leaves the case out: it is broken, or downloads a large model."""
    return any(item.get_closest_marker(mark) for mark in ("skip", "slow"))


def names_of(item: pytest.Item) -> tuple[str, str]:
    """Returns the names by which the list may refer to a case: with its parameters and without."""
    name = f"{item.path.name}::{item.name}"
    return name, name.partition("[")[0]


def cases_of(kind: str) -> dict[str, str]:
    """Returns a map from case to reason."""
    return {case: entry["reason"] for entry in LISTED[kind] for case in entry.get("cases", ())}


def main() -> None:
    """Prints the files that run, for the suite in the working directory."""
    known = {*LISTED["files"], *(file for entry in LISTED["left_out"] for file in entry.get("files", ()))}
    found = {path.name for path in Path("unit").glob("test_*.py")}
    if known != found:
        sys.exit(f"cases.toml and the suite have not the same files: {sorted(known ^ found)}")
    print(*(f"unit/{file}" for file in LISTED["files"]))


if __name__ == "__main__":
    main()

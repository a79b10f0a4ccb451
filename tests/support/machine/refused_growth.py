"""A program that repeats one operation in forked children whose memory may grow by given numbers of bytes.

Writes a line for each: the bytes, and `ok`, the reason of the core's error, the class of a Python error, or the
signal that ended it. Loads the libraries first, so that only imp's own allocations fail.
"""

from __future__ import annotations

import faulthandler
import os
import sys
from collections.abc import Callable

import numpy.linalg  # noqa: F401  (loaded before memory is short)

from imp_service import _core
from imp_service.config import Config, read_settings
from imp_service.core import Error, ModelFile, open_file
from imp_service.core.inspect import inspect_model
from imp_service.core.load import load_weights
from support.machine.limited import limit_growth

Deed = Callable[[Config, ModelFile], object]


def load_and_close(config: Config, file: ModelFile) -> None:
    load_weights(config, file).client.close()


DEEDS: dict[str, Deed] = {
    "open": lambda config, file: (open_file(config).metadata, file.tensors),
    "inspect": lambda config, file: inspect_model(file, config),
    "load": load_and_close,
    "probe": lambda config, file: _core.probe_read_bandwidth(2, seconds=0.0001),
    "time": lambda config, file: _core.time_kernel(
        "q8_0_generic", "q8_0", m=1, n=256, k=256, threads=2, total_bytes=1 << 20, seconds=0.0001
    ),
}


def outcome_of(deed: Deed, config: Config, file: ModelFile, n_bytes: int) -> str:
    limit_growth(os.getpid(), n_bytes)
    try:
        deed(config, file)
    except Error as error:
        return error.reason
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "ok"


def in_child(deed: Deed, config: Config, file: ModelFile, n_bytes: int) -> str:
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writer, outcome_of(deed, config, file, n_bytes).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as lines:
        told = lines.read()
    _, status = os.waitpid(child, 0)
    return f"signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else told


def main(name: str, *sizes: str) -> None:
    faulthandler.enable()
    settings = ["device.kind=cpu", "device.threads=2", "device.cpus=none"]
    config = read_settings(None, settings, variables={})
    file = open_file(config)
    for size in sizes:
        print(size, in_child(DEEDS[name], config, file, int(size)), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])

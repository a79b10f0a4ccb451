"""Serves a scripted engine, which always has a token ready, or random weights of a real shape.

`python serve_engine.py ENGINE READY_FILE CPU|any [KEY=VALUE]…` serves until SIGTERM. With `direct` as the ready file
it starts no server: each line `STREAMS TOKENS` on stdin runs that many generations in the engine alone. The answer is
the tokens per second.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "tests"))

from imp_service.config import read_settings
from imp_service.core.bench.engine_runs import EngineRuns
from imp_service.generation import ModelRuntime
from imp_service.server.service import Service
from support.servers.served_models import ServedModel, random_weights, scripted

# Enough for the longest streams and the most sessions of the bench.
N_BLOCKS = 40_000
MAX_CONTEXT = 8192


def engine(name: str) -> ServedModel:
    """Makes the engine of a name."""
    if name == "script":
        return scripted("cheap", n_blocks=N_BLOCKS, max_context=MAX_CONTEXT)
    return random_weights(*name.split(":"))


async def serve(model: ServedModel, ready_file: Path, settings: list[str]) -> None:
    """Serves the given model as `imp serve` does."""
    config = read_settings(None, [*model.settings, *settings])
    service = Service(config, lambda done, total: None, lambda config, _: model.make(config, time.monotonic))
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, service.stop)

    def tell() -> None:
        partial = ready_file.with_suffix(".partial")
        partial.write_text(
            json.dumps({"grpc": service.server.addresses, "http": service.http.addresses, "pid": os.getpid()})
        )
        partial.replace(ready_file)

    await service.run(tell)


def run_direct(model: ModelRuntime) -> None:
    """Runs the same generations without a server."""
    runs = EngineRuns(model.client, model.vocab_size)
    print("ready", flush=True)
    for line in sys.stdin:
        n_streams, n_tokens = map(int, line.split())
        print(json.dumps(tokens_per_second(runs, n_streams, n_tokens)), flush=True)


def tokens_per_second(runs: EngineRuns, n_streams: int, n_tokens: int) -> float:
    """Returns tokens per second from the first submission to the last end, as a client sees it."""
    from imp_service import _core

    limits = _core.RunLimits(max_outputs=n_tokens, ends_at_eos=False)
    greedy = _core.SamplingOptions(temperature=0.0)
    started = time.perf_counter()
    runs.finish(
        [
            lambda ticket, i=i: runs.client.engine.generate(  # type: ignore[misc]
                ticket, runs.client.next_sequence(), [300 + i], sampling=greedy, limits=limits
            )
            for i in range(n_streams)
        ]
    )
    return n_streams * n_tokens / (time.perf_counter() - started)


def main() -> None:
    """Serves, or measures without a server."""
    name, ready_file, cpu, *settings = sys.argv[1:]
    if cpu != "any":
        os.sched_setaffinity(0, {int(cpu)})
    model = engine(name)
    if ready_file == "direct":
        run_direct(model.make(read_settings(None, [*model.settings, *settings]), time.monotonic))
    else:
        asyncio.run(serve(model, Path(ready_file), settings))


if __name__ == "__main__":
    main()

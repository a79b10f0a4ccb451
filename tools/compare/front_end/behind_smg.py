"""Measures streams through the gateway SMG and streams to the same server without it, in turns."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from compare.front_end.figure import Figure
from compare.front_end.http_streams import read_http_streams, stream_request
from imp_service.core.bench.report import Spread
from support.servers.server_process import server_process
from support.servers.smg_gateway import gateway

MODEL = "imp-demo"


def behind_smg(n_streams: int, n_tokens: int, reps: int) -> Iterator[Figure]:
    """Measures `imp serve` with the built-in model, whose fast tokens show the gateway's cost. Needs smg."""
    if find_spec("smg") is None:
        print("not measured: SMG is not installed (pip install 'smg>=1.13,<2')", flush=True)
        return
    # SMG needs the model's name, and accepts a prompt only as text.
    requests = [stream_request(n_tokens, 0) | {"model": MODEL, "prompt": f"the cat {i}"} for i in range(n_streams)]
    alone, through = [], []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with server_process(folder, "--http", "127.0.0.1:0", settings=("device.threads=1",), is_traced=False) as server:
            (address,) = server.wait_until_ready()["http"]
            with gateway(folder, [f"http://{address}"]) as smg:
                for _ in range(reps + 1):  # the first one is a warm-up
                    for where, speeds in ((address, alone), (f"127.0.0.1:{smg.port}", through)):
                        read = read_http_streams(where, requests)
                        speeds.append(read.n_tokens / read.seconds)
    at = f"{n_streams} streams over HTTP"
    yield Figure(f"{at}, built-in model", "tokens/s", Spread.of(alone[1:]))
    yield Figure(f"{at}, through SMG", "tokens/s", Spread.of(through[1:]))
    ratios = [one / other for one, other in zip(through[1:], alone[1:], strict=True)]
    yield Figure(f"{at}, through SMG in without it", "x", Spread.of(ratios), "at least 0.9")

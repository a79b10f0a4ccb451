"""Measures a server on loopback as its clients see it."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from gpu_check.context import ROOT, Context, StageError, python

# Arguments of make_model.py: plain types need no package but gguf.
MODEL, DRY_MODEL = ("qwen3-0.6b", "bf16"), ("tiny", "bf16")
KV, DRY_KV = 8 << 30, 4 << 20
STREAMS, PROMPT_TOKENS, TOKENS, REPEATS = "1,8,32", 256, 64, 1
DRY_STREAMS, DRY_PROMPT_TOKENS, DRY_TOKENS = "1,2", 6, 4


def run(context: Context, seconds: float) -> None:
    end = time.monotonic() + 0.9 * seconds
    with tempfile.TemporaryDirectory() as folder:
        model = write_model(context, Path(folder), end)
        with server(context, Path(folder), model, end) as address:
            measure(context, address, end)


def write_model(context: Context, folder: Path, end: float) -> Path | None:
    """Writes the model and returns its path; None means the built-in model."""
    path = folder / "random.gguf"
    names = DRY_MODEL if context.is_dry else MODEL
    command = [sys.executable, str(ROOT / "tools" / "make_model.py"), *names, "-o", str(path)]
    try:
        done = subprocess.run(command, env=context.environment(), check=False, timeout=0.6 * (end - time.monotonic()))
    except subprocess.TimeoutExpired:
        context.note("no time to write a model: the built-in one is served")
        return None
    if done.returncode != 0:
        context.note("make_model.py failed: the built-in model is served")
        return None
    return path


@contextlib.contextmanager
def server(context: Context, folder: Path, model: Path | None, end: float) -> Iterator[str]:
    """Starts a server and yields its address when it is ready."""
    ready = folder / "ready.json"
    words = [
        f"device.kind={context.kind}",
        "model.overrides.unvalidated_kernels=true",
        f"kv.bytes={DRY_KV if context.is_dry else KV}",
    ]
    command = [*python(), "-m", "imp_service", "serve", "--listen", "127.0.0.1:0", "--ready-file", str(ready)]
    command += [part for word in words for part in ("--set", word)] + (["--model", str(model)] if model else [])
    process = subprocess.Popen(command, cwd=folder, env=context.environment(), stdin=subprocess.DEVNULL)
    begin = time.monotonic()
    try:
        while not ready.exists():
            if process.poll() is not None:
                raise StageError(f"the server ended with status {process.returncode}")
            if time.monotonic() > end:
                raise StageError("the server is not ready in time")
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(0.02)
        context.record("ready", model=model.stem if model else "built in", seconds=time.monotonic() - begin)
        yield str(json.loads(ready.read_text())["grpc"][0])
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def measure(context: Context, address: str, end: float) -> None:
    streams, prompt, tokens = (
        (DRY_STREAMS, DRY_PROMPT_TOKENS, DRY_TOKENS) if context.is_dry else (STREAMS, PROMPT_TOKENS, TOKENS)
    )
    command = [*python(), "-m", "imp_service", "bench", "--server", address, "--streams", streams, "--json"]
    command += ["--prompt-tokens", str(prompt), "--tokens", str(tokens), "--reps", str(REPEATS), "--requests", "1"]
    done = subprocess.run(command, cwd="/", env=context.environment(), stdout=subprocess.PIPE, text=True, check=False,
                          timeout=max(1.0, end - time.monotonic()))  # fmt: skip
    if done.returncode != 0:
        raise StageError(f"imp bench --server ended with status {done.returncode}")
    levels = json.loads(done.stdout)["levels"]
    for level in levels:
        context.record("level", **level)
    if failures := [level["failures"] for level in levels if level["failures"]]:
        raise StageError(f"calls failed: {failures}")

"""Runs the GPU check's PyTorch code on this CPU, because a bug there would waste the only run on a GPU.

It puts everything for "cuda" on the CPU, and graphs and events do nothing; all names, shapes and options are real.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gpu_check.context import Budget, Context
from gpu_check.llama_loop import DRY_SHAPE
from gpu_check.stages import ceilings, comparators, kernels

torch = pytest.importorskip("torch", reason="torch is not installed")

CEILINGS = [{"stage": "ceilings", "what": "ceiling", "name": name, "rate": 1e12} for name in ("read", "bf16")]


class Event:
    def __init__(self, *, enable_timing: bool) -> None:
        assert enable_timing
        self.at = 0.0

    def record(self) -> None:
        self.at = time.perf_counter()

    def synchronize(self) -> None:
        pass

    def elapsed_time(self, end: Event) -> float:
        return 1e3 * (end.at - self.at)


class Device(contextlib.nullcontext[None]):
    type = "cuda"


class Cuda:
    Event = Event

    def __init__(self) -> None:
        self.captured = 0

    def Stream(self) -> object:  # noqa: N802
        return object()

    def stream(self, stream: object) -> contextlib.nullcontext[None]:
        return contextlib.nullcontext()

    def synchronize(self) -> None:
        pass

    def CUDAGraph(self) -> SimpleNamespace:  # noqa: N802
        return SimpleNamespace(replay=lambda: None)

    def graph(self, graph: SimpleNamespace) -> contextlib.nullcontext[None]:
        assert graph.replay
        self.captured += 1
        return contextlib.nullcontext()


class Torch:
    """PyTorch with the CPU in place of a GPU."""

    def __init__(self) -> None:
        self.cuda = Cuda()

    def __getattr__(self, name: str) -> Any:
        found = getattr(torch, name)
        makes_tensors = name in ("randn", "empty", "ones", "zeros", "full", "arange")
        return on_cpu(found) if makes_tensors else found

    def device(self, name: str) -> Any:
        assert name == "cuda"
        return Device()

    def compile(self, function: Any, *, mode: str, fullgraph: bool) -> Any:
        assert (mode, fullgraph) == ("reduce-overhead", True)
        return function


def on_cpu(function: Any) -> Any:
    def call(*given: Any, **named: Any) -> Any:
        if "device" in named:
            assert named["device"] == "cuda" or isinstance(named["device"], Device)
            named["device"] = "cpu"
        return function(*given, **named)

    return call


@pytest.fixture
def found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Context]:
    """A context of a full run, with a GPU in name only."""
    monkeypatch.setitem(sys.modules, "torch", Torch())
    for name, value in (("FLOATS", 1 << 12), ("SIDE", 64), ("LAUNCHES", 5)):
        monkeypatch.setattr(ceilings, name, value)
    monkeypatch.setattr(kernels, "CACHE_BYTES", 1 << 14)
    yield Context(tmp_path, stage="ceilings")


def test_ceilings_are_measured_with_all_that_they_ask_of_pytorch(found: Context) -> None:
    ceilings.run(found, 10.0)
    names = {row["name"] for row in found.found("ceilings", "ceiling")}
    notes = [row["text"] for row in found.found("ceilings", "note")]
    assert names - {"fp8"} == {"copy", "read", "bf16"}
    assert ("fp8" in names) != any(note.startswith("no fp8 ceiling: ") for note in notes)
    assert found.found("ceilings", "launch")
    assert all(row["median_us"] > 0 for row in found.found("ceilings", "ceiling"))


def test_pytorchs_products_and_attention_are_timed_in_graphs(found: Context) -> None:
    kernels.time_torch_products(found, "tiny", (64, 32), (1, 600))
    for rows in (1, 5):
        sizes, heads = (2, rows, 7), (4, 2, 16)
        kernels.time_torch_attention(found, ("tiny", str(rows)), sizes, heads, kernels.attention_work(sizes, heads))
    rows = found.found("ceilings", "torch")
    assert [(row["what_runs"], row["m"], row["unit"]) for row in rows] == [
        ("matmul bf16", 1, "GB/s"), ("matmul bf16", 600, "TFLOP/s"), ("SDPA", 1, "GB/s"), ("SDPA", 5, "TFLOP/s"),
    ]  # fmt: skip
    assert sys.modules["torch"].cuda.captured == 4
    assert not found.found("ceilings", "note")


def test_a_compiled_decoder_is_a_comparator(found: Context) -> None:
    comparators.compiled_loop(found, "tiny", DRY_SHAPE)
    [row] = found.found("ceilings", "comparator")
    assert row["name"] == "PyTorch compiled, tiny bf16"
    assert row["tokens_per_s"] > 0


def test_what_cannot_be_compared_with_stops_no_other(found: Context) -> None:
    def fails() -> None:
        raise RuntimeError("no such thing\nand more")

    comparators.attempt(found, Budget(60), "a", fails)
    comparators.attempt(found, Budget(0), "b", lambda: pytest.fail("it ran"))
    comparators.attempt(found, Budget(60), "c", lambda: found.record("comparator", name="c"))
    notes = [row["text"] for row in found.found("ceilings", "note")]
    assert notes == ["a: RuntimeError: no such thing", "b: no time was left"]
    assert found.found("ceilings", "comparator")


# llama.cpp.


@pytest.mark.parametrize("mix", comparators.LLAMA_MIXES)
def test_llama_cpp_reads_the_files_that_it_is_timed_with(
    tmp_path: Path, mix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    llama_cpp = pytest.importorskip("llama_cpp", reason="llama_cpp is not installed")
    from imp_service.core.synthetic import Shape
    from support.oracles import llama_cpp_peer

    llama_cpp_peer.start()
    params = llama_cpp_peer.plain_model_params()
    monkeypatch.setattr(llama_cpp.llama_cpp, "llama_model_default_params", lambda: params)
    context = Context(tmp_path, is_dry=True, stage="comparators")
    context.measurements.write_text("")
    comparators.random_llama(context, Shape("Tiny", "llama", 2, 256, 512, 4, 2, 64, 640, 1024, 1e4, 1e-6, False), mix)
    decode, prompt = context.found("comparators", "comparator")
    assert decode["name"].endswith(f"Tiny {mix}")
    assert prompt["name"].endswith(f"Tiny {mix}, prompt of 8")
    assert min(decode["tokens_per_s"], prompt["tokens_per_s"]) > 0


def test_llama_cpp_for_cpus_is_compared_with_nothing(tmp_path: Path) -> None:
    llama_cpp = pytest.importorskip("llama_cpp", reason="llama_cpp is not installed")
    if llama_cpp.llama_supports_gpu_offload():
        pytest.skip("this one was built for GPUs")
    context = Context(tmp_path, stage="comparators")
    comparators.llama_cpp(context, Budget(60))
    [note] = context.found("comparators", "note")
    assert note["text"].endswith("was built without CUDA")

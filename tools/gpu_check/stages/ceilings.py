"""Measures the peak rates of this device; the report compares all other numbers with them."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from gpu_check.context import Context, StageError
from gpu_check.numbers import Spread

REPEATS = 12
# Floats of a buffer larger than any cache; the side of a square product; launches in a graph.
FLOATS, SIDE, LAUNCHES = 1 << 29, 8192, 1000
DRY_FLOATS, DRY_SIDE = 1 << 18, 128


def run(context: Context, seconds: float) -> None:
    try:
        import torch
    except ImportError as error:
        raise StageError(f"no PyTorch: {error}") from error
    device = torch.device("cpu" if context.is_dry else "cuda")
    timed = Timer(torch, device)
    measure_memory(context, torch, device, timed)
    measure_products(context, torch, device, timed)
    if not context.is_dry:
        measure_launches(context, torch)


class Timer:
    """Measures seconds of work on the device, one repetition each, with the device's clock if it has one."""

    def __init__(self, torch: Any, device: Any) -> None:
        self._torch, self._device = torch, device

    def __call__(self, work: Callable[[int], object], repeats: int = REPEATS) -> list[float]:
        for i in range(3):
            work(i)
        if self._device.type == "cpu":
            return [self._on_cpu(work, i) for i in range(repeats)]
        return [self._on_gpu(work, i) for i in range(repeats)]

    def _on_cpu(self, work: Callable[[int], object], i: int) -> float:
        begin = time.perf_counter()
        work(i)
        return time.perf_counter() - begin

    def _on_gpu(self, work: Callable[[int], object], i: int) -> float:
        begin, end = (self._torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        work(i)
        end.record()
        end.synchronize()
        return float(begin.elapsed_time(end)) * 1e-3


def ceiling(context: Context, name: str, unit: str, amount: float, seconds: list[float]) -> None:
    """Records a ceiling: `amount` bytes or operations took each of `seconds`."""
    spread = Spread.of(seconds)
    context.record("ceiling", name=name, unit=unit, rate=amount / spread.median, **spread.as_row())


def measure_memory(context: Context, torch: Any, device: Any, timed: Timer) -> None:
    """Measures two pairs of buffers in turn, each many times the L2 cache, with random contents."""
    n = DRY_FLOATS if context.is_dry else FLOATS
    pairs = [(torch.randn(n, device=device), torch.empty(n, device=device)) for _ in range(2)]
    ceiling(context, "copy", "GB/s", 8 * n, timed(lambda i: pairs[i % 2][1].copy_(pairs[i % 2][0])))
    ways = {"sum": lambda i: pairs[i % 2][0].sum(), "amax": lambda i: pairs[i % 2][0].amax()}
    taken = {name: timed(way) for name, way in ways.items()}
    best = min(taken, key=lambda name: Spread.of(taken[name]).median)
    ceiling(context, "read", "GB/s", 4 * n, taken[best])
    context.note(f"the read-only ceiling is torch's {best}, the faster of {' and '.join(ways)}")


def measure_products(context: Context, torch: Any, device: Any, timed: Timer) -> None:
    n = DRY_SIDE if context.is_dry else SIDE
    a, b = (torch.randn(n, n, device=device, dtype=torch.bfloat16) for _ in range(2))
    ceiling(context, "bf16", "TFLOP/s", 2 * n**3, timed(lambda i: a @ b))
    if context.is_dry:
        return
    try:
        x, y = a.to(torch.float8_e4m3fn), b.to(torch.float8_e4m3fn).t().contiguous().t()
        one = torch.ones((), device=device)
        product = torch._scaled_mm
        ceiling(context, "fp8", "TFLOP/s", 2 * n**3,
                timed(lambda i: product(x, y, scale_a=one, scale_b=one, out_dtype=torch.bfloat16)))  # fmt: skip
    except (RuntimeError, AttributeError, TypeError) as error:
        context.note(f"no fp8 ceiling: {str(error).splitlines()[0]}")


def measure_launches(context: Context, torch: Any) -> None:
    """Measures the cost of one more kernel in a graph."""
    n = LAUNCHES
    x = torch.ones(1, device="cuda")
    x.add_(1)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(n):
            x.add_(1)
    seconds = [t / n for t in Timer(torch, torch.device("cuda"))(lambda i: graph.replay())]
    context.record("launch", **Spread.of(seconds).as_row())

"""Measures each kernel at real shapes over weights beyond the cache, and compares it with ceilings and PyTorch."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from gpu_check.context import Budget, Context
from gpu_check.numbers import Spread
from gpu_check.rows import ListedKernel, cublaslt_places, runnable_kernels, tests_support
from gpu_check.stages.ceilings import Timer

# n and k. The most important shapes come first, because time may run out.
SHAPES = {
    "8b gate": (14336, 4096), "1b gate": (8192, 2048), "8b down": (4096, 14336), "1b down": (2048, 8192),
    "8b q": (4096, 4096), "1b q": (2048, 2048), "8b k": (1024, 4096), "1b k": (512, 2048),
}  # fmt: skip
DRY_SHAPES = {"tiny": (48, 256)}
ROWS = (1, 2, 4, 8, 16, 32, 64, 512, 2048)
DRY_ROWS = (1, 2)
# From this number of rows on, arithmetic is the limit, not memory.
COMPUTE_ROWS = 512
REFERENCE_ROWS = 2  # the reference kernel is slow
GIVEN_ROWS = 16  # rows of a weight that are generated and then repeated
CACHE_BYTES = 60 << 20
CASE_SECONDS = 0.008

# sequences, rows of each, tokens of each; then heads of the 8B and of the 1B shape.
ATTENTION = {"decode 1 at 1k": (1, 1, 1024), "decode 16 at 1k": (16, 1, 1024), "decode 1 at 8k": (1, 1, 8192),
             "prefill 512": (1, 512, 512), "prefill 2048": (1, 2048, 2048)}  # fmt: skip
DRY_ATTENTION = {"decode 2 at 20": (2, 1, 20), "prefill 5": (1, 5, 5)}
HEADS = {"8b": (32, 8, 128), "1b": (32, 8, 64)}
DRY_HEADS = {"tiny": (4, 2, 16)}


def run(context: Context, seconds: float) -> None:
    budget = Budget(0.9 * seconds)
    shapes, rows = (DRY_SHAPES, DRY_ROWS) if context.is_dry else (SHAPES, ROWS)
    kernels = [kernel for kernel in runnable_kernels(context.kind) if context.chosen(kernel.name)]
    if not context.only:
        time_attention(context)
    for shape, (n, k) in shapes.items():
        for weight in dict.fromkeys(kernel.tested_weight for kernel in kernels):
            if budget.is_spent:
                context.note(f"no time was left for {shape} {weight} and what comes after it")
                return
            time_products(
                context, shape, (n, k), [kernel for kernel in kernels if kernel.tested_weight == weight], rows
            )
        if not context.is_dry and not context.only:
            time_torch_products(context, shape, (n, k), rows)


def time_products(
    context: Context, shape: str, size: tuple[int, int], kernels: list[ListedKernel], rows: tuple[int, ...]
) -> None:
    """Measures all kernels of one type of weights."""
    from imp_service import _testing as core

    n, k = size
    dtype = kernels[0].tested_weight
    given = tests_support("kernels.weights").random_weight(dtype, GIVEN_ROWS, k)
    x = tests_support("kernels.weights").random_rows(64, k)
    cases = [(kernel.name, m) for kernel in sorted(kernels, key=lambda kernel: kernel.layout) for m in rows
             if (context.is_dry or m >= kernel.timed_rows)
             and m <= min(kernel.max_rows, REFERENCE_ROWS if kernel.weight == "any" else kernel.max_rows)]  # fmt: skip
    taken = core.bench_gpu_products(
        context.kind, dtype, n, rows=given.file, x=x, cases=cases,
        walk_bytes=0 if context.is_dry else 2 * CACHE_BYTES, seconds=CASE_SECONDS, threads=os.cpu_count() or 1,
        cublaslt=cublaslt_places(context.kind),
    )  # fmt: skip
    weight_bytes = len(given.file) // GIVEN_ROWS * n
    for (name, m), seconds in zip(cases, taken, strict=True):
        if not seconds:
            context.note(f"{name} refuses {shape}, {m} rows")
            continue
        context.record("kernel", kernel=name, shape=shape, m=m, **speed(context, seconds, (m, n, k), weight_bytes))


def speed(context: Context, seconds: list[float], sizes: tuple[int, int, int], weight_bytes: int) -> dict[str, Any]:
    """Compares the speed with the tighter limit: reading the weight once, or multiplying."""
    m, n, k = sizes
    spread = Spread.of(seconds)
    if m >= COMPUTE_ROWS:
        rate, unit, of = 2 * m * n * k / spread.median, "TFLOP/s", "bf16"
    else:
        rate, unit, of = weight_bytes / spread.median, "GB/s", "read"
    return {"rate": rate, "unit": unit, "fraction": context.fraction(rate, of), **spread.as_row()}


def time_torch_products(context: Context, shape: str, size: tuple[int, int], rows: tuple[int, ...]) -> None:
    """Measures cuBLAS with bfloat16, over several weights in turn, so that no cache holds them."""
    import torch

    n, k = size
    n_copies = max(2, -(-2 * CACHE_BYTES // (2 * n * k)) + 1)
    weights = [torch.randn(n, k, device="cuda", dtype=torch.bfloat16) for _ in range(n_copies)]
    for m in rows:
        x = torch.randn(m, k, device="cuda", dtype=torch.bfloat16)
        seconds = graph_seconds(torch, lambda i, x=x: x @ weights[i % n_copies].t(), max(8, n_copies))
        context.record(
            "torch", what_runs="matmul bf16", shape=shape, m=m, **speed(context, seconds, (m, n, k), 2 * n * k)
        )


def graph_seconds(torch: Any, work: Callable[[int], object], n: int) -> list[float]:
    """Returns the seconds of one of n pieces of work in a graph, as for imp's kernels."""
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for i in range(3):
            work(i)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for i in range(n):
            work(i)
    return [t / n for t in Timer(torch, torch.device("cuda"))(lambda _: graph.replay())]


def time_attention(context: Context) -> None:
    from imp_service import _testing as core

    cases, heads = (DRY_ATTENTION, DRY_HEADS) if context.is_dry else (ATTENTION, HEADS)
    for model, (n_heads, n_kv_heads, head_dim) in heads.items():
        for case, (sequences, rows, tokens) in cases.items():
            # So many layers that no cache holds them, and that the rest of the step matters little.
            layers = 2 if context.is_dry else 32
            seconds = core.bench_gpu_attention(
                context.kind, n_heads=n_heads, n_kv_heads=n_kv_heads, head_dim=head_dim, sequences=sequences,
                rows=rows, tokens=tokens, layers=layers, seconds=4 * CASE_SECONDS,
            )  # fmt: skip
            work = attention_work((sequences, rows, tokens), heads[model])
            context.record("attention", model=model, case=case, **attention_speed(context, seconds, rows, work))
            if not context.is_dry:
                time_torch_attention(context, (model, case), (sequences, rows, tokens), heads[model], work)


def attention_work(sizes: tuple[int, int, int], heads: tuple[int, int, int]) -> dict[str, float]:
    """Returns the bytes of bfloat16 keys and values, and the operations of the pairs that the causal mask leaves."""
    (sequences, rows, tokens), (n_heads, n_kv_heads, head_dim) = sizes, heads
    pairs = sequences * sum(tokens - rows + i + 1 for i in range(rows))
    return {"bytes": 4.0 * sequences * tokens * n_kv_heads * head_dim, "ops": 4.0 * pairs * n_heads * head_dim}


def attention_speed(context: Context, seconds: list[float], rows: int, work: dict[str, float]) -> dict[str, Any]:
    spread = Spread.of(seconds)
    what, unit, of = ("bytes", "GB/s", "read") if rows == 1 else ("ops", "TFLOP/s", "bf16")
    rate = work[what] / spread.median
    return {"rate": rate, "unit": unit, "fraction": context.fraction(rate, of), **spread.as_row()}


def time_torch_attention(
    context: Context, names: tuple[str, str], sizes: tuple[int, int, int], heads: tuple[int, int, int],
    work: dict[str, float],
) -> None:  # fmt: skip
    """Measures PyTorch's attention over contiguous keys and values."""
    import torch

    (sequences, rows, tokens), (n_heads, n_kv_heads, head_dim) = sizes, heads
    layers = 8
    shape = (sequences, n_kv_heads, tokens, head_dim)
    kv = [torch.randn(shape, device="cuda", dtype=torch.bfloat16) for _ in range(2 * layers)]
    q = torch.randn((sequences, n_heads, rows, head_dim), device="cuda", dtype=torch.bfloat16)
    attend = torch.nn.functional.scaled_dot_product_attention
    try:
        seconds = graph_seconds(
            torch, lambda i: attend(q, kv[2 * i % (2 * layers)], kv[(2 * i + 1) % (2 * layers)],
                                    is_causal=rows > 1, enable_gqa=True), layers
        )  # fmt: skip
    except (RuntimeError, TypeError) as error:
        context.note(f"no SDPA for {' '.join(names)}: {str(error).splitlines()[0]}")
        return
    context.record(
        "torch", what_runs="SDPA", shape=" ".join(names), m=rows, **attention_speed(context, seconds, rows, work)
    )

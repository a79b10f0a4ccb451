"""Measures other engines on this device: compiled PyTorch, transformers, and llama.cpp if it is installed."""

from __future__ import annotations

import importlib.util
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gpu_check.context import Budget, Context
from gpu_check.llama_file import write_random
from gpu_check.llama_loop import DRY_SHAPE, SHAPES, LlamaShape, decode_loop
from gpu_check.numbers import Spread

TOKENS, CONTEXT, REPEATS = 64, 512, 3
DRY_TOKENS = 2
LLAMA_MIXES, LLAMA_PROMPT = ("q8_0", "q4_k_m"), 512


def run(context: Context, seconds: float) -> None:
    budget = Budget(0.75 * seconds)
    shapes = {"tiny": DRY_SHAPE} if context.is_dry else SHAPES
    for name, shape in shapes.items():
        attempt(context, budget, f"compiled PyTorch {name}", lambda n=name, s=shape: compiled_loop(context, n, s))
    for name, shape in shapes.items():
        attempt(context, budget, f"transformers {name}", lambda n=name, s=shape: transformers_loop(context, n, s))
    attempt(context, budget, "llama.cpp", lambda: llama_cpp(context, budget))


def attempt(context: Context, budget: Budget, name: str, work: Callable[[], None]) -> None:
    """Measures a comparator; its failure does not stop the others."""
    if budget.is_spent:
        context.note(f"{name}: no time was left")
        return
    try:
        work()
    except Exception as error:
        context.note(f"{name}: {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}")


def record(context: Context, name: str, shape: LlamaShape, generate: Callable[[int], object], torch: Any) -> None:
    """Records tokens per second of one sequence, and compares them with the time to read the weights."""
    tokens = DRY_TOKENS if context.is_dry else TOKENS

    def once() -> float:
        wait(context, torch)
        begin = time.perf_counter()
        generate(tokens)
        wait(context, torch)
        return (time.perf_counter() - begin) / tokens

    begin = time.perf_counter()
    once()
    start = time.perf_counter() - begin
    spread = Spread.of([once() for _ in range(1 if context.is_dry else REPEATS)])
    rate = 2 * shape.weight_elements / spread.median
    context.record("comparator", name=name, tokens_per_s=1 / spread.median, fraction=context.fraction(rate, "read"),
                   start_seconds=start, **spread.as_row())  # fmt: skip


def wait(context: Context, torch: Any) -> None:
    if not context.is_dry:
        torch.cuda.synchronize()


def compiled_loop(context: Context, name: str, shape: LlamaShape) -> None:
    import torch

    device = "cpu" if context.is_dry else "cuda"
    generate = decode_loop(torch, shape, device=device, context=CONTEXT, compiled=not context.is_dry)
    record(context, f"PyTorch compiled, {name} bf16", shape, generate, torch)


def transformers_loop(context: Context, name: str, shape: LlamaShape) -> None:
    import torch
    import transformers

    device = "cpu" if context.is_dry else "cuda"
    config = transformers.LlamaConfig(
        hidden_size=shape.hidden, intermediate_size=shape.ffn, num_hidden_layers=shape.n_layers,
        num_attention_heads=shape.n_heads, num_key_value_heads=shape.n_kv_heads, head_dim=shape.head_dim,
        vocab_size=shape.vocab, max_position_embeddings=4096, bos_token_id=0, eos_token_id=1, pad_token_id=1,
    )  # fmt: skip
    with torch.device(device):
        model = transformers.LlamaForCausalLM(config).to(torch.bfloat16).eval()
    prompt = torch.zeros((1, 1), dtype=torch.long, device=device)

    def generate(n_tokens: int) -> object:
        with torch.inference_mode():
            return model.generate(prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=n_tokens,
                                  min_new_tokens=n_tokens, do_sample=False, cache_implementation="static")  # fmt: skip

    record(context, f"transformers {transformers.__version__}, {name} bf16", shape, generate, torch)


def llama_cpp(context: Context, budget: Budget) -> None:
    """Measures llama.cpp only if it supports GPUs, because its speed on a CPU is not comparable."""
    if importlib.util.find_spec("llama_cpp") is None:
        context.note("llama.cpp: no llama-cpp-python here")
        return
    import llama_cpp

    if not llama_cpp.llama_supports_gpu_offload():
        context.note(f"llama.cpp: llama-cpp-python {llama_cpp.__version__} was built without CUDA")
        return
    from imp_service.core.synthetic import SHAPES as REAL_SHAPES
    from imp_service.models import demo_model_path

    demo = demo_model_path()
    attempt(context, budget, "llama.cpp", lambda: time_llama(context, demo, "built-in model", demo.stat().st_size))
    for mix in LLAMA_MIXES:
        attempt(context, budget, f"llama.cpp 1b {mix}", lambda m=mix: random_llama(context, REAL_SHAPES["1b"], m))


def random_llama(context: Context, shape: Any, mix: str) -> None:
    """Measures random weights with the shapes and types of the engine stage."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "random.gguf"
        n_bytes = write_random(path, shape, mix)
        time_llama(context, path, f"{shape.model} {mix}", n_bytes)


def time_llama(context: Context, path: Path, name: str, n_bytes: int) -> None:
    """Measures the generation of one sequence, and a prompt up to its first token."""
    import llama_cpp

    tokens, n_prompt = (DRY_TOKENS, 8) if context.is_dry else (TOKENS, LLAMA_PROMPT)
    model = llama_cpp.Llama(str(path), n_gpu_layers=-1, flash_attn=True, n_ctx=n_prompt + 2 * tokens + 8,
                            n_batch=n_prompt, n_ubatch=n_prompt, verbose=False)  # fmt: skip
    try:
        prompt = [i % 100 for i in range(n_prompt)]
        seconds = [llama_seconds(model, prompt, tokens) for _ in range(1 + (1 if context.is_dry else REPEATS))][1:]
        name = f"llama.cpp {llama_cpp.__version__}, {name}"
        step = Spread.of([decode / tokens for _, decode in seconds])
        context.record("comparator", name=name, tokens_per_s=1 / step.median,
                       fraction=context.fraction(n_bytes / step.median, "read"), **step.as_row())  # fmt: skip
        first = Spread.of([prefill for prefill, _ in seconds])
        context.record("comparator", name=f"{name}, prompt of {n_prompt}", tokens_per_s=n_prompt / first.median,
                       fraction=None, **first.as_row())  # fmt: skip
    finally:
        model.close()


def llama_seconds(model: Any, prompt: list[int], n_tokens: int) -> tuple[float, float]:
    """Returns the seconds to the first token, and of the tokens after it. Drawing a token waits for the device."""
    model.reset()
    begin = time.perf_counter()
    model.eval(prompt)
    token = model.sample(temp=0.0)
    first = time.perf_counter()
    for _ in range(n_tokens):
        model.eval([token])
        token = model.sample(temp=0.0)
    return first - begin, time.perf_counter() - first

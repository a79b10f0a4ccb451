"""Measures whole models with random weights: generation at several batch sizes, first tokens, time of each op."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gpu_check.context import Budget, Context, Row, StageError
from gpu_check.numbers import Spread

REPEATS = 3
DECODE_TOKENS = 48
PROFILED_STEPS = 6
# Models and the types of their weights; those with targets come first.
MODELS = (("8b", "q4_k_m"), ("8b", "q8_0"), ("1b", "q8_0"), ("1b", "q4_k_m"), ("8b", "bf16"), ("1b", "bf16"))
# The model that is also measured in deterministic mode. It is so small that products take most of a step.
COMPARED = ("1b", "q4_k_m")
# Sequences that generate together, and the tokens that each holds at the start.
BATCHES = ((1, 0), (16, 1024), (4, 0), (16, 0), (64, 0))
PROMPTS = (512, 2048, 128)


@dataclass(frozen=True)
class Sizes:
    """The measurements of a model."""

    batches: tuple[tuple[int, int], ...] = BATCHES
    prompts: tuple[int, ...] = PROMPTS
    decode_tokens: int = DECODE_TOKENS
    repeats: int = REPEATS
    profiled_steps: int = PROFILED_STEPS


COMPARED_SIZES = Sizes(batches=((1, 0), (16, 0)), prompts=(512,))
DRY_SIZES = Sizes(batches=((1, 0), (2, 4)), prompts=(6,), decode_tokens=3, repeats=1, profiled_steps=1)


@dataclass(frozen=True)
class Subject:
    """A loaded model."""

    name: str
    runs: Any  # EngineRuns
    work: Any  # ModelWork
    sizes: Sizes


def run(context: Context, seconds: float) -> None:
    budget = Budget(0.85 * seconds)
    if context.is_dry:
        measure(context, "demo", None, DRY_SIZES, budget)
        compare_modes(context, "demo", None, DRY_SIZES, budget)
    for shape, mix in () if context.is_dry else MODELS:
        if budget.is_spent:
            context.note(f"no time was left for {shape} {mix} and what comes after it")
            break
        measure(context, f"{shape} {mix}", synthetic(shape, mix), Sizes(), budget)
        if (shape, mix) == COMPARED:
            compare_modes(context, f"{shape} {mix}", synthetic(shape, mix), COMPARED_SIZES, budget)
    if wrong := [word for row in context.found("engine", "graphs") for word in wrong_captures(row)]:
        raise StageError("; ".join(wrong))


def compare_modes(context: Context, name: str, file: Any, sizes: Sizes, budget: Budget) -> None:
    """Measures the cost of deterministic mode, in which no token depends on other sequences, against the usual mode."""
    mode = f"{name} deterministic"
    measure(context, mode, file, sizes, budget, deterministic=True)
    found: dict[tuple[str, str], float] = {}
    for row in [*context.found("engine", "decode"), *context.found("engine", "first token")]:
        case = f"batch {row['batch']} at {row['depth']}" if row["what"] == "decode" else f"prompt of {row['prompt']}"
        found[row["model"], case] = row["median_us"]
    for (model, case), median in found.items():
        if model == mode and (name, case) in found:
            context.record("deterministic", model=name, case=case, cost=median / found[name, case] - 1)


def synthetic(shape: str, mix: str) -> Any:
    """Returns random weights, as fast as real ones. The 8B shares its head with the embedding, a negligible cost."""
    from imp_service import _core
    from imp_service.core.synthetic import MIXES, SHAPES, Shape, metadata, tensors

    found = SHAPES.get(shape) or Shape(
        "Llama-3.1-8B", "llama", 32, 4096, 14336, 32, 8, 128, 128256, 131072, 5e5, 1e-5, False
    )
    return _core.make_synthetic_file(metadata(found, mix), list(tensors(found, MIXES[mix])))


def settings(context: Context, sizes: Sizes, deterministic: bool) -> list[str]:
    """Returns settings as texts of --set."""
    tokens = max([batch * (depth + sizes.decode_tokens + 64) for batch, depth in sizes.batches] + list(sizes.prompts))
    return [f"device.kind={context.kind}", 'model.overrides.unvalidated_kernels=true',
            f"model.overrides.deterministic={str(deterministic).lower()}", f"kv.bytes={tokens * 2 * 160 * 1024}",
            "model.overrides.max_context=4096", "model.overrides.untrained_context=true",
            "scheduler.prefill_chunk=2048", "scheduler.step_tokens=2048"]  # fmt: skip


def measure(
    context: Context, name: str, file: Any, sizes: Sizes, budget: Budget, *, deterministic: bool = False
) -> None:
    import time

    from imp_service.config import read_settings
    from imp_service.config.machine import resolve_threads
    from imp_service.core.bench.engine_runs import EngineRuns
    from imp_service.core.bench.work import model_work
    from imp_service.core.load import load_weights

    begin = time.monotonic()
    loaded = load_weights(resolve_threads(read_settings(None, settings(context, sizes, deterministic))), file)
    try:
        model = loaded.model
        context.record("loaded", model=name, device=model.device_name, seconds=time.monotonic() - begin,
                       weights_bytes=sum(weight["n_bytes"] for weight in model.weights))  # fmt: skip
        subject = Subject(name, EngineRuns(loaded.client, model.vocab_size), model_work(model), sizes)
        for batch, depth in sizes.batches:
            if budget.is_spent:
                context.note(f"{name}: no time was left for batch {batch} at depth {depth}")
                return
            measure_decode(context, subject, batch, depth)
        for tokens in sizes.prompts:
            measure_prompt(context, subject, tokens)
    finally:
        record_graphs(context, name, loaded.client.engine.stats().graphs)
        loaded.client.close()


def record_graphs(context: Context, model: str, graphs: Any) -> None:
    """Records how steps ran, because imp silently launches kernels one by one if it cannot capture a step."""
    context.record("graphs", model=model, eager=graphs.eager, captures=graphs.captures, replays=graphs.replays,
                   failures=graphs.failures, last_failure=graphs.last_failure)  # fmt: skip


def wrong_captures(row: Row) -> list[str]:
    if row["failures"]:
        return [f"{row['model']}: {row['failures']} captures failed: {row['last_failure']}"]
    return [] if row["captures"] and row["replays"] else [f"{row['model']}: no step was captured and done again"]


def measure_decode(context: Context, subject: Subject, batch: int, depth: int) -> None:
    from imp_service.core.bench.engine_runs import DecodeBatch

    name, runs, work, sizes = subject.name, subject.runs, subject.work, subject.sizes
    with DecodeBatch(runs, batch, depth) as sequences:
        sequences.decode(2)  # captures
        sequences.decode(2)
        seconds = [sequences.decode(sizes.decode_tokens) for _ in range(sizes.repeats)]
        needed = work.decode(batch, depth, sizes.decode_tokens)
        spread = Spread.of(seconds)
        context.record("decode", model=name, batch=batch, depth=depth, tokens_per_s=needed.tokens / spread.median,
                       step_us=1e6 * spread.median / (sizes.decode_tokens - 1),
                       fraction=context.fraction(needed.bytes / spread.median, "read"), **spread.as_row())  # fmt: skip
        if depth == 0:
            steps = profiled(runs, sizes.profiled_steps, lambda: sequences.decode(sizes.profiled_steps + 2))
            record_profile(context, name, f"decode {batch}", steps)


def measure_prompt(context: Context, subject: Subject, tokens: int) -> None:
    """Measures the time to the first token, in process."""
    name, runs, work, sizes = subject.name, subject.runs, subject.work, subject.sizes
    runs.prefill(tokens)
    seconds = [runs.prefill(tokens) for _ in range(sizes.repeats)]
    spread = Spread.of(seconds)
    rate = work.prefill(tokens, tokens).ops / spread.median
    context.record(
        "first token", model=name, prompt=tokens, milliseconds=1e3 * spread.median,
        tokens_per_s=tokens / spread.median, fraction=context.fraction(rate, "bf16"), **spread.as_row(),
    )  # fmt: skip
    record_profile(context, name, f"prompt {tokens}", profiled(runs, 1, lambda: runs.prefill(tokens)))


def profiled(runs: Any, n_steps: int, work: Any) -> Any:
    """Returns the profile of the next steps, in which the engine waits for each op."""
    client, events = runs.client, []
    ticket = client.expect(events.append)
    try:
        client.engine.profile(ticket, n_steps)
        work()
        client.wait(lambda: bool(events))
    finally:
        client.forget(ticket)
    return events[0]


def record_profile(context: Context, model: str, case: str, profile: Any) -> None:
    from imp_service.serving.profile import op_shares

    n_steps = max(1, len(profile.steps))
    shares = [[share.name, round(1e3 * share.total_ms / n_steps, 2), share.count // n_steps]
              for share in op_shares(profile)[:16]]  # fmt: skip
    context.record("profile", model=model, case=case, steps=n_steps, ops=shares)

"""What a test server serves: the built-in model, a file, or a script whose next token the test decides."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Sequence
from functools import cache, cached_property
from pathlib import Path
from typing import Any, cast

from imp_service import _core
from imp_service.config import Config
from imp_service.core import EngineClient, load_weights
from imp_service.core.synthetic import synthetic_file
from imp_service.generation import ModelRuntime
from imp_service.generation.fingerprint import Fingerprint
from imp_service.generation.fingerprint_parts import fingerprint_of
from support.run.needed import TESTING, needs
from support.text.tiny_vocabularies import NORMAL, byte_level

MakeModel = Callable[[Config, Callable[[], float]], ModelRuntime]
DEMO_GOLDEN = Path(__file__).resolve().parents[2] / "data" / "demo_golden.json"


class UnwarmedModel(ModelRuntime):
    """A model without a warm-up: the engine's counts begin at zero, and no script sees its tokens."""

    @cached_property
    def fingerprint(self) -> Fingerprint:
        return fingerprint_of(self, "")

    # A server knows it before it serves.
    has_fingerprint = True


@dataclasses.dataclass(frozen=True)
class Canary:
    """A greedy generation whose tokens are known."""

    prompt_ids: Sequence[int]
    output_ids: Sequence[int]


@dataclasses.dataclass(frozen=True)
class ServedModel:
    """A function that makes the model from settings, and a canary that shows whether it works."""

    make: MakeModel
    canary: Canary | None = None
    settings: tuple[str, ...] = ()


@cache
def built_in() -> ServedModel:
    """Returns the built-in model. Another library computed its canary's tokens in float64."""
    prompts = json.loads(DEMO_GOLDEN.read_text(encoding="utf-8"))["models"]["target"]["prompts"]
    canary = Canary(tuple(prompts[0]["prompt_ids"]), tuple(prompts[0]["output_ids"]))
    return ServedModel(lambda config, clock: UnwarmedModel(load_weights(config), clock), canary)


def from_file(path: Path) -> ServedModel:
    """Returns the model of a file, such as one of tiny_models."""
    return ServedModel(
        lambda config, clock: UnwarmedModel(load_weights(config), clock), settings=(f"model.path={path}",)
    )


def tiny_with_text(folder: Path, architecture: str = "qwen3", **changes: Any) -> ServedModel:
    """Writes a tiny model of the family to `folder`. Its byte vocabulary covers any text; it has no chat template."""
    from support.models.tiny_models import tiny  # needs gguf

    words = byte_level(merges=[("t", "h"), ("th", "e")])
    model = tiny(architecture, vocab_size=len(cast(list[str], words["tokenizer.ggml.tokens"])), **changes)
    contents = model.contents()
    contents.keys = {**contents.keys, **words}
    return from_file(contents.write(folder / f"tiny_{architecture}.gguf"))


def random_weights(shape: str, mix: str) -> ServedModel:
    """Returns a model with the shape of a published one, random weights, and a vocabulary with text for every id."""
    file = synthetic_file(shape, mix)

    def make(config: Config, clock: Callable[[], float]) -> ModelRuntime:
        loaded = load_weights(config, file)
        words = byte_level(merges=[("t", "h")])
        tokens = cast(list[str], words["tokenizer.ggml.tokens"])
        more = [f"w{i}" for i in range(loaded.model.vocab_size - len(tokens))]
        types = [*cast(list[int], words["tokenizer.ggml.token_type"]), *[NORMAL] * len(more)]
        texts = {"tokenizer.ggml.tokens": [*tokens, *more], "tokenizer.ggml.token_type": types}
        return UnwarmedModel(dataclasses.replace(loaded, metadata={**loaded.metadata, **words, **texts}), clock)

    return ServedModel(make)


@dataclasses.dataclass(frozen=True)
class OtherContext:
    """The properties of a loaded model, but with the maximum context of the script engine."""

    real: _core.Model
    max_context: int

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)


# Options of scripted() for generations that do not reach the end of the context during a test.
ENDLESS = {"max_context": 120_000, "n_blocks": 16_000}


def scripted(rule: str = "counter", *, script: dict[str, Any] | None = None, **engine: Any) -> ServedModel:
    """Returns the built-in model's text layer over an engine with scripted logits; `engine` overrides its options.

    Rules: "counter": n + 1 follows n; "hash": a hash of all earlier tokens; "table": script["table"] by position;
    "cheap": like "counter", for measurements of the code around it.
    """

    with needs(TESTING):
        import imp_service._testing as testing

    def make(config: Config, clock: Callable[[], float]) -> ModelRuntime:
        loaded = load_weights(config)
        scheduler = loaded.config.settings.scheduler
        options = {
            "n_blocks": loaded.model.n_blocks,
            "max_context": loaded.model.max_context,
            "max_running": scheduler.max_running,
            "max_waiting": scheduler.max_waiting,
            "max_waiting_tokens": scheduler.max_waiting_tokens,
            "max_sessions": loaded.config.settings.sessions.max,
            "prefill_chunk": scheduler.prefill_chunk,
            "step_tokens": scheduler.step_tokens,
            "prefill_per_decode": scheduler.prefill_per_decode,
            "decode_per_tenant": scheduler.decode_per_tenant,
            "tenant_share": scheduler.tenant_share,
            "prefix_cache": loaded.config.settings.kv.prefix_cache,
            **engine,
        }
        given = {
            "vocab_size": loaded.model.vocab_size,
            "max_rows": options["step_tokens"],
            "max_logits_rows": max(64, options["max_running"]),
            "records": False,
            **(script or {}),
        }
        core = testing.ThreadedEngine(testing.Script(rule, **given), _core.EngineOptions(**options))
        facts = cast(_core.Model, OtherContext(loaded.model, options["max_context"]))
        return UnwarmedModel(dataclasses.replace(loaded, model=facts, running=EngineClient(core)), clock)

    # The script's sampler has no truncation and no repetition penalty, so the file's recommendation is ignored. Without
    # a temperature in the request, the script decides the output, not a drawn seed.
    off = tuple(f"model.overrides.default_sampling.{key}" for key in ("temperature=0", "top_k=0", "top_p=1", "min_p=0"))
    first = 300
    counted = Canary((first,), tuple(range(first + 1, first + 33)))
    return ServedModel(make, counted if rule == "counter" else None, off)

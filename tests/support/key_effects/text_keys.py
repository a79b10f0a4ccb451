"""Keys whose effect shows in a model's text layer: templates, constraints, default samplers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

from imp_service.api.options import SamplingOptions
from imp_service.api.vectors import EmbedOptions, EmbedRequest
from imp_service.config import read_settings
from imp_service.core import Error
from imp_service.generation import ModelRuntime, defaults, load_model
from imp_service.text import ChatMessage, ChatPrompt, ConstraintKind, ConstraintSpec, TextError
from support.key_effects.core_keys import SMALL
from support.key_effects.effect import Effect, Observe
from support.machine.command_line import demo_with

CHAT = ChatPrompt((ChatMessage("user", "hello"),))
TEMPLATE_FILE = "chat.jinja"
POOLED = "model.overrides.pooling=last"
TEMPLATE_KEY = "model.overrides.chat_template"


@contextmanager
def model_of(settings: tuple[str, ...]) -> Iterator[ModelRuntime]:
    """Yields the built-in model under these settings."""
    model = load_model(read_settings(None, [*SMALL, *settings]))
    try:
        yield model
    finally:
        model.close()


def refusal(work: Callable[[], object]) -> str:
    """Returns the reason for which `work` fails, or OK."""
    try:
        work()
    except (Error, TextError) as error:
        return error.reason
    return "OK"


def rendered(folder: Path, settings: tuple[str, ...]) -> bool:
    """Returns whether the template in the folder is the model's."""
    (folder / TEMPLATE_FILE).write_text("from a file")
    with model_of(settings) as model:
        return model.text.render(CHAT).text == "from a file"


def ends(_: Path, settings: tuple[str, ...]) -> list[int]:
    """Returns the tokens that end a text."""
    with model_of(settings) as model:
        return model.eos_tokens


def dialect(_: Path, settings: tuple[str, ...]) -> str:
    """Returns the name of the model's tool call dialect."""
    with model_of(settings) as model:
        return model.text.dialect.name


def pooling(_: Path, settings: tuple[str, ...]) -> str:
    """Returns how a text becomes a vector."""
    with model_of(settings) as model:
        return model.embedder.facts.pooling


def approximation(_: Path, settings: tuple[str, ...]) -> str:
    """Returns what a reply says of vectors with eight numbers."""
    with model_of(settings) as model:
        return model.embedder.approximation(EmbedOptions(dimensions=8))


def embedding_a_long_text(_: Path, settings: tuple[str, ...]) -> str:
    """Returns the result of planning an input that is too long: a reason or OK."""
    with model_of(settings) as model:
        request = EmbedRequest([[5] * (model.max_context + 1)])
        return refusal(lambda: model.embedder.plan_texts(request))


def pre_tokenizer(_: Path, settings: tuple[str, ...]) -> str:
    """Returns the name of the pre-tokenizer."""
    with model_of(settings) as model:
        return model.tokenizer.pre


def cache_is_tried(_: Path, settings: tuple[str, ...]) -> bool:
    """Returns whether the types of the cache were tried on the model."""
    with model_of(settings) as model:
        return model.cache_trial is not None


def loading(_: Path, settings: tuple[str, ...]) -> str:
    """Returns the result of loading the model: a reason or OK."""

    def load() -> None:
        with model_of(settings):
            pass

    return refusal(load)


def serving_a_broken_template(folder: Path, settings: tuple[str, ...]) -> str:
    """Returns the result of a start whose model has a chat template that does not compile."""
    path = folder / "broken.gguf"
    demo_with(path, b"{% endfor %}", b"{% endfur %}")

    def start() -> None:
        with model_of((f"model.path={path}", *settings)) as model:
            model.prepare_chats()

    return refusal(start)


def rendering(template: str) -> Observe:
    """Observes the result of rendering a template: a reason or OK."""

    def observe(folder: Path, settings: tuple[str, ...]) -> str:
        (folder / TEMPLATE_FILE).write_text(template)

        def render() -> None:
            with model_of((*settings, f"{TEMPLATE_KEY}={folder / TEMPLATE_FILE}")) as model:
                model.text.render(CHAT)

        return refusal(render)

    return observe


def compiling(constraint: ConstraintSpec) -> Observe:
    """Observes the result of compiling a constraint: a reason or OK."""

    def observe(_: Path, settings: tuple[str, ...]) -> str:
        with model_of(settings) as model:
            return refusal(lambda: model.text.compile(constraint))

    return observe


def kept(_: Path, settings: tuple[str, ...]) -> bool:
    """Returns whether the cache still holds a compiled constraint that nobody uses any more."""
    with model_of(settings) as model:
        model.text.compile(LONG_REGEX)
        return model.text.find(LONG_REGEX) is not None


def nested(depth: int) -> ConstraintSpec:
    """Returns a JSON Schema of arrays within arrays."""
    return ConstraintSpec(ConstraintKind.JSON_SCHEMA, '{"items":' * depth + "{}" + "}" * depth)


def default(name: str) -> Observe:
    """Observes the value that the core's sampler gets for an option that a request leaves unset."""

    def observe(_: Path, settings: tuple[str, ...]) -> float:
        asked: dict[str, float] = {}
        with model_of(settings) as model, mock.patch.object(defaults, "CoreSampling", asked.update):
            model.options.core_sampling(model.options.sampling(SamplingOptions(seed=1)))
        return round(asked[name], 6)

    return observe


def default_samplers() -> dict[str, Effect]:
    """Returns the effect of every sampler option that has a key; the built-in model's file recommends three."""
    values = {
        "temperature": ("0.25", 0.7, 0.25),
        "top_k": ("7", 0, 7),
        "top_p": ("0.5", 0.95, 0.5),
        "min_p": ("0.25", 0.0, 0.25),
        "typical_p": ("0.5", 1.0, 0.5),
        "repetition_penalty": ("1.5", 1.0, 1.5),
        "frequency_penalty": ("0.5", 0.0, 0.5),
        "presence_penalty": ("-0.5", 0.0, -0.5),
        "penalty_window": ("9", 0, 9),
    }
    prefix = "model.overrides.default_sampling"
    return {f"{prefix}.{name}": Effect(given, default(name), *seen) for name, (given, *seen) in values.items()}


INVALID, FAILED, FIELD = "TEMPLATE_INVALID", "TEMPLATE_FAILED", "FIELD_INVALID"
LOOP = "{% for i in range(50) %}{% endfor %}"
# Takes a few milliseconds.
SLOW = "{% for i in range(20000) %}{% endfor %}"
LONG_REGEX = ConstraintSpec(ConstraintKind.REGEX, "abcdefgh" * 4)
# Takes tens of milliseconds to compile.
SLOW_REGEX = ConstraintSpec(ConstraintKind.REGEX, "|".join(f"{i}[0-9]{{1,90}}" for i in range(500)))
# Needs a few MiB while it is compiled.
LARGE = ConstraintSpec(ConstraintKind.JSON_SCHEMA, '{"type": "integer", "multipleOf": 9973}')

TEXT_EFFECTS: dict[str, Effect] = {
    "kv.trial": Effect("false", cache_is_tried, True, False, also=("kv.dtype=rot4",)),
    "limits.truncate": Effect("start", embedding_a_long_text, "CONTEXT_TOO_LONG", "OK", also=(POOLED,)),
    "model.overrides.matryoshka": Effect("true", approximation, "dimensions=8", "", also=(POOLED,)),
    "model.overrides.pooling": Effect("mean", pooling, "none", "mean"),
    "model.strict": Effect("true", serving_a_broken_template, "OK", INVALID),
    "model.overrides.chat_template_name": Effect("none", loading, "OK", INVALID),
    "model.overrides.dialect": Effect("llama3", dialect, "plain", "llama3"),
    "model.overrides.eos_token_ids": Effect("[3, 5]", ends, [2045, 2047], [3, 5]),
    "model.overrides.pre_tokenizer": Effect("gpt-2", pre_tokenizer, "qwen2", "gpt-2"),
    TEMPLATE_KEY: Effect("{folder}/" + TEMPLATE_FILE, rendered, False, True),
    "text.template_iterations": Effect("40", rendering(LOOP), "OK", FAILED),
    "text.template_operand_bytes": Effect("100", rendering("{{ 'x' * 200 }}"), "OK", FAILED),
    "text.template_bytes": Effect("20", rendering(LOOP), "OK", INVALID),
    "text.template_time": Effect("1ms", rendering(SLOW), "OK", FAILED),
    "text.render_bytes": Effect("100", rendering("x" * 200), "OK", FAILED),
    "text.constraint_bytes": Effect("40", compiling(nested(10)), "OK", FIELD),
    "text.regex_bytes": Effect("20", compiling(LONG_REGEX), "OK", FIELD),
    "text.nesting": Effect("5", compiling(nested(10)), "OK", FIELD),
    "text.compile_time": Effect("1ms", compiling(SLOW_REGEX), "OK", FIELD),
    "text.compile_bytes": Effect("1MiB", compiling(LARGE), "OK", FIELD),
    "text.cache_bytes": Effect("0", kept, True, False),
    **default_samplers(),
}

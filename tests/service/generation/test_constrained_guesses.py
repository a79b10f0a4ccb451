"""Guesses of constrained generations: the same output over every way, one round trip a round, and forced text."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import pytest

import imp_service
from imp_service import ConstraintKind, ConstraintSpec, GenerationResult, LanguageModel
from imp_service.core import DraftedEvent
from imp_service.generation.fold import AllowNext, GenerationFold
from imp_service.generation.run import GenerationRun
from support.calls.generations import vocabulary
from support.models.fixed_depth import DRAFTING, NO_DRAFTERS, fixed_depth
from support.models.worded_models import write_worded
from support.run.quick_run import Repeats
from support.run.release_run import repetitions
from support.servers.http_served import HttpServed, serve_http
from support.text.tool_templates import HERMES

SMALL = ("limits.max_context=512", "device.threads=1")
TALK = [{"role": "user", "content": "Where is the cat?"}]
PROMPT = "Tom has a cat. The cat has a name: Tom. "
MAX_TOKENS = 90
N_SAMPLES = repetitions(1000, 200)
PLACE = {
    "type": "object",
    "properties": {
        "colour": {"enum": ["red", "dark blue"]},
        "seats": {"type": "array", "items": {"type": "integer", "minimum": 1, "maximum": 40}, "maxItems": 3},
        "note": {"type": "string", "maxLength": 6},
    },
    "required": ["colour", "seats", "note"],
    "additionalProperties": False,
}
CHOICES = ("yes", "no", "perhaps tomorrow", "perhaps next week")
REGEX = r"(id: [0-9]{2}; name: [a-z]{1,5}\n){1,4}the end"
GBNF = 'root ::= item ("," item)? ("," item)?\nitem ::= "<item>" word "</item>"\nword ::= [a-z] | [a-z] [a-z] [a-z]'
GBNF_TEXT = r"<item>([a-z]|[a-z]{3})</item>(,<item>([a-z]|[a-z]{3})</item>){0,2}"
TOOLS = [{"type": "function", "function": {"name": "find_place", "parameters": PLACE}}]

Model = imp_service.LanguageModel | imp_service.Client
Ask = Callable[[Model, dict[str, Any]], GenerationResult]


def is_object(text: str) -> None:
    assert isinstance(json.loads(text), dict)


def matches(pattern: str) -> Callable[[str], None]:
    def check(text: str) -> None:
        assert re.fullmatch(pattern, text), text

    return check


KINDS: dict[str, tuple[ConstraintSpec | None, Callable[[str], None]]] = {
    "choices": (ConstraintSpec(ConstraintKind.CHOICES, choices=CHOICES), matches("|".join(CHOICES))),
    "regex": (ConstraintSpec(ConstraintKind.REGEX, REGEX), matches(REGEX)),
    "gbnf": (ConstraintSpec(ConstraintKind.GBNF, GBNF), matches(GBNF_TEXT)),
    "json_object": (ConstraintSpec(ConstraintKind.JSON_OBJECT), is_object),
    "json_schema": (
        ConstraintSpec(ConstraintKind.JSON_SCHEMA, json.dumps(PLACE)),
        lambda text: jsonschema.validate(json.loads(text), PLACE),
    ),
    "call": (None, lambda text: jsonschema.validate(json.loads(text), PLACE)),
}


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, ...]:
    path: Path = tmp_path_factory.mktemp("templates") / "chat.jinja"
    path.write_text(HERMES)
    return (*SMALL, f"model.overrides.chat_template={path}")


@pytest.fixture(scope="module")
def plain(settings: tuple[str, ...]) -> Iterator[LanguageModel]:
    with imp_service.load(None, *settings, NO_DRAFTERS) as model:
        yield model


@pytest.fixture(scope="module")
def drafting(settings: tuple[str, ...]) -> Iterator[LanguageModel]:
    with fixed_depth(), imp_service.load(None, *settings, DRAFTING) as model:
        yield model


@cache
def blanks() -> tuple[int, ...]:
    """Returns the tokens of white space in the vocabulary of the built-in model."""
    return tuple(i for i in range(vocabulary().vocab_size) if not vocabulary().token_bytes(i).strip())


def ask(model: Model, kind: str, seed: int, **options: Any) -> GenerationResult:
    """Greedy and sampled generations in turn; some log their probabilities, some have a stop string or penalties."""
    given: dict[str, Any] = {
        "max_tokens": MAX_TOKENS if seed % 5 else 7,
        "temperature": (0.0, 0.7, 1.2)[seed % 3],
        "seed": seed,
        "logprobs": seed % 4 == 0,
        "stop": ["e"] if seed % 7 == 6 else (),
        "repetition_penalty": 1.2 if seed % 11 == 10 else 1.0,
        # Untrained, the model would fill JSON with blanks up to the limit.
        "logit_bias": dict.fromkeys(blanks(), -12.0),
        **options,
    }
    constraint, _ = KINDS[kind]
    if constraint is None:
        return model.chat(
            TALK, tools=TOOLS, tool_choice="required", parallel_tool_calls=False, parse=True, **given
        ).result()
    return model.generate(PROMPT, constraint=constraint, **given).result()


def without_times(result: GenerationResult) -> dict[str, Any]:
    """Returns all that does not depend on the clock. Guesses may depend on it."""
    used = replace(result.usage, draft_tokens=0, accepted_draft_tokens=0, cached_prompt_tokens=0)
    calls = [(call.name, call.arguments, call.id) for call in result.tool_calls]
    fields = ("text", "token_ids", "finish_reason", "match", "logprobs")
    return {name: getattr(result, name) for name in fields} | {"usage": used, "calls": calls}


def check(kind: str, result: GenerationResult) -> bool:
    """Checks an output that is whole; returns whether it is."""
    if result.finish_reason != "stop" or (result.match is not None and result.match.text is not None):
        return False
    KINDS[kind][1](result.tool_calls[0].arguments if kind == "call" else result.text)
    return True


@pytest.mark.few(2)
@pytest.mark.parametrize("kind", KINDS)
def test_spc_17_each_kind_of_constraint_gives_the_same_with_guesses(
    plain: LanguageModel, drafting: LanguageModel, kind: str, repeats: Repeats
) -> None:
    """Samples of one batch. Those that are complete are valid for programs that know nothing of the constraint."""
    seeds = range(repeats(N_SAMPLES))
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda seed: ask(drafting, kind, seed), seeds))
        expected = list(pool.map(lambda seed: ask(plain, kind, seed), seeds))
    for seed in seeds:
        assert without_times(found[seed]) == without_times(expected[seed]), seed
    assert sum(check(kind, result) for result in found) > len(seeds) / 4
    assert sum(result.usage.accepted_draft_tokens for result in found) > len(seeds) / 2
    assert sum(result.usage.draft_tokens for result in expected) == 0


@pytest.mark.few(3)
@pytest.mark.parametrize("kind", KINDS)
def test_spc_17_a_round_is_one_round_trip(
    plain: LanguageModel, drafting: LanguageModel, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each answer of the text side is one step: the outputs are its draws and the right guesses."""
    answers: list[AllowNext] = []
    allow = GenerationRun._allow

    def counted(run: GenerationRun, mask: AllowNext) -> None:
        answers.append(mask)
        allow(run, mask)

    monkeypatch.setattr(GenerationRun, "_allow", counted)
    for seed in (1, 2):
        answers.clear()
        result = ask(drafting, kind, seed)
        n_steps = len(result.token_ids) - result.usage.accepted_draft_tokens
        # The text may end with a token that is no output, and an answer may say that it must end, or that it has ended.
        assert n_steps <= len(answers) <= n_steps + 2
        assert len(answers) < len(result.token_ids) or kind == "choices"
        answers.clear()
        assert len(ask(plain, kind, seed).token_ids) <= len(answers)


@pytest.mark.long
def test_spc_17_guesses_are_looked_for_where_the_engine_asks(
    monkeypatch: pytest.MonkeyPatch, settings: tuple[str, ...]
) -> None:
    """It asks for whatever its budget can pay, which is nothing in many steps."""
    answers: list[AllowNext] = []
    n_asked: list[int] = []
    allow, feed = GenerationRun._allow, GenerationFold.feed

    def counted(run: GenerationRun, mask: AllowNext) -> None:
        answers.append(mask)
        allow(run, mask)

    def watched(fold: GenerationFold, event: Any) -> bool:
        if isinstance(event, DraftedEvent):
            n_asked.append(event.n_most)
        return feed(fold, event)

    monkeypatch.setattr(GenerationRun, "_allow", counted)
    monkeypatch.setattr(GenerationFold, "feed", watched)
    with imp_service.load(None, *settings, DRAFTING) as model:
        for kind in KINDS:
            ask(model, kind, 1)
    assert all(n_asked) and len(n_asked) == sum(answer.ahead is not None for answer in answers)
    assert 0 < len(n_asked) <= len(answers) - len(KINDS)  # the first mask of each answers nothing


@contextmanager
def connected(http: HttpServed) -> Iterator[imp_service.Client]:
    with imp_service.connect(http.served.address) as client:
        yield client


@pytest.mark.long
def test_spc_17_grpc_and_http_give_the_same_with_guesses(plain: LanguageModel, settings: tuple[str, ...]) -> None:
    formats = {
        "choices": {"structured_outputs": {"choice": list(CHOICES)}},
        "regex": {"structured_outputs": {"regex": REGEX}},
        "json_schema": {"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": PLACE}}},
    }
    with fixed_depth(), serve_http(*settings, DRAFTING) as http, connected(http) as client:
        accepted = 0
        for kind in KINDS:
            for seed in range(5):
                found = ask(client, kind, seed)
                assert without_times(found) == without_times(ask(plain, kind, seed)), (kind, seed)
                accepted += found.usage.accepted_draft_tokens
        assert accepted > 0
        for kind, fields in formats.items():
            body = {"prompt": PROMPT, "max_tokens": MAX_TOKENS, "temperature": 0.7, "seed": 5, **fields}
            body["logit_bias"] = {str(token): -12 for token in blanks()}
            answers = [
                http.client.post("/v1/completions", {**body, **each}).json
                for each in ({"speculation": False}, {}, {"max_draft_tokens": 1}, {"stream": False})
            ]
            texts = [answer["choices"] for answer in answers]
            assert texts[0] == texts[1] == texts[2] == texts[3]
            KINDS[kind][1](texts[0][0]["text"])


def test_spc_17_sessions_give_the_same_with_guesses(plain: LanguageModel, drafting: LanguageModel) -> None:
    """A constrained generation on a session is left, cut by a stop string, or whole; then the session goes on."""

    def tokens_of(model: LanguageModel) -> list[Any]:
        seen: list[Any] = []
        with model.open(temperature=0.8, seed=3) as session:
            session.prefill(PROMPT)
            for kind, options in (("regex", {}), ("json_schema", {"stop": ["seats"]}), ("gbnf", {"max_tokens": 9})):
                given: dict[str, Any] = {"max_tokens": 30, **options}
                result = session.generate(constraint=KINDS[kind][0], **given).result()
                seen.append((result.token_ids, result.finish_reason, session.position))
                with session.fork() as copy:
                    seen.append(copy.generate(max_tokens=3, constraint=KINDS["choices"][0]).result().token_ids)
                seen.append(session.decode_step().token_id)
                with session.generate(constraint=KINDS["regex"][0], max_tokens=30) as left:
                    next(iter(left))
                session.truncate(min(session.position, 30))
        return seen

    assert tokens_of(drafting) == tokens_of(plain)


def test_spc_17_siblings_give_the_same_with_guesses(plain: LanguageModel, drafting: LanguageModel) -> None:
    def texts(model: LanguageModel) -> list[Sequence[int]]:
        request = imp_service.GenerationRequest(
            PROMPT,
            imp_service.SamplingOptions(temperature=1.0, seed=4),
            imp_service.StopOptions(max_tokens=50),
            KINDS["regex"][0],
            num_sequences=3,
        )
        tokens: list[list[int]] = [[], [], []]
        for reply in model.generate(request):
            if isinstance(reply, imp_service.Chunk):
                tokens[reply.index] += reply.token_ids
        return [tuple(each) for each in tokens]

    assert texts(drafting) == texts(plain)
    assert len(set(texts(drafting))) > 1


LONG_KEYS = {
    "type": "object",
    "properties": {
        f"{name}_of_the_described_place": {"enum": [1, 2, True]}
        for name in ("inhabitants", "temperature", "description", "neighbourhood")
    },
    "required": [],
    "additionalProperties": False,
}
LONG_KEYS["required"] = list(LONG_KEYS["properties"])  # type: ignore[call-overload]


@pytest.mark.long
def test_spc_18_half_of_the_outputs_of_fixed_keys_are_guessed(drafting: LanguageModel) -> None:
    """The model knows nothing of the schema, and the prompt has none of its text."""
    spec = ConstraintSpec(ConstraintKind.JSON_SCHEMA, json.dumps(LONG_KEYS))
    outputs = accepted = 0
    for seed in range(8):
        result = drafting.generate(
            "Once upon a time", constraint=spec, seed=seed, temperature=0.7, max_tokens=150
        ).result()
        if result.finish_reason == "stop":
            jsonschema.validate(json.loads(result.text), LONG_KEYS)
        outputs += len(result.token_ids)
        accepted += result.usage.accepted_draft_tokens
    assert accepted >= outputs / 2


@pytest.mark.long
def test_spc_28_nothing_is_forced_without_drafters(plain: LanguageModel, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("guesses were computed")

    monkeypatch.setattr("imp_service.text.ConstraintState.ahead", refuse)
    assert ask(plain, "json_schema", 1).usage.draft_tokens == 0
    with (
        pytest.raises(AssertionError, match="guesses were computed"),
        fixed_depth(),
        imp_service.load(None, *SMALL, DRAFTING) as model,
    ):
        ask(model, "regex", 1)
    with fixed_depth(), imp_service.load(None, *SMALL, DRAFTING) as model:
        assert ask(model, "regex", 1, speculation_enabled=False).usage.draft_tokens == 0


@pytest.mark.long
def test_spc_17_a_model_with_a_recurrent_state_gives_the_same_with_guesses(tmp_path: Path) -> None:
    write_worded(tmp_path / "model.gguf", ["<|end|>"], eos="<|end|>", family="qwen35")
    found = []
    for drafters in (NO_DRAFTERS, DRAFTING):
        with fixed_depth(), imp_service.load(tmp_path / "model.gguf", "device.threads=1", drafters) as model:
            results = [
                model.generate("Where", constraint=KINDS["regex"][0], seed=n, max_tokens=40).result() for n in (1, 2)
            ]
            assert (sum(result.usage.accepted_draft_tokens for result in results) > 0) == (drafters == DRAFTING)
            found.append([without_times(result) for result in results])
    assert found[0] == found[1]

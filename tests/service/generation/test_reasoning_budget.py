"""A bound of the reasoning: the model's tokens up to it, the closing, then what the model writes after it (BUD)."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import imp_service
from imp_service import Error, GenerationRequest, LanguageModel, OutputOptions, SamplingOptions, StopOptions
from imp_service.generation.reasoning import section_of
from imp_service.pb import inference_pb2 as pb
from imp_service.text import Tokenizer
from imp_service.text.channels.channel_stream import ChannelStream, ParsePlan, joined, visible
from imp_service.text.channels.dialects import DIALECTS
from support.calls.failed_calls import failed
from support.models.fixed_depth import DRAFTING, NO_DRAFTERS, fixed_depth
from support.models.worded_models import write_worded
from support.oracles.section_oracle import BoundedOutputs, BoundedSection
from support.servers.http_served import HttpServed, serve_http
from support.servers.served_models import from_file
from support.text.tiny_vocabularies import byte_level

CONTROL = ("<think>", "</think>", "<|im_start|>", "<|im_end|>")
# The template names the tools, and opens the reasoning.
TEMPLATE = """{% for t in tools or [] %}{{ t.function.name }}{% endfor %}{% for m in messages %}<|im_start|>{{ m.role }}
{{ m.content }}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
<think>
{% endif %}"""
SAID = "Why is the sky blue?"
CHAT = "/v1/chat/completions"
LONG = {"max_tokens": 24, "ignore_eos": True}


class Thinker:
    """The files of a model that reasons, and its control tokens."""

    def __init__(self, folder: Path) -> None:
        self.path, template = folder / "thinker.gguf", folder / "chat.jinja"
        self.ids = write_worded(self.path, CONTROL, eos="<|im_end|>")
        template.write_text(TEMPLATE)
        self.settings = (f"model.overrides.chat_template={template}", "model.overrides.dialect=hermes")

    def load(self, *settings: str) -> LanguageModel:
        return imp_service.load(self.path, *self.settings, *settings)

    @property
    def close(self) -> int:
        return self.ids["</think>"]

    @property
    def unclosed(self) -> dict[int, float]:
        """A bias by which the model writes no control token, and so never closes the reasoning itself."""
        return dict.fromkeys(self.ids.values(), -100.0)


@pytest.fixture(scope="module")
def thinker(tmp_path_factory: pytest.TempPathFactory) -> Thinker:
    return Thinker(tmp_path_factory.mktemp("thinker"))


@pytest.fixture(scope="module")
def model(thinker: Thinker) -> Iterator[LanguageModel]:
    with thinker.load(NO_DRAFTERS) as it:
        yield it


@pytest.fixture(scope="module")
def http(thinker: Thinker) -> Iterator[HttpServed]:
    with serve_http(*thinker.settings, model=from_file(thinker.path)) as it:
        yield it


@pytest.mark.parametrize("most", [0, 1, 7, 23])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_bud_1_the_model_goes_on_as_if_it_had_closed_its_reasoning(
    thinker: Thinker, model: LanguageModel, most: int, temperature: float
) -> None:
    asked = {**LONG, "temperature": temperature, "min_p": 0.0, "seed": 5, "logit_bias": thinker.unclosed}
    result = model.chat(SAID, max_reasoning_tokens=most, prompt_token_ids=True, parse=True, **asked).result()
    whole, prompt = model.chat(SAID, **asked).result().token_ids, result.prompt.token_ids
    assert result.token_ids[: most + 1] == [*whole[:most], thinker.close] and whole[most] != thinker.close
    assert result.usage.reasoning_tokens == most
    options = {name: asked[name] for name in ("temperature", "min_p", "seed", "logit_bias")}
    with model.open(**options) as session:
        step = session.prefill([*prompt, *result.token_ids[: most + 1]], base=len(prompt))
        found = [step.token_id]
        while len(found) < 23 - most:
            found.append(session.decode_step().token_id)
    assert result.token_ids[most + 1 :] == found[: 23 - most]


def test_bud_1_a_model_that_closes_its_reasoning_in_time_is_left_alone(thinker: Thinker, model: LanguageModel) -> None:
    asked = {**LONG, "temperature": 1.0, "min_p": 0.0, "logit_bias": {thinker.close: 5.0}}
    n_seen = 0
    for seed in range(12):
        whole = model.chat(SAID, seed=seed, **asked).result().token_ids
        n_thought = whole.index(thinker.close) if thinker.close in whole else len(whole)
        for most in (n_thought, n_thought + 1):
            assert model.chat(SAID, seed=seed, max_reasoning_tokens=most, **asked).result().token_ids == whole
        if 0 < n_thought < len(whole):
            n_seen += 1
            less = model.chat(SAID, seed=seed, max_reasoning_tokens=n_thought - 1, **asked).result().token_ids
            assert less[: n_thought - 1] == whole[: n_thought - 1] and less[n_thought - 1] == thinker.close
    assert n_seen > 3


def requests_of(thinker: Thinker) -> list[GenerationRequest]:
    """Requests whose outputs repeat few tokens, so that they are guessed across the border."""
    rng = random.Random(9)
    chat = imp_service.ChatPrompt((imp_service.ChatMessage("user", "ab ab ab ab ab"),))
    few = dict.fromkeys((*b"ab ", thinker.close), 60.0)
    return [
        GenerationRequest(
            chat,
            SamplingOptions(temperature=rng.choice([0.0, 0.7]), seed=i, logit_bias=few if i % 3 else thinker.unclosed),
            StopOptions(max_tokens=rng.choice([12, 30]), ignore_eos=True),
            output=OutputOptions(logprobs=True),
            max_reasoning_tokens=rng.choice([None, 0, 1, 2, 5, 9, 20]),
            num_sequences=rng.choice([1, 2]),
        )
        for i in range(18)
    ]


VARIANTS = {
    "together": (NO_DRAFTERS,),
    "guesses": (DRAFTING, "speculation.max_draft_tokens=5"),
    "chunks": (NO_DRAFTERS, "scheduler.prefill_chunk=7", "kv.prefix_cache=false"),
    "preempted": (DRAFTING, "limits.max_context=128", "kv.bytes=160KiB", "kv.block_tokens=16"),
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_bud_2_spc_1_the_same_tokens_in_any_company(thinker: Thinker, model: LanguageModel, variant: str) -> None:
    requests = requests_of(thinker)
    alone = [[(r.token_ids, r.logprobs) for r in model.generate(each).results()] for each in requests]
    with fixed_depth(), thinker.load(*VARIANTS[variant]) as other:
        results = other.generate(requests).results()
        stats = other._runtime.client.engine.stats()
    found = iter([(each.token_ids, each.logprobs) for each in results])
    assert [[next(found) for _ in each] for each in alone] == alone
    if DRAFTING in VARIANTS[variant]:
        assert stats.drafts.n_accepted > 20 < stats.drafts.n_drafted - stats.drafts.n_accepted


def test_bud_1_bud_2_spc_1_a_marker_of_several_tokens_is_closed_alike_with_a_draft_model() -> None:
    """The built-in pair of models spells the markers in letters."""
    dialect = "model.overrides.dialect=hermes"
    requests = [
        GenerationRequest(
            f"{text} <think>",
            SamplingOptions(temperature=i % 2 * 0.8, seed=i),
            StopOptions(max_tokens=30, ignore_eos=True),
            output=OutputOptions(parse=True),
            max_reasoning_tokens=(0, 1, 4, 11)[i % 4],
        )
        for i, text in enumerate(["Once upon a time", "The cat", "Tom and Ann", "What is imp?"] * 2)
    ]
    with imp_service.load(None, NO_DRAFTERS, dialect) as model:
        alone = [model.generate(each).result() for each in requests]
    with fixed_depth(), imp_service.load(None, 'speculation.drafters=["model"]', dialect) as model:
        together = model.generate(requests).results()
        drafts = model._runtime.client.engine.stats().drafts
    assert [each.token_ids for each in together] == [each.token_ids for each in alone]
    assert drafts.n_accepted > 20 < drafts.n_drafted - drafts.n_accepted
    thought = [each.usage.reasoning_tokens for each in alone]
    # A control token is counted, and is no text.
    assert all(n <= int(each.max_reasoning_tokens or 0) for n, each in zip(thought, requests, strict=True))
    assert {0, 1, 4, 11} <= {*thought} and all(each.text for each in alone)


def test_bud_3_the_log_probability_of_the_closing_is_the_models(thinker: Thinker, model: LanguageModel) -> None:
    asked = {**LONG, "temperature": 0.0, "logprobs": True, "top_logprobs": 2, "logit_bias": thinker.unclosed}
    result = model.chat(SAID, max_reasoning_tokens=3, prompt_token_ids=True, **asked).result()
    prompt = result.prompt.token_ids
    scored = model.generate([*prompt, *result.token_ids], max_tokens=1, prompt_logprobs=True).result()
    assert result.token_ids[3] == thinker.close
    assert result.logprobs == scored.prompt.logprobs[len(prompt) :]
    assert result.candidates[3][0].logprob > result.logprobs[3]


def test_bud_5_every_name_of_the_bound_means_the_same(thinker: Thinker, http: HttpServed) -> None:
    said = [{"role": "user", "content": SAID}]
    few = {"temperature": 0, "logit_bias": {str(thinker.close): -100}, **LONG}
    unbounded = http.chat(said, **few).json["choices"][0]["message"]
    bounds: list[dict[str, Any]] = [
        {"thinking_token_budget": 4},
        {"reasoning": {"max_tokens": 4}},
        {"thinking": {"type": "enabled", "budget_tokens": 4}},
        {"thinking_token_budget": 4, "reasoning": {"max_tokens": 4}},
    ]
    for bound in bounds:
        reply = http.chat(said, **few, **bound)
        message = reply.json["choices"][0]["message"]
        assert reply.json["usage"]["completion_tokens_details"]["reasoning_tokens"] == 4, bound
        assert unbounded["reasoning_content"].startswith(message["reasoning_content"]) and message["content"]
        answer = {name: value for name, value in few.items() if name != "max_tokens"}
        response = http.client.post("/v1/responses", {"input": said, "max_output_tokens": 24, **answer, **bound}).json
        assert response["usage"]["output_tokens_details"]["reasoning_tokens"] == 4, bound
    for path, body in (
        ({"thinking_token_budget": 4, "reasoning": {"max_tokens": 5}}, "reasoning.max_tokens"),
        ({"thinking_token_budget": -1}, "thinking_token_budget"),
        ({"reasoning": {"max_tokens": -1}}, "reasoning.max_tokens"),
        ({"thinking": {"type": "enabled", "budget_tokens": "4"}}, "thinking.budget_tokens"),
    ):
        assert http.chat(said, **path).refusal == (400, "field_invalid", body), path


def test_bud_5_both_doors_and_the_library_give_the_same_tokens(
    thinker: Thinker, model: LanguageModel, http: HttpServed
) -> None:
    asked: dict[str, Any] = {**LONG, "temperature": 0.0, "max_reasoning_tokens": 6, "parse": True}
    expected = model.chat(SAID, **asked).result()
    with imp_service.connect(http.served.address) as client:
        found = client.chat(SAID, **asked).result()
    assert (found.token_ids, found.reasoning) == (expected.token_ids, expected.reasoning)
    reply = http.chat(SAID, temperature=0, thinking_token_budget=6, return_token_ids=True, **LONG).json
    assert reply["choices"][0]["token_ids"] == expected.token_ids
    prompt = http.client.post("/tokenize", {"messages": [{"role": "user", "content": SAID}]}).json["tokens"]
    raw = http.complete(prompt, temperature=0, thinking_token_budget=6, return_token_ids=True, **LONG).json
    assert raw["choices"][0]["token_ids"] == expected.token_ids


def test_bud_6_a_family_without_reasoning_says_so(thinker: Thinker) -> None:
    for number in (0, 9):
        with imp_service.load(thinker.path) as plain, pytest.raises(Error, match="writes no reasoning") as raised:
            plain.generate("a", max_reasoning_tokens=number, max_tokens=1)
        assert raised.value.reason == "NOT_SUPPORTED_BY_MODEL"
    with serve_http() as http:
        call = http.served.inference.Generate
        refusal = failed(lambda: list(call(pb.GenerateRequest(text="a", max_reasoning_tokens=0))))
        assert (refusal.code, refusal.reason) == ("UNIMPLEMENTED", "NOT_SUPPORTED_BY_MODEL")
        reply = http.complete("a", thinking_token_budget=3)
        assert reply.refusal[:2] == (400, "not_supported_by_model")
        assert reply.error["message"].startswith("thinking_token_budget: ")


PARAMETERS = {
    "type": "object",
    "properties": {"to": {"enum": ["a", "b"]}},
    "required": ["to"],
    "additionalProperties": False,
}
TOOL = {"type": "function", "function": {"name": "go", "parameters": PARAMETERS}}


def test_bud_7_a_call_that_is_required_follows_bounded_reasoning(thinker: Thinker, model: LanguageModel) -> None:
    asked: dict[str, Any] = {"temperature": 1.0, "parse": True, "tools": [TOOL], "max_tokens": 400}
    for seed in range(4):
        for most in (0, 5):
            result = model.chat(SAID, tool_choice="required", seed=seed, max_reasoning_tokens=most, **asked).result()
            # The constraint lets the model finish a character first.
            assert result.usage.reasoning_tokens <= most + 3
            assert thinker.close in result.token_ids[: most + 4]
            assert [call.name for call in result.tool_calls[:1]] == ["go"]


def test_bud_7_a_constraint_without_reasoning_is_not_changed(model: LanguageModel) -> None:
    asked: dict[str, Any] = {"regex": "<think>[ab]{9}", "max_tokens": 40, "temperature": 0}
    plain = model.generate("x", **asked).result()
    assert model.generate("x", max_reasoning_tokens=1, **asked).result().token_ids == plain.token_ids


@pytest.mark.parametrize("name", [name for name, row in DIALECTS.items() if row.reasoning is not None])
@pytest.mark.parametrize("has_tokens", [True, False], ids=["tokens", "text"])
def test_bud_8_the_engine_sees_reasoning_where_the_reply_has_it(name: str, has_tokens: bool) -> None:
    """Random outputs that spell the markers in many divisions, each read by the definition and by the splitter."""
    dialect, rng = DIALECTS[name], random.Random(name)
    reasoning = dialect.reasoning
    assert reasoning is not None  # narrows
    marks = [reasoning.begin.text, reasoning.end.text]
    parts = sorted({text[i:j] for text in marks for i in range(len(text)) for j in range(i + 2, len(text) + 1)})
    control = [*(marks if has_tokens else []), "<|return|>"]
    tokenizer = Tokenizer.from_metadata(byte_level(control=control, user_defined=rng.sample(parts, 12)))
    table = visible(tokenizer.table, dialect, tokenizer.eos_ids)
    section_of(reasoning, tokenizer, table)
    begin, end = (text.encode() for text in marks)
    bounds = BoundedSection(begin, end, table.token_bytes, [[]] * len(end), 10**6, recurs=reasoning.recurs)
    n_inside = 0
    for _ in range(60):
        text = "".join(rng.choice([*marks, *marks, "x", "\n", " ", *parts[:3]]) for _ in range(rng.randint(1, 5)))
        tokens = (
            list(text.encode())
            if rng.random() < 0.5
            else tokenizer.encode(text, add_special_tokens=False, parse_special_tokens=True)
        )
        outputs = BoundedOutputs(bounds)
        for token in tokens:
            outputs.next(token)
        plan = ParsePlan(dialect, False, (), (0,))
        stream = ChannelStream(table, plan)
        marked = joined([stream.feed_all([*tokens, *b"qqq"]), stream.finish()])
        assert marked.reasoning.endswith("qqq") == (outputs.place == "inside"), (text, tokens)
        n_inside += outputs.place == "inside"
    assert 3 < n_inside < 57


def test_bud_9_the_command_line_bounds_reasoning(thinker: Thinker, capsys: pytest.CaptureFixture[str]) -> None:
    from imp_service.__main__ import main

    settings = [word for setting in thinker.settings for word in ("--set", setting)]
    words = ["run", str(thinker.path), SAID, "--json", "--temperature", "0", "-n", "12", *settings]
    assert main([*words, "--max-reasoning-tokens", "3"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["token_ids"][3] == thinker.close
    assert main([*words, "--max-reasoning-tokens", "-1"]) == 64
    assert "--max-reasoning-tokens" in capsys.readouterr().err

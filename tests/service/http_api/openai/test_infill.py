"""A text with a gap is filled over every API, and the output ends at the tokens of the template (FIM)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import imp_service
from imp_service import Error, InfillFile, InfillPrompt
from imp_service.generation.infill import infill_ids
from imp_service.pb import inference_pb2 as pb
from imp_service.pb import types_pb2
from support.calls.failed_calls import failed
from support.models.worded_models import write_worded
from support.servers.http_served import HttpServed, serve_http
from support.servers.served_models import from_file

TOKENS = ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>", "<|fim_pad|>", "<|repo_name|>", "<|file_sep|>")
PREFIX, SUFFIX, MIDDLE = "def f():\n    ", "\nf()\n", "ret"
FILES = [{"filename": "a.py", "text": "x = 1"}, {"filename": "b.py", "text": "y = 2\n"}]
PROMPT = InfillPrompt(PREFIX, SUFFIX, MIDDLE, tuple(InfillFile(each["filename"], each["text"]) for each in FILES))
INFILL, TEXTS = "/infill", "/v1/completions"
BODY = {"input_prefix": PREFIX, "input_suffix": SUFFIX, "prompt": MIDDLE, "input_extra": FILES, "seed": 7}
SEED = {"seed": 7, "temperature": 1.0, "min_p": 0.0}


class Filling:
    """A server whose model fills gaps, and the ids of its tokens."""

    def __init__(self, http: HttpServed, ids: dict[str, int], path: Path) -> None:
        self.http, self.ids, self.path = http, ids, path

    def tokens_of(self, prompt: InfillPrompt) -> list[int]:
        return infill_ids(self.http.served.state.model.tokenizer, prompt, begins=True)

    def favoured(self, token: str) -> dict[str, Any]:
        return {"logit_bias": {str(self.ids[token]): 100}}


@pytest.fixture(scope="module")
def filling(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Filling]:
    path = tmp_path_factory.mktemp("infill") / "coder.gguf"
    ids = write_worded(path, (*TOKENS, "<|end|>"), eos="<|end|>")
    small = ("limits.max_prompt_bytes=4KiB",)
    with serve_http(*small, model=from_file(path)) as http:
        yield Filling(http, ids, path)


def test_fim_4_every_api_fills_the_same_gap_with_the_same_tokens(filling: Filling) -> None:
    http, gap = filling.http, InfillPrompt(PREFIX, SUFFIX)
    ids, asked = filling.tokens_of(gap), {**SEED, "max_tokens": 8, "ignore_eos": True}
    expected = http.complete(ids, return_token_ids=True, **asked).json["choices"][0]
    assert expected["prompt_token_ids"] == ids and len(expected["token_ids"]) == 8
    filled = http.complete(PREFIX, suffix=SUFFIX, return_token_ids=True, **asked).json["choices"][0]
    assert filled == expected
    assert (
        http.complete(PREFIX, return_token_ids=True, **asked).json["choices"][0]["token_ids"] != expected["token_ids"]
    )
    own = http.client.post(
        INFILL, {"input_prefix": PREFIX, "input_suffix": SUFFIX, "return_tokens": True, **asked}
    ).json
    assert (own["tokens"], own["content"]) == (expected["token_ids"], expected["text"])
    with imp_service.connect(http.served.server.addresses[0]) as client, imp_service.load(filling.path) as model:
        for api in (client, model):
            for result in (
                api.generate(gap, **asked).result(),
                api.generate(PREFIX, suffix=SUFFIX, **asked).result(),
                api.generate(imp_service.GenerationRequest(PREFIX), suffix=SUFFIX, **asked).result(),
            ):
                assert (result.token_ids, result.text) == (expected["token_ids"], expected["text"])


def test_fim_4_several_prompts_have_one_suffix(filling: Filling) -> None:
    asked = {**SEED, "max_tokens": 4, "suffix": SUFFIX, "return_token_ids": True}
    several = filling.http.complete([PREFIX, "x = "], **asked).json["choices"]
    alone = [filling.http.complete(prompt, **asked).json["choices"][0] for prompt in (PREFIX, "x = ")]
    assert [each["token_ids"] for each in several] == [each["token_ids"] for each in alone]


def test_fim_4_a_session_begins_with_a_gap(filling: Filling) -> None:
    with imp_service.load(filling.path) as model, model.open(temperature=0) as session:
        first = session.prefill(PROMPT)
        assert session.position == len(filling.tokens_of(PROMPT))
        assert first.token_id == model.generate(PROMPT, temperature=0, max_tokens=1).result().token_ids[0]


@pytest.mark.parametrize("token", TOKENS)
def test_fim_5_the_output_ends_at_each_token_of_the_template(filling: Filling, token: str) -> None:
    asked = {**SEED, "max_tokens": 4, **filling.favoured(token)}
    for suffix, n_tokens in ((SUFFIX, 0), (None, 4)):
        reply = filling.http.complete([PREFIX, PREFIX], suffix=suffix, **asked).json
        assert reply["usage"]["completion_tokens"] == 2 * n_tokens
        assert {each["finish_reason"] for each in reply["choices"]} == {"length" if n_tokens else "stop"}
    own = filling.http.client.post(INFILL, {**BODY, **asked}).json
    assert (own["tokens_predicted"], own["stop_type"], own["content"]) == (0, "eos", "")


def test_fim_6_an_answer_of_infill_has_llama_servers_fields(filling: Filling) -> None:
    post = filling.http.client.post
    reply = post(INFILL, {**BODY, "n_predict": 5, "ignore_eos": True}).json
    n_prompt = len(filling.tokens_of(PROMPT))
    assert (reply["stop"], reply["stop_type"], reply["truncated"], reply["tokens"]) == (True, "limit", False, [])
    assert (reply["tokens_predicted"], reply["tokens_evaluated"]) == (5, n_prompt)
    again = post(INFILL, {**BODY, "n_predict": 5, "ignore_eos": True}).json
    assert again["content"] == reply["content"] and again["tokens_cached"] > 0
    timings = again["timings"]
    assert timings["prompt_n"] + timings["cache_n"] == n_prompt and timings["predicted_n"] == 5
    assert timings["prompt_ms"] == pytest.approx(timings["prompt_per_token_ms"] * timings["prompt_n"])
    few = post(INFILL, {**BODY, "n_predict": 5, "response_fields": ["content", "timings/predicted_n", "x", "stop/x"]})
    assert few.json.keys() == {"content", "timings/predicted_n"}
    word = reply["content"][1:2]
    stopped = post(INFILL, {**BODY, "n_predict": 5, "ignore_eos": True, "stop": [word]}).json
    assert (stopped["stop_type"], stopped["stopping_word"]) == ("word", word)
    assert stopped["content"] == reply["content"].partition(word)[0]


def test_fim_6_a_stream_of_infill_is_the_same_answer(filling: Filling) -> None:
    asked = {**BODY, "n_predict": 6, "ignore_eos": True}
    whole = filling.http.client.post(INFILL, {**asked, "return_tokens": True}).json
    raw = filling.http.client.post(INFILL, {**asked, "stream": True, "max_chunk_tokens": 1}).content.decode()
    assert raw.count("data: ") == len(raw.split("\n\n")) - 1 and "[DONE]" not in raw
    parts = [json.loads(each.removeprefix("data: ")) for each in raw.split("\n\n")[:-1]]
    assert "".join(each["content"] for each in parts) == whole["content"]
    assert [token for each in parts for token in each["tokens"]] == whole["tokens"]
    assert [each["stop"] for each in parts] == [*[False] * (len(parts) - 1), True] and len(parts) > 2
    assert parts[-1]["tokens_predicted"] == 6


# What an editor's plugin sends at each pause, and in advance to have the files cached.
EDITOR = {
    "id_slot": 0,
    "input_prefix": PREFIX,
    "input_suffix": SUFFIX,
    "input_extra": [{"text": "x = 1\n", "time": 1764541234, "filename": "a.py"}],
    "prompt": "    ",
    "n_predict": 8,
    "stop": [],
    "n_indent": 4,
    "top_k": 40,
    "top_p": 0.9,
    "stream": False,
    "samplers": ["top_k", "top_p", "infill"],
    "cache_prompt": True,
    "t_max_prompt_ms": 500,
    "t_max_predict_ms": 60000,
    "response_fields": ["content", "timings/prompt_n", "timings/predicted_ms", "tokens_cached", "truncated"],
}
IN_ADVANCE = {**EDITOR, "prompt": "", "n_predict": 0, "samplers": [], "temperature": 0.0, "response_fields": [""]}


@pytest.mark.parametrize("body", [EDITOR, IN_ADVANCE], ids=["at a pause", "in advance"])
def test_fim_6_oai_15_the_bodies_of_an_editor_are_answered(filling: Filling, body: dict[str, Any]) -> None:
    reply = filling.http.client.post(INFILL, body)
    assert reply.status == 200, reply.content
    ignored = json.loads(f"[{reply.headers['imp-ignored']}]")
    assert set(ignored) <= {"id_slot", "n_indent", "samplers", "t_max_prompt_ms", "input_extra[0].time"}
    assert reply.json.keys() == {name for name in body["response_fields"] if name}


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"suffix": 7}, "suffix"),
        ({"suffix": "x", "echo": True}, "echo"),
        ({"suffix": "x", "prompt": [1, 2]}, "suffix"),
        ({"suffix": "x" * 4096}, "suffix"),
    ],
)
def test_fim_7_wrong_gaps_of_completions_are_refused(filling: Filling, fields: dict[str, Any], param: str) -> None:
    reply = filling.http.client.post(TEXTS, {"prompt": PREFIX, "max_tokens": 1, **fields})
    assert reply.refusal == (400, "field_invalid", param), reply.content


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"input_prefix": None}, "input_prefix"),
        ({"input_suffix": None}, "input_suffix"),
        ({"input_extra": "x"}, "input_extra"),
        ({"input_extra": ["x"]}, "input_extra[0]"),
        ({"input_extra": [{"text": 7}]}, "input_extra[0].text"),
        ({"input_suffix": "x" * 4096}, "input_prefix"),
        ({"n_probs": 3}, "n_probs"),
        ({"n_cmpl": 2}, "n_cmpl"),
    ],
)
def test_fim_7_wrong_bodies_of_infill_are_refused(filling: Filling, fields: dict[str, Any], param: str) -> None:
    reply = filling.http.client.post(INFILL, {**BODY, "n_predict": 1, **fields})
    assert reply.refusal == (400, "field_invalid", param), reply.content


def test_fim_7_an_infill_of_imp_v1_has_bounds(filling: Filling) -> None:
    for infill, path in (
        (types_pb2.InfillPrompt(files=[types_pb2.InfillFile(name="a")] * 1025), "infill.files"),
        (types_pb2.InfillPrompt(prefix="a", files=[types_pb2.InfillFile(text="b" * 4096)]), "infill"),
    ):
        refusal = failed(lambda infill=infill: list(filling.http.served.inference.Generate(asked(infill))))
        assert (refusal.code, refusal.reason) == ("INVALID_ARGUMENT", "FIELD_INVALID")
        assert f"{path}: " in refusal.message
    for infill in (types_pb2.InfillPrompt(), types_pb2.InfillPrompt(files=[types_pb2.InfillFile(name="a")] * 9)):
        assert list(filling.http.served.inference.Generate(asked(infill)))


def asked(infill: types_pb2.InfillPrompt) -> pb.GenerateRequest:
    return pb.GenerateRequest(infill=infill, stop=types_pb2.StopOptions(max_tokens=1))


def test_fim_7_wrong_arguments_of_the_library_are_refused(filling: Filling) -> None:
    with imp_service.load(filling.path) as model:
        for prompt, suffix in (([1, 2], "x"), (PREFIX, 7), (InfillPrompt("a", "b"), "x")):
            with pytest.raises(Error, match="suffix"):
                model.generate(prompt, suffix=suffix, max_tokens=1)
        with pytest.raises(Error, match="suffix"):
            model.chat("Hello", suffix="x")
        with pytest.raises(Error, match="CONTEXT_TOO_LONG"):
            model.generate(InfillPrompt("x" * model.max_context, "y"), max_tokens=1)


def test_fim_7_gaps_wait_for_the_same_memory_as_texts(filling: Filling) -> None:
    workers = filling.http.served.state.workers

    async def fill(n_bytes: int) -> None:
        workers.n_bytes = n_bytes

    filling.http.served.run(fill(workers._max_bytes))
    try:
        reply = filling.http.client.post(INFILL, {**BODY, "input_prefix": "ab " * 1000})
        assert reply.status == 429
    finally:
        filling.http.served.run(fill(0))


def test_fim_3_a_model_without_the_tokens_says_so() -> None:
    infill = types_pb2.InfillPrompt(prefix="a", suffix="b")
    with serve_http() as http:
        for path, body, where in (
            (TEXTS, {"prompt": "a", "suffix": "b"}, "suffix"),
            (INFILL, {"input_prefix": "a", "input_suffix": "b"}, "input_prefix"),
        ):
            reply = http.client.post(path, body)
            assert reply.refusal[:2] == (400, "not_supported_by_model")
            assert reply.error["message"].startswith(f"{where}: the vocabulary of this model has no tokens to fill")
        call = http.served.inference.Generate
        refusal = failed(lambda: list(call(pb.GenerateRequest(infill=infill))))
        assert (refusal.code, refusal.reason) == ("UNIMPLEMENTED", "NOT_SUPPORTED_BY_MODEL")
        assert http.complete("a", suffix="", max_tokens=1).status == 200

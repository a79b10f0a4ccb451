"""SMG in front of a server's VllmEngine: SMG renders prompt and text, and the tokens equal those of Generate."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from typing import Any

import numpy as np
import openai
import pytest

from imp_service.pb import inference_pb2 as pb
from imp_service.pb import inference_pb2_grpc, model_pb2, model_pb2_grpc, tokenizer_pb2, tokenizer_pb2_grpc, types_pb2
from support.calls.generations import Result, result_of
from support.run.patience import HANGS_AFTER
from support.servers.server_process import ServerProcess
from support.servers.smg_gateway import Gateway, behind_grpc

MODEL, SAID, PROMPT = "imp-demo", "Hello", "the cat"
CHAT = types_pb2.ChatPrompt(messages=[types_pb2.ChatMessage(role="user", content=SAID)])
N_TOKENS = 24
SAMPLERS: dict[str, dict[str, Any]] = {
    "greedy": {"temperature": 0},
    "seeded": {"temperature": 1.5, "seed": 7, "top_p": 0.9},
    # SMG fills in the defaults that GetModelInfo reports.
    "default": {"seed": 3},
}
STREAM = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
SAMPLER = pytest.mark.parametrize("sampler", SAMPLERS)


@pytest.fixture(scope="module")
def behind(smg: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ServerProcess, Gateway]]:
    with behind_grpc(tmp_path_factory.mktemp("grpc"), settings=["kv.bytes=16MiB"]) as both:
        yield both


@pytest.fixture
def server(behind: tuple[ServerProcess, Gateway]) -> ServerProcess:
    return behind[0]


@pytest.fixture
def client(behind: tuple[ServerProcess, Gateway]) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=behind[1].url, api_key="none", max_retries=0, timeout=HANGS_AFTER) as it:
        yield it


def generated(server: ServerProcess, sampler: str, **fields: Any) -> Result:
    """Returns the result of the same generation by imp.v1's Generate."""
    request = pb.GenerateRequest(sampling=types_pb2.SamplingOptions(**SAMPLERS[sampler]), **fields)
    request.stop.max_tokens = N_TOKENS
    request.output.logprobs = True
    with server.connection() as channel:
        return result_of(list(inference_pb2_grpc.InferenceServiceStub(channel).Generate(request, timeout=HANGS_AFTER)))


def pieces(server: ServerProcess, ids: list[int]) -> list[str]:
    """Returns the text of each token alone, as in a chat's log probabilities."""
    request = tokenizer_pb2.DetokenizeRequest(token_ids=[types_pb2.TokenIds(ids=[token]) for token in ids])
    with server.connection() as channel:
        return list(tokenizer_pb2_grpc.TokenizerServiceStub(channel).Detokenize(request, timeout=HANGS_AFTER).texts)


@STREAM
@SAMPLER
def test_gwy_3_a_chat_has_the_tokens_of_generate(
    server: ServerProcess, client: openai.OpenAI, sampler: str, stream: bool
) -> None:
    expected = generated(server, sampler, chat=CHAT)
    asked: Any = {
        "model": MODEL,
        "messages": [{"role": "user", "content": SAID}],
        "max_tokens": N_TOKENS,
        "logprobs": True,
        **SAMPLERS[sampler],
    }
    if stream:
        asked["stream_options"] = {"include_usage": True}
        text, scores, usage = "", [], None
        for event in client.chat.completions.create(stream=True, **asked):
            usage = event.usage or usage
            for choice in event.choices:
                text += choice.delta.content or ""
                scores += choice.logprobs.content or [] if choice.logprobs else []
    else:
        reply = client.chat.completions.create(**asked)
        (choice,) = reply.choices
        text, scores, usage = choice.message.content, choice.logprobs.content, reply.usage
    assert text == expected.output.text
    assert [each.token for each in scores] == pieces(server, expected.output.ids)
    assert [np.float32(each.logprob) for each in scores] == [np.float32(each) for each in expected.output.logprobs]
    assert (usage.prompt_tokens, usage.completion_tokens) == (
        expected.started.prompt_tokens,
        len(expected.output.ids),
    )
    assert expected.output.text != generated(server, sampler, text=PROMPT).output.text


@STREAM
@SAMPLER
def test_gwy_3_a_completion_has_the_tokens_of_generate(
    server: ServerProcess, client: openai.OpenAI, sampler: str, stream: bool
) -> None:
    expected = generated(server, sampler, text=PROMPT)
    asked: Any = {"model": MODEL, "prompt": PROMPT, "max_tokens": N_TOKENS, **SAMPLERS[sampler]}
    if stream:
        events = list(client.completions.create(stream=True, **asked))
        choices = [choice for event in events for choice in event.choices]
        assert "".join(choice.text for choice in choices) == expected.output.text
    else:
        reply = client.completions.create(**asked)
        assert reply.choices[0].text == expected.output.text
        assert reply.usage.completion_tokens == len(expected.output.ids)


@STREAM
def test_gwy_3_a_response_has_the_tokens_of_generate(
    server: ServerProcess, client: openai.OpenAI, stream: bool
) -> None:
    expected = generated(server, "greedy", chat=CHAT)
    asked: Any = {"model": MODEL, "input": SAID, "max_output_tokens": N_TOKENS, "temperature": 0}
    if stream:
        events = client.responses.create(stream=True, **asked)
        assert (
            "".join(each.delta for each in events if each.type == "response.output_text.delta") == expected.output.text
        )
    else:
        assert client.responses.create(**asked).output_text == expected.output.text


def test_gwy_3_a_message_has_the_tokens_of_generate(
    server: ServerProcess, behind: tuple[ServerProcess, Gateway]
) -> None:
    expected = generated(server, "greedy", chat=CHAT)
    body = {
        "model": MODEL,
        "messages": [{"role": "user", "content": SAID}],
        "max_tokens": N_TOKENS,
        "temperature": 0,
    }
    request = urllib.request.Request(
        f"{behind[1].url}/messages", json.dumps(body).encode(), {"content-type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=HANGS_AFTER) as answer:
        (content,) = json.load(answer)["content"]
    assert content["text"] == expected.output.text


def test_gwy_3_a_schema_is_kept(server: ServerProcess, client: openai.OpenAI) -> None:
    schema = {
        "type": "object",
        "properties": {"n": {"type": "integer"}},
        "required": ["n"],
        "additionalProperties": False,
    }
    reply = client.chat.completions.create(
        model=MODEL,
        messages=[{"role": "user", "content": SAID}],
        max_tokens=100,
        seed=5,
        response_format={"type": "json_schema", "json_schema": {"name": "n", "schema": schema, "strict": True}},
    )
    assert list(json.loads(reply.choices[0].message.content)) == ["n"]


def test_gwy_3_a_stop_string_ends_a_chat(server: ServerProcess, client: openai.OpenAI) -> None:
    text = generated(server, "greedy", chat=CHAT).output.text
    word = text.split()[2]
    reply = client.chat.completions.create(
        model=MODEL, messages=[{"role": "user", "content": SAID}], max_tokens=N_TOKENS, temperature=0, stop=[word]
    )
    assert (reply.choices[0].finish_reason, reply.choices[0].message.content) == ("stop", text[: text.index(word)])


def test_gwy_3_a_client_that_leaves_frees_its_sequence(server: ServerProcess, client: openai.OpenAI) -> None:
    stream = client.chat.completions.create(
        model=MODEL,
        messages=[{"role": "user", "content": SAID}],
        max_tokens=480,
        n=8,  # takes some seconds
        stream=True,
        extra_body={"ignore_eos": True},
    )
    next(iter(stream))
    n_ended = len(server.calls("/Generate"))
    stream.close()
    with server.connection() as channel:
        watching = model_pb2_grpc.ModelServiceStub(channel).WatchLoad(model_pb2.WatchLoadRequest(), timeout=HANGS_AFTER)
        assert any(reply.load.running == 0 for reply in watching)
        watching.cancel()
    # SMG aborts the request, and also cancels the call.
    end = server.wait_for_calls("/Generate", n_ended + 1)[-1]
    assert end["code"] == "CANCELLED" or set(end["finish"].split(",")) == {"aborted"}


def test_gwy_3_a_bad_request_is_the_callers_error(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as raised:
        client.completions.create(model=MODEL, prompt="word " * 2000, max_tokens=4)
    assert "context" in str(raised.value)

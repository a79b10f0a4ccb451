"""OpenAI's Python client, synchronous and asynchronous, against the HTTP listener."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI, OpenAI
from openai.types.chat import ChatCompletionMessageParam
from pydantic import BaseModel

from support.servers.http_served import HttpServed, serve_http
from support.servers.served_models import scripted

MODEL = "imp-demo"
SAID: list[ChatCompletionMessageParam] = [{"role": "user", "content": "Hello"}]
KEY = "not-a-secret"


@pytest.fixture
def client(http: HttpServed) -> Iterator[OpenAI]:
    with OpenAI(base_url=http.url, api_key=KEY, max_retries=0) as it:
        yield it


def with_async(http: HttpServed, work: Callable[[AsyncOpenAI], Awaitable[Any]]) -> Any:
    """Runs `work` on its own event loop and returns its result."""

    async def run() -> Any:
        async with AsyncOpenAI(base_url=http.url, api_key=KEY, max_retries=0) as client:
            return await work(client)

    return asyncio.run(run())


def test_oai_3_create_and_stream_say_the_same(client: OpenAI) -> None:
    asked: dict[str, Any] = {"model": MODEL, "messages": SAID, "max_completion_tokens": 20, "seed": 7}
    whole = client.chat.completions.create(**asked)
    content = whole.choices[0].message.content
    assert content and whole.choices[0].finish_reason in ("stop", "length") and whole.usage is not None
    with client.chat.completions.create(**asked, stream=True, stream_options={"include_usage": True}) as stream:
        chunks = list(stream)
    assert "".join(each.choices[0].delta.content or "" for each in chunks if each.choices) == content
    assert chunks[-1].usage is not None and chunks[-1].usage.total_tokens == whole.usage.total_tokens


def test_oai_3_the_stream_helper_gathers_a_whole_answer(client: OpenAI) -> None:
    asked: dict[str, Any] = {"model": MODEL, "messages": SAID, "max_completion_tokens": 20, "seed": 7}
    with client.chat.completions.stream(**asked, logprobs=True, top_logprobs=2, n=2) as stream:
        kinds = {event.type for event in stream}
        final = stream.get_final_completion()
    assert {"chunk", "content.delta", "content.done"} <= kinds
    whole = client.chat.completions.create(**asked, logprobs=True, top_logprobs=2, n=2)
    assert [each.message.content for each in final.choices] == [each.message.content for each in whole.choices]
    for found, expected in zip(final.choices, whole.choices, strict=True):
        assert found.logprobs is not None and expected.logprobs is not None
        assert found.logprobs.content == expected.logprobs.content


class Animal(BaseModel):
    name: str
    legs: int


@pytest.mark.long
def test_oai_3_parse_gives_an_object_of_the_schema(client: OpenAI) -> None:
    for seed in range(5):
        parsed = client.chat.completions.parse(
            model=MODEL, messages=SAID, response_format=Animal, max_completion_tokens=300, seed=seed, temperature=0.7
        )
        assert isinstance(parsed.choices[0].message.parsed, Animal)


def test_oai_3_raw_responses_have_the_ids(client: OpenAI) -> None:
    raw = client.chat.completions.with_raw_response.create(model=MODEL, messages=SAID, max_completion_tokens=1)
    assert raw.headers["x-request-id"] == raw.request_id
    completion = raw.parse()
    assert completion.id == f"chatcmpl-{raw.request_id}" and completion._request_id == raw.request_id
    named = client.chat.completions.create(
        model=MODEL, messages=SAID, max_completion_tokens=1, extra_headers={"x-request-id": "mine"}
    )
    assert named._request_id == "mine" and named.id.startswith("chatcmpl-mine-")


def test_oai_3_completions_and_models(client: OpenAI) -> None:
    asked: dict[str, Any] = {"model": MODEL, "prompt": ["the cat", "Hello"], "max_tokens": 5, "seed": 7, "logprobs": 2}
    whole = client.completions.create(**asked)
    texts = ["", ""]
    for chunk in client.completions.create(**asked, stream=True):
        for choice in chunk.choices:
            texts[choice.index] += choice.text
    assert texts == [each.text for each in whole.choices]
    assert [each.id for each in client.models.list()] == [MODEL]
    assert client.models.retrieve(MODEL).owned_by == "imp"


def test_oai_3_leaving_a_stream_frees_its_sequences() -> None:
    model = scripted(max_context=100_000, n_blocks=7000)
    with serve_http(model=model) as http, OpenAI(base_url=http.url, api_key=KEY) as client:
        with client.chat.completions.create(model=MODEL, messages=SAID, stream=True) as stream:
            assert [next(stream).choices for _ in range(5)]
        http.wait_for_rest()


@pytest.mark.long
def test_oai_3_the_asynchronous_client(http: HttpServed) -> None:
    async def work(client: AsyncOpenAI) -> None:
        asked: dict[str, Any] = {"model": MODEL, "messages": SAID, "max_completion_tokens": 20}

        async def both(seed: int) -> None:
            whole = await client.chat.completions.create(**asked, seed=seed)
            text = ""
            async for chunk in await client.chat.completions.create(**asked, seed=seed, stream=True):
                text += chunk.choices[0].delta.content or ""
            assert text == whole.choices[0].message.content
            async with client.chat.completions.stream(**asked, seed=seed) as stream:
                final = await stream.get_final_completion()
            assert final.choices[0].message.content == text

        await asyncio.gather(*(both(seed) for seed in range(16)))
        running = asyncio.create_task(client.chat.completions.create(**{**asked, "max_completion_tokens": 400}))
        await asyncio.sleep(0)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    with_async(http, work)
    http.wait_for_rest()


ERRORS: list[tuple[dict[str, Any], type[openai.APIStatusError], str, str | None]] = [
    ({"temperature": 101}, openai.BadRequestError, "field_invalid", "temperature"),
    ({"extra_body": {"nosuch": 1}}, openai.BadRequestError, "unknown_parameter", "nosuch"),
    ({"model": "nosuch"}, openai.NotFoundError, "model_not_found", None),
    (
        {"messages": [{"role": "user", "content": "a " * 2000}]},
        openai.BadRequestError,
        "context_length_exceeded",
        None,
    ),
]


@pytest.mark.few(3)
@pytest.mark.parametrize("error", ERRORS, ids=lambda error: error[2])
@pytest.mark.parametrize("stream", [False, True])
def test_oai_3_errors_have_their_class_code_and_param(client: OpenAI, error: Any, stream: bool) -> None:
    fields, kind, code, param = error
    with pytest.raises(kind) as raised:
        client.chat.completions.create(**{"model": MODEL, "messages": SAID, "stream": stream, **fields})
    assert (raised.value.code, raised.value.param, raised.value.type) == (code, param, "invalid_request_error")
    assert raised.value.request_id


def test_oai_3_oai_2_embeddings_are_refused(client: OpenAI) -> None:
    with pytest.raises(openai.APIStatusError) as raised:
        client.embeddings.create(model=MODEL, input="x")
    assert (raised.value.status_code, raised.value.code) == (400, "not_supported_by_model")


@pytest.mark.long
def test_oai_3_a_failure_after_the_stream_began_is_raised() -> None:
    with serve_http(model=scripted(script={"nan_token": 705})) as http:
        with OpenAI(base_url=http.url, api_key=KEY, max_retries=0) as client:
            stream = client.completions.create(model=MODEL, prompt=[700], max_tokens=20, stream=True)
            with pytest.raises(openai.APIError) as raised:
                list(stream)
        assert raised.value.code == "non_finite"
        http.wait_for_rest()


@pytest.mark.long
def test_oai_3_a_full_server_is_asked_again() -> None:
    """The SDK obeys the retry headers: it repeats the request until the server has capacity."""
    with serve_http("scheduler.max_waiting=1", "scheduler.max_running=1") as http:

        async def run() -> list[Any]:
            async with AsyncOpenAI(base_url=http.url, api_key=KEY, max_retries=30) as client:
                ask = client.completions.create
                return await asyncio.gather(*(ask(model=MODEL, prompt="the cat", max_tokens=50) for _ in range(8)))

        assert len(asyncio.run(run())) == 8
        assert http.served.metric("imp_errors_total", code="RESOURCE_EXHAUSTED", reason="QUEUE_FULL") > 0

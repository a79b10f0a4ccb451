"""Anthropic's Python client, synchronous and asynchronous, against the HTTP listener."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import anthropic
import pytest

from support.servers.http_served import DEMO_MODEL, HttpServed, serve_http
from support.servers.messages_served import TOOLS, client_of, serve_template
from support.servers.served_models import scripted
from support.text.tool_templates import HERMES

SAID: list[Any] = [{"role": "user", "content": "Will it rain?"}]


@pytest.fixture(scope="module")
def http(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpServed]:
    with serve_template(tmp_path_factory.mktemp("templates"), HERMES) as it:
        yield it


@pytest.fixture
def client(http: HttpServed) -> Iterator[anthropic.Anthropic]:
    with client_of(http) as it:
        yield it


def asked(**fields: Any) -> dict[str, Any]:
    return {"model": DEMO_MODEL, "messages": SAID, "max_tokens": 20, "extra_body": {"seed": 7}, **fields}


def test_msg_3_create_stream_and_count_say_the_same(client: anthropic.Anthropic) -> None:
    whole = client.messages.create(**asked())
    with client.messages.stream(**asked()) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    [block] = whole.content
    assert block.type == "text" and text == block.text == final.content[0].text  # type: ignore[union-attr]
    assert final.stop_reason == whole.stop_reason and final.usage.output_tokens == whole.usage.output_tokens
    counted = client.messages.count_tokens(model=DEMO_MODEL, messages=SAID)
    assert counted.input_tokens == whole.usage.input_tokens + (whole.usage.cache_read_input_tokens or 0)
    assert whole.id == f"msg_{whole._request_id}"
    raw = client.messages.create(**asked(stream=True))
    deltas = [each.delta.text for each in raw if each.type == "content_block_delta" and each.delta.type == "text_delta"]
    assert "".join(deltas) == text


def test_msg_3_a_tool_is_called_and_its_result_goes_back(client: anthropic.Anthropic) -> None:
    choice = {"type": "tool", "name": "weather"}
    options = asked(tools=TOOLS, tool_choice=choice, max_tokens=200)
    whole = client.messages.create(**options)
    with client.messages.stream(**options) as stream:
        kinds = {event.type for event in stream}
        final = stream.get_final_message()
    [call] = whole.content
    assert call.type == "tool_use" and call.name == "weather" and set(call.input) == {"city", "days"}
    assert final.to_dict()["content"] == whole.to_dict()["content"] and "input_json" in kinds
    assert whole.stop_reason == final.stop_reason == "tool_use"
    result = {"type": "tool_result", "tool_use_id": call.id, "content": "Rain."}
    history = [*SAID, {"role": "assistant", "content": whole.content}, {"role": "user", "content": [result]}]
    answered = client.messages.create(**asked(messages=history, tools=TOOLS))
    assert answered.usage.input_tokens + (answered.usage.cache_read_input_tokens or 0) > whole.usage.input_tokens


def test_msg_3_the_beta_path_of_the_client_is_the_same(client: anthropic.Anthropic) -> None:
    """It adds a query and the header `anthropic-beta`."""
    betas: Any = ["interleaved-thinking-2025-05-14"]
    whole = client.messages.create(**asked())
    beta = client.beta.messages.create(**asked(betas=betas))
    assert beta.to_dict()["content"] == whole.to_dict()["content"]
    assert client.beta.messages.count_tokens(model=DEMO_MODEL, messages=SAID).input_tokens > 0


@pytest.mark.long
def test_msg_3_the_asynchronous_client(http: HttpServed) -> None:
    async def run() -> None:
        url = http.url.removesuffix("/v1")
        async with anthropic.AsyncAnthropic(base_url=url, api_key="any", max_retries=0) as client:

            async def both(seed: int) -> None:
                fields = asked(extra_body={"seed": seed})
                whole = await client.messages.create(**fields)
                async with client.messages.stream(**fields) as stream:
                    final = await stream.get_final_message()
                assert final.to_dict()["content"] == whole.to_dict()["content"]

            await asyncio.gather(*(both(seed) for seed in range(8)))

    asyncio.run(run())
    http.wait_for_rest()


@pytest.mark.long
def test_msg_3_leaving_a_stream_frees_its_sequences() -> None:
    model = scripted(max_context=100_000, n_blocks=7000)
    with serve_http(model=model) as http, client_of(http) as client:
        with client.messages.create(**asked(max_tokens=90_000, stream=True)) as stream:
            assert [next(iter(stream)).type for _ in range(3)]
        http.wait_for_rest()


ERRORS: list[tuple[dict[str, Any], type[anthropic.APIStatusError], str]] = [
    ({"max_tokens": -7}, anthropic.BadRequestError, "invalid_request_error"),
    ({"extra_body": {"nosuch": 1}}, anthropic.BadRequestError, "invalid_request_error"),
    ({"model": "nosuch"}, anthropic.NotFoundError, "not_found_error"),
    ({"messages": [{"role": "user", "content": "a " * 2000}]}, anthropic.BadRequestError, "invalid_request_error"),
]


@pytest.mark.few(4)
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("fields", "kind", "type_"), ERRORS)
def test_msg_3_msg_7_errors_have_their_class_and_type(
    client: anthropic.Anthropic, fields: dict[str, Any], kind: type[anthropic.APIStatusError], type_: str, stream: bool
) -> None:
    with pytest.raises(kind) as raised:
        client.messages.create(**asked(**{"stream": stream, **fields}))
    assert raised.value.type == type_ and raised.value.request_id


@pytest.mark.long
def test_msg_3_msg_7_a_failure_after_the_stream_began_is_raised() -> None:
    with serve_http(model=scripted()) as http:
        *_, last = http.client.post("/tokenize", {"messages": SAID}).json["tokens"]
    # Each token is the one before plus one.
    with serve_http(model=scripted(script={"nan_token": last + 3})) as http:
        with client_of(http) as client, pytest.raises(anthropic.APIStatusError) as raised:
            list(client.messages.create(**asked(stream=True)))
        assert raised.value.type == "api_error"
        http.wait_for_rest()

"""The names of the served model in Anthropic's form, for its clients (MSG-12)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import anthropic
import openai
import pytest

from support.servers.http_served import HttpServed, serve_http
from support.servers.messages_served import client_of

NAMES = ["imp-demo", "one", "two", "three"]
PATH = "/v1/models"
HEAD = {"anthropic_version": "2023-06-01"}


@pytest.fixture(scope="module")
def http_served() -> Iterator[HttpServed]:
    with serve_http("model.name=imp-demo", "model.aliases=['one','two','three']", "limits.max_tokens=77") as it:
        yield it


@pytest.fixture
def client(http_served: HttpServed) -> Iterator[anthropic.Anthropic]:
    with client_of(http_served) as it:
        yield it


def got(served: HttpServed, path: str, head: dict[str, str]) -> tuple[int, Any]:
    """Returns the status and the body of an answer."""
    reply = served.client.get(path, **head)
    return reply.status, reply.json


def test_msg_12_the_client_lists_every_name(client: anthropic.Anthropic, http_served: HttpServed) -> None:
    page = client.models.list()
    assert [each.id for each in page.data][: len(NAMES)] == NAMES
    assert (page.has_more, page.first_id, page.last_id) == (False, page.data[0].id, page.data[-1].id)
    model = http_served.served.state.model
    for each in page.data:
        assert (each.type, each.display_name, each.lifecycle) == ("model", "imp-demo", "active")
        assert (each.max_input_tokens, each.max_tokens) == (model.max_context, 77)
        assert isinstance(each.created_at, datetime) and each.created_at.tzinfo is not None
    assert got(http_served, PATH, HEAD)[0] == 200  # every answer is checked against the client's types
    assert [each.id for each in client.beta.models.list().data] == [each.id for each in page.data]


def test_msg_12_pages_are_parts_of_the_list(client: anthropic.Anthropic) -> None:
    names = [each.id for each in client.models.list().data]
    for limit in (1, 2, 3):
        assert [each.id for each in client.models.list(limit=limit)] == names
        assert [each.id for each in client.models.list(limit=limit, before_id=names[3]).data] == names[3 - limit : 3]
    assert [each.id for each in client.models.list(after_id=names[-1]).data] == []
    assert [each.id for each in client.models.list(lifecycle=["deprecated"]).data] == []
    assert [each.id for each in client.models.list(lifecycle=["retired", "active"]).data] == names


def test_msg_12_one_name(client: anthropic.Anthropic, http_served: HttpServed) -> None:
    assert client.models.retrieve("two").id == "two"
    with pytest.raises(anthropic.NotFoundError) as caught:
        client.models.retrieve("nosuch")
    assert caught.value.body["error"]["type"] == "not_found_error"  # type: ignore[index]

    async def asynchronously() -> list[str]:
        async with anthropic.AsyncAnthropic(base_url=http_served.url.removesuffix("/v1"), api_key="any") as other:
            return [each.id async for each in other.models.list(limit=2)]

    assert asyncio.run(asynchronously())[: len(NAMES)] == NAMES


def test_msg_12_clients_of_openai_get_their_own_form(http_served: HttpServed) -> None:
    with openai.OpenAI(base_url=http_served.url, api_key="any") as other:
        assert {each.object for each in other.models.list()} == {"model"}
    status, body = got(http_served, PATH, {})
    assert (status, body["object"]) == (200, "list") and "has_more" not in body
    assert got(http_served, f"{PATH}/nosuch", {})[1]["error"]["code"] == "model_not_found"


@pytest.mark.parametrize("query", ["limit=0", "limit=1001", "limit=x", "limit=", "after_id=nosuch", "before_id=x"])
def test_msg_12_a_wrong_query_is_refused_by_name(http_served: HttpServed, query: str) -> None:
    status, body = got(http_served, f"{PATH}?{query}", HEAD)
    assert (status, body["error"]["type"]) == (400, "invalid_request_error")
    assert query.partition("=")[0] in body["error"]["message"]

"""Requests that Open WebUI sends to an OpenAI server, copied from its router, and the replies that it needs (OAI-7)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from typing import Any

import pytest

from support.servers.http_served import DEMO_MODEL, HttpServed, serve_http
from support.text.tool_templates import HERMES

KEY = "key-of-open-webui"
# Sent if ENABLE_FORWARD_USER_INFO_HEADERS is set.
USER = {
    "X_OpenWebUI_User_Name": "Zo%C3%AB Doe",
    "X_OpenWebUI_User_Id": "6f0f1a3e-0000-4000-8000-000000000000",
    "X_OpenWebUI_User_Email": "zoe@example.org",
    "X_OpenWebUI_User_Role": "user",
    "X_OpenWebUI_Chat_Id": "8a1c",
}
QUESTION = [{"role": "system", "content": "You are brief."}, {"role": "user", "content": "What is the sky?"}]
TITLE = [{"role": "user", "content": "### Task:\nGenerate a concise title for the chat.\n<chat_history>\nUSER: Hi"}]
# "Continue response": the last message is the answer so far.
STARTED = [*QUESTION, {"role": "assistant", "content": "The sky is"}]
TOOL = {
    "type": "function",
    "function": {
        "name": "get_current_time",
        "description": "Returns the time.",
        "parameters": {"type": "object", "properties": {}, "required": [], "additionalProperties": False},
    },
}
# The parameters that settings of a model or a chat add, in the form in which they are sent.
PARAMETERS = {
    "temperature": 0.4,
    "top_p": 0.9,
    "max_tokens": 16,
    "frequency_penalty": 0.5,
    "presence_penalty": 0.5,
    "seed": 42,
    "stop": ["\n\n"],
    "logit_bias": {"10": 5},
    "reasoning_effort": "low",
}
# Users add these as custom parameters for other servers.
CUSTOM = {"top_k": 40, "min_p": 0.05, "repetition_penalty": 1.1}


@pytest.fixture(scope="module")
def http(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpServed]:
    folder = tmp_path_factory.mktemp("open-webui")
    tokens, template = folder / "tokens", folder / "chat.jinja"
    tokens.write_text(f"{sha256(KEY.encode()).hexdigest()} data,read *\n")
    tokens.chmod(0o600)
    template.write_text(HERMES)
    settings = (f"auth.token_file={tokens}", f"model.overrides.chat_template={template}")
    with serve_http(*settings, key=KEY, metadata=(("authorization", f"Bearer {KEY}"),)) as served:
        yield served


def body(messages: list[dict[str, Any]], **fields: Any) -> dict[str, Any]:
    return {"model": DEMO_MODEL, "messages": messages, **fields}


@pytest.mark.parametrize("path", ["/v1/models", "/models"])
def test_oai_7_models_are_listed_for_its_key(http: HttpServed, path: str) -> None:
    """It reads `data` and each `id`. The base URL may end in /v1 or not."""
    assert [entry["id"] for entry in http.client.get(path, **USER).json["data"]] == [DEMO_MODEL]


def test_oai_7_a_wrong_key_is_reported_as_json(http: HttpServed) -> None:
    reply = http.connect("wrong").get("/v1/models")
    assert (reply.status, reply.error["code"]) == (401, "invalid_api_key")
    assert reply.headers["content-type"] == "application/json"


@pytest.mark.parametrize("custom", [{}, CUSTOM])
def test_oai_7_a_chat_streams_with_its_usage_at_the_end(http: HttpServed, custom: dict[str, Any]) -> None:
    asked = body(QUESTION, stream_options={"include_usage": True}, **PARAMETERS, **custom)
    events = http.client.stream("/v1/chat/completions", asked, **USER)
    text = "".join(event["choices"][0]["delta"].get("content") or "" for event in events.objects if event["choices"])
    usage = events.objects[-1]["usage"]
    assert (usage["total_tokens"], events.has_done) == (usage["prompt_tokens"] + usage["completion_tokens"], True)
    whole = http.client.post("/v1/chat/completions", body(QUESTION, stream=False, **PARAMETERS, **custom), **USER)
    assert whole.choice["message"]["content"] == text


def test_oai_7_a_title_is_asked_for_without_a_stream(http: HttpServed) -> None:
    """The request has no `stream_options`, which need a stream."""
    reply = http.client.post("/v1/chat/completions", body(TITLE, stream=False, max_completion_tokens=40), **USER)
    assert reply.status == 200 and reply.choice["message"]["content"]


def test_oai_7_an_answer_goes_on_where_it_ended(http: HttpServed) -> None:
    how = {"add_generation_prompt": False, "continue_final_message": True, "temperature": 0, "max_tokens": 8}
    reply = http.client.post("/v1/chat/completions", body(STARTED, stream=False, **how))
    more = reply.choice["message"]["content"]
    ids = http.client.post("/tokenize", {"messages": STARTED, **{name: how[name] for name in list(how)[:2]}}).json
    completed = http.complete(ids["tokens"], temperature=0, max_tokens=8)
    assert more == completed.choice["text"] != ""


@pytest.mark.long
def test_oai_7_native_calls_come_with_their_index(http: HttpServed) -> None:
    events = http.client.stream(
        "/v1/chat/completions", body(QUESTION, tools=[TOOL], tool_choice="required", parallel_tool_calls=False)
    )
    deltas = [call for event in events.objects for call in event["choices"][0]["delta"].get("tool_calls") or []]
    assert {call["index"] for call in deltas} == {0}
    assert deltas[0]["function"]["name"] == "get_current_time"
    assert json.loads("".join(call["function"].get("arguments") or "" for call in deltas)) == {}


def test_oai_7_an_error_has_a_message_that_it_can_show(http: HttpServed) -> None:
    """Open WebUI shows `error.message`."""
    reply = http.client.post("/v1/chat/completions", body(QUESTION, stream=False, temperature=200))
    assert reply.refusal == (400, "field_invalid", "temperature") and "200" in reply.error["message"]
    other = http.client.post("/v1/chat/completions", {**body(QUESTION, stream=True), "model": "gone"})
    assert (other.status, other.error["code"]) == (404, "model_not_found")


@pytest.mark.long
def test_oai_7_a_full_server_says_when_to_come_back() -> None:
    """Open WebUI passes the status and `Retry-After` on to its caller."""
    asked = body(QUESTION, stream=False, max_tokens=400, ignore_eos=True)
    with serve_http("scheduler.max_waiting=1", "scheduler.max_running=1") as http, ThreadPoolExecutor(8) as pool:
        replies = list(pool.map(lambda _: http.client.post("/v1/chat/completions", asked), range(8)))
        http.wait_for_rest()
    refused = [reply for reply in replies if reply.status == 429]
    assert refused and all(int(reply.headers["retry-after"]) >= 0 for reply in refused)
    assert {reply.status for reply in replies} == {200, 429}

"""LiteLLM as a client of imp, in both usual configurations: `openai/` and `hosted_vllm/` (OAI-5)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from support.servers.http_served import DEMO_MODEL, HttpServed

litellm = pytest.importorskip("litellm", reason="LiteLLM is not installed here: pip install '.[clients]'")

pytestmark = pytest.mark.filterwarnings("default")  # LiteLLM's own warnings about Pydantic
ASKED = [{"role": "user", "content": "Hello"}]


@pytest.fixture(params=["openai", "hosted_vllm", "anthropic"])
def provider(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def options(provider: str, http: HttpServed) -> dict[str, Any]:
    """The options of every call."""
    return {
        "model": f"{provider}/{DEMO_MODEL}",
        "api_base": http.url.removesuffix("/v1") if provider == "anthropic" else http.url,
        "api_key": "any",
        "messages": ASKED,
        "max_tokens": 12,
        "temperature": 0,
        "num_retries": 0,
    }


def expected(http: HttpServed) -> dict[str, Any]:
    """The server's own answer."""
    return http.chat(ASKED, max_tokens=12, temperature=0).json  # type: ignore[no-any-return]


def test_oai_5_a_whole_answer_with_its_usage(http: HttpServed, options: dict[str, Any]) -> None:
    answer = litellm.completion(**options)
    known = expected(http)
    assert answer.choices[0].message.content == known["choices"][0]["message"]["content"]
    assert answer.choices[0].finish_reason == known["choices"][0]["finish_reason"] == "length"
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (known["usage"]["prompt_tokens"], 12)


@pytest.mark.parametrize("is_async", [False, True])
def test_oai_5_a_stream_with_its_usage(http: HttpServed, options: dict[str, Any], is_async: bool) -> None:
    asked = {**options, "stream": True, "stream_options": {"include_usage": True}}

    async def read() -> list[Any]:
        return [event async for event in await litellm.acompletion(**asked)]

    events = asyncio.run(read()) if is_async else list(litellm.completion(**asked))
    text = "".join(event.choices[0].delta.content or "" for event in events if event.choices)
    assert text == expected(http)["choices"][0]["message"]["content"]
    usages = [event.usage for event in events if getattr(event, "usage", None)]
    assert usages[-1].completion_tokens == 12


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        ({"temperature": 200}, litellm.BadRequestError),
        ({"max_tokens": -7}, litellm.BadRequestError),
        ({"messages": [{"role": "user", "content": "the " * 20_000}]}, litellm.ContextWindowExceededError),
        ({"model": "openai/gpt-9"}, litellm.NotFoundError),
    ],
)
def test_oai_5_errors_are_of_the_right_class(
    options: dict[str, Any], change: dict[str, Any], kind: type[Exception]
) -> None:
    with pytest.raises(kind) as caught:
        litellm.completion(**{**options, **change})
    assert type(caught.value) is kind


def test_oai_5_msg_11_a_forced_call_arrives(provider: str, options: dict[str, Any]) -> None:
    parameters = {
        "type": "object",
        "properties": {"days": {"type": "integer", "minimum": 1, "maximum": 9}},
        "required": ["days"],
        "additionalProperties": False,
    }
    tool = {"type": "function", "function": {"name": "forecast", "parameters": parameters}}
    choice = {"type": "function", "function": {"name": "forecast"}}
    # Anthropic's API has no penalties, so LiteLLM passes on only a name that it does not know.
    penalty = {"repetition_penalty": 1.3} if provider == "anthropic" else {"frequency_penalty": 1}
    asked = {**options, "max_tokens": 400, "tools": [tool], "tool_choice": choice}
    answer = litellm.completion(**asked, **penalty)
    (call,) = answer.choices[0].message.tool_calls
    assert call.function.name == "forecast" and '"days"' in call.function.arguments
    assert answer.choices[0].finish_reason == "tool_calls"


@pytest.mark.parametrize("provider", ["openai"])
def test_oai_5_a_text_is_completed(http: HttpServed, options: dict[str, Any]) -> None:
    asked = {name: value for name, value in options.items() if name != "messages"}
    asked["model"] = f"text-completion-openai/{DEMO_MODEL}"
    answer = litellm.text_completion(**asked, prompt="the cat")
    known = http.complete("the cat", max_tokens=12, temperature=0)
    assert (answer.choices[0].text, answer.usage.completion_tokens) == (known.choice["text"], 12)

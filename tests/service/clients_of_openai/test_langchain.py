"""LangChain's own test suite for chat models runs on its OpenAI client (OAI-4)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from support.servers.http_served import DEMO_MODEL, HttpServed
from support.servers.vision_served import file_of

pytest.importorskip("langchain_tests", reason="LangChain is not installed here: pip install '.[clients]'")
from langchain_core.language_models import BaseChatModel
from langchain_openai import ChatOpenAI
from langchain_tests.integration_tests import ChatModelIntegrationTests as Suite
from langchain_tests.integration_tests import chat_models

# Warnings of LangChain about its own models, and of Pydantic about LangChain's values.
pytestmark = pytest.mark.filterwarnings("default::UserWarning")

# These check the meaning of an answer: the built-in model writes valid calls, but answers no question.
needs_sense = pytest.mark.xfail(strict=True, reason="asks for the right answer, and the built-in model has no sense")
# These send a picture, which they download.
PICTURES = ("test_image_inputs", "test_image_tool_message")


class TestChatOpenAI(Suite):
    """The suite against imp."""

    url = ""
    served_name = DEMO_MODEL

    @pytest.fixture(autouse=True, scope="class")
    @classmethod
    def served(cls, http: HttpServed) -> None:
        """Sets the address before the model is made."""
        cls.url = http.url

    @pytest.fixture(autouse=True)
    def pictures(self, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
        """Tests with a picture ask a model that reads it. The suite takes one of ours in place of its download."""
        if request.function.__name__ in PICTURES:
            served: HttpServed = request.getfixturevalue("sighted")
            self.url, self.served_name = served.url, served.served.state.model.name
            downloads = SimpleNamespace(get=lambda *_, **__: SimpleNamespace(content=file_of()))
            monkeypatch.setattr(chat_models, "httpx", downloads)

    @property
    def chat_model_class(self) -> type[BaseChatModel]:
        return ChatOpenAI

    @property
    def chat_model_params(self) -> dict[str, Any]:
        """Returns OpenAI's parameters with imp's address. The demo model may write hundreds of tokens into a string."""
        return {
            "base_url": self.url,
            "api_key": "any",
            "model": self.served_name,
            "max_tokens": 3000,
            "frequency_penalty": 0.6,
            "stream_usage": True,
            "max_retries": 0,
            "seed": 7,
        }

    @property
    def model_override_value(self) -> str:
        """Returns the only served model."""
        return DEMO_MODEL

    @property
    def supports_json_mode(self) -> bool:
        return True

    @property
    def supports_image_inputs(self) -> bool:
        return True

    @property
    def supports_image_tool_message(self) -> bool:
        return True

    @needs_sense
    def test_tool_calling(self, model: BaseChatModel) -> None:
        super().test_tool_calling(model)

    @needs_sense
    def test_tool_calling_with_no_arguments(self, model: BaseChatModel) -> None:
        super().test_tool_calling_with_no_arguments(model)

    @needs_sense
    def test_structured_output_pydantic_2_v1(self, model: BaseChatModel) -> None:
        super().test_structured_output_pydantic_2_v1(model)

    @needs_sense
    def test_json_mode(self, model: BaseChatModel) -> None:
        super().test_json_mode(model)

    @needs_sense
    def test_agent_loop(self, model: BaseChatModel) -> None:
        super().test_agent_loop(model)

    @needs_sense
    def test_unicode_tool_call_integration(self, model: BaseChatModel) -> None:
        super().test_unicode_tool_call_integration(model)

    @needs_sense
    async def test_tool_calling_async(self, model: BaseChatModel) -> None:
        await super().test_tool_calling_async(model)


def test_oai_4_the_suite_has_its_tests() -> None:
    """A new release may rename its tests: with fewer of them the row would pass unnoticed."""
    names = {name for name in dir(TestChatOpenAI) if name.startswith("test_")}
    assert len(names) > 40

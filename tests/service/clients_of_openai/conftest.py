"""One server for the clients of OpenAI's API. Its chat template has tools."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from imp_service.models import demo_model_path
from support.files.context_length import with_context
from support.servers.client_served import serve_for_clients
from support.servers.http_served import HttpServed
from support.servers.served_models import from_file
from support.servers.vision_served import vision_model
from support.text.tool_templates import HERMES

# The built-in model has 512, and LangChain's histories need more. Beyond 512 its output is arbitrary.
CONTEXT = 4096
# Tests of LangChain's suite with prompts that are no text or image, or with recorded answers.
NOT_FOR_IMP = (
    "test_pdf_inputs",
    "test_audio_inputs",
    "test_pdf_tool_message",
    "test_anthropic_inputs",
    "test_stream_time",
)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    left_out = [item for item in items if item.name.partition("[")[0] in NOT_FOR_IMP]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in left_out]


@pytest.fixture(scope="session")
def http(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpServed]:
    """A server with the built-in model, whose words are meaningless. Tests check the form against clients' promises."""
    folder = tmp_path_factory.mktemp("served")
    template, model = folder / "chat.jinja", folder / "imp-demo.gguf"
    template.write_text(HERMES)
    model.write_bytes(with_context(demo_model_path(), CONTEXT))
    settings = (f"model.overrides.chat_template={template}", "kv.bytes=256MiB")
    with serve_for_clients(*settings, model=from_file(model)) as served:
        yield served


@pytest.fixture(scope="session")
def sighted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpServed]:
    """A server with a tiny model that reads images."""
    with serve_for_clients(model=vision_model(tmp_path_factory.mktemp("sighted"))) as served:
        yield served

"""A model without a chat template says what its caller can do in place of a chat."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

import imp_service
from imp_service.pb import inference_pb2 as pb
from imp_service.pb import types_pb2
from support.run.patience import HANGS_AFTER
from support.servers.http_served import HttpServed, serve_http
from support.servers.served_models import tiny_with_text


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[HttpServed, Path]]:
    """A server with a model that has no chat template, and its file."""
    folder = tmp_path_factory.mktemp("base")
    model = tiny_with_text(folder)
    with serve_http(model=model) as it:
        yield it, next(folder.glob("*.gguf"))


def test_txt_36_a_base_model_says_what_a_caller_of_http_can_do(base: tuple[HttpServed, Path]) -> None:
    http, _ = base
    reply = http.chat("Hi")
    assert reply.refusal[:2] == (400, "no_chat_template") and reply.error["type"] == "invalid_request_error"
    assert "/v1/completions" in reply.error["message"] and "`text`" not in reply.error["message"]
    with_tools = http.chat("Hi", tools=[{"type": "function", "function": {"name": "f"}}], tool_choice="required")
    assert with_tools.refusal[:2] == (400, "no_chat_template")


def test_txt_36_a_base_model_says_what_a_caller_of_grpc_can_do(base: tuple[HttpServed, Path]) -> None:
    http, _ = base
    chat = types_pb2.ChatPrompt(messages=[types_pb2.ChatMessage(role="user", content="Hi")])
    with pytest.raises(grpc.RpcError) as caught:
        list(http.served.inference.Generate(pb.GenerateRequest(chat=chat)))
    assert caught.value.code() is grpc.StatusCode.FAILED_PRECONDITION
    assert "send `text` in place of `chat`" in str(caught.value.details())
    assert "/v1" not in str(caught.value.details())


def test_txt_36_a_base_model_says_what_a_program_or_a_person_can_do(base: tuple[HttpServed, Path]) -> None:
    http, path = base
    with (
        imp_service.load(path, "device.threads=1") as model,
        pytest.raises(imp_service.StateError, match=r"no chat template; generate\(\) continues a text"),
    ):
        model.chat([{"role": "user", "content": "Hi"}])
    with (
        imp_service.connect(http.served.address) as far,
        pytest.raises(imp_service.StateError, match=r"no chat template; generate\(\) continues a text"),
    ):
        far.chat([{"role": "user", "content": "Hi"}]).result()
    ran = subprocess.run(
        [sys.executable, "-m", "imp_service", "chat", "-m", str(path)],
        input="Hi\n", capture_output=True, text=True, timeout=HANGS_AFTER, check=False,
    )  # fmt: skip
    assert ran.returncode == 64 and "imp run" in ran.stderr and "generate()" not in ran.stderr, ran.stderr

"""What a start does with a broken or missing chat template, and what the server then serves."""

from __future__ import annotations

from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from imp_service.pb import inference_pb2 as pb
from imp_service.pb import inference_pb2_grpc, model_pb2, model_pb2_grpc, tokenizer_pb2, tokenizer_pb2_grpc
from support.calls.session_calls import refusal
from support.files.gguf_writer import STRING, Key
from support.machine.command_line import demo_with, demo_with_keys
from support.servers.served import serve
from support.servers.served_models import built_in
from support.servers.server_process import server_process, start_to_its_end

BROKEN = "{% for m in messages %}"
CHAT = pb.GenerateRequest(chat={"messages": [{"role": "user", "content": "hi"}]}, stop={"max_tokens": 2})
TOOLS = '[{"type": "function", "function": {"name": "f"}}]'


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    """The built-in model with a template that does not compile."""
    return demo_with(tmp_path / "broken.gguf", b"{% endfor %}", b"{% endfur %}")


@pytest.mark.long
def test_txt_30_a_broken_template_of_the_model_is_a_warning_and_ends_chats_alone(tmp_path: Path, broken: Path) -> None:
    with server_process(tmp_path, "-m", str(broken)) as server, server.connection() as channel:
        server.wait_until_ready()
        health = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest())
        assert health.status == health_pb2.HealthCheckResponse.SERVING
        (line,) = server.wait_for_lines("model", 1)
        assert line["level"] == "warning"
        assert str(line["message"]).startswith("broken.gguf: key tokenizer.chat_template: line 1: ")
        assert str(line["message"]).endswith("; conversations are refused")
        info = model_pb2_grpc.ModelServiceStub(channel).GetModelInfo(model_pb2.GetModelInfoRequest())
        assert "{% endfur %}" in info.chat_template
        tokenizer = tokenizer_pb2_grpc.TokenizerServiceStub(channel)
        assert list(tokenizer.GetTokenizer(tokenizer_pb2.GetTokenizerRequest()))
        for call in (
            lambda: list(inference_pb2_grpc.InferenceServiceStub(channel).Generate(CHAT)),
            lambda: tokenizer.ApplyChatTemplate(tokenizer_pb2.ApplyChatTemplateRequest(chat=CHAT.chat)),
        ):
            found = refusal(call)
            assert (found.code, found.reason) == (grpc.StatusCode.FAILED_PRECONDITION.value[0], "TEMPLATE_INVALID")
        plain = list(
            inference_pb2_grpc.InferenceServiceStub(channel).Generate(
                pb.GenerateRequest(text="Once", stop={"max_tokens": 2})
            )
        )
        assert plain[-1].finished.usage.output_tokens > 0


@pytest.mark.long
def test_txt_30_strict_refuses_a_broken_template(tmp_path: Path, broken: Path) -> None:
    ran = start_to_its_end(tmp_path, "-m", str(broken), "--strict")
    assert (ran.returncode, ran.stderr.count("\n")) == (65, 1)
    assert ran.stderr.startswith("imp: error: TEMPLATE_INVALID: broken.gguf: key tokenizer.chat_template: line 1")


@pytest.mark.long
@pytest.mark.parametrize(
    ("content", "status", "words"),
    [
        (None, 78, "CONFIG_INVALID: --set model.overrides.chat_template: chat.jinja: No such file"),
        (BROKEN.encode(), 65, "TEMPLATE_INVALID: model.overrides.chat_template: line 1"),
        (b"\xff", 65, "TEMPLATE_INVALID: model.overrides.chat_template: not UTF-8"),
    ],
)
def test_txt_30_a_file_that_is_missing_or_broken_ends_the_start(
    tmp_path: Path, content: bytes | None, status: int, words: str
) -> None:
    if content is not None:
        (tmp_path / "chat.jinja").write_bytes(content)
    ran = start_to_its_end(tmp_path, "--set", "model.overrides.chat_template=chat.jinja")
    assert (ran.returncode, ran.stderr.count("\n")) == (status, 1)
    assert ran.stderr.startswith(f"imp: error: {words}")


@pytest.mark.long
def test_txt_30_an_unknown_filter_in_a_condition_is_a_warning_at_start(tmp_path: Path) -> None:
    (tmp_path / "chat.jinja").write_text("{% if tools %}{{ tools | nope }}{% endif %}hello")
    settings = (f"model.overrides.chat_template={tmp_path / 'chat.jinja'}",)
    with server_process(tmp_path, settings=settings) as server, server.connection() as channel:
        server.wait_until_ready()
        (line,) = server.wait_for_lines("model", 1)
        assert line["message"] == "model.overrides.chat_template: no filter named 'nope' (line 1)"
        rendered = tokenizer_pb2_grpc.TokenizerServiceStub(channel).ApplyChatTemplate(
            tokenizer_pb2.ApplyChatTemplateRequest(chat=CHAT.chat)
        )
        assert rendered.text == "hello"


# Shows the tools, and writes calls in a form that imp reads.
TOOL_USE = (
    "tools {{ tools }}{% for message in messages %}{{ message.content }}{% for call in message.tool_calls or [] %}"
    "<tool_call>\n{{ call.function | tojson }}\n</tool_call>{% endfor %}{% endfor %}"
)


def test_txt_30_a_chat_with_tools_takes_the_files_template_for_them(tmp_path: Path) -> None:
    path = demo_with_keys(tmp_path / "tools.gguf", Key("tokenizer.chat_template.tool_use", STRING, TOOL_USE))
    request = tokenizer_pb2.ApplyChatTemplateRequest(chat=CHAT.chat)
    with_tools = tokenizer_pb2.ApplyChatTemplateRequest(chat=CHAT.chat)
    with_tools.chat.tools_json = TOOLS
    for settings, expected in (((), (False, True)), (("model.overrides.chat_template_name=tool_use",), (True, True))):
        with serve(f"model.path={path}", *settings, model=built_in()) as served:
            stub = tokenizer_pb2_grpc.TokenizerServiceStub(served.channel())
            texts = [stub.ApplyChatTemplate(each).text for each in (request, with_tools)]
            assert tuple(text.startswith("tools ") for text in texts) == expected

"""Tool calls and reasoning through gRPC: streamed and whole, and the answer of a model without a dialect."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from imp_service.pb import inference_pb2 as pb
from imp_service.pb import tokenizer_pb2, tokenizer_pb2_grpc, types_pb2
from support.calls.status_details import read_details
from support.servers.served import Served, serve
from support.text.tool_templates import HERMES

IGNORING = """{% for m in messages %}{{ m.role ~ ': ' ~ (m.content or '') ~ '\n' }}{% endfor %}"""
# Shows its tools only beside a last message of the user, as older templates of Mistral do.
SOMETIMES = """{% for m in messages %}{% if tools and loop.last and m.role == 'user' %}{{ tools | tojson }}{% endif %}
{{- m.content or '' }}{% for c in m.tool_calls or [] %}
{{- '<tool_call>\n{"name": "' + c.function.name + '", "arguments": ' }}{{ c.function.arguments | tojson }}
{{- '}\n</tool_call>' }}{% endfor %}{% endfor %}"""
SCHEMA = {
    "type": "object",
    "properties": {"city": {"enum": ["Rome", "Oslo"]}, "days": {"type": "integer", "minimum": 1, "maximum": 9}},
    "required": ["city", "days"],
    "additionalProperties": False,
}
TOOLS = json.dumps([{"type": "function", "function": {"name": "get_weather", "parameters": SCHEMA}}])


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    path: Path = tmp_path_factory.mktemp("templates") / "chat.jinja"
    path.write_text(HERMES)
    with serve(f"model.overrides.chat_template={path}", "limits.max_context=512") as server:
        yield server


def request_with(tools: str = TOOLS, **fields: Any) -> pb.GenerateRequest:
    chat = types_pb2.ChatPrompt(messages=[types_pb2.ChatMessage(role="user", content="Rain?")], tools_json=tools)
    prompt: dict[str, Any] = {} if "text" in fields else {"chat": chat}
    output = types_pb2.OutputOptions(parse=True, max_chunk_tokens=3)
    sampling = types_pb2.SamplingOptions(seed=6, temperature=0)
    return pb.GenerateRequest(
        sampling=sampling, output=output, stop=types_pb2.StopOptions(max_tokens=150), **prompt, **fields
    )


@pytest.mark.long
def test_tol_2_chn_9_a_call_is_streamed_as_it_is_sent_whole(served: Served) -> None:
    request = request_with(tool_choice="function:get_weather")
    replies = list(served.inference.Generate(request))
    parts = [reply.chunk for reply in replies[1:-1]] + [replies[-1].finished]
    deltas = [call for part in parts for call in part.tool_calls]
    assert [(call.index, call.name, bool(call.id)) for call in deltas[:2]] == [
        (0, "get_weather", True),
        (0, "", False),
    ]
    [sequence] = served.inference.GenerateUnary(pb.GenerateUnaryRequest(request=request)).sequences
    [call] = sequence.output.tool_calls
    assert call.arguments_json == "".join(delta.arguments_json for delta in deltas)
    assert (call.id, call.name) == (deltas[0].id, "get_weather")
    found = json.loads(call.arguments_json)
    assert found["city"] in ("Rome", "Oslo") and 1 <= found["days"] <= 9
    assert (sequence.output.text, sequence.reason) == ("", types_pb2.FINISH_REASON_STOP)


def test_chn_9_reasoning_is_streamed_as_it_is_sent_whole(served: Served) -> None:
    request = request_with("", constraint=types_pb2.Constraint(regex="<think>\\nWhy [a-z]{5}\\n</think>\\n\\nSo"))
    replies = list(served.inference.Generate(request))
    parts = [reply.chunk for reply in replies[1:-1]] + [replies[-1].finished]
    [sequence] = served.inference.GenerateUnary(pb.GenerateUnaryRequest(request=request)).sequences
    assert "".join(part.reasoning for part in parts) == sequence.output.reasoning
    assert "".join(part.text for part in parts) == sequence.output.text == "So"
    assert sequence.output.reasoning.startswith("Why ") and len(sequence.output.reasoning) == 9


def test_chn_9_what_is_held_back_comes_with_the_end(served: Served) -> None:
    cut = '<tool_call>{"name": "get_weather", '
    for text, expected in (("<think>Why\n</th", ("", "Why\n</th", "")), (cut, ("", "", "get_weather"))):
        # With tools in a chat, a call that fits would be allowed too.
        request = request_with(text="Rain?", constraint=types_pb2.Constraint(choices=types_pb2.Choices(values=[text])))
        finished = list(served.inference.Generate(request))[-1].finished
        assert "</th" in finished.reasoning or finished.tool_calls
        [sequence] = served.inference.GenerateUnary(pb.GenerateUnaryRequest(request=request)).sequences
        output = sequence.output
        assert (output.text, output.reasoning, "".join(call.name for call in output.tool_calls)) == expected


def test_tol_1_txt_31_a_forced_call_is_compiled_in_the_queue_of_constraints(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = served.state.constraints
    run, tenants = queue.run, []

    async def recorded(work: Any, tenant: str) -> Any:
        tenants.append(tenant)
        return await run(work, tenant)

    monkeypatch.setattr(queue, "run", recorded)
    other = TOOLS.replace("Oslo", "Bern")
    list(served.inference.Generate(request_with(other, tool_choice="required"), metadata=[("imp-tenant", "t")]))
    assert tenants == ["t"]


@pytest.mark.long
def test_chn_9_without_parse_the_messages_are_as_before(served: Served) -> None:
    request = request_with(tool_choice="required")
    request.output.ClearField("parse")
    for reply in served.inference.Generate(request):
        for part in (reply.chunk, reply.finished):
            assert (part.reasoning, len(part.tool_calls)) == ("", 0)


@pytest.mark.long
@pytest.mark.parametrize("is_parallel", [None, True, False])
def test_tol_2_one_call_or_several(served: Served, is_parallel: bool | None) -> None:
    """The biases keep the model from an early end, and from spaces."""
    empty = {"type": "object", "properties": {}, "additionalProperties": False}
    tools = json.dumps([{"type": "function", "function": {"name": "f", "parameters": empty}}])
    request = request_with(tools, tool_choice="required", parallel_tool_calls=is_parallel)
    tokenizer = served.state.model.tokenizer
    spaces = [token for token in range(256, 2048) if tokenizer.token_bytes(token).isspace()]
    for token in (*served.state.model.eos_tokens, *spaces):
        request.sampling.logit_bias[token] = -100.0
    [sequence] = served.inference.GenerateUnary(pb.GenerateUnaryRequest(request=request)).sequences
    assert (len(sequence.output.tool_calls) > 1) == (is_parallel is not False)


TWO_CALLS = "".join(
    f'<tool_call>\n{{"name": "get_weather", "arguments": {{"city": "{city}", "days": 2}}}}\n</tool_call>\n'
    for city in ("Rome", "Oslo")
)


@pytest.mark.parametrize("n_others", [0, 3])
def test_tol_5_the_output_ends_after_its_first_call_in_any_batch(served: Served, n_others: int) -> None:
    """The prompt is a text, so that a constraint can make the model write two calls."""
    two = types_pb2.Constraint(choices=types_pb2.Choices(values=[TWO_CALLS]))
    others = [served.inference.Generate(request_with("", text=f"the {n}")) for n in range(n_others)]
    several, one = (
        served.inference.GenerateUnary(
            pb.GenerateUnaryRequest(request=request_with(text="Rain?", constraint=two, parallel_tool_calls=is_parallel))
        ).sequences[0]
        for is_parallel in (True, False)
    )
    for other in others:
        list(other)
    assert len(several.output.tool_calls) == 2
    assert list(one.output.tool_calls) == list(several.output.tool_calls)[:1]
    n_tokens = len(one.output.token_ids)
    assert 0 < n_tokens < len(several.output.token_ids) / 2 + 12
    assert one.output.token_ids == several.output.token_ids[:n_tokens]
    assert (one.reason, one.output.text, one.HasField("match")) == (types_pb2.FINISH_REASON_STOP, "", False)
    request = request_with(text="Rain?", constraint=two, parallel_tool_calls=False)
    *_, last = served.inference.Generate(request)
    assert last.finished.reason == types_pb2.FINISH_REASON_STOP


def test_tol_5_calls_that_nobody_looks_for_end_nothing(served: Served) -> None:
    request = request_with(parallel_tool_calls=False)
    request.output.parse = False
    with pytest.raises(grpc.RpcError) as caught:
        list(served.inference.Generate(request))
    details = read_details(caught.value.trailing_metadata())
    assert details.message.startswith("parallel_tool_calls: false, expected output.parse or a tool_choice that forces")


@pytest.mark.parametrize(("choice", "parses"), [("auto", True), ("auto", False), ("", True), ("", False)])
def test_tol_4_the_model_may_call_if_a_constraint_is_on_content(served: Served, choice: str, parses: bool) -> None:
    """A bias makes the model begin with the one or the other, if the constraint allows it."""
    tokenizer = served.state.model.tokenizer
    for begin, is_call in (("<", True), ("n", False)):
        request = request_with(
            tool_choice=choice, constraint=types_pb2.Constraint(choices=types_pb2.Choices(values=["no", "never"]))
        )
        request.output.parse = parses
        request.stop.max_tokens = 1
        for token in range(256, tokenizer.vocab_size):
            if tokenizer.token_bytes(token).startswith(begin.encode()):
                request.sampling.logit_bias[token] = 50.0
        for token in tokenizer.encode(begin, add_special_tokens=False):
            request.sampling.logit_bias[token] = 100.0
        [sequence] = served.inference.GenerateUnary(pb.GenerateUnaryRequest(request=request)).sequences
        [token] = sequence.output.token_ids
        begins_call = tokenizer.token_bytes(token).startswith(b"<")
        assert begins_call == (is_call and (choice == "auto" or parses))


@pytest.mark.parametrize("is_whole", [False, True])
def test_tol_3_a_choice_without_its_tools_names_the_field(served: Served, is_whole: bool) -> None:
    request = request_with("", tool_choice="required")
    with pytest.raises(grpc.RpcError) as caught:
        if is_whole:
            served.inference.GenerateUnary(pb.GenerateUnaryRequest(request=request))
        else:
            list(served.inference.Generate(request))
    details = read_details(caught.value.trailing_metadata())
    path = "request.tool_choice" if is_whole else "tool_choice"
    assert details.reason == "FIELD_INVALID" and details.message.startswith(f"{path}: 'required', expected tools")


def test_tol_3_a_dialect_that_is_plain_by_the_settings_refuses_tools() -> None:
    with serve("model.overrides.dialect=plain") as server:
        with pytest.raises(grpc.RpcError) as caught:
            list(server.inference.Generate(request_with()))
        details = read_details(caught.value.trailing_metadata())
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert details.reason == "FIELD_INVALID" and details.message.startswith("chat.tools_json: ")
        assert list(server.inference.Generate(request_with(tool_choice="none")))


def test_tol_6_tools_of_a_model_whose_template_ignores_them(tmp_path: Path) -> None:
    (tmp_path / "chat.jinja").write_text(IGNORING)
    with serve(f"model.overrides.chat_template={tmp_path / 'chat.jinja'}") as server:
        for choice in ("required", "function:get_weather"):
            request = request_with(tool_choice=choice, parallel_tool_calls=False)
            [sequence] = server.inference.GenerateUnary(pb.GenerateUnaryRequest(request=request)).sequences
            [call] = sequence.output.tool_calls
            assert (call.name, sequence.output.text) == ("get_weather", "")
            assert json.loads(call.arguments_json)["city"] in ("Rome", "Oslo")
        free = list(server.inference.Generate(request_with()))[-1]
        hidden = list(server.inference.Generate(request_with(tool_choice="none")))[-1]
        assert free.finished.usage.prompt_tokens > hidden.finished.usage.prompt_tokens + 50


def test_tol_7_a_prompt_without_its_tools_is_named_in_the_head_and_in_the_log(tmp_path: Path) -> None:
    (tmp_path / "chat.jinja").write_text(SOMETIMES)
    with serve(f"model.overrides.chat_template={tmp_path / 'chat.jinja'}") as server:
        for reply, is_named in (("", False), ("Go on.", True)):
            request = request_with(tool_choice="auto")
            if reply:
                request.chat.messages.append(types_pb2.ChatMessage(role="assistant", content=reply))
            call = server.inference.Generate(request)
            list(call)
            assert (dict(call.initial_metadata()).get("imp-ignored") == '"chat.tools_json"') == is_named
        server.wait_until(lambda: '"tools_hidden"' in "".join(server.log_lines()), "the log is written")


def test_chn_10_an_assistants_message_without_content_has_null(tmp_path: Path) -> None:
    source = "{% for m in messages %}{{ '(' + m.content + ')' if m.content is defined else 'null' }} {% endfor %}"
    (tmp_path / "chat.jinja").write_text(source)
    null = types_pb2.ChatMessage(role="assistant", null_content=True)
    empty = types_pb2.ChatMessage(role="assistant")
    with serve(f"model.overrides.chat_template={tmp_path / 'chat.jinja'}") as server:
        stub = tokenizer_pb2_grpc.TokenizerServiceStub(server.channel())
        reply = stub.ApplyChatTemplate(
            tokenizer_pb2.ApplyChatTemplateRequest(chat=types_pb2.ChatPrompt(messages=[null, empty]))
        )
        assert reply.text == "null () "
        with pytest.raises(grpc.RpcError) as caught:
            both = types_pb2.ChatMessage(role="assistant", content="a", null_content=True)
            stub.ApplyChatTemplate(tokenizer_pb2.ApplyChatTemplateRequest(chat=types_pb2.ChatPrompt(messages=[both])))
        assert "chat.messages[0].null_content" in str(caught.value.details())


@pytest.mark.long
def test_chn_10_reasoning_and_documents_reach_the_template(served: Served, tmp_path: Path) -> None:
    source = (
        "{% for d in documents or [] %}{{ d.title }} {% endfor %}{% for m in messages %}{{ m.thinking }}{% endfor %}"
    )
    (tmp_path / "chat.jinja").write_text(source)
    with serve(f"model.overrides.chat_template={tmp_path / 'chat.jinja'}") as server:
        message = types_pb2.ChatMessage(role="assistant", content="a", reasoning_content="because")
        chat = types_pb2.ChatPrompt(messages=[message], documents_json='[{"title": "News"}]')
        output = types_pb2.OutputOptions(prompt_token_ids=True)
        request = pb.GenerateRequest(chat=chat, output=output, stop=types_pb2.StopOptions(max_tokens=1))
        started = next(iter(server.inference.Generate(request))).started
        assert server.state.model.tokenizer.decode(list(started.prompt.token_ids)) == "News because"

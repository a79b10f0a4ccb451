"""imp call: the reply on stdout, all else on stderr, and one line and a status for each failure."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import threading

import grpc
import pytest
from google.rpc.error_details_pb2 import BadRequest, ErrorInfo

from imp_service.pb import tokenizer_pb2
from imp_service.pb.inference_pb2 import GenerateRequest
from support.machine.command_line import clean_environment, error_lines, modules_after
from support.machine.terminal_session import CTRL_C, PROMPT, terminal_session
from support.run.patience import HANGS_AFTER
from support.servers.breaking_servers import BreakingServers
from support.servers.scripted_server import refuse, resumable_story, scripted_server, story


@pytest.fixture
def server():
    """A server that returns the same story to every request, and the list of its requests."""
    asked: list[GenerateRequest] = []

    def generate(request, context):
        asked.append(request)
        yield from story("Once", " upon\x1b", " a time")

    with scripted_server(Generate=generate) as address:
        yield address, asked


def test_a_text_streams_to_stdout_and_facts_to_stderr(call, server):
    address, asked = server
    status, out, err = call("call", "generate", "hello", "--target", address)
    assert (status, out) == (0, "Once upon\x1b a time\n")
    assert err == "— ended by the limit of tokens (--max-tokens).\n"
    err = call("call", "generate", "hello", "--target", address, "--verbose")[2]
    assert re.fullmatch(
        r"— 3 tokens, first token [\d.]+ ms, ended by the limit of tokens \(--max-tokens\)\."
        r"   demo: prompt 3 tokens, seed 7, request r1\n",
        err,
    ), err
    assert asked == [GenerateRequest(text="hello")] * 2


def test_rsm_4_an_answer_that_breaks_goes_on(call):
    messages = resumable_story("Once", " upon", " a time")
    whole = {}
    for cuts in ((), (2, 1)):
        with scripted_server(Generate=BreakingServers(*cuts, messages=messages)) as address:
            for words in (("generate", "hello"), ("chat", "hello"), ("generate", "hello", "--json")):
                status, out, _ = call("call", *words, "--target", address)
                assert status == 0
                assert whole.setdefault(words, out) == out


def test_chat_is_meant_where_no_method_is_typed(call, server):
    address, asked = server
    for words in (("call", "chat", "--target", address, "hello"), ("call", "--target", address, "hello")):
        assert call(*words)[:2] == (0, "Once upon\x1b a time\n")
    assert [request.chat.messages[0].content for request in asked] == ["hello", "hello"]
    status, _, err = call("call", "--target", address, "health")
    assert (status, error_lines(err)[-1]) == (
        64,
        "imp: error: USAGE: health: expected a method right after imp call, before its options; "
        "if it is an argument, write imp call chat …",
    )


def test_options_become_fields(call, server):
    address, asked = server
    fields = '{"constraint": {"regex": "[0-9]+"}, "stop": {"minTokens": 2}}'
    words = (
        *("--max-tokens", "5", "--temperature", "0", "--top-k", "40", "--top-p", "0.5", "--min-p", "0.25"),
        *("--seed", "9", "--stop", ".", "--stop", "!", "--time-limit", "1500ms", "-m", "demo", "--fields", fields),
    )
    assert call("call", "generate", "hello", "--target", address, *words)[0] == 0
    sampling = {"temperature": 0, "top_k": 40, "top_p": 0.5, "min_p": 0.25, "seed": 9}
    expected = GenerateRequest(text="hello", model="demo", sampling=sampling, constraint={"regex": "[0-9]+"})
    expected.stop.max_tokens, expected.stop.min_tokens = 5, 2
    expected.stop.strings.extend([".", "!"])
    expected.stop.time_limit.FromMilliseconds(1500)
    assert asked == [expected]


def test_json_has_a_line_for_each_message(call, server):
    address, _ = server
    status, out, err = call("call", "hello", "--target", address, "--json")
    messages = [json.loads(line) for line in out.splitlines()]
    assert (status, err) == (0, "")
    assert [next(iter(message)) for message in messages] == ["started", "chunk", "chunk", "chunk", "finished"]
    assert messages[0]["started"]["seed"] == "7"  # JSON writes a 64-bit integer as a string
    assert [m["chunk"]["first_token"] for m in messages[1:4]] == [0, 1, 2]
    assert "".join(m["chunk"]["text"] for m in messages[1:4]) == "Once upon\x1b a time"
    assert messages[4]["finished"]["reason"] == "FINISH_REASON_MAX_TOKENS"


@pytest.mark.parametrize("option", [(), ("--json",)])
def test_an_approximate_answer_is_called_one(call, option):
    def generate(request, context):
        context.send_initial_metadata((("imp-approximations", "sparse_prefill,kv=q8_0"),))
        yield from story("Once")

    with scripted_server(Generate=generate) as address:
        status, _, err = call("call", "hello", "--target", address, *option)
    assert status == 0
    assert err.splitlines()[-1] == "imp: warning: the answer is approximate: sparse_prefill,kv=q8_0"


def test_a_chat_keeps_the_conversation(imp, server):
    address, asked = server
    result = imp(
        "call", "chat", "--target", address, "--system", "Be brief.", stdin=b"Hi.\n\nAnd then?\n/quit\nnot this\n"
    )
    assert (result.returncode, result.stdout.decode()) == (0, "Once upon\x1b a time\n" * 2)
    turns = [[(m.role, m.content) for m in request.chat.messages] for request in asked]
    first = [("system", "Be brief."), ("user", "Hi.")]
    assert turns == [first, [*first, ("assistant", "Once upon\x1b a time"), ("user", "And then?")]]


FAILURES = {
    "QUEUE_FULL": (grpc.StatusCode.RESOURCE_EXHAUSTED, 75),
    "CONTEXT_TOO_LONG": (grpc.StatusCode.OUT_OF_RANGE, 64),
    "MODEL_NOT_SERVED": (grpc.StatusCode.NOT_FOUND, 66),
    "TOKEN_MISSING": (grpc.StatusCode.UNAUTHENTICATED, 77),
    "LOADING": (grpc.StatusCode.UNAVAILABLE, 69),
    "NOT_HEARD_OF": (grpc.StatusCode.INTERNAL, 70),
}


@pytest.mark.parametrize("reason", FAILURES)
def test_a_failure_is_one_line_with_reason_and_code(call, reason):
    code, expected = FAILURES[reason]

    def generate(request, context):
        refuse(context, code, "what was found,\nwhat was expected", ErrorInfo(reason=reason, domain="imp.v1"))
        yield

    with scripted_server(Generate=generate) as address:
        status, out, err = call("call", "hello", "--target", address, "--attempts", "1")
    assert (status, out) == (expected, "")
    assert err == f"imp: error: {reason}: what was found,\\nwhat was expected ({code.name})\n"


def test_a_failure_names_every_field(call):
    bad = BadRequest()
    bad.field_violations.add(field="texts", description="none, expected at least one")
    bad.field_violations.add(field="texts[1]", description="not this")

    def tokenize(request, context):
        info = ErrorInfo(reason="FIELD_INVALID", domain="imp.v1")
        refuse(context, grpc.StatusCode.INVALID_ARGUMENT, "2 fields are invalid", info, bad)
        yield

    with scripted_server(Tokenize=tokenize) as address:
        status, out, err = call("call", "tokenize", "a", "--target", address)
    assert (status, out) == (64, "")
    assert err == (
        "imp: error: FIELD_INVALID: texts: none, expected at least one; texts[1]: not this (INVALID_ARGUMENT)\n"
    )


def test_a_message_that_was_lost_is_no_good_end(call):
    with scripted_server(
        Generate=lambda request, context: iter(story("a", "b", "c")[:2] + story("a", "b", "c")[3:])
    ) as address:
        status, out, err = call("call", "hello", "--target", address)
    assert (status, out) == (70, "a")
    assert err == "imp: error: STREAM_BROKEN: token 1 expected next, token 2 came\n"


def test_a_deadline_ends_the_call_and_keeps_what_came(call):
    ended = threading.Event()

    def generate(request, context):
        context.add_callback(ended.set)
        yield from story("Once")[:2]
        ended.wait(HANGS_AFTER)

    with scripted_server(Generate=generate) as address:
        # A busy machine needs a longer deadline.
        for deadline in ("300ms", "3s", "20s"):
            ended.clear()
            status, out, err = call("call", "hello", "--target", address, "--deadline", deadline)
            assert status == 75 and err.startswith("imp: error: DEADLINE_EXCEEDED: ")
            if out:
                break
    assert out == "Once"


def test_ctrl_c_cancels_the_call(tmp_path):
    ended = threading.Event()

    def generate(request, context):
        context.add_callback(ended.set)
        yield from story("Once")[:2]
        ended.wait(HANGS_AFTER)

    with scripted_server(Generate=generate) as address:
        process = subprocess.Popen(
            [sys.executable, "-m", "imp_service", "call", "hello", "--target", address],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=tmp_path,
            env=clean_environment(tmp_path),
        )
        assert process.stdout
        assert process.stdout.read(4) == b"Once"
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=HANGS_AFTER)
        assert (process.returncode, err) == (130, b"")
        assert ended.wait(HANGS_AFTER)


def test_tokens_both_ways(call):
    def tokenize(request, context):
        assert request == tokenizer_pb2.TokenizeRequest(
            texts=["a b", "c"], add_special_tokens=False, parse_special_tokens=True, count_only=False
        )
        yield tokenizer_pb2.TokenizeResponse(
            results=[{"count": 2, "token_ids": [5, 6]}, {"count": 1, "token_ids": [7]}]
        )

    def detokenize(request, context):
        assert request == tokenizer_pb2.DetokenizeRequest(token_ids=[{"ids": [5, 6]}], special_tokens=True)
        yield tokenizer_pb2.DetokenizeResponse(texts=["a b"], raw=[b"a b"])

    with scripted_server(Tokenize=tokenize, Detokenize=detokenize) as address:
        to = ("--target", address)
        assert call("call", "tokenize", "a b", "c", "--no-special", "--parse-special", *to) == (0, "5 6\n7\n", "")
        assert call("call", "detokenize", "5", "6", "--special", *to) == (0, "a b\n", "")


USAGE = {
    ("hello", "--token-env", "NO_SUCH"): "$NO_SUCH: no token there",
    ("hello", "--cert", "a.pem"): "--cert and --key: expected both or neither",
    ("hello", "--deadline", "3"): "--deadline: 3: expected 1ms to 24h, with its unit",
    ("hello", "--metadata", "imp-tenant"): "expected key=value",
    ("hello", "--fields", "{"): "--fields: Failed to load JSON",
    ("hello", "--fields", '{"no_such": 1}'): '"no_such"',
    ("generate", "hello", "--fields", '{"text": "x"}'): "PROMPT: expected one",
    ("hello", "--fields", '{"num_sequences": 2}'): "expected --json too",
    ("chat", "hello", "--fields", '{"text": "x"}'): "--fields: a chat takes no prompt",
    ("generate",): "PROMPT: expected one",
    ("health", "--temperature", "0"): "unrecognized arguments: --temperature",
}


@pytest.mark.parametrize("words", USAGE)
def test_a_bad_command_line_calls_nobody(call, words):
    status, out, err = call("call", *words)
    assert (status, out) == (64, "")
    line = error_lines(err)[-1]
    assert line.startswith("imp: error: USAGE: ") and USAGE[words] in line


def test_numbers_that_no_field_holds(call):
    for words in (("hello", "--top-k", "-1"), ("hello", "--seed", str(2**64)), ("detokenize", str(2**32))):
        status, out, err = call("call", *words)
        assert (status, out) == (64, "")
        assert err.startswith("imp: error: FIELD_INVALID: "), err


def test_a_token_in_plain_text_is_warned_of(call, tmp_path):
    (tmp_path / "token").write_text("secret\n")
    words = ("call", "health", "--token-file", "token", "--attempts", "1")
    _, _, err = call(*words, "--target", "192.0.2.1:1", "--deadline", "1ms")
    assert err.splitlines()[0] == "imp: warning: the token goes to 192.0.2.1:1 in plain text; --tls hides it"
    _, _, err = call(*words, "--target", "127.0.0.1:1")
    assert len(err.splitlines()) == 1


def test_a_call_needs_neither_a_model_nor_its_text(tmp_path):
    """The test counts modules instead of time: a client starts without the server's packages."""
    loaded = modules_after(["call", "hello", "--attempts", "1", "--target", "127.0.0.1:1"], tmp_path)
    assert {"imp_service.client", "grpc"} <= loaded
    assert {"numpy", "tokenizers", "jinja2", "llguidance", "rich", "google.rpc"}.isdisjoint(loaded)
    rooms = {name.split(".")[1] for name in loaded if name.startswith("imp_service.")}
    # The core names the sampler's options; the call fails, which needs the errors of the API.
    assert rooms == {"cli", "client", "pb", "tables", "_core", "api"}


def test_ctrl_c_stops_an_answer_and_the_conversation_goes_on(tmp_path):
    asked: list[GenerateRequest] = []
    ended = threading.Event()

    def generate(request, context):
        asked.append(request)
        if len(asked) == 2:
            yield from story("It is 7.")
            return
        context.add_callback(ended.set)
        yield from story("Once")[:2]
        ended.wait(HANGS_AFTER)

    with scripted_server(Generate=generate) as address:
        words = (sys.executable, "-m", "imp_service", "call", "chat", "--target", address)
        with terminal_session(tmp_path, *words) as terminal:
            terminal.read_until(PROMPT)
            terminal.type("Tell me a story.\n")
            terminal.read_until("Once")
            terminal.type(CTRL_C)
            terminal.read_until(PROMPT)
            assert ended.wait(HANGS_AFTER)
            terminal.type("What is 3 plus 4?\n")
            terminal.read_until("It is 7.")
            terminal.read_until(PROMPT)
            terminal.type("/quit\n")
            assert terminal.process.wait(HANGS_AFTER) == 0
    # The conversation keeps the part of the answer that arrived.
    turns = [(message.role, message.content) for message in asked[1].chat.messages]
    assert turns == [("user", "Tell me a story."), ("assistant", "Once"), ("user", "What is 3 plus 4?")]


def test_cmd_7_constraints_become_fields(call, server, tmp_path):
    address, asked = server
    (tmp_path / "schema.json").write_text('{"type": "object"}\n')
    both = '{"constraint": {"regex": "x"}}'
    for words in (("--json-schema", "schema.json"), ("--json-schema", "schema.json", "--fields", both)):
        assert call("call", "generate", "hello", "world", "--target", address, *words)[0] == 0
    assert (
        call("call", "generate", "hello", "--target", address, "--json-schema", "schema.json", "--any-whitespace")[0]
        == 0
    )
    assert call("call", "generate", "hello", "--target", address, "--regex", "[0-9]+", "-n", "3")[0] == 0
    schema = GenerateRequest(text="hello world", constraint={"json_schema": '{"type": "object"}\n'})
    assert asked == [
        schema,
        schema,
        GenerateRequest(text="hello", constraint={"json_schema": '{"type": "object"}\n', "unbounded_whitespace": True}),
        GenerateRequest(text="hello", constraint={"regex": "[0-9]+"}, stop={"max_tokens": 3}),
    ]

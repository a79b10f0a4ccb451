"""Parameters at their limits, metadata, the size of requested output, and texts that no error may contain."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from imp_service.api.errors import FieldsInvalid
from imp_service.pb import inference_pb2 as pb
from imp_service.pb import types_pb2
from imp_service.rpc.imp_v1.requests.read_requests import read_generation
from imp_service.rpc.imp_v1.requests.reply_size import check_generation_size
from imp_service.serving.request_metadata import RequestMetadata, read_request_metadata
from imp_service.serving.served_model import ServedModel
from support.calls.failed_calls import failed
from support.calls.generations import in_one, streamed
from support.calls.status_checker import SECRET
from support.machine.process_numbers import ProcessNumbers
from support.run.patience import HANGS_AFTER
from support.run.quick_run import Repeats
from support.servers.served import Served, ask, serve
from support.servers.server_process import server_process

U64 = 2**64 - 1


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with serve("limits.max_message_bytes=64KiB") as server:
        yield server


def sampled(served: Served, **options: Any) -> list[int]:
    request = pb.GenerateRequest(text="Once upon", stop=types_pb2.StopOptions(max_tokens=12, ignore_eos=True))
    request.sampling.MergeFrom(types_pb2.SamplingOptions(**options))
    return streamed(served, request).output.ids


@pytest.mark.parametrize("temperature", [-0.0, 1e-38, 1e-20, 9e-5])
def test_p06_a_vanishing_temperature_is_greedy(served: Served, temperature: float) -> None:
    assert sampled(served, temperature=temperature, seed=3) == sampled(served, temperature=0.0)


def test_p07_p08_p10_edges_of_truncation(served: Served) -> None:
    greedy = sampled(served, temperature=0.0)
    assert sampled(served, temperature=1.5, seed=3, top_p=1e-38) == greedy
    assert sampled(served, temperature=1.5, seed=3, min_p=1.0, top_p=1.0) == greedy
    off = sampled(served, temperature=1.5, seed=3, top_k=0)
    assert [sampled(served, temperature=1.5, seed=3, top_k=k) for k in (2049, 2**32 - 1)] == [off, off]
    assert off != greedy


@pytest.mark.parametrize("seed", [0, 1, U64])
def test_p13_a_seed_is_echoed_and_makes_the_same_again(served: Served, seed: int) -> None:
    request = ask("Once upon", 12)
    request.sampling.temperature, request.sampling.seed = 1.5, seed
    first, second = streamed(served, request), in_one(served, request)
    assert (first.started.seed, second.started.seed) == (seed, seed)
    assert first.output.ids == second.output.ids


def test_p02_blanks_and_a_beginning_alone_are_prompts(served: Served) -> None:
    bos = served.state.model.tokenizer.bos_id
    assert bos is not None  # narrows the type
    for prompt in (" ", "\n\n", [bos]):
        assert len(streamed(served, ask(prompt, 2)).output.ids) == 2


def test_p15_candidates_as_many_as_there_may_be(served: Served) -> None:
    output = types_pb2.OutputOptions(top_logprobs=20)
    assert {len(each) for each in streamed(served, ask("a", 3, output=output)).output.candidates} == {20}


@pytest.mark.parametrize("run", [streamed, in_one])
def test_rpc_35_p16_scores_of_a_prompt_up_to_the_size_of_a_message(served: Served, run: Any) -> None:
    """An entry has its id, its log probability and 20 candidates of at most ten bytes each, with their framing."""
    before = served.stats().n_steps
    output = types_pb2.OutputOptions(prompt_logprobs=True, top_logprobs=20)
    call = failed(lambda: run(served, ask([5] * 400, 1, output=output)))
    member = "request." if run is in_one else ""
    assert (call.code, call.paths) == ("INVALID_ARGUMENT", [f"{member}output.prompt_logprobs"])
    assert served.stats().n_steps == before
    # The largest allowed prompt can be sent; one token more is refused.
    sizes = range(200, 400)
    most = next(n for n in sizes if is_refused(served, run, n + 1, output))
    found = run(served, ask(list(range(1000, 1000 + most)), 1, output=output))
    assert len(found.started.prompt.candidates) == most
    assert 0.7 * 64 * 1024 < found.started.ByteSize() <= 64 * 1024


@pytest.mark.long
def test_p16_scores_of_the_longest_prompts_sixty_four_at_once(tmp_path: Path, repeats: Repeats) -> None:
    """Each call gets all its scores, and their memory is freed: the third round uses no more than the second."""
    n_calls = repeats(64)
    output = types_pb2.OutputOptions(prompt_logprobs=True, top_logprobs=2)
    requests = [pb.GenerateUnaryRequest(request=ask(longest_prompt(i), 1, output=output)) for i in range(4)]
    resident = []
    with server_process(tmp_path, settings=("kv.bytes=64MiB",)) as server, server.inference() as stub:
        for _ in range(3):
            calls = [stub.GenerateUnary.future(requests[i % 4], timeout=HANGS_AFTER) for i in range(n_calls)]
            replies = [call.result().started for call in calls]
            assert {len(reply.prompt.candidates) for reply in replies} == {511}
            assert [reply.prompt == replies[i % 4].prompt for i, reply in enumerate(replies)] == [True] * n_calls
            resident.append(ProcessNumbers.of(server.pid).resident_bytes)
        assert server.terminate() == 0
    assert resident[2] <= resident[1] + 16 * 1024**2


def longest_prompt(i: int) -> list[int]:
    """Returns a prompt that fills the context except for one token."""
    return [300 + (17 + i) * n % 1500 for n in range(511)]


def is_refused(served: Served, run: Any, n: int, output: types_pb2.OutputOptions) -> bool:
    """Applies the rule directly. The test above has seen the server apply it."""
    model = served.state.model
    request = read_generation(ask([5], 1, output=output), served.state.settings)
    try:
        check_generation_size(request, n, ServedModel.of(model, served.state.settings), is_unary=run is in_one)
    except FieldsInvalid:
        return True
    return False


def test_rpc_35_a_whole_reply_is_judged_by_what_it_may_become(served: Served) -> None:
    output = types_pb2.OutputOptions(top_logprobs=20)
    call = failed(lambda: in_one(served, ask("a", None, output=output)))
    assert call.paths == ["request.output.top_logprobs"]
    # With a limit, or streamed, the reply can be sent.
    assert len(in_one(served, ask("a", 100, output=output)).output.ids) <= 100
    assert streamed(served, ask("a", 200, output=output)).output.reason in ("STOP", "MAX_TOKENS")


LINKS = ["https://example.com/a?b=c", "file:///etc/passwd", "/etc/passwd", "data:text/plain;base64,aGk="]


@pytest.mark.parametrize("text", LINKS)
def test_p42_links_and_paths_are_text(served: Served, text: str) -> None:
    ids = served.state.model.tokenizer.encode(text)
    assert streamed(served, ask(text, 1)).started.prompt_tokens == len(ids)
    stop = types_pb2.StopOptions(max_tokens=1, strings=[text])
    assert streamed(served, pb.GenerateRequest(text=text, stop=stop)).started.prompt_tokens == len(ids)


def secret_requests() -> Iterator[tuple[str, pb.GenerateRequest]]:
    """Yields requests that are refused, each with a secret in its texts."""
    said = types_pb2.ChatPrompt(messages=[types_pb2.ChatMessage(role="user", content=SECRET)])
    for name, fields in {
        "field": {"num_sequences": 9},
        "model": {"model": "nosuch"},
        "feature": {"sparse_prefill": types_pb2.SparsePrefillOptions(keep=0.5)},
        "stop string": {"stop": types_pb2.StopOptions(strings=[SECRET * 40])},
        "salt": {"cache": types_pb2.CacheOptions(salt=SECRET * 10)},
        "regex": {"constraint": types_pb2.Constraint(regex=f"({SECRET}")},
        "grammar": {"constraint": types_pb2.Constraint(gbnf=f'root ::= "{SECRET}')},
        "schema": {"constraint": types_pb2.Constraint(json_schema=f'{{"const": "{SECRET}"')},
        "context": {"token_ids": types_pb2.TokenIds(ids=[5] * 600)},
        "session": {"session_id": "nosuch"},
    }.items():
        prompt = {} if {"token_ids", "session_id"} & fields.keys() else {"text": SECRET}
        yield name, pb.GenerateRequest(**prompt, **fields)
    yield "chat", pb.GenerateRequest(chat=said, num_sequences=9)
    said.template_kwargs_json = f'{{"x": "{SECRET}"'
    yield "chat variables", pb.GenerateRequest(chat=said)
    said.template_kwargs_json, said.tools_json = "", f'["{SECRET}"'
    yield "tools", pb.GenerateRequest(chat=said)


@pytest.mark.few(6)
@pytest.mark.parametrize("name", [name for name, _ in secret_requests()])
@pytest.mark.parametrize("run", [streamed, in_one])
def test_rpc_14_p44_no_error_tells_what_was_asked(served: Served, run: Any, name: str) -> None:
    call = failed(lambda: run(served, dict(secret_requests())[name]))
    trailing = [value if isinstance(value, bytes) else value.encode() for value in call.trailing.values()]
    assert SECRET.encode() not in call.message.encode() + b"".join(trailing)


TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def test_rpc_13_what_a_call_says_is_read() -> None:
    pairs = [
        ("user-agent", "grpc"),
        ("imp-priority", "-100"),
        ("imp-tenant", "t" * 64),
        ("traceparent", TRACE),
        ("tracestate", "a=1"),
        ("tracestate", "b=2"),
        ("imp-resumes", "1"),
        ("imp-acknowledge", "1"),
        ("x-other-bin", b"\xff"),
    ]
    assert read_request_metadata(pairs) == RequestMetadata(
        -100, "t" * 64, TRACE, "a=1,b=2", resumes=True, acknowledge=True
    )
    assert read_request_metadata([("imp-priority", "100")]).priority == 100
    assert read_request_metadata([]) == RequestMetadata(0, "", "", "")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("imp-priority", "high"),
        ("imp-priority", ""),
        ("imp-priority", "101"),
        ("imp-priority", "-101"),
        ("imp-priority", "1.0"),
        ("imp-priority", "١"),
        ("imp-priority", "1" + "0" * 30),
        ("imp-tenant", ""),
        ("imp-tenant", "t" * 65),
        ("imp-tenant", "two words"),
        ("imp-tenant", "é"),
        ("imp-tenant", "line\n"),
        ("imp-resumes", ""),
        ("imp-resumes", "0"),
        ("imp-resumes", "true"),
        ("imp-acknowledge", "0"),
    ],
)
def test_rpc_13_p41_bad_values_are_refused(key: str, value: str) -> None:
    with pytest.raises(FieldsInvalid) as raised:
        read_request_metadata([(key, value)])
    assert [violation.path for violation in raised.value.violations] == [key]


def test_rpc_13_both_are_reported_at_once_and_neither_may_be_given_twice() -> None:
    with pytest.raises(FieldsInvalid) as raised:
        read_request_metadata([("imp-priority", "1"), ("imp-tenant", " "), ("imp-priority", "1")])
    assert [violation.path for violation in raised.value.violations] == ["imp-priority", "imp-tenant"]


@pytest.mark.parametrize(
    "header",
    [
        "garbage",
        TRACE.upper(),
        "ff" + TRACE[2:],
        TRACE + "-extra",
        TRACE[:-1],
        TRACE.replace("0af7651916cd43dd8448eb211c80319c", "0" * 32),
        TRACE.replace("b7ad6b7169203331", "0" * 16),
    ],
)
def test_rpc_13_p41_a_malformed_trace_is_ignored(header: str) -> None:
    assert read_request_metadata([("traceparent", header), ("tracestate", "a=1")]) == RequestMetadata()


@pytest.mark.long
def test_rpc_13_a_trace_of_a_later_version_is_read() -> None:
    later = "01" + TRACE[2:] + "-extra"
    assert read_request_metadata([("traceparent", later)]).traceparent == later
    assert read_request_metadata([("traceparent", TRACE), ("tracestate", "a" * 513)]).tracestate == ""

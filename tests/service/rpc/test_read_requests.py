"""Requests are read completely: each field changes the result, and an absent field stays absent."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

from imp_service.api.options import (
    CacheOptions,
    ChunkOptions,
    DryOptions,
    GenerationRequest,
    OutputOptions,
    SamplingOptions,
    SparsePrefillOptions,
    SpeculationOptions,
    StepOptions,
    StopOptions,
)
from imp_service.api.resume import Origin, Resume, ResumedSequence
from imp_service.config import read_settings
from imp_service.pb import inference_pb2 as pb
from imp_service.pb import types_pb2
from imp_service.rpc.imp_v1.model import write_sampling
from imp_service.rpc.imp_v1.requests.read_options import read_options
from imp_service.rpc.imp_v1.requests.read_requests import read_generation
from imp_service.text import ChatMessage, ChatPrompt, ConstraintKind, ConstraintSpec
from support.calls.filled_messages import filled
from support.calls.request_fields import APART, GENERATE, STEP, leaves, put, seconds

SETTINGS = read_settings(None, ["chunk.max_tokens=7", "chunk.max_delay=20ms", "limits.request_time=90s"]).settings
# Fields of the call itself: its id, its model and its session.
READ_ELSEWHERE = {"request_id", "model", "session_id"}


def read(request: pb.GenerateRequest) -> GenerationRequest:
    return read_generation(request, SETTINGS)


def read_chunks(options: types_pb2.OutputOptions) -> ChunkOptions:
    return read_options(ChunkOptions, options)


def read_step(options: pb.StepOptions) -> StepOptions:
    return read_options(StepOptions, options)


def read_sampling(options: types_pb2.SamplingOptions) -> SamplingOptions:
    return read_options(SamplingOptions, options)


def test_rpc_4_an_empty_request_is_read_as_defaults() -> None:
    expected = GenerationRequest("a", stop=StopOptions(time_limit=90.0))
    assert read(pb.GenerateRequest(text="a")) == expected
    assert read_chunks(types_pb2.OutputOptions()) == ChunkOptions()
    assert read_step(pb.StepOptions()) == StepOptions()


def test_rpc_4_every_field_is_read() -> None:
    """Each field changes the request that is read, for some valid value other than its default."""

    def whole(request: pb.GenerateRequest) -> tuple[Any, ...]:
        return read(request), read_chunks(request.output)

    base = whole(pb.GenerateRequest(text="a"))
    silent = set()
    for path, (ok, _) in GENERATE.items():
        changed = [pb.GenerateRequest(text="a") for _ in ok]
        for request, value in zip(changed, ok, strict=True):
            put(request, path, value)
        if all(whole(request) == base for request in changed):
            silent.add(path)
    # A server without a draft model refuses every value.
    refused = {"sparse_prefill.keep", "sparse_prefill.backbone"}
    # The table has only 0 for stop.min_tokens, since more depends on max_tokens; a test below reads it.
    assert silent == refused | {"request_id", "model", "stop.min_tokens"}
    assert {path for path, _ in leaves(pb.GenerateRequest.DESCRIPTOR)} - APART - READ_ELSEWHERE <= GENERATE.keys()


def test_rsm_1_what_came_of_a_stream_is_read() -> None:
    origin = pb.Origin(server="a", request="b", seed=3, created=4)
    sequences = [pb.ResumedSequence(token_ids=[5, 6]), pb.ResumedSequence(finished=True)]
    found = read(pb.GenerateRequest(text="a", resume=pb.Resume(origin=origin, sequences=sequences))).resume
    assert found == Resume(Origin("a", "b", 3, 4), [ResumedSequence([5, 6]), ResumedSequence([], finished=True)])


def test_spc_40_the_options_of_sparse_prefill_are_read() -> None:
    for policy, name in ((0, None), (1, "dense"), (2, "auto"), (3, "sparse")):
        for keep, backbone in ((None, None), (0.1, None), (0.3, 0.0), (1.0, 0.1), (None, 1.0)):
            options = types_pb2.SparsePrefillOptions(policy=policy, keep=keep, backbone=backbone)
            found = read(pb.GenerateRequest(text="a", sparse_prefill=options)).sparse_prefill
            assert found == SparsePrefillOptions(name, keep, backbone)


def test_rpc_4_every_field_of_a_step_is_read() -> None:
    for path, (ok, _) in STEP.items():
        values = []
        for value in ok:
            options = pb.StepOptions()
            put(options, path, value)
            values.append(read_step(options))
        assert any(value != StepOptions() for value in values), path


def test_rpc_4_every_field_of_a_sampler_is_read_and_written_back() -> None:
    """ModelInfo.default_sampling reports every field of SamplingOptions that a request may set."""
    whole = filled(types_pb2.SamplingOptions.DESCRIPTOR)
    assert isinstance(whole, types_pb2.SamplingOptions)  # narrows the type
    assert write_sampling(read_sampling(whole)) == whole
    for path, _ in leaves(types_pb2.SamplingOptions.DESCRIPTOR):
        without = types_pb2.SamplingOptions()
        without.CopyFrom(whole)
        *parents, name = path.split(".")
        parent = without.dry if parents else without
        parent.ClearField(name)
        assert without != whole, path
        assert write_sampling(read_sampling(without)) == without, path
    for message, options in ((types_pb2.SamplingOptions, SamplingOptions), (types_pb2.DryOptions, DryOptions)):
        assert set(message.DESCRIPTOR.fields_by_name) == {field.name for field in fields(options)}


def test_an_explicit_zero_is_no_absent_field() -> None:
    zeros = types_pb2.SamplingOptions(temperature=0, top_k=0, min_p=0, frequency_penalty=0, seed=0)
    found = read(pb.GenerateRequest(text="a", sampling=zeros)).sampling
    assert found == SamplingOptions(temperature=0.0, top_k=0, min_p=0.0, frequency_penalty=0.0, seed=0)
    nothing = read(pb.GenerateRequest(text="a", stop=types_pb2.StopOptions(max_tokens=0))).stop
    assert nothing == StopOptions(max_tokens=0, time_limit=90.0)
    assert read_step(pb.StepOptions(sample=False)).sample is False
    assert read(pb.GenerateRequest(text="a", output=types_pb2.OutputOptions(text=False))).output.text is False


def test_floats_are_what_their_callers_wrote() -> None:
    """A float has 32 bits. Widened to 64 it would differ from the Python API's number, and could miss its bounds."""
    sampling = types_pb2.SamplingOptions(
        temperature=0.7,
        repetition_penalty=0.01,
        logit_bias={3: -0.1},
        dry=types_pb2.DryOptions(base=1.75, multiplier=0.8),
    )
    expected = SamplingOptions(
        temperature=0.7, repetition_penalty=0.01, logit_bias={3: -0.1}, dry=DryOptions(base=1.75, multiplier=0.8)
    )
    assert read(pb.GenerateRequest(text="a", sampling=sampling)).sampling == expected


def test_a_whole_request_is_read() -> None:
    request = pb.GenerateRequest(
        token_ids=types_pb2.TokenIds(ids=[5, 6]),
        sampling=types_pb2.SamplingOptions(top_p=0.5, dry=types_pb2.DryOptions(window=9, breakers=["\n", "."])),
        stop=types_pb2.StopOptions(
            max_tokens=9,
            min_tokens=2,
            strings=["x"],
            token_ids=[7],
            ignore_eos=True,
            include_match=True,
            time_limit=seconds(1, 500_000_000),
        ),
        constraint=types_pb2.Constraint(regex="a+"),
        output=types_pb2.OutputOptions(
            logprobs=True,
            top_logprobs=4,
            prompt_logprobs=True,
            prompt_token_ids=True,
            special_tokens=True,
            parse=True,
            max_chunk_tokens=5,
            max_chunk_delay=seconds(0, 1_000_000),
        ),
        cache=types_pb2.CacheOptions(bypass_prefix=True, salt="s"),
        num_sequences=2,
        tool_choice="auto",
        parallel_tool_calls=False,
        max_reasoning_tokens=4,
        speculation=types_pb2.SpeculationOptions(enabled=False, max_draft_tokens=4, drafters=["ngram"]),
    )
    assert read(request) == GenerationRequest(
        [5, 6],
        SamplingOptions(top_p=0.5, dry=DryOptions(window=9, breakers=("\n", "."))),
        StopOptions(
            max_tokens=9,
            min_tokens=2,
            strings=("x",),
            token_ids=(7,),
            ignore_eos=True,
            include_match=True,
            time_limit=1.5,
        ),
        ConstraintSpec(ConstraintKind.REGEX, "a+"),
        OutputOptions(
            logprobs=True,
            top_logprobs=4,
            prompt_logprobs=True,
            prompt_token_ids=True,
            special_tokens=True,
            parse=True,
        ),
        CacheOptions(True, "s"),
        2,
        tool_choice="auto",
        parallel_tool_calls=False,
        max_reasoning_tokens=4,
        speculation=SpeculationOptions(False, 4, ("ngram",)),
    )
    assert read_chunks(request.output) == ChunkOptions(5, 0.001)


def test_prompts_and_constraints_of_every_kind() -> None:
    base = read(pb.GenerateRequest(text="a"))
    message = types_pb2.ChatMessage(role="r", content="c", name="n", tool_call_id="t", tool_calls_json="[]")
    message.reasoning_content = "why"
    chat = types_pb2.ChatPrompt(messages=[message], tools_json="[1]", template_kwargs_json="{}", documents_json="[]")
    expected = ChatPrompt((ChatMessage("r", "c", "n", "t", "[]", "why"),), "[1]", None, None, "{}", "[]")
    assert read(pb.GenerateRequest(chat=chat)) == replace(base, prompt=expected)
    chat.add_generation_prompt, chat.continue_final_message = False, True
    expected = replace(expected, add_generation_prompt=False, continue_final_message=True)
    assert read(pb.GenerateRequest(chat=chat)) == replace(base, prompt=expected)
    assert read(pb.GenerateRequest(session_id="s")) == replace(base, prompt="")
    for constraint, spec in (
        (types_pb2.Constraint(json_schema="{}"), ConstraintSpec(ConstraintKind.JSON_SCHEMA, "{}")),
        (types_pb2.Constraint(gbnf="g"), ConstraintSpec(ConstraintKind.GBNF, "g")),
        (types_pb2.Constraint(json_object=types_pb2.JsonObject()), ConstraintSpec(ConstraintKind.JSON_OBJECT)),
        (
            types_pb2.Constraint(choices=types_pb2.Choices(values=["a", "b"])),
            ConstraintSpec(ConstraintKind.CHOICES, choices=("a", "b")),
        ),
    ):
        assert read(pb.GenerateRequest(text="a", constraint=constraint)) == replace(base, constraint=spec)

"""What Generate and GenerateUnary answer: the same tokens on every path, counted, scored and reproducible."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import grpc
import pytest

from imp_service.pb import inference_pb2 as pb
from imp_service.pb import types_pb2
from support.failed_calls import FailedCall, failed
from support.generations import Result, in_one, streamed
from support.served import Served, ask, serve
from support.served_models import scripted

BOTH = pytest.mark.parametrize("run", [streamed, in_one])
TEXTS = ["Once upon a time", "The cat", "She said", "In the morning", "A boy named Tom"]
SAMPLERS = {
    "greedy": types_pb2.SamplingOptions(temperature=0.0),
    "seeded": types_pb2.SamplingOptions(temperature=0.8, seed=7),
    "penalised": types_pb2.SamplingOptions(temperature=1.2, seed=11, repetition_penalty=1.3, top_k=20, min_p=0.02),
}


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with serve() as server:
        yield server


@pytest.fixture(scope="module")
def counting() -> Iterator[Served]:
    with serve("limits.max_tokens=64", model=scripted(max_context=100, n_blocks=64)) as server:
        yield server


def request_of(text: str, sampler: str, n: int, **fields: object) -> pb.GenerateRequest:
    stop = types_pb2.StopOptions(max_tokens=n, ignore_eos=True)
    return pb.GenerateRequest(text=text, sampling=SAMPLERS[sampler], stop=stop, **fields)


def stepped(served: Served, request: pb.GenerateRequest, n: int) -> list[int]:
    """The same tokens by Prefill and DecodeStep."""
    first = served.inference.Prefill(pb.PrefillRequest(text=request.text, sampling=request.sampling))
    ids = [first.output.token_id]
    step = pb.DecodeStepRequest(steps=[pb.SessionStep(session_id=first.session_id)])
    while len(ids) < n:
        (result,) = served.inference.DecodeStep(step).results
        ids.append(result.output.token_id)
    served.inference.ReleaseSession(pb.ReleaseSessionRequest(session_id=first.session_id))
    return ids


@pytest.mark.long
@pytest.mark.parametrize("sampler", SAMPLERS)
def test_gen_4_d12_every_path_gives_the_same_tokens(served: Served, sampler: str) -> None:
    for text in TEXTS:
        request = request_of(text, sampler, 24)
        ids = streamed(served, request).output.ids
        assert len(ids) == 24
        assert ids == in_one(served, request).output.ids == stepped(served, request, 24)
    served.wait_for_rest()


def test_gen_6_rpc_3_a_whole_reply_is_the_stream_put_together(served: Served) -> None:
    request = request_of(TEXTS[0], "seeded", 20, request_id="both", num_sequences=3)
    request.output.MergeFrom(types_pb2.OutputOptions(logprobs=True, top_logprobs=3, prompt_logprobs=True))
    request.cache.bypass_prefix = True
    by_stream, whole = streamed(served, request), in_one(served, request)
    assert by_stream.outputs == whole.outputs and by_stream.usage == whole.usage
    for result in (by_stream, whole):
        assert [round(x, 5) for x in result.started.prompt.logprobs[1:]] == [
            round(x, 5) for x in by_stream.started.prompt.logprobs[1:]
        ]
        assert math.isnan(result.started.prompt.logprobs[0])
        assert (result.started.request_id, result.started.seed) == ("both", 7)
        assert result.usage.output_tokens == 60
        assert all(len(output.logprobs) == 20 and len(output.candidates) == 20 for output in result.outputs)
    ids = [output.ids for output in whole.outputs]
    assert ids[0] != ids[1] != ids[2] and ids[0] == streamed(served, request_of(TEXTS[0], "seeded", 20)).output.ids


@BOTH
@pytest.mark.parametrize("n", [1, 2, 16])
def test_gen_9_rpc_2_exactly_as_many_tokens_as_asked_for(counting: Served, run: object, n: int) -> None:
    stop = types_pb2.StopOptions(max_tokens=n, ignore_eos=True)
    result: Result = run(counting, ask([400], stop=stop))  # type: ignore[operator]
    assert result.output.ids == list(range(401, 401 + n))
    assert (result.output.reason, result.usage.output_tokens) == ("MAX_TOKENS", n)


@BOTH
def test_gen_11_p17_no_tokens_asked_for_evaluates_the_prompt(served: Served, run: object) -> None:
    request = ask(list(range(300, 340)), 0)
    request.output.MergeFrom(types_pb2.OutputOptions(prompt_logprobs=True, logprobs=True, top_logprobs=2))
    steps = served.stats().n_outputs
    result: Result = run(served, request)  # type: ignore[operator]
    assert (result.output.ids, result.output.reason, result.usage.output_tokens) == ([], "MAX_TOKENS", 0)
    assert len(result.started.prompt.logprobs) == len(result.started.prompt.candidates) == 40
    assert served.stats().n_outputs == steps
    request.output.Clear()
    assert run(served, request).started.cached_prompt_tokens >= 32  # type: ignore[operator]
    assert [each.reason for each in run(served, ask([300, 301], 0, num_sequences=2)).outputs] == ["MAX_TOKENS"] * 2  # type: ignore[operator]


EMPTY = [
    pb.GenerateRequest(),
    pb.GenerateRequest(text=""),
    pb.GenerateRequest(token_ids=types_pb2.TokenIds()),
    pb.GenerateRequest(chat=types_pb2.ChatPrompt()),
    pb.GenerateRequest(session_id=""),
]


@pytest.mark.parametrize("request_", EMPTY, ids=lambda request: request.WhichOneof("prompt") or "none")
def test_gen_12_a_prompt_without_tokens_is_refused_before_any_work(
    served: Served, request_: pb.GenerateRequest
) -> None:
    steps = served.stats().n_steps
    for answer in (lambda: list(served.inference.Generate(request_)), lambda: in_one(served, request_)):
        refusal = failed(answer)
        assert (refusal.code, refusal.reason) == ("INVALID_ARGUMENT", "FIELD_INVALID")
        assert refusal.paths
    assert served.stats().n_steps == steps


@BOTH
def test_gen_13_p18_a_prompt_beyond_the_context_is_refused_with_both_numbers(counting: Served, run: object) -> None:
    context, steps = 100, counting.stats().n_steps
    for n_prompt, n in ((context + 1, None), (context, 2), (context - 1, 3), (context - 62, 64)):
        request = ask([400] * n_prompt, n)
        refusal = failed(lambda request=request: run(counting, request))  # type: ignore[operator]
        assert (refusal.code, refusal.reason) == ("OUT_OF_RANGE", "CONTEXT_TOO_LONG")
        assert refusal.metadata == {"prompt_tokens": str(n_prompt), "max_context_tokens": str(context)}
    assert counting.stats().n_steps == steps
    for n in (1, 2, 64):  # as many as one without a limit yields
        result: Result = run(counting, ask([400] * (context - n + 1), n))  # type: ignore[operator]
        assert (len(result.output.ids), result.output.reason) == (n, "MAX_TOKENS")


@BOTH
def test_gen_14_p19_without_a_limit_the_context_is(run: object) -> None:
    with serve(model=scripted(max_context=100, n_blocks=64)) as server:
        for n_prompt, n in ((98, 3), (100, 1)):
            result: Result = run(server, ask([400] * n_prompt, None))  # type: ignore[operator]
            assert (len(result.output.ids), result.output.reason) == (n, "CONTEXT_FULL")


@BOTH
def test_gen_15_a_ceiling_is_named_where_it_is_exceeded_and_holds_where_nothing_is_asked(
    counting: Served, run: object
) -> None:
    refusal = failed(lambda: run(counting, ask([400], 65)))  # type: ignore[operator]
    path = "stop.max_tokens" if run is streamed else "request.stop.max_tokens"
    assert (refusal.reason, refusal.paths) == ("FIELD_INVALID", [path])
    assert "limits.max_tokens" in refusal.message
    result: Result = run(counting, ask([400], None))  # type: ignore[operator]
    assert (len(result.output.ids), result.output.reason) == (64, "MAX_TOKENS")


def test_rpc_3_usage_counts_every_token_of_a_long_prompt() -> None:
    prompt = [300 + i % 700 for i in range(6007)]
    with serve(model=scripted(max_context=6100, n_blocks=400)) as server:
        for run in (streamed, in_one):
            result = run(server, ask(prompt, 3, num_sequences=2))
            assert result.started.prompt_tokens == result.usage.prompt_tokens == 6007
            assert result.usage.output_tokens == 6 == sum(len(output.ids) for output in result.outputs)
        assert result.usage.cached_prompt_tokens == result.started.cached_prompt_tokens >= 6000


def test_det_17_d14_an_answer_names_what_makes_it_again(served: Served) -> None:
    free = pb.GenerateRequest(text=TEXTS[1], stop=types_pb2.StopOptions(max_tokens=24, ignore_eos=True))
    free.sampling.temperature = 1.5
    first, second = streamed(served, free), streamed(served, free)
    assert first.started.seed != second.started.seed and first.output.ids != second.output.ids
    for told in (first, second):
        free.sampling.seed = told.started.seed
        assert streamed(served, free).output.ids == told.output.ids == in_one(served, free).output.ids
    assert first.started.model == "imp demo"


def test_d13_nothing_is_prefilled_sparsely_unless_asked_for(served: Served) -> None:
    result = streamed(served, request_of(TEXTS[0], "greedy", 4))
    assert not result.started.HasField("sparse_prefill")
    for options in (
        {"sparse_prefill": types_pb2.SparsePrefillOptions(policy="SPARSE_PREFILL_POLICY_SPARSE")},
        {"speculation": types_pb2.SpeculationOptions(enabled=True)},
    ):
        refusal = failed(lambda options=options: streamed(served, request_of(TEXTS[0], "greedy", 4, **options)))
        assert (refusal.code, refusal.reason) == ("FAILED_PRECONDITION", "FEATURE_DISABLED")
    dense = types_pb2.SparsePrefillOptions(policy="SPARSE_PREFILL_POLICY_DENSE")
    assert streamed(served, request_of(TEXTS[0], "greedy", 4, sparse_prefill=dense)).output == result.output


FLOATS = ("temperature", "top_p", "min_p", "repetition_penalty", "frequency_penalty", "presence_penalty", "typical_p")
# (least, most) that each may be; NaN and infinities are outside every range.
RANGES = {
    "temperature": (0, 100),
    "top_p": (1e-38, 1),
    "min_p": (0, 1),
    "repetition_penalty": (0.01, 100),
    "frequency_penalty": (-2, 2),
    "presence_penalty": (-2, 2),
    "typical_p": (1e-38, 1),
}
DRY_RANGES = {"multiplier": (0, 100), "base": (1, 100)}
NUMBERS = [math.nan, math.inf, -math.inf, -0.0, 1e-38, 1e38]


def fits(value: float, low: float, high: float) -> bool:
    return low * (1 - 1e-6) <= value <= high


@pytest.mark.parametrize("value", NUMBERS, ids=str)
def test_smp_15_p05_every_number_has_a_range_and_nan_is_outside(served: Served, value: float) -> None:
    def outcome(request: pb.GenerateRequest) -> Sequence[str]:
        try:
            streamed(served, request)
        except grpc.RpcError as error:
            return FailedCall(error).paths
        return []

    for name, (low, high) in RANGES.items():
        request = ask("a", 2, sampling=types_pb2.SamplingOptions(**{name: value}))
        assert outcome(request) == ([] if fits(value, low, high) else [f"sampling.{name}"]), (name, value)
    for name, (low, high) in DRY_RANGES.items():
        request = ask("a", 2, sampling=types_pb2.SamplingOptions(dry=types_pb2.DryOptions(**{name: value})))
        assert outcome(request) == ([] if fits(value, low, high) else [f"sampling.dry.{name}"]), (name, value)
    biased = ask("a", 2, sampling=types_pb2.SamplingOptions(logit_bias={300: value}))
    assert outcome(biased) == ([] if fits(value, -100, 100) else ["sampling.logit_bias[300]"])

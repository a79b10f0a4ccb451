"""Rows of the embedding beyond the tokens: every method that takes ids refuses theirs before anything runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import imp_service
from imp_service import GenerationRequest, SamplingOptions, StepOptions, StopOptions
from imp_service.api.options import SessionStep
from imp_service.core import Error, InvalidArgument
from imp_service.pb import inference_pb2 as pb
from imp_service.pb import model_pb2_grpc, tokenizer_pb2, tokenizer_pb2_grpc, types_pb2
from imp_service.pb.model_pb2 import GetModelInfoRequest
from support.calls.session_calls import SessionCalls, refusal
from support.models.worded_models import write_worded
from support.servers.served import Served, serve
from support.servers.served_models import from_file

N = 260  # tokens: 256 bytes, one pair and three without text
ROWS = N + 10


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("padded") / "padded.gguf"
    write_worded(path, ["<|endoftext|>", "<|im_start|>", "<|im_end|>"], eos="<|im_end|>", padding=ROWS - N)
    return path


@pytest.fixture(scope="module")
def served(path: Path) -> Iterator[Served]:
    with serve(model=from_file(path)) as server:
        yield server


def _mask(*tokens: int) -> bytes:
    return sum(1 << token for token in tokens).to_bytes((ROWS + 7) // 8, "little")


def test_gen_29_the_model_says_how_many_ids_are_tokens(served: Served) -> None:
    info = model_pb2_grpc.ModelServiceStub(served.channel()).GetModelInfo(GetModelInfoRequest())
    assert (info.vocab_size, info.num_tokens) == (ROWS, N)


@pytest.mark.parametrize("token", [N, ROWS - 1, ROWS])
def test_gen_29_no_call_takes_an_id_that_is_no_token(served: Served, token: int) -> None:
    calls = SessionCalls(served)
    held = calls.prefill([7, 11])
    name = held.session_id
    biased = types_pb2.SamplingOptions(logit_bias={token: 1.0})
    ids = types_pb2.TokenIds(ids=[7, token])
    tokenizer = tokenizer_pb2_grpc.TokenizerServiceStub(served.channel())
    before = served.stats().n_steps
    cases: list[tuple[Callable[[], object], str]] = [
        (lambda: calls.prefill([7, token]), "token_ids.ids[1]"),
        (lambda: calls.prefill([7], sampling=biased), f"sampling.logit_bias[{token}]"),
        (lambda: calls.step(name, [token]), "steps[0].token_ids[0]"),
        (lambda: calls.step(name, sampling=biased), f"steps[0].sampling.logit_bias[{token}]"),
        (lambda: list(served.inference.Generate(pb.GenerateRequest(token_ids=ids))), "token_ids.ids[1]"),
        (
            lambda: list(served.inference.Generate(pb.GenerateRequest(text="a", sampling=biased))),
            f"sampling.logit_bias[{token}]",
        ),
        (
            lambda: list(served.inference.Generate(pb.GenerateRequest(text="a", stop={"token_ids": [token]}))),
            "stop.token_ids[0]",
        ),
        (lambda: tokenizer.Detokenize(tokenizer_pb2.DetokenizeRequest(token_ids=[ids])), "token_ids[0].ids[1]"),
    ]
    if token < ROWS:
        masked = pb.StepOptions(allowed_token_mask=_mask(7, token))
        cases += [
            (lambda: calls.prefill([7], step=masked), "step.allowed_token_mask"),
            (lambda: calls.step(name, step=masked), "steps[0].step.allowed_token_mask"),
        ]
    for call, field in cases:
        found = refusal(call)
        assert (found.reason, found.paths) == ("FIELD_INVALID", [field])
    (answer,) = served.inference.DecodeStream(
        iter([pb.DecodeStreamRequest(step={"steps": [{"session_id": name, "token_ids": [token]}]})])
    )
    assert answer.error.reason == "FIELD_INVALID"
    assert served.stats().n_steps == before, "nothing ran"
    assert calls.step(name, position=2).position == 3
    last = calls.step(name, step=pb.StepOptions(allowed_token_mask=_mask(N - 1)))
    assert last.token_id == N - 1, "the last token is one"


@pytest.mark.parametrize("token", [N, ROWS - 1, ROWS, -1])
def test_gen_29_the_library_refuses_it_too_and_only_its_session(path: Path, token: int) -> None:
    with imp_service.load(path, "device.threads=1") as model:
        biased = SamplingOptions(logit_bias={token: 1.0})
        for call in (
            lambda: model.generate([token]),
            lambda: model.generate(GenerationRequest([7], sampling=biased)),
            lambda: model.generate(GenerationRequest([7], stop=StopOptions(token_ids=(token,)))),
            lambda: model.open(biased),
            lambda: model.open().prefill([token]),
        ):
            with pytest.raises(InvalidArgument):
                call()
        sessions = [model.open(SamplingOptions(temperature=0.0)) for _ in range(3)]
        for session in sessions:
            session.prefill([7, 11])
        expected = model.open(SamplingOptions(temperature=0.0))
        expected.prefill([7, 11])
        alone = expected.decode_step([9])
        wrong: list[SessionStep] = [SessionStep(sessions[1], [token])]
        if 0 <= token < ROWS:
            wrong.append(SessionStep(sessions[1], [9], StepOptions(allowed_token_mask=_mask(token))))
        for step in wrong:
            first, refused, last = model.decode_step(
                [SessionStep(sessions[0], [9]), step, SessionStep(sessions[2], [9])]
            )
            assert isinstance(refused, Error) and refused.reason == "FIELD_INVALID"
            assert not isinstance(first, Error) and not isinstance(last, Error)
            assert first.token_id == last.token_id == alone.token_id
            for session in (sessions[0], sessions[2]):
                session.truncate(2)
            assert sessions[1].position == 2


@pytest.mark.long
def test_gen_29_padding_is_never_drawn(path: Path) -> None:
    with imp_service.load(path, "device.threads=1") as model:
        drawn = set()
        for seed in range(20):
            with model.open(SamplingOptions(temperature=100.0, seed=seed)) as session:
                drawn.add(session.prefill([7]).token_id)
        assert len(drawn) > 10 and all(token is not None and token < N for token in drawn)

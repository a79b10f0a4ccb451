"""Long computations run in workers: scores, masks and the model's description are not made on the event loop."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from imp_service.generation import held_scores
from imp_service.generation.held_scores import PART_TOKENS
from imp_service.pb import inference_pb2 as pb
from imp_service.pb import model_pb2, model_pb2_grpc, types_pb2
from imp_service.rpc.imp_v1 import model
from imp_service.text.constraints.state import ConstraintState
from support.calls.generations import in_one, streamed
from support.calls.session_calls import SessionCalls
from support.servers.served import Served, ask

PROMPT = [300 + i % 70 for i in range(5 * PART_TOKENS + 1)]
SCORED = types_pb2.OutputOptions(prompt_logprobs=True, top_logprobs=20)
STEP = pb.StepOptions(scores=True, top_logprobs=20)


@pytest.fixture
def threads_of(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any, str], list[str]]:
    """Returns a function that records which threads call a given function from now on."""

    def watched(owner: Any, name: str) -> list[str]:
        threads: list[str] = []
        whole = getattr(owner, name)

        def noting(*arguments: Any) -> Any:
            threads.append(threading.current_thread().name)
            return whole(*arguments)

        monkeypatch.setattr(owner, name, noting)
        return threads

    return watched


def are_workers(threads: list[str]) -> bool:
    return bool(threads) and all(name.startswith("imp-text") for name in threads)


def by_generate(served: Served) -> types_pb2.TokenScores:
    return streamed(served, ask(PROMPT, 1, output=SCORED)).started.prompt


def by_unary(served: Served) -> types_pb2.TokenScores:
    return in_one(served, ask(PROMPT, 1, output=SCORED)).started.prompt


def by_prefill(served: Served) -> types_pb2.TokenScores:
    return SessionCalls(served).prefill(PROMPT, step=STEP).output.scores


def by_step(served: Served) -> types_pb2.TokenScores:
    calls = SessionCalls(served)
    session = calls.prefill(PROMPT[:1]).session_id
    step = pb.SessionStep(session_id=session, token_ids=PROMPT[1:], step=STEP)
    return calls.steps(step).results[0].output.scores


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("scores", "n"),
    # A step scores only its own tokens.
    [(by_generate, len(PROMPT)), (by_unary, len(PROMPT)), (by_prefill, len(PROMPT)), (by_step, len(PROMPT) - 1)],
)
def test_rpc_30_workers_read_the_scores_of_a_prompt_a_part_at_a_time(
    served: Served,
    threads_of: Callable[[Any, str], list[str]],
    scores: Callable[[Served], types_pb2.TokenScores],
    n: int,
) -> None:
    threads = threads_of(held_scores, "candidates_of")
    found = scores(served)
    assert [len(each) for each in (found.logprobs, found.candidates)] == [n, n]
    assert are_workers(threads) and len(threads) == n


@pytest.mark.long
@pytest.mark.parametrize("run", [streamed, in_one])
def test_rpc_30_workers_compute_the_masks_of_a_constraint(
    served: Served, threads_of: Callable[[Any, str], list[str]], run: Any
) -> None:
    masks, taken = threads_of(ConstraintState, "_compute_mask"), threads_of(ConstraintState, "accept")
    constraint = types_pb2.Constraint(regex="[a-c ]{40}")
    found = run(served, ask("Once", 60, constraint=constraint))
    assert len(found.output.text) == 40
    # The first mask is computed where the constraint is compiled.
    assert are_workers([name for name in masks if not name.startswith("imp-constraint")])
    assert are_workers(taken)


@pytest.mark.long
def test_rpc_30_a_worker_describes_the_model(served: Served, threads_of: Callable[[Any, str], list[str]]) -> None:
    threads = threads_of(model, "write_model_info")
    model_pb2_grpc.ModelServiceStub(served.channel()).GetModelInfo(model_pb2.GetModelInfoRequest())
    assert are_workers(threads)

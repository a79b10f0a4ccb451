"""Generate, GenerateUnary, Prefill with DecodeStep, and DecodeStream give the same output to 16 concurrent clients."""

import itertools
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from imp_service import LanguageModel
from support.calls.wire_ways import WAYS
from support.calls.workload import Outcome, random_requests, run
from support.servers.served import Served, serve

N_CLIENTS = 16
N_REQUESTS = 16


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    # Small chunks of prefill mix prompts and steps of different requests in every step of the engine.
    with serve("kv.bytes=32MiB", "scheduler.prefill_chunk=16") as server:
        yield server


@pytest.mark.long
def test_gen_1_det_1_all_ways_give_one_output_under_sixteen_clients(served: Served, library: LanguageModel) -> None:
    requests = random_requests(N_REQUESTS, 20, library._runtime.tokenizer)
    expected = [run(library, request) for request in requests]
    jobs = [(way, i) for i, way in itertools.product(range(N_REQUESTS), WAYS)]
    stubs = [served.inference for _ in range(4)]

    def outcome(job: int) -> Outcome:
        way, i = jobs[job]
        return WAYS[way](stubs[job % len(stubs)], library, requests[i])

    with ThreadPoolExecutor(N_CLIENTS) as pool, served.canary():
        found = list(pool.map(outcome, range(len(jobs))))
    wrong = [(way, i) for (way, i), outcome in zip(jobs, found, strict=True) if outcome != expected[i]]
    assert wrong == []
    assert len({outcome.token_ids for outcome in expected}) > N_REQUESTS // 2
    served.wait_for_rest()


@pytest.mark.long
def test_hon_1_a_way_with_another_seed_is_noticed(served: Served, library: LanguageModel) -> None:
    request = next(
        r for r in random_requests(N_REQUESTS, 20, library._runtime.tokenizer) if len(run(library, r).token_ids) > 8
    )
    from dataclasses import replace

    hot = replace(request, sampling=replace(request.sampling, temperature=1.0, seed=3))
    other = replace(hot, sampling=replace(hot.sampling, seed=4))
    assert WAYS["generate"](served.inference, library, hot) != run(library, other)

"""The same tokens under any load: random requests alone, and together in every configuration of an engine."""

import random
from dataclasses import replace

import pytest

import imp_service
from imp_service import GenerationRequest, LanguageModel, _testing
from support.calls.workload import Outcome, random_requests, run, run_by_steps, run_together
from support.models.fixed_depth import NO_DRAFTERS, fixed_depth
from support.run.release_run import IS_RELEASE

N_REQUESTS = 200
N_GENERIC = 60
SEED = 20261121
# 16 blocks of 16 tokens, 32 KiB each; a sequence of full context takes 8 of them.
SMALL_POOL = ("limits.max_context=128", "kv.bytes=524288")
VARIANTS = {
    "batch_of_16": (),
    "chunk_1": ("scheduler.prefill_chunk=1",),
    "chunk_7": ("scheduler.prefill_chunk=7",),
    "chunk_64": ("scheduler.prefill_chunk=64",),
    "chunk_512": ("scheduler.prefill_chunk=512",),
    "no_prefix_cache": ("kv.prefix_cache=false",),
    "guesses": ('speculation.drafters=["ngram"]', "speculation.max_draft_tokens=3"),
    "draft_model": ('speculation.drafters=["model"]', "speculation.max_draft_tokens=3"),
    "1_thread": ("device.threads=1",),
    "2_threads": ("device.threads=2",),
    "3_threads": ("device.threads=3",),
    "generic": ("device.isa=generic",),
    "avx2": ("device.isa=avx2",),
    "avx2vnni": ("device.isa=avx2vnni",),
    "avx512": ("device.isa=avx512",),
}
# A quick run takes one variant of each kind: batch, chunk, cache, threads, instruction set.
QUICK = ("batch_of_16", "chunk_7", "no_prefix_cache", "guesses", "3_threads")

# The variants with each type of the cache.
OF_CACHE = ("chunk_7", "guesses", "3_threads", "avx2")
N_OF_CACHE = 60


@pytest.fixture(scope="module")
def alone() -> tuple[list, list[Outcome]]:
    """The requests and the outcome of each alone, on one thread, without the prefix cache and guesses."""
    settings = ("device.threads=1", "kv.prefix_cache=false", NO_DRAFTERS, "limits.max_context=128")
    with imp_service.load(None, *settings) as model:
        requests = random_requests(N_REQUESTS, SEED, model._runtime.tokenizer)
        outcomes = [run(model, request) for request in requests]
    assert len({outcome.token_ids for outcome in outcomes}) > N_REQUESTS // 2
    assert {outcome.reason for outcome in outcomes} == {"stop", "max_tokens"}
    return requests, outcomes


def load(*settings: str) -> LanguageModel:
    isa = next((text.partition("=")[2] for text in settings if text.startswith("device.isa")), None)
    if isa is not None and isa not in _testing.isas_here():
        pytest.skip(f"this CPU lacks {isa}")
    drafters = [] if any(text.startswith("speculation.drafters") for text in settings) else [NO_DRAFTERS]
    with fixed_depth():
        return imp_service.load(None, *{"limits.max_context=128": 0, **dict.fromkeys([*drafters, *settings])})


@pytest.mark.sweep(quick=lambda variant: variant in QUICK)
@pytest.mark.parametrize("variant", VARIANTS)
def test_det_1_det_2_det_3_det_4_det_5_det_9_sch_1_same_tokens_in_any_company(
    variant: str, alone: tuple[list, list[Outcome]]
) -> None:
    requests, expected = alone
    order = list(range(len(requests)))
    random.Random(variant).shuffle(order)
    if variant == "generic":  # ten times slower than the others
        del order[N_GENERIC:]
    with load(*VARIANTS[variant]) as model:
        found = run_together(model, [requests[i] for i in order], n_at_once=16)
        stats = model._runtime.client.engine.stats()
    assert [i for i, outcome in zip(order, found, strict=True) if outcome != expected[i]] == []
    # The load was real: steps had several sequences, the cache had hits, sequences were preempted.
    assert stats.n_steps < stats.n_decode_rows + stats.n_prefill_rows
    assert (stats.n_cached_tokens > 0) == (variant != "no_prefix_cache")
    assert (stats.drafts.n_accepted > 0) == (variant in {"guesses", "draft_model"})
    assert stats.n_preemptions == 0


def test_det_5_sch_4_same_tokens_after_preemption(alone: tuple[list, list[Outcome]]) -> None:
    def grown(request: GenerationRequest) -> GenerationRequest:
        stop = replace(request.stop, max_tokens=80, ignore_eos=True, strings=(), token_ids=())
        return replace(request, prompt=request.prompt[:16], stop=stop)

    requests = [grown(request) for request in alone[0] if request.constraint is None][:64]
    with load("device.threads=1", "kv.prefix_cache=false") as model:
        expected = [run(model, request) for request in requests]
    with load(*SMALL_POOL) as model:
        found = run_together(model, requests, n_at_once=16)
        stats = model._runtime.client.engine.stats()
    assert [i for i, outcome in enumerate(found) if outcome != expected[i]] == []
    assert stats.n_preemptions > len(requests) // 8
    assert stats.blocks_live == 0


@pytest.mark.sweep(quick=lambda kv_dtype: kv_dtype == "rot8/rot4")
@pytest.mark.parametrize(
    "kv_dtype", ["q8_0", "rot8", "rot4", "rot8/rot4", "bf16/q8_0", "rot3", "rot2", "rot8 but for two layers"]
)
def test_kvq_8_same_tokens_with_each_type_of_cache(kv_dtype: str, alone: tuple[list, list[Outcome]]) -> None:
    requests, plain = alone[0][:N_OF_CACHE], alone[1][:N_OF_CACHE]
    dtype, _, has_layers = kv_dtype.partition(" ")
    layers = ('model.overrides.kv_layers."1-2"=f16/rot2',) if has_layers else ()
    cache = (f"kv.dtype={dtype}", *layers, "kv.trial=false")
    with load("device.threads=1", "kv.prefix_cache=false", *cache) as model:
        expected = [run(model, request) for request in requests]
    assert expected != plain, "the type is in force"
    for variant in OF_CACHE:
        with load(*VARIANTS[variant], *cache) as model:
            found = run_together(model, requests, n_at_once=16)
            stats = model._runtime.client.engine.stats()
        assert [i for i, outcome in enumerate(found) if outcome != expected[i]] == [], variant
        assert stats.n_steps < stats.n_decode_rows + stats.n_prefill_rows


@pytest.mark.long
def test_gen_4_det_9_a_loop_written_by_hand_gives_the_same_tokens(alone: tuple[list, list[Outcome]]) -> None:
    requests, expected = alone
    with load() as model:
        found = [run_by_steps(model, request) for request in requests]
    assert [i for i, outcome in enumerate(found) if outcome != expected[i]] == []


@pytest.mark.long
def test_hon_1_another_seed_is_seen_to_differ(alone: tuple[list, list[Outcome]]) -> None:
    requests, expected = alone
    sampled = [i for i, r in enumerate(requests) if r.sampling.seed is not None and len(expected[i].token_ids) > 8]
    with load() as model:
        changed = [
            run(model, replace(requests[i], sampling=replace(requests[i].sampling, seed=requests[i].sampling.seed ^ 1)))
            for i in sampled
        ]
    assert sum(outcome != expected[i] for i, outcome in zip(sampled, changed, strict=True)) > len(sampled) // 2


@pytest.mark.skipif(not IS_RELEASE, reason="the release run; IMP_RELEASE=1 runs it")
def test_det_9_many_seeds() -> None:
    for seed in range(50):
        with load("device.threads=1", "kv.prefix_cache=false") as model:
            requests = random_requests(N_REQUESTS, seed, model._runtime.tokenizer)
            expected = [run(model, request) for request in requests]
        with load(*SMALL_POOL) as model:
            assert run_together(model, requests, 16) == expected

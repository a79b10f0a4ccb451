"""Two models with different overrides in one process never influence each other."""

import random
from dataclasses import replace
from itertools import pairwise

import pytest

import imp_service
from imp_service import GenerationRequest, LanguageModel, SamplingOptions, StopOptions
from support.calls.workload import run

VARIANTS = (
    (),
    ("model.overrides.rope_theta=50.0",),
    ("model.overrides.kv_dtype=f32", "model.overrides.gemm.q8_0=reference"),
    ("kv.dtype=rot8/rot4",),
    ("kv.dtype=rot8/rot4", "model.overrides.kv_layers.0=rot8/rot3"),
)


def requests(model: LanguageModel) -> list[GenerationRequest]:
    prompt = model._runtime.tokenizer.encode("It is a truth universally acknowledged, that a man")
    return [
        GenerationRequest(prompt[:n], SamplingOptions(temperature=t, seed=n), StopOptions(max_tokens=24))
        for n in (4, 9, 11)
        for t in (0.0, 1.0)
    ]


@pytest.mark.long
def test_det_8_det_18_mod_8_kvq_11_models_in_one_process_do_not_touch_each_other() -> None:
    alone = []
    for settings in VARIANTS:
        with imp_service.load(None, *settings) as model:
            alone.append([run(model, request) for request in requests(model)])
    models = [imp_service.load(None, *settings) for settings in VARIANTS]
    jobs = [(m, r) for m in range(len(VARIANTS)) for r in range(len(alone[0]))]
    random.Random(3).shuffle(jobs)
    # All generations start before any is read, so their steps interleave.
    running = [(m, r, models[m].generate(requests(models[m])[r])) for m, r in jobs]
    texts = {(m, r): "".join(reply.text for reply in generation) for m, r, generation in running}
    kernels = [{name for weight in model._runtime.core.weights for name in weight["kernels"]} for model in models]
    for model in models:
        model.close()
    assert {job: alone[job[0]][job[1]].text for job in jobs} == texts
    # The overrides have an effect: they change the models' outputs or kernels.
    assert all(a != b for a, b in pairwise(alone))
    assert kernels[2] == {"reference"} != kernels[0]


def test_kvq_11_pfx_5_models_of_different_types_share_no_prefix() -> None:
    types = ("rot8/rot4", "rot8/rot3", "rot8/rot4")
    models = [imp_service.load(None, f"kv.dtype={each}") for each in types]
    request = replace(requests(models[0])[0], prompt=list(range(300, 350)))
    cached = [next(iter(model.generate(request))).cached_prompt_tokens for _ in range(2) for model in models]
    outcomes = [run(model, request) for model in models]
    for model in models:
        model.close()
    assert cached == [0, 0, 0, 48, 48, 48]
    assert outcomes[0] == outcomes[2]


@pytest.mark.long
def test_mod_21_models_come_and_go() -> None:
    outcomes = []
    for _ in range(20):
        with imp_service.load() as model:
            outcomes.append(run(model, requests(model)[3]))
    assert len(set(outcomes)) == 1

"""imp kernels: the list, and why one of them runs."""

from __future__ import annotations

import json


def test_the_list_is_in_order_of_preference_and_ends_with_the_one_that_takes_all(call):
    status, out, _ = call("kernels", "--json")
    kernels = json.loads(out)["kernels"]
    assert status == 0
    assert kernels[-1] | {"layout": ""} == {
        "name": "reference", "weight": "any", "layout": "", "reduction": "f32_sequential", "validated": True,
    }  # fmt: skip
    names = [kernel["name"] for kernel in kernels]
    assert names.index("q8_0_avx512vnni") < names.index("q8_0_avx2")
    status, text, _ = call("kernels")
    assert [line.split()[0] for line in text.splitlines()[1:]] == names


def test_explain_lists_every_candidate_with_its_reason_and_who_decided(call):
    status, out, _ = call("kernels", "--explain", "q8_0", "4096x1024", "--isa", "avx2", "--json")
    document = json.loads(out)
    assert (status, document["isa"], document["weight"]) == (0, "avx2", {"type": "q8_0", "n": 4096, "k": 1024})
    verdicts = {candidate["kernel"]: candidate for candidate in document["candidates"]}
    assert verdicts["q8_0_avx2"]["accepted"] is True
    assert "by order" in verdicts["q8_0_avx2"]["reason"]
    assert verdicts["q8_0_avx512vnni"]["accepted"] is False
    assert all(candidate["reason"] for candidate in document["candidates"])
    listed = json.loads(call("kernels", "--json")[1])["kernels"]
    fitting = [kernel["name"] for kernel in listed if kernel["weight"] in ("q8_0", "any")]
    assert list(verdicts) == fitting
    status, text, _ = call("kernels", "--explain", "q8_0", "4096x1024", "--isa", "avx2")
    assert [line.split()[:2] for line in text.splitlines()[1:]] == [
        [name, "accepted" if candidate["accepted"] else "rejected"] for name, candidate in verdicts.items()
    ]


def test_gemm_16_where_kernels_have_only_been_emulated_none_runs_and_each_is_listed(call):
    question = ("kernels", "--device", "cuda_emulated", "--explain", "q8_0", "64x512")
    status, out, err = call(*question)
    lines = [line.split(maxsplit=2) for line in out.splitlines()[1:]]
    assert status == 0
    assert {verdict for _, verdict, _ in lines} == {"rejected"}
    assert ["q8_0_dp4a", "rejected", "has not run on its hardware; only an override may choose it"] in lines
    assert "--set model.overrides.least_maturity=emulated takes them" in err
    status, out, err = call(*question, "--set", "model.overrides.least_maturity=emulated")
    assert (status, err) == (0, "")
    assert "accepted" in out


def test_questions_that_have_no_answer(call):
    cases = {
        ("--explain", "q8_0", "4096"): ("USAGE", "expected rows x elements"),
        ("--explain", "q8_9", "4096x1024"): ("FIELD_INVALID", "expected one of f32"),
        ("--explain", "q4_k", "4096x128"): ("FIELD_INVALID", "expected a multiple of 256"),
        ("--explain", "q8_0", "64x64", "--isa", "sse"): ("FIELD_INVALID", "avx512vnni"),
        ("--isa", "avx2"): ("USAGE", "--explain"),
    }
    for words, (reason, part) in cases.items():
        status, out, err = call("kernels", *words)
        assert (status, out) == (64, ""), words
        assert err.splitlines()[-1].startswith(f"imp: error: {reason}: ")
        assert part in err
        assert err.startswith("usage: imp kernels ") == (reason == "USAGE")

"""imp kernels: the list of kernels, and why one of them runs."""

from __future__ import annotations

import json

import pytest

from support.machine.command_line import error_lines

ON_GPU = ("--set", "device.kind=cuda_emulated")
AT_GPU = ("--device", "cuda_emulated")
KIND_OF = {True: "cuda_emulated", False: "cpu"}  # key: whether the kernels of this machine's GPU are validated
OF_Q8_0 = ("--explain", "q8_0", "64x64")


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
    assert "first in the order of preference" in verdicts["q8_0_avx2"]["reason"]
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
    assert [
        "q8_0_dp4a",
        "rejected",
        "has not run on its hardware; only model.overrides can select it: by name, or with unvalidated_kernels",
    ] in lines
    assert "--set model.overrides.unvalidated_kernels=true allows them" in err
    status, out, err = call(*question, "--set", "model.overrides.unvalidated_kernels=true")
    assert (status, err) == (0, "")
    assert "accepted" in out


def test_questions_that_have_no_answer(call):
    cases = {
        ("--explain", "q8_0", "4096"): ("USAGE", "expected rows x elements"),
        ("--explain", "q8_9", "4096x1024"): ("FIELD_INVALID", "expected one of f32"),
        ("--explain", "q4_k", "4096x128"): ("FIELD_INVALID", "expected a multiple of 256"),
        ("--explain", "q8_0", "64x64", "--isa", "sse"): ("FIELD_INVALID", " --isa: 'sse', expected one of"),
        ("--isa", "avx2"): ("USAGE", "--explain"),
        ("--gpu", "h200"): ("USAGE", "--explain"),
        ("--device", "gpu"): ("FIELD_INVALID", " --device: 'gpu', expected one of: cpu, cuda"),
        ("--explain", "q8_0", "64x64", "--gpu", "h200"): ("USAGE", "has no effect on cpu, expected --device cuda"),
        ("--explain", "q8_0", "64x64", "--device", "cuda_emulated", "--isa", "avx2"): (
            "USAGE",
            "expected --device cpu",
        ),
        ("--explain", "q8_0", "64x64", "--isa", "avx2", *ON_GPU): ("USAGE", "has no effect on cuda_emulated"),
        ("--explain", "q8_0", "64x64", *ON_GPU, "--gpu", "h300"): (
            "FIELD_INVALID",
            " --gpu: 'h300', expected one of: auto",
        ),
    }
    for words, (reason, part) in cases.items():
        status, out, err = call("kernels", *words)
        assert (status, out) == (64, ""), words
        assert error_lines(err)[-1].startswith(f"imp: error: {reason}: ")
        assert part in err
        assert err.endswith("\nimp kernels --help lists what it takes\n") == (reason == "USAGE")


@pytest.mark.parametrize("question", [(), OF_Q8_0, (*OF_Q8_0, "--isa", "avx2")])
@pytest.mark.parametrize("unknown", ["foo=bar", "device.isa=bad", "device.tunin=x"])
def test_p4_settings_are_read_whatever_is_asked(call, question: tuple[str, ...], unknown: str):
    status, out, err = call("kernels", *question, "--set", unknown)
    assert (status, out) == (78, "")
    assert err.startswith("imp: error: CONFIG_INVALID: --set ")


def test_p4_where_the_settings_leave_the_device_to_imp_it_is_that_of_a_start(call, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("imp_service.core.device.CUDA", "cuda_emulated")
    expected = {validated: call("kernels", "--device", device) for validated, device in KIND_OF.items()}
    for validated, told in expected.items():
        monkeypatch.setattr("imp_service._core.find_gpu", lambda of=validated: ("a GPU", "", of))
        assert call("kernels", "--set", "device.kind=auto") == told


def test_p4_the_settings_name_the_device_and_the_option_goes_before_them(call):
    gpu, cpu = (json.loads(call("kernels", "--device", device, "--json")[1]) for device in ("cuda_emulated", "cpu"))
    assert gpu["kernels"][0]["name"] != cpu["kernels"][0]["name"]
    assert json.loads(call("kernels", *ON_GPU, "--json")[1]) == gpu
    assert json.loads(call("kernels", *ON_GPU, "--device", "cpu", "--json")[1]) == cpu
    question = ("--explain", "q8_0", "64x512")
    assert call("kernels", *ON_GPU, *question) == call("kernels", "--device", "cuda_emulated", *question)


def test_gemm_4_an_override_of_the_type_decides_or_is_refused(call):
    def explain(override: str, *words: str) -> tuple[int, str, str]:
        return call("kernels", "--explain", "q4_k", "64x512", "--set", f"model.overrides.gemm.{override}", *words)

    status, out, err = explain("q4_k=reference")
    assert (status, err) == (0, "")
    assert out.splitlines()[-1].split(maxsplit=2) == [
        "reference", "accepted", "by override gemm.q4_k, any number of rows",
    ]  # fmt: skip
    assert explain("q8_0=reference") == call("kernels", "--explain", "q4_k", "64x512")
    for override, device, why in (
        ("q4_k=nonsense", "cpu", " = nonsense: no such kernel; known: q4_k_amxint8, "),
        ("q4_k=q4_k_dp4a", "cpu", " = q4_k_dp4a: is a kernel of cuda, and the device is cpu"),
        ("q4_k=q4_k_generic", "cuda_emulated", " = q4_k_generic: is a kernel of cpu, and the device is cuda_emulated"),
        (
            "q4_k=q4_k_dp4a",
            "cuda_emulated",
            " = q4_k_dp4a: takes up to 4 rows, and those of its layout (tile16) that",
        ),
    ):
        status, out, err = explain(override, "--device", device)
        assert (status, out) == (78, "")
        assert f"gemm.q4_k{why}" in err
        assert err.startswith("imp: error: OVERRIDE_INVALID: ")
    status, out, err = explain('"blk.*"=nonsense')
    assert (status, out) == call("kernels", "--explain", "q4_k", "64x512")[:2]
    assert err == "imp: warning: model.overrides.gemm: patterns of tensors are ignored here: blk.*\n"


def test_gemm_4_a_model_s_kernel_of_another_device_is_refused_as_such(call):
    status, _, err = call("inspect", "--set", "model.overrides.gemm.q8_0=q8_0_dp4a")
    assert status == 78
    assert "OVERRIDE_INVALID: gemm.q8_0 = q8_0_dp4a: is a kernel of cuda, and the device is cpu" in err


def test_lif_3_without_cuda_it_is_said_why_and_where_to_read_on(call):
    from imp_service.core.device import find_gpu

    if find_gpu().refusal != "this imp was built without CUDA":
        pytest.skip("built with CUDA")
    status, out, err = call("kernels", "--device", "cuda")
    assert (status, out) == (69, "")
    assert err == (
        "imp: error: DEVICE_MISSING: device cuda: this imp was built without CUDA, as there was no nvcc when it was "
        "installed or IMP_CUDA was off (docs/cuda.md: Building), expected cpu\n"
    )

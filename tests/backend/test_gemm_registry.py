"""The choice of kernels for a weight: the real registry with the CPU's list, and with lists and devices as data."""

from __future__ import annotations

import itertools
import platform
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from imp_service import _core
from imp_service import _testing as core
from support.kernels.weights import WEIGHT_TYPES, block_of

ROOT = Path(__file__).parents[2]
OLD_CPU = {"cpu": "avx2"}
CLIENT_CPU = {"cpu": "avx2vnni"}
NEW_CPU = {"cpu": "avx512bf16"}
# Processors by family and model.
ZEN_3 = {"cpu": "avx2", "amd": (0x19, 0x01)}
ZEN_4 = {"cpu": "avx512bf16", "amd": (0x19, 0x11)}
ZEN_5 = {"cpu": "avx2vnni+avx512bf16", "amd": (0x1A, 0x02)}
CASCADE_LAKE = {"cpu": "avx512vnni", "intel": (0x06, 0x55)}
EMERALD_RAPIDS = {"cpu": "avx2vnni+avx512bf16+amxint8", "intel": (0x06, 0xCF)}
SKYLAKE = {"cpu": "avx512", "intel": (0x06, 0x55)}
ALL_CPUS: list[dict[str, Any]] = [{"cpu": isa} for isa in core.known_isas()]
# The last words of the names of kernels that are compiled only for other processor families.
X86 = ("avx2", "avx2vnni", "avx512", "avx512vnni", "avx512bf16", "amxint8")
UNVALIDATED = "has not run on its hardware; only model.overrides can select it: by name, or with unvalidated_kernels"
UNASKED = "(unvalidated_kernels = true allows them)"
ELSEWHERE = ("neondot", "neoni8mm") if platform.machine() in ("x86_64", "AMD64") else X86
LISTS = ["kernels.h", "quantized/types.h"]
SHAPES = [(1, 1), (37, 3), (4096, 16)]  # n, blocks of k


def kernel(name: str, **changes: Any) -> dict[str, Any]:
    row = {"name": name, "weight": "q8_0", "layout": "panel16", "reduction": "q8_block32", "max_m": None}
    return {**row, "needs": "", "isa": "generic", "validated": True, **changes}


REFERENCE = kernel("reference", weight="any", layout="file", reduction="f32_sequential")


def chosen(rows: Sequence[dict[str, Any]], caps: dict[str, Any] | None = None, **how: Any) -> list[str]:
    plan = core.gemm_plan(caps or {}, how.pop("weight", "q8_0"), 64, how.pop("k", 64), kernels=list(rows), **how)
    return [row["name"] for row in plan["kernels"]]


def test_gemm_1_names_are_unique_and_lead_to_their_code() -> None:
    """Kernel x is the function run_x, in a file named after its instruction set."""
    names = [row["name"] for row in core.gemm_kernels()]
    print(f"{len(names)} CPU kernels")
    assert len(set(names)) == len(names)
    assert names[-1] == "reference"
    kernels = ROOT / "csrc/backend/cpu/gemm"
    of_list = r"^#define IMP_(\w+)_TYPES\(use, isa\) \\\n((?:  .*\n)+)"
    lists = re.findall(of_list, "".join((kernels / name).read_text() for name in LISTS), re.MULTILINE)
    types = {kind: re.findall(r"use\((\w+), \w+, isa\)", lines) for kind, lines in lists}
    types["QUANTIZED"] += types["GROUP_SCALED"]
    shaped = r"^  use\((\w+), \w+, isa, (\d+), (\d+)\)"
    shapes = re.findall(shaped, (kernels / "quantized/types.h").read_text(), re.MULTILINE)
    found = {}
    for path in kernels.rglob("*.cpp"):
        text = path.read_text()
        defined = re.findall(r"^void run_(\w+)\(const GemmArgs&", text, re.MULTILINE)
        for kind, isa in re.findall(r"^IMP_(\w+)_TYPES\(IMP_DEFINE_(?:FLOAT_|TILED_)?RUN, (\w+)\)", text, re.MULTILINE):
            defined += [f"{dtype}_{isa}" for dtype in types[kind]]
        for isa in re.findall(r"^IMP_TILE_SHAPES\(IMP_DEFINE_SHAPED_RUN, (\w+)\)", text, re.MULTILINE):
            defined += [f"{dtype}_{isa}_{rows}x{panels}" for dtype, rows, panels in shapes]
        for name in defined:
            if not name.endswith(ELSEWHERE):
                assert found.setdefault(name, path) == path
    assert sorted(found) == sorted(names)
    without_shapes = {name: re.sub(r"_\d+x\d+$", "", name) for name in names}
    assert all(found[name].stem.rpartition("_")[2] == without_shapes[name].rpartition("_")[2] for name in names)


def test_gemm_1_gemm_2_reference_refuses_nothing_and_every_refusal_is_words() -> None:
    n_refusals = 0
    for row, caps, weight, (n, blocks) in itertools.product(core.gemm_kernels(), ALL_CPUS, WEIGHT_TYPES, SHAPES):
        reason = core.gemm_refusal(row["name"], caps, weight, n, blocks * block_of(weight)[0])
        if row["name"] == "reference":
            assert reason is None
        elif reason is not None:
            n_refusals += 1
            assert len(reason.split()) > 1
    assert n_refusals > 100


def test_gemm_2_the_first_that_does_not_refuse_is_chosen() -> None:
    first, second = kernel("first", isa="avx512"), kernel("second")
    assert chosen([first, second, REFERENCE], NEW_CPU) == ["first"]
    assert chosen([first, second, REFERENCE], OLD_CPU) == ["second"]
    assert chosen([second, first, REFERENCE], NEW_CPU) == ["second"]
    assert chosen([kernel("other", weight="f16"), REFERENCE]) == ["reference"]


def test_gemm_2_a_plan_adds_kernels_of_its_layout_and_reduction_for_more_rows() -> None:
    rows = [
        kernel("one", max_m=1),
        kernel("odd_layout", layout="file", max_m=4),
        kernel("odd_sums", reduction="f32_sequential", max_m=4),
        kernel("few", max_m=8, needs="k % 64"),
        kernel("fewer", max_m=4),
        kernel("many"),
        kernel("late", max_m=16),
        REFERENCE,
    ]
    assert chosen(rows) == ["one", "few", "many"]
    assert chosen(rows, k=32) == ["one", "fewer", "many"]
    plans = {m: core.gemm_kernel_for({}, "q8_0", 64, 64, m, kernels=rows) for m in (1, 2, 8, 9, 100000)}
    assert plans == {1: "one", 2: "few", 8: "few", 9: "many", 100000: "many"}


def test_gemm_11_gemm_12_a_layout_without_a_kernel_for_every_m_is_not_taken() -> None:
    rows = [kernel("one", max_m=1), kernel("few", max_m=8), kernel("other_sums", reduction="f32_sequential"), REFERENCE]
    assert chosen(rows) == ["other_sums"]
    reasons = {line[0]: line[2] for line in core.gemm_explain({}, "q8_0", 64, 64, kernels=rows)}
    why = "and no kernel of its layout (panel16) and reduction (q8_block32) takes more"
    assert reasons["one"] == f"takes up to 1 rows, others up to 8, {why}"
    assert reasons["few"] == f"takes up to 8 rows, {why}"


def test_gemm_16_rows_that_only_emulated_kernels_complete_are_said_to_wait_for_those() -> None:
    rows = [kernel("one", max_m=1), {**kernel("many"), "validated": False}, kernel("other", layout="file"), REFERENCE]
    family = "of its layout (panel16) and reduction (q8_block32)"
    why = f"takes up to 1 rows, and those {family} that take more have not run on their hardware {UNASKED}: many"
    reasons = {line[0]: line[2] for line in core.gemm_explain({}, "q8_0", 64, 64, kernels=rows)}
    assert (chosen(rows), reasons["one"]) == (["other"], why)
    assert refused([("q8_0", "one")], {}, kernels=rows) == f"gemm.q8_0 = one: {why}"
    rows.insert(1, kernel("few", max_m=8))
    reasons = {line[0]: line[2] for line in core.gemm_explain({}, "q8_0", 64, 64, kernels=rows)}
    assert reasons["one"] == why.replace("1 rows, ", "1 rows, others up to 8, ")
    del rows[1]
    # If the kernel for more rows refuses the weight, none takes more.
    rows[1]["needs"] = "sm_90"
    reasons = {line[0]: line[2] for line in core.gemm_explain({}, "q8_0", 64, 64, kernels=rows)}
    assert reasons["one"] == f"takes up to 1 rows, and no kernel {family} takes more"


def test_gemm_3_a_plan_is_the_same_in_every_process() -> None:
    script = (
        "from imp_service import _testing as core\n"
        "for name in core.known_isas():\n"
        "    for w in ('f32', 'q8_0', 'q4_k'): print(core.gemm_plan({'cpu': name}, w, 64, 256)['description'])\n"
    )
    runs = [
        subprocess.run(
            [sys.executable, "-c", script],
            capture_output=True,
            text=True,
            check=True,
            env={"PYTHONPATH": ":".join(sys.path), "PYTHONHASHSEED": seed},
        ).stdout
        for seed in ("1", "2")
    ]
    assert runs[0] == runs[1]
    assert runs[0].splitlines()[:6] == [
        "panel16 f32_sequential: f32_generic",
        "panel16 q8_block32: q8_0_generic",
        "panel16 q8_block32: q4_k_generic",
        "panel16 f32_sequential: f32_avx2",
        "panel16 q8_block32: q8_0_avx2",
        "panel16 q8_block32: q4_k_avx2",
    ]


@pytest.mark.parametrize(
    ("tensor", "overrides", "expected"),
    [
        ("blk.0.attn_q.weight", [("q8_0", "reference")], "reference"),
        ("blk.0.attn_q.weight", [("q4_k", "reference")], "q8_0_avx512vnni"),
        ("blk.0.attn_q.weight", [("blk.*.attn_?.weight", "dequant_avx2")], "dequant_avx2"),
        ("blk.0.attn_q.weight", [("blk.*.ffn_*", "dequant_avx2")], "q8_0_avx512vnni"),
        ("blk.0.attn_q.weight", [("*", "q8_0_avx2"), ("q8_0", "reference")], "q8_0_avx2"),
        ("", [("*", "q8_0_avx2"), ("q8_0", "reference")], "reference"),
        ("output.weight", [("output", "reference")], "q8_0_avx512vnni"),
        ("output.weight", [("**out*weight*", "reference")], "reference"),
    ],
)
def test_gemm_4_overrides_by_type_and_by_tensor(tensor: str, overrides: list[tuple[str, str]], expected: str) -> None:
    plan = core.gemm_plan(NEW_CPU, "q8_0", 64, 64, tensor=tensor, overrides=overrides)
    assert [row["name"] for row in plan["kernels"]] == [expected]


def refused(overrides: list[tuple[str, str]], caps: dict[str, Any] = NEW_CPU, **how: Any) -> str:
    with pytest.raises(_core.ModelError) as caught:
        core.gemm_plan(caps, "q8_0", 64, 64, tensor="w", overrides=overrides, **how)
    assert caught.value.reason == "OVERRIDE_INVALID"
    return caught.value.message


def test_gemm_4_an_unknown_kernel_lists_those_of_the_weight_type() -> None:
    names = ", ".join(row["name"] for row in core.gemm_kernels() if row["weight"] in ("q4_k", "any"))
    message = refused([("q4_k", "q8_0_avx3")])  # even where it would not apply to this weight
    assert message == f"gemm.q4_k = q8_0_avx3: no such kernel; known: {names}"
    assert len(message) < 200


def test_gemm_4_for_a_glob_whose_weights_may_be_of_any_type_the_list_is_short() -> None:
    every = [row["name"] for row in core.gemm_kernels()]
    message = refused([("blk.*", "q8_0_avx3")])
    few = ", ".join(every[:5])
    assert message.endswith(f"known: {few}, ..., reference ({len(every)} in all; imp kernels lists them)")
    rows = [kernel("small"), REFERENCE]
    assert refused([("w", "x")], kernels=rows) == "gemm.w = x: no such kernel; known: small, reference"


def test_gemm_4_a_refusal_is_an_error_with_the_reason() -> None:
    assert refused([("w", "f16_avx2")]) == "gemm.w = f16_avx2: multiplies f16, and the weight is q8_0"
    assert (
        refused([("q8_0", "q8_0_avx512vnni")], OLD_CPU)
        == "gemm.q8_0 = q8_0_avx512vnni: needs AVX-512 (F, BW, VL, DQ) and AVX-512 VNNI"
    )
    assert "and names reference" in refused([("w", "reference"), ("*", "q8_0_avx2")])
    rows = [kernel("small", max_m=4), REFERENCE]
    assert "takes up to 4 rows" in refused([("q8_0", "small")], kernels=rows)


def test_gemm_4_a_glob_that_matches_no_tensor_is_an_error() -> None:
    tensors = ["blk.0.attn_q.weight", "output.weight"]
    core.gemm_require_matches([("q4_k", "reference"), ("blk.*", "reference"), ("output.weight", "x")], tensors)
    for pattern in ("blk.*.ffn_up.weight", "q9_0", "output", ""):
        with pytest.raises(_core.ModelError, match="matches no tensor") as caught:
            core.gemm_require_matches([(pattern, "reference")], tensors)
        assert "q4_k" in caught.value.message


def test_gemm_5_explain_names_every_candidate_with_its_reason() -> None:
    assert core.gemm_explain(NEW_CPU, "q4_k", 4096, 4096) == [
        ("q4_k_amxint8", False, "needs AMX int8"),
        ("q4_k_avx512vnni", True, "first in the order of preference, any number of rows"),
        ("q4_k_avx512vnni_6x2", False, "an earlier kernel takes these rows"),
        ("q4_k_avx2vnni", False, "needs AVX-VNNI"),
        ("q4_k_avx2", False, "an earlier kernel takes these rows"),
        ("dequant_avx512", False, "another layout or reduction than q4_k_avx512vnni"),
        ("dequant_avx2", False, "another layout or reduction than q4_k_avx512vnni"),
        ("q4_k_generic", False, "an earlier kernel takes these rows"),
        ("reference", False, "another layout or reduction than q4_k_avx512vnni"),
    ]
    assert core.gemm_explain(OLD_CPU, "q8_0", 1024, 1024) == [
        ("q8_0_amxint8", False, "needs AVX-512 (F, BW, VL, DQ) and AVX-512 VNNI and AMX int8"),
        ("q8_0_avx512vnni", False, "needs AVX-512 (F, BW, VL, DQ) and AVX-512 VNNI"),
        ("q8_0_avx512vnni_6x2", False, "needs AVX-512 (F, BW, VL, DQ) and AVX-512 VNNI"),
        ("q8_0_avx2vnni", False, "needs AVX-VNNI"),
        ("q8_0_avx2", True, "first in the order of preference, any number of rows"),
        ("dequant_avx512", False, "needs AVX-512 (F, BW, VL, DQ)"),
        ("dequant_avx2", False, "another layout or reduction than q8_0_avx2"),
        ("q8_0_generic", False, "an earlier kernel takes these rows"),
        ("reference", False, "another layout or reduction than q8_0_avx2"),
    ]
    assert core.gemm_explain(NEW_CPU, "bf16", 96, 80, tensor="w", overrides=[("w", "bf16_avx2")]) == [
        ("bf16_avx512bf16", False, "an override names another"),
        ("bf16_avx512", False, "an override names another"),
        ("bf16_avx2", True, "by override gemm.w, any number of rows"),
        ("dequant_avx512", False, "another layout or reduction than bf16_avx2"),
        ("dequant_avx2", False, "another layout or reduction than bf16_avx2"),
        ("bf16_generic", False, "an earlier kernel takes these rows"),
        ("reference", False, "another layout or reduction than bf16_avx2"),
    ]


def test_gemm_6_every_weight_has_a_kernel_for_every_m_and_every_kernel_is_reached() -> None:
    reached = set()
    cpus = [*ALL_CPUS, ZEN_4, ZEN_5, CASCADE_LAKE]
    for caps, weight, (n, blocks), m in itertools.product(cpus, WEIGHT_TYPES, SHAPES, [1, 2, 7, 8, 33, 513]):
        reached.add(core.gemm_kernel_for(caps, weight, n, blocks * block_of(weight)[0], m))
    for weight in WEIGHT_TYPES:
        # Other shapes of tiles, which a tuning may choose.
        names = core.gemm_interchangeable(NEW_CPU, weight, 64, block_of(weight)[0], 513)
        reached |= {name for name in names if re.search(r"\d+x\d+$", name)}
        plan = core.gemm_plan({"cpu": "amxint8"}, weight, 64, block_of(weight)[0], unvalidated=True)
        reached |= {row["name"] for row in plan["kernels"]}
    assert {row["name"] for row in core.gemm_kernels()} == reached


def test_gemm_18_a_processor_has_the_shapes_of_tiles_that_are_fastest_on_it() -> None:
    processors = {
        "Zen 3": ZEN_3, "Zen 4": ZEN_4, "Zen 5": ZEN_5, "Cascade Lake": CASCADE_LAKE, "Skylake": SKYLAKE,
        "another": NEW_CPU,
    }  # fmt: skip
    plans = {}
    for name, caps in processors.items():
        plans[name] = {
            weight: core.gemm_plan(caps, weight, 64, 256)["description"].removeprefix("panel16 q8_block32: ")
            for weight in ("q8_0", "q4_0", "q4_k")
        }
    q8_0, q4_0, q4_k = (f"{weight}_avx512vnni" for weight in ("q8_0", "q4_0", "q4_k"))
    wide_q8_0, wide_q4_0 = (f"{name} up to 4 rows, {name}_6x2" for name in (q8_0, q4_0))
    assert plans == {
        "Zen 3": {"q8_0": "q8_0_avx2", "q4_0": "q4_0_avx2", "q4_k": "q4_k_avx2"},
        "Zen 4": {"q8_0": q8_0, "q4_0": wide_q4_0, "q4_k": q4_k},
        "Zen 5": {"q8_0": wide_q8_0, "q4_0": wide_q4_0, "q4_k": q4_k},
        "Cascade Lake": {"q8_0": q8_0, "q4_0": wide_q4_0, "q4_k": q4_k},
        "Skylake": {"q8_0": "q8_0_avx2", "q4_0": "q4_0_avx2", "q4_k": "q4_k_avx2"},
        "another": {"q8_0": q8_0, "q4_0": q4_0, "q4_k": q4_k},
    }


def test_gemm_18_a_processor_with_slow_products_of_pairs_multiplies_floats_instead() -> None:
    """The plan of many rows and the inner loops; few rows wait for memory either way."""
    plans = {"bf16_avx512bf16": ZEN_4, "bf16_avx512bf16 up to 4 rows, bf16_avx512": EMERALD_RAPIDS}
    for plan, caps in plans.items():
        assert core.gemm_plan(caps, "bf16", 64, 256)["description"] == f"panel16 bf16_pairs: {plan}"
    assert [core.fastest_ops(caps) for caps in (ZEN_4, EMERALD_RAPIDS)] == ["avx512bf16", "avx512vnni"]
    hidden = {**EMERALD_RAPIDS, "cpu": "avx512vnni"}
    assert core.gemm_plan(hidden, "bf16", 64, 256)["description"] == "panel16 bf16_pairs: bf16_avx512"
    assert core.fastest_ops(hidden) == "avx512vnni"


def test_gemm_18_intel_processors_prefetch_weights_for_few_rows_too() -> None:
    processors = {"Zen 4": ZEN_4, "Zen 5": ZEN_5, "Cascade Lake": CASCADE_LAKE, "another": NEW_CPU}
    rows = {name: core.gemm_prefetching_rows(caps) for name, caps in processors.items()}
    assert rows == {"Zen 4": 3, "Zen 5": 3, "Cascade Lake": 1, "another": 3}


def test_gemm_18_an_explanation_names_the_processor() -> None:
    reasons = {name: why for name, _, why in core.gemm_explain(ZEN_5, "q8_0", 64, 64)}
    assert reasons["q8_0_avx512vnni"] == "the fastest on AMD Zen 5, up to 4 rows"
    assert reasons["q8_0_avx512vnni_6x2"] == "the fastest on AMD Zen 5, any number of rows"


def test_gemm_18_a_tuning_and_an_override_come_before_the_processor() -> None:
    tuning = [("q8_0", "q8_0_avx512vnni", None)]
    assert core.gemm_kernel_for(ZEN_5, "q8_0", 64, 64, 8) == "q8_0_avx512vnni_6x2"
    assert core.gemm_kernel_for(ZEN_5, "q8_0", 64, 64, 8, tuning=tuning) == "q8_0_avx512vnni"
    assert core.gemm_kernel_for(ZEN_5, "q4_0", 64, 64, 8, tuning=tuning) == "q4_0_avx512vnni_6x2"
    plan = core.gemm_plan(ZEN_5, "q8_0", 64, 64, overrides=[("q8_0", "q8_0_avx2")])
    assert plan["description"] == "panel16 q8_block32: q8_0_avx2"


def test_gemm_18_a_processor_without_the_instructions_of_its_shapes_has_the_usual_kernels() -> None:
    # A virtual machine may hide them.
    assert core.gemm_kernel_for({**ZEN_5, "cpu": "avx2"}, "q8_0", 64, 64, 8) == "q8_0_avx2"


# A possible list for GPUs: a new GPU's kernel, an older GPU's, and one that takes anything.
GPU_LIST = [
    kernel("q8_0_decode_sm90", max_m=8, needs="sm_90"),
    kernel("q8_0_prefill_sm90", needs="sm_90"),
    kernel("q8_0_sm80", layout="file", reduction="f32_sequential", needs="sm_80"),
    REFERENCE,
]
H100 = {"compute_capability": 90}
A100 = {"compute_capability": 80}


def test_gemm_8_plans_for_two_cpus_and_two_gpus() -> None:
    plan = [core.gemm_plan(caps, "q8_0", 64, 64)["description"] for caps in (OLD_CPU, NEW_CPU)]
    assert plan == ["panel16 q8_block32: q8_0_avx2", "panel16 q8_block32: q8_0_avx512vnni"]
    plan = [core.gemm_plan(caps, "q8_0", 64, 64, kernels=GPU_LIST)["description"] for caps in (H100, A100)]
    assert plan == [
        "panel16 q8_block32: q8_0_decode_sm90 up to 8 rows, q8_0_prefill_sm90",
        "file f32_sequential: q8_0_sm80",
    ]


@pytest.mark.parametrize("demoted", [row["name"] for row in GPU_LIST[:-1]])
def test_gemm_16_what_has_not_run_on_hardware_needs_an_override(demoted: str) -> None:
    rows = [{**row, "validated": row["name"] != demoted} for row in GPU_LIST]
    assert demoted not in chosen(rows, H100)
    reasons = {line[0]: line[2] for line in core.gemm_explain(H100, "q8_0", 64, 64, kernels=rows)}
    assert (
        reasons[demoted]
        == "has not run on its hardware; only model.overrides can select it: by name, or with unvalidated_kernels"
    )
    if demoted != "q8_0_decode_sm90":
        assert chosen(rows, H100, overrides=[("q8_0", demoted)]) == [demoted]
        plan = core.gemm_plan(H100, "q8_0", 64, 64, overrides=[("q8_0", demoted)], kernels=rows)
        assert plan["description"].endswith(f"{demoted} (has not run on its hardware)")
    # Without demoted rows, the list's order selects them.
    assert demoted in chosen(GPU_LIST, H100 if "90" in demoted else A100)


def test_gemm_16_an_explanation_lists_what_has_not_run_on_hardware_where_nothing_has() -> None:
    rows = [{**row, "validated": False} for row in GPU_LIST]
    assert core.gemm_explain(A100, "q8_0", 64, 64, kernels=rows) == [
        ("q8_0_decode_sm90", False, "needs compute capability 9.0"),
        ("q8_0_prefill_sm90", False, "needs compute capability 9.0"),
        ("q8_0_sm80", False, UNVALIDATED),
        ("reference", False, UNVALIDATED),
    ]
    with pytest.raises(_core.ModelError) as caught:
        core.gemm_plan(A100, "q8_0", 64, 64, kernels=rows)
    assert caught.value.reason == "MODEL_UNSUPPORTED"


SMALL, LARGE = kernel("small"), kernel("large")
TUNED = [("q8_0", "large", 4), ("q8_0", "small", 64), ("q8_0", "large", None)]


def test_a_tuning_chooses_by_rows_among_kernels_of_equal_bits() -> None:
    rows = [SMALL, LARGE, REFERENCE]
    at = {m: core.gemm_kernel_for({}, "q8_0", 64, 64, m, kernels=rows, tuning=TUNED) for m in (1, 4, 5, 64, 65, 9999)}
    assert at == {1: "large", 4: "large", 5: "small", 64: "small", 65: "large", 9999: "large"}
    # The control: without the tuning, and for another type, the list's order decides.
    assert core.gemm_kernel_for({}, "q8_0", 64, 64, 1, kernels=rows) == "small"
    assert core.gemm_kernel_for({}, "f32", 64, 64, 1, kernels=rows, tuning=TUNED) == "reference"
    plan = core.gemm_plan({}, "q8_0", 64, 64, kernels=rows, tuning=TUNED)
    assert plan["description"] == "panel16 q8_block32: large up to 4 rows, small up to 64 rows, large"
    assert [line[:2] for line in core.gemm_explain({}, "q8_0", 64, 64, kernels=rows, tuning=TUNED)] == [
        ("small", True),
        ("large", True),
        ("reference", False),
    ]


def test_an_explanation_says_what_was_tuned() -> None:
    rows = [SMALL, LARGE, kernel("other"), REFERENCE]
    reasons = {name: why for name, _, why in core.gemm_explain({}, "q8_0", 64, 64, kernels=rows, tuning=TUNED)}
    assert reasons["small"] == "tuned, up to 64 rows"
    assert reasons["large"] == "tuned, up to 4 rows, any number of rows"
    assert reasons["other"] == "the tuning prefers others for every number of rows"


@pytest.mark.parametrize(
    "other",
    [
        kernel("large", reduction="f32_sequential"),
        kernel("large", layout="file"),
        kernel("large", isa="avx512"),
        kernel("large", validated=False),
        kernel("large", max_m=4),
    ],
)
def test_a_tuning_never_changes_bits_nor_takes_what_does_not_run(other: dict[str, Any]) -> None:
    assert chosen([SMALL, other, REFERENCE], tuning=TUNED)[0] == "small"
    assert "large" not in core.gemm_interchangeable({}, "q8_0", 64, 64, 64, kernels=[SMALL, other, REFERENCE])


def test_an_override_outranks_a_tuning() -> None:
    rows = [SMALL, LARGE, kernel("other"), REFERENCE]
    assert chosen(rows, overrides=[("q8_0", "other")], tuning=TUNED) == ["other"]


def test_what_may_stand_for_what_is_in_order() -> None:
    rows = [kernel("first", isa="avx512"), kernel("second", max_m=8), kernel("third"), REFERENCE]
    assert core.gemm_interchangeable({}, "q8_0", 64, 64, 8, kernels=rows) == ["second", "third"]
    assert core.gemm_interchangeable({"cpu": "avx512"}, "q8_0", 64, 64, 9, kernels=rows) == ["first", "third"]


@pytest.mark.parametrize(
    ("tuning", "message"),
    [
        ([("q8_0", "fast", None)], "tuning: q8_0: no kernel fast"),
        ([("q4_k", "small", None)], "tuning: q4_k: small multiplies q8_0"),
        ([("q8_0", "small", 4)], "tuning: q8_0: the row limits do not ascend, or the last one is not None"),
        ([("q8_0", "small", 8), ("q8_0", "large", 4), ("q8_0", "small", None)], "row limits do not ascend"),
        ([("q8_0", "small", None), ("q8_0", "large", None)], "row limits do not ascend"),
        ([("q8_0", "small", 0), ("q8_0", "large", None)], "row limits do not ascend"),
    ],
)
def test_a_tuning_that_cannot_be_is_refused(tuning: list[tuple[str, str, int | None]], message: str) -> None:
    with pytest.raises(_core.InvalidArgument) as caught:
        chosen([SMALL, LARGE, REFERENCE], tuning=tuning)
    assert message in caught.value.message

"""Memory is divided by a pure function before any of it is allocated, and the cache has a type for the weights."""

from __future__ import annotations

import dataclasses
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from imp_service import _core
from imp_service import _testing as core
from imp_service.config import read_settings
from imp_service.core.load import load_weights
from support.models.forward_runs import load
from support.models.tiny_models import tiny
from support.run.patience import HANGS_AFTER
from support.servers.served_models import tiny_with_text

MIB = 1 << 20


@dataclasses.dataclass(frozen=True)
class Request:
    budget_bytes: int = 1000 * MIB
    weights_bytes: int = 300 * MIB
    scratch_bytes: int = 50 * MIB
    logits_bytes: int = 20 * MIB
    reserve_bytes: int = 30 * MIB
    kv_block_bytes: int = MIB // 4
    kv_block_tokens: int = 16
    kv_bytes: int | None = None
    model_context: int = 1 << 20
    max_context: int | None = None
    is_for_models: bool = False
    state_slot_bytes: int = 0
    max_running: int = 1
    state_snapshot_bytes: int | None = None
    projector_bytes: int = 0
    media_bytes: int = 0

    def plan(self) -> Any:
        return core.plan_memory(**dataclasses.asdict(self))


def test_kv_5_half_of_what_weights_and_scratch_leave() -> None:
    plan = Request().plan()
    assert plan["n_blocks"] == (1000 - 300 - 50) * MIB // 2 // (MIB // 4)
    assert plan["max_context"] == plan["n_blocks"] * 16
    assert plan["items"] == {
        "weights": 300 * MIB, "kv": plan["n_blocks"] * MIB // 4, "scratch": 50 * MIB, "logits": 20 * MIB,
        "reserve": 30 * MIB,
    }  # fmt: skip


def test_kv_5_a_vision_tower_and_what_it_encodes_are_items_beside_the_cache() -> None:
    plan = Request(projector_bytes=90 * MIB, media_bytes=70 * MIB).plan()
    assert list(plan["items"]) == ["weights", "kv", "projector", "media", "scratch", "logits", "reserve"]
    assert (plan["items"]["projector"], plan["items"]["media"]) == (90 * MIB, 70 * MIB)
    assert plan["n_blocks"] == (1000 - 300 - 50 - 90 - 70) * MIB // 2 // (MIB // 4)
    most = (1000 - 300 - 50 - 20 - 30 - 90) * MIB
    Request(projector_bytes=90 * MIB, media_bytes=most - MIB).plan()
    with pytest.raises(_core.ResourceExhausted, match=r"projector 90\.0 MiB, media 510\.0 MiB"):
        Request(projector_bytes=90 * MIB, media_bytes=most).plan()


def test_rec_8_states_get_two_slots_a_sequence_and_as_many_for_snapshots() -> None:
    plan = Request(state_slot_bytes=MIB, max_running=8).plan()
    assert (plan["n_state_slots"], plan["items"]["state"]) == (32, 32 * MIB)
    assert list(plan["items"]) == ["weights", "kv", "state", "scratch", "logits", "reserve"]
    assert plan["n_blocks"] == (1000 - 300 - 50 - 32) * MIB // 2 // (MIB // 4)
    stated = Request(state_slot_bytes=MIB, max_running=8, state_snapshot_bytes=5 * MIB).plan()
    assert stated["n_state_slots"] == 16 + 5


def test_rec_8_states_get_at_most_a_quarter_and_nothing_that_a_requested_context_needs() -> None:
    room = 1000 - 300 - 50 - 20 - 30
    assert Request(state_slot_bytes=3 * MIB, max_running=64).plan()["n_state_slots"] == room // 4 // 3
    most = (room - 10) * MIB // (MIB // 4) * 16
    plan = Request(state_slot_bytes=3 * MIB, max_running=64, max_context=most).plan()
    assert (plan["n_state_slots"], plan["max_context"]) == (3, most)
    plan = Request(state_slot_bytes=3 * MIB, max_running=64, kv_bytes=(room - 7) * MIB).plan()
    assert plan["n_state_slots"] == 2


def test_rec_8_a_model_whose_two_slots_do_not_fit_is_refused() -> None:
    with pytest.raises(_core.ResourceExhausted, match=r"state 602\.0 MiB"):
        Request(state_slot_bytes=301 * MIB).plan()
    with pytest.raises(_core.ResourceExhausted, match=r"state 20\.0 MiB"):
        Request(state_slot_bytes=10 * MIB, kv_bytes=590 * MIB).plan()


def test_kv_5_at_most_four_sequences_of_full_length() -> None:
    plan = Request(model_context=1001).plan()
    assert (plan["n_blocks"], plan["max_context"]) == (4 * 63, 1001)


def test_kv_5_within_what_logits_and_reserve_leave() -> None:
    plan = Request(reserve_bytes=600 * MIB).plan()
    assert plan["items"]["kv"] == (1000 - 300 - 50 - 20 - 600) * MIB


def test_kv_5_a_stated_context_gets_more_than_half_where_it_needs_it() -> None:
    room = (1000 - 300 - 50 - 20 - 30) * MIB
    most = room // (MIB // 4) * 16
    half = Request().plan()["max_context"]
    assert Request(max_context=half).plan()["items"]["kv"] == (1000 - 300 - 50) * MIB // 2
    for context in (half + 1, most - 16, most):
        plan = Request(max_context=context).plan()
        assert plan["max_context"] == context
        assert plan["n_blocks"] == -(-context // 16)
    with pytest.raises(_core.ResourceExhausted) as info:
        Request(max_context=most + 1).plan()
    # The refusal is true: what is asked for is more than there is.
    assert int(info.value.details["needed"]) == 1000 * MIB + MIB // 4


def test_kv_5_memory_that_is_for_models_alone_the_cache_takes_whole() -> None:
    room = (1000 - 300 - 50 - 20 - 30) * MIB
    for stated in (None, 64, room // (MIB // 4) * 16):
        plan = Request(is_for_models=True, max_context=stated).plan()
        assert plan["items"]["kv"] == room
        assert plan["max_context"] == (stated or plan["n_blocks"] * 16)
    assert Request(is_for_models=True, model_context=100).plan()["max_context"] == 100
    assert Request(is_for_models=True, kv_bytes=100 * MIB).plan()["n_blocks"] == 400
    with pytest.raises(_core.ResourceExhausted):
        Request(is_for_models=True, max_context=room // (MIB // 4) * 16 + 1).plan()


def test_kv_5_kv_6_a_stated_cache_is_what_was_stated() -> None:
    plan = Request(kv_bytes=100 * MIB + 7).plan()
    assert (plan["n_blocks"], plan["max_context"]) == (400, 6400)


@pytest.mark.parametrize(
    ("request_", "needed"),
    [
        (Request(weights_bytes=1000 * MIB), 1000 + 50 + 20 + 30 + 0.25),
        (Request(kv_bytes=700 * MIB), 300 + 50 + 20 + 30 + 700),
        (Request(max_context=16 * 4 * 700), 300 + 50 + 20 + 30 + 700),
        (Request(budget_bytes=400 * MIB), 400.25),
    ],
)
def test_kv_5_mod_15_what_does_not_fit_is_itemised(request_: Request, needed: float) -> None:
    with pytest.raises(_core.ResourceExhausted) as info:
        request_.plan()
    assert info.value.reason == "NO_MEMORY"
    assert info.value.details == {"needed": str(int(needed * MIB)), "available": str(request_.budget_bytes)}
    for word in ("weights ", ", kv ", ", scratch ", ", logits ", ", reserve ", "; in all ", " of "):
        assert word in info.value.message


def test_kv_5_the_items_are_readable() -> None:
    with pytest.raises(_core.ResourceExhausted) as info:
        Request(budget_bytes=2 * MIB, weights_bytes=3 * MIB // 2, scratch_bytes=1000, logits_bytes=2048).plan()
    assert info.value.message == (
        "weights 1.5 MiB, kv 256.0 KiB, scratch 1000 B, logits 2.0 KiB, reserve 30.0 MiB; in all 31.8 MiB of 2.0 MiB"
    )


def test_kv_6_a_stated_context_must_fit_into_a_stated_cache() -> None:
    assert Request(kv_bytes=MIB, max_context=64).plan()["n_blocks"] == 4
    with pytest.raises(_core.InvalidArgument, match="kv_bytes: 1048576 hold 64 tokens, max_context needs 65"):
        Request(kv_bytes=MIB, max_context=65).plan()


def random_request(rng: np.random.Generator) -> Request:
    def size(most: int) -> int:
        return int(2 ** rng.uniform(0, most))

    return Request(
        budget_bytes=size(40), weights_bytes=size(39), scratch_bytes=size(34), logits_bytes=size(30),
        reserve_bytes=size(30), kv_block_bytes=size(24), kv_block_tokens=int(rng.choice([16, 32, 64])),
        kv_bytes=size(38) if rng.random() < 0.3 else None, model_context=size(20),
        max_context=size(20) if rng.random() < 0.3 else None, is_for_models=bool(rng.random() < 0.3),
    )  # fmt: skip


@pytest.mark.long
def test_kv_5_kv_6_a_thousand_random_configurations() -> None:
    rng = np.random.default_rng(5)
    fitting = 0
    for _ in range(1000):
        request = random_request(rng)
        try:
            plan = request.plan()
        except (_core.ResourceExhausted, _core.InvalidArgument) as error:
            with pytest.raises(type(error), match=re.escape(error.message)):
                request.plan()
            if isinstance(error, _core.ResourceExhausted):
                assert int(error.details["needed"]) > request.budget_bytes
            continue
        fitting += 1
        assert plan == request.plan()
        assert sum(plan["items"].values()) <= request.budget_bytes
        assert 1 <= plan["max_context"] <= plan["n_blocks"] * request.kv_block_tokens
        assert plan["max_context"] <= (request.max_context or request.model_context)
        assert plan["items"]["kv"] == plan["n_blocks"] * request.kv_block_bytes
        if request.max_context:
            assert plan["max_context"] == request.max_context
        left = request.budget_bytes - request.weights_bytes - request.scratch_bytes
        room = left - request.logits_bytes - request.reserve_bytes
        if request.kv_bytes is None and request.is_for_models:
            assert plan["n_blocks"] == min(room // request.kv_block_bytes, 2**31 - 1)
        elif request.kv_bytes is None:
            least = -(-(request.max_context or 1) // request.kv_block_tokens)
            assert plan["n_blocks"] <= max(left // 2 // request.kv_block_bytes, least)
    assert 200 < fitting < 900


def test_sums_of_absurd_sizes_do_not_wrap() -> None:
    with pytest.raises(_core.ResourceExhausted) as info:
        Request(weights_bytes=2**64 - 1, scratch_bytes=2**64 - 1).plan()
    assert info.value.details["needed"] == str(2**64 - 1)


def test_mod_15_nothing_is_read_where_the_plan_does_not_fit(tmp_path: Path) -> None:
    file = _core.open_model_file(tiny("llama").write(tmp_path / "m.gguf"))
    told: list[int] = []
    with pytest.raises(_core.ResourceExhausted, match=r"weights .*, kv .*, scratch .*, logits .*, reserve"):
        _core.Model.load(file, memory_bytes=100_000, progress=lambda done, total: told.append(done))
    assert told == []


def test_kv_5_the_plan_knows_the_scratch_of_ops_and_activations(tmp_path: Path) -> None:
    model = tiny("gemma3")
    loaded = load(model, tmp_path, threads=2, max_rows=100)
    hidden, q_width, kv_width, rope = (40, 64, 16, 16)
    widths = [*3 * [hidden], *2 * [q_width], *2 * [kv_width], model.ffn_size, *2 * [rope], hidden]
    activations = 4 * 100 * sum(-(-width // 16) * 16 for width in widths)
    assert loaded.memory["items"]["scratch"] == activations + loaded.scratch_bytes
    assert loaded.memory["items"]["logits"] == 4 * 100 * model.vocab_size


def test_krn_1_heads_that_no_kernel_takes_are_refused_before_weights_are_read(tmp_path: Path) -> None:
    file = _core.open_model_file(tiny("llama", head_dim=12).write(tmp_path / "m.gguf"))
    told: list[int] = []
    with pytest.raises(_core.ModelError, match=r"m\.gguf: attention head_dim: 12, expected a multiple of 8") as info:
        _core.Model.load(file, kv_bytes=MIB, progress=lambda done, total: told.append(done))
    assert (info.value.reason, told) == ("MODEL_UNSUPPORTED", [])


def test_kv_6_a_context_that_the_cache_cannot_hold_is_lowered_and_said(tmp_path: Path) -> None:
    file = _core.open_model_file(tiny("llama", context=4096, head_dim=16).write(tmp_path / "m.gguf"))
    block_bytes = 2 * 3 * 2 * 16 * 16 * 2  # K and V, layers, kv heads, head_dim, tokens, f16
    loaded = _core.Model.load(file, kv_bytes=10 * block_bytes)
    assert (loaded.n_blocks, loaded.max_context) == (10, 160)
    assert loaded.warnings == ["max_context is 160, not 4096: the KV cache holds no more"]
    assert {fact["name"]: fact["value"] for fact in loaded.facts}["max_context"] == "160"
    assert load(tiny("llama"), tmp_path).max_context == 512


def test_kv_5_a_page_of_the_cache_takes_memory_after_its_first_use(tmp_path: Path) -> None:
    """Layers share pages, so that the first tokens take few of them."""
    tiny_with_text(tmp_path, n_layers=32)
    script = (
        "import os, sys, imp_service\n"
        "from pathlib import Path\n"
        "resident = lambda: int(Path('/proc/self/statm').read_text().split()[1]) * os.sysconf('SC_PAGE_SIZE')\n"
        "with imp_service.load(sys.argv[1], 'kv.bytes=1GiB') as model:\n"
        "    loaded = resident()\n"
        "    model.generate([1, 2, 3], max_tokens=1).result()\n"
        "    print(resident() - loaded)\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", script, tmp_path / "tiny_qwen3.gguf"],
        capture_output=True,
        text=True,
        timeout=HANGS_AFTER,
        check=False,
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    assert int(ran.stdout) < 48 * MIB


QUANTIZED = ("bf16", "checkpoint", "quantized weights")
EXACT = ("f16", "architecture", "")


def cache_type(model: _core.Model) -> tuple[str, str, str]:
    (fact,) = (fact for fact in model.facts if fact["name"] == "kv_dtype")
    return fact["value"], fact["origin"], fact["source"]


@pytest.mark.parametrize(
    ("dtype", "embedding", "expected"),
    [
        ("q8_0", "", QUANTIZED),
        ("iq4_nl", "f16", QUANTIZED),
        ("f16", "", EXACT),
        ("bf16", "q8_0", EXACT),
        ("f32", "", EXACT),
    ],
)
def test_mod_10_the_cache_is_as_exact_as_most_weights(
    dtype: str, embedding: str, expected: tuple[str, str, str], tmp_path: Path
) -> None:
    model = tiny(
        "qwen3", hidden_size=256, ffn_size=512, n_heads=4, n_kv_heads=2, head_dim=64, n_layers=2,
        dtype=dtype, embedding_dtype=embedding,
    )  # fmt: skip
    assert cache_type(load(model, tmp_path)) == expected
    assert cache_type(load(model, tmp_path, kv_dtype="f32")) == ("f32", "override", "override kv_dtype")


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ([], "bf16"),
        (["kv.dtype=f16"], "f16"),
        (["model.overrides.kv_dtype=f32"], "f32"),
    ],
)
def test_cfg_8_what_auto_became_is_reported(settings: list[str], expected: str) -> None:
    """The built-in model is quantized."""
    config = read_settings(None, ["kv.bytes=4MiB", *settings], variables={})
    assert load_weights(config).config.settings.kv.dtype == expected

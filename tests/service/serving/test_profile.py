"""The output of a profile: a trace that loads, and a table whose shares add up."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import imp_service
from imp_service import GenerationRequest, LanguageModel, StopOptions
from imp_service.core import ProfileEvent
from imp_service.serving.engine_events import EngineEvents
from imp_service.serving.profile import PIECE_BYTES, chrome_trace, op_shares, record, summary
from support.run.patience import HANGS_AFTER

MS = 1_000_000


def interval(begin: int, end: int) -> SimpleNamespace:
    return SimpleNamespace(begin_ns=begin, end_ns=end)


@dataclass
class Profile:
    """Two steps of 10 ms with 6 ms of matrix products and 2 ms of attention each, and 1 ms of sampling in one."""

    n_dropped_ops: int = 0
    steps: list[Any] = field(
        default_factory=lambda: [
            SimpleNamespace(
                whole=interval(base, base + 10 * MS),
                forward=interval(base + 1 * MS, base + 9 * MS),
                sample=interval(base + 9 * MS, base + 10 * MS) if n_decode else interval(0, 0),
                n_decode_rows=n_decode,
                n_prefill_rows=n_prefill,
            )
            for base, n_decode, n_prefill in ((500 * MS, 0, 30), (510 * MS, 2, 8))
        ]
    )

    def ops(self) -> tuple[list[str], np.ndarray, np.ndarray, np.ndarray]:
        begin = np.array([501, 507, 511, 517, 519], dtype=np.int64) * MS
        return ["product", "attend", "sample"], np.array([0, 1, 0, 1, 2]), begin, begin + np.array([6, 2, 6, 2, 1]) * MS


def test_obs_4_the_report_adds_up() -> None:
    found = summary(Profile())  # type: ignore[arg-type]
    operations = found.pop("operations")
    assert found == {
        "steps": 2,
        "seconds": pytest.approx(0.02),
        "decoded_tokens": 2,
        "prefilled_tokens": 38,
        "tokens_per_second": pytest.approx(2000),
        "operations_without_room": 0,
    }
    assert [(op["name"], op["count"]) for op in operations] == [("product", 2), ("attend", 2), ("sample", 1)]
    assert [op["total_ms"] for op in operations] == pytest.approx([12, 4, 1])
    assert [op["mean_us"] for op in operations] == pytest.approx([6000, 2000, 1000])
    assert [op["share"] for op in operations] == pytest.approx([12 / 17, 4 / 17, 1 / 17])


def test_obs_4_the_trace_nests_ops_in_steps() -> None:
    trace = json.loads(b"".join(chrome_trace(Profile())))  # type: ignore[arg-type]
    slices = [(e["name"], e["ts"], e["dur"], e.get("args")) for e in trace["traceEvents"] if e["ph"] == "X"]
    assert slices == [
        ("step", 0, 10_000, {"step": 0, "decode_rows": 0, "prefill_rows": 30}),
        ("forward", 1_000, 8_000, None),
        ("step", 10_000, 10_000, {"step": 1, "decode_rows": 2, "prefill_rows": 8}),
        ("forward", 11_000, 8_000, None),
        ("sample", 19_000, 1_000, None),
        ("product", 1_000, 6_000, None),
        ("attend", 7_000, 2_000, None),
        ("product", 11_000, 6_000, None),
        ("attend", 17_000, 2_000, None),
        ("sample", 19_000, 1_000, None),
    ]
    assert {(e["pid"], e["tid"]) for e in trace["traceEvents"]} == {(1, 1)}


def test_obs_4_an_empty_profile_is_a_trace_too() -> None:
    trace = json.loads(b"".join(chrome_trace(ProfileEvent())))
    assert (trace["otherData"]["steps"], trace["otherData"]["operations"]) == (0, [])


@pytest.fixture
def model() -> Any:
    with imp_service.load(None, "scheduler.max_running=2") as loaded:
        yield loaded


def test_obs_4_a_server_profiles_its_own_steps(model: LanguageModel) -> None:
    """The profile has every requested step, in pieces of bounded size. The shares cover all ops."""

    async def profile() -> ProfileEvent:
        events = EngineEvents(asyncio.get_running_loop(), model._runtime.client, lambda _: None)
        recording = asyncio.create_task(record(model._runtime.client, 30, HANGS_AFTER))
        await asyncio.sleep(0)
        generation = model.generate(GenerationRequest("Once", stop=StopOptions(max_tokens=40, ignore_eos=True)))
        found = await recording
        generation.close()
        events.detach()
        return found

    found = asyncio.run(profile())
    pieces = list(chrome_trace(found))
    assert len(found.steps) == 30
    assert max(map(len, pieces[:-1])) < 2 * PIECE_BYTES
    trace = json.loads(b"".join(pieces))
    assert sum(event["name"] == "step" for event in trace["traceEvents"]) == 30
    assert sum(share.share for share in op_shares(found)) == pytest.approx(1)


@pytest.mark.long
def test_obs_4_r20_a_profile_that_nobody_waits_for_is_ended(model: LanguageModel) -> None:
    async def profile() -> None:
        events = EngineEvents(asyncio.get_running_loop(), model._runtime.client, lambda _: None)
        recording = asyncio.create_task(record(model._runtime.client, 1000, HANGS_AFTER))
        await asyncio.sleep(0)
        recording.cancel()
        with pytest.raises(asyncio.CancelledError):
            await recording
        # A later profile does not continue an earlier one.
        following = asyncio.create_task(record(model._runtime.client, 2, HANGS_AFTER))
        await asyncio.sleep(0)
        generation = model.generate(GenerationRequest("Once", stop=StopOptions(max_tokens=4)))
        assert len((await following).steps) == 2
        generation.close()
        events.detach()

    asyncio.run(profile())

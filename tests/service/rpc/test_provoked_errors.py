"""A real server raises every reason of the error table with the documented code, metadata and details."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import pytest

from imp_service.config import Config, ConfigError, read_settings
from imp_service.core import make_error
from imp_service.generation import ModelRuntime
from imp_service.pb import admin_pb2, inference_pb2_grpc, tokenizer_pb2_grpc, types_pb2
from imp_service.pb import inference_pb2 as pb
from imp_service.pb import tokenizer_pb2 as tok
from imp_service.rpc.server import GrpcServer
from imp_service.rpc.statuses import LONGEST_PUSHBACK
from imp_service.serving.lifecycle import Phase
from imp_service.serving.listening import checked_addresses
from imp_service.serving.refusal import Refusal
from imp_service.serving.security.access import Access
from imp_service.serving.server_state import ServerState
from support.calls.admin_calls import LISTENS
from support.calls.cut_streams import resuming
from support.calls.error_rows import DocumentedRow, documented_rows
from support.calls.failed_calls import FailedCall, failed
from support.calls.session_calls import SessionCalls
from support.machine.command_line import demo_with
from support.servers.gate import HELD as GATE
from support.servers.gate import Gate, gate
from support.servers.loop_thread import loop_thread
from support.servers.served import Served, ask, serve, tokens_of
from support.servers.served_models import from_file, scripted, tiny_with_text
from support.servers.vision_served import chat_of, raw, vision_model

ROWS = {row.reason: row for row in documented_rows() if row.reason}


@contextmanager
def without_model(*settings: str) -> Iterator[grpc.Channel]:
    """Starts a server whose model is never loaded."""
    thread = loop_thread()

    async def start() -> tuple[ServerState, GrpcServer]:
        config = read_settings(None, ["listen.grpc=['127.0.0.1:0']", "device.threads=1", *settings])
        state = ServerState(config, clock=thread.clock, wall=thread.clock.wall)
        server = GrpcServer(state, Access(state))
        await server.start(checked_addresses(config.settings.listen, state.telemetry.log))
        return state, server

    async def stop() -> None:
        await server.stop(0)
        state.close()

    state, server = thread.run(start())
    try:
        with grpc.insecure_channel(server.addresses[0]) as channel:
            yield channel
    finally:
        thread.run(stop())


@dataclass
class Provoked:
    """How a call failed; `again` repeats it after what it waits for has come."""

    call: FailedCall
    again: Callable[[], Any] | None = None


class Provoker:
    """Provokes each reason. The stack closes what it opens, in reverse order."""

    def __init__(self, stack: ExitStack, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.stack = stack
        self.folder = folder
        self.patch = patch

    def server(self, *settings: str, **how: Any) -> Served:
        return self.stack.enter_context(serve(*settings, **how))

    def standing(self, *settings: str) -> tuple[Served, Gate]:
        """Starts a server whose engine stops at a token until the gate opens."""
        closed = self.stack.enter_context(gate())
        return self.server(*settings, model=closed.model()), closed

    def injected(self, error: Exception) -> Provoked:
        """Raises an error that only a fault brings, where a prompt is read."""
        served = self.server()

        def fail(model: ModelRuntime, request: object, **how: object) -> None:
            raise error

        with self.patch.context() as patch:
            patch.setattr(ModelRuntime, "plan", fail)
            call = failed(lambda: list(served.inference.Generate(ask("a"))))
        return Provoked(call, lambda: tokens_of(list(served.inference.Generate(ask("a", 2)))))

    # Errors of the request.

    def field_invalid(self) -> Provoked:
        bad = types_pb2.SamplingOptions(temperature=-1)
        return Provoked(
            failed(lambda: list(self.server().inference.Generate(pb.GenerateRequest(text="a", sampling=bad))))
        )

    def message_too_large(self) -> Provoked:
        request = pb.GenerateRequest(text="a" * 5 * 1024**2)
        call = failed(lambda: list(self.server().inference.Generate(request)))
        sizes = {"message_bytes": str(request.ByteSize()), "max_message_bytes": str(4 * 1024**2)}
        assert call.metadata == sizes and all(size in call.message for size in sizes.values())
        return Provoked(call)

    def template_failed(self) -> Provoked:
        path = self.folder / "template.jinja"
        path.write_text("{{ raise_exception('roles must alternate') }}")
        stub = tokenizer_pb2_grpc.TokenizerServiceStub(self.server(f"model.overrides.chat_template={path}").channel())
        chat = types_pb2.ChatPrompt(messages=[types_pb2.ChatMessage(role="user", content="x")])
        return Provoked(failed(lambda: stub.ApplyChatTemplate(tok.ApplyChatTemplateRequest(chat=chat))))

    def no_chat_template(self) -> Provoked:
        served = self.server(model=tiny_with_text(self.folder))
        chat = types_pb2.ChatPrompt(messages=[types_pb2.ChatMessage(role="user", content="x")])
        return Provoked(failed(lambda: list(served.inference.Generate(pb.GenerateRequest(chat=chat)))))

    def template_invalid(self) -> Provoked:
        path = demo_with(self.folder / "broken.gguf", b"{% endfor %}", b"{% endfur %}")
        served = self.server(model=from_file(path))
        chat = types_pb2.ChatPrompt(messages=[types_pb2.ChatMessage(role="user", content="x")])
        return Provoked(failed(lambda: list(served.inference.Generate(pb.GenerateRequest(chat=chat)))))

    def context_too_long(self) -> Provoked:
        return Provoked(failed(lambda: list(self.server().inference.Generate(ask([5] * 513)))))

    def model_not_served(self) -> Provoked:
        return Provoked(failed(lambda: list(self.server().inference.Generate(ask("a", model="nosuch")))))

    def resume_mismatch(self) -> Provoked:
        stub = self.server().inference
        request = ask("Once upon a time", 4)
        going_on = resuming(request, list(stub.Generate(request))[:2])
        going_on.sampling.temperature = 1
        return Provoked(failed(lambda: list(stub.Generate(going_on))))

    def request_id_in_use(self) -> Provoked:
        served, closed = self.standing()
        stream = served.inference.Generate(ask([GATE - 1], 3, request_id="mine"))
        closed.wait()
        call = failed(lambda: list(served.inference.Generate(ask("a", request_id="mine"))))
        closed.open()
        assert tokens_of(list(stream)) == [GATE, GATE + 1, GATE + 2]
        # The id is free again.
        assert len(tokens_of(list(served.inference.Generate(ask([5], 2, request_id="mine"))))) == 2
        return Provoked(call)

    def feature_disabled(self) -> Provoked:
        asks = types_pb2.SparsePrefillOptions(keep=0.5)
        return Provoked(failed(lambda: list(self.server().inference.Generate(ask("a", sparse_prefill=asks)))))

    def not_supported_by_model(self) -> Provoked:
        return Provoked(failed(lambda: self.server().inference.Embed(pb.EmbedRequest(texts=["a"]))))

    # Errors of sessions.

    def position_beyond_end(self) -> Provoked:
        calls = SessionCalls(self.server())
        name = calls.prefill([1, 2]).session_id
        return self.left(calls, name, failed(lambda: calls.truncate(name, 3)))

    def position_inside_media(self) -> Provoked:
        calls = SessionCalls(self.server(model=vision_model(self.folder)))
        held = calls.stub.Prefill(pb.PrefillRequest(chat=chat_of(raw(), "What is this?")))
        inside = held.media[0].first_token + 1
        return self.left(calls, held.session_id, failed(lambda: calls.truncate(held.session_id, inside)))

    def position_mismatch(self) -> Provoked:
        calls = SessionCalls(self.server())
        name = calls.prefill([1, 2]).session_id
        return self.left(calls, name, failed(lambda: calls.step(name, [5], position=7)))

    def no_pending_token(self) -> Provoked:
        calls = SessionCalls(self.server())
        name = calls.prefill([1, 2], step=pb.StepOptions(sample=False)).session_id
        return self.left(calls, name, failed(lambda: calls.step(name)))

    def no_candidate(self) -> Provoked:
        calls = SessionCalls(self.server("model.overrides.suppress_tokens=[300]"))
        name = calls.prefill([1, 2]).session_id
        only = pb.StepOptions(allowed_token_mask=bytes(37) + b"\x10" + bytes(218))
        return self.left(calls, name, failed(lambda: calls.step(name, [5], step=only)))

    def left(self, calls: SessionCalls, name: str, call: FailedCall) -> Provoked:
        calls.release(name)
        return Provoked(call)

    def session_not_found(self) -> Provoked:
        return Provoked(failed(lambda: SessionCalls(self.server()).step("nosuch", [5])))

    def session_expired(self) -> Provoked:
        served = self.server()
        calls = SessionCalls(served)
        name = calls.prefill([1, 2]).session_id
        served.jump(61)
        return Provoked(failed(lambda: calls.step(name)))

    def session_lost(self) -> Provoked:
        before, after = SessionCalls(self.server()), SessionCalls(self.server())
        name = before.prefill([1, 2]).session_id
        return self.left(before, name, failed(lambda: after.step(name)))

    def session_busy(self) -> Provoked:
        served, closed = self.standing()
        calls = SessionCalls(served)
        name = calls.prefill([5]).session_id
        running = calls.stub.DecodeStep.future(
            pb.DecodeStepRequest(steps=[pb.SessionStep(session_id=name, token_ids=[GATE])])
        )
        closed.wait()
        call = failed(lambda: calls.step(name, [7]))
        closed.open()
        assert running.result().results[0].output.position == 2

        def again() -> None:
            assert calls.step(name, [7]).position == 3
            calls.release(name)

        return Provoked(call, again)

    # Limits of the server.

    def queue_full(self) -> Provoked:
        served, closed = self.standing("scheduler.max_running=1", "scheduler.max_waiting=1")
        streams = [served.inference.Generate(ask([GATE - 1], 2))]
        closed.wait()
        streams.append(served.inference.Generate(ask([5], 2)))
        served.wait_until(lambda: served.state.model.client.engine.stats().queued == 1, "a second one waits")
        call = failed(lambda: list(served.inference.Generate(ask([7], 2))))
        closed.open()
        assert [len(tokens_of(list(stream))) for stream in streams] == [2, 2]
        return Provoked(call, lambda: tokens_of(list(served.inference.Generate(ask([7], 2)))))

    def kv_full(self) -> Provoked:
        calls = SessionCalls(self.server(model=scripted(n_blocks=4, max_context=64)))
        name = calls.prefill([5] * 40).session_id
        call = failed(lambda: calls.prefill([6] * 40))
        calls.release(name)
        return Provoked(call, lambda: calls.release(calls.prefill([6] * 40).session_id))

    def sessions_full(self) -> Provoked:
        calls = SessionCalls(self.server("sessions.max=1"))
        name = calls.prefill([5]).session_id
        call = failed(lambda: calls.prefill([6]))
        calls.release(name)
        return Provoked(call, lambda: calls.release(calls.prefill([6]).session_id))

    def tenant_limit(self) -> Provoked:
        calls = SessionCalls(self.server("sessions.per_tenant=1"), "a")
        name = calls.prefill([5]).session_id
        call = failed(lambda: calls.prefill([6]))
        calls.release(name)
        return Provoked(call, lambda: calls.release(calls.prefill([6]).session_id))

    def draining(self) -> Provoked:
        served = self.server()
        served.call(lambda: served.state.lifecycle.become(Phase.DRAINING))
        call = failed(lambda: list(served.inference.Generate(ask("a"))))
        served.call(served.state.lifecycle.resume)
        return Provoked(call, lambda: tokens_of(list(served.inference.Generate(ask("a", 2)))))

    def non_finite(self) -> Provoked:
        served = self.server(model=scripted(script={"nan_token": GATE}))
        return Provoked(failed(lambda: list(served.inference.Generate(ask([GATE - 1], 4)))))

    # Errors of authorization.

    def token_missing(self) -> Provoked:
        return self.with_token(None)

    def token_invalid(self) -> Provoked:
        return self.with_token("wrong")

    def not_allowed(self) -> Provoked:
        return self.with_token("right")

    def with_token(self, token: str | None) -> Provoked:
        path = self.folder / "tokens"
        digests = {name: hashlib.sha256(name.encode()).hexdigest() for name in ("right", "all")}
        path.write_text(f"{digests['right']} read *\n{digests['all']} data,read,admin *\n")
        path.chmod(0o600)
        metadata = [] if token is None else [("authorization", f"Bearer {token}")]
        # The token is checked before anything else: no model is needed.
        with without_model(f"auth.token_file={path}") as channel:
            stub = inference_pb2_grpc.InferenceServiceStub(channel)
            return Provoked(failed(lambda: list(stub.Generate(ask("a"), metadata=metadata))))

    def loading(self) -> Provoked:
        with without_model() as channel:
            stub = inference_pb2_grpc.InferenceServiceStub(channel)
            return Provoked(failed(lambda: list(stub.Generate(ask("a")))), lambda: None)

    # Faults of the server.

    def config_invalid(self) -> Provoked:
        served = self.server(LISTENS)

        def read() -> Config:
            raise ConfigError("imp.conf:3:log.lever", "unknown key")

        self.patch.setattr(served.state.reload, "_read", read)
        return Provoked(failed(lambda: served.admin.Reload(admin_pb2.ReloadRequest())))

    def no_memory(self) -> Provoked:
        return self.injected(MemoryError("std::bad_alloc"))

    def slow_client(self) -> Provoked:
        return self.injected(Refusal("SLOW_CLIENT", "the caller has not read for 30 s", {"unread": "64"}))

    def not_supported_by_host(self) -> Provoked:
        return self.injected(Refusal("NOT_SUPPORTED_BY_HOST", "a session needs its instance", {"feature": "sessions"}))

    def device_fault(self) -> Provoked:
        return self.injected(make_error("DEVICE_FAULT", "the device does not answer"))

    def stalled(self) -> Provoked:
        return self.injected(Refusal("STALLED", "no progress for 5 s"))

    def weights_corrupt(self) -> Provoked:
        return self.injected(make_error("WEIGHTS_CORRUPT", "blk.0: other bytes", {"tensor": "blk.0"}))

    def bug(self) -> Provoked:
        return self.injected(KeyError("/secret/path.py at 0x7ffe1234567"))


def check_row(row: DocumentedRow, call: FailedCall) -> None:
    """Compares a failed call with the documented row."""
    details = call.details
    assert (call.code, call.reason, details.domain) == (row.code, row.reason, "imp.v1")
    assert set(row.metadata) <= call.metadata.keys()
    assert set(details.others) == set(row.details)
    assert bool(row.pushback) == (details.pushback_ms is not None)
    if row.pushback:
        delay = details.retry_seconds or 0
        is_left_to_caller = row.pushback == "pushback never" or delay > LONGEST_PUSHBACK
        assert details.pushback_ms == (-1 if is_left_to_caller else max(1, math.ceil(1000 * delay)))
    # A refusal is trailers-only, so that it may be retried. An error of a running stream comes after its headers.
    told, silent = (call.initial, call.trailing) if row.reason == "NON_FINITE" else (call.trailing, call.initial)
    assert {"imp-request-id", "imp-instance-id"} <= told.keys()
    assert not {"imp-request-id", "imp-instance-id"} & silent.keys()


@pytest.mark.few(4)
@pytest.mark.parametrize("reason", sorted(ROWS))
def test_rpc_40_rpc_10_every_row_can_be_met_and_looks_as_stated(
    reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ExitStack() as stack:
        provoked = getattr(Provoker(stack, tmp_path, monkeypatch), reason.lower())()
        check_row(ROWS[reason], provoked.call)
        assert "secret" not in provoked.call.message
        if ROWS[reason].retry in ("yes", "yes, elsewhere", "yes; no"):
            provoked.again()


def test_rpc_40_no_reason_is_left_out() -> None:
    assert {reason.lower() for reason in ROWS} <= set(dir(Provoker))


def test_rpc_10_one_sessions_failure_is_in_band_with_the_same_code_and_reason() -> None:
    with serve() as served:
        calls = SessionCalls(served)
        name = calls.prefill([1, 2]).session_id
        steps = {
            "SESSION_NOT_FOUND": pb.SessionStep(session_id="nosuch", token_ids=[5]),
            "POSITION_MISMATCH": pb.SessionStep(session_id=name, token_ids=[5], position=9),
        }
        for reason, step in steps.items():
            alone = failed(lambda: calls.stub.DecodeStep(pb.DecodeStepRequest(steps=[step])))  # noqa: B023
            streamed = [pb.DecodeStreamRequest(step=pb.DecodeStepRequest(steps=[step]))] * 2
            errors = [reply.error for reply in calls.stub.DecodeStream(iter(streamed))]
            assert [(each.reason, each.code) for each in errors] == [(reason, alone.error.code().value[0])] * 2
            assert {each.message for each in errors} == {alone.message}
        other = calls.prefill([3]).session_id
        good = pb.SessionStep(session_id=other, token_ids=[5])
        results = calls.steps(steps["SESSION_NOT_FOUND"], good).results
        assert [each.WhichOneof("result") for each in results] == ["error", "output"]
        calls.release(name), calls.release(other)


def test_rpc_8_p26_one_of_ten_callers_of_one_id_runs() -> None:
    with gate() as closed, serve(model=closed.model()) as served:
        streams = [served.inference.Generate(ask([GATE - 1], 2, request_id="same")) for _ in range(10)]
        closed.wait()
        served.wait_until(lambda: sum(stream.done() for stream in streams) == 9, "nine are refused")
        closed.open()
        ends = []
        for stream in streams:
            try:
                ends.append(tuple(tokens_of(list(stream))))
            except Exception as error:
                ends.append(FailedCall(error).reason)
        assert sorted(map(str, ends)) == sorted([str((GATE, GATE + 1)), *["REQUEST_ID_IN_USE"] * 9])


@pytest.mark.long
def test_rpc_8_an_empty_id_is_chosen_by_the_server() -> None:
    with serve() as served:
        ids = {next(iter(list(served.inference.Generate(ask("a", 1))))).started.request_id for _ in range(3)}
        assert len(ids) == 3 and all(ids)

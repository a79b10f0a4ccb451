"""The tests' own tools: servers in this process and in separate ones, and a clock that jumps."""

import signal
from pathlib import Path

import grpc
import pytest

from support.calls.wire import ask, tokens_of
from support.servers.served import Served, serve
from support.servers.served_models import built_in, scripted, tiny_with_text
from support.servers.server_process import server_process


def first_tokens(served: Served, prompt: list[int], n: int) -> list[int]:
    """Returns the first tokens of a stream that is then cancelled."""
    stream = served.inference.Generate(ask(prompt, 400))
    messages = []
    while len(tokens_of(messages)) < n:
        messages.append(next(stream))
    stream.cancel()
    served.wait_for_rest()
    return tokens_of(messages)[:n]


def test_the_built_in_model_says_what_its_golden_data_says() -> None:
    canary = built_in().canary
    assert canary is not None  # narrows the type
    with serve() as served:
        assert first_tokens(served, list(canary.prompt_ids), 20) == list(canary.output_ids[:20])


def test_a_script_decides_the_tokens(tmp_path: Path) -> None:
    table = [700 + 3 * i for i in range(20)]
    with serve(model=scripted("table", script={"table": table}), socket=tmp_path / "imp.sock") as served:
        assert first_tokens(served, [1, 2, 3], 10) == table[2:12]
    with serve(model=scripted()) as served:
        assert first_tokens(served, [400], 10) == list(range(401, 411))


def test_a_file_of_a_tiny_model_is_served(tmp_path: Path) -> None:
    with serve(model=tiny_with_text(tmp_path)) as served:
        assert served.state.model.vocab_size == 261
        greedy = first_tokens(served, [7, 11], 5)
        assert greedy == first_tokens(served, [7, 11], 5) and greedy != first_tokens(served, [11, 7], 5)


def test_every_call_on_a_servers_channel_is_checked() -> None:
    with serve() as served:
        with pytest.raises(grpc.RpcError) as refused:
            list(served.inference.Generate(ask([99999])))
        assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        stream = served.inference.Generate(ask("a", 2))
        assert stream.checker.sequences[0].token_ids == []
        next(stream), next(stream)
        assert len(stream.checker.sequences[0].token_ids) >= 1
        stream.cancel()
        served.wait_for_rest()


def test_a_jump_of_the_clock_lets_timers_come_due() -> None:
    with serve() as served:
        called: list[float] = []
        started = served.state.clock()
        served.call(lambda: served.thread.loop.call_later(3600, lambda: called.append(served.state.clock() - started)))
        served.jump(3500)
        assert called == []
        served.jump(200)
        assert len(called) == 1 and called[0] >= 3700


def test_a_frozen_clock_moves_only_by_jumps_and_never_back() -> None:
    with serve() as served:
        clock, loop = served.thread.clock, served.thread.loop
        before, wall_before = clock(), clock.wall()
        with served.frozen():
            stopped, wall_stopped = clock(), clock.wall()
            assert before <= stopped == loop.time() == int(stopped) and wall_before <= wall_stopped
            assert len(tokens_of(list(served.inference.Generate(ask([300], 4))))) == 4
            served.wait_for_rest()
            assert (clock(), clock.wall()) == (stopped, wall_stopped)
            served.jump(59)
            assert (clock(), clock.wall()) == (stopped + 59, wall_stopped + 59)
        assert clock() >= stopped + 59 and clock.wall() >= wall_stopped + 59


def test_a_server_process_starts_answers_and_ends(tmp_path: Path) -> None:
    with server_process(tmp_path, settings=("log.format=json",)) as server:
        facts = server.wait_until_ready()
        assert (facts["pid"], facts["model"]) == (server.pid, "imp demo")
        with server.inference() as stub:
            assert next(stub.Generate(ask("a", 3))).started.prompt_tokens == 1
        assert server.terminate() == 0
    with server_process(tmp_path) as server:
        server.wait_until_ready()
        server.signal(signal.SIGKILL)
        assert server.wait_for_end() == -signal.SIGKILL

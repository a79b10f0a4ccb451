"""Random operations on sessions agree with a model of lists in positions, tokens and blocks after each."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from dataclasses import dataclass, field

import grpc
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from imp_service.pb import inference_pb2 as pb
from support.calls.session_calls import SessionCalls, details_of, prefill
from support.run.quick_run import Repeats
from support.run.release_run import repetitions
from support.servers.served import Served, serve
from support.servers.served_models import scripted

BLOCK = 16
CONTEXT = 96
N_EXAMPLES = repetitions(1_000, 20)
# The scripted model's rule: n + 1 follows n.
tokens = st.lists(st.integers(300, 400), min_size=1, max_size=40)


class Blocks:
    """Which session holds which block: forks share it, and it is copied when one of several holders writes to it."""

    def __init__(self) -> None:
        self._ids = itertools.count()
        self.holders: Counter[int] = Counter()

    def new(self) -> int:
        block = next(self._ids)
        self.holders[block] = 1
        return block

    def share(self, blocks: list[int]) -> list[int]:
        self.holders.update(blocks)
        return list(blocks)

    def drop(self, blocks: list[int]) -> None:
        self.holders.subtract(blocks)
        self.holders = +self.holders


@dataclass
class Model:
    """One session: its held tokens, its pending token, and its last step with the reply."""

    held: list[int] = field(default_factory=list)
    pending: int | None = None
    blocks: list[int] = field(default_factory=list)
    last: tuple[pb.SessionStep, pb.StepOutput] | None = None

    def extend(self, given: list[int], blocks: Blocks) -> None:
        if len(self.held) % BLOCK and blocks.holders[self.blocks[-1]] > 1:
            blocks.drop([self.blocks.pop()])
            self.blocks.append(blocks.new())
        self.held += given
        self.pending = self.held[-1] + 1
        while len(self.blocks) * BLOCK < len(self.held):
            self.blocks.append(blocks.new())

    def truncate(self, position: int, blocks: Blocks) -> None:
        if position < len(self.held):
            n_blocks = -(-position // BLOCK)
            blocks.drop(self.blocks[n_blocks:])
            self.held, self.blocks = self.held[:position], self.blocks[:n_blocks]
            self.pending = self.last = None


class SessionMachine(RuleBasedStateMachine):
    """Every operation of the API on up to eight sessions."""

    served: Served

    @initialize()
    def begin(self) -> None:
        self.calls = SessionCalls(self.served)
        self.blocks = Blocks()
        self.sessions: dict[str, Model] = {}
        self.numbers = itertools.count()

    def teardown(self) -> None:
        for name in getattr(self, "sessions", {}):
            assert self.calls.release(name) is True
        self.served.wait_for_rest()

    def pick(self, data: st.DataObject) -> str:
        return data.draw(st.sampled_from(sorted(self.sessions)))

    def reason(self, call: object) -> str:
        try:
            call()  # type: ignore[operator]
        except grpc.RpcError as error:
            return details_of(error).reason
        return ""

    @precondition(lambda self: len(self.sessions) < 8)
    @rule(given=tokens, is_repeated=st.booleans())
    def open(self, given: list[int], is_repeated: bool) -> None:
        name, model = f"s{next(self.numbers)}", Model()
        replies = [self.calls.prefill(given, name, position=0) for _ in range(1 + is_repeated)]
        model.extend(given, self.blocks)
        self.sessions[name] = model
        assert all(reply == replies[0] for reply in replies)
        assert (replies[0].output.position, replies[0].output.token_id) == (len(given), model.pending)

    @precondition(lambda self: self.sessions)
    @rule(data=st.data(), given=st.one_of(st.just([]), tokens), is_prefill=st.booleans(), is_locked=st.booleans())
    def extend(self, data: st.DataObject, given: list[int], is_prefill: bool, is_locked: bool) -> None:
        name = self.pick(data)
        model = self.sessions[name]
        position = {"position": len(model.held)} if is_locked else {}
        if is_prefill and given:
            step = None
            failed = self.reason(lambda: self.calls.stub.Prefill(prefill(given, name, **position)))
        else:
            step = pb.SessionStep(session_id=name, token_ids=given, **position)
            outputs = []
            failed = self.reason(lambda: outputs.append(self.calls.steps(step).results[0].output))
        evaluated = given or ([] if model.pending is None else [model.pending])
        if not evaluated:
            assert failed == "NO_PENDING_TOKEN"
        elif len(model.held) + len(evaluated) > CONTEXT:
            assert failed == "CONTEXT_TOO_LONG"
        else:
            assert failed == ""
            model.extend(evaluated, self.blocks)
            model.last = None
            if step is not None:
                assert (outputs[0].position, outputs[0].token_id) == (len(model.held), model.pending)
                model.last = (step, outputs[0]) if is_locked else None

    @precondition(lambda self: any(model.last for model in self.sessions.values()))
    @rule(data=st.data())
    def repeat(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(name for name, model in self.sessions.items() if model.last)))
        step, output = self.sessions[name].last or (None, None)
        assert self.calls.steps(step).results[0].output == output  # type: ignore[arg-type]

    @precondition(lambda self: self.sessions)
    @rule(data=st.data(), position=st.integers(0, CONTEXT + 2))
    def mismatch(self, data: st.DataObject, position: int) -> None:
        name = self.pick(data)
        if position != len(self.sessions[name].held):
            # No other step has these options, so this one never repeats one.
            step = pb.StepOptions(top_logprobs=3)
            failed = self.reason(lambda: self.calls.step(name, [301], position=position, step=step))
            assert failed == "POSITION_MISMATCH"

    @precondition(lambda self: len(self.sessions) > 1)
    @rule(data=st.data())
    def step_together(self, data: st.DataObject) -> None:
        names = data.draw(st.lists(st.sampled_from(sorted(self.sessions)), min_size=2, unique=True))
        fitting = [name for name in names if len(self.sessions[name].held) < CONTEXT]
        steps = [pb.SessionStep(session_id=name, token_ids=[350]) for name in names]
        results = []
        failed = self.reason(lambda: results.extend(self.calls.steps(*steps).results))
        assert failed == ("" if fitting else "CONTEXT_TOO_LONG")
        for name, result in zip(names, results, strict=False):
            model = self.sessions[name]
            if name in fitting:
                model.extend([350], self.blocks)
                model.last = None
                assert (result.output.position, result.output.token_id) == (len(model.held), 351)
            else:
                assert result.error.reason == "CONTEXT_TOO_LONG"

    @precondition(lambda self: 0 < len(self.sessions) < 8)
    @rule(data=st.data(), part=st.one_of(st.none(), st.integers(0, CONTEXT + 1)), is_repeated=st.booleans())
    def fork(self, data: st.DataObject, part: int | None, is_repeated: bool) -> None:
        name = self.pick(data)
        parent, copy = self.sessions[name], f"s{next(self.numbers)}"
        position = len(parent.held) if part is None else part
        fields = {} if part is None else {"position": part}
        if position > len(parent.held):
            assert self.reason(lambda: self.calls.fork(name, new_session_id=copy, **fields)) == "POSITION_BEYOND_END"
            return
        replies = [self.calls.fork(name, new_session_id=copy, **fields) for _ in range(1 + is_repeated)]
        assert all((reply.session_id, reply.position) == (copy, position) for reply in replies)
        shared = self.blocks.share(parent.blocks[: -(-position // BLOCK)])
        pending = parent.pending if position == len(parent.held) else None
        self.sessions[copy] = Model(parent.held[:position], pending, shared)

    @precondition(lambda self: self.sessions)
    @rule(data=st.data(), position=st.integers(0, CONTEXT + 1))
    def truncate(self, data: st.DataObject, position: int) -> None:
        name = self.pick(data)
        model = self.sessions[name]
        failed = self.reason(lambda: self.calls.truncate(name, position))
        assert failed == ("POSITION_BEYOND_END" if position > len(model.held) else "")
        if not failed:
            model.truncate(position, self.blocks)

    @precondition(lambda self: self.sessions)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        name = self.pick(data)
        assert self.calls.release(name) is True
        self.blocks.drop(self.sessions.pop(name).blocks)
        assert self.calls.release(name) is False

    @invariant()
    def holds_what_the_model_holds(self) -> None:
        if not hasattr(self, "sessions"):
            return
        facts = self.served.call(self.served.state.sessions.facts)
        assert {each.session_id: each.position for each in facts} == {
            name: len(model.held) for name, model in self.sessions.items()
        }
        stats = self.served.stats()
        assert (stats.sessions, stats.blocks_live) == (len(self.sessions), len(self.blocks.holders))


def run_machine(n_examples: int, n_steps: int) -> None:
    """Runs `n_examples` sequences of `n_steps` operations."""
    model = scripted(max_context=CONTEXT, n_blocks=64, prefix_cache=False)
    with serve("log.level=warning", model=model) as served:
        machine = type("ServedMachine", (SessionMachine,), {"served": served}).TestCase
        machine.settings = settings(
            max_examples=n_examples,
            stateful_step_count=n_steps,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
        )
        machine().runTest()


@pytest.mark.long
def test_s29_s17_s18_random_operations_agree_with_a_list_model(repeats: Repeats) -> None:
    """The release run makes 30,000 operations."""
    run_machine(n_examples=repeats(N_EXAMPLES), n_steps=30)


@pytest.mark.long
def test_s19_a_long_chain_of_forks_and_many_of_one_are_released_in_any_order() -> None:
    """The release run makes 10,000 of each."""
    n = repetitions(10_000, 150)
    with serve(f"sessions.max={2 * n + 1}", "sessions.ttl=1h", "log.level=warning", model=scripted()) as served:
        calls = SessionCalls(served)
        root = calls.prefill(list(range(300, 340))).session_id
        chain = [root]
        for _ in range(n):
            chain.append(calls.fork(chain[-1]).session_id)
        fan = [calls.fork(root, position=i % 41).session_id for i in range(n)]
        assert served.stats().blocks_live == 3
        released = chain + fan
        random.Random(19).shuffle(released)
        assert all(calls.release(name) for name in released)
        served.wait_for_rest()

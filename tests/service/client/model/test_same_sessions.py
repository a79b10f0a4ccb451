"""Sessions of the same program: same steps, positions and errors in this process and behind servers."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from typing import Any

import pytest

import imp_service
from imp_service import (
    CacheOptions,
    ChatMessage,
    ChatPrompt,
    Chunk,
    Client,
    Error,
    FieldsInvalid,
    LanguageModel,
    SamplingOptions,
    SessionStep,
    StateError,
    StepOptions,
    StepOutput,
    Timings,
)
from support.calls.waiting_client import WaitingClient
from support.servers.served import Served, serve

Model = LanguageModel | Client | WaitingClient
PROMPT = "Once upon a time"
NO_TIME = Timings(0, 0, 0)


def told(output: StepOutput) -> str:
    """Returns an output without its times, and its scores."""
    scores = output.scores
    whole = replace(output, timings=NO_TIME, cached_tokens=0, held_scores=None)  # type: ignore[arg-type]
    return repr((asdict(whole), scores))


def loop_of_steps(model: Any) -> list[str]:
    """Makes the calls of a program that decides token by token. Returns their outputs."""
    outputs = []
    with model.open(temperature=1.2, seed=5, cache=CacheOptions(salt="s"), priority=2) as session:
        outputs.append(session.prefill(PROMPT, top_logprobs=3, logits=True))
        outputs += [session.decode_step() for _ in range(3)]
        outputs.append(session.decode_step([301, 256], scores=True, top_logprobs=2))
        outputs.append(session.decode_step(temperature=0))  # also for all later steps
        outputs.append(session.decode_step(sample=False))
        outputs.append(session.prefill(" The end", seed=9, temperature=1.0))
        outputs.append(session.decode_step(position=session.position))
        session.truncate(3)
        outputs.append(session.prefill([11, 12], base=2))
        mask = bytearray(-(-model.vocab_size // 8))
        mask[50] = 0xFF
        outputs.append(session.decode_step(allowed_token_mask=bytes(mask)))
        positions = (session.position, session.seed)
    return [*map(told, outputs), repr(positions)]


@pytest.fixture(scope="module")
def expected_loop(library: LanguageModel) -> list[str]:
    return loop_of_steps(library)


@pytest.mark.few(2)
def test_cnt_1_a_loop_of_steps_is_the_same(model: Model, expected_loop: list[str]) -> None:
    assert loop_of_steps(model) == expected_loop
    assert len(set(expected_loop)) == len(expected_loop)


def test_cnt_1_a_session_may_begin_with_a_step_or_a_conversation(model: Model, library: LanguageModel) -> None:
    chat = ChatPrompt((ChatMessage("user", "What is 2 plus 2?"),))

    def begun(of: Any) -> list[str]:
        with of.open(temperature=1.1, seed=3) as one, of.open(SamplingOptions(temperature=1.1, seed=3)) as two:
            return [told(one.decode_step([5, 6, 7])), told(one.decode_step()), told(two.prefill(chat))]

    assert begun(model) == begun(library)


@pytest.mark.few(2)
def test_cnt_1_forks_go_their_own_ways(model: Model, library: LanguageModel) -> None:
    def forked(of: Any) -> Iterator[Any]:
        with of.open(temperature=0, seed=4) as session:
            with session.fork() as empty:
                yield told(empty.prefill("The sun"))
            session.prefill(PROMPT)
            with session.fork() as twin, session.fork(2) as short:
                yield [told(each.decode_step()) for each in (twin, session)]
                yield short.position, told(short.prefill(" cat"))
                yield twin.generate(max_tokens=6).result().token_ids
                yield twin.position, session.position, twin.seed

    assert list(forked(model)) == list(forked(library))


@pytest.mark.few(2)
def test_cnt_1_a_generation_goes_on_after_steps_and_before_them(model: Model, library: LanguageModel) -> None:
    whole = library.generate(PROMPT, max_tokens=14, temperature=0.9, seed=5).result().token_ids
    with model.open() as session:
        tokens = [session.prefill(PROMPT, temperature=0.9, seed=5).token_id]
        tokens += session.generate(max_tokens=5).result().token_ids
        assert session.position == 4 + 5
        tokens += [session.decode_step().token_id for _ in range(3)]
        with session.fork() as twin:
            assert tokens + twin.generate(max_tokens=5).result().token_ids == whole
        assert tokens + session.generate(max_tokens=5).result().token_ids == whole
        again = session.generate(max_tokens=5, temperature=1.5, seed=8).result()
        assert (again.seed, session.seed) == (8, 8)


@pytest.mark.few(4)
@pytest.mark.parametrize("n_read", [0, 1, 2, 3])
def test_cnt_1_a_session_keeps_what_was_read(model: Model, library: LanguageModel, n_read: int) -> None:
    """After a stream is left early, the session continues from the last token read."""
    whole = library.generate(PROMPT, max_tokens=40, temperature=0, ignore_eos=True).result().token_ids
    with model.open(temperature=0) as session:
        prompt = session.prefill(PROMPT).position
        with session.generate(max_tokens=30, ignore_eos=True) as generation:
            read = [t for _ in range(n_read) for t in getattr(next(generation, None), "token_ids", ())]
        if read:
            assert session.position == prompt + len(read)
        with session.fork() as twin:
            assert twin.position == session.position
            if read:
                assert twin.decode_step().token_id == whole[1 + len(read)]
        if read:
            rest = session.generate(max_tokens=3, ignore_eos=True).result().token_ids
            assert [whole[0], *read, *rest] == whole[: 4 + len(read)]
        session.prefill(" The end")


def results_of(outputs: list[StepOutput | Error]) -> list[str]:
    return [told(each) if isinstance(each, StepOutput) else f"{type(each).__name__} {each.reason}" for each in outputs]


@pytest.mark.few(2)
def test_cnt_1_sessions_step_together(model: Model, library: LanguageModel) -> None:
    def together(of: Any) -> Iterator[Any]:
        with of.open(temperature=0) as a, of.open(temperature=0, tenant="t") as b, of.open() as c:
            a.prefill(PROMPT), b.prefill("The weather today")
            yield results_of(of.decode_step([SessionStep(a), SessionStep(b, (), StepOptions(top_logprobs=2))]))
            yield results_of(of.decode_step([SessionStep(c), SessionStep(a), SessionStep(b, [10**6])]))
            b.truncate(1)
            yield results_of(of.decode_step([SessionStep(b), SessionStep(c)]))
            yield results_of(of.decode_step([SessionStep(c, [5, 6]), SessionStep(b, [7])])), c.position
            yield of.decode_step([])
            with pytest.raises(FieldsInvalid, match="a session is named twice"):
                of.decode_step([SessionStep(a), SessionStep(a)])

    found = list(together(model))
    # The sampler of c draws its own seed.
    assert found[:3] + found[4:] == (known := list(together(library)))[:3] + known[4:]
    assert found[3][1] == known[3][1] == 2


Fail = Callable[[Any, Any], object]
FAILURES: dict[str, tuple[Fail, str, str | None]] = {
    "nothing to go on from": (lambda of, s: of.open().decode_step(), "NO_PENDING_TOKEN", None),
    "nothing to generate from": (lambda of, s: of.open().generate().result(), "NO_PENDING_TOKEN", None),
    "nothing to cut": (lambda of, s: of.open().truncate(3), "POSITION_BEYOND_END", None),
    "nothing to share": (lambda of, s: of.open().fork(1), "POSITION_BEYOND_END", None),
    "beyond the end": (lambda of, s: s.truncate(30), "POSITION_BEYOND_END", None),
    "another position": (lambda of, s: s.decode_step(position=9), "POSITION_MISMATCH", None),
    "another first position": (lambda of, s: of.open().prefill(PROMPT, position=9), "POSITION_MISMATCH", None),
    "below zero": (lambda of, s: s.fork(-1), "FIELD_INVALID", "position"),
    "a prompt": (lambda of, s: s.generate("abc"), "FIELD_INVALID", "prompt"),
    "two sequences": (lambda of, s: s.generate(num_sequences=2).result(), "FIELD_INVALID", "num_sequences"),
    "an option": (lambda of, s: s.prefill("a", temperature=-1), "FIELD_INVALID", "sampling.temperature"),
    "many candidates": (lambda of, s: s.decode_step(top_logprobs=99), "FIELD_INVALID", "step.top_logprobs"),
    "a mask": (lambda of, s: s.decode_step(allowed_token_mask=b"a"), "FIELD_INVALID", "step.allowed_token_mask"),
    "no token": (lambda of, s: s.decode_step([10**6]), "FIELD_INVALID", "token_ids[0]"),
    "a negative token": (lambda of, s: s.decode_step([-1]), "FIELD_INVALID", "token_ids[0]"),
    "a base": (lambda of, s: s.prefill("a", base=99), "FIELD_INVALID", "base"),
    "a sampler": (lambda of, s: of.open(top_p=7).prefill("a"), "FIELD_INVALID", "sampling.top_p"),
    "a salt": (lambda of, s: of.open(cache_salt="x" * 99).prefill("a"), "FIELD_INVALID", "cache.salt"),
    "too long": (lambda of, s: s.prefill([7] * 9999), "CONTEXT_TOO_LONG", None),
}


@pytest.mark.few(8)
@pytest.mark.parametrize("name", FAILURES)
def test_cnt_1_a_failure_of_a_session_is_the_same_and_changes_nothing(
    model: Model, library: LanguageModel, name: str
) -> None:
    fail, reason, field = FAILURES[name]

    def failed(of: Any) -> tuple[Any, ...]:
        with of.open(temperature=0) as session:
            session.prefill(PROMPT)
            with pytest.raises(Error) as caught:
                fail(of, session)
            error = caught.value
            kind = type(error) if error.reason != "FIELD_INVALID" else imp_service.InvalidArgument
            assert isinstance(error, kind)
            return kind, error.reason, error.field, session.position, told(session.decode_step())

    found = failed(model)
    assert found[1:3] == (reason, field)
    assert found == failed(library)


def test_cnt_1_an_unknown_name_of_a_step_is_a_type_error(model: Model) -> None:
    with pytest.raises(TypeError, match=r"'zzz'"):
        model.open(zzz=1)
    if not isinstance(model, WaitingClient):
        with model.open() as session, pytest.raises(TypeError, match=r"'logit'.*'logits'"):
            session.prefill(PROMPT, logit=True)
        with pytest.raises(TypeError, match="expected sessions of"):
            model.decode_step([SessionStep("a")])  # type: ignore[arg-type]


def test_cnt_3_a_session_that_is_left_is_freed(served: Served) -> None:
    with imp_service.connect(served.address) as client:
        with client.open() as session:
            session.prefill(PROMPT)
        served.wait_for_rest()
        client.open().prefill(PROMPT)
        gc.collect()
        client.open(seed=1).prefill(PROMPT)  # releases the dropped sessions
        gc.collect()
    served.wait_for_rest()


def test_cnt_3_a_task_s_session_that_is_left_is_freed(served: Served) -> None:
    async def leave() -> None:
        async with imp_service.connect_async(served.address) as client:
            async with client.open() as session:
                await session.prefill(PROMPT)
                async with session.generate(max_tokens=100) as generation:
                    await anext(generation)
            await client.open().prefill(PROMPT)
            gc.collect()

    served.run(leave())
    served.wait_for_rest()


def test_cnt_1_a_session_that_the_server_lost_is_reported() -> None:
    with serve("sessions.ttl=1s") as server, imp_service.connect(server.address) as client:
        session = client.open(ttl=0.5)
        session.prefill(PROMPT)
        server.jump(5)
        for act in (session.decode_step, session.generate(max_tokens=3).result, lambda: session.truncate(1)):
            with pytest.raises(StateError) as caught:
                act()
            assert caught.value.reason == "SESSION_EXPIRED"


def test_cnt_1_a_caller_that_was_mistaken_of_the_position_learns_it(served: Served) -> None:
    with imp_service.connect(served.address) as client, client.open(temperature=0) as session:
        session.prefill(PROMPT)
        state = session._state
        expected = session.fork().decode_step().token_id
        state.held = 7  # as if the reply of a step were lost
        with pytest.raises(StateError) as caught:
            session.decode_step()
        assert (caught.value.reason, caught.value.details["held"]) == ("POSITION_MISMATCH", "4")
        assert session.position == 4
        assert session.decode_step().token_id == expected


def test_cnt_1_chunks_of_a_session_are_checked(served: Served) -> None:
    with imp_service.connect(served.address) as client, client.open(temperature=0) as session:
        session.prefill(PROMPT)
        replies = [each for each in session.generate(max_tokens=9) if isinstance(each, Chunk)]
        assert replies[0].first_token == 0
        assert sum(len(each.token_ids) for each in replies) == 9

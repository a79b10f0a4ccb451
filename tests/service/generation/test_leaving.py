"""However a generation is left or refused, nothing is left behind, and a session holds exactly what was delivered."""

from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest

import imp_service
from imp_service import (
    CacheOptions,
    ConstraintKind,
    ConstraintSpec,
    GenerationRequest,
    LanguageModel,
    SamplingOptions,
    StopOptions,
)
from imp_service.api.replies import Chunk, Started
from imp_service.core import EngineClient, Error, Event, FinishedEvent, InvalidArgument
from imp_service.generation import Session
from imp_service.generation.run import GenerationRun
from imp_service.text import FieldInvalid

GREEDY = SamplingOptions(temperature=0.0)
PROMPT = "Once upon a time"


@pytest.fixture
def model() -> Iterator[LanguageModel]:
    with imp_service.load(None, "scheduler.max_running=2") as loaded:
        yield loaded


def held(session: Session) -> int:
    """Returns the engine's position of the session, not the session's own count."""
    twin = session.fork()
    position = twin.position
    twin.close()
    return position


def continue_session(session: Session, n: int, **stop: object) -> imp_service.generation.Generation:
    return session.generate(GenerationRequest("", stop=StopOptions(max_tokens=n, ignore_eos=True, **stop)))


@pytest.mark.long
@pytest.mark.parametrize("pattern", [r"[^\s\S]", r"abc[^\s\S]"])
def test_gen_16_a_constraint_that_allows_nothing_leaves_nothing_behind(model: LanguageModel, pattern: str) -> None:
    for _ in range(5):
        with pytest.raises((FieldInvalid, Error)):
            list(model.generate(GenerationRequest(PROMPT, constraint=ConstraintSpec(ConstraintKind.REGEX, pattern))))
    replies = list(model.generate(GenerationRequest(PROMPT, GREEDY, StopOptions(max_tokens=3))))
    assert replies[-1].usage.output_tokens == 3
    stats = model._runtime.client.engine.stats()
    assert (stats.running, stats.waiting, stats.blocks_live) == (0, 0, 0)


@pytest.mark.few(2)
@pytest.mark.parametrize("n_read", [0, 1, 2, 3])
def test_ses_21_a_session_keeps_what_was_delivered(model: LanguageModel, n_read: int) -> None:
    """The reader leaves after `n_read` replies, whether the engine has ended the run by then or not."""
    whole = [
        t for r in model.generate(GenerationRequest(PROMPT, GREEDY, StopOptions(max_tokens=20))) for t in tokens(r)
    ]
    with model.open(GREEDY) as session:
        session.prefill(PROMPT)
        prompt = session.position
        with continue_session(session, 12) as generation:
            delivered = [t for _ in range(n_read) for t in tokens(next(generation, None))]
        assert session.position == held(session)
        if delivered:
            assert session.position == prompt + len(delivered)
            assert session.decode_step().token_id == whole[1 + len(delivered)]


def tokens(reply: object) -> list[int]:
    return reply.token_ids if isinstance(reply, Chunk) else []


def test_txt_8_ses_21_a_stop_string_in_a_session(model: LanguageModel) -> None:
    with model.open(GREEDY) as session:
        session.prefill(PROMPT)
        before = session.position
        delivered = [t for reply in continue_session(session, 40, strings=(" lived",)) for t in tokens(reply)]
        assert session.position == held(session) == before + len(delivered)
        assert session.decode_step(position=session.position).position == session.position


class HeldBack:
    """A client whose events wait until the test delivers them."""

    def __init__(self, client: EngineClient) -> None:
        self._client = client
        self.events: list[Event] = []
        self.handler: Callable[[Event], None]

    def expect(self, handler: Callable[[Event], None]) -> int:
        self.handler = handler
        return self._client.expect(self.events.append)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)


def test_txt_8_ses_21_a_run_far_ahead_of_its_reader_is_cut_at_its_stop_string(model: LanguageModel) -> None:
    """The engine has ended the run at its limit before it learns of the stop."""
    with model.open(GREEDY) as session:
        session.prefill(PROMPT)
        before = session.position
        stop = StopOptions(max_tokens=40, ignore_eos=True, strings=(" lived",))
        client = HeldBack(model._runtime.client)
        run = GenerationRun(cast(EngineClient, client), session._inner.plan(GenerationRequest("", stop=stop)))
        client.wait(lambda: any(isinstance(event, FinishedEvent) for event in client.events))
        assert client.events[-1].position == before + 40  # type: ignore[union-attr]
        for event in client.events:
            client.handler(event)
            run.absorb()
        n_delivered = 0
        while (reply := run.next_reply()) is not None:
            n_delivered += len(tokens(reply))
        assert session.position == held(session) == before + n_delivered < before + 40


def test_smp_20_a_session_names_the_seed_in_force(model: LanguageModel) -> None:
    with model.open(SamplingOptions(temperature=1.0, seed=77)) as session:
        session.prefill(PROMPT)
        started = next(reply for reply in continue_session(session, 2) if isinstance(reply, Started))
    assert started.seed == 77


def test_pfx_5_tenants_and_salts_do_not_run_into_each_other(model: LanguageModel) -> None:
    prompt = list(range(300, 350))

    def cached(tenant: str, salt: str) -> int:
        stop, cache = StopOptions(max_tokens=1), CacheOptions(salt=salt)
        started = next(model.generate(GenerationRequest(prompt, GREEDY, stop, cache=cache, tenant=tenant)))
        return started.cached_prompt_tokens

    assert [cached("x\0y", "z"), cached("x", "y\0z"), cached("x\0y", "z"), cached("x", "yz"), cached("xy", "z")] == [
        *(0, 0),
        48,
        *(0, 0),
    ]


@pytest.mark.few(4)
@pytest.mark.parametrize(
    "request_",
    [
        GenerationRequest([{"role": "user"}]),  # type: ignore[list-item]
        GenerationRequest(b"abc"),  # type: ignore[arg-type]
        GenerationRequest(None),  # type: ignore[arg-type]
        GenerationRequest(PROMPT, SamplingOptions(top_k=1.5)),  # type: ignore[arg-type]
        GenerationRequest(PROMPT, stop=StopOptions(max_tokens=True)),
        GenerationRequest(PROMPT, stop=StopOptions(max_tokens="5")),  # type: ignore[arg-type]
        GenerationRequest(PROMPT, stop=StopOptions(strings="time")),
        GenerationRequest(PROMPT, stop=StopOptions(strings=("\ud800",))),
    ],
    ids=["messages", "bytes", "none", "fraction", "bool", "text", "one string", "surrogate"],
)
def test_what_is_of_another_type_is_refused_by_name(model: LanguageModel, request_: GenerationRequest) -> None:
    with pytest.raises(InvalidArgument, match=r"FIELD_INVALID: (prompt|token_ids|sampling|stop)"):
        model.generate(request_)


def test_a_wait_for_a_closed_model_fails() -> None:
    model = imp_service.load()
    generation = model.generate(GenerationRequest(PROMPT, GREEDY, StopOptions(max_tokens=400, ignore_eos=True)))
    next(generation)
    model.close()
    with pytest.raises(Error, match="CANCELLED"):
        list(generation)
    with pytest.raises(Error, match="CANCELLED"):
        model.generate(PROMPT)

"""Negative controls of joined streams: with each mistake in a front or a server the answer is not the golden one."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from imp_service.core import EngineClient, Error
from imp_service.front.relay.events import MARK, MarkedReader, Told
from imp_service.generation.fold import GenerationFold
from imp_service.text.constraints.state import ConstraintState
from support.servers.cut_after import cut_after
from support.servers.front_answers import ALONE, REQUESTS
from support.servers.front_served import front_served, plain, ready
from support.servers.http_served import HttpServed, serve_http
from support.servers.messages_served import serve_template
from support.servers.served_models import built_in
from support.text.tool_templates import HERMES

N_CUTS = 5
ERROR = b'"error":'


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpServed]:
    with serve_template(tmp_path_factory.mktemp("here"), HERMES, *ALONE) as it:
        yield it


def cut_answers(here: HttpServed, there: HttpServed, name: str) -> tuple[list[str], list[bytes]]:
    """The golden answer, and answers that were cut in the middle: each began here and went on there."""
    path, body = REQUESTS[name]
    rng = random.Random(name)

    async def run() -> tuple[list[str], list[bytes]]:
        async with (
            cut_after(here.address.port) as first,
            cut_after(there.address.port) as second,
            front_served([first.address, second.address]) as served,
        ):
            url = f"http://127.0.0.1:{here.address.port}{path}"
            golden = await served.session.post(url, json={**body, "stream": True})
            marked = await served.session.post(url, json={**body, "stream": True, "resume": {}})
            n_bytes, found = len(await marked.read()), []
            for _ in range(N_CUTS):
                await ready(served, 2)
                first.n_left = rng.randrange(n_bytes // 2, n_bytes * 4 // 5)
                found.append((await served.get(path, "POST", json={**body, "stream": True})).content)
                first.n_left = None
            assert first.n_cut == N_CUTS
            return plain(await golden.read()), found

    return asyncio.run(run())


@pytest.mark.parametrize("name", ["chat", "chat, n = 2", "chat, schema", "completions"])
def test_iso_2_without_a_mistake_every_answer_is_the_golden_one(here: HttpServed, name: str) -> None:
    golden, found = cut_answers(here, here, name)
    assert [plain(content) for content in found] == [golden] * N_CUTS


def told_but_not_given(patch: pytest.MonkeyPatch) -> None:
    """The front drops one output on its way to the client."""
    finish = MarkedReader._finish_unit

    def forgetful(reader: MarkedReader, given: list[Any]) -> None:
        before = [*given]
        finish(reader, given)
        if reader._mark.get("told") and reader._told.n_tokens == 3:
            given[:] = before

    patch.setattr(MarkedReader, "_finish_unit", forgetful)


def changed_ids(change: Callable[[list[int]], list[int]]) -> Callable[[pytest.MonkeyPatch], None]:
    """The front tells the next server other outputs than the client has."""
    sequence = Told._sequence

    def changed(told: Told, index: int) -> dict[str, Any]:
        found = sequence(told, index)
        found.pop("chunks", None)
        return {**found, "token_ids": change(found["token_ids"])}

    return lambda patch: patch.setattr(Told, "_sequence", changed)


def joined_in_mid_event(patch: pytest.MonkeyPatch) -> None:
    """The front gives bytes on before the event is complete."""
    feed = MarkedReader.feed
    early: dict[MarkedReader, int] = {}

    def hasty(reader: MarkedReader, piece: bytes) -> bytes:
        n_given = early.pop(reader, 0)
        given, rest = feed(reader, piece), b""
        if reader._n_missing and not reader._unit and not MARK.startswith(reader._rest[: len(MARK)]):
            rest = bytes(reader._rest)
            early[reader] = len(rest)
        return (given + rest)[n_given:]

    patch.setattr(MarkedReader, "feed", hasty)


def other_commands(change: Callable[[list[int], dict[str, Any]], list[int]]) -> Callable[[pytest.MonkeyPatch], None]:
    """The server asks its engine for something else where a generation goes on."""
    engine = EngineClient.engine

    class Changed:
        def __init__(self, whole: Any) -> None:
            self._whole = whole

        def __getattr__(self, name: str) -> Any:
            return getattr(self._whole, name)

        def generate(self, ticket: int, sequence: int, prompt: list[int], **options: Any) -> None:
            if options["told"]:
                prompt = change(prompt, options)
            self._whole.generate(ticket, sequence, prompt, **options)

    def get(client: EngineClient) -> Any:
        assert engine.fget is not None  # narrows
        return Changed(engine.fget(client))

    return lambda patch: patch.setattr(EngineClient, "engine", property(get))


def begins_one_later(prompt: list[int], options: dict[str, Any]) -> list[int]:
    """The first told output counts as one of the prompt, so every draw has the number before its own."""
    told = options["told"]
    first = told[0][0][:1]
    options["told"] = [(ids[1:], is_finished) for ids, is_finished in told]
    return [*prompt, *first]


def draws_from_the_other_stream(prompt: list[int], options: dict[str, Any]) -> list[int]:
    """Each sequence goes on with the outputs of its sibling, from its own random stream."""
    options["told"] = options["told"][::-1]
    return prompt


def forgotten_mask(patch: pytest.MonkeyPatch) -> None:
    """The constraint does not follow the told outputs."""
    patch.setattr(ConstraintState, "accept_all", lambda state, token_ids: len(token_ids))
    patch.setattr("imp_service.generation.fold.allows", lambda mask, token: True)


MISTAKES: dict[str, tuple[str, Callable[[pytest.MonkeyPatch], None]]] = {
    "an output is told and not given": ("chat", told_but_not_given),
    "the last output is not told": ("chat", changed_ids(lambda ids: ids[:-1])),
    "an output is not told": ("chat", changed_ids(lambda ids: ids[:1] + ids[2:])),
    "an output is told twice": ("chat", changed_ids(lambda ids: ids[:2] + ids[1:])),
    "the last output is told twice": ("completions", changed_ids(lambda ids: [*ids, *ids[-1:]])),
    "the front joins in mid-event": ("chat", joined_in_mid_event),
    "the base is off by one": ("chat", other_commands(begins_one_later)),
    "a sibling has another stream": ("chat, n = 2", other_commands(draws_from_the_other_stream)),
    "a mask is forgotten": ("chat, schema", forgotten_mask),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_iso_2_rsm_17_negative_control_a_mistake_is_seen(
    here: HttpServed, monkeypatch: pytest.MonkeyPatch, mistake: str
) -> None:
    name, make = MISTAKES[mistake]
    make(monkeypatch)
    golden, found = cut_answers(here, here, name)
    # A cut may meet the border of two events.
    assert sum(plain(content) == golden for content in found) < N_CUTS // 2


@pytest.fixture(scope="module")
def changed(here: HttpServed, tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpServed]:
    """A server with other arithmetic that says to be the same."""
    path = tmp_path_factory.mktemp("changed") / "chat.jinja"
    path.write_text(HERMES)
    settings = (f"model.overrides.chat_template={path}", *ALONE, "model.overrides.rope_theta=20")
    with serve_http(*settings, model=replace(built_in(), canary=None)) as it:
        it.served.state.model.__dict__["fingerprint"] = here.served.state.model.fingerprint
        yield it


def test_rsm_12_another_model_is_an_error_and_not_other_tokens(here: HttpServed, changed: HttpServed) -> None:
    golden, found = cut_answers(here, changed, "chat")
    ends = [content.removesuffix(b"\n\n").rpartition(b"\n\n") for content in found]
    refused = [(plain(sent), error) for sent, _, error in ends if ERROR in error]
    # Of the tokens that two models draw at one place, some are the same.
    assert len(refused) > N_CUTS // 2
    for sent, error in refused:
        assert b"another token" in error
        assert sent == golden[: len(sent)]


def test_rsm_12_negative_control_without_the_seam_its_tokens_are_told(
    here: HttpServed, changed: HttpServed, monkeypatch: pytest.MonkeyPatch
) -> None:
    meet = GenerationFold._meet

    def trusting(fold: GenerationFold, stream: Any, event: Any) -> bool:
        try:
            return meet(fold, stream, event)
        except Error:
            fold._pass(stream, fold._seams[stream.index])
            return True

    monkeypatch.setattr(GenerationFold, "_meet", trusting)
    golden, found = cut_answers(here, changed, "chat")
    assert [ERROR in content or plain(content) == golden for content in found] == [False] * N_CUTS

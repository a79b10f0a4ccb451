"""Requests of megabytes are read off the event loop in pieces, and other requests are served between two pieces."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence

import pytest

from imp_service.api import rules
from imp_service.generation import prompt_reader
from imp_service.pb import inference_pb2 as pb
from imp_service.pb import types_pb2
from support.calls.failed_calls import failed
from support.calls.session_calls import SessionCalls
from support.run.patience import HANGS_AFTER
from support.servers.served import Served, ask, serve, tokens_of
from support.servers.served_models import ENDLESS, scripted

CONTEXT = ENDLESS["max_context"]
# As many ids of three bytes as limits.max_message_bytes allows.
MOST = 1_300_000


@pytest.fixture
def served() -> Iterator[Served]:
    with serve(model=scripted(**ENDLESS)) as server:
        yield server


@pytest.fixture
def pieces(served: Served, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Collects the sizes of the pieces; before each, another generation is served completely."""
    found: list[int] = []
    whole = rules.token_pieces
    stub = served.inference

    def singing(tokens: Sequence[int]) -> Iterator[tuple[int, Sequence[int]]]:
        for first, piece in whole(tokens):
            if len(tokens) > 1:
                assert threading.current_thread().name != "test-loop", "a piece is read on the event loop"
                assert tokens_of(list(stub.Generate(ask([700], 2), timeout=HANGS_AFTER))) == [701, 702]
                found.append(len(piece))
            yield first, piece

    for module in (rules, prompt_reader):
        monkeypatch.setattr(module, "token_pieces", singing)
    return found


def by_generate(served: Served, ids: Sequence[int]) -> int:
    return len(tokens_of(list(served.inference.Generate(ask(ids, 1)))))


def by_unary(served: Served, ids: Sequence[int]) -> int:
    reply = served.inference.GenerateUnary(pb.GenerateUnaryRequest(request=ask(ids, 1)))
    return len(reply.sequences[0].output.token_ids)


def by_prefill(served: Served, ids: Sequence[int]) -> int:
    calls = SessionCalls(served)
    first = calls.prefill(ids, "large", position=0)
    assert calls.prefill(ids, "large", position=0) == first
    assert calls.stub.ReleaseSession(pb.ReleaseSessionRequest(session_id="large")).released
    return int(first.output.HasField("token_id"))


def by_stream(served: Served, ids: Sequence[int]) -> int:
    prefill = pb.PrefillRequest(token_ids=types_pb2.TokenIds(ids=ids), session_id="large", position=0)
    (reply,) = served.inference.DecodeStream(iter([pb.DecodeStreamRequest(prefill=prefill)]))
    return int(reply.prefill.output.HasField("token_id"))


WAYS = pytest.mark.parametrize("way", [by_generate, by_unary, by_prefill, by_stream])


@pytest.mark.few(2)
@WAYS
def test_a_long_prompt_is_read_in_pieces_beside_other_streams(
    served: Served, pieces: list[int], way: Callable[[Served, Sequence[int]], int]
) -> None:
    n = 3 * rules.PIECE_TOKENS + 5
    assert way(served, [300 + i % 500 for i in range(n)]) == 1
    assert max(pieces) == rules.PIECE_TOKENS
    # Once for the field rules, and once more for the evaluation.
    assert sum(pieces) >= 2 * n


@pytest.mark.long
def test_p18_s15_a_prompt_beyond_the_context_is_refused_before_it_is_copied(served: Served, pieces: list[int]) -> None:
    ids = [1] * MOST
    for _ in range(2):
        refused = failed(lambda: by_generate(served, ids))
        assert (refused.code, refused.reason) == ("OUT_OF_RANGE", "CONTEXT_TOO_LONG")
        assert refused.metadata == {"prompt_tokens": str(MOST), "max_context_tokens": str(CONTEXT)}
    refused = failed(lambda: by_prefill(served, ids))
    assert (refused.code, refused.reason) == ("OUT_OF_RANGE", "CONTEXT_TOO_LONG")
    # The fields are still validated, and nothing more.
    assert sum(pieces) == 3 * MOST
    assert len(served.state.sessions) == 0

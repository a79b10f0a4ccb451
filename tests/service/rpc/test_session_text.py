"""Text of steps: whole characters, also after a session is truncated or a token replaced."""

from collections.abc import Iterator, Sequence

import pytest

from imp_service.pb import inference_pb2 as pb
from support.calls.session_calls import SessionCalls, refusal
from support.servers.served import serve
from support.servers.served_models import tiny_with_text

EMOJI = "😀".encode()


class Spoken:
    """A session whose sampled tokens the test chooses, one byte each."""

    def __init__(self, calls: SessionCalls) -> None:
        self._calls = calls
        model = calls.served.state.model
        self._ids = {
            content[0]: token
            for token in range(model.tokenizer.vocab_size)
            if len(content := model.tokenizer.token_bytes(token)) == 1
        }
        self._n_bytes = (model.vocab_size + 7) // 8
        self.name = ""

    def open(self, first: int) -> str:
        """Opens the session, samples the first byte, and returns its text."""
        opened = self._calls.prefill([self._ids[ord("a")]], step=self._only(first))
        self.name = opened.session_id
        return opened.output.text

    def say(self, byte: int, given: Sequence[int] = ()) -> str:
        """Samples a byte after the pending token, or after the `given` bytes in its place."""
        output = self._calls.step(self.name, [self._ids[each] for each in given], step=self._only(byte))
        assert output.token_id == self._ids[byte]
        return output.text

    def _only(self, byte: int) -> pb.StepOptions:
        mask = bytearray(self._n_bytes)
        mask[self._ids[byte] // 8] |= 1 << self._ids[byte] % 8
        return pb.StepOptions(allowed_token_mask=bytes(mask))


@pytest.fixture(scope="module")
def calls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SessionCalls]:
    with serve(model=tiny_with_text(tmp_path_factory.mktemp("model"))) as running:
        yield SessionCalls(running)


def test_ses_30_a_character_is_reported_when_it_is_whole(calls: SessionCalls) -> None:
    spoken = Spoken(calls)
    texts = [spoken.open(EMOJI[0]), *(spoken.say(byte) for byte in EMOJI[1:]), spoken.say(ord("!"))]
    assert texts == ["", "", "", "😀", "!"]


def test_ses_30_a_replaced_token_takes_what_was_held_with_it(calls: SessionCalls) -> None:
    """The second token of an emoji is replaced: by the same byte, and by a letter."""
    spoken = Spoken(calls)
    assert [spoken.open(EMOJI[0]), spoken.say(ord("x"))] == ["", "\ufffdx"]
    # The emoji's next byte replaces x.
    assert [spoken.say(EMOJI[2], given=EMOJI[1:2]), spoken.say(EMOJI[3])] == ["", "😀"]

    spoken = Spoken(calls)
    assert [spoken.open(EMOJI[0]), spoken.say(EMOJI[1])] == ["", ""]
    assert [spoken.say(EMOJI[0], given=b"h"), *(spoken.say(byte) for byte in EMOJI[1:])] == ["", "", "", "😀"]


def test_ses_30_truncation_goes_back_to_what_was_held_there(calls: SessionCalls) -> None:
    spoken = Spoken(calls)
    spoken.open(EMOJI[0])
    for byte in b"\x9f\x98!":
        spoken.say(byte)
    # Held: a, and the first three bytes of the emoji. The truncation leaves the first two bytes.
    assert calls.truncate(spoken.name, 3) == 3
    assert [spoken.say(EMOJI[3], given=EMOJI[2:3]), spoken.say(ord("."))] == ["😀", "."]


def test_ses_30_a_fork_holds_what_its_parent_held(calls: SessionCalls) -> None:
    spoken = Spoken(calls)
    spoken.open(EMOJI[0])
    assert [spoken.say(byte) for byte in EMOJI[1:3]] == ["", ""]
    copy, twin = Spoken(calls), Spoken(calls)
    copy.name, twin.name = (calls.fork(spoken.name).session_id for _ in range(2))
    assert copy.say(ord("?")) == "\ufffd?"
    assert twin.say(EMOJI[3]) == "😀"  # its pending token is the third byte
    assert spoken.say(EMOJI[3]) == "😀"


@pytest.mark.long
def test_gen_12_a_prefill_without_tokens_is_refused(calls: SessionCalls) -> None:
    n_rows = calls.served.stats().n_prefill_rows
    for request, path in (
        (pb.PrefillRequest(text=""), "text"),
        (pb.PrefillRequest(token_ids={"ids": []}), "token_ids.ids"),
        (pb.PrefillRequest(), "input"),
    ):
        found = refusal(lambda: calls.stub.Prefill(request))  # noqa: B023
        assert (found.reason, found.paths) == ("FIELD_INVALID", [path])
        (answer,) = calls.stub.DecodeStream(iter([pb.DecodeStreamRequest(prefill=request)]))
        assert answer.error.reason == "FIELD_INVALID" and f"prefill.{path}" in answer.error.message
    assert calls.served.stats().n_prefill_rows == n_rows
    assert calls.prefill([7]).output.position == 1

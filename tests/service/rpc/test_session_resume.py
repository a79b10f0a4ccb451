"""What a caller of any language needs to go on with a session: origin and tokens, and a prefill with `resume`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from imp_service.pb import inference_pb2 as pb
from imp_service.pb import types_pb2
from support.calls.generations import counted
from support.calls.session_calls import WARM, SessionCalls, calls_at_rest, prefill, refusal
from support.servers.served import Served, serve

PROMPT = "Once upon a time 🙂"
EMOJI = "🙂".encode()


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with serve() as running:
        yield running


@pytest.fixture
def calls(served: Served) -> Iterator[SessionCalls]:
    yield from calls_at_rest(served)


def begun(calls: SessionCalls) -> pb.PrefillResponse:
    """Returns the reply to the prefill of a session that its caller keeps."""
    return calls.prefill(PROMPT, sampling=WARM, resumable=True)


def going_on(reply: pb.PrefillResponse, *more: int, **resume: Any) -> pb.PrefillRequest:
    """Returns a request that goes on with a session, which holds the tokens of its prefill and more."""
    ids = [*reply.prompt_token_ids, *more]
    request = prefill(ids, position=0, session_id="again", sampling=WARM, base=reply.base, resumable=True)
    request.resume.origin.CopyFrom(reply.origin)
    for name, value in resume.items():
        setattr(request.resume, name, value)
    return request


def test_ses_33_a_prefill_tells_what_is_needed_to_go_on_if_it_is_asked(calls: SessionCalls) -> None:
    reply = begun(calls)
    assert calls.served.state.model.tokenizer.encode(PROMPT) == list(reply.prompt_token_ids)
    assert reply.output.position == len(reply.prompt_token_ids) == reply.base
    assert reply.origin.server == calls.served.state.model.fingerprint.digest
    assert reply.origin.seed == WARM.seed
    more = calls.prefill([5, 6], reply.session_id, resumable=True)
    assert (more.origin.server, more.origin.request) == (reply.origin.server, reply.origin.request)
    assert not more.prompt_token_ids  # the request has them
    plain = calls.prefill(PROMPT)
    assert not plain.HasField("origin") and not plain.prompt_token_ids


def test_ses_33_a_session_goes_on_behind_any_step(calls: SessionCalls) -> None:
    reply = begun(calls)
    name, tokens = reply.session_id, [reply.output.token_id]
    outputs = [reply.output]
    for _ in range(12):
        outputs.append(calls.step(name))
        tokens.append(outputs[-1].token_id)
    n_sampled = counted(calls.served, "imp_output_tokens_total")
    n_resumed = counted(calls.served, "imp_resumed_total")
    for i in range(12):
        again = calls.stub.Prefill(going_on(reply, *tokens[:i], token_id=tokens[i], text_from=reply.base))
        assert again.output.SerializeToString() == outputs[i].SerializeToString()
        assert again.base == reply.base
        assert counted(calls.served, "imp_output_tokens_total") == n_sampled  # it was counted where it was drawn
        assert calls.step("again") == outputs[i + 1]
        n_sampled += 1
        assert calls.release("again")
    assert counted(calls.served, "imp_resumed_total") == n_resumed + 12


def spelled(token: int, n_tokens: int) -> pb.StepOptions:
    """Returns the options of a step that draws this token."""
    mask = bytearray(-(-n_tokens // 8))
    mask[token >> 3] = 1 << (token & 7)
    return pb.StepOptions(allowed_token_mask=bytes(mask))


def test_ses_33_the_text_goes_on_in_the_middle_of_a_character(calls: SessionCalls) -> None:
    model = calls.served.state.model
    ids = model.tokenizer.encode("🙂", add_special_tokens=False)
    assert len(ids) == len(EMOJI)
    reply = begun(calls)
    name = reply.session_id
    texts = [calls.step(name, step=spelled(token, model.vocab_size)).text for token in ids]
    assert texts == ["", "", "", "🙂"]
    first = reply.output.token_id
    for n in range(1, len(ids)):
        request = going_on(reply, first, *ids[: n - 1], token_id=ids[n - 1], text_from=reply.base)
        request.step.CopyFrom(spelled(ids[n - 1], model.vocab_size))
        calls.stub.Prefill(request)
        rest = [calls.step("again", step=spelled(token, model.vocab_size)).text for token in ids[n:]]
        assert rest == texts[n:]
        calls.release("again")
    # A text that begins behind the pending token knows nothing of it.
    request = going_on(reply, first, *ids[:1], token_id=ids[1], text_from=reply.base + 3)
    request.step.CopyFrom(spelled(ids[1], model.vocab_size))
    assert calls.stub.Prefill(request).output.text == ""
    rest = [calls.step("again", step=spelled(token, model.vocab_size)).text for token in ids[2:]]
    assert "🙂" not in "".join(rest)


def test_ses_33_a_token_that_a_generation_drew_is_taken_as_it_is(calls: SessionCalls) -> None:
    reply = begun(calls)
    other = (reply.output.token_id + 1) % 300
    taken = calls.stub.Prefill(going_on(reply, token_id=other, taken=True))
    assert taken.output.token_id == other
    expected = calls.step(reply.session_id, [other])
    assert calls.step("again") == expected


def test_ses_33_another_token_is_met_at_the_seam_of_a_session(calls: SessionCalls) -> None:
    reply = begun(calls)
    n_before = counted(calls.served, "imp_resume_mismatch_total", differs="token")
    wrong = going_on(reply, token_id=reply.output.token_id + 1)
    found = refusal(lambda: calls.stub.Prefill(wrong))
    assert (found.reason, found.metadata) == ("RESUME_MISMATCH", {"differs": "resume.token_id"})
    assert counted(calls.served, "imp_resume_mismatch_total", differs="token") == n_before + 1
    calls.served.wait_until(lambda: calls.served.state.model.client.engine.stats().sessions == 1, "closed")
    # Also where it follows another prefill of the session: nothing of it stays.
    opened = calls.stub.Prefill(prefill(list(reply.prompt_token_ids[:2]), "again", position=0, sampling=WARM))
    wrong = going_on(reply, token_id=reply.output.token_id + 1)
    wrong.position = opened.output.position
    del wrong.token_ids.ids[:2]
    assert refusal(lambda: calls.stub.Prefill(wrong)).reason == "RESUME_MISMATCH"
    calls.served.wait_until(lambda: calls.served.state.model.client.engine.stats().sessions == 1, "closed")


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "no origin": ({"origin": pb.Origin()}, "resume.origin.server"),
    "half an origin": ({"origin": pb.Origin(server="a" * 16)}, "resume.origin.request"),
    "no token": ({"token_id": 10**6}, "resume.token_id"),
    "taken without a token": ({"taken": True}, "resume.taken"),
    "a text that begins before it": ({"text_from": 10**6}, "resume.text_from"),
}


@pytest.mark.parametrize("name", WRONG)
def test_ses_33_wrong_fields_are_refused_with_their_path(calls: SessionCalls, name: str) -> None:
    fields, path = WRONG[name]
    request = going_on(begun(calls))
    request.resume.MergeFrom(pb.SessionResume(**{k: v for k, v in fields.items() if k != "origin"}))
    if "origin" in fields:
        request.resume.origin.CopyFrom(fields["origin"])
    found = refusal(lambda: calls.stub.Prefill(request))
    assert found.reason == "FIELD_INVALID"
    assert path in found.paths


def test_ses_33_a_pending_token_needs_a_step_that_samples(calls: SessionCalls) -> None:
    request = going_on(begun(calls), token_id=5)
    request.step.sample = False
    assert refusal(lambda: calls.stub.Prefill(request)).paths == ["resume.token_id"]


@pytest.mark.parametrize("differs", ["server", "request"])
def test_ses_33_another_origin_is_refused(calls: SessionCalls, differs: str) -> None:
    request = going_on(begun(calls))
    setattr(request.resume.origin, differs, "0" * (16 if differs == "server" else 32))
    n_rows = calls.served.stats().n_prefill_rows
    n_before = counted(calls.served, "imp_resume_mismatch_total", differs=differs)
    assert refusal(lambda: calls.stub.Prefill(request)).metadata == {"differs": differs}
    assert calls.served.stats().n_prefill_rows == n_rows
    assert counted(calls.served, "imp_resume_mismatch_total", differs=differs) == n_before + 1


def test_ses_22_a_sampler_of_a_step_that_failed_is_not_in_force(calls: SessionCalls) -> None:
    name = calls.prefill(PROMPT, sampling=WARM, step=pb.StepOptions(sample=False)).session_id
    hot = types_pb2.SamplingOptions(temperature=2.0, seed=99)
    assert refusal(lambda: calls.step(name, sampling=hot)).reason == "NO_PENDING_TOKEN"
    started = next(iter(calls.stub.Generate(pb.GenerateRequest(session_id=name, stop={"max_tokens": 1})))).started
    assert (started.seed, started.sampling.temperature) == (WARM.seed, WARM.temperature)

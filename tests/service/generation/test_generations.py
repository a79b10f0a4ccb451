"""Generations on the built-in model: the order of replies, ends, scores, siblings, constraints, cancelling."""

import json
import math
import re
from dataclasses import replace

import numpy as np
import pytest

import imp_service
from imp_service import (
    ChatMessage,
    ChatPrompt,
    ConstraintKind,
    ConstraintSpec,
    GenerationRequest,
    LanguageModel,
    OutputOptions,
    SamplingOptions,
    StepOptions,
    StopOptions,
    core,
)
from imp_service.api.replies import Chunk, Finished, Started
from imp_service.config import read_settings
from imp_service.core import InvalidArgument
from imp_service.generation import ModelRuntime
from support.calls.workload import run, run_together
from support.oracles import tolerances

GREEDY = SamplingOptions(temperature=0.0)
PROMPT = "Once upon a time"


def request(max_tokens: int | None = 16, prompt: object = PROMPT, **fields: object) -> GenerationRequest:
    stop = fields.pop("stop", StopOptions(max_tokens=max_tokens))
    return GenerationRequest(prompt, **{"sampling": GREEDY, "stop": stop, **fields})  # type: ignore[arg-type]


def blocks_in_use(library: LanguageModel) -> int:
    return library._runtime.client.engine.stats().blocks_live


def test_gen_9_rpc_1_rpc_2_replies_are_started_chunks_finished(library: LanguageModel) -> None:
    for n in (1, 2, 16):
        replies = list(library.generate(request(stop=StopOptions(max_tokens=n, ignore_eos=True))))
        assert [type(reply) for reply in (replies[0], replies[-1])] == [Started, Finished]
        chunks = replies[1:-1]
        assert all(isinstance(chunk, Chunk) for chunk in chunks)
        sent = 0
        for chunk in chunks:
            assert chunk.first_token == sent
            sent += len(chunk.token_ids)
        assert sent == n == replies[-1].usage.output_tokens
        assert replies[-1].reason == "max_tokens"


def test_gen_8_a_generation_may_be_cut_anywhere(library: LanguageModel) -> None:
    for sampling in (GREEDY, SamplingOptions(temperature=0.9, seed=7)):
        whole = run(library, request(32, sampling=sampling)).token_ids
        with library.open(sampling) as session:
            first = session.prefill(PROMPT).token_id
            pieces: list[int] = [first]
            for n in (4, 9, 18):
                on = GenerationRequest("", stop=StopOptions(max_tokens=n))
                pieces += [t for r in session.generate(on) if isinstance(r, Chunk) for t in r.token_ids]
        assert tuple(pieces) == whole


def test_gen_11_no_output_is_asked_for(library: LanguageModel) -> None:
    scored = OutputOptions(prompt_logprobs=True)
    started, finished = library.generate(request(0, prompt=list(range(300, 340)), output=scored))
    assert (finished.reason, finished.usage.output_tokens) == ("max_tokens", 0)
    assert started.prompt.token_ids == []  # no ids without a request for them
    assert len(started.prompt.logprobs) == 40
    again = next(library.generate(request(0, prompt=list(range(300, 340)))))
    assert again.cached_prompt_tokens == 32


def test_gen_13_gen_14_the_context_bounds_what_runs(library: LanguageModel) -> None:
    context = library.max_context
    prompt = [300 + i % 40 for i in range(context)]
    with pytest.raises(InvalidArgument, match="CONTEXT_TOO_LONG"):
        list(library.generate(request(1, prompt=[*prompt, 300])))
    with pytest.raises(InvalidArgument, match="CONTEXT_TOO_LONG"):
        list(library.generate(request(2, prompt=prompt)))
    assert len(run(library, request(1, prompt=prompt)).token_ids) == 1
    assert len(run(library, request(2, prompt=prompt[:-1])).token_ids) == 2
    for held, expected in ((context - 2, 3), (context, 1)):
        outcome = run(library, request(prompt=prompt[:held], stop=StopOptions(ignore_eos=True)))
        assert (len(outcome.token_ids), outcome.reason) == (expected, "context_full")


def test_gen_19_leaving_early_cancels(library: LanguageModel) -> None:
    before = blocks_in_use(library)
    generation = library.generate(request(400, stop=StopOptions(max_tokens=400, ignore_eos=True)))
    tokens: list[int] = []
    for reply in generation:
        tokens += reply.token_ids if isinstance(reply, Chunk) else []
        if len(tokens) >= 3:
            break
    generation.close()
    whole = run(library, request(400, stop=StopOptions(max_tokens=400, ignore_eos=True))).token_ids
    assert tuple(tokens) == whole[: len(tokens)]
    with library.open() as session:  # its answer comes after the step that processed the cancel
        session.prefill("a")
    assert blocks_in_use(library) <= before + 1


def test_gen_20_siblings_share_the_prompt_and_draw_apart(library: LanguageModel) -> None:
    sampling = SamplingOptions(temperature=1.0, seed=11)
    alone = run(library, request(12, sampling=sampling)).token_ids
    replies = list(library.generate(request(12, sampling=sampling, num_sequences=4)))
    outputs = {i: [t for r in replies if isinstance(r, Chunk) and r.index == i for t in r.token_ids] for i in range(4)}
    ends = [r for r in replies if isinstance(r, Finished)]
    assert tuple(outputs[0]) == alone
    assert len({tuple(tokens) for tokens in outputs.values()}) == 4
    assert sorted(end.index for end in ends) == [0, 1, 2, 3]
    assert [end.usage is None for end in ends] == [True, True, True, False]
    assert ends[-1].usage.output_tokens == sum(map(len, outputs.values()))


def test_gen_26_smp_22_scores_agree_with_a_float64_softmax(library: LanguageModel) -> None:
    prompt = library._runtime.tokenizer.encode("The weather today is cold, and Tom has a red hat.")
    with library.open(GREEDY) as session:
        rows = [session.prefill([prompt[0]], StepOptions(sample=False, logits=True))]
        rows += [session.decode_step([t], StepOptions(sample=False, logits=True)) for t in prompt[1:]]
    logits = [np.frombuffer(row.logits, dtype="<f4").astype(np.float64) for row in rows]
    norms = [row.max() + np.log(np.exp(row - row.max()).sum()) for row in logits]
    expected = [logits[i][token] - norms[i] for i, token in enumerate(prompt[1:])]
    for chunk in (1, 7, 512):
        with imp_service.load(None, f"scheduler.prefill_chunk={chunk}") as other:
            started = next(other.generate(request(0, prompt=prompt, output=OutputOptions(prompt_logprobs=True))))
        assert math.isnan(started.prompt.logprobs[0])
        assert np.abs(np.array(started.prompt.logprobs[1:]) - np.array(expected)).max() < tolerances.LOGPROB
    shifted = np.abs(np.array(started.prompt.logprobs[1:]) - np.roll(expected, 1)).max()
    assert shifted > 100 * tolerances.LOGPROB


def test_smp_5_smp_20_the_echoed_seed_gives_the_answer_again(library: LanguageModel) -> None:
    hot = request(24, sampling=SamplingOptions(temperature=2.0))
    replies = [list(library.generate(hot)) for _ in range(2)]
    texts = ["".join(r.text for r in each) for each in replies]
    assert texts[0] != texts[1]
    again = replace(hot, sampling=replace(hot.sampling, seed=replies[0][0].seed))
    assert run(library, again).text == texts[0]


def test_smp_19_unset_takes_the_models_default_and_zero_is_zero() -> None:
    with imp_service.load(None, "model.overrides.default_sampling.temperature=5.0") as library:
        unset = [run(library, request(16, sampling=SamplingOptions(seed=s))).token_ids for s in range(4)]
        zero = [run(library, request(16, sampling=SamplingOptions(seed=s, temperature=0))).token_ids for s in range(4)]
    assert len(set(unset)) == 4
    assert len(set(zero)) == 1


@pytest.mark.parametrize("text", [True, False])
def test_txt_3_txt_7_stop_strings_end_ids_and_text(library: LanguageModel, text: bool) -> None:
    free = run(library, request(40))
    stop = StopOptions(max_tokens=40, strings=(" lived",))
    replies = list(library.generate(request(stop=stop, output=OutputOptions(text=text))))
    ids = [t for r in replies if isinstance(r, Chunk) for t in r.token_ids]
    whole = library._runtime.tokenizer.decode(ids)
    assert tuple(ids) == free.token_ids[: len(ids)]
    assert whole.endswith(" lived") and whole.count(" lived") == 1
    assert "".join(r.text for r in replies) == (whole.removesuffix(" lived") if text else "")
    assert (replies[-1].reason, replies[-1].match.text) == ("stop", " lived")
    kept = run(library, request(stop=replace(stop, include_match=True)))
    assert kept.text == whole


def test_txt_1_txt_3_a_stop_token_is_named_and_not_delivered(library: LanguageModel) -> None:
    free = run(library, request(10)).token_ids
    stop = StopOptions(max_tokens=10, token_ids=(free[5],))
    cut = free.index(free[5])
    replies = list(library.generate(request(stop=stop)))
    assert tuple(t for r in replies if isinstance(r, Chunk) for t in r.token_ids) == free[:cut]
    assert (replies[-1].match.token_id, replies[-1].usage.output_tokens) == (free[5], cut)
    assert run(library, request(stop=replace(stop, include_match=True))).token_ids == free[: cut + 1]


SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 12}, "legs": {"type": "integer", "maximum": 99}},
    "required": ["name", "legs"],
    "additionalProperties": False,
}
LANGUAGES = {
    "schema": ConstraintSpec(ConstraintKind.JSON_SCHEMA, json.dumps(SCHEMA)),
    "regex": ConstraintSpec(ConstraintKind.REGEX, r"(ab|cd){1,3}[0-9]{2}"),
    "gbnf": ConstraintSpec(ConstraintKind.GBNF, 'root ::= "<" item ("," item){0,2} ">"\nitem ::= [a-f] [0-9]?'),
    "choices": ConstraintSpec(ConstraintKind.CHOICES, choices=("yes", "no", "yes, but later")),
    "object": ConstraintSpec(ConstraintKind.JSON_OBJECT),
}


ASKED = ChatPrompt((ChatMessage("user", "Give me a JSON object describing a cat."),))


def is_member(kind: str, text: str) -> bool:
    if kind in ("schema", "object"):
        value = json.loads(text)
        if kind == "object":
            return isinstance(value, dict)
        return set(value) == {"name", "legs"} and isinstance(value["legs"], int) and len(value["name"]) <= 12
    if kind == "choices":
        return text in LANGUAGES[kind].choices
    pattern = r"(ab|cd){1,3}[0-9]{2}" if kind == "regex" else r"<[a-f][0-9]?(,[a-f][0-9]?){0,2}>"
    return re.fullmatch(pattern, text) is not None


@pytest.mark.few(2)
@pytest.mark.parametrize("kind", LANGUAGES)
def test_txt_20_txt_23_finished_outputs_are_in_the_language(library: LanguageModel, kind: str) -> None:
    heat = 20.0 if kind == "choices" else 0.9  # the first tokens of the three choices have very different probabilities
    requests = [
        request(200, prompt=ASKED, sampling=SamplingOptions(temperature=heat, seed=s), constraint=LANGUAGES[kind])
        for s in range(24)
    ]
    outcomes = run_together(library, requests, 8)
    finished = [o.text for o in outcomes if o.reason == "stop"]
    assert len(finished) > len(outcomes) // 2
    assert [text for text in finished if not is_member(kind, text)] == []
    assert len(set(finished)) > 1
    with pytest.raises((AssertionError, ValueError)):
        assert is_member(kind, "A story: " + finished[0])


def test_txt_21_constraints_hold_in_any_batch(library: LanguageModel) -> None:
    kinds = ["schema", "regex", None, "object"]
    requests = [
        request(60, sampling=SamplingOptions(temperature=1.0, seed=3), constraint=None if k is None else LANGUAGES[k])
        for k in kinds
    ]
    alone = [run(library, each) for each in requests]
    assert run_together(library, requests, 4) == alone


def test_violations_are_reported_all_at_once(library: LanguageModel) -> None:
    bad = request(4, sampling=SamplingOptions(temperature=-1.0, top_p=float("nan")), num_sequences=9)
    with pytest.raises(InvalidArgument) as caught:
        library.generate(bad)
    assert caught.value.reason == "FIELD_INVALID"
    named = ("sampling.temperature", "sampling.top_p", "num_sequences")
    assert [path for path in named if path not in str(caught.value)] == []


def test_time_limit_ends_with_the_output_so_far() -> None:
    now = [0.0]
    with LanguageModel(
        ModelRuntime(core.load_weights(read_settings(None, ["device.threads=1"])), lambda: now[0])
    ) as library:
        generation = library.generate(request(stop=StopOptions(ignore_eos=True, time_limit=5.0, max_tokens=400)))
        first = next(reply for reply in generation if isinstance(reply, Chunk))
        generation.pause(True)
        now[0] = 6.0
        *_, last = generation
    assert first.first_token == 0
    assert last.reason in ("time_limit", "max_tokens")

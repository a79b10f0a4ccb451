"""A generation of the library that broke goes on: budgets, images, gaps, recurrent states, and what is told again."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

import imp_service
from imp_service import Error, FieldsInvalid, GenerationRequest, InfillPrompt, LanguageModel
from imp_service.api.image import Image
from imp_service.api.replies import Chunk, Finished, Reply, Started, Usage
from imp_service.api.resume import Origin, Resume, ResumedSequence
from imp_service.api.tool_calls import joined_calls
from support.calls.workload import random_requests
from support.models.fixed_depth import DRAFTING, NO_DRAFTERS, fixed_depth
from support.models.tiny_vision_models import write_vision_files
from support.models.worded_models import write_worded
from support.run.patience import HANGS_AFTER
from support.run.release_run import repetitions
from support.servers.served_models import tiny_with_text
from support.servers.vision_served import QUESTION, file_of

N_RANDOM = repetitions(200, 25)
THINKS = """{% for m in messages %}<|im_start|>{{ m.role }}
{{ m.content }}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
<think>
{% endif %}"""


@dataclass
class Sent:
    """What a caller gets of one sequence, however it is divided."""

    ids: list[int] = field(default_factory=list)
    text: str = ""
    reasoning: str = ""
    calls: list[Any] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    end: tuple[Any, ...] = ()


def sent(replies: Sequence[Reply], n: int) -> tuple[list[Sent], Usage | None]:
    sequences, usage = [Sent() for _ in range(n)], None
    for reply in replies:
        if isinstance(reply, Started):
            continue
        each = sequences[reply.index]
        each.text += reply.text
        each.reasoning += reply.reasoning
        each.calls = list(joined_calls([*each.calls, *reply.tool_calls]))
        if isinstance(reply, Chunk):
            assert reply.first_token == len(each.ids)
            each.ids += reply.token_ids
            each.logprobs += reply.logprobs
        else:
            each.end, usage = (reply.reason, reply.match), reply.usage
    if usage is not None:
        usage = replace(usage, cached_prompt_tokens=0, draft_tokens=0, accepted_draft_tokens=0)
    return sequences, usage


def what_came(replies: Sequence[Reply], n: int) -> Resume:
    started, told = replies[0], [ResumedSequence() for _ in range(n)]
    assert isinstance(started, Started) and started.origin is not None  # narrows
    for reply in replies[1:]:
        assert not isinstance(reply, Started)  # narrows
        one = told[reply.index]
        if isinstance(reply, Chunk):
            ids, chunks = [*one.token_ids, *reply.token_ids], [*one.chunks, len(reply.token_ids)]
            told[reply.index] = replace(one, token_ids=ids, chunks=chunks)
        else:
            told[reply.index] = replace(one, finished=True)
    return Resume(started.origin, told)


def ready(model: LanguageModel) -> LanguageModel:
    """The model; its generations have an origin from now on."""
    assert len(model.fingerprint) == 16
    return model


def in_chunks(model: LanguageModel, request: GenerationRequest, rng: random.Random) -> list[Reply]:
    """The replies of a generation, in chunks of a few tokens."""
    generation, replies = ready(model).generate(request), []
    with generation:
        run = generation._run
        assert run is not None  # narrows
        while run.is_open or run.fold.is_reply_due(1) or run.fold.n_unread_tokens:
            reply = run.next_reply(rng.choice([1, 1, 2, 4]))
            if reply is not None:
                replies.append(reply)
            else:
                generation._wait(run)
    return replies


def goes_on(model: LanguageModel, other: LanguageModel, request: GenerationRequest, rng: random.Random) -> int:
    """Cuts a generation behind each of some replies, and goes on with another model. Returns the number of cuts."""
    n = request.num_sequences
    replies = in_chunks(model, request, rng)
    expected, usage = sent(replies, n)
    cuts = range(1, len(replies)) if len(replies) < 8 else rng.sample(range(1, len(replies)), 5)
    for cut in cuts:
        came = replies[:cut]
        generation = other.generate(request, resume=what_came(came, n))
        fold = generation._run.fold if generation._run is not None else None
        followed = list(generation)
        assert fold is not None  # narrows
        together, total = sent([*came, *followed], n)
        # A token that is drawn again has its score twice.
        assert together == expected, (request, cut)
        assert total == usage
        told_again(came, fold.told, n)
    return len(cuts)


def told_again(came: Sequence[Reply], told: Sequence[Reply], n: int) -> None:
    """The replies that the caller has are made again, in the same pieces. The reason of an end is not known."""
    for i in range(n):
        ours = [each for each in came[1:] if not isinstance(each, Started) and each.index == i]
        again = [each for each in told if not isinstance(each, Started) and each.index == i]
        assert [type(each) for each in again] == [type(each) for each in ours]
        for one, two in zip(ours, again, strict=True):
            if isinstance(one, Chunk) and isinstance(two, Chunk):
                assert (one.first_token, one.token_ids, one.text, one.reasoning) == (
                    two.first_token,
                    two.token_ids,
                    two.text,
                    two.reasoning,
                )
                assert list(one.tool_calls) == list(two.tool_calls)


@pytest.fixture(scope="module")
def other() -> Iterator[LanguageModel]:
    with fixed_depth(), imp_service.load(None, "device.threads=1", DRAFTING, "scheduler.prefill_chunk=7") as it:
        yield it


def test_rsm_1_a_generation_makes_no_step_for_an_origin_that_nobody_asks_for() -> None:
    with imp_service.load(None, "device.threads=1") as model:
        started = next(model.generate("Once upon a time", **GIVEN))
        assert isinstance(started, Started) and started.origin is None
        n_steps = model._runtime.client.engine.stats().n_steps
        started = next(ready(model).generate("Once upon a time", **GIVEN))
        assert isinstance(started, Started) and started.origin is not None  # narrows
        assert started.origin.server == model.fingerprint
        assert model._runtime.client.engine.stats().n_steps > n_steps + 2


@pytest.mark.parametrize("seed", range(2))
def test_rsm_1_random_generations_go_on_anywhere(library: LanguageModel, other: LanguageModel, seed: int) -> None:
    rng, n_cuts = random.Random(seed), 0
    for request in random_requests(N_RANDOM, 900 + seed, library._runtime.tokenizer):
        asked = replace(
            request,
            num_sequences=rng.choice([1, 1, 2, 4]),
            stop=replace(request.stop, include_match=rng.random() < 0.5),
            output=replace(request.output, parse=rng.random() < 0.2),
        )
        n_cuts += goes_on(*rng.sample([library, other], 2), asked, rng)
    assert n_cuts > N_RANDOM


def test_rsm_1_a_budget_of_reasoning_counts_what_was_told(tmp_path: Path) -> None:
    """Cut in the reasoning, at its closing and behind it."""
    path, template = tmp_path / "thinker.gguf", tmp_path / "chat.jinja"
    ids = write_worded(path, ("<think>", "</think>", "<|im_start|>", "<|im_end|>"), eos="<|im_end|>")
    template.write_text(THINKS)
    settings = (f"model.overrides.chat_template={template}", "model.overrides.dialect=hermes", "device.threads=1")
    chat = imp_service.ChatPrompt((imp_service.ChatMessage("user", "ab ab ab ab ab"),))
    few = dict.fromkeys((*b"ab ", ids["</think>"]), 60.0)
    rng = random.Random(3)
    with (
        fixed_depth(),
        imp_service.load(path, *settings, NO_DRAFTERS) as model,
        imp_service.load(path, *settings, DRAFTING) as other,
    ):
        for seed, most in enumerate((0, 1, 2, 5, 9)):
            request = GenerationRequest(
                chat,
                imp_service.SamplingOptions(temperature=0.7, seed=seed, logit_bias=few),
                imp_service.StopOptions(max_tokens=14, ignore_eos=True),
                output=imp_service.OutputOptions(logprobs=True, parse=True),
                max_reasoning_tokens=most,
                num_sequences=1 + seed % 2,
            )
            replies = list(ready(model).generate(request))
            expected, usage = sent(replies, request.num_sequences)
            assert usage is not None and (usage.reasoning_tokens > 0) == (most > 0)
            for n_told in range(1, 15):
                told = [ResumedSequence(each.ids[:n_told]) for each in expected]
                started = replies[0]
                assert isinstance(started, Started) and started.origin is not None  # narrows
                followed = list(other.generate(request, resume=Resume(started.origin, told)))
                behind, total = sent_behind(followed, n_told, request.num_sequences)
                assert [each.ids for each in behind] == [each.ids[n_told:] for each in expected], (most, n_told)
                assert total == usage
            assert goes_on(model, other, request, rng)


def sent_behind(replies: Sequence[Reply], n_told: int, n: int) -> tuple[list[Sent], Usage | None]:
    """What came of a resumed generation, whose chunks begin behind the told outputs."""
    moved = [
        replace(each, first_token=each.first_token - n_told) if isinstance(each, Chunk) else each for each in replies
    ]
    return sent(moved, n)


def test_rsm_1_a_prompt_with_an_image_goes_on(tmp_path: Path) -> None:
    path, _ = write_vision_files(tmp_path)
    small = ("device.threads=1", "kv.bytes=2MiB")
    chat = imp_service.ChatPrompt((imp_service.ChatMessage("user", (Image(file_of()), QUESTION)),))
    options = imp_service.OutputOptions(logprobs=True)
    request = GenerationRequest(
        chat,
        imp_service.SamplingOptions(temperature=1.0, seed=4),
        imp_service.StopOptions(max_tokens=10),
        None,
        options,
    )
    with (
        imp_service.load(path, *small) as model,
        imp_service.load(path, *small, "scheduler.prefill_chunk=16", "kv.prefix_cache=false") as other,
    ):
        rng = random.Random(1)
        for n in (1, 2):
            assert goes_on(model, other, replace(request, num_sequences=n), rng) > 2
        replies = list(ready(model).generate(request))
        picture = imp_service.ChatPrompt((imp_service.ChatMessage("user", (Image(file_of(1)), QUESTION)),))
        with pytest.raises(Error, match="RESUME_MISMATCH") as raised:
            list(other.generate(replace(request, prompt=picture), resume=what_came(replies[:2], 1)))
        assert raised.value.details == {"differs": "request"}


def test_rsm_1_a_gap_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "coder.gguf"
    write_worded(path, ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>", "<|end|>"), eos="<|end|>")
    with imp_service.load(path, "device.threads=1") as model:
        request = GenerationRequest(
            InfillPrompt("def f():\n    ", "\nf()\n"),
            imp_service.SamplingOptions(temperature=1.0, min_p=0.0, seed=7),
            imp_service.StopOptions(max_tokens=12),
        )
        assert goes_on(model, model, request, random.Random(5)) > 2


@pytest.mark.parametrize("family", ["qwen35", "qwen3next"])
def test_rsm_1_a_recurrent_state_is_computed_again(tmp_path: Path, family: str) -> None:
    tiny_with_text(tmp_path, family, seed=3)
    path, rng = tmp_path / f"tiny_{family}.gguf", random.Random(2)
    small = ("device.threads=1", "limits.max_context=256")
    with (
        imp_service.load(path, *small) as model,
        imp_service.load(path, *small, "scheduler.prefill_chunk=7", "kv.prefix_cache=false") as other,
    ):
        for seed in range(3):
            request = GenerationRequest(
                f"the other number {seed} and the th",
                imp_service.SamplingOptions(temperature=0.8, seed=seed, repetition_penalty=1.2),
                imp_service.StopOptions(max_tokens=30, ignore_eos=True),
                num_sequences=1 + seed,
            )
            assert goes_on(model, other, request, rng) > 2


GIVEN: dict[str, Any] = {"max_tokens": 9, "temperature": 1.0, "seed": 6}


def test_rsm_12_nothing_is_told_of_a_generation_that_another_token_ends(library: LanguageModel) -> None:
    replies = list(ready(library).generate("Once upon a time", **GIVEN))
    came = what_came(replies[:-1], 1)
    ids = list(came.sequences[0].token_ids)
    wrong = Resume(came.origin, [ResumedSequence([*ids[:4], ids[4] + 1])])
    generation = library.generate("Once upon a time", resume=wrong, **GIVEN)
    with pytest.raises(Error) as raised:
        next(generation)
    assert (raised.value.reason, raised.value.details) == (
        "RESUME_MISMATCH",
        {"differs": "sequences[0].token_ids[4]"},
    )
    assert list(generation) == [] and not generation.is_open
    deadline = time.monotonic() + HANGS_AFTER
    while library._runtime.client.engine.stats().running:
        assert time.monotonic() < deadline


def test_rsm_1_an_asynchronous_generation_goes_on(library: LanguageModel) -> None:
    replies = list(ready(library).generate("Once upon a time", **GIVEN))
    ids = sent(replies, 1)[0][0].ids
    came = Resume(what_came(replies[:1], 1).origin, [ResumedSequence(ids[:5])])

    async def rest() -> list[Reply]:
        return [reply async for reply in library.generate_async("Once upon a time", resume=came, **GIVEN)]

    followed = asyncio.run(rest())
    assert sent_behind(followed, 5, 1)[0][0].ids == ids[5:]
    assert isinstance(followed[0], Started) and (followed[0].origin, followed[0].resumed_tokens) == (came.origin, 5)


def test_rsm_3_the_library_refuses_what_cannot_have_come(library: LanguageModel) -> None:
    replies = list(ready(library).generate("Once upon a time", **GIVEN))
    came = what_came(replies[:-1], 1)

    def paths(resume: Any, prompt: Any = "Once upon a time", **options: Any) -> list[str]:
        with pytest.raises(FieldsInvalid) as raised:
            library.generate(prompt, **{**GIVEN, "resume": resume, **options})
        return [each.path for each in raised.value.violations]

    one = came.sequences[0]
    assert paths({"origin": {}}) == ["resume"]
    assert paths(Resume({}, [one])) == ["resume"]  # type: ignore[arg-type]
    assert paths(replace(came, sequences=[one] * 9)) == ["resume.sequences"]
    assert paths(replace(came, sequences=[replace(one, token_ids=[-1], chunks=())])) == [
        "resume.sequences[0].token_ids[0]"
    ]
    assert paths(replace(came, sequences=[replace(one, chunks=[0, 9])])) == ["resume.sequences[0].chunks"]
    assert paths(replace(came, sequences=[replace(one, chunks=["9"])])) == ["resume.sequences[0].chunks"]
    assert paths(came, seed=7) == ["resume.origin.seed"]
    assert paths(replace(came, origin=Origin("", "", -1, -1))) == [
        f"resume.origin.{name}" for name in ("server", "request", "seed", "created")
    ]
    assert paths(came, ["a", "b"]) == ["resume"]
    with library.open() as session, pytest.raises(FieldsInvalid, match="resume"):
        session.prefill("Once")
        session.generate(resume=came)


def test_rsm_1_a_device_with_other_bits_in_a_batch_gives_no_origin(
    library: LanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = library._runtime
    settings = runtime.config.settings
    on_device = replace(settings, device=replace(settings.device, kind="cuda"))
    came = what_came(list(ready(library).generate("Once", **GIVEN))[:2], 1)
    monkeypatch.setattr(runtime, "config", replace(runtime.config, settings=on_device))
    assert runtime.plan(GenerationRequest("Once")).fold.origin is None
    with pytest.raises(FieldsInvalid, match=r"resume: .*deterministic is off"):
        library.generate("Once", resume=came, **GIVEN)
    exact = replace(on_device.model, overrides=replace(on_device.model.overrides, deterministic=True))
    monkeypatch.setattr(runtime, "config", replace(runtime.config, settings=replace(on_device, model=exact)))
    assert isinstance(runtime.plan(GenerationRequest("Once")).fold.origin, Origin)


def test_rsm_13_a_generation_that_is_ended_before_its_seam_ends(library: LanguageModel) -> None:
    """Its outputs are those that the caller has. The reason is that of the end."""
    replies = list(ready(library).generate("Once upon a time", **GIVEN))
    came = what_came(replies[:-1], 1)
    with library._runtime.client.together():
        generation = library.generate("Once upon a time", resume=came, **GIVEN)
        generation.cancel()
    started, *followed = list(generation)
    assert isinstance(started, Started) and started.resumed_tokens == 9
    (end,) = followed
    assert isinstance(end, Finished) and end.reason == "cancelled"
    assert end.usage is not None and end.usage.output_tokens == 9

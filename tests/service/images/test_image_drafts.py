"""Pictures and guesses together: every combination starts or says why not, and no token depends on a guess."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import imp_service
from imp_service import ConfigError, DryOptions, Error, GenerationResult, Image, LanguageModel, PromptParts
from support.calls.generations import in_one, streamed
from support.models.fixed_depth import fixed_depth
from support.models.tiny_assistant import TinyAssistant
from support.models.tiny_gemma4 import TinyGemma4
from support.models.vision_drafters import KINDS, VisionDrafters, write_vision_drafters
from support.models.whole_models import TINY_SIGHTS, pictures
from support.servers.http_served import serve_http
from support.servers.served_models import from_file
from support.servers.vision_served import CELLS, QUESTION, asked, chat_of, content_of, data_url, encoded, file_of, said

SETTINGS = ("device.threads=1", "kv.bytes=8MiB")
CAT, DOG = Image(file_of(1)), Image(file_of(2))
CYCLE = "the cat and the dog, the cat and the dog, the cat and"
PARTS = 5  # of each picture
NEXT_OFF = "speculation.with_media=false"


def load(files: VisionDrafters, kind: str | None, *settings: str, path: Path | None = None) -> LanguageModel:
    """Returns a model whose steps verify every guess there is room for."""
    with fixed_depth():
        return imp_service.load(path or files.model, *SETTINGS, *files.settings(kind), *settings)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> VisionDrafters:
    return write_vision_drafters(tmp_path_factory.mktemp("drafters"))


@pytest.fixture(scope="module")
def plain(files: VisionDrafters) -> Iterator[LanguageModel]:
    with load(files, None) as model:
        yield model


@pytest.fixture(scope="module", params=KINDS)
def drafting(request: pytest.FixtureRequest, files: VisionDrafters) -> Iterator[LanguageModel]:
    with load(files, request.param) as model:
        yield model


def ask(model: LanguageModel, *parts: str | Image, **options: Any) -> GenerationResult:
    given = {"temperature": 0, "max_tokens": 40, "ignore_eos": True, "logprobs": True, **options}
    result = model.generate(PromptParts(parts), **given).result()
    assert result.text
    return result


def said_by(result: GenerationResult) -> tuple[Any, ...]:
    return result.text, result.token_ids, result.logprobs, result.finish_reason


def stats_of(model: LanguageModel) -> Any:
    return model._runtime.client.engine.stats()


@pytest.mark.parametrize("with_media", ["true", "false"])
@pytest.mark.parametrize("has_head", [True, False])
@pytest.mark.parametrize("vision", ["true", "false"])
def test_med_9_a_projector_a_head_and_the_switch_start_or_say_why_not(
    vision: str, has_head: bool, with_media: str, files: VisionDrafters
) -> None:
    settings = (f"model.vision={vision}", f"speculation.with_media={with_media}")
    if not has_head:
        with pytest.raises(ConfigError, match=r"speculation\.drafters: head: the model's head is none"):
            load(files, "nextn", *settings, path=files.without_head)
        return
    with load(files, "nextn", *settings) as model:
        text = ask(model, CYCLE)
        assert text.usage.draft_tokens > 0 and text.speculation.off_reason == ""
        if vision == "false":
            with pytest.raises(Error, match=r"FEATURE_DISABLED: .*model\.vision is off"):
                ask(model, CAT)
            return
        picture = ask(model, CAT, CYCLE)
        drafts = picture.usage.draft_tokens, picture.speculation.off_reason
        assert drafts == (0, "media") if with_media == "false" else drafts[0] > 0 and drafts[1] == ""
        off = ask(model, CAT, CYCLE, speculation_enabled=False)
        assert (off.usage.draft_tokens, off.speculation.off_reason) == (0, "disabled")
        assert said_by(off) == said_by(picture)


def test_med_9_where_another_drafter_is_left_a_model_without_a_head_says_so(files: VisionDrafters) -> None:
    with load(files, None, 'speculation.drafters=["ngram", "head"]', path=files.without_head) as model:
        assert "speculation.drafters: head has no effect: the model's head is none" in model.warnings
        assert ask(model, CAT, CYCLE).usage.draft_tokens > 0


@pytest.mark.parametrize("kind", KINDS)
def test_med_10_s1_s2_text_is_guessed_for_as_without_a_tower(
    kind: str, files: VisionDrafters, plain: LanguageModel
) -> None:
    found = []
    for vision in ("false", "true"):
        with load(files, kind, f"model.vision={vision}") as model:
            results = [ask(model, text) for text in (CYCLE, QUESTION, CYCLE + QUESTION)]
            stats = stats_of(model)
            counts = stats.n_steps, stats.n_decode_rows, stats.drafts.n_drafted, stats.drafts.n_accepted
            found.append(([said_by(result) for result in results], counts, stats.draft_skips))
            assert results[0].usage.draft_tokens > 0
            assert [said_by(result) for result in results] == [
                said_by(ask(plain, text)) for text in (CYCLE, QUESTION, CYCLE + QUESTION)
            ]
    assert found[0] == found[1]


PROMPTS: dict[str, tuple[str | Image, ...]] = {
    "image": (CAT,),
    "image, text": (CAT, CYCLE),
    "text, image": (CYCLE, CAT),
    "two images": (CAT, CYCLE, DOG, CYCLE),
}


@pytest.mark.parametrize("prompt", PROMPTS)
def test_med_10_s3_s4_a_picture_is_followed_by_guesses_that_change_no_token(
    prompt: str, drafting: LanguageModel, plain: LanguageModel
) -> None:
    given = PROMPTS[prompt]
    found = ask(drafting, *given, max_tokens=80)
    assert found.usage.draft_tokens > 0 and found.speculation.off_reason == ""
    assert found.usage.prompt_media_tokens == CELLS * sum(isinstance(part, Image) for part in given)
    assert said_by(found) == said_by(ask(plain, *given, max_tokens=80))
    # The negative control: another picture.
    other = [Image(file_of(7)) if isinstance(part, Image) else part for part in given]
    assert ask(drafting, *other, max_tokens=80).logprobs != found.logprobs


def test_med_10_s3_without_the_switch_no_step_after_a_picture_has_a_guess(files: VisionDrafters) -> None:
    for kind in KINDS:
        with load(files, kind, NEXT_OFF) as model:
            found = ask(model, CAT, CYCLE)
            assert (found.usage.draft_tokens, found.speculation.off_reason) == (0, "media")
            assert stats_of(model).draft_skips["media"] == 39


def test_med_10_spd_13_an_assistant_guesses_beside_pictures(tmp_path: Path) -> None:
    """Of a Gemma 4 that sees: it reads the cells of the model, also those of a picture."""
    sight = TINY_SIGHTS["gemma4"]
    path, decoder = sight.write(tmp_path), sight.decoder
    assert isinstance(decoder, TinyGemma4)
    head = TinyAssistant(decoder).write(tmp_path / "mtp-tiny.gguf")
    one, two = (Image(picture, max_tokens=sight.max_tokens) for picture in pictures(2))
    prompts: list[tuple[str | Image, ...]] = [(one, CYCLE), (CYCLE, two), (one, CYCLE, two, CYCLE), (CYCLE,)]
    found = []
    for settings in ("speculation.drafters=[]",), ('speculation.drafters=["head"]', f"speculation.head={head}"):
        with fixed_depth(), imp_service.load(path, *SETTINGS, *settings) as model:
            found.append([ask(model, *prompt) for prompt in prompts])
    assert [said_by(result) for result in found[0]] == [said_by(result) for result in found[1]]
    assert all(result.usage.draft_tokens == 0 for result in found[0])
    assert all(result.usage.draft_tokens > 20 and not result.speculation.off_reason for result in found[1])


def conversation(model: LanguageModel) -> list[Any]:
    """Returns the answers of five turns: picture, text, picture, text, text."""
    answers = []
    with model.open(temperature=0) as session:
        for turn in ((CAT, CYCLE), (QUESTION,), (DOG, CYCLE), (CYCLE,), (QUESTION,)):
            first = session.prefill(PromptParts(turn))
            result = session.generate(max_tokens=20, ignore_eos=True, logprobs=True).result()
            assert result.text
            answers.append((first.token_id, said_by(result), session.position))
    return answers


def test_med_10_s5_turns_are_the_same_and_each_picture_is_encoded_once(
    drafting: LanguageModel, plain: LanguageModel
) -> None:
    n_before = stats_of(drafting).n_encoded, stats_of(drafting).n_cached_tokens
    first, again = conversation(drafting), conversation(drafting)
    assert first == again == conversation(plain)
    assert stats_of(drafting).n_encoded - n_before[0] in (0, 2 * PARTS)
    assert stats_of(drafting).n_cached_tokens - n_before[1] >= 2 * CELLS


def test_med_10_s6_pictures_beside_other_requests_leave_them_as_they_are(
    drafting: LanguageModel, plain: LanguageModel
) -> None:
    texts = [f"{number}: {CYCLE}" for number in range(4)]
    prompts: list[tuple[str | Image, ...]] = [(text,) for text in texts]
    prompts += [(Image(file_of(20 + number)), CYCLE) for number in range(4)]
    alone = [ask(drafting, *prompt, cache_salt="alone") for prompt in prompts]
    with ThreadPoolExecutor(len(prompts)) as threads:
        together = list(threads.map(lambda prompt: ask(drafting, *prompt, cache_salt="together"), prompts))
    assert [said_by(each) for each in together] == [said_by(each) for each in alone]
    assert [said_by(each) for each in together] == [said_by(ask(plain, *prompt)) for prompt in prompts]
    for one, other in zip(alone[:4], together[:4], strict=True):
        assert one.usage.cached_prompt_tokens == other.usage.cached_prompt_tokens
        assert one.usage.draft_tokens > 0 and other.usage.draft_tokens > 0


def test_med_10_s7_counters_add_up_over_a_long_answer(drafting: LanguageModel, plain: LanguageModel) -> None:
    before = stats_of(drafting)
    found = ask(drafting, CAT, CYCLE, max_tokens=512)
    after, usage, report = stats_of(drafting), found.usage, found.speculation
    assert said_by(found) == said_by(ask(plain, CAT, CYCLE, max_tokens=512))
    assert usage.output_tokens == len(found.token_ids) == 512
    assert sum(each.drafted for each in report.drafters) == usage.draft_tokens > 0
    assert sum(each.accepted for each in report.drafters) == usage.accepted_draft_tokens <= usage.draft_tokens
    assert after.drafts.n_drafted - before.drafts.n_drafted == usage.draft_tokens
    assert after.n_decode_rows - before.n_decode_rows + usage.accepted_draft_tokens == 511


ANIMAL = {
    "type": "object",
    "properties": {"animal": {"enum": ["cat", "dog"]}},
    "required": ["animal"],
    "additionalProperties": False,
}
SAMPLERS: dict[str, dict[str, Any]] = {
    "greedy": {"temperature": 0},
    "seeded": {"temperature": 0.8, "seed": 11},
    "penalties": {
        "temperature": 0.7,
        "seed": 2,
        "repetition_penalty": 1.3,
        "dry": DryOptions(multiplier=0.8),
    },
    "schema": {"temperature": 1, "seed": 3, "json_schema": ANIMAL, "ignore_eos": False},
}


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_med_10_s8_with_and_without_guesses_the_tokens_are_equal(
    sampler: str, drafting: LanguageModel, plain: LanguageModel
) -> None:
    options = {"max_tokens": 60, **SAMPLERS[sampler]}
    found = ask(drafting, CAT, CYCLE, **options)
    assert said_by(found) == said_by(ask(plain, CAT, CYCLE, **options))
    if sampler in ("greedy", "schema"):  # prompt lookup finds nothing in random text
        assert found.usage.draft_tokens > 0
    if sampler == "schema":
        assert json.loads(found.text)["animal"] in ("cat", "dog")


def test_med_10_s8_siblings_after_a_picture_are_equal(drafting: LanguageModel, plain: LanguageModel) -> None:
    options: dict[str, Any] = {"temperature": 1.0, "seed": 4, "max_tokens": 40, "ignore_eos": True, "num_sequences": 3}
    found, expected = (
        [(each.text, each.token_ids) for each in model.generate(PromptParts((CAT, CYCLE)), **options).results()]
        for model in (drafting, plain)
    )
    assert found == expected and len({tuple(ids) for _, ids in found}) == 3


def test_med_10_s9_cancels_at_any_point_leave_nothing_behind(drafting: LanguageModel) -> None:
    rng = random.Random(5)
    ask(drafting, CAT)
    before = stats_of(drafting)
    for _ in range(30):
        prompt = PromptParts((Image(file_of(rng.randrange(40, 60))), CYCLE))
        with drafting.generate(prompt, temperature=0, max_tokens=200, ignore_eos=True) as generation:
            for _ in range(rng.randrange(6)):
                next(generation, None)  # on a slow thread, a few chunks may be all of it
    ask(drafting, CAT)
    after = stats_of(drafting)
    assert (after.running, after.waiting, after.queued, after.sessions) == (0, 0, 0, 0)
    assert after.blocks_live == before.blocks_live == 0
    assert after.blocks_cached + after.blocks_free == before.blocks_cached + before.blocks_free


@pytest.mark.parametrize("kind", KINDS)
def test_med_10_streams_of_both_doors_are_the_whole_answer(kind: str, files: VisionDrafters) -> None:
    with fixed_depth(), serve_http(*files.settings(kind), model=from_file(files.model)) as http:
        request = asked(chat_of(encoded(file_of()), f"{QUESTION} {CYCLE}"), 30)
        stream, whole = streamed(http.served, request), in_one(http.served, request)
        assert stream.output == whole.output and stream.output.text
        assert sum(stream.chunks) == len(stream.output.ids) == stream.usage.output_tokens == 30
        assert stream.usage.prompt_media_tokens == CELLS and stream.usage.draft_tokens > 0
        options = {"temperature": 0, "max_tokens": 30, "ignore_eos": True, "stream_options": {"include_usage": True}}
        body = {"messages": said(content_of(data_url(file_of()), f"{QUESTION} {CYCLE}")), **options}
        events = http.client.stream("/v1/chat/completions", body)
        choices = [choice for each in events.objects for choice in each["choices"]]
        assert "".join(choice["delta"].get("content") or "" for choice in choices) == whole.output.text
        assert choices[-1]["finish_reason"] == "length"
        assert events.objects[-1]["usage"]["completion_tokens"] == 30

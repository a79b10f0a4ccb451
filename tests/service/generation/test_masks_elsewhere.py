"""A reader may compute masks elsewhere: the text is the same, and an end waits for the mask before it."""

from __future__ import annotations

from collections.abc import Callable

from imp_service import ConstraintKind, ConstraintSpec, GenerationRequest, LanguageModel, SamplingOptions, StopOptions
from imp_service.api.replies import Chunk, Finished, Reply
from imp_service.generation.fold import AllowNext
from imp_service.generation.run import Done, GenerationRun

Work = Callable[[], AllowNext]


def asked(max_tokens: int) -> GenerationRequest:
    return GenerationRequest(
        "Once upon a time",
        sampling=SamplingOptions(temperature=0.0),
        stop=StopOptions(max_tokens=max_tokens),
        constraint=ConstraintSpec(ConstraintKind.REGEX, "[a-c ]{12}"),
    )


def tokens_of(replies: list[Reply]) -> list[int]:
    return [token for reply in replies if isinstance(reply, Chunk) for token in reply.token_ids]


def taken_from(run: GenerationRun) -> list[Reply]:
    """Returns the replies available now."""
    replies = []
    while (reply := run.next_reply()) is not None:
        replies.append(reply)
    return replies


def test_gen_10_an_end_waits_for_the_mask_that_decides_its_reason(library: LanguageModel) -> None:
    whole = tokens_of(list(library.generate(asked(100))))
    works: list[tuple[Work, Done]] = []
    replies: list[Reply] = []
    run = GenerationRun(
        library._runtime.client, library._runtime.plan(asked(len(whole))), compute=lambda *work: works.append(work)
    )
    for n_drawn in range(1, len(whole) + 1):
        while len(tokens_of(replies)) < n_drawn:
            library._runtime.client.wait(lambda: run.has_events)
            run.absorb()
            replies += taken_from(run)
        assert len(works) == n_drawn
        if n_drawn < len(whole):
            work, done = works[-1]
            done(work())
    # The last output has reached the limit. Only the mask shows whether the text is complete.
    library._runtime.client.wait(lambda: run.has_events or bool(run._ends) or not run.is_open)
    run.absorb()
    assert run.is_open and not any(isinstance(reply, Finished) for reply in (*replies, *taken_from(run)))
    work, done = works[-1]
    done(work())
    (finished,) = taken_from(run)
    assert isinstance(finished, Finished) and finished.reason == "stop"
    assert tokens_of(replies) == whole and not run.is_open

"""Commands on a session that never wait: steps, forks and truncations.

Each runs to its end even if its caller leaves. The session is then in the state before or after the command, never
between, and a repeated request gets the stored reply.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from imp_service.api.errors import invalid
from imp_service.api.options import SamplingOptions, StepOptions
from imp_service.api.replies import StepOutput
from imp_service.api.resume import SessionResume
from imp_service.core import CoreMediaSpan, Event
from imp_service.generation import ModelRuntime
from imp_service.generation.session_resume import require_pending
from imp_service.generation.step import StepFold
from imp_service.serving.engine_events import begin_command, failure_in
from imp_service.serving.refusal import Refusal
from imp_service.serving.session.held_session import HeldSession, StoredReply
from imp_service.serving.session.sessions import Sessions
from imp_service.serving.workers import SMALL_BYTES, TextWorkers

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Extension(Generic[R]):
    """The tokens and options of a step, and a function that writes its output as a reply."""

    tokens: Sequence[int]
    options: StepOptions
    write: Callable[[StepOutput], R]
    sampling: SamplingOptions | None = None
    position: int | None = None
    base: int | None = None
    is_prefill: bool = False
    ttl: float | None = None  # seconds, from now on; None leaves it
    # The digest of the request. None: the request names no position, so the reply is not stored.
    digest: bytes | None = None
    # The images among the tokens, decoded.
    media: Sequence[CoreMediaSpan] = ()
    # Of a session that goes on here.
    resume: SessionResume | None = None


def check_position(held: HeldSession, position: int | None) -> None:
    """Raises POSITION_MISMATCH if the request names another position than the session's."""
    if position is not None and position != held.position:
        raise Refusal(
            "POSITION_MISMATCH",
            f"position: {position}, but the session holds {held.position} tokens",
            {"expected": str(position), "held": str(held.position)},
        )


def check_end(held: HeldSession, position: int) -> None:
    """Raises POSITION_BEYOND_END if the session holds fewer tokens."""
    if position > held.position:
        raise Refusal(
            "POSITION_BEYOND_END",
            f"position: {position}, but the session holds {held.position} tokens",
            {"position": str(position), "held": str(held.position)},
        )


def check_context(held: HeldSession, n_tokens: int, max_context: int) -> None:
    """Raises CONTEXT_TOO_LONG if `n_tokens` more tokens do not fit the context."""
    n_all = held.position + n_tokens
    if n_all > max_context:
        raise Refusal(
            "CONTEXT_TOO_LONG",
            f"{n_all} tokens exceed the context of {max_context}",
            {"prompt_tokens": str(n_all), "max_context_tokens": str(max_context)},
        )


def check_base(held: HeldSession, n_tokens: int, base: int | None) -> None:
    """Raises FIELD_INVALID if `base` is beyond the position after the prefill."""
    if base is not None and base > held.position + n_tokens:
        raise invalid("base", f"{base}, expected at most the position after this prefill, {held.position + n_tokens}")


async def find_breakers(workers: TextWorkers, model: ModelRuntime, sampling: SamplingOptions | None) -> None:
    """Finds the tokens that contain a sampler's DRY breakers, on a worker. The model caches the result."""
    if sampling is not None and sampling.has_breakers:
        await workers.run(lambda: model.options.core_sampling(model.options.sampling(sampling)), SMALL_BYTES)


def begin_step(sessions: Sessions, held: HeldSession, extension: Extension[R]) -> asyncio.Future[R | Exception]:
    """Submits a step of a session that take() has returned, and leaves the session when the step has ended.

    The future gets the reply or the failure. A new session whose first step fails is closed. Cancelling the future
    does not stop the step. Raises if the engine refuses the step; then the caller must leave the session.
    """
    ended: asyncio.Future[R | Exception] = asyncio.get_running_loop().create_future()

    def on_done() -> None:
        sessions.client.forget(fold.ticket)
        # No local variable holds the outcome: the frames of an error would refer to it, and it to them.
        if ended.done():
            _outcome(sessions, held, extension, fold)
        else:
            ended.set_result(_outcome(sessions, held, extension, fold))  # type: ignore[arg-type]  # R is Extension's

    fold = held.session.submit_step(
        extension.tokens,
        extension.options,
        sampling=extension.sampling,
        position=extension.position,
        base=extension.base,
        rebase=extension.is_prefill and extension.base is None,
        on_done=on_done,
        media=extension.media,
        forced=_taken(extension.resume),
    )
    return ended


def _taken(resume: SessionResume | None) -> Sequence[int]:
    """The output that a step is to have, whatever it draws."""
    return () if resume is None or resume.token_id is None or not resume.taken else (resume.token_id,)


def _outcome(sessions: Sessions, held: HeldSession, extension: Extension[R], fold: StepFold) -> R | Exception:
    """The reply of a step that has ended, or its failure."""
    try:
        return _settled(sessions, held, extension, fold)
    except Exception as error:
        sessions.abandon(held)
        return error


def _settled(sessions: Sessions, held: HeldSession, extension: Extension[R], fold: StepFold) -> R:
    """The reply of a step that has ended. Raises its failure; then nothing has changed."""
    if not held.is_open:
        raise sessions.why_missing(*held.key)
    text_from = None if extension.resume is None else extension.resume.text_from
    output = held.session.fold_step(fold, extension.tokens, is_prefill=extension.is_prefill, text_from=text_from)
    try:
        require_pending(extension.resume, output)
    except Exception:
        sessions.close(held)  # it is another session than its caller's
        raise
    held.is_new = False
    held.stored = None
    if extension.ttl is not None:
        held.ttl = extension.ttl
    reply = extension.write(output)
    sessions.leave(held)
    if extension.digest is not None:
        held.stored = StoredReply(extension.digest, reply)
    return reply


def begin_fork(sessions: Sessions, parent: HeldSession, copy: HeldSession) -> asyncio.Future[Exception | None]:
    """Copies `parent` in the engine to the reserved `copy`, and leaves both when that is done.

    The future gets the failure, or None. If the fork fails, the copy is closed. Raises if the engine refuses it; then
    the caller must leave both.
    """

    def on_done(failure: Exception | None) -> None:
        sessions.leave(parent)
        if failure is not None:
            sessions.abandon(copy)
            return
        copy.is_new = False
        sessions.leave(copy)

    return _begin_command(
        sessions,
        lambda ticket: sessions.client.engine.fork(
            ticket, parent.session.sequence, copy.session.sequence, copy.position
        ),
        on_done,
    )


def begin_truncate(sessions: Sessions, held: HeldSession, position: int) -> asyncio.Future[Exception | None]:
    """Drops the tokens of a session beyond `position`, and leaves the session when that is done.

    The future gets the failure, or None. Raises if the engine refuses it; then the caller must leave the session.
    """

    def on_done(failure: Exception | None) -> None:
        if failure is None:
            held.session.truncated(position)
            held.stored = None
        sessions.leave(held)

    return _begin_command(
        sessions, lambda ticket: sessions.client.engine.truncate(ticket, held.session.sequence, position), on_done
    )


def _begin_command(
    sessions: Sessions, submit: Callable[[int], None], on_done: Callable[[Exception | None], None]
) -> asyncio.Future[Exception | None]:
    ended: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()

    def on_answer(event: Event) -> None:
        failure = failure_in(event)
        on_done(failure)
        if not ended.done():
            ended.set_result(failure)

    begin_command(sessions.client, submit, on_answer)
    return ended

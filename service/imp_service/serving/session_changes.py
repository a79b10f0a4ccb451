"""What changes a session without evaluating anything: forks and truncations, each carried out whoever waits for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from imp_service.core import Event
from imp_service.serving.engine_answer import begin_command, failure_in
from imp_service.serving.held_session import HeldSession
from imp_service.serving.sessions import Sessions


def begin_fork(sessions: Sessions, parent: HeldSession, copy: HeldSession) -> asyncio.Future[Exception | None]:
    """Makes a reserved copy real. Both are taken, and left when that is done; where it fails the copy is closed.

    Gives the failure, or None. Raises what the engine refuses at its door; then both are still taken.
    """

    def on_done(failure: Exception | None) -> None:
        sessions.leave(parent)
        if failure is not None:
            sessions.give_up(copy)
            return
        copy.is_new = False
        sessions.leave(copy)

    return _begin(
        sessions,
        lambda ticket: sessions.client.engine.fork(
            ticket, parent.session.sequence, copy.session.sequence, copy.position
        ),
        on_done,
    )


def begin_truncate(sessions: Sessions, held: HeldSession, position: int) -> asyncio.Future[Exception | None]:
    """Drops what a taken session holds beyond `position`; it is left when that is done.

    Gives the failure, or None. Raises what the engine refuses at its door; then the session is still taken.
    """

    def on_done(failure: Exception | None) -> None:
        if failure is None:
            held.session.truncated(position)
            held.stored = None
        sessions.leave(held)

    return _begin(
        sessions, lambda ticket: sessions.client.engine.truncate(ticket, held.session.sequence, position), on_done
    )


def _begin(
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

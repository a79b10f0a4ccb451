"""Vectors and rankings for a program: each call waits for the engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol, TypeVar

from imp_service.api.errors import error_of
from imp_service.core import Error
from imp_service.generation.embedding import CallPlan
from imp_service.generation.errors import translating_text_errors
from imp_service.generation.limits import ASK_AGAIN
from imp_service.generation.vector_run import VectorRun

if TYPE_CHECKING:
    from imp_service.api.vectors import EmbedRequest, Ranking, RerankRequest, Vectors
    from imp_service.generation.runtime import ModelRuntime

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class VectorCall(Protocol[T_co]):
    """A call that one thread waits for, and any may cancel."""

    def result(self) -> T_co:
        """Waits for the engine."""

    def cancel(self) -> None:
        """Ends it, from any thread."""


class OwnCall(VectorCall[T_co]):
    """One in this process."""

    def __init__(self, runtime: ModelRuntime, plan: CallPlan, field: str, read: Callable[[VectorRun], T_co]) -> None:
        """`field` is the caller's name of the inputs."""
        self._client = runtime.client
        self._run = VectorRun(runtime, plan)
        self._field = field
        self._read = read

    def result(self) -> T_co:
        run = self._run
        with naming_input(self._field):
            try:
                run.begin()
                while not run.is_done:
                    self._client.wait(lambda: run.has_events, ASK_AGAIN if run.is_starved else None)
                    run.absorb()
            except BaseException:
                run.cancel()
                raise
            return self._read(run)

    def cancel(self) -> None:
        self._run.leave()


@contextmanager
def naming_input(field: str, rename: Callable[[str], str] = str) -> Iterator[None]:
    """An error about one of the inputs, raised within the `with` block, names it as `rename` does."""
    try:
        yield
    except Error as error:
        index = error.details.get("index")
        if index is None:
            raise
        path = rename(f"{field}[{index}]")
        raise error_of(type(error), error.reason, f"{path}: {error.message}", error.details) from error


@translating_text_errors()
def embed_call(runtime: ModelRuntime, request: EmbedRequest) -> VectorCall[Vectors]:
    """The vectors of texts. Raises what is wrong with the request."""
    runtime.embedder.check_embed(request)
    with naming_input("texts"):
        plan = runtime.embedder.plan_texts(request)
    return OwnCall(runtime, plan, "texts", VectorRun.vectors)


@translating_text_errors()
def rerank_call(runtime: ModelRuntime, request: RerankRequest) -> VectorCall[Ranking]:
    """Documents in the order in which they fit a query. Raises what is wrong with the request."""
    runtime.embedder.check_rerank(request)
    with naming_input("documents"):
        plan = runtime.embedder.plan_documents(request)
    return OwnCall(runtime, plan, "documents", VectorRun.ranking)


async def in_thread(begin: Callable[[], VectorCall[T]]) -> T:
    """Waits in a thread, so the event loop goes on. Cancelling the task ends the call within one step."""
    import asyncio  # imported here: it takes long

    calls: list[VectorCall[T]] = []
    is_left = False

    def work() -> T:
        calls.append(begin())
        if is_left:  # meanwhile
            calls[0].cancel()
        return calls[0].result()

    try:
        return await asyncio.to_thread(work)
    except asyncio.CancelledError:
        is_left = True
        for call in calls:
            call.cancel()
        raise

"""Runs the generations of a request, and sends their replies: as one body, or as events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Protocol, TypeVar

from imp_service.api.chat_prompt import InfillPrompt
from imp_service.api.errors import invalid
from imp_service.api.options import GenerationRequest
from imp_service.api.replies import Reply
from imp_service.generation.defaults import effective
from imp_service.http_api.answers.marks import MARKED_WAITING, WAITING, AnswerName, EventWriter, MarkedEvents
from imp_service.http_api.answers.reply_size import check_size
from imp_service.http_api.checked_body import read_fields
from imp_service.http_api.http_call import HttpCall
from imp_service.http_api.requests.generation import Caller, ParsedRequest
from imp_service.http_api.requests.reading import Reading
from imp_service.http_api.requests.rows import Table
from imp_service.serving.errors.field_paths import paths_renamed
from imp_service.serving.generation_batch import Numbered, replies_of
from imp_service.serving.generation_runner import WHOLE, Delivery, GenerationRunner, Wanted, is_large
from imp_service.serving.generation_stream import GenerationStream
from imp_service.serving.prompt_cost import reading_bytes
from imp_service.serving.served_model import ServedModel
from imp_service.serving.server_state import ServerState

T = TypeVar("T")
ReadGenerations = Callable[[Reading, ServedModel, Caller], ParsedRequest]
TOKEN_BY_TOKEN = Delivery(1, 0.0)
# Writing the body of more tokens takes too long for the event loop.
MAX_INLINE_TOKENS = 1024


class Gatherer(Protocol):
    """Gathers replies into one body."""

    def add(self, prompt: int, reply: Reply) -> None: ...
    def body(self) -> bytes: ...


class Answering:
    """Answers the calls of one server."""

    def __init__(self, state: ServerState) -> None:
        self._state = state
        self._generations = GenerationRunner(state)

    async def read(
        self, call: HttpCall, table: Table, read: ReadGenerations, *, takes_images: bool = False
    ) -> ParsedRequest:
        """A request for generations. A header of the answer lists the sampler in force."""
        _, parsed = await read_fields(call, self._state, table, read, takes_images=takes_images)
        numbers = effective(parsed.requests[0].sampling, self._state.model.default_sampling)
        listed = ", ".join(f"{name}={value:g}" for name, value in numbers.items())
        call.headers.append(("imp-sampling", listed or "plain"))
        return parsed

    async def gather(self, call: HttpCall, parsed: ParsedRequest, gatherer: Gatherer) -> None:
        """Answers with one body."""
        n_tokens, has_large = 0, False
        async with self._replies(call, parsed) as replies:
            async for prompt, reply in replies:
                n_tokens += len(getattr(reply, "token_ids", ()))
                has_large = has_large or is_large(reply)
                await self._write(reply, partial(gatherer.add, prompt, reply))
        is_small = n_tokens <= MAX_INLINE_TOKENS and not has_large
        call.answer_with(gatherer.body() if is_small else await self._state.workers.write(gatherer.body))

    def name(self, call: HttpCall, parsed: ParsedRequest, prefix: str) -> AnswerName:
        """What names the answer: that of the one that it resumes, or a new name."""
        resuming = parsed.resuming
        if resuming is not None and resuming.resume is not None:
            return AnswerName(resuming.id, resuming.created)
        return AnswerName(f"{prefix}{call.answer_id}", int(self._state.wall()))

    async def stream(self, call: HttpCall, parsed: ParsedRequest, events: EventWriter, name: AnswerName) -> None:
        """Answers with events, and with marks for a caller that can resume. Several prompts cannot be resumed."""
        marked = None
        if parsed.resuming is not None and len(parsed.requests) == 1:
            events = marked = MarkedEvents(events, name, parsed.resuming, parsed.requests[0].num_sequences)
            call.mark_failure, call.answer_name = marked.fail, name.id
        # Without marks nobody can go on with what was sent.
        call.goes_on_elsewhere &= marked is not None
        async with self._replies(call, parsed, marked) as replies:
            pending = await self._first(call, replies, WAITING if marked is None else MARKED_WAITING)
            while pending is not None:
                prompt, reply = pending
                content = await self._write(reply, partial(events.write, prompt, reply))
                n_tokens = len(getattr(reply, "token_ids", ()))
                # While the caller does not read, only the encoded bytes stay in memory.
                del pending, reply
                if content:
                    await call.write(content)
                call.n_sent_tokens += n_tokens
                pending = await anext(replies, None)
        await call.write(events.end())

    @asynccontextmanager
    async def _replies(
        self, call: HttpCall, parsed: ParsedRequest, marked: MarkedEvents | None = None
    ) -> AsyncIterator[AsyncIterator[Numbered]]:
        began = self._state.clock()

        @asynccontextmanager
        async def start(prompt: int, request: GenerationRequest) -> AsyncIterator[GenerationStream]:
            wanted = Wanted(
                request=request,
                delivery=self._delivery(parsed),
                began=began,
                check_size=lambda n_prompt: self._check_size(call, parsed, request, n_prompt),
                id_suffix=f"-{prompt}" if prompt else "",
                rename=lambda path: parsed.caller_path(path, prompt),
                must_fit=False,
            )
            async with self._generations.running(wanted, call) as generation:
                if marked is not None:
                    marked.told = lambda: generation.told
                yield generation

        requests = await self._checked(call, parsed)
        async with replies_of(requests, start, self._state.settings.scheduler.max_waiting) as replies:
            yield replies

    async def _checked(self, call: HttpCall, parsed: ParsedRequest) -> Sequence[GenerationRequest]:
        """The generations. Of several prompts all are tokenized and checked before the first one runs."""
        if len(parsed.requests) == 1:
            return parsed.requests
        state, first = self._state, parsed.requests[0]
        with state.admission.admit(call.payer, first.num_sequences, call.time_remaining()):
            return [await self._tokenized(call, parsed, i, request) for i, request in enumerate(parsed.requests)]

    async def _tokenized(
        self, call: HttpCall, parsed: ParsedRequest, prompt: int, request: GenerationRequest
    ) -> GenerationRequest:
        """The generation with its prompt as token ids, if it can run."""
        state, model = self._state, self._state.model
        with paths_renamed(lambda path: parsed.caller_path(path, prompt)):
            model.prompts.require_fitting(request.prompt)
            cost = reading_bytes(request.prompt, renders_quickly=model.text.renders_quickly)
            ids = await state.workers.run(partial(model.prompts.ids, request.prompt, begins=True), cost)
            if not ids:
                raise invalid("prompt", "has no token")
            model.prompts.require_room(len(ids))
            self._check_size(call, parsed, request, len(ids))
        # Its own kind of prompt says where the output ends.
        return request if isinstance(request.prompt, InfillPrompt) else replace(request, prompt=ids)

    def _check_size(self, call: HttpCall, parsed: ParsedRequest, request: GenerationRequest, n_prompt: int) -> None:
        """Refuses a reply that could be too large, and says in a header if the output may be shorter than asked."""
        model = self._state.model
        check_size(parsed, request, n_prompt, self._state.served)
        room, asked = model.prompts.room_after(n_prompt), request.stop.max_tokens
        if asked is not None and 0 < room < asked:
            call.tell_room(room)

    def _delivery(self, parsed: ParsedRequest) -> Delivery:
        chunk = self._state.settings.chunk
        if parsed.token_by_token:
            return TOKEN_BY_TOKEN
        if not parsed.is_streamed:
            return WHOLE
        return Delivery(parsed.chunk_tokens or chunk.max_tokens, chunk.max_delay.total_seconds())

    async def _first(self, call: HttpCall, replies: AsyncIterator[Numbered], comment: bytes) -> Numbered | None:
        """The first reply. While it takes long, comments are sent so that proxies do not close an idle connection."""
        heartbeat = self._state.settings.http.heartbeat.total_seconds()
        waiting = asyncio.ensure_future(anext(replies, None))
        try:
            while not (await asyncio.wait((waiting,), timeout=heartbeat))[0]:
                await call.write(comment)
            return waiting.result()
        finally:
            if not waiting.done():
                waiting.cancel()
                await asyncio.wait((waiting,))

    async def _write(self, reply: Reply, work: Callable[[], T]) -> T:
        """The result of writing a reply, on a worker if it is large."""
        return await self._state.workers.write(work) if is_large(reply) else work()

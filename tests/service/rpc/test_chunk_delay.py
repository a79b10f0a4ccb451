"""chunk.max_delay: tokens wait for others to share a message, over gRPC and over HTTP, with a clock of the test."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from imp_service.api.replies import Reply
from imp_service.serving.generation_stream import GenerationStream
from support.run.patience import HANGS_AFTER
from support.servers.gate import ALL_STEPS, HELD, Gate, gate
from support.servers.http_served import HttpServed, serve_http
from support.servers.served import ask

DELAY = 10.0
N_TOKENS = 11


def over_grpc(http: HttpServed) -> Iterator[int]:
    """Yields the number of tokens of each message of a stream."""
    for message in http.served.inference.Generate(ask([300], N_TOKENS)):
        if message.WhichOneof("event") == "chunk":
            yield len(message.chunk.token_ids)


def over_http(http: HttpServed) -> Iterator[int]:
    """Yields the number of tokens of each event of a stream."""
    body = {"prompt": [300], "max_tokens": N_TOKENS, "ignore_eos": True, "logprobs": 0}
    n_before = 0
    for events in http.client.streaming("/v1/completions", body):
        for event in events.objects[n_before:]:
            yield sum(len(choice["logprobs"]["tokens"]) for choice in event["choices"] if choice["logprobs"])
        n_before = len(events.objects)


class Stream:
    """A stream whose every token after the first waits for the test, and a reader that is never busy."""

    def __init__(self, http: HttpServed, held: Gate, sizes: Iterator[int]) -> None:
        self.served = http.served
        self._held = held
        self._sizes = filter(None, sizes)
        self._n_made = 1
        self.received: list[int] = []

    def read(self) -> None:
        for size in self._sizes:
            self.received.append(size)

    def make(self, n: int, *, reader_is_busy: bool = False) -> None:
        """Lets the model make `n` tokens, one at a time: a reader that is not busy has had its turn after each."""
        for _ in range(n):
            self._held.wait()
            self._held.open()
            self._n_made += 1
            self._wait_until_made(reader_is_busy)

    def _wait_until_made(self, reader_is_busy: bool) -> None:
        requests = self.served.state.requests

        def is_made() -> bool:
            running = [each.stream for each in requests if each.n_output_tokens == self._n_made]
            # A reader that has been woken has no waiter until it has looked at the token.
            has_looked = any(each is not None and (reader_is_busy or each._waiter is not None) for each in running)
            return self._n_made == N_TOKENS or has_looked

        self.served.wait_until(is_made, f"token {self._n_made} is made")

    def jump(self, seconds: float) -> None:
        """Sets the server's clock forward."""
        self.served.jump(seconds)

    def wait_until_received(self, n: int) -> None:
        self.served.wait_until(lambda: sum(self.received) == n, f"{n} tokens are received")


@pytest.fixture(params=[over_grpc, over_http])
def stream(request: pytest.FixtureRequest) -> Iterator[Stream]:
    """A stream of messages of at most 3 tokens, whose first token has been received."""
    settings = ("chunk.max_tokens=3", f"chunk.max_delay={DELAY:.0f}s")
    with (
        ThreadPoolExecutor(1) as pool,
        gate() as held,
        serve_http(*settings, model=held.model("table", [HELD])) as http,
    ):
        stream = Stream(http, held, request.param(http))
        reading = pool.submit(stream.read)
        try:
            stream.wait_until_received(1)  # the first token does not wait
            yield stream
        finally:
            held.open(ALL_STEPS)
            reading.result(HANGS_AFTER)


def test_txt_14_each_message_after_the_first_waits_for_the_delay_or_until_it_is_full(
    stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[int] = []
    end_delay = GenerationStream._end_delay

    def end(of: GenerationStream) -> None:
        waited.append(of._run.fold.n_unread_tokens)
        end_delay(of)

    monkeypatch.setattr(GenerationStream, "_end_delay", end)
    for _ in range(2):  # each message has a delay of its own
        stream.make(2)
        stream.jump(DELAY)
    stream.wait_until_received(5)
    stream.make(1)
    stream.jump(0.6 * DELAY)
    stream.make(2)
    stream.wait_until_received(8)  # a full message does not wait
    stream.make(1)
    stream.jump(0.5 * DELAY)  # the delay of the message that was full would be over
    stream.make(1)
    stream.jump(0.5 * DELAY)
    stream.wait_until_received(10)
    stream.make(1)
    stream.wait_until_received(N_TOKENS)
    assert stream.received == [1, 2, 2, 3, 2, 1]
    assert waited == [2, 2, 2]


def test_txt_14_a_token_that_comes_while_a_message_is_written_waits_for_a_delay_of_its_own(
    stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = asyncio.Event()
    next_reply = GenerationStream.next_reply

    async def when_free(of: GenerationStream) -> Reply | None:
        await free.wait()
        return await next_reply(of)

    stream.make(2)
    monkeypatch.setattr(GenerationStream, "next_reply", when_free)
    stream.jump(DELAY)
    stream.wait_until_received(3)
    stream.make(1, reader_is_busy=True)
    stream.served.call(free.set)
    stream.make(1)
    stream.jump(DELAY)
    stream.wait_until_received(5)
    assert stream.received == [1, 2, 2]

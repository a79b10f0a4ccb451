"""chunk.max_delay: tokens wait for others to share a message, over gRPC and over HTTP, with a clock of the test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from imp_service.serving.generation_stream import GenerationStream
from support.gate import ALL_STEPS, HELD, Gate, gate
from support.http_served import HttpServed, serve_http
from support.patience import HANGS_AFTER
from support.served import ask

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
        self._served = http.served
        self._held = held
        self._sizes = filter(None, sizes)
        self._n_made = 1
        self.received: list[int] = []

    def read(self) -> None:
        for size in self._sizes:
            self.received.append(size)

    def make(self, n: int) -> None:
        """Lets the model make `n` tokens, one at a time: the reader has had its turn after each."""
        for _ in range(n):
            self._held.wait()
            self._held.open()
            self._n_made += 1
            self._wait_until_made()

    def _wait_until_made(self) -> None:
        requests = self._served.host.requests

        def is_made() -> bool:
            running = [each.stream for each in requests if each.n_output_tokens == self._n_made]
            # A reader that has been woken has no waiter until it has looked at the token.
            return self._n_made == N_TOKENS or any(each is not None and each._waiter is not None for each in running)

        self._served.wait_until(is_made, f"token {self._n_made} is made")

    def wait_until_received(self, n: int) -> None:
        self._served.wait_until(lambda: sum(self.received) == n, f"{n} tokens are received")


@pytest.mark.parametrize("sizes_of", [over_grpc, over_http])
def test_txt_14_each_message_after_the_first_waits_for_the_delay_or_until_it_is_full(
    sizes_of: Callable[[HttpServed], Iterator[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[int] = []
    end_delay = GenerationStream._end_delay

    def end(of: GenerationStream) -> None:
        waited.append(of._run.fold.n_unread_tokens)
        end_delay(of)

    monkeypatch.setattr(GenerationStream, "_end_delay", end)
    settings = ("chunk.max_tokens=3", f"chunk.max_delay={DELAY:.0f}s")
    with (
        ThreadPoolExecutor(1) as pool,
        gate() as held,
        serve_http(*settings, model=held.model("table", [HELD])) as http,
    ):
        stream = Stream(http, held, sizes_of(http))
        reading = pool.submit(stream.read)
        try:
            stream.wait_until_received(1)  # the first token does not wait
            for _ in range(2):  # each message has a delay of its own
                stream.make(2)
                http.served.jump(DELAY)
            stream.wait_until_received(5)
            stream.make(1)
            http.served.jump(0.6 * DELAY)
            stream.make(2)
            stream.wait_until_received(8)  # a full message does not wait
            stream.make(1)
            http.served.jump(0.5 * DELAY)  # the delay of the message that was full would be over
            stream.make(1)
            http.served.jump(0.5 * DELAY)
            stream.wait_until_received(10)
            stream.make(1)
            reading.result(HANGS_AFTER)
        finally:
            held.open(ALL_STEPS)
    assert stream.received == [1, 2, 2, 3, 2, 1]
    assert waited == [2, 2, 2]

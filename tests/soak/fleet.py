"""Servers that are killed, stopped, cut off, drained and started again, under clients that must lose no stream."""

from __future__ import annotations

import json
import math
import os
import random
import signal
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import takewhile
from pathlib import Path
from typing import Any

import imp_service
from imp_service import Client, LanguageModel
from imp_service.api.errors import Error
from imp_service.api.replies import GenerationResult
from soak.golden_load import ClientState, GoldenLoad
from support.machine.lasting_port import lasting_port
from support.run.patience import HANGS_AFTER
from support.run.pauses import pause
from support.servers.cutting_proxy import CuttingProxy
from support.servers.server_process import ServerProcess

SETTINGS = ("drain.delay=200ms", "drain.grace=20s", "kv.bytes=32MiB", "log.format=json")
STOPPED_SECONDS = 0.3
# What befalls a server, by the names of Fleet's methods.
KINDS = ("killed", "cut", "drained", "stopped", "restarted", "cut")
KILLS = ("killed", "restarted")

# What each request asks for. Together: greedy and sampled, several sequences, stops, a constraint, penalties, tools.
ASKED: Sequence[dict[str, Any]] = (
    {"prompt": "Once upon a time", "max_tokens": 400, "temperature": 0.0, "ignore_eos": True},
    {"prompt": "A dog and a cat", "max_tokens": 300, "seed": 11, "ignore_eos": True, "num_sequences": 3},
    {"prompt": "The little girl", "max_tokens": 400, "seed": 12, "stop": ["garden", "happy"]},
    {"prompt": "Number: ", "max_tokens": 200, "seed": 13, "regex": "[0-9 ]{150}"},
    {"prompt": "One day", "max_tokens": 300, "seed": 14, "frequency_penalty": 0.6, "ignore_eos": True},
    {"prompt": "Tom said", "max_tokens": 250, "seed": 15, "logprobs": True, "ignore_eos": True},
)


def told(results: Sequence[GenerationResult]) -> list[Any]:
    """What must be the same however often a stream breaks."""
    return [(each.text, each.token_ids, each.finish_reason, each.match, each.logprobs) for each in results]


def goldens() -> list[tuple[dict[str, Any], list[Any]]]:
    """Each request with what this process generates for it, alone."""
    with imp_service.load(None, "device.threads=1") as model:
        return [(asked, told(begun(model, asked).results())) for asked in ASKED]


def begun(model: LanguageModel | Client, asked: dict[str, Any]) -> Any:
    """Begins a generation."""
    options = dict(asked)
    return model.generate(options.pop("prompt"), **options)


class Member:
    """One server of a fleet. It has the same port in each of its lives."""

    def __init__(self, folder: Path, *settings: str, survives: bool = False) -> None:
        """`survives`: it starts its engine process again by itself, and only that is killed."""
        self.address = f"127.0.0.1:{lasting_port()}"
        self._folder, self._settings = folder, (*SETTINGS, *settings)
        self._words = ("--survive", "--http", "127.0.0.1:0") if survives else ()
        # The engine process that was killed last.
        self._killed = 0
        folder.mkdir()
        self.start()

    def start(self, *settings: str) -> None:
        """Starts it, or starts it again."""
        listen = ("--listen", self.address)
        self.process = ServerProcess(
            self._folder, *self._words, settings=(*self._settings, *settings), listen=listen, is_traced=False
        )

    def kill(self) -> None:
        """Ends it with SIGKILL, and starts it again."""
        if self._words:
            self._show_a_token()
            self._killed = self._engine
            os.kill(self._killed, signal.SIGKILL)
        else:
            self.process.kill()
            self.start()

    def wait(self) -> None:
        """Waits until it is ready."""
        self.process.wait_until_ready()
        give_up = time.monotonic() + HANGS_AFTER
        while self._words and self._engine == self._killed:
            assert self.process.process.poll() is None and time.monotonic() < give_up, self.process.stderr[-2000:]
            pause()

    @property
    def _engine(self) -> int:
        return int(json.loads(self.process.ready_file.read_text())["engine_pid"])

    def _show_a_token(self) -> None:
        """Of more than eight deaths without progress the front gives up (ISO-7). No client may have come meanwhile."""
        (address,) = self.process.wait_until_ready()["http"]
        body = json.dumps({"prompt": "a", "max_tokens": 1}).encode()
        asked = urllib.request.Request(f"http://{address}/v1/completions", body, {"content-type": "application/json"})
        with urllib.request.urlopen(asked, timeout=HANGS_AFTER) as reply:
            reply.read()


class Fleet:
    """The servers, each behind a proxy, and what befalls them."""

    def __init__(self, folder: Path, n: int, *, survives: bool = False) -> None:
        self.members = [Member(folder / str(i), survives=survives) for i in range(n)]
        self._proxies: list[CuttingProxy] = []
        try:
            for each in self.members:
                each.wait()
                self._proxies.append(CuttingProxy(each.address))
        except BaseException:
            self.close()
            raise
        self.n_done: Counter[str] = Counter()

    @property
    def target(self) -> str:
        """All of them, for connect()."""
        return "ipv4:" + ",".join(each.address for each in self._proxies)

    def close(self) -> None:
        """Ends everything."""
        for proxy in self._proxies:
            proxy.close()
        for each in self.members:
            each.process.kill()

    def killed(self, i: int) -> None:
        """SIGKILL, at any moment."""
        self.members[i].kill()

    def drained(self, i: int) -> None:
        """SIGTERM. Its streams go on elsewhere, so it ends soon, long before its grace is over."""
        began = time.monotonic()
        status = self.members[i].process.terminate()
        assert status == 0, f"a drain ended with {status}: {self.members[i].process.stderr[-2000:]}"
        assert time.monotonic() - began < 15, "a drain waited for streams that go on elsewhere"
        self.members[i].start()

    def restarted(self, i: int) -> None:
        """SIGKILL, then other threads, chunks and guesses: the same tokens."""
        self.members[i].process.kill()
        self.members[i].start("device.threads=2", "scheduler.prefill_chunk=16", "speculation.max_draft_tokens=1")

    def cut(self, i: int) -> None:
        """Every connection to it breaks."""
        self._proxies[i].cut()

    def stopped(self, i: int) -> None:
        """SIGSTOP for a while."""
        process = self.members[i].process
        process.signal(signal.SIGSTOP)
        threading.Event().wait(STOPPED_SECONDS)
        process.signal(signal.SIGCONT)

    def strike(self, rng: random.Random, kind: str) -> None:
        """One fault, when every server is ready."""
        for each in self.members:
            each.wait()
        threading.Event().wait(rng.uniform(0.0, 0.1))
        fault: Callable[[int], None] = getattr(self, kind)
        fault(rng.randrange(len(self.members)))
        self.n_done[kind] += 1


class ResumingLoad(GoldenLoad):
    """Clients of imp.v1."""

    def __init__(
        self,
        target: str,
        known: Sequence[tuple[dict[str, Any], list[Any]]],
        n: int,
        *,
        may_be_refused: bool = False,
        **options: Any,
    ) -> None:
        """`may_be_refused`: before a stream has begun."""
        self._may_be_refused = may_be_refused
        # Half of the clients share one connection.
        self._ends = ExitStack()
        shared = self._ends.enter_context(imp_service.connect(target, **options))
        self._clients = [
            shared if i % 2 else self._ends.enter_context(imp_service.connect(target, **options)) for i in range(n)
        ]
        super().__init__(known, n)

    def read(self, number: int, asked: dict[str, Any], state: ClientState) -> list[Any]:
        """The answer."""
        generation = begun(self._clients[number], asked)
        for _ in generation:
            state.tick()
        results = generation.results()
        state.n_resumed += results[0].resumed
        return told(results)

    def may_end(self, error: Exception, n_events: int) -> bool:
        """Whether an answer may end so, of which so many parts came."""
        return isinstance(error, Error) and self._may_be_refused and not n_events

    def close(self) -> None:
        """Closes the connections."""
        self._ends.close()


@contextmanager
def fleet(folder: Path, n: int, *, survives: bool = False) -> Iterator[Fleet]:
    """Yields a fleet that is ready."""
    it = Fleet(folder, n, survives=survives)
    try:
        yield it
    finally:
        it.close()


def run_chaos(
    folder: Path,
    kinds: Iterable[str],
    *,
    n_servers: int = 2,
    n_clients: int = 16,
    seconds: float = math.inf,
    survives: bool = False,
) -> dict[str, Any]:
    """Strikes these faults in turn, each at a random server, at most for so long. Returns the verdict as data."""
    known, rng, began = goldens(), random.Random(n_servers), time.monotonic()
    with fleet(folder, n_servers, survives=survives) as it:
        load = ResumingLoad(it.target, known, n_clients)
        try:
            for kind in takewhile(lambda _: not load.problems and time.monotonic() < began + seconds, kinds):
                if survives:
                    # Such a server is soon ready again. Of three breaks without a token a stream ends (RSM-4).
                    load.wait_for_events(load.events(), all)
                it.strike(rng, kind)
        except AssertionError as error:
            load.problems.append(str(error))
        finally:
            problems = load.stop()
        return {
            "ok": not problems,
            "problems": problems[:100],
            "seconds": round(time.monotonic() - began, 1),
            "kills": sum(it.n_done[kind] for kind in KILLS),
            "faults": dict(it.n_done),
            "streams": load.n_streams,
            "resumed": load.n_resumed,
        }

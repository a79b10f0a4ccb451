"""A loaded server stays within the memory that the generated manifests request."""

from __future__ import annotations

import contextlib
import itertools
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest
import yaml

from imp_service.pb import inference_pb2 as pb
from imp_service.pb import inference_pb2_grpc, tokenizer_pb2_grpc
from imp_service.pb import tokenizer_pb2 as tok
from support.deploy.pods import imp_of
from support.machine.command_line import clean_environment
from support.machine.control_group import memory_group, peak_bytes
from support.machine.process_numbers import ProcessNumbers
from support.run.patience import HANGS_AFTER
from support.run.quick_run import Repeats
from support.servers.server_process import ServerProcess

MEGABYTE = 1_000_000
WORDS = ("Once upon a time there was a little girl. " * 30_000)[:MEGABYTE]
LETTERS = "a" * MEGABYTE  # without places to split
CHINESE = "漢字" * (MEGABYTE // 6)
# The most seconds of processor time that the server may use, for everything it does, during one ordinary request.
# Time on a clock would also count what other programs do.
MOST_PROCESSOR_SECONDS = 10.0
CALL = {"timeout": HANGS_AFTER}


def planned(folder: Path) -> tuple[int, tuple[str, ...]]:
    """Returns the memory that `imp k8s` requests, and the settings that it writes for the pod."""
    command = [sys.executable, "-P", "-m", "imp_service", "k8s"]
    written = subprocess.run(command, env=clean_environment(folder), cwd=folder, capture_output=True, check=True)
    documents = list(yaml.safe_load_all(written.stdout))
    asked = imp_of(documents)["resources"]["limits"]["memory"]
    conf = next(each for each in documents if each["kind"] == "ConfigMap")["data"]["imp.conf"]
    kv = next(line.partition("=")[2].split("#")[0].strip() for line in conf.splitlines() if line.startswith("bytes = "))
    return int(asked.removesuffix("Mi")) * 1024**2, (f"kv.bytes={kv}",)


@contextlib.contextmanager
def limited_server(folder: Path) -> Iterator[tuple[ServerProcess, int]]:
    limit, settings = planned(folder)
    with memory_group(limit) as inside:
        server = ServerProcess(folder, settings=settings, inside=inside, is_traced=False)
        try:
            server.wait_until_ready()
            yield server, limit
        finally:
            server.kill()


class Load:
    """Makes calls from many threads, and counts their outcomes."""

    def __init__(self, server: ServerProcess) -> None:
        self._server = server
        self._lock = threading.Lock()
        self.ends: Counter[tuple[str, str]] = Counter()
        # Processor time of the server during the slowest ordinary request.
        self.longest = 0.0

    def __call__(self, name: str, call: Callable[[grpc.Channel], object]) -> None:
        options = [("grpc.use_local_subchannel_pool", 1), ("grpc.max_receive_message_length", -1)]
        before = ProcessNumbers.of(self._server.pid).cpu_seconds
        with grpc.insecure_channel(self._server.address, options=options) as channel:
            try:
                call(channel)
                code = "OK"
            except grpc.RpcError as error:
                code = error.code().name
        spent = ProcessNumbers.of(self._server.pid).cpu_seconds - before
        with self._lock:
            self.ends[name, code] += 1
            if name == "ordinary":
                self.longest = max(self.longest, spent)


def ordinary(i: int) -> Callable[[grpc.Channel], object]:
    request = pb.GenerateRequest(text=f"Once upon a time {i}", stop={"max_tokens": 8})
    return lambda channel: list(inference_pb2_grpc.InferenceServiceStub(channel).Generate(request, **CALL))


def generate(text: str) -> Callable[[grpc.Channel], object]:
    request = pb.GenerateRequest(text=text)
    return lambda channel: list(inference_pb2_grpc.InferenceServiceStub(channel).Generate(request, **CALL))


def prefill(text: str) -> Callable[[grpc.Channel], object]:
    request = pb.PrefillRequest(text=text)
    return lambda channel: inference_pb2_grpc.InferenceServiceStub(channel).Prefill(request, **CALL)


def tokenize(text: str, **options: bool) -> Callable[[grpc.Channel], object]:
    request = tok.TokenizeRequest(texts=[text], **options)
    return lambda channel: tokenizer_pb2_grpc.TokenizerServiceStub(channel).Tokenize(request, **CALL)


def chat(text: str) -> Callable[[grpc.Channel], object]:
    request = tok.ApplyChatTemplateRequest(chat={"messages": [{"role": "user", "content": text}]})
    return lambda channel: tokenizer_pb2_grpc.TokenizerServiceStub(channel).ApplyChatTemplate(request, **CALL)


def detokenize(n_ids: int) -> Callable[[grpc.Channel], object]:
    request = tok.DetokenizeRequest(token_ids=[{"ids": [300] * n_ids}])
    return lambda channel: tokenizer_pb2_grpc.TokenizerServiceStub(channel).Detokenize(request, **CALL)


def scored(channel: grpc.Channel) -> None:
    """Requests all scores of each token, and stalls as a reader for a while."""
    request = pb.GenerateRequest(
        text="Once upon a time",
        stop={"max_tokens": 200, "ignore_eos": True},
        output={"logprobs": True, "top_logprobs": 20, "prompt_logprobs": True},
    )
    replies = inference_pb2_grpc.InferenceServiceStub(channel).Generate(request, **CALL)
    list(itertools.islice(replies, 2))
    threading.Event().wait(0.2)  # the stall is part of the load
    list(replies)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("planned")


def test_y02_a_hundred_prompts_of_a_megabyte_beside_a_thousand_ordinary_requests(
    folder: Path, repeats: Repeats
) -> None:
    n = repeats(1000)
    with limited_server(folder) as (server, limit), ThreadPoolExecutor(64) as threads:
        load = Load(server)
        for i in range(n):
            threads.submit(load, "ordinary", ordinary(i))
            if i % 10 == 0:
                threads.submit(load, "long", generate((WORDS, LETTERS)[i % 20 // 10]))
        threads.shutdown(wait=True)
        assert server.process.poll() is None, "killed"
        assert load.ends == {("ordinary", "OK"): n, ("long", "OUT_OF_RANGE"): n // 10}
        assert peak_bytes(server.pid) < limit
        assert 0 < load.longest < MOST_PROCESSOR_SECONDS


@pytest.mark.long
def test_y02_a_mix_of_all_calls_at_their_largest(folder: Path, repeats: Repeats) -> None:
    n = repeats(6)
    with limited_server(folder) as (server, limit), ThreadPoolExecutor(32) as threads:
        load = Load(server)
        for i in range(n):
            threads.submit(load, "words", tokenize(WORDS))
            threads.submit(load, "letters", tokenize(LETTERS))
            threads.submit(load, "offsets", tokenize(WORDS, offsets=True))
            threads.submit(load, "counted", tokenize(CHINESE, count_only=True))
            threads.submit(load, "chat", chat(WORDS))
            threads.submit(load, "ids", detokenize(1_000_000))
            threads.submit(load, "session", prefill(LETTERS))
            for j in range(10):
                threads.submit(load, "scored", scored)
                threads.submit(load, "ordinary", ordinary(10 * i + j))
        threads.shutdown(wait=True)
        assert server.process.poll() is None, "killed"
        # Where too much text waits the call gets that error; no other call fails.
        kinds = {"words", "letters", "offsets", "counted", "chat", "ids", "session", "scored", "ordinary"}
        assert {name for name, code in load.ends if code in ("OK", "OUT_OF_RANGE")} == kinds
        assert {code for _, code in load.ends} <= {"OK", "OUT_OF_RANGE", "RESOURCE_EXHAUSTED", "INVALID_ARGUMENT"}
        assert load.ends["ordinary", "OK"] == load.ends["scored", "OK"] == 10 * n
        assert peak_bytes(server.pid) < limit
        assert 0 < load.longest < MOST_PROCESSOR_SECONDS

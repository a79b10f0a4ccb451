"""imp call --record and imp replay: a stream again, elsewhere, with the same ids; and what replay finds."""

from __future__ import annotations

import dataclasses
import json
import random
import stat
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import gguf
import pytest

from imp_service import SamplingOptions
from imp_service.api.options import seed_of
from imp_service.cli.replay.record import Difference, RecordedSequence, difference
from imp_service.generation.options_in_force import OptionsInForce
from imp_service.models import demo_model_path
from support.run.release_run import repetitions
from support.servers.server_process import ServerProcess, server_process

DEMO = str(demo_model_path())
N_REQUESTS = repetitions(500, 8)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with server_process(tmp_path_factory.mktemp("server")) as process:
        process.wait_until_ready()
        yield process


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """Another process of the same model, in all that must not count."""
    settings = ("device.isa=generic", "device.threads=2", "speculation.drafters=[]", "scheduler.prefill_chunk=5")
    words = [word for setting in settings for word in ("--set", setting)]
    with server_process(tmp_path_factory.mktemp("other"), *words) as process:
        process.wait_until_ready()
        yield process


def random_fields(draw: random.Random) -> Mapping[str, Any]:
    """A random GenerateRequest."""
    prompt: Mapping[str, Any] = draw.choice([
        {"text": draw.choice(["Once upon a time", "The weather today", "日本 😀"])},
        {"token_ids": {"ids": [draw.randrange(2048) for _ in range(draw.randrange(1, 9))]}},
        {"chat": {"messages": [{"role": "user", "content": draw.choice(["Hello", "What is 2 plus 2?"])}]}},
    ])  # fmt: skip
    constraint = draw.choice([{}, {}, {"constraint": {"regex": "[a-z ]{5,40}"}}])
    sampling = {
        "temperature": draw.choice([0, 0.7, 1, 3]),
        "top_p": draw.choice([0.5, 1]),
        "repetition_penalty": draw.choice([1, 1.2]),
    }
    stop = {"max_tokens": draw.choice([1, 7, 40]), "strings": draw.choice([[], ["e"], ["the", "."]])}
    return {**prompt, **constraint, "sampling": sampling, "stop": stop, "num_sequences": draw.choice([1, 1, 3])}


@contextmanager
def load_on(server: ServerProcess) -> Iterator[None]:
    """Other requests that run meanwhile."""
    stops = threading.Event()

    def run() -> None:
        import imp_service

        with imp_service.connect(server.address) as client:
            while not stops.is_set():
                client.generate("Once upon a time", max_tokens=30, temperature=1).result()

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stops.set()
        for thread in threads:
            thread.join()


def test_rct_1_random_requests_are_the_same_in_another_process(call, server, other, tmp_path: Path) -> None:
    draw = random.Random(1)
    with load_on(other):
        for i in range(N_REQUESTS):
            path, fields = str(tmp_path / f"{i}.json"), json.dumps(random_fields(draw))
            status, _, err = call(
                "call", "generate", "--json", "--target", server.address, "--fields", fields, "--record", path
            )
            assert status == 0, (fields, err)
            status, out, err = call("replay", path, "--target", other.address)
            assert (status, out[:8]) == (0, "the same"), (fields, out, err)


@pytest.fixture
def recorded(call, server: ServerProcess, tmp_path: Path) -> Mapping[str, Any]:
    """The content of a file."""
    path = tmp_path / "recorded.json"
    words = ("call", "generate", "Once upon a time", "-n", "30", "--temperature", "1", "--target", server.address)
    assert call(*words, "--record", str(path))[0] == 0
    content: Mapping[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return content


def written(path: Path, content: Mapping[str, Any], **changes: Any) -> str:
    path.write_text(json.dumps({**content, **changes}), encoding="utf-8")
    return str(path)


def test_rct_1_the_file_is_for_its_owner_and_replaces_a_regular_file_only(call, server, tmp_path: Path) -> None:
    path = tmp_path / "stream.json"
    path.write_text("old")
    words = ("call", "generate", "Hello", "-n", "3", "--target", server.address, "--record")
    assert call(*words, str(path))[0] == 0
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    content = json.loads(path.read_text(encoding="utf-8"))
    assert list(content) == ["imp_record", "request", "origin", "fingerprint", "sequences"]
    assert content["request"] == {"text": "Hello", "stop": {"max_tokens": 3}}
    assert content["origin"]["server"] and content["fingerprint"]["cache"] == "bf16"
    assert [len(each["token_ids"]) for each in content["sequences"]] == [3]
    assert content["sequences"][0]["end"] == {"reason": "max_tokens"}
    status, _, err = call(*words, str(tmp_path))
    assert status == 73 and "CANNOT_CREATE: --record" in err and "found a directory" in err
    assert [each.name for each in tmp_path.iterdir()] == ["stream.json"]


def test_rct_1_a_chat_is_recorded_with_a_message(call, server, tmp_path: Path) -> None:
    path, to = str(tmp_path / "stream.json"), ("--target", server.address)
    assert call("call", "chat", "What is 2 plus 2?", *to, "--record", path)[0] == 0
    assert call("replay", path, *to)[:2] == (0, "the same: 1 sequence, 8 tokens\n")
    status, _, err = call("call", "chat", *to, "--record", path)
    assert status == 64 and "--record: expected MESSAGE too" in err
    resumed = ("--fields", '{"resume": {}}')
    status, _, err = call("call", "generate", "Hello", *to, *resumed, "--record", path)
    assert status == 64 and "expected a stream from its beginning" in err


def test_rct_1_a_stream_that_was_cut_is_compared_as_far_as_it_came(call, server, recorded, tmp_path: Path) -> None:
    cut = [{"token_ids": recorded["sequences"][0]["token_ids"][:11], "end": None}]
    path = written(tmp_path / "cut.json", recorded, sequences=cut)
    assert call("replay", path, "--target", server.address)[:2] == (0, "the same: 1 sequence, 11 tokens\n")


def test_rct_1_a_new_stream_that_a_clock_ends_says_nothing(call, server, recorded, tmp_path: Path) -> None:
    request = {**recorded["request"], "stop": {**recorded["request"].get("stop", {}), "time_limit": "0.000001s"}}
    path = written(tmp_path / "late.json", recorded, request=request)
    status, out, err = call("replay", path, "--target", server.address)
    assert (status, out) == (2, "") and "ended the new stream" in err


def test_rct_1_a_model_runs_here(call, recorded, tmp_path: Path) -> None:
    path = written(tmp_path / "stream.json", recorded)
    here = ("-m", DEMO, "--set", "device.isa=generic", "--set", "device.threads=1")
    assert call("replay", path, *here)[:2] == (0, "the same: 1 sequence, 30 tokens\n")
    status, _, err = call("replay", path, "-m", "nosuch.gguf")
    assert status == 66 and "MODEL_MISSING" in err
    status, _, err = call("replay", path, "-m", DEMO, "--target", "127.0.0.1:1")
    assert status == 64 and "expected one of them" in err


def test_rct_6_another_kernel_and_a_flipped_bit_are_named(call, recorded, tmp_path: Path) -> None:
    path = written(tmp_path / "stream.json", recorded)
    status, out, err = call("replay", path, "-m", DEMO, "--set", "model.overrides.gemm.q8_0=reference")
    assert (status, out) == (2, "")
    assert "imp: cannot say: kernels: recorded q8_0 by q8_block32" in err
    assert "here q8_0 by f32_sequential" in err and "imp: cannot say: logits: recorded" in err
    tensor = next(each for each in gguf.GGUFReader(DEMO).tensors if each.name == "blk.2.attn_v.weight")
    content = bytearray(Path(DEMO).read_bytes())
    content[tensor.data_offset + 10] ^= 1
    (tmp_path / "m.gguf").write_bytes(content)
    status, out, err = call("replay", path, "-m", str(tmp_path / "m.gguf"))
    assert (status, out) == (2, "")
    assert [line.split(": ")[2] for line in err.splitlines() if "cannot say" in line] == ["logits"]


def test_rct_6_a_broken_sampler_is_found(call, recorded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path / "stream.json", recorded)
    draw = OptionsInForce.core_sampling

    def draw_otherwise(options: OptionsInForce, sampling: SamplingOptions) -> Any:
        return draw(options, dataclasses.replace(sampling, seed=seed_of(sampling) ^ 1))

    monkeypatch.setattr(OptionsInForce, "core_sampling", draw_otherwise)
    status, out, _ = call("replay", path, "-m", DEMO)
    assert status == 1 and out.startswith("different: sequence 0, output ")


def test_rct_6_another_id_is_shown_with_its_text(call, server, recorded, tmp_path: Path) -> None:
    ids = recorded["sequences"][0]["token_ids"]
    other = [*ids[:17], ids[17] ^ 1, *ids[18:]]
    sequences = [{**recorded["sequences"][0], "token_ids": other}]
    path = written(tmp_path / "b.json", recorded, sequences=sequences)
    status, out, _ = call("replay", path, "--target", server.address)
    assert status == 1

    def shown(token: int) -> str:
        text = call("call", "detokenize", str(token), "--target", server.address)[1]
        return f"{token} {text[:-1]!r}"

    assert out == f"different: sequence 0, output 17: recorded {shown(other[17])}, here {shown(ids[17])}\n"


def test_rct_6_another_request_cannot_be_compared(call, server, recorded, tmp_path: Path) -> None:
    request = {**recorded["request"], "text": "Once upon a rhyme"}
    path = written(tmp_path / "stream.json", recorded, request=request)
    status, out, err = call("replay", path, "--target", server.address)
    assert (status, out) == (2, "")
    assert err == "imp: cannot say: request: the request has another meaning there\n"


BROKEN: Mapping[str, str] = {
    "": "is no JSON",
    "[1]": "expected a file of imp call --record",
    '{"imp_record": 2}': "with imp_record = 1",
    '{"imp_record": 1, "fingerprint": []}': "fingerprint: expected an object",
    '{"imp_record": 1, "fingerprint": {}, "sequences": []}': "sequences: expected a list of one or more",
    '{"imp_record": 1, "fingerprint": {}, "sequences": [7]}': "sequences[0]: expected an object",
    '{"imp_record": 1, "fingerprint": {}, "sequences": [{"token_ids": [-1]}]}': "sequences[0].token_ids: expected",
    '{"imp_record": 1, "fingerprint": {}, "sequences": [{"token_ids": [], "end": 3}]}': "sequences[0].end: expected",
    '{"imp_record": 1, "fingerprint": {}, "sequences": [{"token_ids": []}]}': "request: expected an object",
    '{"imp_record": 1, "fingerprint": {}, "sequences": [{"token_ids": []}], "request": {"x": 1}, "origin": {}}': '"x"',
    "[" * 100_000: "is no JSON",
}


@pytest.mark.parametrize("content", BROKEN, ids=lambda content: content[:40])
def test_rct_1_a_file_that_is_no_record_is_refused(call, content: str, tmp_path: Path) -> None:
    path = tmp_path / "broken.json"
    path.write_text(content)
    status, out, err = call("replay", str(path), "--target", "127.0.0.1:1")
    assert (status, out) == (65, "")
    assert "RECORD_INVALID: FILE: " in err and BROKEN[content] in err


STOP, LIMIT = {"reason": "stop", "eos_token_id": 2}, {"reason": "max_tokens"}


@pytest.mark.parametrize(
    ("recorded", "found", "expected"),
    [
        (RecordedSequence([1, 2], STOP), RecordedSequence([1, 2], STOP), None),
        (RecordedSequence([1, 2], STOP), RecordedSequence([1, 3], STOP), Difference(1, 1, 2, 3)),
        (RecordedSequence([1, 2], STOP), RecordedSequence([1], STOP), Difference(1, 1, 2, STOP)),
        (RecordedSequence([1, 2], STOP), RecordedSequence([1, 2, 3], STOP), Difference(1, 2, STOP, 3)),
        (RecordedSequence([1, 2], STOP), RecordedSequence([1, 2], LIMIT), Difference(1, 2, STOP, LIMIT)),
        (RecordedSequence([1, 2], STOP), RecordedSequence([1, 2]), None),
        (RecordedSequence([1, 2], STOP), RecordedSequence([1]), None),
        (RecordedSequence([1, 2], STOP), RecordedSequence([3]), Difference(1, 0, 1, 3)),
        (RecordedSequence([1, 2]), RecordedSequence([1, 2, 3], STOP), None),
        (RecordedSequence([1, 2]), RecordedSequence([1], STOP), Difference(1, 1, 2, STOP)),
    ],
)
def test_rct_1_the_first_difference(
    recorded: RecordedSequence, found: RecordedSequence, expected: Difference | None
) -> None:
    same = RecordedSequence([7], LIMIT)
    assert difference([same, recorded], [same, found]) == expected

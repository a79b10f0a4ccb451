"""imp call and imp bench against a real server print what the server returns, if the caller may see it."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path

import pytest

from imp_service.models import demo_model_path
from support.servers.server_process import server_process

GOLDEN = json.loads((Path(__file__).parents[2] / "data" / "demo_golden.json").read_text())
STORY = GOLDEN["models"]["target"]["prompts"][0]
TOKEN = "a-token-of-the-test"
TOKENS = f"{hashlib.sha256(TOKEN.encode()).hexdigest()} data,read,admin *\n"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory):
    with server_process(tmp_path_factory.mktemp("server")) as process:
        process.wait_until_ready()
        yield process


def test_a_text_is_what_the_model_says(call, server):
    greedy = ("--temperature", "0", "--max-tokens", str(len(STORY["output_ids"])))
    status, out, err = call("call", "generate", STORY["text"], "--target", server.address, "--verbose", *greedy)
    assert (status, out) == (0, STORY["output_text"] + "\n")
    assert re.fullmatch(
        r"— 64 tokens, \d+ tok/s, first token [\d.]+ ms, ended by the limit of tokens \(--max-tokens\)\."
        r"   imp demo: prompt 4 tokens, seed \d+, request \S+\n",
        err,
    ), err


def test_a_chat_is_answered(call, server):
    words = ("--target", server.address, "--temperature", "0", "--stop", "machine")
    status, out, _ = call("call", "What is imp?", *words)
    expected = "imp is a small server for large language models. It loads a model file and generates text, on your own "
    assert (status, out) == (0, expected + "\n")


def test_health_is_the_exit_status(call, server):
    to = ("--target", server.address)
    for service in ("", "liveness", "imp.v1.InferenceService"):
        assert call("call", "health", service, *to) == (0, "SERVING\n", "")
    status, out, err = call("call", "health", "imp.v1.NoSuchService", *to)
    assert (status, out) == (66, "")
    assert err.startswith("imp: error: NOT_FOUND: ")


def test_tokens_are_those_of_the_model(call, server):
    to = ("--target", server.address)
    ids = [str(i) for i in STORY["prompt_ids"]]
    assert call("call", "tokenize", STORY["text"], *to) == (0, " ".join(ids) + "\n", "")
    assert call("call", "tokenize", STORY["text"], "--count", *to) == (0, "4\n", "")
    assert call("call", "detokenize", *ids, *to) == (0, STORY["text"] + "\n", "")


def test_info_names_the_model_and_the_server(call, server):
    status, out, err = call("call", "info", "--target", server.address)
    rows = dict(re.split(r"  +", line, maxsplit=1) for line in out.splitlines())
    assert (status, err) == (0, "")
    assert (rows["model"].split(",")[0], rows["architecture"]) == ("imp demo", "qwen3")
    assert rows["context"] == "512 tokens, vocabulary 2048"
    assert rows["at once"] == "64 running, 256 waiting"
    model, told_server = map(json.loads, call("call", "info", "--target", server.address, "--json")[1].splitlines())
    assert model["weights_sha256"] in ("", hashlib.sha256(demo_model_path().read_bytes()).hexdigest())
    assert told_server["threads"] == 1


def test_load_is_reported_at_rest(call, server):
    status, out, _ = call("call", "load", "--target", server.address)
    rows = dict(re.split(r"  +", line, maxsplit=1) for line in out.splitlines())
    assert (status, rows["state"], rows["running"]) == (0, "accepts calls", "0")
    assert json.loads(call("call", "load", "--target", server.address, "--json")[1])["running"] == 0


def test_a_bench_measures_the_server(call, server, tmp_path):
    small = ("--streams", "1,4", "--prompt-tokens", "16", "--tokens", "8", "--requests", "1", "--reps", "1")
    status, out, err = call("bench", "--server", server.address, *small, "--json", "--html", "page.html")
    report = json.loads(out)
    assert (status, err, report["model"]) == (0, "", "imp demo")
    assert [(level["requests"], level["failures"]) for level in report["levels"]] == [(1, {}), (4, {})]
    assert "imp demo" in (tmp_path / "page.html").read_text()


def test_a_token_opens_what_it_may(call, tmp_path_factory, monkeypatch):
    folder = tmp_path_factory.mktemp("auth")
    (folder / "tokens").write_text(TOKENS)
    (folder / "tokens").chmod(0o600)
    (folder / "token").write_text(TOKEN + "\n")
    monkeypatch.setenv("MY_TOKEN", TOKEN)
    with server_process(folder, settings=(f"auth.token_file={folder}/tokens",)) as process:
        to = ("call", "Once", "--target", process.address, "--max-tokens", "1", "--temperature", "0")
        for words in (("--token-file", str(folder / "token")), ("--token-env", "MY_TOKEN")):
            assert call(*to, *words)[0] == 0
        for words, reason in (((), "TOKEN_MISSING"), (("--token-file", str(folder / "tokens")), "TOKEN_INVALID")):
            status, out, err = call(*to, *words)
            assert (status, out) == (77, "")
            assert err.startswith(f"imp: error: {reason}: ") and err.endswith(" (UNAUTHENTICATED)\n")


def test_rsm_2_the_parts_of_the_fingerprint_are_shown(call, server, tmp_path: Path):
    to = ("--target", server.address)
    told = [json.loads(line) for line in call("call", "info", "--json", *to)[1].splitlines()][1]
    lines = [line.split() for line in call("call", "info", "--parts", *to)[1].splitlines()]
    assert ["fingerprint", told["fingerprint"]] in lines
    assert {("cache", "bf16"), ("device", "cpu")} <= {tuple(line) for line in lines}
    assert ["cache", "bf16"] not in [line.split() for line in call("call", "info", *to)[1].splitlines()]
    [serving] = server.log_lines("serving")
    assert serving["fingerprint"] == told["fingerprint"] and not server.log_lines("fingerprint")
    with server_process(tmp_path, settings=("log.level=debug",)) as talkative:
        talkative.wait_until_ready()
        [logged] = talkative.log_lines("fingerprint")
    assert logged["digest"] == told["fingerprint"]
    assert told["fingerprint_parts"].items() <= logged.items()

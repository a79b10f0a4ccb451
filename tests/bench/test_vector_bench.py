"""What `imp bench` says of vectors: calls of some texts, in this process and at a server (EMB-13)."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from imp_service.cli.shell import main
from support.models.worded_encoders import write_encoder
from support.servers.http_served import serve_http
from support.servers.scripted_openai import EMBEDDINGS, ScriptedOpenAi, scripted_openai
from support.servers.served_models import from_file

FEW = ["--threads", "1", "--reps", "2"]
SIZES = ["--prefill", "5,9", "--batch", "1,3"]


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write_encoder(tmp_path_factory.mktemp("vector_bench") / "mean"))


def measured(capfd: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    """Returns the report of `imp bench` with these words."""
    assert main(["bench", *words, "--json"]) == 0
    found: dict[str, Any] = json.loads(capfd.readouterr().out)
    return found


@pytest.mark.parametrize("kind", ["mean", "rank"])
def test_emb_13_the_bench_measures_calls_of_each_size(
    kind: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = str(write_encoder(tmp_path / kind, kind))
    report = measured(capfd, folder, *FEW, *SIZES)
    assert (report["cases"], report["overhead"]) == ([], [])
    assert [(each["tokens"], each["texts"]) for each in report["vectors"]] == [(5, 1), (5, 3), (9, 1), (9, 3)]
    for each in report["vectors"]:
        n_calls = max(4, 32 // each["texts"])
        calls, rates = each["call_seconds"]["samples"], each["texts_per_s"]["samples"]
        assert (len(calls), len(rates), each["threads"]) == (2 * n_calls, 2, 1)
        of_each = [calls[:n_calls], calls[n_calls:]]
        assert rates == [pytest.approx(each["texts"] * n_calls / sum(some)) for some in of_each]
    usual = measured(capfd, folder, "--reps", "1", "--batch", "1")["vectors"]
    assert [each["tokens"] for each in usual] == [32, 128]  # the longest that it takes


def test_emb_13_a_decoder_with_a_pooling_is_measured_at_both(capfd: pytest.CaptureFixture[str]) -> None:
    words = [*FEW, *SIZES, "--decode", "4", "--set", "model.overrides.pooling=mean"]
    report = measured(capfd, *words)
    assert [case["tokens"] for case in report["cases"]] == [5, 9, 4, 4]
    assert len(report["vectors"]) == 4
    assert measured(capfd, *FEW, *SIZES, "--decode", "4")["vectors"] == []


def test_emb_13_the_table_names_its_columns(encoder: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", encoder, *FEW, "--prefill", "5", "--batch", "1,3"]) == 0
    lines = capfd.readouterr().out.splitlines()
    heading = next(line for line in lines if line.startswith("vectors"))
    assert all(name in heading for name in ("texts/s", "tokens/s", "a call: ms"))
    rows = [line.split("  ")[0] for line in lines if " of 5 tokens" in line]
    assert rows == ["1 text of 5 tokens", "3 texts of 5 tokens"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--decode", "4"], "NOT_SUPPORTED_BY_MODEL: --decode: this model generates no text"),
        (["--standard"], "NOT_SUPPORTED_BY_MODEL: --standard: this model generates no text"),
        (["--sparse-prefill", "x"], "NOT_SUPPORTED_BY_MODEL: --sparse-prefill: this model generates no text"),
        (["--prefill", "129"], "CONTEXT_TOO_LONG: texts of 129 tokens, this model takes at most 128"),
        (["--batch", "9", "--set", "scheduler.max_waiting=8"], "FIELD_INVALID: batch 9: expected at most 8 texts"),
    ],
)
def test_emb_13_what_cannot_be_measured_is_refused(
    encoder: str, words: list[str], said: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", encoder, *words]) != 0
    assert said in capfd.readouterr().err


def test_emb_13_a_model_without_pooling_is_refused(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    folder = write_encoder(tmp_path / "unknown")
    (folder / "modules.json").unlink()
    assert main(["bench", str(folder)]) == 64
    assert "do not say how a text becomes a vector" in capfd.readouterr().err


@pytest.mark.parametrize("door", ["grpc", "http"])
def test_emb_13_a_server_is_measured_by_its_calls(door: str, encoder: str, capfd: pytest.CaptureFixture[str]) -> None:
    with serve_http(model=from_file(Path(encoder))) as http:
        address = http.served.server.addresses[0] if door == "grpc" else http.url
        server = ["--server", address, "--reps", "2", "--requests", "3"]
        report = measured(capfd, *server, "--streams", "1,2", "--prompt-tokens", "20")
        levels = [(each["texts"], each["level"], each["requests"], each["failures"]) for each in report["levels"]]
        assert levels == [(1, 1, 6, {}), (1, 2, 12, {}), (64, 1, 6, {}), (64, 2, 12, {})]
        for each in report["levels"]:
            texts, tokens = each["texts_per_s"], each["tokens_per_s"]
            least, most = each["tokens"]["least"], each["tokens"]["most"]
            assert least == most == 20 if door == "grpc" else 10 < least <= most < 30  # words have several tokens
            means = [round(of_tokens / of_texts) for of_texts, of_tokens in zip(texts, tokens, strict=True)]
            assert all(least <= mean <= most for mean in means)
        n_texts = (1 + 64) * (6 + 12 + 1 + 2)  # each stream warms up with one call
        n_texts += 4 if door == "http" else 0  # one shows that there are vectors, three how long texts are
        assert f"imp_embedded_inputs_total {n_texts:.1f}\n" in http.client.get("/metrics").content.decode()
        for wrong, said in (
            (["--tokens", "4"], "--tokens: this server's model generates no text"),
            (["--html", "x"], "--html: this server's model generates no text"),
            (["--prompt-tokens", "129"], "texts of 129 tokens, expected at most 128"),
        ):
            assert main(["bench", *server, *wrong]) != 0
            assert said in capfd.readouterr().err


def test_emb_13_a_server_that_has_no_other_path_is_measured(capfd: pytest.CaptureFixture[str]) -> None:
    script = ScriptedOpenAi(paths=(EMBEDDINGS,), added_to_prompt=2)
    with scripted_openai(script) as url:
        assert main(["bench", "--server", url, "--reps", "2", "--requests", "3", "--prompt-tokens", "20"]) == 0
    rows = [re.split(r" {2,}", line) for line in capfd.readouterr().out.splitlines()]
    assert rows[2][0] == "vectors" and [row[0] for row in rows[3:]] == ["1 text of 20 tokens", "64 texts of 20 tokens"]
    sent = [body["input"] for path, body in script.asked if path == EMBEDDINGS]
    assert [len(texts) for texts in sent[-14:]] == [1] * 7 + [64] * 7
    texts = [text for inputs in sent[-14:] for text in inputs]
    assert len(set(texts)) == len(texts)

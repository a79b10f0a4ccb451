"""imp bench --server http://…: the load test over OpenAI's API, on imp's listener and servers of other dialects."""

from __future__ import annotations

import json
import re
import ssl
from itertools import pairwise
from pathlib import Path

import grpc
import pytest

from support.machine.command_line import error_lines
from support.servers.certificates import Authority
from support.servers.http_served import DEMO_MODEL, serve_http
from support.servers.scraped import scrape
from support.servers.scripted_openai import CHAT, COMPLETIONS, ScriptedOpenAi, scripted_openai

SMALL = ("--prompt-tokens", "40", "--tokens", "6", "--requests", "2", "--reps", "3", "--streams", "1,3")
N_WARM_UP, N_MEASURED = 4, 24
ONCE = ("--prompt-tokens", "40", "--tokens", "6", "--requests", "1", "--reps", "1", "--streams", "1")


@pytest.fixture(autouse=True)
def no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)


@pytest.mark.long
def test_oai_12_imp_is_measured_as_over_grpc(call):
    """The server counts the same tokens, and takes no prompt from its cache."""
    with serve_http() as http:
        status, out, err = call("bench", "--server", http.url, *SMALL, "--json")
        http.wait_for_rest()
        counted = scrape(http.served)
    assert (status, err) == (0, "")
    report = json.loads(out)
    assert (report["model"], report["server"], report["address"]) == (DEMO_MODEL, "imp", http.url)
    assert report["answers"] == {"least": 6, "most": 6}
    assert 30 <= report["prompts"]["least"] <= report["prompts"]["most"] <= 50
    assert [(level["level"], level["requests"], level["failures"]) for level in report["levels"]] == [
        (1, 1 * 2 * 3, {}),
        (3, 3 * 2 * 3, {}),
    ]
    for level in report["levels"]:
        assert len(level["tokens_per_s"]) == 3 and min(level["tokens_per_s"]) > 0
        assert level["first_token"]["n"] == level["requests"]
        assert 0 < level["first_token"]["p50"] <= level["first_token"]["p90"] <= level["first_token"]["p99"]
        assert level["tokens_per_message"] >= 1
    # Besides the levels: two tokens to find the request format, and one each for the length of three prompts.
    assert counted["imp_output_tokens_total"] == (N_WARM_UP + N_MEASURED) * 6 + 2 + 3
    assert counted["imp_prompt_tokens_total[kind=cached]"] == 0


@pytest.mark.parametrize(
    ("script", "path", "has_extras"),
    [
        (ScriptedOpenAi(), COMPLETIONS, True),
        (ScriptedOpenAi(usage="last"), COMPLETIONS, True),
        (ScriptedOpenAi(usage="none"), COMPLETIONS, True),
        (ScriptedOpenAi(knows_extras=False), COMPLETIONS, False),
        (ScriptedOpenAi(paths=(CHAT,), added_to_prompt=9), CHAT, True),
        (ScriptedOpenAi(paths=(CHAT,), usage="last", knows_extras=False), CHAT, False),
    ],
)
def test_oai_12_each_dialect_counts_the_same_tokens(call, script, path, has_extras):
    with scripted_openai(script) as url:
        status, out, err = call("bench", "--server", url, *SMALL, "--json")
    assert (status, err) == (0, "")
    report = json.loads(out)
    assert (report["server"], report["answers"]) == ("scripted/1", {"least": 6, "most": 6})
    assert report["prompts"] == {"least": 40, "most": 40}
    assert report["are_counted"] == (script.usage != "none")
    assert [level["tokens_per_message"] for level in report["levels"]] == [1.0, 1.0]
    assert [level["inter_token"]["n"] for level in report["levels"]] == [5 * 6, 5 * 18]
    measured = script.streamed
    assert len(measured) == N_WARM_UP + N_MEASURED
    assert {path_asked for path_asked, body in script.asked if body in measured} == {path}
    for body in measured:
        assert (body["model"], body["temperature"], body["max_tokens"]) == ("m", 0, 6)
        assert body.get("ignore_eos", False) == has_extras
        assert body["stream_options"]["include_usage"] is True
    # All prompts differ, so no cache can answer.
    prompts = [body["prompt"] if path == COMPLETIONS else body["messages"][0]["content"] for body in measured]
    starts = sorted(" ".join(prompt.split()[:8]) for prompt in prompts)
    assert all(one != other for one, other in pairwise(starts))


@pytest.mark.parametrize("usage", ["continuous", "last"])
def test_events_of_several_tokens_count_them_all(call, usage):
    """Two events carry four and two tokens. Usage in each event counts them; usage at the end is spread over them."""
    with scripted_openai(ScriptedOpenAi(usage=usage, tokens_per_event=4)) as url:
        status, out, _ = call("bench", "--server", url, *ONCE, "--json")
    assert status == 0
    report = json.loads(out)
    assert report["answers"] == {"least": 6, "most": 6}
    assert report["levels"][0]["tokens_per_message"] == 3.0
    assert report["levels"][0]["inter_token"]["n"] == (2 if usage == "continuous" else 3)


def test_answers_that_end_early_are_shown_with_their_lengths(call, tmp_path):
    with scripted_openai(ScriptedOpenAi(answer_tokens=5)) as url:
        status, out, _ = call("bench", "--server", url, *ONCE, "--html", "page.html")
    assert status == 0
    assert out.startswith(f"m\nscripted/1 at {url}/v1\nprompts of 40 tokens, answers of 5\n")
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "prompts of 40 tokens, answers of 5;" in page and "<dt>Device</dt>" not in page
    rows = [re.findall(r"<t[hd]>([^<]*)</t[hd]>", row) for row in re.findall(r"<tr>.*?</tr>", page)]
    assert [re.split(r" {2,}", line) for line in out.splitlines()[-2:]] == rows


@pytest.mark.long
def test_oai_12_tokens_that_the_server_does_not_count_are_named(call, tmp_path):
    """Two events of four and two tokens."""
    with scripted_openai(ScriptedOpenAi(usage="none", tokens_per_event=4)) as url:
        status, out, _ = call("bench", "--server", url, *ONCE, "--html", "page.html")
    lengths = "prompts of 40 tokens, answers of 2 messages (the server states no usage: a message counts as a token)"
    assert status == 0 and out.splitlines()[2] == lengths
    assert lengths in (tmp_path / "page.html").read_text(encoding="utf-8")


def test_refusals_are_counted_by_their_code_and_not_asked_again(call):
    script = ScriptedOpenAi(refuse=lambda number: (429, "rate_limit_exceeded") if number % 4 == 0 else None)
    with scripted_openai(script) as url:
        status, out, _ = call("bench", "--server", url, *SMALL, "--json")
    assert (status, len(script.streamed)) == (0, N_WARM_UP + N_MEASURED)
    failures = [level["failures"] for level in json.loads(out)["levels"]]
    assert sum(failure.get("RATE_LIMIT_EXCEEDED", 0) for failure in failures) == N_MEASURED // 4


@pytest.mark.parametrize(("ending", "reason"), [("error", "SLOW_CLIENT"), ("cut", "STREAM_BROKEN")])
def test_a_stream_that_does_not_end_well_is_a_failure(call, ending, reason):
    with scripted_openai(ScriptedOpenAi(ending=ending)) as url:
        status, _, err = call("bench", "--server", url, *ONCE)
    assert (status, err) == (
        70,
        f"imp: error: {reason}: every request failed, 1 of the first level for this reason\n",
    )


def test_the_token_is_that_of_openais_clients_or_of_a_file(call, monkeypatch, tmp_path):
    (tmp_path / "token").write_text("secret\n")
    with scripted_openai(ScriptedOpenAi(key="secret")) as url:
        status, _, err = call("bench", "--server", url, *ONCE)
        assert (status, err) == (77, "imp: error: INVALID_API_KEY: wrong key (UNAUTHENTICATED)\n")
        assert call("bench", "--server", url, *ONCE, "--token-file", "token")[0] == 0
        monkeypatch.setenv("OPENAI_API_KEY", "secret")
        assert call("bench", "--server", url, *ONCE)[0] == 0
        monkeypatch.setenv("OTHER", "wrong")
        assert call("bench", "--server", url, *ONCE, "--token-env", "OTHER")[0] == 77


def test_tls_trusts_what_ca_says(call, tmp_path: Path):
    authority, other = Authority(), Authority()
    cert, key = authority.issue().write(tmp_path)
    trusted, wrong = tmp_path / "ca.pem", tmp_path / "other.pem"
    trusted.write_bytes(authority.cert)
    wrong.write_bytes(other.cert)
    with serve_http(f"tls.cert={cert}", f"tls.key={key}", **made_for_tls(authority.cert)) as http:
        assert http.url.startswith("https://")
        status, out, err = call("bench", "--server", http.url, *ONCE, "--ca", str(trusted))
        assert (status, err) == (0, "") and DEMO_MODEL in out
        status, _, err = call("bench", "--server", http.url, *ONCE, "--ca", str(wrong))
        assert status == 69 and "UNAVAILABLE" in err and "certificate" in err.lower()


def made_for_tls(authority: bytes) -> dict[str, object]:
    context = ssl.create_default_context(cadata=authority.decode())
    return {"tls": context, "credentials": grpc.ssl_channel_credentials(authority)}


def test_the_model_is_the_first_listed_or_the_named_one(call):
    script = ScriptedOpenAi()
    with scripted_openai(script, models=("a", "b")) as url:
        assert call("bench", "--server", url, *ONCE)[0] == 0
        assert {body["model"] for _, body in script.asked} == {"a"}
        script.asked.clear()
        assert call("bench", "--server", f"{url}/v1", *ONCE, "--served-model", "b")[0] == 0
        assert {body["model"] for _, body in script.asked} == {"b"}
    with scripted_openai(ScriptedOpenAi(), models=()) as url:
        status, _, err = call("bench", "--server", url, *ONCE)
    assert status == 66 and "MODEL_NOT_SERVED" in err


def test_what_cannot_be_measured_says_why(call, tmp_path):
    with serve_http() as http:
        status, _, err = call("bench", "--server", http.url, *ONCE, "--served-model", "gpt-9")
        assert status == 66 and err.startswith("imp: error: MODEL_NOT_FOUND: ") and DEMO_MODEL in err
        words = ("--prompt-tokens", str(http.served.state.model.max_context), "--tokens", "6")
        status, _, err = call("bench", "--server", http.url, *words)
        assert status == 64 and "the context of imp-demo" in err
        port = http.address.port
    with scripted_openai(ScriptedOpenAi(paths=())) as url:
        status, _, err = call("bench", "--server", url, *ONCE)
        assert (status, err) == (66, "imp: error: HTTP_404: status 404 (NOT_FOUND)\n")
    with scripted_openai(ScriptedOpenAi(paths=(), other_paths=b'{"detail": "Not Found"}')) as url:
        status, _, err = call("bench", "--server", url, *ONCE)
        assert (status, err) == (66, "imp: error: HTTP_404: Not Found (NOT_FOUND)\n")
    with scripted_openai(ScriptedOpenAi(paths=(CHAT,), added_to_prompt=39)) as url:
        status, _, err = call("bench", "--server", url, "--prompt-tokens", "20", "--tokens", "6", "--streams", "1")
        assert status == 64 and "prompts of 20 tokens, expected more: one word makes 40 tokens there" in err
    status, _, err = call("bench", "--server", f"http://127.0.0.1:{port}", *ONCE)
    assert status == 69 and err.startswith(f"imp: error: UNAVAILABLE: http://127.0.0.1:{port}/v1/models: ")


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("--server", "a:1", "--served-model", "m"), "--served-model: has no effect with an imp.v1 server"),
        (("--served-model", "m"), "--served-model: has no effect without --server"),
        (("--server", "http://a:1", "--tls"), "have no effect with http://a:1, expected https://"),
        (("--server", "http://"), "--server: http://: expected http://host:port"),
        (("--server", "http://a:b"), "--server: http://a:b: "),
        (("--server", "http://me:secret@a:1"), "expected http://host:port"),
        (("--server", "http://a:1?x=1"), "expected http://host:port"),
    ],
)
def test_words_that_make_no_sense_are_refused(call, words, complaint):
    status, out, err = call("bench", *words)
    assert (status, out) == (64, "")
    assert complaint in error_lines(err)[-1]

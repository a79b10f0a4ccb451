"""imp run: only the text on stdout, all else on stderr, and how it ends."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys

import pytest

from imp_service import load
from imp_service.models import demo_draft_model_path
from support.machine.command_line import clean_environment, error_lines, modules_after
from support.models.worded_models import write_worded
from support.run.patience import HANGS_AFTER

GREEDY = ("--temperature", "0", "--max-tokens", "24")


def test_the_text_is_on_stdout_and_all_else_on_stderr(imp):
    told = json.loads(imp("run", "--raw", "Once upon a time", *GREEDY, "--json").stdout)
    result = imp("run", "--raw", "Once upon a time", *GREEDY)
    assert result.returncode == 0
    assert result.stdout.decode() == told["text"].removesuffix("\n") + "\n"
    banner, end = result.stderr.decode().splitlines()
    assert re.fullmatch(
        r"imp \d\S+  model: built-in demo \(\S+ parameters, Q8_0, \S+ MB\)  "
        r"CPU: .+ \([\w+]+\), \d+ threads? \(.+\)(?:  GPU: .+)?",
        banner,
    ), banner
    # Hints are for people: here stderr is no terminal.
    assert end == "— ended by the limit of tokens (--max-tokens)."
    end = imp("run", "--raw", "Once upon a time", *GREEDY, "--verbose").stderr.decode().splitlines()[1]
    assert re.fullmatch(r"— 24 tokens, \d+ tok/s, first token [\d.]+ ms, ended by the limit of tokens .*\.", end), end


@pytest.mark.long
def test_spc_47_a_prompt_evaluated_in_part_is_told_with_the_answer(imp):
    words = ("run", "The weather today is fine. " * 60, "--max-tokens", "4")
    settings = ("sparse_prefill.enabled=true", "sparse_prefill.threshold=100", "sparse_prefill.policy=auto")
    given = [word for setting in settings for word in ("--set", setting)]
    told = re.search(r"approximate: (\d+) of (\d+) prompt tokens evaluated", imp(*words, *given).stderr.decode())
    assert told and int(told[1]) < int(told[2])
    report = json.loads(imp(*words, *given, "--json").stdout)["sparse_prefill"]
    assert (report["is_sparse"], report["selected_tokens"], report["scored_tokens"]) == (True, *map(int, told.groups()))
    assert b"approximate" not in imp(*words, *given[:-2]).stderr


def test_json_tells_what_it_takes_to_have_the_same_again(imp):
    words = ("run", "--raw", "The little dog", "--max-tokens", "16", "--temperature", "0.9", "--json")
    first = json.loads(imp(*words, "--seed", "7").stdout)
    facts = {"model", "text", "token_ids", "finish_reason", "match", "seed", "usage", "timings"}
    facts |= {"speculation", "sparse_prefill"}
    assert set(first) == facts
    assert (first["seed"], first["finish_reason"], first["match"]) == (7, "max_tokens", None)
    assert first["usage"]["output_tokens"] == len(first["token_ids"]) == 16
    assert {"queue", "encode", "prefill", "decode", "blocked", "first_token"} == set(first["timings"])
    assert json.loads(imp(*words, "--seed", "8").stdout)["token_ids"] != first["token_ids"]
    # Without --seed imp draws and reports one, another each time. The text may end early.
    drawn = json.loads(imp(*words).stdout)
    again = json.loads(imp(*words, "--seed", str(drawn["seed"])).stdout)
    assert (again["token_ids"], again["finish_reason"]) == (drawn["token_ids"], drawn["finish_reason"])
    assert json.loads(imp(*words).stdout)["seed"] != drawn["seed"]


def test_a_prompt_from_stdin_is_the_same_prompt(imp):
    by_word = imp("run", "Once upon a time", *GREEDY)
    by_pipe = imp("run", "-", *GREEDY, stdin=b"Once upon a time\n")
    assert by_pipe.stdout == by_word.stdout != b""


def test_the_context_that_is_asked_for_ends_the_text(imp):
    told = json.loads(imp("run", "--raw", "Once upon a time", "-c", "32", "--json", "--set", "device.threads=1").stdout)
    assert told["finish_reason"] == "context_full"
    # The last token is printed, but not held in the cache.
    assert told["usage"]["prompt_tokens"] + told["usage"]["output_tokens"] - 1 == 32


def test_what_cannot_be_is_refused_in_one_line(call):
    cases = {
        ("--temperature", "-1"): (64, "FIELD_INVALID"),
        ("--temperature", "warm"): (64, "USAGE"),
        ("--seed", "-1"): (64, "FIELD_INVALID"),
        ("-c", "16", "--max-tokens", "50"): (64, "CONTEXT_TOO_LONG"),
        ("-c", "none"): (78, "CONFIG_INVALID"),
        ("-m", "missing.gguf"): (66, "MODEL_MISSING"),
        ("-m", "."): (66, "MODEL_MISSING"),
        ("-m", "a", "-m", "b"): (64, "USAGE"),
        ("--set", "kv.dtype=q4_0"): (78, "CONFIG_INVALID"),
    }
    for words, (status, reason) in cases.items():
        found, out, err = call("run", "Once", *words)
        assert (found, out) == (status, ""), (words, err)
        assert error_lines(err)[-1].startswith(f"imp: error: {reason}: "), (words, err)


def test_a_refusal_names_the_option_that_was_typed(call):
    for words, said in {
        ("run", "x", "-c", "0"): "CONFIG_INVALID: --context: found 0, expected 1 to ",
        ("run", "x", "--max-tokens", "-3", "--seed", "-1"): "FIELD_INVALID: --max-tokens: -3, expected 0 to ",
        ("run", "x", "--temperature", "nan"): "FIELD_INVALID: --temperature: nan, expected 0 to 100",
        ("chat", "--max-tokens", "-3"): "FIELD_INVALID: --max-tokens: -3, expected 0 to ",
        ("serve", "--listen", "foo"): "CONFIG_INVALID: --listen: found foo, expected a port, host:port such as ",
        ("serve", "--http", "off", "--http", "9"): "CONFIG_INVALID: --http: found off, expected a port, host:port such",
        ("serve", "--http", "65536"): "CONFIG_INVALID: --http: found 65536, expected a port, host:port such",
        ("run", "x", "-m", "/no/such.gguf"): "MODEL_MISSING: /no/such.gguf: No such file or directory, ",
        ("inspect", "-m", "../no.gguf"): "MODEL_MISSING: ../no.gguf: No such file or directory, ",
        ("bench", "-m", "/no/such.gguf"): "MODEL_MISSING: /no/such.gguf: No such file or directory, ",
    }.items():
        _, out, err = call(*words)
        # The error precedes loading: there is no banner.
        assert (out, err.startswith(f"imp: error: {said}")) == ("", True), (words, err)
    assert "--seed: -1, expected 0 to " in call("run", "x", "--max-tokens", "-3", "--seed", "-1")[2]


def test_a_variable_that_lacks_an_underscore_is_reported(imp):
    expected = "IMP_DEVICE_KIND: is not read, expected IMP_DEVICE__KIND for device.kind"
    # One warning, whatever the command loads.
    for words in (("kernels", "--json"), ("bench", "--threads", "1,2", "-m", "no.gguf")):
        result = imp(*words, IMP_DEVICE_KIND="cuda", IMP_SERVICE_HOST="10.0.0.7")
        assert result.stderr.decode().splitlines()[:1] == [f"imp: warning: {expected}"]
        assert result.stderr.count(b"warning") == 1
    found = {
        check["id"]: check for check in json.loads(imp("doctor", "--json", IMP_DEVICE_KIND="cuda").stdout)["checks"]
    }
    assert (found["config"]["status"], found["config"]["message"]) == ("warning", expected)


def test_oddities_of_a_model_are_warnings(call):
    status, out, err = call("run", "Once", "--max-tokens", "2", "--set", "kv.bytes=64KiB")
    assert (status, out != "") == (0, True)
    assert "\nimp: warning: max_context is 32, not 512: the KV cache holds no more\n" in err


def test_a_prompt_that_is_not_utf_8(imp):
    for words, stdin in (((b"\xff\xfe",), b""), (("-",), b"Once \xff")):
        result = imp("run", *words, stdin=stdin)
        assert (result.returncode, result.stdout) == (64, b"")
        assert b"is not UTF-8" in result.stderr


def _start(tmp_path, *words: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "imp_service", "run", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=tmp_path,
        env=clean_environment(tmp_path),
    )


# No token ends the text, and a pipe cannot hold it: it is still running when the test acts.
ENDLESS = (
    *("--raw", "Once upon a time", "-c", "32K", "--max-tokens", "32000"),
    *("--set", "model.overrides.eos_token_ids=[]", "--set", "model.overrides.untrained_context=true"),
)


def test_ctrl_c_in_the_middle_of_a_text_is_clean(tmp_path):
    process = _start(tmp_path, *ENDLESS)
    assert process.stdout
    assert process.stdout.read(1) != b""  # the text is written while it is generated
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=HANGS_AFTER)
    assert process.returncode == 130
    assert b"Traceback" not in err
    assert b"error" not in err


def test_a_reader_that_leaves_in_the_middle_is_no_error(tmp_path):
    process = _start(tmp_path, *ENDLESS)
    assert process.stdout and process.stderr
    assert process.stdout.read(1) != b""
    process.stdout.close()
    err = process.stderr.read()
    assert process.wait(timeout=HANGS_AFTER) == 0
    assert b"error" not in err
    process.stderr.close()


def test_nothing_is_written_to_the_home_directory(imp, tmp_path):
    before = sorted(tmp_path.iterdir())
    assert imp("run", "Once", "--max-tokens", "2").returncode == 0
    assert sorted(tmp_path.iterdir()) == before


def test_a_text_needs_neither_templates_nor_grammars(tmp_path):
    """The test counts modules instead of time: those that take a tenth of a second load only when used."""
    loaded = modules_after(["run", "--raw", "Once", "--max-tokens", "2"], tmp_path)
    assert {"imp_service.generation", "tokenizers"} <= loaded
    assert {"jinja2", "llguidance", "rich", "asyncio"}.isdisjoint(loaded)


@pytest.mark.long
def test_spc_1_spc_29_a_draft_changes_no_text_and_is_named(imp):
    words = ("run", "--raw", "Once upon a time", "--temperature", "0.8", "--seed", "3", "-n", "40", "--json")
    plain = imp(*words)
    drafted = imp(*words, "--draft", str(demo_draft_model_path()))
    told = json.loads(drafted.stdout)
    assert told["token_ids"] == json.loads(plain.stdout)["token_ids"]
    # How many guesses there are depends on what rows cost on this machine; here it counts that they are reported.
    assert told["usage"]["draft_tokens"] >= told["usage"]["accepted_draft_tokens"] >= 0
    assert "guesses ahead: ngram: costs nothing; model: demo-draft.gguf, a guess costs" in drafted.stderr.decode()
    off = imp(*words, "--no-speculation", "--set", 'speculation.drafters=["model"]')
    assert json.loads(off.stdout)["usage"]["draft_tokens"] == 0
    both = imp(*words, "--no-speculation", "--draft", "x.gguf")
    assert both.returncode == 64


def test_fim_4_run_fills_the_gap_before_a_suffix(imp, tmp_path):
    path = tmp_path / "coder.gguf"
    ids = write_worded(path, ("<fim_prefix>", "<fim_suffix>", "<fim_middle>", "<|end|>"), eos="<|end|>")
    words = ("--temperature", "0", "-n", "6", "--json")
    told = json.loads(imp("run", str(path), "def f():", "--suffix", "f()", *words).stdout)
    with load(path) as model:
        prompt = [ids["<fim_prefix>"], *b"def f():", ids["<fim_suffix>"], *b"f()", ids["<fim_middle>"]]
        assert told["token_ids"] == model.generate(prompt, temperature=0, max_tokens=6).result().token_ids
        assert told["usage"]["prompt_tokens"] == len(prompt)
    for wrong, status in ((("--system", "x"), 64), (("--image", "x.png"), 64)):
        refused = imp("run", str(path), "a", "--suffix", "b", *wrong)
        assert refused.returncode == status and b"--suffix" in refused.stderr


def test_fim_3_run_names_the_option_if_the_model_fills_no_gap(imp):
    refused = imp("run", "a", "--suffix", "b")
    assert refused.returncode == 64
    assert b"--suffix: the vocabulary of this model has no tokens to fill in the middle" in refused.stderr

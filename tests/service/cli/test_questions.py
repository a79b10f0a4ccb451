"""A question on the command line: which words name the model, which are the question, and when the answer ends."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from imp_service.models import demo_model_path
from imp_service.pb.inference_pb2 import GenerateRequest
from support.deploy.pods import pod_of, stream_documents
from support.machine.command_line import demo_with_keys, error_lines
from support.machine.terminal_session import PROMPT, terminal_session
from support.servers.scripted_server import scripted_server, story
from support.servers.stand_in_hub import COMMIT, Hub, stand_in_hub

QUESTION = "What is imp?"
GREEDY = ("--temperature", "0", "-n", "16", "--set", "device.threads=1")
# How the built-in model's answer begins; as a text, the question goes on otherwise.
ANSWER = "imp is a small server for large language models."


@pytest.fixture
def path() -> str:
    """The path of a model."""
    Path("model.gguf").write_bytes(demo_model_path().read_bytes())
    return "model.gguf"


def test_cmd_19_a_question_is_a_message_of_a_chat_however_the_model_is_named(call, path: str) -> None:
    for words in (
        (QUESTION, *GREEDY),
        (path, QUESTION, *GREEDY),
        (path, *GREEDY, QUESTION),
        (path, *GREEDY, *QUESTION.split()),
        ("-m", path, *GREEDY, *QUESTION.split()),
    ):
        status, out, err = call("run", *words)
        assert (status, out.startswith(ANSWER)) == (0, True), (words, out, err)
    for words in ((path, QUESTION), (path, *QUESTION.split()), ("-m", path, QUESTION), (QUESTION,)):
        status, out, err = call("chat", *words, *GREEDY)
        assert (status, out.startswith(ANSWER)) == (0, True), (words, out, err)


def test_cmd_19_control_raw_continues_the_text(call, path: str) -> None:
    continued = call("run", "--raw", path, QUESTION, *GREEDY)[1]
    assert continued and not continued.startswith(ANSWER)
    assert call("run", path, "--raw", QUESTION, *GREEDY)[1] == continued


def test_cmd_19_a_question_comes_through_a_pipe(imp) -> None:
    demo = str(demo_model_path())
    for words in ((demo,), (demo, "-"), ("-",), ()):
        result = imp("run", *words, *GREEDY, stdin=f"{QUESTION}\n".encode())
        assert (result.returncode, result.stdout.decode().startswith(ANSWER)) == (0, True), words


def test_cmd_19_a_system_message_precedes_the_question(call) -> None:
    plain = json.loads(call("run", QUESTION, *GREEDY, "--json")[1])["usage"]["prompt_tokens"]
    told = json.loads(call("run", "--system", "Be brief.", QUESTION, *GREEDY, "--json")[1])["usage"]["prompt_tokens"]
    assert told > plain


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("llama3.2", "hi"), 'if llama3.2 is part of a question, quote all of it: "llama3.2 hi"'),
        (("Why", "is", "the", "sky", "blue?"), 'if Why is part of a question, quote all of it: "Why is the sky blue?"'),
        (("llama3.2",), "imp pull OWNER/NAME:TYPE downloads one"),
        (
            ("Qwen/Qwen3-0.6B-GGUF", "hi"),
            "imp pull Qwen/Qwen3-0.6B-GGUF, or write hf:Qwen/Qwen3-0.6B-GGUF in",
        ),
        (("qwen3:8b", "hi"), "imp pull OWNER/NAME:TYPE downloads one"),
    ],
)
@pytest.mark.parametrize("command", ["run", "chat"])
def test_cmd_19_no_other_model_answers_for_one_that_is_not_found(
    command: str, words: tuple[str, ...], said: str, call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)  # nothing comes through a pipe
    status, out, err = call(command, *words, *GREEDY)
    assert (status, out) == (66, "")
    [line] = error_lines(err)
    assert line.startswith(f"imp: error: MODEL_MISSING: {words[0]}: ") and said in line


def test_cmd_19_a_model_without_a_question_says_what_to_type(call, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
    status, out, err = call("run", path)
    assert (status, out, error_lines(err)[-1]) == (
        64,
        "",
        "imp: error: USAGE: PROMPT: expected a question; imp chat model.gguf begins a conversation",
    )


def test_cmd_19_on_a_terminal_a_model_without_a_question_begins_a_conversation(path: str, tmp_path: Path) -> None:
    words = ("run", str(Path(path).resolve()), *GREEDY)
    with terminal_session(tmp_path, sys.executable, "-m", "imp_service", *words) as terminal:
        terminal.read_until("/exit or Ctrl-D ends")
        terminal.read_until(PROMPT)
        terminal.type(f"{QUESTION}\r")
        terminal.read_until("imp is a small server")


def test_cmd_19_a_word_may_be_an_entry_of_models(call, path: str) -> None:
    Path("imp.conf").write_text(f'[models.small]\npath = "{path}"\n')
    for words in (("small", QUESTION), ("-m", "small", QUESTION)):
        status, out, err = call("run", "--config", "imp.conf", *words, *GREEDY)
        assert (status, out.startswith(ANSWER)) == (0, True), err


def test_cmd_19_a_model_without_a_template_continues_the_text_and_says_so(call, tmp_path: Path) -> None:
    base = str(demo_with_keys(tmp_path / "base.gguf", without="tokenizer.chat_template"))
    status, out, err = call("run", base, QUESTION, *GREEDY)
    assert (status, "this model has no chat template, so it continues the text" in err) == (0, True)
    assert out == call("run", "--raw", str(demo_model_path()), QUESTION, *GREEDY)[1]
    status, out, err = call("run", base, "--system", "Be brief.", QUESTION, *GREEDY)
    assert (status, out) == (64, "")
    assert error_lines(err)[-1].startswith("imp: error: NO_CHAT_TEMPLATE: --system: ")


# No token ends an answer of this model.
ENDLESS = ("--set", "model.overrides.eos_token_ids=[]", "--set", "model.overrides.untrained_context=true", "-c", "8K")


@pytest.mark.long
@pytest.mark.parametrize(("words", "n_tokens"), [((), 4096), (("--raw",), 512)])
def test_cmd_20_an_answer_ends_if_nobody_asks_for_a_long_one(words: tuple[str, ...], n_tokens: int, call, path) -> None:
    told = json.loads(call("run", path, *words, "Tell me a story.", "--seed", "1", "--json", *ENDLESS)[1])
    assert (told["finish_reason"], len(told["token_ids"])) == ("max_tokens", n_tokens)


def test_cmd_20_a_default_limit_beyond_the_context_does_not_apply(call, path: str) -> None:
    words = ("-c", "64", "--set", "model.overrides.eos_token_ids=[]", "--json", "Tell me a story.")
    assert json.loads(call("run", path, *words)[1])["finish_reason"] == "context_full"


@pytest.mark.parametrize(("method", "n_tokens"), [("chat", 4096), ("generate", 512)])
def test_cmd_20_a_call_ends_an_answer_that_goes_on(method: str, n_tokens: int, call) -> None:
    sent = []

    def generate(request: GenerateRequest, context) -> Iterator[object]:
        for message in story(*["a "] * 10_000):
            sent.append(message)
            yield message

    with scripted_server(Generate=generate) as address:
        status, out, err = call("call", method, "hello", "--target", address)
        assert (status, out) == (0, "a " * n_tokens + "\n")
        assert err == "— ended by the limit of tokens (--max-tokens).\n"
        # A bound of the caller's own, or messages for a program, change nothing.
        assert len(call("call", method, "hello", "--target", address, "-n", "20000")[1].split()) == 10_000
        assert call("call", method, "hello", "--target", address, "--json")[1].count("\n") == 10_002


@pytest.fixture
def hub() -> Iterator[Hub]:
    demo = demo_model_path().read_bytes()
    with stand_in_hub(own__one={"tiny-Q8_0.gguf": demo}, own__two={"m-Q8_0.gguf": demo, "m-Q4_0.gguf": demo}) as hub:
        yield hub


def test_cmd_21_a_downloaded_model_is_found_by_its_name_without_a_network(imp: Callable, hub: Hub) -> None:
    def run(*words: str, endpoint: str = "http://127.0.0.1:1") -> tuple[int, str, str]:
        done = imp(*words, HF_ENDPOINT=endpoint, HF_HUB_DISABLE_XET="1")
        return done.returncode, done.stdout.decode(), done.stderr.decode()

    for name in ("own/one", "own/two:Q8_0", "own/two:Q4_0"):
        assert run("pull", name, endpoint=hub.address)[0] == 0
    for name in ("one", "own/one", "OWN/One", "one:q8_0", "own/two:Q8_0", "two:Q4_0"):
        status, out, err = run("run", name, QUESTION, *GREEDY)
        assert (status, out.startswith(ANSWER)) == (0, True), (name, err)
    assert (
        run("inspect", "one")[0] == run("bench", "-m", "one", "--prefill", "8", "--decode", "2", "--reps", "1")[0] == 0
    )
    status, out, err = run("run", "two", QUESTION)
    assert (status, out) == (66, "")
    assert "two: no single downloaded model, expected one of own/two:m-Q4_0.gguf, own/two:m-Q8_0.gguf" in err


def test_cmd_21_manifests_and_a_unit_are_of_a_downloaded_model(imp: Callable, hub: Hub, tmp_path: Path) -> None:
    def run(*words: str, endpoint: str = "http://127.0.0.1:1") -> str:
        done = imp(*words, HF_ENDPOINT=endpoint, HF_HUB_DISABLE_XET="1", HF_HOME=str(tmp_path / "home"))
        assert done.returncode == 0, done.stderr.decode()
        return str(done.stdout.decode())

    run("pull", "own/two:Q4_0", endpoint=hub.address)
    pod = pod_of(stream_documents(run("k8s", "TWO", "--image", "r.example/imp:1")))
    assert pod["initContainers"][0]["args"] == ["pull", "own/two:m-Q4_0.gguf", "--revision", COMMIT, "--to", "/model"]
    claimed = pod_of(stream_documents(run("k8s", "two", "--image", "r.example/imp:1", "--model-claim", "models")))
    assert "initContainers" not in claimed
    [start] = [line for line in run("systemd", "own/two").splitlines() if line.startswith("ExecStart=")]
    assert re.search(rf"{tmp_path}/home/hub/models--own--two/snapshots/{COMMIT}/m-Q4_0.gguf", start)


@pytest.mark.long
@pytest.mark.parametrize(
    ("without", "printed"), [("", "imp call 'Hello!' "), ("tokenizer.chat_template", "imp call generate 'Once ")]
)
def test_cmd_6_a_server_on_a_terminal_prints_a_call_that_its_model_answers(
    without: str, printed: str, tmp_path: Path
) -> None:
    model = demo_with_keys(tmp_path / "model.gguf", without=without)
    words = ("serve", str(model), "--listen", f"unix://{tmp_path}/imp.sock", "--http", "127.0.0.1:0")
    with terminal_session(tmp_path, sys.executable, "-m", "imp_service", *words) as terminal:
        said = terminal.read_until("serving OpenAI's API")
    assert printed in said
    assert "TOKEN" not in said


@pytest.mark.long
def test_cmd_6_a_server_that_needs_a_token_prints_calls_with_one(tmp_path: Path) -> None:
    (tmp_path / "keys").write_text("a-key-of-a-caller\n")
    words = ("serve", "--listen", f"unix://{tmp_path}/imp.sock", "--http", "127.0.0.1:0")
    words += ("--set", f"auth.api_key_file={tmp_path}/keys")
    with terminal_session(tmp_path, sys.executable, "-m", "imp_service", *words) as terminal:
        said = terminal.read_until("serving OpenAI's API") + terminal.read_until("Hello!")
    assert " --token-file TOKEN" in said
    assert "authorization: Bearer TOKEN" in said

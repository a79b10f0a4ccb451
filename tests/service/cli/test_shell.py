"""The shell around the commands: usage, exit statuses, the error line, and the cost of a start."""

import re
import subprocess
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from imp_service import __version__
from imp_service.cli import command_line, shell
from imp_service.cli.commands import COMMANDS
from imp_service.cli.failure import MAX_LINE_BYTES, CommandError, error_line, exit_status
from imp_service.tables import REASONS
from support.run.patience import HANGS_AFTER

ROOT = Path(__file__).parents[3]


class FakeCommand:
    """A command whose behaviour the test defines."""

    name = "fake"
    text = "for the test"
    methods = ()
    EXAMPLES = ()
    address_space_bytes = 0

    def __init__(self, act: Callable[[], int]) -> None:
        self.act = act

    def module(self) -> "FakeCommand":
        return self

    def configure(self, parser: ArgumentParser) -> None:
        parser.add_argument("--flag", action="store_true")

    def run(self, arguments: Namespace) -> int:
        return self.act()


@pytest.fixture
def run_fake(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], int]], int]:
    def run(act: Callable[[], int]) -> int:
        monkeypatch.setattr(command_line, "COMMANDS", (FakeCommand(act),))
        return shell.main(["fake"])

    return run


def _raise(error: BaseException) -> Callable[[], int]:
    def act() -> int:
        raise error

    return act


@pytest.mark.parametrize(
    ("words", "takes"),
    [
        (["serve", "m.gguf"], "imp serve takes MODEL"),
        (["replay", "m.gguf"], "imp replay takes FILE, and the model as --model MODEL"),
        (["pull", "a/b"], "imp pull takes OWNER/NAME"),
    ],
)
def test_l18_a_word_too_many_is_refused_with_those_that_the_command_takes(
    words: list[str], takes: str, capfd: pytest.CaptureFixture[str]
):
    assert shell.main([*words, "extra"]) == 64
    assert capfd.readouterr().err.startswith(f"imp: error: USAGE: unrecognized arguments: extra; {takes}\n")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["cnfig"], "; did you mean config?"),
        (["--vers"], "COMMAND"),
        (["config"], "ACTION"),
        (["config", "shw"], "invalid choice: 'shw'"),
        (["config", "show", "--orign"], "unrecognized arguments: --orign; did you mean --origin?"),
        (["config", "show", "--orig"], "unrecognized arguments: --orig; did you mean --origin?"),
        (["config", "show", "extra"], "unrecognized arguments: extra; imp config show takes options only"),
        (["config", "show", "--config", "a", "--config", "b"], "--config is given twice"),
        (["config", "show", "--set"], "--set: expected one argument"),
    ],
)
def test_l18_a_bad_command_line_ends_with_64_and_names_the_help(
    words: list[str], message: str, capfd: pytest.CaptureFixture[str]
):
    assert shell.main(words) == 64
    out, err = capfd.readouterr()
    assert out == ""
    line, advice = err.splitlines()
    assert line.startswith("imp: error: USAGE: ") and message in line
    assert re.fullmatch(r"imp( config( show)?)? --help lists what it takes", advice)


def test_l18_imp_alone_shows_its_commands(capfd: pytest.CaptureFixture[str]):
    assert shell.main([]) == 64
    out, err = capfd.readouterr()
    assert out == "" and err.startswith("usage: imp ") and "\n    serve " in err
    assert err.splitlines()[-2] == "imp: error: USAGE: no command, expected COMMAND"


def test_l18_the_help_named_is_that_of_the_method(capfd: pytest.CaptureFixture[str]):
    for words, program in ((["call", "-t", "0", "hi"], "imp call chat"), (["call", "load", "-t"], "imp call load")):
        assert shell.main(words) == 64
        assert capfd.readouterr().err.splitlines()[-1] == f"{program} --help lists what it takes"


@pytest.mark.parametrize(
    ("word", "advice"), [("create", ""), ("server", "; did you mean serve?"), ("comp", "; did you mean completion?")]
)
def test_l18_an_unknown_command_gets_one_short_line(word: str, advice: str, capfd: pytest.CaptureFixture[str]):
    assert shell.main([word, "x"]) == 64
    assert capfd.readouterr().err.splitlines()[0] == f"imp: error: USAGE: {word}: unknown command{advice}"


@pytest.mark.parametrize(
    ("words", "advice"),
    [
        ("serve --port 9000", "unrecognized arguments: --port; write --http HOST:PORT, or --listen HOST:PORT for gRPC"),
        ("serve --host=0.0.0.0", "unrecognized arguments: --host; write --http HOST:PORT"),
        ("serve -ngl 99", "; write --set device.kind=cuda; imp uses the CPU unless device.kind says otherwise"),
        ("run -ngl 99 x", "unrecognized arguments: -ngl; write --set device.kind=cuda"),
        ("serve --gpu", "--set device.kind=cuda"),
        ("bench --gpu-layers 9", "--set device.kind=cuda"),
        ("serve --grpc 50051", "unrecognized arguments: --grpc; write --listen HOST:PORT"),
        ("serve --ctx-size 4096", "write --context N"),
        ("serve -hf a/b:Q8_0", "write -m hf:OWNER/NAME:TYPE"),
        ("serve --threads 2", "write --set device.threads=N"),
        ("serve -t 2", "unrecognized arguments: -t; write --set device.threads=N"),
        ("serve -np 2", "unrecognized arguments: -np; write --set scheduler.max_running=N"),
        ("serve --n-ctx=4096", "unrecognized arguments: --n-ctx; write --context N"),
        ("serve --gpu-memory-utilization 0.9", "write --set kv.bytes=SIZE; for the memory of the cache"),
        ("serve --kv-cache-dtype fp8", "write --set kv.dtype=q8_0"),
        ("run --temp 0.1 hi", "unrecognized arguments: --temp; write --temperature"),
        ("chat --n-predict=5", "unrecognized arguments: --n-predict; write --max-tokens"),
        ("call --repeat-penalty 1.1 hi", "write --repetition-penalty"),
        ("run -m x -p hi", "unrecognized arguments: -p; write the prompt as the last word"),
        ("run -i", "unrecognized arguments: -i; imp chat holds a conversation"),
        ("run --mmproj p.gguf hi", "unrecognized arguments: --mmproj; write --projector FILE"),
        ("run --format json hi", "unrecognized arguments: --format; write --json-schema FILE"),
        ("run -f prompt.txt", "unrecognized arguments: -f; write - as the prompt, and give the file to stdin"),
        ("top --port 9000", "unrecognized arguments: --port; write --target HOST:PORT, the address of gRPC"),
        ("call --port 80 hi", "unrecognized arguments: --port; write --target HOST:PORT, the address of gRPC"),
        ("call load --url http://x", "unrecognized arguments: --url; write --target HOST:PORT"),
        ("inspect --port", "unrecognized arguments: --port"),
        ("serve --verbose", "write --set log.level=debug"),
        ("serve -b 512", "unrecognized arguments: -b; write --set scheduler.step_tokens=N"),
        ("serve -ctk q8_0", "write --set kv.dtype=q8_0"),
        ("serve --tensor-parallel-size=2", "a server runs its model on one device"),
        ("serve m --embeddings", "the model's files say what it makes"),
        ("serve m -fa on", "unrecognized arguments: -fa; leave it out"),
        ("run m hi --keepalive 5m", "unrecognized arguments: --keepalive; leave it out"),
        ("ps", "; imp top watches a running server"),
        ("stop", "; Ctrl-C or SIGTERM ends imp serve, and imp admin drain makes it refuse new requests"),
        ("list", "; imp ls lists the downloaded models"),
        ("download a/b", "; imp pull downloads a model"),
        ("version", "; imp --version shows it"),
    ],
)
def test_cmd_14_words_of_other_tools_name_what_imp_has(words: str, advice: str, capfd: pytest.CaptureFixture[str]):
    assert shell.main(words.split()) == 64
    out, err = capfd.readouterr()
    assert out == "" and err.startswith("imp: error: USAGE: ")
    assert advice in err.splitlines()[0]


def test_cmd_14_control_an_option_that_the_command_has_is_not_foreign(capfd: pytest.CaptureFixture[str]):
    assert shell.main(["kernels", "--gpu", "h200"]) == 64
    assert "--gpu: given without --explain" in capfd.readouterr().err
    assert shell.main(["tune", "--threads", "0"]) == 64
    assert "unrecognized" in capfd.readouterr().err
    assert shell.main(["bench", "--threads", "0"]) == 64
    assert "unrecognized" not in capfd.readouterr().err
    assert shell.main(["run", "-m", "none.gguf", "n_ctx"]) == 66  # a word of a prompt


# Reason and exit status, from the table of exit codes.
STATUSES = {
    "MODEL_FORMAT": 65, "MODEL_TRUNCATED": 65, "MODEL_UNSUPPORTED": 65, "TOKENIZER_INVALID": 65, "TEMPLATE_INVALID": 65,
    "MODEL_MISSING": 66, "DEVICE_MISSING": 69, "BUG": 70, "DEVICE_FAULT": 70, "NO_MEMORY": 71, "CANNOT_CREATE": 73,
    "MODEL_IO": 74, "MODEL_PERMISSION": 77, "CONFIG_PERMISSION": 77, "CONFIG_INVALID": 78, "never heard of": 70,
}  # fmt: skip


@pytest.mark.parametrize("reason", STATUSES)
def test_each_reason_has_its_exit_status(reason: str, run_fake, capfd: pytest.CaptureFixture[str]):
    assert run_fake(_raise(CommandError(reason, "m.gguf: what was found, what was expected"))) == STATUSES[reason]
    assert capfd.readouterr().err == f"imp: error: {reason}: m.gguf: what was found, what was expected\n"


def test_every_model_reason_of_the_core_ends_with_a_status_of_the_table():
    """This includes reasons that the table does not name."""
    reasons = [reason for reason in REASONS if reason.startswith("MODEL_")]
    assert "MODEL_SHARD" in reasons
    assert {exit_status(reason) for reason in reasons} == {65, 66, 74, 77}


def test_what_nobody_expected_is_our_bug_and_says_where(run_fake, capfd: pytest.CaptureFixture[str]):
    assert run_fake(_raise(ZeroDivisionError("three\nlines\x1b[31m"))) == 70
    err = capfd.readouterr().err
    assert re.fullmatch(r"imp: error: BUG: ZeroDivisionError at test_shell\.py:\d+: three\\nlines\\x1b\[31m\n", err), (
        err
    )


def test_failures_of_the_system_name_their_file(run_fake, capfd: pytest.CaptureFixture[str]):
    assert run_fake(_raise(OSError(28, "No space left on device", "/out.txt"))) == 74
    assert capfd.readouterr().err == "imp: error: IO_FAILED: /out.txt: No space left on device\n"
    assert run_fake(_raise(MemoryError())) == 71


def test_ctrl_c_is_clean(run_fake, capfd: pytest.CaptureFixture[str]):
    assert run_fake(_raise(KeyboardInterrupt())) == 130
    assert capfd.readouterr() == ("", "")


@given(st.text(), st.sampled_from(["BUG", "MODEL_OFFSET"]))
def test_the_error_line_is_one_short_line_of_printable_text(message: str, reason: str):
    line = error_line(reason, message * 50)
    assert line.isprintable()
    assert len(line.encode()) + 1 <= MAX_LINE_BYTES
    assert line.startswith(f"imp: error: {reason}: ")


def test_the_error_line_keeps_what_fits():
    assert error_line("BUG", "é" * 10) == "imp: error: BUG: " + "é" * 10
    cut = error_line("BUG", "é" * 1000)
    assert cut.endswith("é…")
    assert MAX_LINE_BYTES - 4 <= len(cut.encode()) < MAX_LINE_BYTES


def _imp(*words: str, code: str = "", **options: object) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-c", code] if code else [sys.executable, "-m", "imp_service"]
    return subprocess.run(
        [*command, *words], capture_output=True, text=True, timeout=HANGS_AFTER, check=False, **options
    )


def test_help_lists_every_command():
    result = _imp("--help")
    assert result.returncode == 0
    for command in COMMANDS:
        assert re.search(rf"^    {command.name} +{re.escape(command.text)}$", result.stdout, re.MULTILINE)


def test_pkg_1_the_version_is_reported_where_the_extension_does_not_load():
    code = (
        "import sys\nsys.modules['imp_service._core'] = None\n"
        "from imp_service.cli.shell import main\nmain(['--version'])"
    )
    result = _imp(code=code)
    first, distribution, backends, api = result.stdout.splitlines()
    assert first == f"imp {__version__}" and distribution.startswith("distribution: imp-service")
    assert backends.startswith("backends: none, the C++ part does not load: ") and api.startswith("API: imp.v1")


def test_help_loads_nothing_that_takes_time():
    """The test counts modules instead of time: help loads no heavy module, and only the shell's package of imp."""
    code = (
        "import sys\nfrom imp_service.cli.shell import main\n"
        "try: main(['--help'])\nexcept SystemExit: pass\n"
        "print('LOADED', *sorted(sys.modules))"
    )
    loaded = _imp(code=code).stdout.rpartition("LOADED ")[2].split()
    heavy = {"numpy", "rich", "jinja2", "tokenizers", "llguidance", "dataclasses", "asyncio", "tomllib", "json"}
    assert heavy.isdisjoint(loaded)
    rooms = {name.split(".")[1] for name in loaded if name.startswith("imp_service.")}
    assert rooms == {"cli"}
    assert not {f"imp_service.cli.{command.name}" for command in COMMANDS} & set(loaded)


def test_a_reader_that_leaves_is_no_error():
    process = subprocess.Popen(
        [sys.executable, "-m", "imp_service", "config", "init", "-"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout and process.stderr
    process.stdout.close()
    assert process.stderr.read() == b""
    assert process.wait(timeout=HANGS_AFTER) == 0
    process.stderr.close()

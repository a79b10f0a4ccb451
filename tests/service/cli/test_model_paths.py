"""Every command on every kind of path: it gives a result, or one error line with its reason and exit status."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from imp_service.models import demo_model_path
from support.files.gguf_writer import I32, U16, Gguf, Key, Tensor
from support.files.hf_contents import hf_config, hf_tensors, write_hf
from support.models.tiny_models import tiny

# Commands that read the weights, or only their names and shapes, and no text files.
FILE_COMMANDS = {
    "inspect": ("inspect", "{}"),
    "bench": ("bench", "--prefill", "8", "--decode", "2", "--reps", "1", "-m", "{}"),
    "tune": ("tune", "--reps", "1", "-m", "{}"),
    "k8s": ("k8s", "-m", "{}"),
    "systemd": ("systemd", "-m", "{}"),
    "config": ("config", "check", "--set", "model.path={}"),
    "doctor": ("doctor", "--set", "model.path={}"),
}
# Commands that also need the tokenizer.
TEXT_COMMANDS = {
    "run": ("run", "Once", "--max-tokens", "1", "-m", "{}"),
    "chat": ("chat", "-m", "{}"),
    "check": ("inspect", "--check", "{}"),
}


class Outcome(NamedTuple):
    status: int
    reason: str = ""


GOOD = Outcome(0)
MISSING = Outcome(66, "MODEL_MISSING")
TRUNCATED = Outcome(65, "MODEL_TRUNCATED")
FORMAT = Outcome(65, "MODEL_FORMAT")
NO_TEXT = Outcome(65, "TOKENIZER_INVALID")
INVALID = Outcome(78, "CONFIG_INVALID")


def _demo(path: str, size: int = -1) -> None:
    Path(path).parent.mkdir(exist_ok=True)
    Path(path).write_bytes(demo_model_path().read_bytes()[: size if size >= 0 else None])


def _safetensors(folder: str, config: bool = True) -> None:
    Path(folder).mkdir()
    model = tiny("llama")
    write_hf(Path(folder) / "model.safetensors", hf_config(model), hf_tensors(model))
    if not config:
        (Path(folder) / "config.json").unlink()


def _shard(path: str) -> None:
    """Writes the second file of a set of three. Only the first describes the model."""
    keys = [Key("split.no", U16, 1), Key("split.count", U16, 3), Key("split.tensors.count", I32, 3)]
    Gguf(keys=keys, tensors=[Tensor("b", (64, 2), "q8_0")]).write(Path(path))


def _socket(path: str) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)


def _nothing(_: str) -> None:
    """Writes nothing: the path itself is the case."""


class Kind(NamedTuple):
    """A path, how it is made, and the outcome of commands without and with text."""

    path: str
    make: Callable[[str], object]
    of_file: Outcome
    of_text: Outcome
    words: str = ""  # of the message


def _kind(path: str, make: Callable[[str], object], outcome: Outcome, words: str = "") -> Kind:
    return Kind(path, make, outcome, outcome, words)


KINDS = {
    "gguf": _kind("m.gguf", _demo, GOOD),
    "link": _kind("link", lambda p: (_demo("m.gguf"), Path(p).symlink_to("m.gguf")), GOOD),
    "truncated": _kind("m.gguf", lambda p: _demo(p, 1_000_000), Outcome(65, "MODEL_OFFSET")),
    "truncated metadata": _kind("m.gguf", lambda p: _demo(p, 5000), TRUNCATED),
    "empty file": _kind("m.gguf", lambda p: _demo(p, 0), TRUNCATED, "m.gguf: has 0 bytes"),
    "text file": _kind("notes.txt", lambda p: Path(p).write_text("Only words.\n"), FORMAT, "expected GGUF or"),
    "text as gguf": _kind("m.gguf", lambda p: Path(p).write_text("Only words.\n"), FORMAT, "expected GGUF or"),
    "safetensors": Kind("hf", _safetensors, GOOD, NO_TEXT),
    "safetensors file": Kind("hf/model.safetensors", lambda _: _safetensors("hf"), GOOD, NO_TEXT),
    "its config": _kind("hf/config.json", lambda _: _safetensors("hf"), FORMAT, "looks like a JSON file"),
    "safetensors without config": _kind("hf", lambda p: _safetensors(p, config=False), MISSING, "config.json: "),
    "part of a split": _kind(
        "m-00002-of-00003.gguf", _shard, Outcome(65, "MODEL_SHARD"), "ends in -00001-of-00003.gguf"
    ),
    "one gguf": _kind("one", lambda p: _demo(f"{p}/m.gguf"), GOOD),
    "several gguf": _kind("two", lambda p: (_demo(f"{p}/a.gguf"), _demo(f"{p}/b.gguf")), MISSING, "a.gguf"),
    "gguf and safetensors": _kind("both", lambda p: (_safetensors(p), _demo(f"{p}/a.gguf")), FORMAT, "name one of"),
    "empty directory": _kind("void", os.mkdir, MISSING, "a directory without a model"),
    "missing": _kind("absent.gguf", _nothing, MISSING, "absent.gguf: No such file"),
    "below a file": _kind("m.gguf/x", lambda _: _demo("m.gguf"), MISSING, "Not a directory"),
    "name too long": _kind("n" * 300, _nothing, MISSING, "File name too long"),
    "path too long": _kind("n" * 5000, _nothing, INVALID),
    "no path": _kind("", _nothing, INVALID),
    "not UTF-8": _kind("\udcff\udcfe", _nothing, INVALID),
    "home": _kind("~/m.gguf", _nothing, MISSING, "only a shell replaces ~"),
    "URL": _kind("https://models.example/m.gguf", _nothing, MISSING, "is a URL, expected a file or a folder"),
    "name and tag": _kind("qwen3:0.6b", _nothing, MISSING, "is a name with a tag"),
    "repository": _kind("Qwen/Qwen3-0.6B", _nothing, MISSING, "imp pull Qwen/Qwen3-0.6B, or write hf:Qwen/Qwen3-0.6B"),
    "FIFO": _kind("pipe", os.mkfifo, MISSING, "is a pipe, expected a regular file"),
    "socket": _kind("sock", _socket, MISSING, "sock: "),
    "device": _kind("/dev/zero", _nothing, MISSING, "is a device, expected a regular file"),
    "dangling link": _kind("link", lambda p: Path(p).symlink_to("nowhere"), MISSING, "No such file"),
    "circular link": _kind("link", lambda p: Path(p).symlink_to(p), MISSING, "symbolic links"),
}
CASES = [
    (kind, command) for kind in KINDS for command in (*FILE_COMMANDS, *TEXT_COMMANDS)
]  # fmt: skip


@pytest.fixture(autouse=True)
def nothing_typed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Gives stdin no input, so that a conversation ends at once."""
    with Path(os.devnull).open() as nothing:
        monkeypatch.setattr("sys.stdin", nothing)
        yield


def _words(command: str, path: str) -> list[str]:
    return [word.format(path) for word in (FILE_COMMANDS | TEXT_COMMANDS)[command]]


def _check(command: str, kind: Kind, outcome: Outcome, ended: tuple[int, str, str]) -> None:
    status, out, err = ended
    told = [line for line in err.splitlines() if line.startswith("imp: error: ")]
    if command == "doctor":  # doctor reports errors as its results
        told = [f"imp: error: {found[1]}" for found in re.finditer(r"BLOCKED +(?:model|config) +(.+)", out)]
        assert status == (1 if outcome.reason or kind.of_text.reason else 0)  # doctor checks the text side too
    else:
        assert status == outcome.status, err
    assert len(told) == (1 if outcome.reason else 0), told
    if outcome.reason:
        assert told[0].startswith(f"imp: error: {outcome.reason}: ")
        assert kind.words in told[0]


@pytest.mark.long
@pytest.mark.parametrize(("name", "command"), CASES)
def test_cmd_1_m47_each_command_on_each_kind_of_path(name: str, command: str, call) -> None:
    kind = KINDS[name]
    kind.make(kind.path)
    outcome = kind.of_text if command in TEXT_COMMANDS else kind.of_file
    _check(command, kind, outcome, call(*_words(command, kind.path)))


@pytest.fixture
def unprivileged() -> Iterator[None]:
    """Runs as another user, since root may read anything."""
    user = os.geteuid()
    if user == 0:
        os.seteuid(65534)
    yield
    os.seteuid(user)


@pytest.mark.few(5)
@pytest.mark.parametrize("command", [*FILE_COMMANDS, *TEXT_COMMANDS])
def test_cmd_1_m47_each_command_on_a_file_that_may_not_be_read(command: str, call, request, monkeypatch) -> None:
    path = Path("m.gguf").absolute()
    _demo(str(path))
    path.chmod(0)
    call(*_words(command, "absent.gguf"))  # imports modules while it may read them
    request.getfixturevalue("unprivileged")
    monkeypatch.chdir("/")  # a directory where it may look for imp.conf
    monkeypatch.setenv("HOME", "/")
    _check(command, KINDS["gguf"], Outcome(77, "MODEL_PERMISSION"), call(*_words(command, str(path))))


@pytest.mark.long
@pytest.mark.parametrize("name", [name for name, kind in KINDS.items() if kind.of_text.reason])
def test_cmd_1_a_server_refuses_it_likewise(name: str, imp, tmp_path: Path) -> None:
    kind = KINDS[name]
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path)
        kind.make(kind.path)
    ended = imp("serve", "-m", kind.path.encode(errors="surrogateescape"))
    _check("serve", kind, kind.of_text, (ended.returncode, "", ended.stderr.decode()))

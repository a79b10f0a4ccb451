"""`imp_service.load`: models by name and from a hub, what is shown of it, and keywords that are settings."""

from __future__ import annotations

import io
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import imp_service
from imp_service import Error
from imp_service.cli import progress
from imp_service.config import Config
from imp_service.config.foreign_names import FOREIGN_NAMES
from imp_service.config.settings import TABLE
from imp_service.config.sources import read_assignment
from imp_service.config.table import Key, find
from imp_service.core import Progress
from imp_service.generation.loading import load_model
from imp_service.generation.runtime import ModelRuntime
from imp_service.library import load as library
from imp_service.models import demo_model_path
from support.machine.command_line import clean_environment
from support.run.patience import HANGS_AFTER
from support.servers.stand_in_hub import Hub, stand_in_hub

MODEL = demo_model_path().read_bytes()
ONE_THREAD = "device.threads=1"


@pytest.fixture
def hub() -> Iterator[Hub]:
    with stand_in_hub(
        own__one={"tiny-Q8_0.gguf": MODEL},
        own__many={"m-Q8_0.gguf": MODEL, "m-Q5_0.gguf": MODEL},
        own__text={"a.md": b"a"},
    ) as started:
        yield started


PROGRAM = """
import sys, imp_service
for word in sys.argv[1:]:
    try:
        with imp_service.load(word, "device.threads=1") as model:
            print(word, "->", model.chat("What is 2 plus 3?", temperature=0, max_tokens=12).result())
    except imp_service.Error as error:
        print(word, "->", type(error).__name__, error)
"""


def ran(folder: Path, *words: str, endpoint: str = "http://127.0.0.1:1") -> tuple[list[str], str]:
    """Returns the lines of a program that loads each word, and what it wrote to stderr."""
    return run_program(folder, PROGRAM, *words, endpoint=endpoint)


def run_program(folder: Path, program: str, *words: str, endpoint: str) -> tuple[list[str], str]:
    variables = {**clean_environment(folder), "HF_ENDPOINT": endpoint, "HF_HUB_DISABLE_XET": "1"}
    command = [sys.executable, "-W", "error", "-c", program, *words]
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=folder, env=variables, timeout=HANGS_AFTER, check=True
    )
    return done.stdout.splitlines(), done.stderr


ANSWER = "-> 2 plus 3 is 5."


def test_lib_10_a_model_of_a_hub_is_downloaded_once_and_found_by_its_name(hub: Hub, tmp_path: Path) -> None:
    words = ["hf:own/one", "hf:own/many:Q8_0", "hf:own/one:tiny-Q8_0.gguf"]
    assert ran(tmp_path, *words, endpoint=hub.address) == ([f"{word} {ANSWER}" for word in words], "")
    assert hub.n_sent == 2 * len(MODEL)
    names = ["one", "OWN/One", "one:q8_0", "many", "own/many:Q8_0", "hf:own/one"]
    assert ran(tmp_path, *names) == ([f"{name} {ANSWER}" for name in names], "")


@pytest.mark.long
def test_lib_10_a_failure_is_an_error_with_the_reason_of_the_command(hub: Hub, tmp_path: Path) -> None:
    missing = "is not a file or folder; if it is a repository on Hugging Face: imp pull own/none"
    several = "expected one of hf:own/many:m-Q5_0.gguf, hf:own/many:m-Q8_0.gguf"
    expected = {
        "hf:own/many": f"FieldsInvalid FIELD_INVALID: path: hf:own/many: {several}",
        "hf:own/many:Q2_K": f"FieldsInvalid FIELD_INVALID: path: hf:own/many:Q2_K: no such file or type, {several}",
        "hf:own": "FieldsInvalid FIELD_INVALID: path: hf:own: expected OWNER/NAME",
        "hf:own/text": "ModelError HUB_NOT_FOUND: hf:own/text: found neither",
        "hf:own/none": "ModelError HUB_NOT_FOUND: own/none: not found",
        "own/none": f"ModelError MODEL_MISSING: own/none: {missing}, or write hf:own/none in its place",
    }
    lines, err = ran(tmp_path, *expected, endpoint=hub.address)
    assert err == ""
    for line, (word, message) in zip(lines, expected.items(), strict=True):
        assert line.startswith(f"{word} -> {message}"), line
    [line], err = ran(tmp_path, "hf:own/one")
    assert (line.startswith("hf:own/one -> ModelError HUB_UNREACHABLE: own/one: "), err) == (True, "")


def test_lib_10_a_path_and_an_entry_of_models_come_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "model.gguf").write_bytes(MODEL)
    monkeypatch.chdir(tmp_path)
    for path in ("model.gguf", tmp_path / "model.gguf"):
        with imp_service.load(path, ONE_THREAD) as model:
            assert model.max_context == 512
    entry = ("models.short.path=model.gguf", "models.short.overrides.max_context=64")
    with imp_service.load("short", ONE_THREAD, *entry) as model:
        assert model.max_context == 64


class Stream(io.StringIO):
    """A stderr that is a terminal, or none."""

    def __init__(self, *, is_terminal: bool) -> None:
        super().__init__()
        self._is_terminal = is_terminal

    def isatty(self) -> bool:
        return self._is_terminal


class OutStream(Stream):
    """That of a notebook."""


OutStream.__module__ = "ipykernel.iostream"
WATCHED = [(Stream, True, None), (Stream, False, True), (OutStream, False, None)]
UNWATCHED = [(Stream, False, None), (Stream, True, False), (OutStream, False, False)]


def shown(monkeypatch: pytest.MonkeyPatch, case: tuple[type[Stream], bool, bool | None]) -> str:
    """Returns what a load writes to stderr that reports half of its work, and all."""
    kind, is_terminal, asked = case
    stderr = kind(is_terminal=is_terminal)
    monkeypatch.setattr(progress, "QUIET_SECONDS", -1)
    monkeypatch.setattr(sys, "stderr", stderr)

    def reporting(config: Config, progress: Progress) -> ModelRuntime:
        progress(1, 2)
        progress(2, 2)
        return load_model(config)

    monkeypatch.setattr(library, "load_model", reporting)
    imp_service.load(None, ONE_THREAD, progress=asked).close()
    return stderr.getvalue()


@pytest.mark.parametrize("case", WATCHED)
def test_lib_10_a_long_load_shows_its_progress_where_somebody_watches(
    case: tuple[type[Stream], bool, bool | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert shown(monkeypatch, case) == "\rloading  50 %\rloading 100 %\r\x1b[K"


@pytest.mark.parametrize("case", UNWATCHED)
def test_lib_10_nothing_is_shown_where_nobody_watches(
    case: tuple[type[Stream], bool, bool | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert shown(monkeypatch, case) == ""


@pytest.mark.parametrize("progress", [True, None])
def test_lib_10_a_download_shows_its_progress_if_asked_to(hub: Hub, tmp_path: Path, progress: bool | None) -> None:
    program = f'import imp_service; imp_service.load("hf:own/one", "{ONE_THREAD}", progress={progress}).close()'
    _, err = run_program(tmp_path, program, endpoint=hub.address)
    assert ("tiny-Q8_0.gguf: 100%" in err, err == "") == (progress is True, progress is None)


KEYWORDS: dict[str, tuple[Any, str]] = {
    "n_ctx": (4096, 'write load(PATH, "limits.max_context=4096")'),
    "context_length": (512, 'write load(PATH, "limits.max_context=512")'),
    "threads": (4, 'write load(PATH, "device.threads=4")'),
    "n_gpu_layers": (99, 'write load(PATH, "device.kind=cuda"); imp uses the CPU unless'),
    "device": ("cuda", 'write load(PATH, "device.kind=cuda")'),
    "max_running": (8, 'write load(PATH, "scheduler.max_running=8")'),
    "device_threads": (2, 'write load(PATH, "device.threads=2")'),
    "huge_pages": (False, 'write load(PATH, "device.huge_pages=false")'),
    "max_runing": (8, 'write load(PATH, "scheduler.max_running=8")'),
    "cpus": ([0], 'write load(PATH, "device.cpus=VALUE")'),
    "temp": (0, ": temperature is an option of generate() and chat()"),
    "max_tokens": (8, ": max_tokens is an option of generate() and chat()"),
    "progres": (True, ". Did you mean 'progress'?"),
    "zzzzz": (1, "keyword argument 'zzzzz'"),
}


@pytest.mark.parametrize("name", KEYWORDS)
def test_lib_10_a_keyword_that_is_a_setting_is_answered_with_its_text(name: str) -> None:
    value, expected = KEYWORDS[name]
    options: dict[str, Any] = {name: value}
    with pytest.raises(TypeError) as caught:
        imp_service.load("nowhere.gguf", **options)
    message = str(caught.value)
    assert message.startswith(f"load() got an unexpected keyword argument {name!r}")
    assert expected in message


def test_lib_10_each_name_of_another_tool_is_a_key_of_the_settings() -> None:
    assert [name for name, each in FOREIGN_NAMES.items() if not isinstance(_key(each.key), Key)] == []
    for key, value in {(each.key, each.value) for each in FOREIGN_NAMES.values() if not each.is_same}:
        if not value.isupper():  # a value, not a placeholder
            imp_service.config.read_settings(None, [f"{key}={value}"], variables={})


def _key(name: str) -> object:
    return find(TABLE, read_assignment(f"{name}=0").path)


def test_lib_10_what_is_not_a_model_is_an_error_and_no_traceback_of_a_command() -> None:
    with pytest.raises(Error) as caught:
        imp_service.load("hf:../../etc")
    assert (caught.value.reason, caught.value.field) == ("FIELD_INVALID", "path")

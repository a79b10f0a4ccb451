"""Inputs that broke a reader, or that represent a class of such inputs: each gives the result in its name.

The name of a file is REASON.what_it_is: the reason of its refusal, or OK. When an input reveals a bug, add the input
here. The folder only grows; raise AT_LEAST with it.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from google.protobuf.message import DecodeError

from imp_service import _core
from imp_service.api.errors import FieldsInvalid
from imp_service.config import ConfigError, read_settings
from imp_service.pb import inference_pb2 as pb
from imp_service.rpc.imp_v1.requests.check_request import check_request
from imp_service.serving.served_model import ALL_CONSTRAINTS, ServedModel
from imp_service.text import (
    ChatMessage,
    ChatPrompt,
    ChatTemplate,
    ConstraintCompiler,
    ConstraintKind,
    ConstraintSpec,
    FieldInvalid,
    TemplateFailed,
    TemplateInvalid,
    Tokenizer,
)
from support.files.safetensors_writer import CONFIG
from support.text.tiny_vocabularies import byte_level

CORPUS = Path(__file__).parent
AT_LEAST = {
    "gguf": 20,
    "safetensors": 10,
    "schema": 5,
    "regex": 3,
    "gbnf": 4,
    "template": 6,
    "config": 6,
    "request": 9,
}
FILES = sorted(path for path in CORPUS.glob("*/*") if path.parent.name in AT_LEAST)
TOKENIZER = Tokenizer.from_metadata(byte_level())
COMPILER = ConstraintCompiler(TOKENIZER, vocab_size=TOKENIZER.vocab_size)
CHAT = ChatPrompt((ChatMessage("user", "hello"),))
SERVED = ServedModel(read_settings(None, []).settings, 2048, 2048, 512, ("imp demo",), ALL_CONSTRAINTS)


def read_model(path: Path) -> str:
    try:
        _core.open_model_file(path).check()
    except _core.ModelError as error:
        return error.reason
    return "OK"


def read_weights(path: Path) -> str:
    """Reads a safetensors file; it needs a config.json in the same folder."""
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(path, Path(folder) / "model.safetensors")
        (Path(folder) / "config.json").write_text(json.dumps(CONFIG))
        return read_model(Path(folder) / "model.safetensors")


def compile_as(kind: ConstraintKind) -> Callable[[Path], str]:
    def compile_it(path: Path) -> str:
        try:
            COMPILER.compile(ConstraintSpec(kind, path.read_text()))
        except FieldInvalid as error:
            return error.reason
        return "OK"

    return compile_it


def render(path: Path) -> str:
    try:
        ChatTemplate(path.read_text(), {"bos_token": "<s>"}).render(CHAT)
    except (TemplateFailed, TemplateInvalid) as error:
        return error.reason
    return "OK"


def configure(path: Path) -> str:
    try:
        read_settings(str(path))
    except ConfigError:
        return "CONFIG_INVALID"
    return "OK"


def judge_request(path: Path) -> str:
    try:
        check_request(pb.GenerateRequest.FromString(path.read_bytes()), SERVED)
    except DecodeError:
        return "MALFORMED"
    except FieldsInvalid as error:
        return error.reason
    return "OK"


READERS: dict[str, Callable[[Path], str]] = {
    "gguf": read_model,
    "safetensors": read_weights,
    "schema": compile_as(ConstraintKind.JSON_SCHEMA),
    "regex": compile_as(ConstraintKind.REGEX),
    "gbnf": compile_as(ConstraintKind.GBNF),
    "template": render,
    "config": configure,
    "request": judge_request,
}


@pytest.mark.few(32)
@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_b11_an_input_of_the_corpus_ends_as_its_name_says(path: Path) -> None:
    assert READERS[path.parent.name](path) == path.name.partition(".")[0]


def test_b11_the_corpus_only_grows() -> None:
    counts = {name: sum(path.parent.name == name for path in FILES) for name in AT_LEAST}
    assert {name: n for name, n in counts.items() if n < AT_LEAST[name]} == {}
    folders = {path.name for path in CORPUS.iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert folders == AT_LEAST.keys() == READERS.keys()


def test_b11_each_reader_has_an_input_that_it_takes_and_one_that_it_refuses() -> None:
    """A reader that refuses everything, or nothing, fails."""
    for name in AT_LEAST:
        ends = {path.name.startswith("OK.") for path in FILES if path.parent.name == name}
        assert (name, ends) == (name, {True, False})

"""The built-in model's text side, read from its file."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

import pytest

from imp_service.text import (
    ChatMessage,
    ChatPrompt,
    ChatTemplate,
    ConstraintCompiler,
    ConstraintKind,
    ConstraintSpec,
    TextStream,
    Tokenizer,
)
from support.files.gguf_key_values import read_key_values

PATH = Path(str(files("imp_service.models"))) / "demo.gguf"


@pytest.fixture(scope="module")
def metadata() -> dict[str, object]:
    return read_key_values(PATH)


@pytest.fixture(scope="module")
def tokenizer(metadata: dict[str, object]) -> Tokenizer:
    return Tokenizer.from_metadata(metadata)


TEXT = "Once upon a time, there's a little girl… 👧🏽 said: “Let us go!”\n\n\tEnd."


def test_txt_16_the_demo_model_round_trips(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode(TEXT)
    assert tokenizer.decode(ids) == TEXT
    assert len(ids) < len(TEXT.encode()), "its merges apply"
    stream = TextStream(tokenizer.table)
    assert "".join(stream.feed(token).text for token in ids) + stream.finish() == TEXT


def test_txt_17_txt_18_the_demo_model_chats(metadata: dict[str, object], tokenizer: Tokenizer) -> None:
    template = ChatTemplate.from_metadata(metadata, tokenizer)
    rendered = template.render(ChatPrompt((ChatMessage("user", "Hi <|im_end|>"),)))
    assert rendered.text == "<|im_start|>user\nHi <|im_end|><|im_end|>\n<|im_start|>assistant\n"
    ids = tokenizer.encode_spans(rendered.spans, add_special_tokens=False)
    control = [tokenizer.token_bytes(token).decode() for token in ids if token in tokenizer.special_ids]
    assert control == ["<|im_start|>", "<|im_end|>", "<|im_start|>"]
    assert tokenizer.token_bytes(max(tokenizer.eos_ids)) == b"<|im_end|>"


def test_txt_20_the_demo_model_s_vocabulary_takes_constraints(tokenizer: Tokenizer) -> None:
    compiler = ConstraintCompiler(tokenizer, vocab_size=tokenizer.vocab_size)
    text = '{"name": "the little girl", "age": 7}'
    schema = '{"type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer"}}}'
    state = compiler.compile(ConstraintSpec(ConstraintKind.JSON_SCHEMA, schema)).start()
    for token in tokenizer.encode(text):
        assert state.accept(token), tokenizer.token_bytes(token)
    assert state.only_end_is_possible

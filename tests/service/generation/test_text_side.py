"""The constraint compiler of a model's text side: any thread may request it, and it closes with the model."""

from __future__ import annotations

import threading
from contextlib import suppress

import pytest

from imp_service.api.chat_prompt import ChatMessage, ChatPrompt
from imp_service.config.config import build
from imp_service.generation.text_side import TextSide
from imp_service.text import ConstraintCompiler, ConstraintKind, ConstraintSpec, FieldInvalid
from support.run.patience import HANGS_AFTER
from support.text.tiny_vocabularies import byte_level

DIGITS = ConstraintSpec(ConstraintKind.REGEX, "[0-9]+")


class Held(ConstraintCompiler):
    """A compiler that is made only when the test allows it."""

    def __init__(self, *words: object, **names: object) -> None:
        made.append(self)
        begun.set()
        assert may_be_made.wait(HANGS_AFTER)
        super().__init__(*words, **names)  # type: ignore[arg-type]


made: list[Held] = []
begun, may_be_made = threading.Event(), threading.Event()


@pytest.fixture
def side(monkeypatch: pytest.MonkeyPatch) -> TextSide:
    made.clear(), begun.clear(), may_be_made.clear()
    monkeypatch.setattr("imp_service.text.ConstraintCompiler", Held)
    metadata = byte_level()
    return TextSide(metadata, build({}), len(metadata["tokenizer.ggml.tokens"]))


def test_txt_31_threads_that_ask_at_once_share_one_compiler(side: TextSide) -> None:
    threads = [threading.Thread(target=side.compile, args=(DIGITS,)) for _ in range(8)]
    for thread in threads:
        thread.start()
    assert begun.wait(HANGS_AFTER)
    may_be_made.set()
    for thread in threads:
        thread.join(HANGS_AFTER)
    assert len(made) == 1
    assert side.find(DIGITS) is side.compile(DIGITS)
    side.close()


def test_txt_31_a_model_that_is_closed_meanwhile_leaves_no_process_behind(side: TextSide) -> None:
    def compile_it() -> None:
        with suppress(FieldInvalid):  # the other thread may close the compiler first
            side.compile(DIGITS)

    compiling = threading.Thread(target=compile_it)
    compiling.start()
    assert begun.wait(HANGS_AFTER)
    closing = threading.Thread(target=side.close)
    closing.start()
    may_be_made.set()
    for thread in (closing, compiling):
        thread.join(HANGS_AFTER)
    assert made[0]._trial._worker._worker is None


def test_a_template_is_quick_after_a_row_of_quick_renderings() -> None:
    metadata = byte_level()
    slow = "{% if messages[0].content == 'slow' %}{% for i in range(20000) %}{% endfor %}{% endif %}"
    template = {"tokenizer.chat_template": slow + "{{ messages[0].content }}"}
    side = TextSide({**metadata, **template}, build({}), len(metadata["tokenizer.ggml.tokens"]))

    def is_quick_after(text: str) -> bool:
        side.render(ChatPrompt((ChatMessage("user", text),)))
        return side.renders_quickly

    assert not side.renders_quickly
    assert any(is_quick_after("quick") for _ in range(100))
    assert not is_quick_after("slow")
    assert not is_quick_after("quick")

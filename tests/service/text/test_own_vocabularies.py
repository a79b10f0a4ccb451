"""Our own vocabularies, one for every kind and every pre-tokenizer rule, against the ids of llama.cpp."""

from __future__ import annotations

import itertools

import pytest

from imp_service.text import Tokenizer
from make_vocabularies import oracle_ids, rules
from support.own_vocabularies import COMPOSING, DEPARTURES, OTHER_KINDS, texts, vectors, vocabulary


def encoded(rule: str, number: int) -> tuple[int, ...]:
    return tuple(TOKENIZERS[rule].encode(texts()[number], add_special_tokens=False))


TOKENIZERS = {rule: Tokenizer.from_metadata(vocabulary(rule)) for rule in rules()}


def test_txt_16_every_rule_has_vectors() -> None:
    assert sorted(vectors()) == sorted(rules())
    assert len(rules()) > 25
    assert len(texts()) > 70
    # Where llama.cpp is no oracle, the published vocabularies are. Most texts remain.
    assert [rule for rule in rules() if len(vectors()[rule]) < len(texts()) // 2] == []
    assert [rule for rule in rules() if rule not in DEPARTURES and len(vectors()[rule]) != len(texts())] == []


@pytest.mark.few(15)
@pytest.mark.parametrize("rule", rules())
def test_txt_16_the_ids_are_those_of_llama_cpp(rule: str) -> None:
    for number, ids in vectors()[rule].items():
        assert encoded(rule, number) == ids, texts()[number]


def test_txt_16_control_a_rule_taken_for_another_fails() -> None:
    byte_level = [rule for rule in rules() if rule not in OTHER_KINDS]
    ids = {rule: [encoded(rule, number) for number in range(len(texts()))] for rule in byte_level}
    alike = {
        (first, second)
        for first, second in itertools.combinations(byte_level, 2)
        for one, other in ((first, second), (second, first))
        if all(ids[one][number] == wanted for number, wanted in vectors()[other].items())
    }
    # llama.cpp is no oracle for Falcon's differences. The other two are names of one rule.
    assert alike == {("default", "falcon"), ("deepseek-r1-qwen", "bailingmoe")}


@pytest.mark.parametrize("rule", [rule for rule in rules() if rule not in (*OTHER_KINDS, *COMPOSING)])
def test_txt_16_t16_byte_level_texts_come_back(rule: str) -> None:
    for number, text in enumerate(texts()):
        assert TOKENIZERS[rule].decode(list(encoded(rule, number))) == text


@pytest.mark.few(4)
@pytest.mark.parametrize("rule", rules())
def test_txt_16_the_vectors_are_what_llama_cpp_says_today(rule: str) -> None:
    pytest.importorskip("llama_cpp", reason="llama_cpp is not installed")
    assert oracle_ids(rule) == vectors()[rule]

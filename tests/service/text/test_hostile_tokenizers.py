"""Tokenizers that were written to harm are refused, or read any text, in little time."""

from __future__ import annotations

import copy
import json
import random
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from imp_service.text import Tokenizer, TokenizerInvalid
from support.text.hub_tokenizers import library_of

JSON = dict[str, Any]
KINDS = ("byte level", "pairs, prepended", "unigram")

# Patterns whose time or memory explodes when they are compiled, or on some text.
PATTERNS = (
    "(a+)+$", "((((a*)*)*)*)*$", "(b|b)*c", "(z+)+$", "(\\w+\\s?)*$", "(.*)*x", "(.*.*.*.*)x", "(?:\\w|\\p{L})*!",
    "(x+x+)+y", "(q|qq)+$", "(\\p{Han}+)+$", "(k?){40}k{40}", "(a{1000}){1000}", "((a{100}){100}){100}",
    "(?:(?:(?:a{1,99}){1,99}){1,99}){1,99}", "(?:x?){5000}x{5000}", "[" + "a-z" * 30_000 + "]",
    "(" * 3000 + "a" + ")" * 3000,
    "|".join(f"w{i}" for i in range(20_000)), "(?=(a+))\\1+$", "(a)\\1{60}\\1*$", "\\g<0>", "(?<n>a\\g<n>?b?)*$", "",
    "(?:)*", "()*", "$", "^", "\\b", "(?<=a{1,50})b", "(?:a|b|ab)*c", "((d*)*)*e", "(?i:" + "s" * 5000 + ")*t",
)  # fmt: skip
NUMBERS = (
    float("nan"),
    float("inf"),
    -float("inf"),
    -1,
    1 << 31,
    1 << 40,
    1 << 63,
    10**400,
    1.5,
    True,
    None,
    "1",
    [],
    {},
)
ODD = (
    None,
    True,
    0,
    -1,
    1 << 40,
    1.5,
    float("nan"),
    "",
    "x",
    "\0",
    "x" * 100_000,
    [],
    [[]],
    {},
    {"type": "x"},
    [None] * 3,
)


def _part(kind: str, **options: Any) -> JSON:
    return {"type": kind, **options}


def _split(pattern: Any, behavior: str = "Isolated", invert: bool = False) -> JSON:
    return _part("Split", pattern=pattern, behavior=behavior, invert=invert)


# Parts before the model, in the place of the file's own or next to it.
SPLITTERS: tuple[JSON, ...] = (
    *(_split({"Regex": pattern}) for pattern in PATTERNS),
    *(_split({"String": text}) for text in ("", "a", " " * 100_000)),
    *(_split({"String": "a"}, behavior, True) for behavior in ("Removed", "MergedWithNext", "Contiguous")),
    _split({"Regex": "a"}, "Other"), _split({"Other": "a"}), _split(None), _split({"String": 3}), _split("a"),
    _part("FixedLength", length=0), _part("FixedLength", length=1), _part("FixedLength", length=1 << 62),
    _part("FixedLength", length=-1), _part("CharDelimiterSplit", delimiter=""),
    _part("CharDelimiterSplit", delimiter="ab"),
    _part("UnicodeScripts"), _part("BertPreTokenizer"), _part("Whitespace"), _part("WhitespaceSplit"),
    _part("Metaspace", replacement="", prepend_scheme="always"), _part("Metaspace", replacement="ab"),
    _part("Metaspace", replacement="a", prepend_scheme="first", split=True), _part("Sequence"),
    _part("Sequence", pretokenizers=[]),
    _part("Sequence", pretokenizers=[_part("Digits", individual_digits=True)] * 30_000),
    _part("Sequence", pretokenizers=[_part("ByteLevel", add_prefix_space=True, use_regex=True)] * 20), _part("Own"),
)  # fmt: skip
NORMALIZERS: tuple[JSON, ...] = (
    *(_part("Replace", pattern={"Regex": pattern}, content="") for pattern in PATTERNS),
    *(_part("Replace", pattern={"String": text}, content="b") for text in ("", "a", "b")),
    _part("Replace", pattern={"String": "a"}, content="a" * 1_000_000),
    _part("Replace", pattern={"Regex": ""}, content="ab"),
    _part("Replace", pattern={"Regex": "(?=.)"}, content="a" * 10_000), _part("Prepend", prepend="a" * 1_000_000),
    _part("Prepend", prepend=""), _part("Prepend", prepend=None), _part("Precompiled", precompiled_charsmap=""),
    _part("Precompiled", precompiled_charsmap="AAAA"), _part("Precompiled", precompiled_charsmap="/" * 4000),
    _part("Precompiled", precompiled_charsmap="BAAAAP////8="), _part("Precompiled", precompiled_charsmap=3),
    _part("Strip", strip_left=True, strip_right=True), _part("StripAccents"), _part("Lowercase"), _part("NFKD"),
    _part("BertNormalizer", clean_text=True, handle_chinese_chars=True, strip_accents=None, lowercase=True),
    _part("Nmt"), _part("Own"), _part("Sequence"), _part("Sequence", normalizers=[_part("NFKC")] * 20_000),
    _part("Sequence", normalizers=[_part("Replace", pattern={"String": "a"}, content="aa")] * 60),
    _part("Sequence", normalizers=[_part("Prepend", prepend="\u2581" * 10)] * 2000),
)  # fmt: skip


def _nested(part: JSON, members: str, depth: int) -> JSON:
    for _ in range(depth):
        part = {"type": "Sequence", members: [part]}
    return part


def _beside(document: JSON, name: str, members: str, part: JSON) -> JSON:
    own = document.get(name)
    return {"type": "Sequence", members: [part, *([own] if own else [])]}


def _ways(value: Any, way: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The places of a file: all of its parts, and some of its long lists and tables."""
    members = list(value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ())
    for name, inner in members if len(members) < 20 else [members[0], members[len(members) // 2], members[-1]]:
        yield (*way, name)
        yield from _ways(inner, (*way, name))


def _put(document: JSON, way: tuple[Any, ...], value: Any) -> None:
    place: Any = document
    for step in way[:-1]:
        place = place[step]
    place[way[-1]] = value


def _of_model(document: JSON) -> Iterator[tuple[str, Callable[[JSON], object]]]:
    vocab = document["model"]["vocab"]
    is_list = isinstance(vocab, list)
    for number in NUMBERS:
        if is_list:
            yield f"score {number!r:.20}", lambda d, n=number: d["model"]["vocab"].__setitem__(9, ["zz", n])
        else:
            yield f"id {number!r:.20}", lambda d, n=number: d["model"]["vocab"].__setitem__("zz", n)
        yield f"added id {number!r:.20}", lambda d, n=number: d["added_tokens"][0].__setitem__("id", n)
    yield (
        "a hole of a million",
        lambda d: d["added_tokens"].append({"id": 3_000_000, "content": "<far>", "special": True}),
    )
    yield "an added token of a megabyte", lambda d: d["added_tokens"].append({"id": 900, "content": "a" * 1_000_000})
    yield (
        "100,000 added tokens of one place",
        lambda d: d["added_tokens"].extend({"id": 5, "content": f"<{i}>"} for i in range(100_000)),
    )
    yield (
        "added tokens that begin alike",
        lambda d: d["added_tokens"].extend(
            {"id": 800 + i, "content": "a" * (4000 - i), "special": False, "normalized": True, "single_word": True}
            for i in range(99)
        ),
    )
    if "merges" in document["model"]:
        yield "a merge with itself", lambda d: d["model"]["merges"].extend([["a", ""], ["", ""], ["a", "a"]])
        yield "merges twice", lambda d: d["model"]["merges"].extend(d["model"]["merges"])
        yield "merges of no token", lambda d: d["model"].__setitem__("merges", [["zz", "yy"]])
    for options in ({"dropout": 1.0}, {"dropout": 0.5}, {"dropout": float("nan")}, {"unk_id": -1}, {"unk_id": None},
                    {"unk_token": None}, {"byte_fallback": True}, {"byte_fallback": False, "unk_token": None},
                    {"fuse_unk": True, "ignore_merges": True}, {"cache_capacity": -1}, {"type": None}):  # fmt: skip
        yield f"model {options}", lambda d, o=options: d["model"].update(copy.deepcopy(o))
    yield "ids around a text", lambda d: d.__setitem__("post_processor", {
        "type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": "<x>", "type_id": 0}}, {"Sequence": {"id": "A"}}],
        "pair": [], "special_tokens": {"<x>": {"id": "<x>", "ids": [1] * 1_000_000, "tokens": ["a"]}},
    })  # fmt: skip


def hostile_files(n_random: int = 60) -> Iterator[tuple[str, bytes]]:
    """The name and the content of each tokenizer.json."""
    for kind in KINDS:
        document = json.loads(library_of(kind).to_str())

        def changed(change: Callable[[JSON], object], document: JSON = document) -> bytes:
            mine = copy.deepcopy(document)
            change(mine)
            return json.dumps(mine).encode()

        for name, members, parts in (
            ("pre_tokenizer", "pretokenizers", SPLITTERS), ("normalizer", "normalizers", NORMALIZERS),
        ):  # fmt: skip
            for part in parts:
                shown = f"{kind}: {name} {json.dumps(part):.90}"
                yield shown, changed(lambda d, n=name, p=part, m=members: d.__setitem__(n, _beside(d, n, m, p)))
            deep = _nested(_part("Lowercase" if name == "normalizer" else "Whitespace"), members, 25)
            yield f"{kind}: {name} nested", changed(lambda d, n=name, p=deep: d.__setitem__(n, p))
        for what, change in _of_model(document):
            yield f"{kind}: {what}", changed(change)
        rng = random.Random(kind)
        ways = list(_ways(document))
        for _ in range(n_random):
            way, value = rng.choice(ways), rng.choice(ODD)
            yield f"{kind}: {way} = {value!r:.30}", changed(lambda d, w=way, v=value: _put(d, w, copy.deepcopy(v)))


N_ROWS = 1000
# Of this process: a machine that is busy counts nothing.
MOST_SECONDS = 10.0
RUNS = ("a", "z", "q", "k", "x", "b", "d", "世", " ", "1")
TEXTS = (
    "Hello world, 123 naïve\n\n  世界 é\x00 <think> </s>",
    *(run * n + end for run in RUNS for n, end in ((40, "!"), (300, ""))),
    "",
)


def is_refused(content: bytes) -> bool:
    """Whether the file is refused. If not, it reads texts."""
    metadata = {"model_type": "llama", "tokenizer.json": content}
    try:
        tokenizer = Tokenizer.from_directory(metadata, n_rows=N_ROWS)
    except TokenizerInvalid:
        return True
    tokenizer.require_rows(N_ROWS)
    for text in TEXTS:
        ids = tokenizer.encode(text)
        tokenizer.decode(ids)
        assert len(tokenizer.encode_with_offsets(text).ids) == len(ids) < 64 * (len(text.encode()) + 2)
    return False


def check(number: int, step: int = 10) -> None:
    """Every `step`th file, from this one on."""
    outcomes = set()
    for name, content in list(hostile_files())[number::step]:
        began = time.process_time()
        outcomes.add(is_refused(content))
        assert time.process_time() - began < MOST_SECONDS, name
    assert outcomes == {True, False}


def test_t55_a_hostile_tokenizer_is_refused_or_works() -> None:
    check(3, 50)


@pytest.mark.long
@pytest.mark.parametrize("number", range(10))
def test_t55_every_hostile_tokenizer_is_refused_or_works(number: int) -> None:
    check(number)


@pytest.mark.parametrize("kind", KINDS)
def test_t55_the_files_that_they_were_made_of_work(kind: str) -> None:
    assert not is_refused(library_of(kind).to_str().encode())


def test_t55_a_pattern_is_tried_on_the_characters_that_it_names() -> None:
    from imp_service.text.directory.pattern_cost import is_superlinear

    for pattern in ("(z|z)*Q", "(?:q|qq)+$", "(?:界+)+$", "(x+x+)+y", "((d*)*)*e"):
        assert is_superlinear(pattern), pattern
    assert not is_superlinear(r"\p{L}+|\d{1,3}|z?[^q\s]+|x y")
    assert len(PATTERNS) > 30

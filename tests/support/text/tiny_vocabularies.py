"""Small vocabularies made by the tests, as the metadata of a model file."""

from __future__ import annotations

import functools
from collections.abc import Sequence

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)
CHATML = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")


@functools.cache
def byte_alphabet() -> tuple[str, ...]:
    """Returns GPT-2's characters for the bytes 0 to 255, independently of imp, from their definition."""
    printable = [b for b in range(256) if 33 <= b <= 126 or 161 <= b <= 172 or 174 <= b <= 255]
    others = [b for b in range(256) if b not in printable]
    char_of = {b: chr(b) for b in printable} | {b: chr(256 + i) for i, b in enumerate(others)}
    return tuple(char_of[b] for b in range(256))


def spell(text: str) -> str:
    """Returns text in the byte alphabet."""
    alphabet = byte_alphabet()
    return "".join(alphabet[b] for b in text.encode())


def byte_level(
    *, merges: Sequence[tuple[str, str]] = (), control: Sequence[str] = CHATML, user_defined: Sequence[str] = ()
) -> dict[str, object]:
    """Returns 256 bytes, then the merges' results, user-defined tokens and control tokens; the last token is eos."""
    tokens = [*byte_alphabet()]
    for left, right in merges:
        tokens.append(spell(left) + spell(right))
    types = [NORMAL] * len(tokens) + [USER_DEFINED] * len(user_defined) + [CONTROL] * len(control)
    tokens += [*user_defined, *control]
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": types,
        "tokenizer.ggml.merges": [f"{spell(left)} {spell(right)}" for left, right in merges],
        "tokenizer.ggml.eos_token_id": len(tokens) - 1,
        "tokenizer.ggml.bos_token_id": len(tokens) - len(control),
    }


def sentencepiece(pieces: Sequence[tuple[str, float]], *, add_space_prefix: bool = True) -> dict[str, object]:
    """Returns <unk>, <s>, </s>, 256 byte tokens, then the pieces."""
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{b:02X}>" for b in range(256)), *(text for text, _ in pieces)]
    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.pre": "default",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.scores": [0.0] * 259 + [score for _, score in pieces],
        "tokenizer.ggml.token_type": [UNKNOWN, CONTROL, CONTROL, *[BYTE] * 256, *[NORMAL] * len(pieces)],
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.unknown_token_id": 0,
        "tokenizer.ggml.add_bos_token": True,
        "tokenizer.ggml.add_space_prefix": add_space_prefix,
    }

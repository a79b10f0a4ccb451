"""Draws outputs that a constraint allows, and enumerates its language, with no knowledge of how it is compiled."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np

from imp_service.text import ConstraintProgram, ConstraintState, Tokenizer


def allowed_ids(state: ConstraintState) -> list[int]:
    """Returns the ids whose bit is set."""
    bits = np.unpackbits(np.frombuffer(state.mask(), dtype=np.uint8), bitorder="little")
    return np.flatnonzero(bits).tolist()


def sample(program: ConstraintProgram, tokenizer: Tokenizer, seed: int, n_most: int) -> tuple[str, bool]:
    """Returns an output of random allowed tokens and whether it finished. Prefers closing tokens as it grows."""
    rng = random.Random(seed)
    state = program.start()
    ids: list[int] = []
    while not state.only_end_is_possible and len(ids) < n_most:
        allowed = allowed_ids(state)
        assert allowed, "a vocabulary with every byte never gets stuck"
        closing = [i for i in allowed if i in tokenizer.eos_ids or tokenizer.token_bytes(i) in (b'"', b"}", b"]", b")")]
        token = rng.choice(closing) if closing and rng.random() < len(ids) / n_most else rng.choice(allowed)
        assert state.accept(token)
        if state.has_ended:
            break
        ids.append(token)
    return tokenizer.decode_bytes(ids).decode("utf-8", "ignore"), state.may_end


def language(program: ConstraintProgram, alphabet: Sequence[int], longest: int) -> set[bytes]:
    """Returns every member of at most `longest` single-byte tokens of the alphabet."""
    members: set[bytes] = set()
    frontier = [(b"", program.start())]
    while frontier:
        text, state = frontier.pop()
        if state.may_end:
            members.add(text)
        allowed = set(allowed_ids(state))
        assert state.may_end == bool(allowed & program.ends)
        for token in alphabet:
            if token in allowed and len(text) < longest:
                step = state.fork()
                assert step.accept(token)
                frontier.append((text + bytes((token,)), step))
    return members

"""Runs imp through its Python API: every token is a step of a session, and all sequences step together."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

import imp_service
from compare.outcome import IMP
from compare.quality.rows import Rows, Sequences
from imp_service import SessionStep, StepOptions
from imp_service.core.errors import Error

LAST_ROW = StepOptions(sample=False, logits=True)
KV_BYTES = "1GiB"


class ImpRows:
    """imp with default settings, except for the cache. Prompts and steps give the same bits, so one way is enough."""

    name = IMP

    def __init__(self, kv: str) -> None:
        self._kv = kv

    def __call__(self, path: Path, threads: int, sequences: Sequences) -> Iterator[Rows]:
        settings = {"device.threads": threads, "kv.dtype": self._kv, "kv.bytes": KV_BYTES}
        with imp_service.load(path, *(f"{key}={value}" for key, value in settings.items())) as model:
            rows = np.empty((len(sequences), len(sequences[0]), model.vocab_size), np.float32)
            sessions = [model.open() for _ in sequences]
            for at in range(len(sequences[0])):
                steps = [
                    SessionStep(session, [tokens[at]], LAST_ROW)
                    for session, tokens in zip(sessions, sequences, strict=True)
                ]
                for i, output in enumerate(model.decode_step(steps)):
                    if isinstance(output, Error):
                        raise output
                    rows[i, at] = np.frombuffer(output.logits, "<f4")
        yield from rows

"""Builds EngineStats of the core from the values that a test sets."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Durations:
    counts: list[int] = field(default_factory=lambda: [0] * 25)
    sum_ns: int = 0


@dataclass
class Graphs:
    captures: int = 0
    failures: int = 0
    last_failure: str = ""


@dataclass
class Drafts:
    n_rounds: int = 0
    n_drafted: int = 0
    n_accepted: int = 0


@dataclass
class Numbers:
    n_steps: int = 0
    n_cached_tokens: int = 0
    n_prefill_rows: int = 0
    n_outputs: int = 0
    n_preemptions: int = 0
    n_encoded: int = 0
    n_found: int = 0
    media_bytes: int = 0
    encode_ns: int = 0
    running: int = 0
    waiting: int = 0
    waiting_tokens: int = 0
    sessions: int = 0
    blocks_live: int = 0
    blocks_cached: int = 0
    blocks_free: int = 10
    states_held: int = 0
    states_kept: int = 0
    states_free: int = 0
    silence_ns: int = 0
    stopped: bool = False
    graphs: Graphs | None = None
    drafts: Drafts = field(default_factory=Drafts)
    drafters: dict[str, Drafts] = field(default_factory=lambda: {"ngram": Drafts()})
    draft_skips: dict[str, int] = field(default_factory=lambda: {"no_guess": 0})
    draft_ns: int = 0
    steps: Durations = field(default_factory=Durations)
    cancels: Durations = field(default_factory=Durations)

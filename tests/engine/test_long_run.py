"""Hours of load at four fifths of the engine's capacity, counted in turns: it is as fast at the end as at the start."""

from __future__ import annotations

import random

from imp_service import _core
from support.engine.script_engine import ScriptEngine
from support.oracles.script_oracle import prompt_of
from support.run.release_run import repetitions

N_PARTS = repetitions(40, 6)
TURNS_OF_A_PART = 1500
N_RUNNING = 8


def arrivals() -> list[tuple[int, int, int]]:
    """Returns (turn, prompt tokens, outputs) of one part, which keep four fifths of the places busy."""
    rng = random.Random(15)
    found, busy = [], 0
    for turn in range(TURNS_OF_A_PART):
        while busy < 0.8 * N_RUNNING * turn:
            n_prompt, n_outputs = rng.randrange(4, 60), rng.randrange(1, 30)
            found.append((turn, n_prompt, n_outputs))
            busy += n_outputs + n_prompt // 32
    return found


def percentile_99(turns: list[int]) -> int:
    return sorted(turns)[int(0.99 * len(turns))]


class LongRun:
    """Repeats the same arrivals with new prompts, so that the cache fills and evicts blocks."""

    def __init__(self) -> None:
        self.engine = ScriptEngine(
            n_blocks=96, max_running=N_RUNNING, prefill_chunk=32, script={"block_tokens": 16, "records": False}
        )
        self.engine.core.records_draws = False
        self._n_turns = 0
        self._n_requests = 0
        self._began: dict[int, tuple[int, int]] = {}  # ticket -> its part, its turn
        self.waited: list[list[int]] = [[] for _ in range(N_PARTS)]

    def run(self, part: int, pattern: list[tuple[int, int, int]]) -> None:
        coming = list(reversed(pattern))
        for turn in range(TURNS_OF_A_PART):
            while coming and coming[-1][0] == turn:
                _, n_prompt, n_outputs = coming.pop()
                ticket = self.engine.generate(prompt_of(n_prompt, self._n_requests), max_outputs=n_outputs)
                self._began[ticket] = (part, self._n_turns)
                self._n_requests += 1
            self.engine.turn()
            self._n_turns += 1
            self._note_ends()

    def _note_ends(self) -> None:
        for event in self.engine.all_events:
            if isinstance(event, _core.FinishedEvent):
                part, began = self._began.pop(event.ticket)
                self.waited[part].append(self._n_turns - began)
        self.engine.all_events.clear()
        self.engine.events.clear()


def test_o15_the_last_requests_of_a_long_run_wait_no_longer_than_the_first() -> None:
    it = LongRun()
    pattern = arrivals()
    for part in range(N_PARTS):
        it.run(part, pattern)
    assert it.engine.core.stats().blocks_cached > 48
    it.engine.turn_until_idle()
    it.engine.assert_at_rest()
    # The last requests of the last part were still running when it ended.
    *whole, _ = it.waited
    assert {len(part) for part in whole} == {len(pattern)} and len(pattern) > 400
    assert percentile_99(whole[-1]) <= 1.1 * percentile_99(whole[0])
    # A request takes at least one turn per output, so the compared times are more than a few turns.
    assert percentile_99(whole[0]) >= 25

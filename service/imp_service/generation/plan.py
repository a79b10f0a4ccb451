"""A generation ready to be submitted: checked, tokenized, its constraint compiled. Making one is the costly part."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from imp_service.generation.fold import GenerationFold


@dataclass(frozen=True, slots=True)
class GenerationPlan:
    """Good for one run."""

    fold: GenerationFold
    sequences: list[int]
    # Tells the engine; the argument is the run's ticket. Raises what the engine refuses at its door.
    submit: Callable[[int], None]
    n_prompt_tokens: int
    time_limit: float | None = None  # seconds
    # Set where the run is on a session: told how many tokens the session holds at the end.
    session_holds: Callable[[int], None] | None = None

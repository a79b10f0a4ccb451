"""What this server holds requests to: the numbers of the model it serves, and its settings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from imp_service.config.settings import Settings
from imp_service.text import ConstraintKind

if TYPE_CHECKING:
    from imp_service.generation import ModelRuntime

ALL_CONSTRAINTS = tuple(kind.value for kind in ConstraintKind)


@dataclass(frozen=True, slots=True)
class Terms:
    """Of one request: a reload may change the settings. Without a model only what needs none can be checked."""

    settings: Settings
    # The width of logits and masks.
    vocab_size: int = 0
    # Ids below it are tokens.
    n_tokens: int = 0
    max_context: int = 0
    # The name the model is served under, then its aliases.
    names: tuple[str, ...] = ()
    # Kinds that the model can be held to, by the name of their field.
    constraints: tuple[str, ...] = ()

    @classmethod
    def of(cls, model: ModelRuntime, settings: Settings) -> Terms:
        """Those of a served model, under the settings in force."""
        return cls(
            settings=settings,
            vocab_size=model.vocab_size,
            n_tokens=model.n_tokens,
            max_context=model.max_context,
            names=(model.name, *settings.model.aliases),
            # A constrained output must be able to end.
            constraints=ALL_CONSTRAINTS if model.eos_tokens else (),
        )

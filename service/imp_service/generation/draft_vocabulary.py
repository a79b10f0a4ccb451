"""Checks that a draft model has the vocabulary of the model that it guesses for."""

from __future__ import annotations

from collections.abc import Mapping

from imp_service.config import ConfigError
from imp_service.core.draft import SETTING


def match_vocabularies(model: Mapping[str, object], draft: Mapping[str, object], name: str) -> tuple[int, ...]:
    """The ids that the draft model must not guess. Raises ConfigError if it has another vocabulary."""
    from imp_service.text.errors import TextError
    from imp_service.text.vocabulary_match import ids_not_shared

    try:
        return ids_not_shared(model, draft)
    except TextError as error:
        fault = str(error).replace(": is ", " is ", 1) if error.path.startswith("token ") else str(error)
        raise ConfigError(SETTING, f"{name}: {fault}") from None

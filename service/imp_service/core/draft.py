"""The draft model that the settings name: it guesses ahead, or chooses the part of prompts that is evaluated."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from imp_service import _core
from imp_service.config import Config
from imp_service.core.checkpoint import naming_whole_path
from imp_service.core.errors import ModelError
from imp_service.core.head import NAME as HEAD
from imp_service.models import demo_draft_model_path, demo_model_path

SETTING = "speculation.model"
DRAFTER = "model"
# From the metadata of the model, the metadata of the draft model and its name: the ids that the draft model must not
# guess. Raises ConfigError if the vocabularies do not match.
MatchVocabularies = Callable[[Mapping[str, object], Mapping[str, object], str], Sequence[int]]


def draft_path(config: Config, file: _core.ModelFile) -> Path | None:
    """The draft model of the model in `file`: that of the settings, else the built-in model's own, else none."""
    speculation = config.settings.speculation
    if DRAFTER not in speculation.drafters and not config.settings.sparse_prefill.enabled:
        return None
    if speculation.model is not None:
        return Path(speculation.model)
    return demo_draft_model_path() if Path(file.path) == demo_model_path() else None


def open_draft(config: Config, file: _core.ModelFile) -> _core.ModelFile | None:
    """Opens the draft model of the model in `file`. Errors name the setting."""
    path = draft_path(config, file)
    if path is None:
        return None
    try:
        with naming_whole_path(str(path)):
            return _core.open_model_file(path)
    except ModelError as error:
        error.message = f"{SETTING}: {error.message}"
        error.args = (f"{error.reason}: {error.message}",)
        raise


def no_sparse_prefill(config: Config, *, has_draft: bool) -> str:
    """Why no prompt is evaluated in part; empty if requests may ask for it."""
    if not config.settings.sparse_prefill.enabled:
        return "sparse_prefill.enabled is off"
    return "" if has_draft else f"there is no draft model: {SETTING} is not set"


def drafters_text(config: Config, draft: Mapping[str, object] | None, name: str, head: str | None) -> str:
    """What guesses, what a guess costs, and why a drafter of the settings is not there.

    `name` is the draft model's, `head` the kind of the head.
    """
    texts, is_served = [], False
    for drafter in config.settings.speculation.drafters:
        if drafter == HEAD:
            if head is not None:
                texts.append(f"{drafter}: {head}")
                is_served = True
            else:
                texts.append(f"{drafter}: none, the model has none")
        elif drafter != DRAFTER:
            texts.append(f"{drafter}: costs nothing")
            is_served = True
        elif draft is None:
            texts.append(f"{drafter}: none, {SETTING} is not set")
        elif not draft["guesses"]:
            texts.append(f"{drafter}: none, {name} has a recurrent state and only scores prompts")
        else:
            texts.append(f"{drafter}: {name}, a guess costs {draft['cost']:.2f} of a token")
            is_served = True
    if is_served:
        texts.append("grammar: what a constraint forces")
    return "; ".join(texts)

"""Loads a model with its tokenizer: the weights on a background thread, the tokenizer meanwhile on the caller's.

Modules that only a loaded model needs are imported while the weights are read.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from imp_service.config import Config
from imp_service.core import ModelFile, Progress
from imp_service.core.background_load import STOP_SECONDS, WeightsLoad
from imp_service.core.checkpoint import model_path
from imp_service.core.directory import shown_name
from imp_service.core.reserve import has_room_for_text
from imp_service.core.settings_faults import CHAT_TEMPLATE, file_faults
from imp_service.generation.draft_vocabulary import match_vocabularies

if TYPE_CHECKING:
    from imp_service.generation.runtime import ModelRuntime
    from imp_service.text import Tokenizer


def load_model(config: Config, file: ModelFile | None = None, progress: Progress | None = None) -> ModelRuntime:
    """The settings' model, or `file` in its place, ready to generate."""
    weights = WeightsLoad(config, file, match_vocabularies)
    try:
        return finish_load(weights, progress, None if file is None else shown_name(Path(file.path)))
    except BaseException:
        weights.stop(STOP_SECONDS)
        raise


def finish_load(
    weights: WeightsLoad, progress: Progress | None = None, name: str | None = None, *, starts: bool = True
) -> ModelRuntime:
    """The model of weights that are being loaded. `name` is the file's in messages, by default that of the settings.

    Without `starts`, its engine begins with ModelRuntime.start().
    """
    from imp_service.generation.runtime import ModelRuntime
    from imp_service.text.errors import naming_file

    weights.on_progress = progress
    for fault in file_faults(weights.config, CHAT_TEMPLATE):  # before a long load
        raise fault
    with naming_file(name or shown_name(model_path(weights.config))):
        make_tokenizer = _tokenizer_maker(weights)
        return ModelRuntime(weights.outcome.result(), make_tokenizer=make_tokenizer, starts=starts)


def _tokenizer_maker(weights: WeightsLoad) -> Callable[[], Tokenizer]:
    """A function that returns the tokenizer, or raises why there is none: the weights' errors are reported first.

    Without enough memory the tokenizer is built only when the function is called. The load fails before that; the
    tokenizer library would end the process if an allocation failed.
    """
    from imp_service.generation.text_side import build_tokenizer

    metadata, settings = weights.metadata, weights.config.settings
    if not has_room_for_text(settings):
        return lambda: build_tokenizer(metadata, settings)
    built: Future[Tokenizer] = Future()
    try:
        with _garbage_ignored():
            built.set_result(build_tokenizer(metadata, settings))
    except Exception as error:
        built.set_exception(error)
    return built.result


@contextmanager
def _garbage_ignored() -> Iterator[None]:
    """The garbage collector would search the new vocabulary many times, and find nothing."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()

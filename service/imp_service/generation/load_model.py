"""Loads a model as Python uses it: its weights on the core's threads, and meanwhile its tokenizer on one of ours."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from importlib import import_module
from pathlib import Path

from imp_service.config import Config, Settings
from imp_service.core import ModelFile, Progress, load, open_file
from imp_service.core.early_load import EarlyLoad
from imp_service.core.file_faults import file_faults
from imp_service.core.load import model_path
from imp_service.core.reserve import has_room_for_text
from imp_service.core.settings_faults import CHAT_TEMPLATE
from imp_service.generation.language_model import LanguageModel
from imp_service.generation.text_side import build_tokenizer
from imp_service.text import Tokenizer
from imp_service.text.errors import naming_file


def load_model(config: Config, file: ModelFile | None = None, progress: Progress | None = None) -> LanguageModel:
    """The settings' model, or `file` in its place, ready to generate."""
    if file is None:
        file = open_file(config)
    _require_template_file(config)
    metadata = file.metadata
    with ThreadPoolExecutor(1, "imp-tokenizer") as beside, naming_file(Path(file.path).name):
        # What is wrong with the weights is told first: the vocabulary cannot be compared with them before.
        tokenizer = _begin_tokenizer(beside, metadata, config.settings)
        loaded = load(config, file, progress, lambda: metadata)
        return LanguageModel(loaded, make_tokenizer=tokenizer)


def finish_load(early: EarlyLoad, progress: Progress | None = None) -> LanguageModel:
    """The model whose weights are on their way."""
    _require_template_file(early.config)
    with ThreadPoolExecutor(1, "imp-tokenizer") as beside, naming_file(model_path(early.config).name):
        tokenizer = _begin_tokenizer(beside, early.metadata, early.config.settings)
        beside.submit(import_module, "imp_service.text.chat_template")  # a server compiles templates before it serves
        return LanguageModel(early.result(progress), make_tokenizer=tokenizer)


def _begin_tokenizer(beside: Executor, metadata: Mapping[str, object], settings: Settings) -> Callable[[], Tokenizer]:
    """A function that returns the tokenizer, which is built in the background.

    Without enough memory it is built only when the function is called. The load fails before that; the tokenizer
    library would end the process if an allocation failed.
    """
    if has_room_for_text(settings):
        return beside.submit(build_tokenizer, metadata, settings).result
    return lambda: build_tokenizer(metadata, settings)


def _require_template_file(config: Config) -> None:
    """Raises if the settings name a chat template that cannot be opened, before the weights are read."""
    for fault in file_faults(config, CHAT_TEMPLATE):
        raise fault

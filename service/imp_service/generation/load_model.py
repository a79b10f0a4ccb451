"""Loads a model as Python uses it: its weights on the core's threads, and meanwhile its tokenizer on one of ours."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from imp_service.config import Config
from imp_service.core import ModelFile, Progress, load, open_file
from imp_service.core.early_load import EarlyLoad
from imp_service.generation.language_model import LanguageModel
from imp_service.text import Tokenizer


def load_model(config: Config, file: ModelFile | None = None, progress: Progress | None = None) -> LanguageModel:
    """The settings' model, or `file` in its place, ready to generate."""
    if file is None:
        file = open_file(config)
    metadata = file.metadata
    with ThreadPoolExecutor(1, "imp-tokenizer") as beside:
        # What is wrong with the weights is told first: the vocabulary cannot be compared with them before.
        tokenizer = beside.submit(Tokenizer.from_metadata, metadata)
        loaded = load(config, file, progress, lambda: metadata)
        return LanguageModel(loaded, make_tokenizer=tokenizer.result)


def finish_load(early: EarlyLoad, progress: Progress | None = None) -> LanguageModel:
    """The model whose weights are on their way."""
    with ThreadPoolExecutor(1, "imp-tokenizer") as beside:
        tokenizer = beside.submit(Tokenizer.from_metadata, early.metadata)
        return LanguageModel(early.result(progress), make_tokenizer=tokenizer.result)

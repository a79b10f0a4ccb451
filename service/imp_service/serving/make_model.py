"""Makes the model that a server serves: loads it, compiles its chat templates, and warms it up."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

from imp_service.config import Config
from imp_service.core import Progress
from imp_service.core.background_load import WeightsLoad
from imp_service.generation import ModelRuntime, finish_load, load_model

MakeModel = Callable[[Config, Progress], ModelRuntime]


def make_model(config: Config, progress: Progress) -> ModelRuntime:
    """A model that is ready to serve. Takes seconds: call it on a thread that may wait."""
    return _prepared(load_model(config, progress=progress))


def make_model_of(weights: WeightsLoad) -> MakeModel:
    """The same for weights that are being loaded. Meanwhile it imports what compiles the chat templates."""

    def make(_: Config, progress: Progress) -> ModelRuntime:
        import_module("imp_service.text.templates.chat_template")
        return _prepared(finish_load(weights, progress))

    return make


def make_model_from(model: ModelRuntime) -> MakeModel:
    """The same for a model that is loaded and prepared, but has no engine yet."""

    def make(_: Config, __: Progress) -> ModelRuntime:
        model.start()
        return _warmed_up(model)

    return make


def _prepared(model: ModelRuntime) -> ModelRuntime:
    try:
        if model.images is not None:
            model.images.start()  # its libraries load meanwhile; the fingerprint names them
        model.prepare_chats()
    except BaseException:
        model.close()
        raise
    return _warmed_up(model)


def _warmed_up(model: ModelRuntime) -> ModelRuntime:
    try:
        _ = model.fingerprint  # generates a first few tokens
    except BaseException:
        model.close()
        raise
    return model

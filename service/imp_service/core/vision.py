"""The vision tower that the settings ask for: the file of its projector, and the memory of images."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path, PurePath
from typing import Any

from imp_service import _core
from imp_service.config import Config, ConfigError
from imp_service.config.settings import Settings
from imp_service.core.checkpoint import model_path, naming_whole_path
from imp_service.core.directory import shown_name
from imp_service.core.errors import ModelError
from imp_service.core.reserve import image_bytes, reserve_bytes

SETTING, CACHE_SETTING = "model.projector", "media.cache_bytes"


def vision_arguments(settings: Settings, file: _core.ModelFile) -> dict[str, Any]:
    """Arguments of `_core.Model.load` and `_core.plan_model`, some in place of those of load_arguments().

    Opens the projector: that of the settings, else the only one in the folder of the model in `file`. A model with a
    tower of its own needs none. Without any there are no arguments. Raises ConfigError if the folder has several.
    """
    if not settings.model.vision:
        return {}
    named = settings.model.projector
    path = _projector_beside(file) if named is None and not file.has_vision else named
    if path is None and not file.has_vision:
        return {}
    return {
        "vision": True,
        "projector_file": None if path is None else _open(path, file),
        "projector_may_not_fit": path != named,
        "image_cells": settings.media.image_tokens,
        "media_bytes": settings.media.cache_bytes if isinstance(settings.media.cache_bytes, int) else None,
        "reserve_bytes": reserve_bytes(settings) + image_bytes(settings.limits, settings.media),
    }


def may_read_images(config: Config) -> bool:
    """Whether the settings' model may read images, judged by the files that there are before one is opened."""
    model, path = config.settings.model, Path(model_path(config))
    if not model.vision or model.projector is not None or not path.is_dir():
        return model.vision and (model.projector is not None or bool(_projectors_in(path.parent)))
    try:
        return '"vision_config"' in (path / "config.json").read_text(errors="replace")
    except OSError:  # the load says what is wrong
        return False


def is_projector(path: PurePath) -> bool:
    """Whether a file has the name that projectors have. The core knows them by the same beginning."""
    return path.name.lower().startswith("mmproj") and path.suffix.lower() == ".gguf"


def _projector_beside(file: _core.ModelFile) -> str | None:
    found = _projectors_in(Path(file.path).parent) if file.format == "gguf" else []
    if len(found) > 1:
        names = ", ".join(shown_name(path) for path in found)
        raise ConfigError(SETTING, f"found {names} in the model's folder, expected the path of one, or vision = false")
    return str(found[0]) if found else None


def _projectors_in(folder: Path) -> Sequence[Path]:
    try:
        return sorted(path for path in folder.iterdir() if is_projector(path))
    except OSError:  # a model may be readable in a folder that is not
        return []


def _open(path: str, model: _core.ModelFile) -> _core.ModelFile:
    try:
        with naming_whole_path(path):
            return _core.open_model_file(path)
    except ModelError as error:
        error.message = f"{SETTING} of {shown_name(Path(model.path))}: {error.message}"
        error.args = (f"{error.reason}: {error.message}",)
        raise

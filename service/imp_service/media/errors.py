"""The errors of imp_service.media, besides `FieldInvalid` for an image that a caller sent."""

from __future__ import annotations

from imp_service.text.errors import TextError


class ImageSettingsInvalid(TextError):
    """A number of a model's image processor is wrong, or imp cannot work with it. `path` is the number's key."""

    reason = "MODEL_CONFIG"


class ImagesRefused(TextError):
    """The process that decodes images dies, or the system has no memory for it. The caller may try again later."""

    reason = "NO_MEMORY"


class PillowMissing(TextError):
    """The package that decodes images is not installed, or too old."""

    reason = "NOT_SUPPORTED_BY_HOST"

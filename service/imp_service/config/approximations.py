"""The lossy features that take part in every reply under some settings, as replies name them."""

from imp_service.config.settings import Settings

_LOSSY_KV = ("q8_0",)


def approximations(settings: Settings) -> str:
    """A comma-separated list, empty where nothing is approximated."""
    kv_dtype = settings.model.overrides.kv_dtype or settings.kv.dtype
    return f"kv={kv_dtype}" if kv_dtype in _LOSSY_KV else ""

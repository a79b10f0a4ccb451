"""The error of a bad setting, and the errors of Python that mean that the system refused a resource."""

from imp_service.config.toml import excerpt


class ConfigError(Exception):
    """Settings that cannot be used; nothing of them is in effect."""

    def __init__(self, where: str, message: str, *, reason: str = "CONFIG_INVALID") -> None:
        self.where = where
        self.reason = reason
        self.message = f"{excerpt(where, 200, keep='end')}: {message}"
        super().__init__(f"{reason}: {self.message}")


_NO_THREAD = "can't start new thread"
_NO_PLACE = ("failed to map segment from shared object", "cannot allocate memory")


def refused_by_system(error: BaseException) -> str:
    """What the system refused, in words: an allocation, a thread, or the place for a library; else nothing."""
    if isinstance(error, MemoryError):
        return "the system refused memory"
    if isinstance(error, RuntimeError) and str(error) == _NO_THREAD:
        return "the system refused to start a thread"
    if isinstance(error, ImportError) and any(words in str(error).lower() for words in _NO_PLACE):
        return f"the system refused memory for a library: {error.name or 'one of its modules'}"
    return ""

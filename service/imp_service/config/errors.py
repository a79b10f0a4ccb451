"""The error of a bad setting, and the errors of Python that mean that the system refused a resource."""

from imp_service.config.toml import excerpt


class ConfigError(Exception):
    """Invalid settings. None of them takes effect."""

    def __init__(self, where: str, message: str, *, reason: str = "CONFIG_INVALID") -> None:
        self.where = where
        self.reason = reason
        self.message = f"{excerpt(where, 200, keep='end')}: {message}"
        super().__init__(f"{reason}: {self.message}")


_NO_THREAD = "can't start new thread"
_NO_MEMORY_FOR_LIBRARY = ("failed to map segment from shared object", "cannot allocate memory")


def system_refusal(error: BaseException) -> str:
    """A sentence if the error means that the system refused memory or a thread; else empty."""
    if isinstance(error, MemoryError):
        return "the system refused memory"
    if isinstance(error, RuntimeError) and str(error) == _NO_THREAD:
        return "the system refused to start a thread"
    if isinstance(error, ImportError) and any(words in str(error).lower() for words in _NO_MEMORY_FOR_LIBRARY):
        return f"the system refused memory for a library: {error.name or 'one of its modules'}"
    return ""

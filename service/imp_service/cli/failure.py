"""Failures of commands: reasons, exit statuses, and the error line."""

import sys

MAX_LINE_BYTES = 500

BAD_USAGE = 64
INTERRUPTED = 130
# Reasons that are not bugs of imp. Every other reason ends with 70.
_STATUS = {
    "USAGE": BAD_USAGE,
    "FIELD_INVALID": 64,
    "CONTEXT_TOO_LONG": 64,
    "FEATURE_DISABLED": 64,
    "NOT_SUPPORTED_BY_MODEL": 64,
    "NOT_SUPPORTED_BY_HOST": 69,
    "NO_CANDIDATE": 64,
    "NO_CHAT_TEMPLATE": 64,
    "MODEL_MISSING": 66,
    "IMAGE_UNREADABLE": 66,
    "IMAGE_INVALID": 65,
    "REQUEST_NOT_FOUND": 66,
    "NOT_DRAINED": 69,
    "MODEL_PERMISSION": 77,
    "MODEL_IO": 74,
    "TOKENIZER_INVALID": 65,
    "TEMPLATE_INVALID": 65,
    "TEMPLATE_FAILED": 65,
    "WEIGHTS_CORRUPT": 65,
    "RECORD_INVALID": 65,
    "DEVICE_MISSING": 69,
    "NO_MEMORY": 71,
    "KV_FULL": 71,
    "CANNOT_CREATE": 73,
    "ADDRESS_IN_USE": 75,
    "ADDRESS_PERMISSION": 77,
    "IO_FAILED": 74,
    "CONFIG_PERMISSION": 77,
    "CONFIG_INVALID": 78,
    "OVERRIDE_INVALID": 78,
    "HUB_INVALID": 65,
    "HUB_CORRUPT": 65,
    "HUB_NOT_FOUND": 66,
    "HUB_UNREACHABLE": 69,
    "HUB_PERMISSION": 77,
}
_BUG = 70
# What a person can do on the command line, where the reason alone does not say it.
_ADVICE = {
    "NO_CHAT_TEMPLATE": "imp run and imp call generate continue a text; imp chat needs a model for chats (instruct)",
}
# For errors of a server, by the name of the gRPC code: a newer server may have reasons that are not listed above.
_STATUS_OF_CODE = {
    "CANCELLED": INTERRUPTED,
    "INVALID_ARGUMENT": 64,
    "OUT_OF_RANGE": 64,
    "FAILED_PRECONDITION": 64,
    "DATA_LOSS": 65,
    "NOT_FOUND": 66,
    "UNAVAILABLE": 69,
    "UNIMPLEMENTED": 69,
    "ALREADY_EXISTS": 73,
    "ABORTED": 75,
    "DEADLINE_EXCEEDED": 75,
    "RESOURCE_EXHAUSTED": 75,
    "UNAUTHENTICATED": 77,
    "PERMISSION_DENIED": 77,
}


class CommandError(Exception):
    """An error of a command. Errors of the core and of the settings have the same two attributes."""

    def __init__(self, reason: str, message: str) -> None:
        self.reason = reason
        self.message = message
        super().__init__(f"{reason}: {message}")


def exit_status(reason: str, code: object = None) -> int:
    if isinstance(code, str):
        return _STATUS_OF_CODE.get(code, _BUG)
    if reason in _STATUS:
        return _STATUS[reason]
    return 65 if reason.startswith("MODEL_") else _BUG


def describe(error: Exception) -> tuple[str, str]:
    """The reason and the message of an exception that a command raised."""
    reason, message = getattr(error, "reason", None), getattr(error, "message", None)
    if isinstance(reason, str) and isinstance(message, str):
        from imp_service.api.errors import advised  # imported here: only failures need it

        path = getattr(error, "path", None)  # of the text layer: a field, or a key of the model's file
        text = f"{path}: {message}" if isinstance(path, str) else message
        return reason, advised(reason, text, _ADVICE)
    from imp_service.config.errors import system_refusal  # imported here: only failures need it

    if refusal := system_refusal(error):
        return "NO_MEMORY", refusal
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        return "IO_FAILED", f"{where}{error.strerror or error}"
    import traceback  # imported here: only failures need it

    last = traceback.extract_tb(error.__traceback__)[-1:]
    place = f" at {last[0].filename.rpartition('/')[2]}:{last[0].lineno}" if last else ""
    return "BUG", f"{type(error).__name__}{place}: {error}"


def error_line(reason: str, message: str) -> str:
    """`imp: error: REASON: message`, one line of at most MAX_LINE_BYTES, whatever the message holds."""
    return _line(f"imp: error: {reason}", message)


def warning_line(message: str) -> str:
    """The same for a warning."""
    return _line("imp: warning", message)


def _line(head: str, message: str) -> str:
    text = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in message[:MAX_LINE_BYTES])
    line = f"{head}: {text}".encode()
    if len(line) > MAX_LINE_BYTES - 1:
        line = line[: MAX_LINE_BYTES - 1 - len("…".encode())] + "…".encode()
    # Drops a character that the cut divided.
    return line.decode(errors="ignore")


def report(reason: str, message: str, code: object = None) -> int:
    """Writes the line to stderr; returns the exit status."""
    print(error_line(reason, message), file=sys.stderr, flush=True)
    return exit_status(reason, code)

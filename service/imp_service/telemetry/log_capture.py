"""Redirects messages of libraries, warnings and unhandled exceptions into the log of the server."""

import logging
import sys
import threading
from collections.abc import Callable
from typing import Any

from imp_service.telemetry.log import Log


class CaptureHandler(logging.Handler):
    """Writes records of the logging module as log lines; the event is the name of the logger."""

    def __init__(self, log: Log) -> None:
        super().__init__(logging.WARNING)
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        """Writes a record. If it cannot be formatted, writes the name of the error."""
        try:
            message = record.getMessage()
        except Exception as reason:
            message = f"a message that cannot be formatted: {type(reason).__name__}"
        error = record.exc_info[1] if record.exc_info else None
        if error is not None and _is_lost_connection(error):
            self._log.debug(record.name, message=message)
        elif error is not None:
            self._log.raised(record.name, error, about=message)
        elif record.levelno >= logging.ERROR:
            self._log.error(record.name, message=message)
        else:
            self._log.warning(record.name, message=message)


def _is_lost_connection(error: BaseException) -> bool:
    """Whether gRPC could not send because the client had gone, which the access log reports already."""
    kind = type(error)
    return (kind.__module__, kind.__name__) == ("grpc._cython.cygrpc", "ExecuteBatchError")


def capture(log: Log) -> Callable[[], None]:
    """Redirects the process's loggers, warnings and exception hooks; returns a function that restores them."""
    handler = CaptureHandler(log)
    root = logging.getLogger()
    before = (root.handlers[:], sys.unraisablehook, threading.excepthook)
    root.handlers[:] = [handler]
    logging.captureWarnings(True)

    def unraisable(found: Any) -> None:
        log.raised("unraisable", found.exc_value or RuntimeError(str(found.exc_type)))

    def on_thread_error(found: threading.ExceptHookArgs) -> None:
        log.raised("thread", found.exc_value or RuntimeError(str(found.exc_type)))

    sys.unraisablehook, threading.excepthook = unraisable, on_thread_error

    def restore() -> None:
        logging.captureWarnings(False)
        root.handlers[:], sys.unraisablehook, threading.excepthook = before

    return restore

"""A parent (`imp serve --survive`): loads the model once, and forks an engine process whenever the front asks.

It has one thread when it forks, and neither gRPC, nor an event loop, nor an engine has begun. So the engine process has
the weights in memory, and nothing of another thread.
"""

import contextlib
import ctypes
import errno
import gc
import json
import os
import signal
import socket
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, NoReturn

from imp_service.cli.failure import describe, report
from imp_service.cli.serve.front_link import Inherited
from imp_service.cli.serve.signals import HARMLESS

if TYPE_CHECKING:
    from imp_service.config import Config
    from imp_service.generation import ModelRuntime
    from imp_service.serving.make_model import MakeModel

PR_SET_PDEATHSIG = 1
REQUEST_BYTES = 16
# What a server imports once it runs.
SERVER_MODULES = (
    "imp_service.server.service",
    "imp_service.http_api.listener",
    "imp_service.cli.serve.startup_message",
    "imp_service.client.environment",
    "grpc_reflection.v1alpha.reflection",
    "encodings.idna",
)
# While it is "false", the tokenizer library starts no threads. Those that it starts later are the engine process's.
PARALLELISM = "TOKENIZERS_PARALLELISM"
# A thread that has ended is gone within this time.
ENDS_WITHIN = 1.0


@dataclass(frozen=True, slots=True)
class Forked:
    """What an engine process gets from its parent: the front's descriptors, the settings, and the loaded model."""

    inherited: Inherited
    config: "Config"
    make_model: "MakeModel"


def run_parent(control: int, config: "Config", words: Sequence[str]) -> Forked:
    """Returns in each engine process. The parent ends with the front. Raises the errors of a load.

    `words` are those of the command line of an engine process.
    """
    front = socket.socket(fileno=control)
    front.set_inheritable(False)
    _set_signals()
    model = _load(config)
    from imp_service.serving.make_model import make_model_from

    refused = "" if model.core.rest() else "the model's device does not outlive a fork"
    is_final = bool(refused)
    gc.freeze()
    front.send(json.dumps({"ready": True}).encode())
    while True:
        message, descriptors, _, _ = socket.recv_fds(front, REQUEST_BYTES, 2)
        if not message:
            os._exit(0)
        inherited = Inherited(*descriptors)
        refused = refused or _refusal()
        pid = None
        if not refused:
            try:
                if (pid := _fork()) == 0:
                    front.close()
                    return Forked(inherited, config, make_model_from(model))
            except OSError as error:
                refused = error.strerror or str(error)
        front.send(json.dumps({"pid": pid} if pid else {"refused": refused, "is_final": is_final}).encode())
        if refused:
            _become_engine(inherited, words)
        for descriptor in descriptors:
            os.close(descriptor)


def _set_signals() -> None:
    """Ctrl-C is the front's, SIGTERM ends a load. A forked engine process sets its own."""
    for number in (*HARMLESS, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    for number in (signal.SIGTERM, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    library = ctypes.CDLL(None)
    if hasattr(library, "prctl"):
        library.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)  # also of a stopped parent; no child inherits it


def _load(config: "Config") -> "ModelRuntime":
    """The model, whose engine has not begun. Meanwhile it imports the server."""
    from imp_service.cli.preflight import require_threads, silence_grpc
    from imp_service.cli.progress import LoadingLine
    from imp_service.core.background_load import STOP_SECONDS, WeightsLoad
    from imp_service.generation.draft_vocabulary import match_vocabularies
    from imp_service.generation.loading import finish_load

    require_threads(config.settings)
    silence_grpc()
    line = LoadingLine()
    weights = WeightsLoad(config, match=match_vocabularies)
    try:
        for name in SERVER_MODULES:
            import_module(name)
        with _set_in_environment(PARALLELISM, "false"):
            model = finish_load(weights, line, starts=False)
            model.prepare_chats()
    except Exception as error:
        if not weights.stop(STOP_SECONDS):  # a read may hang
            line.clear()
            status = report(*describe(error))
            sys.stderr.flush()
            os._exit(status)
        raise
    finally:
        line.clear()
    return model


@contextlib.contextmanager
def _set_in_environment(name: str, value: str) -> Iterator[None]:
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        del os.environ[name]
        if before is not None:
            os.environ[name] = before


def _refusal() -> str:
    """Why this process must not fork; empty if it may."""
    deadline = time.monotonic() + ENDS_WITHIN
    while (n_threads := len(list(Path("/proc/self/task").iterdir()))) > 1:
        if time.monotonic() > deadline:
            return f"{n_threads} threads run, expected one"
        time.sleep(0.001)
    return ""


def _fork() -> int:
    """Forks an engine process that is the front's child: the process between ends, and the front is a subreaper.

    Its number; 0 in the engine process. Raises OSError.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    reader, writer = os.pipe()
    with os.fdopen(reader, "rb") as answers, os.fdopen(writer, "wb", buffering=0) as answer:
        between = os.fork()
        if between == 0:
            if _ends_between(answer):
                os._exit(0)
            return 0
        os.waitpid(between, 0)
        answer.close()
        number = int(answers.read() or -errno.ECHILD)
    if number < 0:
        raise OSError(-number, os.strerror(-number))
    return number


def _ends_between(answer: BinaryIO) -> bool:
    """Forks, and answers with the number of the engine process, or the error below zero. False in that process."""
    try:
        number = os.fork()
    except OSError as error:
        number = -(error.errno or errno.EAGAIN)
    if number:
        answer.write(str(number).encode())
    return number != 0


def _become_engine(inherited: Inherited, words: Sequence[str]) -> NoReturn:
    """Starts an engine process in place of this one: it loads the model again."""
    for descriptor in (inherited.listening, inherited.link):
        os.set_inheritable(descriptor, True)
    os.execv(sys.executable, [sys.executable, "-P", "-m", "imp_service", "serve", *inherited.words, *words])

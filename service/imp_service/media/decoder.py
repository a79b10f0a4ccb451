"""The process that decodes images: started when an image needs it, with limits of time and memory for each image."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import importlib.util
import math
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from imp_service.config.derived import decoding_bytes
from imp_service.media.errors import ImagesRefused, PillowMissing
from imp_service.media.formats import Header
from imp_service.media.sizes import Cut
from imp_service.process.worker_process import ENDED, OUT_OF_TIME, WorkerAnswer, WorkerNotStarted, WorkerProcess
from imp_service.text.errors import FieldInvalid

# A machine that is busy may give the worker half of a processor.
_WALL_FACTOR = 2
# After deaths for two images in a row no image is decoded for this long.
_REFUSED_SECONDS = 10.0
_DEATHS = 2
_LEAST_PILLOW = 12
_WORKER = str(Path(__file__).with_name("worker.py"))
_WHY = {
    "damaged": "is damaged, or in a form of {format} that is not supported",
    "differs": "is a damaged {format}: its header and its pixels have different sizes",
    "memory": "takes more memory to decode than an image of its size may",
}


@dataclass(frozen=True, slots=True)
class ImageReading:
    """How the bytes of one image become tiles; all of it decides their pixels."""

    header: Header
    cut: Cut
    resample: int


@dataclass(frozen=True, slots=True)
class Tiles:
    """Pixels of equal tiles: rows from the top, three bytes a pixel, one tile after the other."""

    n_tiles: int
    width: int
    height: int
    data: bytes


def check_pillow() -> None:
    """Raises `PillowMissing` if Pillow is not there, or older than the reference processors need."""
    expected = f"images need Pillow {_LEAST_PILLOW} or newer: pip install 'pillow>={_LEAST_PILLOW}'"
    try:
        version = importlib.metadata.version("pillow")
    except importlib.metadata.PackageNotFoundError:
        raise PillowMissing("pillow", f"is not installed; {expected}") from None
    if int(version.split(".")[0]) < _LEAST_PILLOW:
        raise PillowMissing("pillow", f"is {version}; {expected}")


class ImageDecoder:
    """One worker; callers wait for each other. Any thread may call."""

    def __init__(self, *, decode_ms: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._decode_ms = decode_ms
        self._clock = clock
        self._worker = WorkerProcess("decode images in", _command)
        self._lock = threading.Lock()
        self._n_deaths = 0  # in a row
        self._died_for = b""
        self._refused_until = 0.0

    def start(self) -> None:
        """Starts the worker, so that it is ready when it is needed. Does not wait for it."""
        with suppress(WorkerNotStarted, MemoryError):  # the first use says why
            self._worker.start()

    def libraries(self, path: str) -> Mapping[str, str]:
        """The versions of Pillow and its libraries. Starts the worker if none runs. Raises `ImagesRefused`."""
        with _refusing(path):
            found: Mapping[str, str] = self._worker.greeting()["libraries"]
        return found

    def decode(self, path: str, digest: bytes, data: bytes, reading: ImageReading) -> Tiles:
        """Raises `FieldInvalid` at `path` for a bad image, and `ImagesRefused` if no worker stays alive.

        Returns within twice the time limit, however slow the machine is; within four times if a second worker tries.
        """
        self._check_refusal(path)
        cpu_seconds = self._decode_ms / 1000
        wall_seconds = _WALL_FACTOR * cpu_seconds
        size = (reading.header.width, reading.header.height)
        request = {
            **dataclasses.asdict(reading.cut),
            "format": reading.header.format,
            "size": size,
            "orientation": reading.header.orientation,
            "resample": reading.resample,
            "cpu_seconds": cpu_seconds,
            "wall_seconds": wall_seconds,
            # Beyond what the worker has mapped when it starts.
            "memory_bytes": decoding_bytes(max(map(math.prod, (size, *reading.cut.steps))), len(data)),
        }
        with _refusing(path):
            answer = self._worker.ask(request, data, wall_seconds=wall_seconds)
        if not isinstance(answer, WorkerAnswer):
            raise self._after_end(path, digest, answer)
        with self._lock:
            self._n_deaths = 0
        if error := answer.head["error"]:
            raise FieldInvalid(path, _WHY[error].format(format=reading.header.format))
        return Tiles(reading.cut.n_tiles, *reading.cut.tile, answer.body)

    def close(self) -> None:
        """Ends the worker. A call of decode() that waits for it raises `ImagesRefused`."""
        self._worker.close()

    def _check_refusal(self, path: str) -> None:
        left = self._refused_until - self._clock()
        if left > 0:
            raise ImagesRefused(path, f"the process that decodes images died twice; try again in {left:.0f} s")

    def _after_end(self, path: str, digest: bytes, status: int) -> Exception:
        """The error for a worker that ended within a request, whose image may be the cause."""
        if self._worker.is_closed:
            return ImagesRefused(path, "not decoded: the model is closed")
        if status in OUT_OF_TIME:
            return FieldInvalid(path, f"takes more than {self._decode_ms} ms to decode")
        self._count_death(digest)
        if status == -signal.SIGKILL:
            return ImagesRefused(path, "the process that decodes images was killed twice while it had this one")
        if status == ENDED:
            return FieldInvalid(path, f"takes more than {self._decode_ms} ms or too much memory to decode")
        return FieldInvalid(path, f"cannot be decoded: the process that tried ended with status {status}")

    def _count_death(self, digest: bytes) -> None:
        with self._lock:
            if self._n_deaths == 0 or digest != self._died_for:
                self._n_deaths += 1
            self._died_for = digest
            if self._n_deaths == _DEATHS:
                self._n_deaths = 0
                self._refused_until = self._clock() + _REFUSED_SECONDS


@contextmanager
def _refusing(path: str) -> Iterator[None]:
    """Raises `ImagesRefused` if there is no worker, and none can be made."""
    try:
        yield
    except WorkerNotStarted as error:
        raise ImagesRefused(path, f"the process that decodes images does not start: {error}") from None
    except MemoryError as error:
        raise ImagesRefused(path, str(error)) from None


def _command() -> Sequence[str]:
    check_pillow()
    spec = importlib.util.find_spec("PIL")
    assert spec is not None and spec.origin is not None  # narrows
    return (_WORKER, str(Path(spec.origin).parent.parent))

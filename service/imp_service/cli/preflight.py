"""Steps before libraries are imported: checks of memory and threads, and environment variables."""

import os
import sys
import time
from typing import TYPE_CHECKING

from imp_service.cli.failure import CommandError

if TYPE_CHECKING:
    from imp_service.config import Settings


# For NumPy: its linear algebra library ends the process if it cannot map its buffer.
NUMPY_ADDRESS_SPACE_BYTES = 96 * 1024**2


def require_address_space(n_bytes: int) -> None:
    """Raises NO_MEMORY if the system does not grant so much address space. Uses no memory."""
    import mmap  # imported here: few commands need it

    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0)
    try:
        mmap.mmap(-1, n_bytes, flags=flags).close()
    except (OSError, MemoryError):
        message = f"memory: {n_bytes // 1024**2} MiB of addresses needed for libraries, refused by the system"
        raise CommandError("NO_MEMORY", message) from None


# Threads of gRPC (up to 16 on a large machine), and those that load, watch and log; doubled as a margin.
OTHER_THREADS = 32
# A thread that has not run within this time got no memory for its start.
_ENDS_WITHIN = 5.0  # seconds


def require_threads(settings: "Settings") -> None:
    """Starts and ends as many threads as the server needs. Raises NO_MEMORY if the system refuses one."""
    n_compute = settings.device.threads
    assert isinstance(n_compute, int)  # narrows: it was resolved
    n_needed = n_compute + settings.text.threads + OTHER_THREADS
    n_available = _count_startable(n_needed)
    if n_available < n_needed:
        raise CommandError(
            "NO_MEMORY", f"threads: {n_needed} needed, {n_available} available: the system refused to start more"
        )


def _count_startable(n: int) -> int:
    """How many of n threads the system lets run at the same time."""
    # Not threading.Thread: its start() never returns if the new thread gets no memory for its first steps.
    import _thread

    gate = _thread.allocate_lock()
    ended: list[_thread.LockType] = []

    def occupy(end: _thread.LockType) -> None:
        with gate:
            end.release()

    hook, sys.unraisablehook = sys.unraisablehook, lambda _: None  # called for a thread without memory
    try:
        with gate:
            for _ in range(n):
                end = _thread.allocate_lock()
                end.acquire()
                _thread.start_new_thread(occupy, (end,))
                ended.append(end)
    except (RuntimeError, MemoryError):  # how Python reports that it cannot start a thread
        pass
    deadline = time.monotonic() + _ENDS_WITHIN
    n_started = sum(end.acquire(timeout=max(deadline - time.monotonic(), 0)) for end in ended)
    sys.unraisablehook = hook
    return n_started


def silence_grpc() -> None:
    """Turns off what gRPC writes to stderr. Call it before gRPC is imported; a value that the user set stays."""
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")


def limit_openblas() -> None:
    """Keeps NumPy's OpenBLAS from starting a thread for each CPU. Call it before NumPy is imported."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

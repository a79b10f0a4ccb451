"""Checks of memory and threads, and environment variables of libraries: before those libraries are imported."""

import os
import threading
from typing import TYPE_CHECKING

from imp_service.cli.failure import CommandError

if TYPE_CHECKING:
    from imp_service.config import Settings


# Of addresses, for NumPy and its linear algebra: this ends the process by itself where it is refused its buffer.
NUMPY_BYTES = 96 * 1024**2


def require_room(n_bytes: int) -> None:
    """Raises NO_MEMORY where the system does not give so many bytes of addresses. None is used."""
    import mmap  # only here: a command that loads no library does not wait for it

    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0)
    try:
        mmap.mmap(-1, n_bytes, flags=flags).close()
    except (OSError, MemoryError):
        message = f"memory: {n_bytes // 1024**2} MiB of addresses needed for libraries, refused by the system"
        raise CommandError("NO_MEMORY", message) from None


# gRPC's own, up to 16 of them on a large machine, and those that load, watch and write, twice over.
OTHER_THREADS = 32


def require_threads(settings: "Settings") -> None:
    """Starts as many threads as the server will, and lets them go. Raises NO_MEMORY where the system refuses one."""
    n_compute = settings.device.threads
    assert isinstance(n_compute, int)  # narrows: it was resolved
    n_needed = n_compute + settings.text.threads + OTHER_THREADS
    n_available = _alive_at_once(n_needed)
    if n_available < n_needed:
        raise CommandError(
            "NO_MEMORY", f"threads: {n_needed} needed, {n_available} available: the system refused to start more"
        )


def _alive_at_once(n: int) -> int:
    """How many of n threads the system starts beside each other."""
    leave = threading.Event()
    threads: list[threading.Thread] = []
    try:
        for _ in range(n):
            thread = threading.Thread(target=leave.wait, name="imp-probe")
            thread.start()
            threads.append(thread)
    except (RuntimeError, MemoryError):  # how the interpreter says that there is none
        pass
    leave.set()
    for thread in threads:
        thread.join()
    return len(threads)


def quiet_grpc() -> None:
    """Before gRPC is imported: what it would write to stderr is neither bounded nor ours."""
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")


def rest_openblas() -> None:
    """Before NumPy is imported: its library would start a thread for each CPU, and a server never calls it."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

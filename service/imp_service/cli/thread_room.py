"""Whether the system gives a server its threads, asked before any library that aborts where it does not is loaded."""

import threading
from typing import TYPE_CHECKING

from imp_service.cli.failure import CommandError

if TYPE_CHECKING:
    from imp_service.config import Settings

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

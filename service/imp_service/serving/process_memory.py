"""Settings of the process's memory: freed memory goes back to the system, and a crash leaves no core file."""

from __future__ import annotations

import ctypes
import resource

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_ARENA_MAX = -1, -3, -8
# A buffer of this size gets a mapping of its own and goes back to the system when it is freed. Without a fixed value
# glibc raises its threshold up to 32 MiB, and the buffers of large requests leave holes in the heap.
MAPPED_BYTES = 256 * 1024
# The number of heaps that all threads share. Each heap keeps the memory of its busiest moment.
HEAPS = 2


def limit_retained_memory() -> None:
    """Sets thresholds so that freed memory goes back to the system. Call it before threads are started."""
    library = ctypes.CDLL(None)
    if hasattr(library, "mallopt"):
        library.mallopt(M_ARENA_MAX, HEAPS)
        library.mallopt(M_MMAP_THRESHOLD, MAPPED_BYTES)
        library.mallopt(M_TRIM_THRESHOLD, MAPPED_BYTES)


def release_free_memory() -> None:
    """Gives the system every page that is free. Takes milliseconds: for a worker thread."""
    library = ctypes.CDLL(None)
    if hasattr(library, "malloc_trim"):
        library.malloc_trim(0)


def leave_no_core() -> None:
    """Disables core files: the memory of a server holds what its callers sent.

    With a limit of 0 Linux still writes to a core_pattern that is a pipe; with 1 it does not.
    No core file fits into one byte.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_CORE)
    limit = 1 if hard == resource.RLIM_INFINITY or hard >= 1 else 0
    resource.setrlimit(resource.RLIMIT_CORE, (limit, limit))

"""Checks for enough address space before loading a library that would end the process without it."""

from imp_service.cli.failure import CommandError

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

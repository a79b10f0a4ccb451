"""What a pod asks the cluster for: memory from the plan, CPUs from the threads."""

from dataclasses import dataclass

# Of Python, sockets and what the plan rounds; a tidy number besides.
STEP_BYTES = 16 * 1024**2


@dataclass(frozen=True, slots=True)
class Resources:
    """Requests and limits alike: memory that is promised and not there ends the process, not a request."""

    memory_bytes: int
    cpus: int


def memory_quantity(n_bytes: int) -> str:
    """The next multiple of 16 MiB above a memory plan, as Kubernetes writes it: "288Mi"."""
    return f"{(n_bytes // STEP_BYTES + 1) * STEP_BYTES // 1024**2}Mi"


def cpus_for(threads: int) -> int:
    """One more than the compute threads.

    The service's own thread runs beside them: with a quota of `threads` alone the kernel would stop all of them
    together in the middle of a step.
    """
    return threads + 1

"""The resources of a pod: memory from the plan, CPUs from the threads."""

from dataclasses import dataclass

# Margin for Python, sockets and rounding.
STEP_BYTES = 16 * 1024**2


@dataclass(frozen=True, slots=True)
class Resources:
    """Requests equal limits: the kernel ends the process if the node lacks the memory."""

    memory_bytes: int
    cpus: int


def memory_quantity(n_bytes: int) -> str:
    """The next multiple of 16 MiB above a memory plan, as Kubernetes writes it: "288Mi"."""
    return f"{(n_bytes // STEP_BYTES + 1) * STEP_BYTES // 1024**2}Mi"


def cpus_for(threads: int) -> int:
    """One more than the compute threads.

    The thread of the service needs its own CPU: with a quota of `threads`, the kernel would stop all threads in the
    middle of a step.
    """
    return threads + 1

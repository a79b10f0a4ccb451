"""Chooses the CPUs of compute threads and the NUMA nodes of memory; each choice has a reason."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from imp_service.config.config import Config
from imp_service.config.cpus import (
    Cpu,
    allowed_cpus,
    allowed_nodes,
    cores_first,
    n_cores,
    read_topology,
    write_cpu_list,
)
from imp_service.config.errors import ConfigError
from imp_service.config.kinds import AUTO
from imp_service.config.toml import KeyPath

FIRST_TOUCH, INTERLEAVE = "first_touch", "interleave"

# Returns why the system refuses to interleave memory over these nodes; empty if it does not.
Refusal = Callable[[list[int]], str]


@dataclass(frozen=True, slots=True)
class ThreadPlan:
    """A CPU for each thread, or none: then the kernel places the threads."""

    cpus: tuple[int, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    policy: str
    nodes: tuple[int, ...]  # for interleaved pages; empty: pages are placed where they are first written
    reason: str


def plan_threads(threads: int, cpus: Sequence[Cpu]) -> ThreadPlan:
    """Chooses CPUs for the threads.

    Threads are pinned only if they use every core that the process may use. Otherwise two containers with a quota on
    one machine would pin themselves to the same cores.
    """
    available = f"{n_cores(cpus)} core{'s' if n_cores(cpus) != 1 else ''}"
    if n_cores(cpus) < len(cpus):
        available += f" of {len(cpus)} CPUs"
    if threads in (len(cpus), n_cores(cpus)):
        return ThreadPlan(tuple(cores_first(cpus)[:threads]), f"a thread for each of {available}")
    why = "they would share them" if threads > len(cpus) else "others may run on the rest"
    return ThreadPlan((), f"{threads} thread{'s' if threads != 1 else ''} for {available}: {why}")


def plan_memory(wanted: str | None, nodes: Sequence[int], refusal: Refusal) -> MemoryPlan:
    """Chooses the policy for pages of weights and cache. `wanted` is the setting, None for auto.

    Each thread reads a part of every weight, and the part changes from step to step. Interleaved pages use the memory
    channels of all nodes.
    """
    if wanted == FIRST_TOUCH:
        return MemoryPlan(FIRST_TOUCH, (), "")
    if len(nodes) < 2:
        return MemoryPlan(FIRST_TOUCH, (), f"one node for memory, {nodes[0]}")
    if wanted == INTERLEAVE:
        return MemoryPlan(INTERLEAVE, tuple(nodes), "")
    if refused := refusal(list(nodes)):
        return MemoryPlan(FIRST_TOUCH, (), f"nodes {write_cpu_list(nodes)}, the system refuses interleaving: {refused}")
    return MemoryPlan(INTERLEAVE, tuple(nodes), f"threads on nodes {write_cpu_list(nodes)}")


def resolve_cpus(config: Config, root: Path = Path("/")) -> Config:
    """Settings with `device.cpus` resolved, if it is auto; `device.threads` must be resolved.

    Raises ConfigError for CPUs that the process may not use.
    """
    device, allowed = config.settings.device, allowed_cpus()
    assert isinstance(device.threads, int)  # narrows: it was resolved
    if device.cpus is AUTO:
        plan = plan_threads(device.threads, read_topology(allowed, root))
        return config.resolve(("device", "cpus"), plan.cpus, plan.reason)
    if beyond := sorted(set(device.cpus) - set(allowed)):
        found = f"found {write_cpu_list(beyond)}, expected CPUs that this process may use, {write_cpu_list(allowed)}"
        raise ConfigError(_where(config, ("device", "cpus")), found)
    return config


def nodes_of_threads(config: Config, root: Path = Path("/")) -> list[int]:
    """The NUMA nodes of the compute threads that the process may allocate on; `device.cpus` must be resolved."""
    pinned = config.settings.device.cpus
    assert pinned is not AUTO  # narrows
    used = {cpu.node for cpu in read_topology(pinned or allowed_cpus(), root)}
    allowed = allowed_nodes(root)
    return sorted(used & allowed or allowed or used)


def resolve_memory(config: Config, refusal: Refusal, root: Path = Path("/")) -> tuple[Config, tuple[int, ...]]:
    """Settings with `device.numa` resolved, if it is auto, and the nodes that memory is interleaved over.

    Raises ConfigError if the settings ask for interleaving on a single node, or the system refuses it.
    """
    wanted, nodes = config.settings.device.numa, nodes_of_threads(config, root)
    if wanted is AUTO:
        plan = plan_memory(None, nodes, refusal)
        return config.resolve(("device", "numa"), plan.policy, plan.reason), plan.nodes
    plan = plan_memory(wanted, nodes, refusal)
    if plan.policy != wanted:
        raise ConfigError(_where(config, ("device", "numa")), f"found {wanted}, expected {FIRST_TOUCH}: {plan.reason}")
    if plan.nodes and (refused := refusal(list(plan.nodes))):
        found = f"found {wanted}, and the system refuses it for nodes {write_cpu_list(plan.nodes)}: {refused}"
        raise ConfigError(_where(config, ("device", "numa")), found)
    return config, plan.nodes


def _where(config: Config, path: KeyPath) -> str:
    (entry,) = (entry for entry in config.entries() if entry.path == path)
    return entry.origin.where(path)

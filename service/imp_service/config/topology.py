"""The CPUs and NUMA nodes that the process may use: which CPUs share a core, and which node each belongs to."""

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from imp_service.config.cpu_list import parse_cpu_list

CPUS = "sys/devices/system/cpu"
NODES = "sys/devices/system/node"


@dataclass(frozen=True, slots=True)
class Cpu:
    number: int
    core: int  # the lowest number among the CPUs of its core
    node: int


def allowed_cpus() -> list[int]:
    """CPUs that the scheduler lets this process run on."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def allowed_nodes(root: Path = Path("/")) -> set[int]:
    """NUMA nodes that this process may have memory on; none where the kernel does not say."""
    try:
        lines = (root / "proc/self/status").read_text(encoding="ascii", errors="replace").splitlines()
        found = [line.partition(":")[2].strip() for line in lines if line.startswith("Mems_allowed_list:")]
        return {number for text in found for number in parse_cpu_list(text)}
    except (OSError, ValueError):
        return set()


def read_topology(numbers: Iterable[int], root: Path = Path("/")) -> tuple[Cpu, ...]:
    """These CPUs as the kernel's files describe them; where they say nothing, each is a core of node 0."""
    nodes: dict[int, int] = {}
    for folder in (root / NODES).glob("node[0-9]*"):
        for number in _cpu_list(folder / "cpulist"):
            nodes[number] = int(folder.name.removeprefix("node"))
    return tuple(Cpu(number, _core(number, root), nodes.get(number, 0)) for number in sorted(numbers))


def n_cores(cpus: Sequence[Cpu]) -> int:
    return len({cpu.core for cpu in cpus})


def cores_first(cpus: Sequence[Cpu]) -> list[int]:
    """The numbers, one CPU of each core before the second of any."""
    ahead: dict[int, int] = {}
    ranks: list[tuple[int, int]] = []
    for cpu in cpus:
        rank = ahead.get(cpu.core, 0)
        ahead[cpu.core] = rank + 1
        ranks.append((rank, cpu.number))
    return [number for _, number in sorted(ranks)]


def _core(number: int, root: Path) -> int:
    folder = root / CPUS / f"cpu{number}/topology"
    for name in ("core_cpus_list", "thread_siblings_list"):  # the second is the first's older name
        if siblings := _cpu_list(folder / name):
            return min(siblings)
    return number


def _cpu_list(path: Path) -> tuple[int, ...]:
    try:
        return parse_cpu_list(path.read_text(encoding="ascii").strip())
    except (OSError, ValueError):
        return ()

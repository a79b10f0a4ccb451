"""CPUs and NUMA nodes: lists of CPUs as the kernel writes them, and which CPUs share a core or a node."""

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from imp_service.config.kinds import UnfitError, ValueKind
from imp_service.config.toml import read_value

# More than any machine has: bounds the length of a range.
MOST_CPUS = 8192
NONE = "none"

_RANGE = re.compile(r"([0-9]{1,4})(?:-([0-9]{1,4}))?")


def parse_cpu_list(text: str) -> tuple[int, ...]:
    """The numbers in the order of the text. Raises ValueError for an invalid list."""
    numbers: list[int] = []
    for part in text.split(",") if text else ():
        found = _RANGE.fullmatch(part.strip())
        if found is None:
            raise ValueError(text)
        first, last = int(found[1]), int(found[2] or found[1])
        if not first <= last < MOST_CPUS:
            raise ValueError(text)
        numbers.extend(range(first, last + 1))
    return tuple(numbers)


def write_cpu_list(numbers: Sequence[int]) -> str:
    """The shortest text that parse_cpu_list reads as these numbers, in their order."""
    parts: list[str] = []
    begin = 0
    for end in range(1, len(numbers) + 1):
        if end < len(numbers) and numbers[end] == numbers[end - 1] + 1:
            continue
        first, last = numbers[begin], numbers[end - 1]
        parts.append(f"{first}" if first == last else f"{first}-{last}")
        begin = end
    return ",".join(parts)


class CpuList(ValueKind[tuple[int, ...]]):
    """CPUs without repetition; `"none"` is the empty list."""

    expected = f'{NONE}, or a list of CPUs in which each is named once, such as "0-3,8"'
    allowed = f'"{NONE}" or a list such as "0-3,8"'

    def read(self, raw: object) -> tuple[int, ...]:
        if raw == NONE:
            return ()
        try:
            numbers = parse_cpu_list(raw) if isinstance(raw, str) else ()
        except ValueError:
            numbers = ()
        if not numbers or len(set(numbers)) != len(numbers):
            raise UnfitError(self.expected)
        return numbers

    def read_text(self, text: str) -> tuple[int, ...]:
        # A single CPU reads as a number of TOML.
        raw = read_value(text)
        return self.read(text if isinstance(raw, int) else raw)

    def plain(self, value: object) -> object:
        if not isinstance(value, tuple):
            return value
        return write_cpu_list(value) if value else NONE


CPUS = "sys/devices/system/cpu"
NODES = "sys/devices/system/node"


@dataclass(frozen=True, slots=True)
class Cpu:
    number: int
    core: int  # the lowest number among the CPUs of its core
    node: int


def allowed_cpus() -> list[int]:
    """The CPUs that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def allowed_nodes(root: Path = Path("/")) -> set[int]:
    """The NUMA nodes that this process may allocate memory on; empty if the kernel does not list them."""
    try:
        lines = (root / "proc/self/status").read_text(encoding="ascii", errors="replace").splitlines()
        found = [line.partition(":")[2].strip() for line in lines if line.startswith("Mems_allowed_list:")]
        return {number for text in found for number in parse_cpu_list(text)}
    except (OSError, ValueError):
        return set()


def read_topology(numbers: Iterable[int], root: Path = Path("/")) -> tuple[Cpu, ...]:
    """The core and the node of each CPU, from the kernel's files. Without these files, each CPU is a core of node 0."""
    nodes: dict[int, int] = {}
    for folder in (root / NODES).glob("node[0-9]*"):
        for number in _cpu_list(folder / "cpulist"):
            nodes[number] = int(folder.name.removeprefix("node"))
    return tuple(Cpu(number, _core(number, root), nodes.get(number, 0)) for number in sorted(numbers))


def n_cores(cpus: Sequence[Cpu]) -> int:
    return len({cpu.core for cpu in cpus})


def cores_first(cpus: Sequence[Cpu]) -> list[int]:
    """The CPU numbers, ordered so that every core comes once before any comes twice."""
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

"""The CPUs and the memory that affinity and control groups grant this process, each with the reason."""

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from imp_service.config.config import Config
from imp_service.config.cpus import Cpu, allowed_cpus, n_cores, read_topology
from imp_service.config.kinds import AUTO

# Control groups of version 1 write "no limit" as the largest page-aligned integer.
_NO_LIMIT_BYTES = 2**62
# Lines of cpu.stat, of both versions of control groups, and their unit in seconds.
_THROTTLED = {"throttled_usec": 1e-6, "throttled_time": 1e-9}


@dataclass(frozen=True, slots=True)
class CpuLimit:
    threads: int
    reason: str


@dataclass(frozen=True, slots=True)
class MemoryLimit:
    # None: no limit is known.
    limit_bytes: int | None
    reason: str


def cpu_limit(cpus: Sequence[Cpu], root: Path = Path("/")) -> CpuLimit:
    """Threads for these usable CPUs under the quota of the process's control groups.

    One thread for each core: a second one shares its arithmetic units and bandwidth. A quota is rounded down: the
    kernel would stop all threads in the middle of a step if they used more CPU time.
    """
    threads = n_cores(cpus)
    reason = f"affinity: {len(cpus)} CPU{'s' if len(cpus) != 1 else ''}"
    if threads < len(cpus):
        reason += f" of {threads} core{'s' if threads != 1 else ''}"
    quotas = list(_quotas(root))
    if quotas:
        quota, source = min(quotas)
        if quota < threads:
            threads, reason = max(1, int(quota)), f"{source} {float(quota):g}"
    return CpuLimit(threads, f"{reason} -> {threads} thread{'s' if threads != 1 else ''}")


def memory_limit(root: Path = Path("/")) -> MemoryLimit:
    """The least of the machine's memory, the limits of the control groups, and what RLIMIT_AS leaves."""
    limits = list(_memory_limits(root))
    if not limits:
        return MemoryLimit(None, "no limit known")
    limit_bytes, source = min(limits)
    return MemoryLimit(limit_bytes, f"{source} {limit_bytes / 1024**3:.2f} GiB")


def throttled_seconds(root: Path = Path("/")) -> float:
    """The seconds, summed over processors, for which a quota has held back the process's control groups so far."""
    return max(_throttled(root), default=0.0)


def waiting_seconds(pid: int, root: Path = Path("/")) -> dict[str, float]:
    """The seconds for which each thread of a process could have run so far, but had no processor."""
    found = {}
    for folder in (root / f"proc/{pid}/task").glob("*"):
        _, waiting, *_ = (*_read(folder / "schedstat").split(), "", "")
        if waiting.isdigit():
            found[folder.name] = int(waiting) * 1e-9
    return found


def n_killed_for_memory(root: Path = Path("/")) -> int:
    """How many processes the kernel has killed for memory so far: of the process's control group, or of the machine."""
    counters = [group / name for group in _groups(root, "memory") for name in ("memory.events", "memory.oom_control")]
    for counter in (*counters, root / "proc/vmstat"):
        for line in _read(counter).splitlines():
            name, _, number = line.partition(" ")
            if name == "oom_kill" and number.isdigit():
                return int(number)
    return 0


def resolve_threads(config: Config, root: Path = Path("/")) -> Config:
    """Settings with `device.threads` resolved, if it is auto."""
    device = config.settings.device
    if device.threads is not AUTO:
        return config
    if isinstance(device.cpus, tuple) and device.cpus:
        return config.resolve(("device", "threads"), len(device.cpus), "one for each of device.cpus")
    limit = cpu_limit(read_topology(allowed_cpus(), root), root)
    return config.resolve(("device", "threads"), limit.threads, limit.reason)


def _quotas(root: Path) -> Iterator[tuple[Fraction, str]]:
    """CPU quotas, in CPUs, of every group from the process's own up to the root."""
    for group in _groups(root, "cpu"):
        parts = _read(group / "cpu.max").split()
        if len(parts) == 2 and parts[0].isdigit() and parts[1].isdigit() and int(parts[1]) > 0:
            yield Fraction(int(parts[0]), int(parts[1])), "cpu.max"
        quota, period = _read(group / "cpu.cfs_quota_us"), _read(group / "cpu.cfs_period_us")
        if quota.isdigit() and period.isdigit() and int(period) > 0:
            yield Fraction(int(quota), int(period)), "cpu.cfs_quota_us"


def _throttled(root: Path) -> Iterator[float]:
    for group in _groups(root, "cpu"):
        for line in _read(group / "cpu.stat").splitlines():
            name, _, number = line.partition(" ")
            if name in _THROTTLED and number.isdigit():
                yield int(number) * _THROTTLED[name]


def _memory_limits(root: Path) -> Iterator[tuple[int, str]]:
    for line in _read(root / "proc/meminfo").splitlines():
        name, _, rest = line.partition(":")
        if name == "MemTotal":
            yield int(rest.split()[0]) * 1024, "MemTotal"
    for group in _groups(root, "memory"):
        for name in ("memory.max", "memory.limit_in_bytes"):
            text = _read(group / name)
            if text.isdigit() and int(text) < _NO_LIMIT_BYTES:
                yield int(text), name
    yield from _address_space(root)


def _address_space(root: Path) -> Iterator[tuple[int, str]]:
    """The address space that RLIMIT_AS leaves beyond what the process has mapped."""
    found = re.search(r"^Max address space +(\d+) ", _read(root / "proc/self/limits"), re.MULTILINE)
    sizes = _read(root / "proc/self/statm").split()
    if found is not None and sizes:
        yield max(0, int(found[1]) - int(sizes[0]) * os.sysconf("SC_PAGE_SIZE")), "RLIMIT_AS"


def _groups(root: Path, controller: str) -> Iterator[Path]:
    """Folders of the process's control groups that may limit `controller`, from the innermost outwards.

    A container often sees its own group mounted as the root while /proc/self/cgroup names the path outside: folders
    that do not exist are skipped, the root of the mount is always included.
    """
    mount = root / "sys/fs/cgroup"
    for line in _read(root / "proc/self/cgroup").splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if controllers == "":
            tops = [mount, mount / "unified"]
        elif controller in controllers.split(","):
            tops = [mount / controllers, mount / controller]
        else:
            continue
        for top in tops:
            inner = top / path.lstrip("/")
            yield inner
            yield from (parent for parent in inner.parents if parent.is_relative_to(top))


def _read(path: Path) -> str:
    """The text of a control file; empty if it does not exist: each kernel has only some of them."""
    try:
        return path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""

"""CPUs and memory within a container's limits, read from fake cgroup files."""

import os
from pathlib import Path

import pytest

from imp_service.config.cpus import Cpu
from imp_service.config.machine import cpu_limit, memory_limit, n_killed_for_memory

V2 = {"proc/self/cgroup": "0::/\n"}
V1 = {"proc/self/cgroup": "12:memory:/docker/7\n4:cpu,cpuacct:/docker/7\n1:name=systemd:/docker/7\n"}
V1_CPU = "sys/fs/cgroup/cpu,cpuacct"

# Files, CPUs in the affinity mask, threads, reason.
CPUS = {
    "nothing": ({}, 8, 8, "affinity: 8 CPUs -> 8 threads"),
    "one CPU": ({}, 1, 1, "affinity: 1 CPU -> 1 thread"),
    "v2 unlimited": (V2 | {"sys/fs/cgroup/cpu.max": "max 100000\n"}, 8, 8, "affinity: 8 CPUs -> 8 threads"),
    "v2 quota": (V2 | {"sys/fs/cgroup/cpu.max": "150000 100000\n"}, 8, 1, "cpu.max 1.5 -> 1 thread"),
    "v2 below one": (V2 | {"sys/fs/cgroup/cpu.max": "20000 100000\n"}, 8, 1, "cpu.max 0.2 -> 1 thread"),
    "v2 rounded down": (V2 | {"sys/fs/cgroup/cpu.max": "765000 100000\n"}, 48, 7, "cpu.max 7.65 -> 7 threads"),
    "v2 other period": (V2 | {"sys/fs/cgroup/cpu.max": "100000 25000\n"}, 8, 4, "cpu.max 4 -> 4 threads"),
    "v2 above affinity": (V2 | {"sys/fs/cgroup/cpu.max": "800000 100000\n"}, 2, 2, "affinity: 2 CPUs -> 2 threads"),
    "v2 nested": (
        {
            "proc/self/cgroup": "0::/kubepods/pod/inner\n",
            "sys/fs/cgroup/kubepods/cpu.max": "400000 100000\n",
            "sys/fs/cgroup/kubepods/pod/cpu.max": "250000 100000\n",
            "sys/fs/cgroup/kubepods/pod/inner/cpu.max": "max 100000\n",
        },
        16,
        2,
        "cpu.max 2.5 -> 2 threads",
    ),
    "v2 named from outside": (
        {"proc/self/cgroup": "0::/docker/7\n", "sys/fs/cgroup/cpu.max": "300000 100000\n"},
        8,
        3,
        "cpu.max 3 -> 3 threads",
    ),
    "v1 unlimited": (
        V1 | {f"{V1_CPU}/cpu.cfs_quota_us": "-1\n", f"{V1_CPU}/cpu.cfs_period_us": "100000\n"},
        4,
        4,
        "affinity: 4 CPUs -> 4 threads",
    ),
    "v1 quota": (
        V1 | {f"{V1_CPU}/docker/7/cpu.cfs_quota_us": "350000\n", f"{V1_CPU}/docker/7/cpu.cfs_period_us": "100000\n"},
        8,
        3,
        "cpu.cfs_quota_us 3.5 -> 3 threads",
    ),
    "v1 under another mount": (
        V1 | {"sys/fs/cgroup/cpu/cpu.cfs_quota_us": "200000\n", "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n"},
        8,
        2,
        "cpu.cfs_quota_us 2 -> 2 threads",
    ),
    "hybrid": (
        {
            "proc/self/cgroup": "3:cpu:/\n0::/\n",
            "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "250000\n",
            "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
            "sys/fs/cgroup/unified/cpu.max": "max 100000\n",
        },
        8,
        2,
        "cpu.cfs_quota_us 2.5 -> 2 threads",
    ),
    "garbage": (V2 | {"sys/fs/cgroup/cpu.max": "lots\n"}, 8, 8, "affinity: 8 CPUs -> 8 threads"),
    "no period": (V2 | {"sys/fs/cgroup/cpu.max": "100000 0\n"}, 8, 8, "affinity: 8 CPUs -> 8 threads"),
}


def _machine(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def _cores(count: int) -> list[Cpu]:
    return [Cpu(number, core=number, node=0) for number in range(count)]


@pytest.mark.parametrize("case", CPUS)
def test_cfg_12_threads_follow_affinity_and_quota(case: str, tmp_path: Path):
    files, cpus, threads, reason = CPUS[case]
    limit = cpu_limit(_cores(cpus), _machine(tmp_path, files))
    assert (limit.threads, limit.reason) == (threads, reason)


def test_y17_half_a_cpu_has_one_thread(tmp_path: Path):
    limit = cpu_limit(_cores(8), _machine(tmp_path, V2 | {"sys/fs/cgroup/cpu.max": "50000 100000\n"}))
    assert (limit.threads, limit.reason) == (1, "cpu.max 0.5 -> 1 thread")


MEMINFO = {"proc/meminfo": "MemTotal:       33554432 kB\nMemFree:         1000 kB\n"}
V1_MEMORY = "sys/fs/cgroup/memory"
GIB = 1024**3
PAGE = os.sysconf("SC_PAGE_SIZE")
AS_LIMIT = "Limit              Soft Limit  Hard Limit  Units\nMax address space  {}          unlimited   bytes\n"

MEMORY = {
    "nothing": ({}, None, "no limit known"),
    "machine": (MEMINFO, 32 * GIB, "MemTotal 32.00 GiB"),
    "v2 unlimited": (MEMINFO | V2 | {"sys/fs/cgroup/memory.max": "max\n"}, 32 * GIB, "MemTotal 32.00 GiB"),
    "v2": (MEMINFO | V2 | {"sys/fs/cgroup/memory.max": f"{2 * GIB}\n"}, 2 * GIB, "memory.max 2.00 GiB"),
    "v2 above the machine": (
        MEMINFO | V2 | {"sys/fs/cgroup/memory.max": f"{64 * GIB}\n"},
        32 * GIB,
        "MemTotal 32.00 GiB",
    ),
    "v1": (
        MEMINFO | V1 | {f"{V1_MEMORY}/docker/7/memory.limit_in_bytes": f"{3 * GIB}\n"},
        3 * GIB,
        "memory.limit_in_bytes 3.00 GiB",
    ),
    "addresses": (
        MEMINFO | {"proc/self/limits": AS_LIMIT.format(3 * GIB), "proc/self/statm": f"{GIB // PAGE} 1 1 1 0 1 0\n"},
        2 * GIB,
        "RLIMIT_AS 2.00 GiB",
    ),
    "addresses unlimited": (
        MEMINFO | {"proc/self/limits": AS_LIMIT.format("unlimited"), "proc/self/statm": "1 1 1 1 0 1 0\n"},
        32 * GIB,
        "MemTotal 32.00 GiB",
    ),
    "v1 unlimited": (
        V1 | {f"{V1_MEMORY}/docker/7/memory.limit_in_bytes": "9223372036854771712\n"},
        None,
        "no limit known",
    ),
}


@pytest.mark.parametrize("case", MEMORY)
def test_cfg_12_memory_follows_the_container(case: str, tmp_path: Path):
    files, limit_bytes, reason = MEMORY[case]
    limit = memory_limit(_machine(tmp_path, files))
    assert (limit.limit_bytes, limit.reason) == (limit_bytes, reason)


@pytest.mark.parametrize(
    ("quota", "threads", "reason"),
    [
        ("max", 4, "affinity: 8 CPUs of 4 cores -> 4 threads"),
        ("600000", 4, "affinity: 8 CPUs of 4 cores -> 4 threads"),
        ("300000", 3, "cpu.max 3 -> 3 threads"),
    ],
)
def test_cfg_12_a_core_has_one_thread(quota: str, threads: int, reason: str, tmp_path: Path):
    cpus = [Cpu(number, core=number % 4, node=0) for number in range(8)]
    limit = cpu_limit(cpus, _machine(tmp_path, V2 | {"sys/fs/cgroup/cpu.max": f"{quota} 100000\n"}))
    assert (limit.threads, limit.reason) == (threads, reason)


VMSTAT = {"proc/vmstat": "pgfault 77\noom_kill 9\n"}
KILLED = {
    "nothing": ({}, 0),
    "v2": (VMSTAT | V2 | {"sys/fs/cgroup/memory.events": "low 0\nmax 5\noom 4\noom_kill 3\noom_group_kill 0\n"}, 3),
    "v2 own group": (
        {
            "proc/self/cgroup": "0::/slice/imp\n",
            "sys/fs/cgroup/slice/memory.events": "oom_kill 8\n",
            "sys/fs/cgroup/slice/imp/memory.events": "oom_kill 2\n",
        },
        2,
    ),
    "v1": (V1 | VMSTAT | {f"{V1_MEMORY}/docker/7/memory.oom_control": "oom_kill_disable 0\noom_kill 1\n"}, 1),
    "the machine's": (V2 | VMSTAT, 9),
    "garbage": (V2 | VMSTAT | {"sys/fs/cgroup/memory.events": "oom_kill many\n"}, 9),
}


@pytest.mark.parametrize("case", KILLED)
def test_iso_5_c11_the_kills_for_memory_are_those_of_the_own_group_or_of_the_machine(case: str, tmp_path: Path) -> None:
    files, n_killed = KILLED[case]
    assert n_killed_for_memory(_machine(tmp_path, files)) == n_killed

"""Checks of the machine: Python, the extension, CPUs, threads, memory and the GPU."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import imp_service
from imp_service.cli.doctor.check import Check, blocked_by, run_check
from imp_service.cli.version import installed_distributions

if TYPE_CHECKING:
    from imp_service.config import Config

OLDEST_PYTHON = (3, 11)
HUGE_PAGES = "sys/kernel/mm/transparent_hugepage/enabled"


def check_python(version: tuple[int, ...]) -> Check:
    found = ".".join(map(str, version))
    if version < OLDEST_PYTHON:
        return Check("python", "blocked", f"{found}, expected {'.'.join(map(str, OLDEST_PYTHON))} or newer")
    return Check("python", "ok", f"{found} at {sys.executable}")


def check_package() -> Check:
    from importlib.metadata import version

    here = f"imp {imp_service.__version__} in {Path(imp_service.__file__).parents[1]}"
    names = installed_distributions()
    if not names:
        return Check("package", "ok", f"{here}, not installed by pip")
    if len(names) > 1:
        text = f"{' and '.join(names)} are both installed and share their files: uninstall both, then install one"
        return Check("package", "warning", text)
    (name,) = names
    if (installed := version(name)) != imp_service.__version__:
        return Check("package", "warning", f"{here}, but pip installed {name} {installed}: install it again")
    return Check("package", "ok", f"{here}, installed as {name}")


def check_extension() -> Check:
    try:
        from imp_service.core.installation import backends
    except ImportError as error:
        return Check("extension", "blocked", f"{error}: the C++ part is missing or not for this Python")
    return Check("extension", "ok", f"the C++ part loads; backends: {', '.join(backends())}")


def check_cpu(config: "Config | None") -> Check:
    from imp_service.config import AUTO
    from imp_service.core.isa import isa_name, missing_isa

    here = isa_name()
    if config is not None and config.settings.device.isa is not AUTO:
        wanted = str(config.settings.device.isa)
        if missing := missing_isa(wanted):
            return Check("cpu", "blocked", f"device.isa is {wanted}, this CPU lacks {missing}; it has {here}")
        return Check("cpu", "ok", f"device.isa is {wanted}; this CPU has {here}")
    if here == isa_name("generic"):
        return Check("cpu", "warning", f"{here}: no AVX2: kernels are slow")
    return Check("cpu", "ok", here)


def check_threads(config: "Config | None", root: Path) -> Check:
    from imp_service.config.cpus import allowed_cpus, read_topology
    from imp_service.config.machine import cpu_limit

    limit = cpu_limit(read_topology(allowed_cpus(), root), root)
    asked = None if config is None else config.settings.device.threads
    if isinstance(asked, int):
        if asked > limit.threads:
            text = f"device.threads is {asked}, more than there are ({limit.reason}): they will compete for CPUs"
            return Check("threads", "warning", text)
        return Check("threads", "ok", f"device.threads is {asked}; auto would be {limit.threads} ({limit.reason})")
    return Check("threads", "ok", f"{limit.threads} ({limit.reason})")


def check_placement(config: "Config | None", root: Path) -> list[Check]:
    """Checks the CPUs of threads and the NUMA nodes of memory."""
    from imp_service.config import AUTO, Config
    from imp_service.config.config import build
    from imp_service.config.machine import resolve_threads
    from imp_service.config.placement import nodes_of_threads, resolve_cpus
    from imp_service.core.device import place_memory

    decided = resolve_threads(config or Config(build({}), None, {}), root)

    def cpus() -> Check:
        nonlocal decided
        decided = resolve_cpus(decided, root)
        return Check("cpus", "ok", f"{_cpus_here(root)}; {_decision(decided, 'device.cpus')}")

    def numa() -> Check:
        placed, nodes = place_memory(decided, root)
        refused = not nodes and decided.settings.device.numa is AUTO and len(nodes_of_threads(decided, root)) > 1
        return Check("numa", "warning" if refused else "ok", _decision(placed, "device.numa"))

    found = [run_check("cpus", cpus)]
    return [*found, run_check("numa", numa)] if found[0].status == "ok" else found


def check_tuning(config: "Config | None", root: Path) -> Check:
    from imp_service.config.machine import resolve_threads
    from imp_service.core.tuning_file import tuning_here

    if config is None or config.settings.device.tuning is None:
        return Check("tuning", "ok", "none: device.tuning is not set; imp kernels lists the order of preference")
    preferences, remark = tuning_here(resolve_threads(config, root).settings)
    types = ", ".join(dict.fromkeys(weight for weight, _, _ in preferences)) or "no weight type"
    if remark:
        return Check("tuning", "warning", remark)
    return Check("tuning", "ok", f"{config.settings.device.tuning}: valid on this machine, for {types}")


def _cpus_here(root: Path) -> str:
    from imp_service.config.cpus import allowed_cpus, n_cores, read_topology, write_cpu_list

    cpus = read_topology(allowed_cpus(), root)
    counts = {"CPU": len(cpus), "core": n_cores(cpus), "node": len({cpu.node for cpu in cpus})}
    numbers = write_cpu_list([cpu.number for cpu in cpus])
    return ", ".join(f"{n} {what}{'s' if n != 1 else ''}" for what, n in counts.items()) + f" ({numbers})"


def _decision(config: "Config", name: str) -> str:
    """A key's value in effect, and its origin."""
    (entry,) = (entry for entry in config.entries() if entry.name == name)
    return f"{name} is {entry.key.kind.plain(entry.value)} ({entry.origin})"


def check_memory(root: Path) -> Check:
    from imp_service.config.machine import memory_limit

    limit = memory_limit(root)
    return Check("memory", "ok" if limit.limit_bytes is not None else "warning", limit.reason)


def check_huge_pages(config: "Config | None", root: Path) -> Check:
    if config is not None and not config.settings.device.huge_pages:
        return Check("huge_pages", "ok", "device.huge_pages is false: weights and cache use small pages")
    try:
        words = (root / HUGE_PAGES).read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError):
        return Check("huge_pages", "warning", f"/{HUGE_PAGES} cannot be read: if pages are small, imp is slower")
    mode = words.partition("[")[2].partition("]")[0]
    if mode == "never":
        return Check("huge_pages", "warning", f"never: weights use small pages, which are slower; see /{HUGE_PAGES}")
    return Check("huge_pages", "ok", mode)


def check_gpu(config: "Config | None", root: Path) -> Check:
    from imp_service.core.device import CUDA, find_gpu, nvidia_driver
    from imp_service.core.settings_faults import gpu_faults

    driver = nvidia_driver(root)
    # Without a driver, the message of CUDA says so.
    version = f" ({driver})" if driver else ""
    if config is not None and (faults := [*gpu_faults(config)]):
        found = blocked_by("gpu", faults)
        return replace(found, message=f"{found.message}{version}")
    gpu = find_gpu()
    if config is not None and config.settings.device.kind == CUDA:
        return Check("gpu", "ok", f"{gpu.name}, which device.kind names{version}")
    if gpu.is_chosen:
        return Check("gpu", "ok", f"{gpu.name}{version}")
    return Check("gpu", "ok", f"none used: {gpu.text}{version}")

"""The checks of imp doctor, in order: each looks and says, whatever the others found."""

import sys
from argparse import Namespace
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from imp_service import __version__
from imp_service.cli.failure import describe

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from imp_service.config import Config
    from imp_service.generation.text_report import TextReport


OLDEST_PYTHON = (3, 11)
HUGE_PAGES = "sys/kernel/mm/transparent_hugepage/enabled"

# Of one check, which is one line.
MOST_TOLD = 10

Status = Literal["ok", "warning", "blocked"]


@dataclass(frozen=True, slots=True)
class Check:
    """What one check found; its id is for programs."""

    id: str
    status: Status
    message: str


def run_checks(arguments: Namespace, root: Path = Path("/")) -> list[Check]:
    """Every check, whatever the others find. `root` stands in for the root of the file system."""
    config_check, config = _config(arguments)
    return [
        _python(sys.version_info[:3]),
        Check("package", "ok", f"imp {__version__} in {Path(__file__).parents[1]}"),
        _guarded("extension", _extension),
        config_check,
        _guarded("cpu", lambda: _cpu(config)),
        _guarded("threads", lambda: _threads(config, root)),
        *_placement(config, root),
        _guarded("memory", lambda: _memory(root)),
        _huge_pages(config, root),
        _guarded("tuning", lambda: _tuning(config, root)),
        _guarded("model", lambda: _models(config)),
        _guarded("text", lambda: _text(config)),
        _guarded("gpu", lambda: _gpu(config, root)),
    ]


def _guarded(name: str, look: Callable[[], Check]) -> Check:
    """A check that raises has found what blocks it."""
    try:
        return look()
    except Exception as error:
        return _blocked(name, [error])


def _config(arguments: Namespace) -> "tuple[Check, Config | None]":
    from imp_service.config.load import read
    from imp_service.config.sources import near_names

    try:
        reading = read(arguments.config, arguments.assignments)
        config = reading.config
        faults = reading.errors if config is None or reading.errors else _file_faults(config)
    except Exception as error:
        return _blocked("config", [error]), None
    if config is None or reading.errors:
        return _blocked("config", faults), None
    if faults:
        return _blocked("config", faults), config
    if unread := near_names():
        return Check("config", "warning", "; ".join(unread)), config
    n_set = sum(entry.origin.source != "default" for entry in config.entries())
    file = f"{config.file}" if config.file else "no imp.conf, which is fine"
    return Check("config", "ok", f"{file}; {n_set} key{'s' if n_set != 1 else ''} set"), config


def _file_faults(config: "Config") -> "Sequence[Exception]":
    """Of files that no other check opens."""
    from imp_service.core.settings_faults import CHAT_TEMPLATE, file_faults
    from imp_service.serving.security.secret_faults import secret_faults

    return [*secret_faults(config), *file_faults(config, CHAT_TEMPLATE)]


def _blocked(name: str, errors: "Iterable[Exception]") -> Check:
    """With what blocks it, each once."""
    told = [f"{reason}: {message}" for reason, message in dict.fromkeys(describe(error) for error in errors)]
    rest = [f"and {len(told) - MOST_TOLD} more, which imp config check tells"] if len(told) > MOST_TOLD else []
    return Check(name, "blocked", "; ".join([*told[:MOST_TOLD], *rest]))


def _python(version: tuple[int, ...]) -> Check:
    found = ".".join(map(str, version))
    if version < OLDEST_PYTHON:
        return Check("python", "blocked", f"{found}, expected {'.'.join(map(str, OLDEST_PYTHON))} or newer")
    return Check("python", "ok", f"{found} at {sys.executable}")


def _extension() -> Check:
    try:
        from imp_service import core  # noqa: F401  (whether it loads is the question)
    except ImportError as error:
        return Check("extension", "blocked", f"{error}: the C++ part is missing or not for this Python")
    return Check("extension", "ok", "the C++ part loads")


def _cpu(config: "Config | None") -> Check:
    from imp_service.config import AUTO
    from imp_service.core.isa import isa_name, missing_isa

    here = isa_name()
    if config is not None and config.settings.device.isa is not AUTO:
        wanted = str(config.settings.device.isa)
        if missing := missing_isa(wanted):
            return Check("cpu", "blocked", f"device.isa is {wanted}, this CPU lacks {missing}; it has {here}")
        return Check("cpu", "ok", f"device.isa is {wanted}; this CPU has {here}")
    if here == isa_name("generic"):
        return Check("cpu", "warning", f"{here}: no AVX2, kernels run, slowly")
    return Check("cpu", "ok", here)


def _threads(config: "Config | None", root: Path) -> Check:
    from imp_service.config.cpus import allowed_cpus, read_topology
    from imp_service.config.host import cpu_limit

    limit = cpu_limit(read_topology(allowed_cpus(), root), root)
    asked = None if config is None else config.settings.device.threads
    if isinstance(asked, int):
        if asked > limit.threads:
            text = f"device.threads is {asked}, more than there are ({limit.reason}): they will wait for each other"
            return Check("threads", "warning", text)
        return Check("threads", "ok", f"device.threads is {asked}; auto would be {limit.threads} ({limit.reason})")
    return Check("threads", "ok", f"{limit.threads} ({limit.reason})")


def _placement(config: "Config | None", root: Path) -> list[Check]:
    """Where threads would stay and where memory would lie."""
    from imp_service.config import AUTO, Config
    from imp_service.config.build import build
    from imp_service.config.host import resolve_threads
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

    found = [_guarded("cpus", cpus)]
    return [*found, _guarded("numa", numa)] if found[0].status == "ok" else found


def _tuning(config: "Config | None", root: Path) -> Check:
    from imp_service.config.host import resolve_threads
    from imp_service.core.tuning_file import tuning_here

    if config is None or config.settings.device.tuning is None:
        return Check("tuning", "ok", "none: device.tuning is not set, kernels run in their list's order")
    preferences, remark = tuning_here(resolve_threads(config, root).settings)
    types = ", ".join(dict.fromkeys(weight for weight, _, _ in preferences)) or "no weight type"
    if remark:
        return Check("tuning", "warning", remark)
    return Check("tuning", "ok", f"{config.settings.device.tuning}: holds here, for {types}")


def _cpus_here(root: Path) -> str:
    from imp_service.config.cpus import allowed_cpus, n_cores, read_topology, write_cpu_list

    cpus = read_topology(allowed_cpus(), root)
    counts = {"CPU": len(cpus), "core": n_cores(cpus), "node": len({cpu.node for cpu in cpus})}
    numbers = write_cpu_list([cpu.number for cpu in cpus])
    return ", ".join(f"{n} {what}{'s' if n != 1 else ''}" for what, n in counts.items()) + f" ({numbers})"


def _decision(config: "Config", name: str) -> str:
    """A key's value in effect, and why."""
    (entry,) = (entry for entry in config.entries() if entry.name == name)
    return f"{name} is {entry.key.kind.plain(entry.value)} ({entry.origin})"


def _memory(root: Path) -> Check:
    from imp_service.config.host import memory_limit

    limit = memory_limit(root)
    return Check("memory", "ok" if limit.limit_bytes is not None else "warning", limit.reason)


def _huge_pages(config: "Config | None", root: Path) -> Check:
    if config is not None and not config.settings.device.huge_pages:
        return Check("huge_pages", "ok", "device.huge_pages is false: weights and cache lie in small pages")
    try:
        words = (root / HUGE_PAGES).read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError):
        return Check("huge_pages", "warning", f"/{HUGE_PAGES} cannot be read: weights may lie in small pages, slower")
    mode = words.partition("[")[2].partition("]")[0]
    if mode == "never":
        return Check("huge_pages", "warning", f"never: weights lie in small pages, slower; see /{HUGE_PAGES}")
    return Check("huge_pages", "ok", mode)


def _models(config: "Config | None") -> Check:
    """The first, and what is wrong with the entries of [models]."""
    from imp_service.config.host import resolve_threads
    from imp_service.core.device import resolve_device
    from imp_service.core.settings_faults import entry_faults, gpu_faults

    first = _guarded("model", lambda: _model(config))
    if config is None or not config.settings.models:
        return first
    decided = resolve_device(resolve_threads(config))
    others = [*entry_faults(decided, has_device=not [*gpu_faults(decided)])]
    if not others:
        return first
    blocked = _blocked("model", others)
    return blocked if first.status != "blocked" else replace(first, message=f"{first.message}; {blocked.message}")


def _model(config: "Config | None") -> Check:
    """Opens, plans and, the built-in one, compares its checksum; reads the weights of no other."""
    from imp_service.config import Config
    from imp_service.config.build import build
    from imp_service.core import DeviceError, open_file
    from imp_service.core.inspect import inspect_model
    from imp_service.core.settings_faults import gpu_faults
    from imp_service.core.weights import sha256_of
    from imp_service.models import demo_model_sha256

    if config is None:  # bad settings say nothing about the built-in model
        config = Config(build({}), None, {})
    file = open_file(config)
    try:
        report = inspect_model(file, config)
    except DeviceError:
        if not [*gpu_faults(config)]:
            raise  # of a missing GPU the check below tells
        return Check("model", "warning", "opens; without the device nobody can say whether it fits")
    if not report.memory.fits:
        return Check("model", "blocked", f"NO_MEMORY: {report.memory.refusal}")
    if config.settings.model.path is not None:
        return Check("model", "ok", f"{config.settings.model.path}: {report.architecture}, fits")
    found, expected = sha256_of(file.files), demo_model_sha256()
    if found != expected:
        return Check("model", "blocked", f"WEIGHTS_CORRUPT: built-in model: sha256 {found}, expected {expected}")
    return Check("model", "ok", f"built-in: {report.architecture}, fits, sha256 {found[:16]}… as shipped")


def _text(config: "Config | None") -> Check:
    """The tokenizer and the chat template of the first model, as a server would use them."""
    from imp_service.config import Config
    from imp_service.config.build import build
    from imp_service.core import open_file
    from imp_service.core.inspect import inspect_model
    from imp_service.generation.text_report import describe_text

    config = config or Config(build({}), None, {})
    try:
        file = open_file(config)
        report = inspect_model(file, config)
    except Exception:
        return Check("text", "warning", "tokenizer and chat template were not checked: see the check of the model")
    text = describe_text(file.metadata, config.settings, report.vocab_size, report.n_tokens)
    if text.fault:
        return Check("text", "blocked", f"TOKENIZER_INVALID: {text.fault}: imp can neither read nor write text")
    return _chat_template(text, config)


def _chat_template(text: "TextReport", config: "Config") -> Check:
    model = config.settings.model
    tokenizer = f"tokenizer: {text.tokenizer}"
    if text.template_fault:
        overrides = model.overrides
        is_fatal = model.strict or overrides.chat_template is not None or overrides.chat_template_name is not None
        words = f"{tokenizer}; chat template: {text.template_fault}"
        if is_fatal:
            return Check("text", "blocked", f"TEMPLATE_INVALID: {words}; a server does not start with it")
        return Check("text", "warning", f"{words}; a server starts, and refuses conversations")
    if not text.has_template:
        return Check("text", "ok", f"{tokenizer}; no chat template: prompts work, conversations are refused")
    words = "; ".join((tokenizer, "chat template: compiles", *text.warnings))
    return Check("text", "warning" if text.warnings else "ok", words)


def _gpu(config: "Config | None", root: Path) -> Check:
    from imp_service.core.device import CUDA, find_gpu, nvidia_driver
    from imp_service.core.settings_faults import gpu_faults

    driver = nvidia_driver(root)
    # Without a driver the answer of CUDA says so itself.
    version = f" ({driver})" if driver else ""
    if config is not None and (faults := [*gpu_faults(config)]):
        blocked = _blocked("gpu", faults)
        return replace(blocked, message=f"{blocked.message}{version}")
    gpu = find_gpu()
    if config is not None and config.settings.device.kind == CUDA:
        return Check("gpu", "ok", f"{gpu.name}, which device.kind names{version}")
    if gpu.is_chosen:
        return Check("gpu", "ok", f"{gpu.name}{version}")
    return Check("gpu", "ok", f"none used: {gpu.text}{version}")

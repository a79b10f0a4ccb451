"""From settings to a running engine: opens the file, reads the weights, starts the engine."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from imp_service import _core
from imp_service.config import AUTO, Config, ConfigError, Settings
from imp_service.config.machine import MemoryLimit, memory_limit
from imp_service.core.checkpoint import open_file
from imp_service.core.cublaslt import cublaslt_places, naming_auto
from imp_service.core.device import resolve_machine
from imp_service.core.directory import metadata_of, name_of, shown_name
from imp_service.core.draft import SETTING, MatchVocabularies, drafters_text, no_sparse_prefill, open_draft
from imp_service.core.engine_client import EngineClient
from imp_service.core.errors import InvalidArgument
from imp_service.core.file_text import shown_text
from imp_service.core.head import head_arguments, head_remarks
from imp_service.core.isa import isa_of, isa_setting
from imp_service.core.overrides import core_overrides, require_kernels
from imp_service.core.reserve import reserve_bytes
from imp_service.core.tuning_file import Preference, tuning_here
from imp_service.core.vision import CACHE_SETTING, vision_arguments
from imp_service.tables import ENGINE_FIELDS

Progress = Callable[[int, int], None]


@dataclass(slots=True)
class LoadedModel:
    """A model on its device. `config` has every `auto` decided. Its engine starts at its first use."""

    name: str
    # The metadata of the model's file. For a directory also the tokenizer and template files, by their names.
    metadata: Mapping[str, object]
    model: _core.Model
    config: Config
    # Oddities of the model, and settings that have no effect.
    warnings: tuple[str, ...]
    # The files that the weights were read from, still open: other files may have their paths now.
    files: tuple[_core.OpenFile, ...]
    # What guesses the next tokens, for people; empty: nothing.
    drafters_text: str = ""
    # Why no prompt is evaluated in part; empty: requests may ask for it.
    no_sparse_prefill: str = ""
    # Ids that the draft model must not guess.
    not_shared: tuple[int, ...] = ()
    # The name of the file or directory, if the settings name a path and no name.
    file_name: str = ""
    # The file or directory that has the vision tower; empty: the model reads no images.
    vision_name: str = ""
    # The engine that start() made.
    running: EngineClient | None = None

    @property
    def cpus(self) -> list[int]:
        """The CPU of each compute thread; empty if threads are not pinned."""
        return cpus_of(self.config.settings)

    @property
    def client(self) -> EngineClient:
        """The engine."""
        return self.start()

    def start(
        self,
        n_tokens: int | None = None,
        suppressed: Sequence[int] = (),
        control: Iterable[int] = (),
        cell_token: int | None = None,
    ) -> EngineClient:
        """Starts the engine, unless it runs. It never draws `suppressed` tokens, nor ids from `n_tokens` on.

        It always evaluates the parts of a prompt with `control` tokens. Prompts have `cell_token` in the cells of
        images; without it the engine takes none.

        In a directory of safetensors, only the tokenizer knows how many rows of the embedding are tokens.
        """
        if self.running is None:
            with faults_of_settings():
                options = self.engine_options(n_tokens, suppressed, control)
                self.running = EngineClient(_core.Engine(self.model, options, cell_token))
        return self.running

    def engine_options(
        self, n_tokens: int | None = None, suppressed: Sequence[int] = (), control: Iterable[int] = ()
    ) -> _core.EngineOptions:
        """The options of an engine of this model; the arguments are those of start()."""
        options = _engine_options(self.config.settings, self.model, n_tokens, suppressed)
        options.draft_suppressed_tokens = list(self.not_shared)
        options.sparse_prefill = not self.no_sparse_prefill
        options.control_tokens = sorted(control)
        return options

    def close(self) -> None:
        """Stops the engine, if it runs."""
        if self.running is not None:
            self.running.close()


def load_weights(
    config: Config,
    file: _core.ModelFile | None = None,
    progress: Progress | None = None,
    metadata: Callable[[], Mapping[str, object]] | None = None,
    match: MatchVocabularies | None = None,
) -> LoadedModel:
    """Loads the settings' model, or `file` in its place. Raises the core's errors, or ConfigError for the settings.

    `metadata` returns the file's metadata, if the caller reads them too: they are large. `match` compares vocabularies
    before a draft model is loaded; without it, a draft model with another vocabulary guesses in vain.
    """
    config, nodes = resolve_machine(config)
    if file is None:
        file = open_file(config)
    settings = config.settings
    require_kernels(settings.model.overrides.gemm, str(settings.device.kind))
    tuning, remark = tuning_here(settings)
    draft = open_draft(config, file)
    facts = metadata_of(file) if metadata is None else metadata()
    draft_name = "" if draft is None else shown_name(Path(draft.path))
    not_shared = () if draft is None or match is None else tuple(match(facts, metadata_of(draft), draft_name))
    vision = vision_arguments(settings, file)
    with faults_of_settings(), naming_auto(config):
        model = _read_model(settings, file, nodes, tuning, progress, draft=draft, vision=vision)
    name = settings.model.name or shown_text(facts.get("general.name")) or name_of(file)
    remarks = [*head_remarks(settings, model.head, model.facts), *([remark] if remark else [])]
    warnings = (*model.warnings, *remarks)
    drafters = drafters_text(config, model.draft, draft_name, model.head)
    not_sparse = no_sparse_prefill(config, has_draft=draft is not None)
    config = _decided(config, model)
    file_name = name_of(file) if settings.model.path is not None and not settings.model.name else ""
    files = tuple(file.files)
    tower = None if model.vision is None else vision["projector_file"] or file
    return LoadedModel(
        name,
        facts,
        model,
        config,
        warnings,
        files,
        drafters,
        not_sparse,
        not_shared,
        file_name=file_name,
        vision_name="" if tower is None else shown_name(Path(tower.path)),
    )


@contextmanager
def faults_of_settings() -> Iterator[None]:
    """Every argument of the core comes from the settings: if it is refused, they do not fit the model or each other."""
    try:
        yield
    except InvalidArgument as error:
        if error.reason != "FIELD_INVALID":
            raise
        for setting in (SETTING, CACHE_SETTING):
            if error.message.startswith(f"{setting}: "):
                raise ConfigError(setting, error.message.removeprefix(f"{setting}: ")) from None
        raise ConfigError("settings", error.message) from None


def _read_model(
    settings: Settings,
    file: _core.ModelFile,
    nodes: Sequence[int],
    tuning: list[Preference],
    progress: Progress | None,
    *,
    draft: _core.ModelFile | None,
    vision: Mapping[str, Any],
) -> _core.Model:
    return _core.Model.load(
        file,
        overrides=core_overrides(settings),
        cpus=cpus_of(settings),
        huge_pages=settings.device.huge_pages,
        interleave_nodes=list(nodes),
        progress=progress,
        draft=draft,
        packed_cache=settings.model.packed_cache,
        **head_arguments(settings),
        **{**load_arguments(settings, memory_limit(), tuning), **vision},
    )


def cpus_of(settings: Settings) -> list[int]:
    """The CPU of each compute thread in resolved settings; empty if threads are not pinned."""
    assert isinstance(settings.device.cpus, tuple)  # narrows: it was resolved
    return list(settings.device.cpus)


def load_arguments(settings: Settings, limit: MemoryLimit, tuning: Sequence[Preference]) -> dict[str, Any]:
    """Arguments of `_core.Model.load` and `_core.plan_model`, apart from those of head and vision tower."""
    device, scheduler, kv = settings.device, settings.scheduler, settings.kv
    assert isinstance(device.threads, int)  # narrows: it was resolved
    return {
        "device": str(device.kind),
        "isa": isa_setting(settings),
        "threads": device.threads,
        "tuning": list(tuning),
        "cublaslt": cublaslt_places(device.cublaslt, device.kind),
        "max_rows": max(scheduler.step_tokens, scheduler.max_running),
        "max_logits_rows": max(64, scheduler.max_running),
        "memory_bytes": limit.limit_bytes,
        "reserve_bytes": reserve_bytes(settings),
        "kv_block_tokens": kv.block_tokens,
        "kv_bytes": kv.bytes if isinstance(kv.bytes, int) else None,
        "draft_kv_bytes": settings.speculation.kv_bytes,
        "draft_scores_prompts": settings.sparse_prefill.enabled,
        "max_running": scheduler.max_running,
        "state_snapshot_bytes": kv.state_snapshot_bytes if isinstance(kv.state_snapshot_bytes, int) else None,
    }


def _engine_options(
    settings: Settings, model: _core.Model, n_tokens: int | None, suppressed: Sequence[int]
) -> _core.EngineOptions:
    cpus = cpus_of(settings)
    n_tokens = model.n_tokens if n_tokens is None else min(n_tokens, model.n_tokens)
    return _core.EngineOptions(
        **{name: _setting(settings, field.key) for name, field in ENGINE_FIELDS.items()},
        n_blocks=model.n_blocks,
        n_state_slots=model.n_state_slots,
        media_rows=model.media_rows,
        max_context=model.max_context,
        drafters=settings.speculation.drafters,
        n_tokens=n_tokens,
        suppressed_tokens=sorted({*model.suppressed_tokens, *suppressed, *range(n_tokens, model.n_tokens)}),
        cpu=cpus[0] if cpus else None,
    )


def _setting(settings: Settings, key: str) -> object:
    section, name = key.split(".")
    value = getattr(getattr(settings, section), name)
    return value // timedelta(milliseconds=1) if isinstance(value, timedelta) else value


def _snapshot_bytes(settings: Settings, model: _core.Model) -> int:
    """The memory of the slots of recurrent state beyond two for each running sequence."""
    if model.n_state_slots == 0:
        return 0
    n_snapshots = max(0, model.n_state_slots - 2 * settings.scheduler.max_running)
    return int(n_snapshots * model.memory["items"]["state"] // model.n_state_slots)


def _decided(config: Config, model: _core.Model) -> Config:
    """Settings with the values that loading has decided."""
    if config.settings.device.isa is AUTO:
        config = config.resolve(("device", "isa"), isa_of(config.settings), "all this CPU has")
    if config.settings.kv.bytes is AUTO:
        config = config.resolve(("kv", "bytes"), model.memory["items"]["kv"], "what the memory plan leaves")
    if config.settings.kv.state_snapshot_bytes is AUTO:
        n_bytes = _snapshot_bytes(config.settings, model)
        config = config.resolve(("kv", "state_snapshot_bytes"), n_bytes, "what the memory plan leaves")
    if config.settings.media.cache_bytes is AUTO:
        n_bytes = model.memory["items"].get("media", 0)
        why = "two of the largest image, at least 64 MiB" if n_bytes else "the model reads no images"
        config = config.resolve(("media", "cache_bytes"), n_bytes, why)
    if config.settings.kv.dtype is AUTO:
        kv_dtype = next(fact["value"] for fact in model.facts if fact["name"] == "kv_dtype")
        config = config.resolve(("kv", "dtype"), kv_dtype, "what the model's weights and overrides say")
    return config

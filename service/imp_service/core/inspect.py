"""Describes a checkpoint, and what loading it would need, without reading a weight."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from imp_service import _core
from imp_service.config import Config, ConfigError
from imp_service.config.machine import MemoryLimit, memory_limit, resolve_threads
from imp_service.config.settings import Settings
from imp_service.core.cublaslt import naming_auto
from imp_service.core.device import resolve_device
from imp_service.core.draft import open_draft
from imp_service.core.errors import Error, make_error
from imp_service.core.head import head_arguments, head_remarks
from imp_service.core.load import faults_of_settings, load_arguments
from imp_service.core.overrides import core_overrides, require_kernels
from imp_service.core.tuning_file import Preference, tuning_here
from imp_service.core.vision import vision_arguments


@dataclass(frozen=True, slots=True)
class Fact:
    """One field of the model's configuration, and where its value came from."""

    name: str
    value: str
    origin: str  # checkpoint, architecture or override
    source: str  # the key that it was read from


@dataclass(frozen=True, slots=True)
class WeightPlan:
    """One tensor of the file, and the kernels that would multiply it, for ascending numbers of rows."""

    tensor: str
    dtype: str
    n: int
    k: int
    kernels: list[str]
    n_matrices: int  # [n, k] each: those of all experts can be one tensor
    use: str  # product, expert, head, lookup or vector
    layout: str
    n_bytes: int


@dataclass(frozen=True, slots=True)
class MemoryNeed:
    """The bytes that a model needs for each purpose, and the context that fits."""

    limit_bytes: int | None
    limit_reason: str
    items: Mapping[str, int]  # if the model does not fit, with a cache of one whole context
    context: int  # tokens a sequence could hold
    kv_bytes_per_token: int
    state_slot_bytes: int  # the recurrent state of one sequence; 0: the model has none
    refusal: str  # why it does not fit; empty if it does
    largest_context: int  # that fits, at most the requested one; 0: none

    @property
    def fits(self) -> bool:
        """The model can be loaded with these settings."""
        return not self.refusal

    @property
    def total_bytes(self) -> int:
        """All items together."""
        return sum(self.items.values())


@dataclass(frozen=True, slots=True)
class DraftReport:
    """The draft model of a model. Its memory is among that of the model."""

    path: str
    architecture: str
    max_context: int  # of its own, at most the model's
    bytes_per_token: int  # of weights
    model_bytes_per_token: int


@dataclass(frozen=True, slots=True)
class VisionReport:
    """The vision tower of a model. Its memory is among that of the model."""

    family: str
    n_layers: int
    hidden_size: int
    # "tiles" of one size, "fixed": one size, "range": any size within a range, "soft_tokens": any size by a number.
    sizing: str
    tile_size: int  # height and width of a tile, or of an image of fixed size, in pixels
    patch_size: int
    reduction: int  # patches of a side that become one place in the context
    longest_side: int  # to which an image is resized before it is cut into tiles, in pixels
    min_pixels: int  # of the range, as the file says
    max_pixels: int
    soft_tokens: int  # the number, as the file says
    part_cells: int  # places of a part (a tile, or a whole image) in the context
    max_image_cells: int  # of the largest image
    is_atomic: bool  # in the decoder, the places of a part see each other
    n_planes: int  # positions of each place: 3 with M-RoPE
    weights: Sequence[WeightPlan]


@dataclass(frozen=True, slots=True)
class ModelReport:
    """Everything that is known of a model before it is loaded."""

    architecture: str
    vocab_size: int  # rows of the embedding
    n_tokens: int  # ids below it are tokens
    facts: Sequence[Fact]
    weights: Sequence[WeightPlan]
    memory: MemoryNeed
    warnings: Sequence[str]
    draft: DraftReport | None = None
    vision: VisionReport | None = None

    def fact(self, name: str) -> str:
        """The value of a fact, or of the last one of this name; empty if there is none."""
        return next((fact.value for fact in reversed(self.facts) if fact.name == name), "")

    @property
    def has_head(self) -> bool:
        """It generates text."""
        return self.fact("has_head") != "no"


def inspect_model(file: _core.ModelFile, config: Config, limit: MemoryLimit | None = None) -> ModelReport:
    """Resolves and plans as load() would with these settings. Raises ModelError.

    `limit` replaces this machine's memory limit, to plan for another machine.
    """
    config = resolve_device(resolve_threads(config))
    settings, limit = config.settings, limit or memory_limit()
    overrides = core_overrides(settings)
    require_kernels(settings.model.overrides.gemm, str(settings.device.kind))
    tuning, remark = tuning_here(settings)
    draft = open_draft(config, file)
    with faults_of_settings(), naming_auto(config):
        plan = _plan(file, settings, overrides, limit, tuning, draft=draft)

    def largest_context() -> int:
        return _largest_context(file, settings, overrides, limit, draft=draft, below=plan["model_context"])

    return ModelReport(
        architecture=plan["architecture"],
        vocab_size=plan["vocab_size"],
        n_tokens=plan["n_tokens"],
        facts=[Fact(**fact) for fact in plan["facts"]],
        weights=[WeightPlan(**weight) for weight in plan["weights"]],
        memory=_memory(plan, limit, largest_context),
        warnings=[
            *plan["model_warnings"],
            *plan["weight_warnings"],
            *head_remarks(settings, plan["head"], plan["facts"]),
            *([remark] if remark else []),
        ],
        draft=None if draft is None else _draft_report(draft.path, plan["draft"]),
        vision=None if plan["vision"] is None else _vision_report(plan["vision"]),
    )


def _draft_report(path: str, draft: Mapping[str, Any]) -> DraftReport:
    names = ("architecture", "max_context", "bytes_per_token", "model_bytes_per_token")
    return DraftReport(path, **{name: draft[name] for name in names})


def _vision_report(vision: Mapping[str, Any]) -> VisionReport:
    sizes = {field.name: vision[field.name] for field in fields(VisionReport) if field.name != "weights"}
    return VisionReport(**sizes, weights=[WeightPlan(**weight) for weight in vision["weights"]])


def plan_faults(file: _core.ModelFile, config: Config) -> Iterator[Error | ConfigError]:
    """Why load() would refuse this file. `config` must have every `auto` of the machine decided."""
    settings, limit = config.settings, memory_limit()
    overrides = core_overrides(settings)
    named = list(settings.model.overrides.gemm.items())
    are_kernels_good = True
    for pair in named:  # one by one, since a plan stops at its first error
        overrides.gemm = [pair]
        try:
            require_kernels(dict([pair]), str(settings.device.kind))
            with naming_auto(config):
                _plan(file, settings, overrides, limit)
        except (Error, ConfigError) as error:
            if error.reason == "OVERRIDE_INVALID":  # others are found by the whole plan, too
                are_kernels_good = False
                yield error
    overrides.gemm = named if are_kernels_good else []
    try:
        tuning, _ = tuning_here(settings)
    except ConfigError:  # setting_faults() reports it
        tuning = []
    try:
        with faults_of_settings():
            plan = _plan(file, settings, overrides, limit, tuning, draft=open_draft(config, file))
    except (Error, ConfigError) as error:  # settings that do not fit this model, or each other
        yield error
    else:
        if plan["memory"] is None:
            yield make_error("NO_MEMORY", plan["refusal"])
        try:
            head_remarks(settings, plan["head"], plan["facts"])
        except ConfigError as error:
            yield error


def _plan(
    file: _core.ModelFile,
    settings: Settings,
    overrides: _core.ModelOverrides,
    limit: MemoryLimit,
    tuning: Sequence[Preference] = (),
    *,
    draft: _core.ModelFile | None = None,
) -> dict[str, Any]:
    arguments = {
        **head_arguments(settings),
        **load_arguments(settings, limit, tuning),
        **vision_arguments(settings, file),
    }
    plan: dict[str, Any] = _core.plan_model(file, overrides=overrides, draft=draft, **arguments)
    return plan


def _largest_context(
    file: _core.ModelFile,
    settings: Settings,
    overrides: _core.ModelOverrides,
    limit: MemoryLimit,
    *,
    draft: _core.ModelFile | None,
    below: int,
) -> int:
    """The longest context that fits and is shorter than `below`, by binary search: memory grows with the context."""
    fits, too_long = 0, below
    while too_long - fits > 1:
        overrides.max_context = (fits + too_long) // 2
        if _plan(file, settings, overrides, limit, draft=draft)["memory"] is None:
            too_long = overrides.max_context
        else:
            fits = overrides.max_context
    return fits


def _memory(plan: Mapping[str, Any], limit: MemoryLimit, find_largest: Callable[[], int]) -> MemoryNeed:
    block_bytes, block_tokens, context = plan["kv_block_bytes"], plan["kv_block_tokens"], plan["model_context"]
    slot_bytes = plan["state_slot_bytes"]
    division = plan["memory"]
    if division is not None:
        items, context = division["items"], division["max_context"]
    else:
        needs = {name: plan[f"{name}_bytes"] for name in ("weights", "scratch", "logits", "reserve")}
        items = {"weights": needs["weights"], "kv": -(-context // block_tokens) * block_bytes, **needs}
        if plan["head"] is not None:
            items["head"] = plan["head_bytes"] + -(-context // block_tokens) * plan["head_block_bytes"]
        if plan["vision"] is not None:
            items |= {"projector": plan["projector_bytes"], "media": plan["media_bytes"]}
        if plan["draft"] is not None:
            items |= {"draft weights": plan["draft"]["weights_bytes"], "draft kv": plan["draft"]["kv_block_bytes"]}
        if slot_bytes > 0:
            items["state"] = 2 * slot_bytes  # the fewest that a plan has
    return MemoryNeed(
        limit_bytes=limit.limit_bytes,
        limit_reason=limit.reason,
        items=items,
        context=context,
        kv_bytes_per_token=block_bytes // block_tokens,
        state_slot_bytes=slot_bytes,
        refusal=plan["refusal"],
        largest_context=find_largest() if division is None else context,
    )

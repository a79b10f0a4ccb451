"""Keys whose effect shows in the arguments of the core, or in the facts of the loaded model."""

from __future__ import annotations

from contextlib import closing, suppress
from pathlib import Path
from typing import Any
from unittest import mock

from imp_service import _core
from imp_service.api.options import SparsePrefillOptions, SpeculationOptions
from imp_service.config import read_settings
from imp_service.core import Error, load_weights
from imp_service.generation import ModelRuntime, images
from imp_service.models import demo_draft_model_path, demo_model_path
from support.key_effects.effect import Effect, Observe
from support.models.tiny_vision_models import write_vision_files

SMALL = ("device.threads=1", "device.kind=cpu", "device.cpus=none", "kv.bytes=8MiB")


class Asked(Exception):
    """Raised in place of the core's work, once the arguments are known."""


def load_argument(name: str) -> Observe:
    """Observes the argument of `Model.load` with this name."""

    def observe(_: Path, settings: tuple[str, ...]) -> Any:
        return asked_of_load(settings)[name]

    return observe


def asked_of_load(settings: tuple[str, ...]) -> dict[str, Any]:
    """Returns the arguments of `Model.load`."""
    asked: dict[str, Any] = {}

    def take(*_: object, **arguments: Any) -> None:
        asked.update(arguments)
        raise Asked

    given = [setting for setting in SMALL if not _sets_again(setting, settings)]
    with mock.patch.object(_core.Model, "load", take):
        try:
            load_weights(read_settings(None, [*given, *settings]))
        except Asked:
            return asked
    raise AssertionError("the core was not asked")


def most_guesses(_: Path, settings: tuple[str, ...]) -> Any:
    """Observes the most guesses of a request that sets none."""
    runtime = ModelRuntime(load_weights(read_settings(None, [*SMALL, *settings])))
    with closing(runtime.client):
        return runtime.options.guessing(SpeculationOptions())[0]


def sparse_default(_: Path, settings: tuple[str, ...]) -> tuple[str, float, float] | None:
    """Observes the policy and the shares to keep of a request that sets none; None if it is simply dense."""
    runtime = ModelRuntime(load_weights(read_settings(None, [*SMALL, *settings])))
    with closing(runtime.client):
        options = runtime.options.sparse_prefill(SparsePrefillOptions())
    policy, keep, backbone = options.policy, options.keep, options.backbone
    return None if policy is None or keep is None or backbone is None else (policy, keep, backbone)


def _sets_again(setting: str, settings: tuple[str, ...]) -> bool:
    return any(other.partition("=")[0] == setting.partition("=")[0] for other in settings)


def engine_option(name: str) -> Observe:
    """Observes the engine option with this name."""

    def observe(_: Path, settings: tuple[str, ...]) -> Any:
        asked: dict[str, Any] = {}
        real = _core.EngineOptions

        def take(**options: Any) -> _core.EngineOptions:
            asked.update(options)
            return real(**options)

        with mock.patch.object(_core, "EngineOptions", take):
            load_weights(read_settings(None, [*SMALL, *settings])).client.close()
        return asked[name]

    return observe


def fact(name: str) -> Observe:
    """Observes a fact of the loaded model, as `imp inspect` prints it."""

    def observe(_: Path, settings: tuple[str, ...]) -> Any:
        loaded = load_weights(read_settings(None, [*SMALL, *settings]))
        loaded.client.close()
        (value,) = [each["value"] for each in loaded.model.facts if each["name"] == name]
        return value

    return observe


def overridden(name: str) -> Observe:
    """Observes an attribute of the overrides that `Model.load` receives."""

    def observe(folder: Path, settings: tuple[str, ...]) -> Any:
        return getattr(load_argument("overrides")(folder, settings), name)

    return observe


def reason_of_load(_: Path, settings: tuple[str, ...]) -> str:
    """Returns the reason for which loading fails, or OK."""
    try:
        load_weights(read_settings(None, [*SMALL, *settings])).client.close()
    except Error as error:
        return error.reason
    return "OK"


def packed_files(folder: Path, settings: tuple[str, ...]) -> str | None:
    """Returns the folder in which the core looks for packed weights."""
    asked = load_argument("packed_cache")(folder, settings)
    return None if asked is None else Path(asked).name


def draft_of_load(folder: Path, settings: tuple[str, ...]) -> str | None:
    """Observes the name of the draft model that the core loads. The model is a copy, which has no draft of its own."""
    copy = folder / "copy.gguf"
    copy.write_bytes(demo_model_path().read_bytes())
    asked = load_argument("draft")(folder, (*settings, f"model.path={copy}"))
    return None if asked is None else Path(asked.path).name


SPARSE = ("sparse_prefill.enabled=true",)
MODEL_DRAFTS = ('speculation.drafters=["model"]',)
ROPE = "model.overrides.rope_scaling"
YARN = (f"{ROPE}.type=yarn", f"{ROPE}.factor=4", f"{ROPE}.original_context=128")
LLAMA3 = (
    f"{ROPE}.type=llama3",
    f"{ROPE}.factor=4",
    f"{ROPE}.original_context=128",
    f"{ROPE}.low_freq_factor=1",
    f"{ROPE}.high_freq_factor=4",
)


def _with_sight(folder: Path, settings: tuple[str, ...]) -> tuple[str, ...]:
    """Adds a model that reads images to the settings."""
    model, _ = write_vision_files(folder)
    return (*settings, f"model.path={model}")


def projector_of_load(folder: Path, settings: tuple[str, ...]) -> str | None:
    """Observes the name of the projector that the core loads with a model beside which there is one."""
    file = asked_of_load(_with_sight(folder, settings)).get("projector_file")
    return None if file is None else Path(file.path).name


def media_bytes_of_load(folder: Path, settings: tuple[str, ...]) -> int | None:
    found: int | None = asked_of_load(_with_sight(folder, settings))["media_bytes"]
    return found


def media_limit(name: str) -> Observe:
    """Observes a limit of the images of prompts."""

    def observe(folder: Path, settings: tuple[str, ...]) -> Any:
        with mock.patch.object(images, "Images", mock.Mock(side_effect=Asked)) as made, suppress(Asked):
            ModelRuntime(load_weights(read_settings(None, [*SMALL, *_with_sight(folder, settings)])))
        _, limits = made.call_args.args
        return getattr(limits, name)

    return observe


CORE_EFFECTS: dict[str, Effect] = {
    "model.path": Effect("nosuch.gguf", reason_of_load, "OK", "MODEL_MISSING"),
    "model.sha256": Effect("0" * 64, reason_of_load, "OK", "WEIGHTS_CORRUPT"),
    "model.projector": Effect("nosuch", reason_of_load, "OK", "MODEL_MISSING"),
    "model.vision": Effect("false", projector_of_load, "mmproj-tiny.gguf", None),
    "model.packed_cache": Effect("packed", packed_files, None, "packed"),
    "model.overrides.max_context": Effect("128", fact("max_context"), "512", "128"),
    "model.overrides.untrained_context": Effect(
        "true", reason_of_load, "OVERRIDE_INVALID", "OK", ("model.overrides.max_context=1024",)
    ),
    "model.overrides.rope_theta": Effect("500.0", fact("rope_theta"), "10000", "500"),
    "model.overrides.kv_dtype": Effect("f32", fact("kv_dtype"), "bf16", "f32"),
    "model.overrides.kv_layers.NAME": Effect("q8_0", overridden("kv_layers"), [], [("0-1", "q8_0")], name="0-1"),
    "model.overrides.suppress_tokens": Effect("[3, 5]", fact("suppressed_tokens"), "none", "3, 5"),
    "model.overrides.deterministic": Effect("true", overridden("deterministic"), False, True),
    "model.overrides.unvalidated_kernels": Effect("true", overridden("unvalidated_kernels"), False, True),
    "model.overrides.gemm.NAME": Effect("reference", overridden("gemm"), [], [("q4_k", "reference")]),
    f"{ROPE}.type": Effect("linear", fact("rope_scaling"), "none", "linear"),
    f"{ROPE}.factor": Effect("8", fact("rope_scaling_factor"), "4", "8", YARN),
    f"{ROPE}.original_context": Effect("64", fact("rope_original_context"), "128", "64", YARN),
    f"{ROPE}.attention_factor": Effect("0.5", fact("rope_attention_factor"), "1", "0.5", YARN),
    f"{ROPE}.beta_fast": Effect("16", fact("rope_beta_fast"), "32", "16", YARN),
    f"{ROPE}.beta_slow": Effect("2", fact("rope_beta_slow"), "1", "2", YARN),
    f"{ROPE}.low_freq_factor": Effect("2", fact("rope_low_freq_factor"), "1", "2", LLAMA3),
    f"{ROPE}.high_freq_factor": Effect("8", fact("rope_high_freq_factor"), "4", "8", LLAMA3),
    "device.kind": Effect("cuda_emulated", load_argument("device"), "cpu", "cuda_emulated"),
    "device.threads": Effect("3", load_argument("threads"), 1, 3),
    "device.cpus": Effect("0", load_argument("cpus"), [], [0]),
    "device.cublaslt": Effect("a.so:b.so", load_argument("cublaslt"), [], ["a.so", "b.so"]),
    "device.huge_pages": Effect("false", load_argument("huge_pages"), True, False),
    "limits.max_context": Effect("128", fact("max_context"), "512", "128"),
    "scheduler.max_running": Effect("7", engine_option("max_running"), 64, 7),
    "scheduler.max_waiting_tokens": Effect("2000", engine_option("max_waiting_tokens"), 1024**2, 2000),
    "scheduler.prefill_chunk": Effect("33", engine_option("prefill_chunk"), 512, 33),
    "scheduler.step_tokens": Effect("700", engine_option("step_tokens"), 512, 700),
    "scheduler.prefill_per_decode": Effect("9", engine_option("prefill_per_decode"), 6, 9),
    "scheduler.decode_per_tenant": Effect("5", engine_option("decode_per_tenant"), 12, 5),
    "scheduler.max_wait": Effect("2500ms", engine_option("max_wait_ms"), 60_000, 2500),
    "scheduler.tenant_share": Effect("0.25", engine_option("tenant_share"), 0.5, 0.25),
    "kv.bytes": Effect("4MiB", load_argument("kv_bytes"), 8 * 1024**2, 4 * 1024**2),
    "kv.dtype": Effect("f32", fact("kv_dtype"), "bf16", "f32"),
    "kv.block_tokens": Effect("32", load_argument("kv_block_tokens"), 16, 32),
    "kv.prefix_cache": Effect("false", engine_option("prefix_cache"), True, False),
    "kv.state_snapshot_tokens": Effect("64", engine_option("state_snapshot_tokens"), 512, 64),
    "kv.state_snapshot_bytes": Effect("3MiB", load_argument("state_snapshot_bytes"), None, 3 * 1024**2),
    "speculation.drafters": Effect("[]", engine_option("drafters"), ("ngram",), ()),
    "speculation.model": Effect(str(demo_draft_model_path()), draft_of_load, None, "demo-draft.gguf", MODEL_DRAFTS),
    "speculation.kv_bytes": Effect("1MiB", load_argument("draft_kv_bytes"), None, 1024**2, MODEL_DRAFTS),
    "speculation.max_draft_tokens": Effect("5", most_guesses, 32, 5),
    "speculation.head": Effect(
        "nosuch", reason_of_load, "OK", "MODEL_MISSING", ('speculation.drafters=["ngram", "head"]',)
    ),
    "speculation.with_media": Effect("false", engine_option("draft_with_media"), True, False),
    "media.images": Effect("3", media_limit("images"), 16, 3),
    "media.request_bytes": Effect("2MiB", media_limit("request_bytes"), 16 * 1024**2, 2 * 1024**2),
    "media.pixels": Effect("1M", media_limit("pixels"), 40_000_000, 1024**2),
    "media.side": Effect("1000", media_limit("side"), 16_384, 1000),
    "media.image_tokens": Effect("400", media_limit("image_tokens"), 1024, 400),
    "media.waiting_bytes": Effect("5MiB", media_limit("waiting_bytes"), 128 * 1024**2, 5 * 1024**2),
    "media.decode_time": Effect("250ms", media_limit("decode_ms"), 10_000, 250),
    "media.cache_bytes": Effect("1MiB", media_bytes_of_load, None, 1024**2),
    "sparse_prefill.enabled": Effect("true", load_argument("draft_scores_prompts"), False, True),
    "sparse_prefill.policy": Effect("auto", sparse_default, None, ("auto", 0.3, 0), SPARSE),
    "sparse_prefill.keep": Effect(
        "0.25", sparse_default, ("auto", 0.3, 0), ("auto", 0.25, 0), (*SPARSE, "sparse_prefill.policy=auto")
    ),
    "sparse_prefill.backbone": Effect(
        "0.1", sparse_default, ("auto", 0.3, 0), ("auto", 0.3, 0.1), (*SPARSE, "sparse_prefill.policy=auto")
    ),
    "sparse_prefill.threshold": Effect("300", engine_option("sparse_threshold"), 8192, 300),
    "sparse_prefill.max_tokens": Effect("7000", engine_option("sparse_max_tokens"), 65536, 7000),
    "sparse_prefill.anchors": Effect("3", engine_option("sparse_anchors"), 1, 3),
    "sessions.evict": Effect("true", engine_option("evict_sessions"), False, True),
}

# The keys that the service reads too.
ENGINE_EFFECTS: dict[str, Effect] = {
    "scheduler.max_waiting": Effect("7", engine_option("max_waiting"), 256, 7),
    "sessions.max": Effect("7", engine_option("max_sessions"), 256, 7),
}

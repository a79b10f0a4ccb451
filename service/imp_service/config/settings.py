"""The table of keys: every section of imp.conf, each key with its kind, default and one line of description."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from importlib.util import find_spec
from typing import Any

from imp_service.config.cpus import CpuList
from imp_service.config.kinds import (
    AUTO,
    Auto,
    AutoOr,
    Boolean,
    Enumeration,
    Integer,
    Joined,
    ListOf,
    Real,
    String,
    ValueKind,
)
from imp_service.config.overrides import KV_DTYPE, ModelOverrides
from imp_service.config.quantities import Count, Duration, Size
from imp_service.config.server_settings import (
    AuthSettings,
    ChunkSettings,
    ConnectionSettings,
    DrainSettings,
    FeaturesSettings,
    FrontSettings,
    HttpSettings,
    KeepaliveSettings,
    ListenSettings,
    LogSettings,
    SlowClientSettings,
    TlsSettings,
    TracingSettings,
    WatchdogSettings,
)
from imp_service.config.table import Section, key, named, nodes_of, section
from imp_service.tables import DRAFTERS, ENGINE_FIELDS, LIMITS


def engine_key(name: str, kind: Callable[[int, int], ValueKind[int]] = Integer) -> Any:
    """The key of one option of the engine, from the core's table; `kind` reads whole numbers."""
    field = ENGINE_FIELDS[name]
    low, high, default = int(field.low), int(field.high), field.default
    if isinstance(default, bool):
        return key(Boolean(), default, field.meaning)
    if isinstance(default, float):
        return key(Real(field.low, field.high), default, field.meaning)
    if name.endswith("_ms"):
        return key(Duration(f"{low}ms", f"{high}ms"), timedelta(milliseconds=default), field.meaning)
    return key(kind(low, high), default, field.meaning)


EMULATED_GPU = "cuda_emulated"


def devices_of_tests() -> tuple[str, ...]:
    """Further values of `device.kind`, if the extension of the tests is installed."""
    return (EMULATED_GPU,) if find_spec("imp_service._testing") else ()


GIB = 1024**3

MODEL_NAME = String("a name of letters, digits, '.', '_' and '-'", pattern=r"[A-Za-z0-9._-]{1,256}")


@dataclass(frozen=True, slots=True)
class ModelSettings:
    path: str | None = key(
        String("a path"), None, "the checkpoint; unset: the built-in demo model", example="model.gguf"
    )
    name: str | None = key(MODEL_NAME, None, "its name in requests; unset: the name in the file", example="my-model")
    aliases: tuple[str, ...] = key(ListOf(MODEL_NAME, 16), (), "further names for requests")
    sha256: str | None = key(
        String("64 hexadecimal digits", pattern="[0-9a-f]{64}"),
        None,
        "required digest of the weights; checked before serving",
        example="0" * 64,
    )
    packed_cache: str | None = key(
        String("a path"),
        None,
        "folder for rearranged weights, which make the next start faster; unset: none",
        example="packed",
    )
    projector: str | None = key(
        String("a path"),
        None,
        "projector that lets the model read images; unset: mmproj*.gguf in its folder, if there is one",
        example="mmproj.gguf",
    )
    vision: bool = key(Boolean(), True, "read images, if the model has a projector or a vision tower of its own")
    strict: bool = key(Boolean(), False, "refuse to serve a model whose chat template does not compile")
    overrides: ModelOverrides = section(ModelOverrides, "replace facts of the model file; unset: those of the file")


@dataclass(frozen=True, slots=True)
class DeviceSettings:
    kind: str | Auto = key(
        AutoOr(Enumeration("cpu", "cuda", unlisted=devices_of_tests())),
        AUTO,
        "where models run; auto: today the CPU, docs/cuda.md says why",
    )
    isa: str | Auto = key(
        AutoOr(
            Joined(
                "generic", "avx2", "neondot", "neoni8mm", "avx512", "avx512vnni", "avx2vnni", "avx512bf16", "amxint8"
            )
        ),
        AUTO,
        "instruction sets that kernels may use; auto: all of this CPU",
    )
    threads: int | Auto = key(
        AutoOr(Integer(1, 1024)), AUTO, "compute threads; auto: the cores that affinity and container quota leave"
    )
    cpus: tuple[int, ...] | Auto = key(
        AutoOr(CpuList()), AUTO, "CPU of each thread; auto: pinned if threads use every core of the process"
    )
    numa: str | Auto = key(
        AutoOr(Enumeration("interleave", "first_touch")),
        AUTO,
        "NUMA nodes of weights and cache: all that threads use, or the first writer's; auto: all if allowed",
    )
    tuning: str | None = key(
        String("a path"),
        None,
        "file of imp tune with the fastest kernels of this machine; ignored elsewhere, with a warning",
        example="tuning.json",
    )
    cublaslt: str | Auto = key(
        AutoOr(String("a path")),
        AUTO,
        "library of the GPU kernels named ..._cublaslt (docs/cuda.md); off: none",
    )
    huge_pages: bool = key(Boolean(), True, "ask the system for huge pages for weights and cache")


@dataclass(frozen=True, slots=True)
class LimitsSettings:
    max_context: int = key(Count(0, 16 * 1024**2), 0, "longest context of a sequence in tokens; 0: the model's")
    max_tokens: int = key(Count(0, 16 * 1024**2), 0, "most tokens one request may generate; 0: no limit")
    max_prompt_bytes: int = key(Size(1024, GIB), 1024**2, "sum of the texts of one request")
    max_message_bytes: int = key(Size(64 * 1024, GIB), 4 * 1024**2, "one gRPC message in either direction")
    max_metadata_bytes: int = key(Size(4096, 1024**2), 16 * 1024, "metadata of one call")
    max_inputs: int = key(Integer(1, 65536), 2048, "most texts of one request for vectors, or documents to rank")
    truncate: str = key(
        Enumeration("none", "end", "start"),
        "none",
        "what of an input that is too long for vectors or a ranking is cut by default; none: it is refused",
    )
    request_time: timedelta = key(
        Duration("10ms", "720h"), timedelta(hours=1), "a generation ends after this with TIME_LIMIT", reloads=True
    )


@dataclass(frozen=True, slots=True)
class SchedulerSettings:
    max_running: int = engine_key("max_running")
    max_waiting: int = engine_key("max_waiting")
    max_waiting_tokens: int = engine_key("max_waiting_tokens", Count)
    max_waiting_bytes: int = key(
        Size(1024, 64 * GIB), 16 * 1024**2, "size of waiting prompt texts; further ones get QUEUE_FULL"
    )
    prefill_chunk: int = engine_key("prefill_chunk", Count)
    step_tokens: int = engine_key("step_tokens", Count)
    prefill_per_decode: int = engine_key("prefill_per_decode")
    decode_per_tenant: int = engine_key("decode_per_tenant")
    max_wait: timedelta = engine_key("max_wait_ms")
    tenant_share: float = engine_key("tenant_share")


@dataclass(frozen=True, slots=True)
class KvSettings:
    bytes: int | Auto = key(
        AutoOr(Size(1024, 64 * 1024 * GIB)),
        AUTO,
        "KV cache; auto: half of the memory left by weights, more for max_context, at most 4 full sequences",
    )
    dtype: str | Auto = key(
        AutoOr(KV_DTYPE),
        AUTO,
        "type of cached keys and values; auto: f32 for encoders, bf16 for quantized weights, f16",
    )
    trial: bool = key(Boolean(), True, "try a type below q8_0 on the model, and refuse to start if it ruins the model")
    block_tokens: int = key(Enumeration(16, 32, 64, 128, 256), 16, "tokens in a block")
    prefix_cache: bool = engine_key("prefix_cache")
    state_snapshot_tokens: int = engine_key("state_snapshot_tokens")
    state_snapshot_bytes: int | Auto = key(
        AutoOr(Size(0, 64 * 1024 * GIB)),
        AUTO,
        "at most this for snapshots of recurrent states; auto: as much as running sequences have",
    )


@dataclass(frozen=True, slots=True)
class SpeculationSettings:
    drafters: tuple[str, ...] = key(
        ListOf(Enumeration(*DRAFTERS), len(DRAFTERS)),
        ("ngram",),
        f"drafters, in order of use: {', '.join(f'{name} ({what})' for name, what in DRAFTERS.items())}",
    )
    head: str | None = key(
        String("a path"),
        None,
        "folder of an EAGLE-3 head, or assistant of a Gemma 4; unset: the head in the model's own file",
        example="eagle3",
    )
    model: str | None = key(
        String("a path"),
        None,
        "a smaller model of the same vocabulary; unset: the built-in model's own, else none",
        example="draft.gguf",
    )
    kv_bytes: int | None = key(
        Size(1024, 64 * 1024 * GIB),
        None,
        "KV cache of the smaller model; unset: a quarter of kv.bytes",
        example=256 * 1024**2,
    )
    max_draft_tokens: int = key(Integer(1, LIMITS.draft_tokens), 32, "most guesses of a sequence in one step")
    with_media: bool = engine_key("draft_with_media")


@dataclass(frozen=True, slots=True)
class SparsePrefillSettings:
    enabled: bool = engine_key("sparse_prefill")
    policy: str = key(Enumeration("dense", "auto"), "dense", "policy of requests that set none; auto: sparse if faster")
    keep: float = key(Real(0, 1, above=True), 0.3, "share of a prompt that is evaluated, unless a request sets it")
    backbone: float = key(Real(0, 1), 0.0, "share of a prompt that is evaluated in any case, evenly spread over it")
    threshold: int = engine_key("sparse_threshold", Count)
    max_tokens: int = engine_key("sparse_max_tokens", Count)
    anchors: int = engine_key("sparse_anchors")


@dataclass(frozen=True, slots=True)
class SessionsSettings:
    max: int = engine_key("max_sessions")
    per_tenant: int = key(
        Integer(0, 65536), 32, "most sessions of one named tenant; further ones get TENANT_LIMIT", reloads=True
    )
    ttl: timedelta = key(
        Duration("10ms", "24h"), timedelta(seconds=60), "free a session that is unused for this long", reloads=True
    )
    max_ttl: timedelta = key(
        Duration("10ms", "720h"), timedelta(hours=1), "longest ttl that a request may ask for", reloads=True
    )
    evict: bool = engine_key("evict_sessions")


@dataclass(frozen=True, slots=True)
class TextSettings:
    threads: int = key(Integer(1, 64), 2, "threads of a server that tokenize, render and compile")
    template_iterations: int = key(Integer(1, 10**9), 10**6, "loop iterations of one rendering, sum of all loops")
    template_operand_bytes: int = key(Size(1, GIB), 1024**2, "result of one operation in a template")
    template_bytes: int = key(Size(1, GIB), 1024**2, "size of a chat template")
    template_time: timedelta = key(Duration("1ms", "1h"), timedelta(seconds=5), "time of one rendering")
    render_bytes: int = key(Size(1, GIB), 4 * 1024**2, "size of a rendered text")
    constraint_bytes: int = key(Size(1, GIB), 64 * 1024, "size of a grammar or JSON Schema")
    regex_bytes: int = key(Size(1, GIB), 8 * 1024, "size of a regular expression")
    nesting: int = key(Integer(1, 1024), 64, "nesting depth of a JSON Schema")
    compile_time: timedelta = key(
        Duration("1ms", "1h"), timedelta(seconds=1), "processor time to compile one constraint"
    )
    compile_bytes: int = key(Size(1024**2, GIB), 32 * 1024**2, "memory that compiling one constraint may take")
    cache_bytes: int = key(Size(0, GIB), 64 * 1024**2, "cache of compiled constraints, including those in use")


@dataclass(frozen=True, slots=True)
class MediaSettings:
    images: int = key(Integer(1, 1024), 16, "images of one request")
    request_bytes: int = key(Size(64 * 1024, GIB), 16 * 1024**2, "one message of a method that takes images")
    pixels: int = key(Count(1, 1024**3), 40_000_000, "pixels of one image")
    side: int = key(Count(1, 65_535), 16_384, "pixels of the longest side of an image")
    image_tokens: int = key(
        Integer(1, 16_384), 1024, "most tokens of one image, where the model's images have any size"
    )
    waiting_bytes: int = key(Size(1024**2, 64 * GIB), 128 * 1024**2, "images of requests, before they are encoded")
    cache_bytes: int | Auto = key(
        AutoOr(Size(0, 64 * 1024 * GIB)),
        AUTO,
        "encoded images that are kept; auto: two of the largest, at least 64 MiB",
    )
    decode_time: timedelta = key(
        Duration("10ms", "10m"), timedelta(seconds=10), "processor time to read the pixels of one image"
    )


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings of one process, frozen; two of them in one process make two different engines."""

    listen: ListenSettings = section(ListenSettings, "addresses of imp serve; TCP or Unix sockets")
    http: HttpSettings = section(HttpSettings, "OpenAI's API over HTTP, on the addresses of listen.http")
    front: FrontSettings = section(FrontSettings, "streams of HTTP that outlive a server: docs/survive.md")
    tls: TlsSettings = section(TlsSettings, "TLS; files are read again when they change")
    auth: AuthSettings = section(AuthSettings, "who may call; unset: everyone who can connect")
    model: ModelSettings = section(ModelSettings, "the model that is loaded")
    models: Mapping[str, ModelSettings] = named(
        ModelSettings,
        "further models, each with the keys of [model]: imp run -m NAME",
        name=MODEL_NAME,
        example=("NAME", None),
    )
    device: DeviceSettings = section(DeviceSettings, "where and how models are computed")
    limits: LimitsSettings = section(LimitsSettings, "what a request may ask for")
    scheduler: SchedulerSettings = section(SchedulerSettings, "which requests run, wait or are refused")
    kv: KvSettings = section(KvSettings, "keys and values of held tokens")
    speculation: SpeculationSettings = section(
        SpeculationSettings, "speculative decoding: guesses that the model verifies; the output stays the same"
    )
    sparse_prefill: SparsePrefillSettings = section(
        SparsePrefillSettings, "sparse prefill: only a part of a long prompt is evaluated"
    )
    media: MediaSettings = section(MediaSettings, "images in prompts, of models that read them")
    sessions: SessionsSettings = section(SessionsSettings, "sequences that a client drives step by step")
    text: TextSettings = section(TextSettings, "limits of templates and constraints")
    features: FeaturesSettings = section(
        FeaturesSettings, "optional features; use of one that is off fails with FEATURE_DISABLED"
    )
    chunk: ChunkSettings = section(ChunkSettings, "tokens of one message, unless a request sets it")
    slow_client: SlowClientSettings = section(SlowClientSettings, "clients that read too slowly")
    keepalive: KeepaliveSettings = section(KeepaliveSettings, "pings on idle connections")
    connection: ConnectionSettings = section(ConnectionSettings, "limits of connections")
    drain: DrainSettings = section(DrainSettings, "shutdown after SIGTERM or AdminService.Drain")
    watchdog: WatchdogSettings = section(WatchdogSettings, "limits after which requests and the engine count as stuck")
    log: LogSettings = section(LogSettings, "log lines on stderr; they never contain prompts")
    tracing: TracingSettings = section(TracingSettings, "OpenTelemetry")


TABLE = Section(Settings, "imp.conf", nodes_of(Settings))

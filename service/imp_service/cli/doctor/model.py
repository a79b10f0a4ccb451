"""Checks of the models, of the tokenizer and of the chat template."""

from dataclasses import replace
from typing import TYPE_CHECKING

from imp_service.cli.doctor.check import Check, blocked_by, run_check

if TYPE_CHECKING:
    from imp_service.config import Config
    from imp_service.generation.embedding_facts import EmbeddingFacts
    from imp_service.generation.text_report import TextReport


def check_models(config: "Config | None") -> Check:
    """The first model, and errors in the entries of [models]."""
    from imp_service.config.machine import resolve_threads
    from imp_service.core.device import resolve_device
    from imp_service.core.settings_faults import entry_faults, gpu_faults

    first = run_check("model", lambda: _model(config))
    if config is None or not config.settings.models:
        return first
    decided = resolve_device(resolve_threads(config))
    others = [*entry_faults(decided, has_device=not [*gpu_faults(decided)])]
    if not others:
        return first
    found = blocked_by("model", others)
    return found if first.status != "blocked" else replace(first, message=f"{first.message}; {found.message}")


def _model(config: "Config | None") -> Check:
    """Opens the model and plans its memory. Reads weights of the built-in model only, for its checksum."""
    from imp_service.config import Config
    from imp_service.config.config import build
    from imp_service.core import DeviceError, open_file
    from imp_service.core.inspect import inspect_model
    from imp_service.core.settings_faults import gpu_faults
    from imp_service.core.weights import sha256_of
    from imp_service.models import demo_model_sha256

    if config is None:  # with invalid settings, checks the built-in model
        config = Config(build({}), None, {})
    file = open_file(config)
    try:
        report = inspect_model(file, config)
    except DeviceError:
        if not [*gpu_faults(config)]:
            raise  # the check of the GPU reports a missing one
        return Check("model", "warning", "opens; without the device imp cannot check whether it fits")
    if not report.memory.fits:
        return Check("model", "blocked", f"NO_MEMORY: {report.memory.refusal}")
    if config.settings.model.path is not None:
        return Check("model", "ok", f"{config.settings.model.path}: {report.architecture}, fits")
    found, expected = sha256_of(file.files), demo_model_sha256()
    if found != expected:
        return Check("model", "blocked", f"WEIGHTS_CORRUPT: built-in model: sha256 {found}, expected {expected}")
    return Check("model", "ok", f"built-in: {report.architecture}, fits, sha256 {found[:16]}… as shipped")


def check_text(config: "Config | None") -> Check:
    """Checks the tokenizer and the chat template of the first model, as a server would use them."""
    from imp_service.config import Config
    from imp_service.config.config import build
    from imp_service.core import open_file
    from imp_service.core.directory import metadata_of
    from imp_service.core.inspect import inspect_model
    from imp_service.generation.text_report import describe_text
    from imp_service.generation.vector_report import describe_vectors

    config = config or Config(build({}), None, {})
    try:
        file = open_file(config)
        report = inspect_model(file, config)
    except Exception:
        return Check("text", "warning", "tokenizer and chat template were not checked: see the check of the model")
    metadata = metadata_of(file)
    text = describe_text(metadata, config.settings, report.vocab_size, report.n_tokens, has_head=report.has_head)
    if text.fault:
        return Check("text", "blocked", f"TOKENIZER_INVALID: {text.fault}: imp can neither read nor write text")
    if not report.has_head:
        return _vectors(text, describe_vectors(report, metadata, config.settings))
    return _chat_template(text, config)


def _vectors(text: "TextReport", facts: "EmbeddingFacts | None") -> Check:
    """Whether a model that generates no text does something else."""
    from imp_service.generation.vector_report import vectors_text

    assert facts is not None  # of a model without a head
    is_useful = facts.embeds or facts.reranks
    words = f"tokenizer: {text.tokenizer}; vectors: {vectors_text(facts)}"
    return Check("text", "ok" if is_useful else "warning", words)


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

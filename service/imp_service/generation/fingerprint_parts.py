"""The parts of a model's fingerprint: everything that decides tokens here besides the request.

A change of one is another fingerprint, so what changes no token is no part: not the load, threads, instruction set,
drafters and limits, nor the names and the layout of files.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

from imp_service import __version__
from imp_service.core.kernels import list_kernels
from imp_service.generation.fingerprint import CPU, DIGITS, Fingerprint, digest_of
from imp_service.generation.warm_up import warm_up
from imp_service.media import ImagesRefused
from imp_service.tables import ARITHMETIC_REVISION

if TYPE_CHECKING:
    from imp_service.generation.runtime import ModelRuntime
    from imp_service.generation.text_side import TextSide

# Facts of the model that change no token, or that a part of their own says in full.
_OTHER_FACTS = ("max_context", "head", "kv_dtype", "kv_layers", "n_tokens", "suppressed_tokens")
# Facts of a vision tower that a part of their own says in full, or that are limits.
_NOT_OF_TOWER = ("weights", "part_cells", "max_image_cells")
# Numbers of a list that are shown.
_SHOWN = 8


def warmed_up(model: ModelRuntime) -> Fingerprint:
    """The fingerprint of a loaded model, with the bits of its first step. Waits for the step."""
    with ThreadPoolExecutor(1, thread_name_prefix="fingerprint") as threads:
        # The digest of a large vocabulary takes as long as the step.
        inputs = threads.submit(_of_inputs, model)
        logits = warm_up(model)
        return fingerprint_of(model, logits, inputs.result())


def fingerprint_of(model: ModelRuntime, logits: str, inputs: Mapping[str, str] | None = None) -> Fingerprint:
    """The fingerprint with the logits of a first step. `inputs`: the parts of _of_inputs(), if they are known."""
    core, settings = model.core, model.config.settings
    weights = core.weights
    parts = {
        "imp": ".".join(__version__.split(".")[:2]),
        "arithmetic": str(ARITHMETIC_REVISION),
        "device": _device(str(settings.device.kind), is_deterministic=settings.model.overrides.deterministic),
        "kernels": _kernels(weights, str(settings.device.kind)),
        "cache": _runs(core.kv_dtypes),
        "tokens": str(model.n_tokens),
        "end_tokens": _numbers(model.eos_tokens),
        "suppressed_tokens": _numbers(sorted({*core.suppressed_tokens, *model.tokenizer.suppressed_ids})),
        "tensors": _tensors(weights),
        "logits": logits[:DIGITS] or "none",
        **_facts(core.facts),
        **(_of_inputs(model) if inputs is None else inputs),
    }
    return Fingerprint.of(parts)


def _of_inputs(model: ModelRuntime) -> dict[str, str]:
    """What makes tokens of texts, conversations, constraints and images."""
    return {
        "tokenizer": model.tokenizer.encoding_sha256[:DIGITS],
        "templates": _templates(model.text),
        "dialect": model.text.dialect.name if model.core.has_head else "none",
        **{name: _version(name) for name in ("llguidance", "tokenizers")},
        **_of_images(model),
    }


def _device(kind: str, *, is_deterministic: bool) -> str:
    """On a CPU every result is deterministic."""
    return f"{kind}, deterministic" if is_deterministic and kind != CPU else kind


def _facts(facts: Iterable[Mapping[str, str]]) -> dict[str, str]:
    values = {fact["name"]: fact["value"] for fact in facts}
    # Only this kind of scaling depends on the longest context.
    if values.get("rope_scaling") != "dynamic":
        values.pop("rope_context", None)
    return {f"model.{name}": value for name, value in values.items() if name not in _OTHER_FACTS}


def _kernels(weights: Iterable[Mapping[str, Any]], device: str) -> str:
    """How each weight is multiplied: kernels with one order of sums give equal bits."""
    orders = {kernel.name: kernel.reduction for kernel in list_kernels(device)}
    planned = sorted(
        (weight["tensor"], weight["dtype"], "/".join(dict.fromkeys(orders[name] for name in weight["kernels"])))
        for weight in weights
        if weight["kernels"]
    )
    counts = Counter(f"{dtype} by {order}" for _, dtype, order in planned)
    shown = ", ".join(f"{what} ({n})" for what, n in sorted(counts.items()))
    return f"{shown}: {digest_of(json.dumps(planned).encode())}"


def _tensors(weights: Sequence[Mapping[str, Any]]) -> str:
    tensors = sorted((each["tensor"], each["dtype"], each["n_matrices"], each["n"], each["k"]) for each in weights)
    return f"{len(tensors)}: {digest_of(json.dumps(tensors).encode())}"


def _templates(text: TextSide) -> str:
    sources = text.templates.sources_in_use
    return digest_of(b"\0".join(sources)) if sources else "none"


def _of_images(model: ModelRuntime) -> dict[str, str]:
    """What turns images into rows of the prompt; nothing if the model reads none."""
    vision = model.core.vision
    if vision is None or model.images is None:
        return {}
    facts = {name: value for name, value in vision.items() if name not in _NOT_OF_TOWER}
    weights, kind = vision["weights"], str(model.config.settings.device.kind)
    try:
        libraries = model.images.libraries()
    except ImagesRefused:  # they stay unknown: no image is decoded
        libraries = {}
    return {
        "projector": f"{vision['family']}: {digest_of(json.dumps(facts).encode())}",
        "projector_tensors": _tensors(weights),
        "projector_kernels": _kernels(weights, kind),
        **{f"images.{name}": word for name, word in libraries.items()},
    }


def _numbers(numbers: Sequence[int]) -> str:
    if len(numbers) <= _SHOWN:
        return ", ".join(map(str, numbers)) or "none"
    return f"{', '.join(map(str, numbers[:_SHOWN]))}, ... ({len(numbers)}): {digest_of(json.dumps(numbers).encode())}"


def _runs(words: Sequence[str]) -> str:
    """The word of all layers, or that of each run of layers with one word."""
    if len(set(words)) <= 1:
        return "".join(words[:1]) or "none"
    begins = [layer for layer, word in enumerate(words) if layer == 0 or words[layer - 1] != word]
    ends = [*(begin - 1 for begin in begins[1:]), len(words) - 1]
    return ", ".join(f"{begin}-{end}: {words[begin]}" for begin, end in zip(begins, ends, strict=True))


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "none"

"""The report of `imp inspect`, as text for people and as a JSON object for programs."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, TextIO

from imp_service.api.shown import count_text
from imp_service.cli.banner import describe_weights
from imp_service.cli.failure import warning_line
from imp_service.cli.output import bytes_text, memory_text, write_table
from imp_service.cli.sampling_text import sampling_rows
from imp_service.config.toml import excerpt

if TYPE_CHECKING:
    from imp_service.core import ModelFile, TensorInfo
    from imp_service.core.inspect import DraftReport, MemoryNeed, ModelReport, VisionReport, WeightPlan
    from imp_service.generation.defaults import DefaultSampler
    from imp_service.generation.text_report import TextReport


@dataclass(slots=True)
class TypeSummary:
    """All tensors of one type."""

    dtype: str
    n_tensors: int = 0
    n_elements: int = 0
    n_bytes: int = 0


def summarize(tensors: "Sequence[TensorInfo]") -> list[TypeSummary]:
    """One row for each type, most elements first."""
    by_type: dict[str, TypeSummary] = {}
    for tensor in tensors:
        row = by_type.setdefault(tensor.dtype, TypeSummary(tensor.dtype))
        row.n_tensors += 1
        row.n_elements += tensor.n_elements
        row.n_bytes += tensor.n_bytes
    return sorted(by_type.values(), key=lambda row: -row.n_elements)


def report_object(
    file: "ModelFile", report: "ModelReport", text: "TextReport", checked: str, with_tensors: bool
) -> Mapping[str, object]:
    """The object of --json. It lists every tensor only on request, since there may be thousands."""
    memory = report.memory
    return {
        "path": file.path,
        "format": file.format,
        "architecture": report.architecture,
        "vocab_size": report.vocab_size,
        "n_tokens": report.n_tokens,
        "tokenizer": text.tokenizer or None,
        "tokenizer_fault": text.fault or None,
        "has_chat_template": text.has_template,
        "chat_template_fault": text.template_fault or None,
        "dialect": text.dialect or None,
        "capabilities": list(text.capabilities),
        "ends": [asdict(end) for end in text.ends],
        "sampling": {
            name: {"value": getattr(text.sampler.options, name), "origin": origin}
            for name, origin in text.sampler.origins.items()
        },
        "facts": [asdict(fact) for fact in report.facts],
        "tensor_types": [asdict(row) for row in summarize(file.tensors)],
        **({"tensors": [asdict(weight) for weight in report.weights]} if with_tensors else {}),
        "memory": {
            "limit_bytes": memory.limit_bytes,
            "limit_reason": memory.limit_reason,
            "items": dict(memory.items),
            "total_bytes": memory.total_bytes,
            "context": memory.context,
            "kv_bytes_per_token": memory.kv_bytes_per_token,
            "state_slot_bytes": memory.state_slot_bytes,
            "fits": memory.fits,
            "refusal": memory.refusal or None,
            "largest_context": memory.largest_context,
        },
        "embeddings": None if text.vectors is None else asdict(text.vectors),
        "draft": None if report.draft is None else asdict(report.draft),
        "vision": None if report.vision is None else _vision_object(report.vision, with_tensors),
        "warnings": list(report.warnings),
        "checked": checked or None,
    }


def _vision_object(vision: "VisionReport", with_tensors: bool) -> Mapping[str, object]:
    found = asdict(vision)
    return found if with_tensors else {name: value for name, value in found.items() if name != "weights"}


_PURPOSES = {
    "draft weights": "of the smaller model that guesses ahead",
    "draft kv": "its cache",
    "weights": "in the layout of the kernels",
    "head": "weights, activations and cache of the layer that guesses ahead",
    "projector": "weights and activations of the vision tower",
    "media": "encoded images that are kept",
    "scratch": "activations of one step",
    "logits": "one row for each output",
    "reserve": "Python, and what the settings allow: texts, messages, constraints, a front",
}


def write_report(
    out: TextIO, file: "ModelFile", report: "ModelReport", text: "TextReport", checked: str, *, with_tensors: bool
) -> None:
    _write_head(out, file, report, text)
    if report.has_head:
        _write_ends(out, text)
        _write_sampling(out, text.sampler)
    if checked:
        out.write(f"checked: {checked}, tokenizer and chat template are good\n")
    out.write("\nfacts\n")
    facts = [(fact.name, fact.value, fact.origin, fact.source) for fact in report.facts]
    write_table(out, ("name", "value", "origin", "source"), facts, "  ")
    _write_tensors(out, file, report, with_tensors)
    if report.draft is not None:
        _write_draft(out, report.draft)
    if report.vision is not None:
        _write_vision(out, report.vision, with_tensors)
    _write_memory(out, report.memory)
    _write_warnings(out, report)


def write_brief_report(out: TextIO, file: "ModelFile", report: "ModelReport", text: "TextReport") -> None:
    """What it is, whether it can chat, and whether it fits."""
    _write_head(out, file, report, text)
    out.write(f"{verdict(report.memory)}\n")
    _write_warnings(out, report)


def _write_warnings(out: TextIO, report: "ModelReport") -> None:
    for warning in report.warnings:
        out.write(f"{warning_line(warning)}\n")


def _write_head(out: TextIO, file: "ModelFile", report: "ModelReport", text: "TextReport") -> None:
    """The file, the tokenizer, and what can be done with it."""
    name = file.path.rpartition("/")[2]
    out.write(f"{name}: {file.format}, {report.architecture}, {describe_weights(file.tensors)}\n")
    if text.fault:
        out.write(f"text: none, neither imp run nor imp chat works: {excerpt(text.fault, 400)}\n")
    else:
        out.write(f"text: {excerpt(text.tokenizer, 200)}\n")
        if report.has_head:
            _write_conversations(out, text)
    if text.vectors is not None:
        from imp_service.generation.vector_report import vectors_text

        out.write(f"vectors: {excerpt(vectors_text(text.vectors), 400)}\n")


def _write_conversations(out: TextIO, text: "TextReport") -> None:
    """The chat template and the dialect."""
    works = "no (imp run works, imp chat does not)" if not text.has_template else "yes"
    fault = f"broken (imp run works, imp chat does not): {excerpt(text.template_fault, 400)}"
    out.write(f"chat template: {fault if text.template_fault else works}\n")
    tells = "; imp tells the model about tools in words" if text.has_template else ""
    plain = f"plain (all output is content{tells})"
    calls = plain if text.dialect == "plain" else text.dialect
    out.write(f"dialect: {calls}\n")
    out.write(f"also: {', '.join(name.replace('_', ' ') for name in text.capabilities)}\n")


def _write_ends(out: TextIO, text: "TextReport") -> None:
    """The tokens that end a text."""
    out.write("\nend tokens\n" if text.ends else "\nend tokens: none, a text runs to its limit\n")
    rows = [(str(end.token_id), excerpt(end.text, 64), excerpt(", ".join(end.sources), 300)) for end in text.ends]
    write_table(out, ("id", "token", "source"), rows, "  ")


def _write_sampling(out: TextIO, sampler: "DefaultSampler") -> None:
    """What a request that sets no sampling option gets."""
    rows = sampling_rows(sampler.options, sampler.origins)
    out.write("\ndefault sampling\n" if rows else "\ndefault sampling: from the whole vocabulary at temperature 1\n")
    if rows:
        write_table(out, ("option", "value", "origin"), rows, "  ")


def _write_tensors(out: TextIO, file: "ModelFile", report: "ModelReport", with_tensors: bool) -> None:
    out.write("\ntensors\n")
    rows = [
        (row.dtype, str(row.n_tensors), count_text(row.n_elements), bytes_text(row.n_bytes))
        for row in summarize(file.tensors)
    ]
    write_table(out, ("type", "tensors", "elements", "in the file"), rows, "  ")
    _write_kernels(out, report.weights, with_tensors)


def _write_kernels(out: TextIO, weights: "Sequence[WeightPlan]", with_tensors: bool) -> None:
    kernels: dict[tuple[str, str], int] = {}
    for weight in weights:
        if weight.kernels:
            key = weight.dtype, ", ".join(weight.kernels)
            kernels[key] = kernels.get(key, 0) + 1
    for (dtype, names), count in kernels.items():
        out.write(f"  {count} {dtype} weight{'s' if count != 1 else ''} multiplied by {names}\n")
    if with_tensors:
        out.write("\n")
        every = [
            (
                weight.tensor,
                weight.dtype,
                shape_text(weight),
                ", ".join(weight.kernels) or "-",
                weight.layout,
                memory_text(weight.n_bytes),
            )
            for weight in weights
        ]
        write_table(out, ("tensor", "type", "shape", "kernels", "layout", "loaded"), every, "  ")


def _write_vision(out: TextIO, vision: "VisionReport", with_tensors: bool) -> None:
    """The tower, and what an image costs."""
    out.write("\nvision tower\n")
    size, meaning = _image_size(vision)
    rows = [
        ("family", vision.family, f"{vision.n_layers} layers of width {vision.hidden_size}"),
        ("image", size, f"{meaning}, with patches of {vision.patch_size}"),
        ("tokens", f"{vision.part_cells}", f"of a part; {vision.max_image_cells} of the largest image"),
    ]
    write_table(out, (), rows, "  ")
    _write_kernels(out, vision.weights, with_tensors)


def _image_size(vision: "VisionReport") -> tuple[str, str]:
    """The size to which an image is resized, and what it is."""
    match vision.sizing:
        case "tiles":
            tile = vision.tile_size
            return f"{vision.longest_side}", f"pixels of its longest side, as tiles of {tile} x {tile}"
        case "fixed":
            return f"{vision.tile_size}", "pixels of each side"
        case "range":
            return f"{vision.min_pixels}-{vision.max_pixels}", "pixels"
        case _:
            return f"{vision.soft_tokens}", "tokens, near which its sides are chosen"


def _write_draft(out: TextIO, draft: "DraftReport") -> None:
    """The model that guesses ahead: its vocabulary was compared already."""
    share = draft.bytes_per_token / max(1, draft.model_bytes_per_token)
    out.write("\ndraft model\n")
    rows = [
        ("file", draft.path.rpartition("/")[2], draft.architecture),
        ("vocabulary", "matches", "its ordinary tokens equal those of the model"),
        (
            "cost",
            f"{share:.2f}",
            f"of a token: reads {bytes_text(draft.bytes_per_token)} for each token, the model reads "
            f"{bytes_text(draft.model_bytes_per_token)}",
        ),
        ("context", str(draft.max_context), "no guesses beyond it"),
    ]
    write_table(out, (), rows, "  ")


def _write_memory(out: TextIO, memory: "MemoryNeed") -> None:
    out.write("\nmemory\n")
    rows = []
    purposes = {
        "kv": f"{memory_text(memory.kv_bytes_per_token)} a token",
        "state": f"{memory_text(memory.state_slot_bytes)} a slot; each sequence needs two, each snapshot one",
    }
    for name, n_bytes in memory.items.items():
        purpose = _PURPOSES.get(name) or purposes[name]
        rows.append((name, memory_text(n_bytes), purpose))
    rows.append(("in all", memory_text(memory.total_bytes), f"limit: {memory.limit_reason}"))
    write_table(out, (), rows, "  ")
    out.write(f"\n{verdict(memory)}\n")


def verdict(memory: "MemoryNeed") -> str:
    """Whether it fits, and up to which context."""
    limit = "this machine" if memory.limit_bytes is None else memory_text(memory.limit_bytes)
    if memory.fits:
        return f"fits in {limit} with a context of {memory.context} tokens"
    if memory.largest_context > 0:
        return (
            f"does not fit in {limit} with a context of {memory.context} tokens; the largest that fits is "
            f"{memory.largest_context}: -c {memory.largest_context}"
        )
    return f"does not fit in {limit} with any context: {memory.refusal}"


def shape_text(weight: "WeightPlan") -> str:
    """Rows by columns; before them the number of matrices, if several."""
    if not weight.kernels:
        return str(weight.n)
    return f"{weight.n_matrices}x{weight.n}x{weight.k}" if weight.n_matrices > 1 else f"{weight.n}x{weight.k}"

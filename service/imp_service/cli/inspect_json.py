"""What `imp inspect --json` prints: everything of the report, sizes in bytes."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING

from imp_service.cli.tensor_summary import summarize

if TYPE_CHECKING:
    from imp_service.core import ModelFile
    from imp_service.core.inspect import ModelReport
    from imp_service.generation.text_report import TextReport


def report_object(
    file: "ModelFile", report: "ModelReport", text: "TextReport", checked: str, with_tensors: bool
) -> Mapping[str, object]:
    """One object; `tensors` holds every one of them only where asked for, for there may be thousands."""
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
        "ends": [asdict(end) for end in text.ends],
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
            "fits": memory.fits,
            "refusal": memory.refusal or None,
            "largest_context": memory.largest_context,
        },
        "warnings": list(report.warnings),
        "checked": checked or None,
    }

"""A tiny model that reads images, and all that may guess for it: prompt lookup, two heads, and a draft model."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from support.files.hub_directory import model_for, write_twin
from support.models.tiny_heads import TinyEagle, TinyNextN
from support.models.tiny_models import TinyModel
from support.models.tiny_vision_models import END, TEMPLATE, TOWER, vocabulary

KINDS = ("ngram", "nextn", "eagle", "model")
_TAPS = (0, 1, 2)


@dataclasses.dataclass(frozen=True)
class VisionDrafters:
    """The files. That of the model has a NextN head, and a projector lies beside it."""

    model: Path
    eagle: Path
    draft: Path
    without_head: Path

    def settings(self, kind: str | None) -> list[str]:
        """The settings with this drafter alone; None: without one."""
        if kind is None:
            return ["speculation.drafters=[]"]
        named = {"eagle": [f"speculation.head={self.eagle}"], "model": [f"speculation.model={self.draft}"]}
        name = "head" if kind in ("nextn", "eagle") else kind
        return [f'speculation.drafters=["{name}"]', *named.get(kind, [])]


def write_vision_drafters(folder: Path, architecture: str = "llama", n_layers: int = 3) -> VisionDrafters:
    """Writes them. The layer after `n_layers` must be one with attention, as the head's is."""
    words, sizes = vocabulary(), {"context": 1024, "padding": 0}
    model = model_for(words, architecture, n_layers=n_layers, hidden_size=TOWER.width, **sizes)
    draft = model_for(words, "llama", n_layers=1, hidden_size=24, **sizes)
    for each in ("with_head", "without_head"):
        (folder / each).mkdir(parents=True)
        TOWER.projector().write(folder / each / "mmproj-tiny.gguf")
    return VisionDrafters(
        model=_write(folder / "with_head" / "tiny.gguf", TinyNextN(model)),
        eagle=TinyEagle(model, taps=_TAPS).write(folder / "eagle3"),
        draft=_write(folder / "draft.gguf", draft),
        without_head=_write(folder / "without_head" / "tiny.gguf", model),
    )


def _write(path: Path, model: TinyModel | TinyNextN) -> Path:
    return write_twin(path, vocabulary(), model, pre="qwen2", template=TEMPLATE, eos=END)

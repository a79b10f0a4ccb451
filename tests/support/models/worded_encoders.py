"""Writes folders of tiny encoders with random weights and a vocabulary like BERT's, which make vectors or rank."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from support.models.tiny_encoders import TinyEncoder
from support.text.hub_tokenizers import library_of

KIND = "word piece"


def write_encoder(folder: Path, pooling: str = "mean", *, prompts: dict[str, str] | None = None, **sizes: Any) -> Path:
    """Writes the folder. `prompts` are those that the model names."""
    library = library_of(KIND)
    TinyEncoder(pooling=pooling, vocab_size=library.get_vocab_size(), **sizes).write_folder(folder)
    (folder / "tokenizer.json").write_text(library.to_str())
    if prompts is not None:
        (folder / "config_sentence_transformers.json").write_text(json.dumps({"prompts": prompts}))
    return folder

"""Tiny models that read images, like SmolVLM: as a GGUF file with its projector, and as a model directory."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from support.files.hf_contents import write_hf
from support.files.hub_directory import hf_config, hf_tensors, model_for, write_twin
from support.models.tiny_idefics3_tower import Idefics3Tower
from support.models.tiny_models import TinyModel
from support.models.tiny_tower import TinyTower
from support.text.hub_tokenizers import byte_level, files_of, with_tokens

# An image has four tiles at most, and an overview: 80 cells.
TOWER: TinyTower = Idefics3Tower(longest_side=112)
END = "<end_of_utterance>"
AROUND = "<fake_token_around_image>"
PLACES = tuple(f"<row_{row}_col_{column}>" for row in (1, 2) for column in (1, 2))
SPECIAL = (END, "<image>", AROUND, "<global-img>", *PLACES)

_MESSAGE = (
    "{% for message in messages %}<|im_start|>{{ message.role | capitalize }}:TEXT" + END + "\n{% endfor %}"
    "{% if add_generation_prompt %}Assistant:{% endif %}"
)
_PARTS = (
    "{% for part in message.content %}{% if part.type == 'image' %}<image>"
    "{% elif part.type == 'text' %} {{ part.text }}{% endif %}{% endfor %}"
)
_WORDS = "{% if message.content is string %} {{ message.content }}{% else %}" + _PARTS + "{% endif %}"
TEMPLATE = _MESSAGE.replace("TEXT", _WORDS)
# As older files have it: a message without parts loses its text.
TEMPLATE_OF_PARTS = _MESSAGE.replace("TEXT", _PARTS)


@functools.cache
def vocabulary() -> Tokenizer:
    return with_tokens(byte_level(), SPECIAL)


def text_model(tower: TinyTower = TOWER, **changes: Any) -> TinyModel:
    """The decoder, as wide as the tower's cells."""
    return model_for(vocabulary(), "llama", **{"hidden_size": tower.width, "context": 1024, **changes})


def write_model_file(path: Path, tower: TinyTower = TOWER, *, template: str = TEMPLATE, **changes: Any) -> Path:
    """Writes the decoder with its vocabulary as a GGUF file."""
    return write_twin(path, vocabulary(), text_model(tower, **changes), pre="qwen2", template=template, eos=END)


def write_vision_files(
    folder: Path, tower: TinyTower = TOWER, *, template: str = TEMPLATE, **changes: Any
) -> tuple[Path, Path]:
    """Writes the decoder and its projector into a folder, as they are downloaded."""
    folder.mkdir(parents=True, exist_ok=True)
    model = write_model_file(folder / "tiny.gguf", tower, template=template, **changes)
    return model, tower.projector().write(folder / "mmproj-tiny.gguf")


def write_vision_directory(folder: Path, tower: TinyTower = TOWER, *, template: str = TEMPLATE, **changes: Any) -> Path:
    """Writes the same model as a directory of a hub. Returns the directory."""
    folder.mkdir(parents=True, exist_ok=True)
    library, model = vocabulary(), text_model(tower, **changes)
    end = library.token_to_id(END)
    config = {**tower.config(), "text_config": {**hf_config(model), "eos_token_id": end}}
    config |= {"image_token_id": library.token_to_id("<image>"), "tie_word_embeddings": model.tied}
    texts = {_in_whole_model(name): values for name, values in hf_tensors(model).items()}
    write_hf(folder / "model.safetensors", config, {**texts, **tower.tensors()})
    (folder / "preprocessor_config.json").write_text(json.dumps(tower.processor()))
    for name, content in files_of(library, eos_token=END).items():
        (folder / name).write_bytes(content)
    (folder / "chat_template.jinja").write_text(template)
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": end}))
    return folder


def _in_whole_model(name: str) -> str:
    return name.replace("model.", "model.text_model.", 1) if name.startswith("model.") else name

"""Writes a model directory as a hub has it (random weights, real tokenizer, templates), or the model as a GGUF file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from support.files.hf_contents import hf_config, hf_tensors, write_hf
from support.models.tiny_heads import TinyNextN
from support.models.tiny_models import TinyModel, tiny
from support.text.hub_tokenizers import files_of
from support.text.tiny_vocabularies import BYTE, CONTROL, NORMAL, UNKNOWN, USER_DEFINED

CHATML = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
P = "tokenizer.ggml."


def model_for(library: Tokenizer, architecture: str = "qwen3", *, padding: int = 9, **changes: Any) -> TinyModel:
    """Returns a tiny model with an embedding row for each token and `padding` further rows."""
    return tiny(architecture, vocab_size=library.get_vocab_size() + padding, **changes)


def write_directory(
    folder: Path,
    library: Tokenizer,
    model: TinyModel,
    *,
    template: str | None = CHATML,
    generation: dict[str, Any] | None = None,
    eos: str = "<|im_end|>",
    **config: Any,
) -> Path:
    """Writes the directory. `config` holds keys of tokenizer_config.json."""
    folder.mkdir(parents=True, exist_ok=True)
    eos_id = library.token_to_id(eos)
    described = hf_config(model)
    described.get("text_config", described)["eos_token_id"] = eos_id
    write_hf(folder / "model.safetensors", described, hf_tensors(model))
    for name, content in files_of(library, eos_token=eos, **config).items():
        (folder / name).write_bytes(content)
    if template is not None:
        (folder / "chat_template.jinja").write_text(template)
    (folder / "generation_config.json").write_text(json.dumps(generation or {"eos_token_id": eos_id}))
    return folder


def write_twin(
    path: Path,
    library: Tokenizer,
    model: TinyModel | TinyNextN,
    *,
    pre: str,
    template: str | None = CHATML,
    eos: str = "<|im_end|>",
) -> Path:
    """Writes the same model as a GGUF file; `pre` names the pre-tokenizer, or is "" for SentencePiece."""
    contents = model.contents()
    keys = {key: value for key, value in contents.keys.items() if not key.startswith(P)}
    contents.keys = {**keys, **words_of(library, pre, model.vocab_size, eos)}
    if template is not None:
        contents.keys["tokenizer.chat_template"] = template
    return contents.write(path)


def words_of(library: Tokenizer, pre: str, n_rows: int, eos: str) -> dict[str, Any]:
    """Returns the tokenizer as keys of GGUF."""
    described = json.loads(library.to_str())
    added = {token["id"]: token["special"] for token in described["added_tokens"]}
    tokens = [library.id_to_token(i) for i in range(library.get_vocab_size())]
    types = [NORMAL] * len(tokens)
    for i, special in added.items():
        types[i] = CONTROL if special else USER_DEFINED
    words: dict[str, Any] = {
        P + "tokens": tokens,
        P + "token_type": types,
        P + "eos_token_id": library.token_to_id(eos),
    }
    if library.token_to_id("<s>") is not None:
        words[P + "bos_token_id"] = library.token_to_id("<s>")
    if pre:
        merges = [" ".join(pair) for pair in described["model"]["merges"]]
        return {**words, P + "model": "gpt2", P + "pre": pre, P + "merges": merges}
    types[library.token_to_id("<unk>")] = UNKNOWN
    for byte in range(256):
        types[library.token_to_id(f"<0x{byte:02X}>")] = BYTE
    return {
        **words,
        P + "model": "llama",
        P + "scores": [-float(i) for i in range(len(tokens))],
        P + "unknown_token_id": library.token_to_id("<unk>"),
        P + "add_bos_token": True,
    }

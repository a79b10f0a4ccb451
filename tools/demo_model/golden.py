"""Writes the golden data of the tests: held-out text, greedy ids with margins, and bits per byte, all in float64."""

import hashlib
import json
import re
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from .corpus.chat import format_turns
from .corpus.documents import Part
from .evaluation import bits_per_byte, greedy, nats
from .export import read_back
from .vocabulary import END_OF_TEXT, TURN_END, special_id

PROMPTS = ["Once upon a time", "The weather today", "It is a truth universally acknowledged"]
QUESTIONS = ["What is imp?", "What is 3 plus 4?"]
MAX_TOKENS = 64
HELD_OUT_BYTES = {"stories": 8000, "descriptions": 4000, "austen": 8000}  # generated or public domain: free to commit


def chat_prompt(question: str) -> str:
    """Returns the chat template's text for one question, with the assistant's turn opened."""
    asked = format_turns([(question, "")])
    return asked[: asked.rindex(TURN_END)]


def held_out_text(parts: list[Part]) -> str:
    """Returns about 20 kB from no training document; documents are separated by an empty line."""
    by_name = {part.name: part.held_out for part in parts}
    documents = []
    for name, limit in HELD_OUT_BYTES.items():
        chosen = by_name[name][:1] if name == "austen" else by_name[name]
        text = "\n\n".join(chosen).encode()[:limit].decode(errors="ignore")
        documents.append(text[: text.rindex(".") + 1])
    return "\n\n".join(documents) + "\n"


def golden_of(model: Path, tokenizer: Tokenizer, held_out: str) -> dict[str, Any]:
    """Returns the golden data of one model file."""
    network = read_back(model).double()
    end_of_text, turn_end = (special_id(tokenizer, token) for token in (END_OF_TEXT, TURN_END))
    prompts = []
    for text in [*PROMPTS, *map(chat_prompt, QUESTIONS)]:
        ids = tokenizer.encode(text).ids
        result = greedy(network, ids, MAX_TOKENS, (end_of_text, turn_end))
        prompts.append(
            {
                "text": text,
                "prompt_ids": ids,
                "output_ids": result.output,
                "margins": [round(margin, 6) for margin in result.margins],
                "output_text": tokenizer.decode(result.output),
            }
        )
    held_out_ids = tokenizer.encode(held_out).ids
    total = nats(network, held_out_ids, end_of_text)
    return {
        "sha256": hashlib.sha256(model.read_bytes()).hexdigest(),
        "prompts": prompts,
        "held_out": {
            "n_bytes": len(held_out.encode()),
            "n_tokens": len(held_out_ids),
            "nats": total,
            "bits_per_byte": bits_per_byte(total, len(held_out.encode())),
        },
    }


def write_golden(models: dict[str, Path], parts: list[Part], tokenizer: Tokenizer, folder: Path) -> None:
    """Writes held_out.txt and demo_golden.json into `folder`; `models` maps a name to its file."""
    held_out = held_out_text(parts)
    (folder / "held_out.txt").write_text(held_out, encoding="utf-8")
    golden = {
        "about": "Computed in float64 by the PyTorch network of tools/demo_model on the files' dequantized weights. "
        "The held-out text is scored in windows of max_context - 1 tokens, each after one <|endoftext|>. "
        "margins[i] is the best logit minus the second best where output_ids[i] was chosen.",
        "models": {name: golden_of(path, tokenizer, held_out) for name, path in models.items()},
    }
    written = _numbers_on_one_line(json.dumps(golden, indent=1))
    (folder / "demo_golden.json").write_text(f"{written}\n", encoding="utf-8")


def _numbers_on_one_line(text: str) -> str:
    """JSON whose lists of numbers take a line each."""
    return re.sub(r"\[[-\d.e,\s]+\]", lambda found: " ".join(found[0].split()), text)

"""Tiny models of the families that read images, whole: tower, decoder, vocabulary and template, in both formats."""

from __future__ import annotations

import copy
import dataclasses
import functools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from support.files.hf_weights import fill
from support.files.hub_directory import model_for, words_of, write_twin
from support.media.image_files import pixels_of
from support.models.cell_peers import CELL_CASES, CellCase
from support.models.family_cases import SIZES, bound
from support.models.family_text import EOS, text_case
from support.models.tiny_gemma3_tower import Gemma3Tower
from support.models.tiny_gemma4_tower import Gemma4Tower
from support.models.tiny_models import TinyModel
from support.models.tiny_qwen_tower import QwenTower
from support.models.tiny_tower import Pixels, TinyTower
from support.models.tower_peers import image_processor
from support.oracles.forward_bounds import float16_cache_bound
from support.text.hub_tokenizers import byte_level, files_of, with_tokens

CONTEXT = 1024
PADDING = "<pad>"
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{% if message.content is string %}"
    "{{ message.content }}{% else %}{% for part in message.content %}{% if part.type == 'image' %}IMAGE"
    "{% elif part.type == 'text' %}{{ part.text }}{% endif %}{% endfor %}{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
QUESTION, BETWEEN = "What is this? And what does it look like", " and then "


@dataclasses.dataclass(frozen=True)
class Layout:
    """What families write for an image."""

    in_template: str
    begin: str  # what stands before the cells in the prompt, and what behind them
    cell: str
    end: str
    special: tuple[str, ...]


QWEN = Layout(
    "<|vision_start|><|image_pad|><|vision_end|>", "<|vision_start|>", "<|image_pad|>", "<|vision_end|>",
    ("<|vision_start|>", "<|image_pad|>", "<|vision_end|>"),
)  # fmt: skip
GEMMA3 = Layout(
    "<start_of_image>", "\n\n<start_of_image>", "<image_soft_token>", "<end_of_image>\n\n",
    ("<start_of_image>", "<image_soft_token>", "<end_of_image>"),
)  # fmt: skip
GEMMA4 = Layout("<|image|>", "<|image>", "<|image|>", "<image|>", ("<|image>", "<|image|>", "<image|>"))
_LAYOUTS: dict[type[TinyTower], Layout] = {QwenTower: QWEN, Gemma3Tower: GEMMA3, Gemma4Tower: GEMMA4}


@dataclasses.dataclass(frozen=True)
class WholeCase:
    """A family. `name` is that of its decoder in CELL_CASES."""

    name: str
    tower: TinyTower
    max_tokens: int | None = None  # of an image, as a request has it

    @property
    def decoder(self) -> CellCase:
        return CELL_CASES[self.name]

    @property
    def layout(self) -> Layout:
        return _LAYOUTS[type(self.tower)]

    @property
    def template(self) -> str:
        return TEMPLATE.replace("IMAGE", self.layout.in_template)

    @property
    def words(self) -> Tokenizer:
        return _vocabulary(self.layout.special)

    def peer(self) -> Any:
        """Returns the whole model of the library, whose parameters have the numbers of `TinyTower.tensors`."""
        import torch
        import transformers

        torch.set_num_threads(1)
        transformers.utils.logging.set_verbosity_error()
        transformers.utils.logging.disable_progress_bar()
        family = text_case(self.decoder.family, self.words.get_vocab_size())
        text = copy.deepcopy(SIZES | family.traits | {"max_position_embeddings": CONTEXT})
        text["pad_token_id"] = self.words.token_to_id(PADDING)
        text["eos_token_id"] = self.words.token_to_id(EOS)
        del text["attn_implementation"]
        more: dict[str, Any] = {"tie_word_embeddings": text["tie_word_embeddings"]}
        more["image_token_id"] = self.words.token_to_id(self.layout.cell)
        if isinstance(self.tower, Gemma3Tower):
            more |= {"mm_tokens_per_image": self.tower.n_cells, "image_token_index": more["image_token_id"]}
        config = getattr(transformers, f"{family.model}Config")(
            text_config=text, vision_config=self.tower.vision_config(), **more
        )
        peer = getattr(transformers, f"{family.model}ForConditionalGeneration")(config).eval()
        peer.set_attn_implementation("eager")
        fill(peer)
        return peer

    def write_files(self, folder: Path, peer: Any) -> Path:
        """Writes the decoder and its projector into a folder. Returns the decoder's path."""
        folder.mkdir(parents=True, exist_ok=True)
        contents = self.decoder.family.exported(peer)
        words = words_of(self.words, "qwen2", self.words.get_vocab_size(), EOS)
        words |= {"tokenizer.chat_template": self.template}
        words["tokenizer.ggml.padding_token_id"] = self.words.token_to_id(PADDING)
        contents.keys = {**contents.keys, **words}
        self.tower.projector().write(folder / "mmproj-tiny.gguf")
        return contents.write(folder / "tiny.gguf")

    def write_directory(self, folder: Path, peer: Any) -> Path:
        """Writes what the library saves, and the files of its processor."""
        peer.save_pretrained(folder)
        (folder / "preprocessor_config.json").write_text(json.dumps(self.tower.processor()))
        for name, content in files_of(self.words, eos_token=EOS).items():
            (folder / name).write_bytes(content)
        (folder / "chat_template.jinja").write_text(self.template)
        return folder

    def bound(self, peer: Any) -> float:
        """Towers keep their keys and values in float16, apart from those of Gemma 4."""
        keeps_floats = isinstance(self.tower, Gemma4Tower)
        return bound(peer) + (0 if keeps_floats else float16_cache_bound(self.tower.as_decoder()))

    def read(self, pictures: Sequence[Pixels]) -> PeerImages:
        """Returns what the library's image processor makes of pictures."""
        if not pictures:
            return PeerImages({}, [])
        given = {"max_soft_tokens": self.max_tokens} if self.max_tokens else {}
        read = image_processor(self.tower)(
            list(pictures), return_tensors="pt", input_data_format="channels_last", **given
        )
        if isinstance(self.tower, QwenTower):
            counts = (read["image_grid_thw"].prod(dim=1) // self.tower.reduction**2).tolist()
            inputs = {name: read[name] for name in ("pixel_values", "image_grid_thw")}
            return PeerImages(inputs, counts)
        if isinstance(self.tower, Gemma4Tower):
            inputs = {name: read[name] for name in ("pixel_values", "image_position_ids")}
            return PeerImages(inputs, [int(n) for n in read["num_soft_tokens_per_image"]])
        return PeerImages({"pixel_values": read["pixel_values"]}, [self.tower.n_cells] * len(pictures))

    def prompt(self, counts: Sequence[int]) -> list[int]:
        """Returns the tokens of a conversation that shows images with so many cells, by the library's tokenizer."""
        around = self.layout
        images = BETWEEN.join(f"{around.begin}{around.cell * n}{around.end}" for n in counts)
        text = f"<|im_start|>user\n{images}{QUESTION}<|im_end|>\n<|im_start|>assistant\n"
        return list(self.words.encode(text, add_special_tokens=False).ids)


@dataclasses.dataclass(frozen=True)
class PeerImages:
    inputs: dict[str, Any]  # of the model's forward pass
    counts: list[int]  # cells of each image


@dataclasses.dataclass(frozen=True)
class PeerPrompt:
    """A conversation as the library reads it."""

    tokens: list[int]
    is_cell: NDArray[np.bool_]
    inputs: dict[str, Any]

    @property
    def scored(self) -> list[int]:
        """The rows that predict a token of the text, or the first output."""
        return [row for row in range(len(self.tokens)) if row + 1 == len(self.tokens) or not self.is_cell[row + 1]]


def peer_prompt(case: WholeCase, pictures: Sequence[Pixels]) -> PeerPrompt:
    import torch

    images = case.read(pictures)
    tokens = case.prompt(images.counts)
    is_cell = np.array(tokens) == case.words.token_to_id(case.layout.cell)
    kinds = "token_type_ids" if isinstance(case.tower, Gemma3Tower) else "mm_token_type_ids"
    inputs = {"input_ids": torch.tensor([tokens]), **images.inputs}
    if pictures:
        inputs[kinds] = torch.from_numpy(is_cell[None].astype(np.int32))
    return PeerPrompt(tokens, is_cell, inputs)


def peer_logits(peer: Any, prompt: PeerPrompt) -> NDArray[np.float64]:
    """Returns the logits of `PeerPrompt.scored`."""
    import torch

    with torch.no_grad():
        rows: NDArray[np.float64] = peer(**prompt.inputs).logits[0].double().numpy()
    return rows[prompt.scored]


@functools.cache
def _vocabulary(special: tuple[str, ...]) -> Tokenizer:
    return with_tokens(byte_level(), (PADDING, *special))


def pictures(n: int) -> list[Pixels]:
    """Returns pictures of different shapes: wide, high, and small."""
    return [pixels_of(*size, seed=seed)[..., :3].copy() for seed, size in enumerate(((90, 56), (40, 77), (57, 31))[:n])]


# The decoders that CELL_CASES has, with a tower.
WHOLE_CASES: dict[str, WholeCase] = {
    "qwen3_vl": WholeCase("qwen3_vl", QwenTower()),
    "qwen3_vl_moe": WholeCase("qwen3_vl_moe", QwenTower("qwen3_vl_moe", taps=(0, 1, 2), n_layers=4)),
    "qwen3_5": WholeCase("qwen3_5_that_sees", QwenTower("qwen3_5", taps=(), n_layers=2)),
    "gemma3": WholeCase("gemma3_that_sees", Gemma3Tower()),
    "gemma4": WholeCase("gemma4_that_sees", Gemma4Tower(n_places=900), max_tokens=70),
    "gemma4_31b": WholeCase("gemma4_31b_that_sees", Gemma4Tower(n_places=900, is_clipped=False), max_tokens=70),
}


@dataclasses.dataclass(frozen=True)
class TinySight:
    """A family that needs no library of towers: its decoder by the name in GGUF, with a projector."""

    architecture: str
    tower: TinyTower
    cells: tuple[tuple[int, int], ...]  # rows and columns of each of pictures(3)
    max_tokens: int | None = None  # of an image, as a request has it
    changes: dict[str, Any] = dataclasses.field(default_factory=dict)
    has_grids: bool = False  # positions follow rows and columns

    @property
    def layout(self) -> Layout:
        return _LAYOUTS[type(self.tower)]

    @property
    def words(self) -> Tokenizer:
        return _vocabulary(self.layout.special)

    @property
    def decoder(self) -> TinyModel:
        sizes = {"hidden_size": self.tower.slice_width, "context": CONTEXT, "padding": 0, **self.changes}
        return model_for(self.words, self.architecture, **sizes)

    def write(self, folder: Path) -> Path:
        """Writes the decoder and its projector into a folder. Returns the decoder's path."""
        folder.mkdir(parents=True, exist_ok=True)
        self.tower.projector().write(folder / "mmproj-tiny.gguf")
        template = TEMPLATE.replace("IMAGE", self.layout.in_template)
        return write_twin(folder / "tiny.gguf", self.words, self.decoder, pre="qwen2", template=template, eos=EOS)


_ANY_SIZE, _FIXED, _SOFT = ((4, 6), (6, 3), (2, 4)), ((4, 4),) * 3, ((6, 10), (11, 6), (6, 11))
TINY_SIGHTS: dict[str, TinySight] = {
    "qwen3_vl": TinySight("qwen3vl", QwenTower(taps=(0, 1, 2), n_layers=4), _ANY_SIZE, has_grids=True),
    "qwen3_5": TinySight("qwen35", QwenTower("qwen3_5", taps=(), n_layers=2), _ANY_SIZE, has_grids=True),
    "gemma3": TinySight("gemma3", Gemma3Tower(), _FIXED),
    "gemma4": TinySight("gemma4", Gemma4Tower(n_places=900), _SOFT, 70),
}

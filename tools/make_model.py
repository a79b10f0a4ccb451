"""Writes models for comparisons: `python tools/make_model.py SHAPE TYPE [-o FILE]`.

`demo` is the built-in model in another type. All others have random weights in real shapes: they are as fast as real
models, but their text has no meaning. Their vocabularies have the real sizes and split lowercase words into groups of
two and four letters, so that servers can be measured too. The `gguf` package writes plain types; llama.cpp quantizes
the others with its usual mix of types. The models of `compare/family_shapes.py` need transformers too. The extra
`peers` has these packages.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import string
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from compare.family_shapes import FAMILIES, VOCABULARY, family
from imp_service.core.synthetic import MIXES, SHAPES, Shape, metadata, tensors
from imp_service.models import demo_model_path
from support.run.needed import PEERS, needs
from support.text.tiny_vocabularies import byte_level, sentencepiece

if TYPE_CHECKING:
    import gguf

# Not a real shape: it only shows that a program runs.
TINY = Shape("Tiny", "qwen3", 2, 256, 512, 4, 2, 128, 640, 1024, 1e4, 1e-6, True)
# A small Qwen3-30B-A3B: a token uses 0.3 of 1.4 billion weights. K-quants need rows of 256.
EXPERTS = Shape("Qwen3-MoE-Small", "qwen3moe", 12, 1024, 3072, 16, 4, 128, 151936, 40960, 1e6, 1e-6, True,
                n_experts=64, n_experts_used=8, expert_ffn_size=512)  # fmt: skip
MODELS: Mapping[str, Shape] = {shape.model.lower(): shape for shape in (*SHAPES.values(), EXPERTS, TINY)}
PLAIN = ("f32", "f16", "bf16")
TYPES = (*PLAIN, "q8_0", "q4_0", "q4_k_m")
DEMO = "demo"
PRE_TOKENIZERS = {"qwen3": "qwen2", "qwen3moe": "qwen2", "llama": "llama-bpe"}
N_BYTES = 256


def make_model(shape: Shape, dtype: str, path: Path) -> Path:
    """Writes a model; the same arguments give the same file."""
    if dtype in PLAIN:
        write_plain(shape, dtype, path)
        return path
    with needs(PEERS):
        from support.oracles import llama_cpp_peer
    llama_cpp_peer.start()
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        source = Path(folder) / "bf16.gguf"
        write_plain(shape, "bf16", source, name_of=dtype)
        return llama_cpp_peer.quantize(source, path, dtype)


def convert_demo(dtype: str, path: Path) -> Path:
    """Writes the built-in model, which is small but trained, in another type."""
    with needs(PEERS):
        from support.oracles import llama_cpp_peer
    llama_cpp_peer.start()
    return llama_cpp_peer.quantize(demo_model_path(), path, dtype)


def make_family(name: str, dtype: str, path: Path) -> Path:
    """Writes a model of `compare/family_shapes.py`; needs transformers and llama.cpp."""
    with needs(PEERS):
        import transformers  # noqa: F401

        from support.files.gguf_contents import GgufContents
        from support.oracles import llama_cpp_peer
    case = family(name)
    contents = case.exported(case.peer())
    architecture = contents.keys["general.architecture"]
    words = vocabulary(dataclasses.replace(TINY, vocab_size=VOCABULARY))
    keys = {**contents.keys, **words, f"{architecture}.vocab_size": VOCABULARY}
    llama_cpp_peer.start()
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        source = GgufContents(keys, contents.tensors).write(Path(folder) / "f32.gguf")
        return llama_cpp_peer.quantize(source, path, dtype)


def write_plain(shape: Shape, dtype: str, path: Path, name_of: str | None = None) -> None:
    """Writes a model in a plain type, one matrix in memory at a time. `name_of` is the type of a later quantization."""
    with needs(PEERS):
        import gguf
    writer = gguf.GGUFWriter(path, shape.architecture)
    facts = metadata(shape, name_of or dtype) | vocabulary(shape)
    for key, value in facts.items():
        if key != "general.architecture":  # the writer has added this key
            writer.add_key_value(key, value, value_type(value))
    writer.add_file_type(gguf.LlamaFileType[f"{'ALL' if dtype == 'f32' else 'MOSTLY'}_{dtype.upper()}"])
    listed = list(tensors(shape, MIXES[dtype]))
    for name, kind, dims, *_ in listed:
        quant = gguf.GGMLQuantizationType[kind.upper()]
        n_bytes = int(np.prod(dims)) * gguf.GGML_QUANT_SIZES[quant][1]
        writer.add_tensor_info(name, dims[::-1], np.dtype(np.float32), n_bytes, raw_dtype=quant)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    for values in stored(listed):
        writer.write_tensor_data(values)
    writer.close()


def stored(listed: list[tuple[str, str, tuple[int, ...], float, float]]) -> Iterator[NDArray[np.generic]]:
    """Yields each tensor as its type stores it."""
    import gguf

    random = np.random.default_rng(0)
    for _, kind, dims, mean, deviation in listed:
        values = random.standard_normal(dims[::-1], np.float32)
        values *= deviation
        values += mean
        yield gguf.quants.quantize(values, gguf.GGMLQuantizationType[kind.upper()])


def value_type(value: object) -> gguf.GGUFValueType:
    """Returns the type of a metadata value as in usual files: integers have 32 bits."""
    import gguf

    if isinstance(value, bool):
        return gguf.GGUFValueType.BOOL
    if isinstance(value, int):
        return gguf.GGUFValueType.UINT32
    return gguf.GGUFValueType.get_type(value)


def vocabulary(shape: Shape) -> dict[str, object]:
    """Returns bytes, then pairs of letters, then groups of four, up to the shape's vocabulary size."""
    if shape.architecture.startswith("gemma"):
        return gemma_vocabulary(shape.vocab_size)
    found = byte_level()
    n_words = shape.vocab_size - len(found["tokenizer.ggml.tokens"])
    chosen = words(n_words)
    tokens, types = found["tokenizer.ggml.tokens"], found["tokenizer.ggml.token_type"]
    return found | {
        "tokenizer.ggml.pre": PRE_TOKENIZERS[shape.architecture],
        "tokenizer.ggml.tokens": tokens[:N_BYTES] + chosen + tokens[N_BYTES:],
        "tokenizer.ggml.token_type": types[:1] * (N_BYTES + n_words) + types[N_BYTES:],
        "tokenizer.ggml.merges": [f"{word[: len(word) // 2]} {word[len(word) // 2 :]}" for word in chosen],
        "tokenizer.ggml.bos_token_id": shape.vocab_size - 3,
        "tokenizer.ggml.eos_token_id": shape.vocab_size - 1,
    }


def gemma_vocabulary(size: int) -> dict[str, object]:
    """Returns the same words as SentencePiece pieces; earlier ones have higher scores."""
    n_others = len(sentencepiece([])["tokenizer.ggml.tokens"])
    pieces = [*string.ascii_lowercase, *words(size - n_others - len(string.ascii_lowercase))]
    return sentencepiece([(piece, -float(i)) for i, piece in enumerate(pieces)], add_space_prefix=False)


def words(n: int) -> list[str]:
    """Returns `n` words: all of two letters, then those of four."""
    pairs = ["".join(letters) for letters in itertools.product(string.ascii_lowercase, repeat=2)]
    fours = (left + right for left, right in itertools.product(pairs, pairs))
    return list(itertools.islice(itertools.chain(pairs, fours), n))


def main() -> None:
    """Writes one model."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    shapes = (*MODELS, DEMO, *FAMILIES)
    parser.add_argument("shape", choices=shapes, metavar="SHAPE", help=", ".join(shapes))
    parser.add_argument("type", choices=TYPES, metavar="TYPE", help=", ".join(TYPES))
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="default: SHAPE-TYPE.gguf")
    arguments = parser.parse_args()
    path = arguments.output or Path(f"{arguments.shape}-{arguments.type}.gguf")
    if arguments.shape == DEMO:
        print(convert_demo(arguments.type, path))
    elif arguments.shape in FAMILIES:
        print(make_family(arguments.shape, arguments.type, path))
    else:
        print(make_model(MODELS[arguments.shape], arguments.type, path))


if __name__ == "__main__":
    main()

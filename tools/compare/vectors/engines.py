"""Engines that make vectors of texts: each loads the folder of a BERT, in the way that its users do."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Protocol

from compare.refused import RefusedError


class VectorEngine(Protocol):
    """Loaded when it is made."""

    def embed(self, texts: list[str]) -> Iterable[Iterable[float]]:
        """Vectors of length 1."""


class Imp:
    """The library."""

    def __init__(self, model: Path, _: Path, threads: int) -> None:
        import imp_service

        self._model = imp_service.load(model, f"device.threads={threads}")

    def embed(self, texts: list[str]) -> Iterable[Iterable[float]]:
        return self._model.embed(texts)


class SentenceTransformers:
    """On PyTorch, with its own batches."""

    def __init__(self, model: Path, _: Path, threads: int) -> None:
        try:
            import torch
            from sentence_transformers import SentenceTransformer
        except ImportError as missing:
            raise RefusedError(f"not installed: {missing}") from None
        torch.set_num_threads(threads)
        self._model = SentenceTransformer(str(model), device="cpu")

    def embed(self, texts: list[str]) -> Any:
        return self._model.encode(texts, batch_size=64, normalize_embeddings=True)


class OnnxRuntime:
    """The encoder as PyTorch exports it; the texts by the tokenizers library, the mean by NumPy."""

    def __init__(self, model: Path, scratch: Path, threads: int) -> None:
        try:
            import onnxruntime
            import torch
            from tokenizers import Tokenizer
            from transformers import AutoModel
        except ImportError as missing:
            raise RefusedError(f"not installed: {missing}") from None
        path, names = scratch / "model.onnx", ["input_ids", "attention_mask", "token_type_ids"]
        encoder = AutoModel.from_pretrained(model, attn_implementation="eager").eval()

        class Rows(torch.nn.Module):  # type: ignore[misc]  # the base is untyped
            """The encoder, which takes its inputs by name."""

            def __init__(self) -> None:
                super().__init__()
                self.encoder = encoder

            def forward(self, *inputs: Any) -> Any:
                return self.encoder(**dict(zip(names, inputs, strict=True))).last_hidden_state

        ids = torch.ones((2, 8), dtype=torch.long)
        axes = {name: {0: "batch", 1: "tokens"} for name in (*names, "rows")}
        try:
            torch.onnx.export(
                Rows(),
                (ids, ids, ids),
                path,
                input_names=names,
                output_names=["rows"],
                dynamic_axes=axes,
                dynamo=False,
            )
        except (ImportError, RuntimeError) as error:
            raise RefusedError(f"PyTorch does not export the model: {error}") from None
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        self._session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        self._tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))
        self._tokenizer.no_truncation()
        self._tokenizer.enable_padding()

    def embed(self, texts: list[str]) -> Any:
        import numpy as np

        encoded = self._tokenizer.encode_batch(texts)
        ids = np.array([each.ids for each in encoded])
        mask = np.array([each.attention_mask for each in encoded])
        given = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        [rows] = self._session.run(["rows"], given)
        vectors = (rows * mask[:, :, None]).sum(axis=1) / mask.sum(axis=1, keepdims=True)
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


class LlamaCpp:
    """The same weights in float32 as a GGUF file."""

    def __init__(self, model: Path, scratch: Path, threads: int) -> None:
        try:
            import llama_cpp
        except ImportError as missing:
            raise RefusedError(f"not installed: {missing}") from None
        self._model = llama_cpp.Llama(
            str(written(model, scratch / "model.gguf")),
            embedding=True,
            n_ctx=4096,
            n_batch=4096,
            n_ubatch=4096,
            n_threads=threads,
            n_threads_batch=threads,
            pooling_type=llama_cpp.LLAMA_POOLING_TYPE_MEAN,
            verbose=False,
        )

    def embed(self, texts: list[str]) -> Any:
        return self._model.embed(texts, normalize=True)


def written(model: Path, path: Path) -> Path:
    """Writes a GGUF file of the folder's weights and vocabulary."""
    from support.files.float_tensors import read_floats
    from support.files.hf_weights import Weights
    from support.files.text_export import export_text

    weights = Weights(json.loads((model / "config.json").read_text()), read_floats(model / "model.safetensors"), [])
    contents = export_text(weights, "bert", "mean", {"attention.causal": False})
    vocabulary = json.loads((model / "tokenizer.json").read_text())["model"]["vocab"]
    contents.keys |= word_piece(sorted(vocabulary, key=vocabulary.__getitem__))
    return contents.write(path)


def word_piece(words: list[str]) -> dict[str, Any]:
    """Returns the keys of BERT's vocabulary: in GGUF a word begins with a mark, and the rest of one has none."""
    special = [word.startswith("[") and word.endswith("]") for word in words]
    spelled = [
        word if is_special else word[2:] if word.startswith("##") else f"\u2581{word}"
        for word, is_special in zip(words, special, strict=True)
    ]
    places = {name: words.index(f"[{name}]") for name in ("UNK", "SEP", "PAD", "CLS", "MASK")}
    keys = {
        "model": "bert",
        "pre": "jina-v2-en",
        "tokens": spelled,
        "token_type": [3 if is_special else 1 for is_special in special],
        "token_type_count": 2,
        "unknown_token_id": places["UNK"],
        "seperator_token_id": places["SEP"],
        "padding_token_id": places["PAD"],
        "cls_token_id": places["CLS"],
        "mask_token_id": places["MASK"],
    }
    return {f"tokenizer.ggml.{name}": value for name, value in keys.items()}


ENGINES: dict[str, Callable[[Path, Path, int], VectorEngine]] = {
    "imp": Imp,
    "sentence-transformers": SentenceTransformers,
    "onnxruntime": OnnxRuntime,
    "llama.cpp": LlamaCpp,
}

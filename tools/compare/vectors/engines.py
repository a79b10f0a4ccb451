"""Engines that make vectors of texts: each loads the folder of a BERT, in the way that its users do."""

from __future__ import annotations

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
        from support.files.bert_file import write_bert

        self._model = llama_cpp.Llama(
            str(write_bert(model, scratch / "model.gguf")),
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


ENGINES: dict[str, Callable[[Path, Path, int], VectorEngine]] = {
    "imp": Imp,
    "sentence-transformers": SentenceTransformers,
    "onnxruntime": OnnxRuntime,
    "llama.cpp": LlamaCpp,
}

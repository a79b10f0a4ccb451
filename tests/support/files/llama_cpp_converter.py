"""Runs llama.cpp's converter on directories of transformers, in a process of its own: it has its own package `gguf`.

    python llama_cpp_converter.py SOURCE DIRECTORY...

SOURCE is the source of llama.cpp. Each DIRECTORY becomes DIRECTORY.gguf, in float32 and without a vocabulary: the
converter knows published vocabularies only. It prints a line for each directory that it does not convert.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any


def convert(source: Path, directories: Sequence[Path]) -> str:
    """Converts the directories; returns what went wrong, a line each."""
    ran = subprocess.run(
        [sys.executable, __file__, str(source), *map(str, directories)],
        env={**os.environ, "PYTHONPATH": f"{source}/gguf-py:{source}"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    return ran.stdout if ran.returncode == 0 else ran.stdout + ran.stderr[-2000:]


def converter_of(directory: Path) -> type[Any]:
    """Returns the converter's class for a model, which writes no vocabulary."""
    # Modules of the converter.
    from conversion import ModelBase, ModelType, get_model_class
    from conversion.base import get_model_architecture

    hyper_parameters = ModelBase.load_hparams(directory, False)
    known = get_model_class(get_model_architecture(hyper_parameters, ModelType.TEXT))
    known = getattr(known, "Ministral3Model", known)  # the class around it hands everything on

    def set_vocab(self: Any) -> None:
        self.gguf_writer.add_tokenizer_model("no_vocab")
        self.gguf_writer.add_vocab_size(self.hparams["vocab_size"])

    # A model of transformers has no draft layers, and the converter expects them of Qwen 3.5 and Qwen3-Next.
    members = {"model_arch": known.model_arch, "set_vocab": set_vocab, "no_mtp": True}
    return type(known.__name__, (known,), members)


def main() -> None:
    import gguf
    import torch

    logging.disable(logging.WARNING)
    for directory in map(Path, sys.argv[2:]):
        try:
            model = converter_of(directory)(
                directory, gguf.LlamaFileType.ALL_F32, directory.with_suffix(".gguf"), eager=True
            )
            with torch.inference_mode():
                model.write()
        except Exception as error:
            print(f"{directory.name}: {type(error).__name__}: {error}")


if __name__ == "__main__":
    main()

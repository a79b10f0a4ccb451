"""Writes the first layers of a model as a draft model of it: `python tools/make_draft.py FILE LAYERS -o DRAFT`.

Such a draft model has the model's vocabulary, so it fits where no smaller model of the family does. Its guesses are
poor, but its attention can choose parts of prompts (`imp certify` measures how well). It needs a layer that sees all of
the prompt: in Qwen 3.5 every fourth, in Gemma 3 every sixth. Needs gguf, of the extra `peers`.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from support.run.needed import PEERS, needs

if TYPE_CHECKING:
    import gguf

ARCHITECTURE = "general.architecture"
# Of layers that a draft model does not have.
LEFT_OUT = ("nextn_predict_layers",)
_LAYER = re.compile(r"blk\.(\d+)\.")


def write_draft(source: Path, n_layers: int, path: Path) -> Path:
    """Writes the first layers of a GGUF file of one part. Raises ValueError if it has no more layers than that."""
    with needs(PEERS):
        import gguf
    reader = gguf.GGUFReader(source)
    architecture = reader.fields[ARCHITECTURE].contents()
    n_of_model = reader.fields[f"{architecture}.block_count"].contents()
    if not 0 < n_layers < n_of_model:
        raise ValueError(f"{n_layers} layers, expected at least 1 and fewer than the model's {n_of_model}")
    writer = gguf.GGUFWriter(path, architecture)
    for name, field in reader.fields.items():
        if name != ARCHITECTURE and not name.startswith("GGUF.") and name.rpartition(".")[2] not in LEFT_OUT:
            _copy_field(writer, name, field, n_layers, n_of_model)
    for tensor in reader.tensors:
        layer = _LAYER.match(tensor.name)
        if layer is None or int(layer[1]) < n_layers:
            writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _copy_field(writer: gguf.GGUFWriter, name: str, field: gguf.ReaderField, n_layers: int, n_of_model: int) -> None:
    """Copies a field: the number of layers with its new value, and of a list with a value for each layer the first."""
    value: Any = field.contents()
    kinds = field.types
    if name.endswith(".block_count"):
        value = n_layers
    elif len(kinds) > 1 and len(value) == n_of_model and not name.startswith("tokenizer."):
        value = value[:n_layers]
    writer.add_key_value(name, value, kinds[0], sub_type=kinds[-1] if len(kinds) > 1 else None)


def main() -> None:
    """Writes one draft model."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, metavar="FILE", help="a model, as one GGUF file")
    parser.add_argument("layers", type=int, metavar="LAYERS", help="how many layers the draft model has")
    parser.add_argument("-o", "--output", type=Path, metavar="DRAFT", help="default: FILE's name with the number")
    arguments = parser.parse_args()
    path = arguments.output or Path(f"{arguments.model.stem}-first-{arguments.layers}.gguf")
    try:
        print(write_draft(arguments.model, arguments.layers, path))
    except ValueError as error:
        raise SystemExit(f"{parser.prog}: {error}") from None


if __name__ == "__main__":
    main()

"""Measures imp beside other engines and servers. `python tools/compare NAME --help` describes a comparison:

peers      imp and llama.cpp, OpenVINO GenAI and transformers on the same file
servers    imp serve and llama-server under the load of many clients
quality    the loss of quantization in imp and llama.cpp, against float32
sampling   right answers and unlikely tokens of a chat model with several samplers
guesses    decoding with guesses of which a given share is right, and without
vectors    embeddings by imp, sentence-transformers, onnxruntime and llama.cpp
images     the encoding of pictures by imp and llama.cpp
front_end  the time that the service adds to a step, over gRPC and HTTP
"""

from __future__ import annotations

import argparse
import importlib
import sys
from pathlib import Path

TOOLS = Path(__file__).resolve().parents[1]
# In place of this folder.
sys.path[:1] = [str(TOOLS), str(TOOLS.parent / "tests")]

from compare import NAMES  # noqa: E402
from compare.refused import RefusedError  # noqa: E402
from imp_service.config import ConfigError  # noqa: E402
from imp_service.core.errors import Error  # noqa: E402


def main() -> None:
    """Runs the named comparison with the rest of the command line."""
    parser = argparse.ArgumentParser(
        prog="python tools/compare", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("name", choices=NAMES, metavar="NAME", help=", ".join(NAMES))
    parser.add_argument("words", nargs=argparse.REMAINDER, metavar="…", help="what the comparison takes")
    arguments = parser.parse_args()
    try:
        importlib.import_module(NAMES[arguments.name]).main(arguments.words)
    except (RefusedError, Error, ConfigError) as error:
        raise SystemExit(f"imp: {error}") from None


if __name__ == "__main__":
    main()

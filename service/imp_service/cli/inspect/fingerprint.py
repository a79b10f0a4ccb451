"""The table of `imp inspect --fingerprint`: what decides the tokens of a model here."""

from typing import TYPE_CHECKING, TextIO

from imp_service.cli.output import write_table

if TYPE_CHECKING:
    from imp_service.config import Config
    from imp_service.core import ModelFile
    from imp_service.generation.fingerprint import Fingerprint


def fingerprint_of_file(config: "Config", file: "ModelFile") -> "Fingerprint":
    """Loads the model and warms it up."""
    from imp_service.generation import load_model

    model = load_model(config, file)
    try:
        return model.fingerprint
    finally:
        model.close()


def write_fingerprint(out: TextIO, fingerprint: "Fingerprint") -> None:
    out.write(f"\nfingerprint: {fingerprint.digest}\n")
    write_table(out, (), list(fingerprint.parts.items()))

"""The built-in demo model and its draft: where their files are."""

from importlib.resources import files
from pathlib import Path


def _model_path(name: str) -> Path:
    path = Path(str(files(__name__).joinpath(name)))
    if not path.is_file():
        raise FileNotFoundError(f"{path}: the built-in model is missing from this installation of imp-service")
    return path


def demo_model_path() -> Path:
    """Return the path of the built-in model (Q8_0, 3.7 million parameters)."""
    return _model_path("demo.gguf")


def demo_model_sha256() -> str:
    """Return the digest that the built-in model was shipped with, from SHA256SUMS in the same folder."""
    lines = files(__name__).joinpath("SHA256SUMS").read_text(encoding="ascii").splitlines()
    return {name: digest for digest, name in (line.split() for line in lines)}["demo.gguf"]


def demo_draft_model_path() -> Path:
    """Return the path of the built-in model's draft, which shares its vocabulary."""
    return _model_path("demo-draft.gguf")

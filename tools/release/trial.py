"""Installs a wheel as its users do, without a compiler and without a network, and serves from it."""

from __future__ import annotations

import platform
import sys
from pathlib import Path

from release.build import Tools, run
from release.checkout import Checkout, ReleaseError
from release.distributions import Distribution

SERVES = Path(__file__).with_name("serves.py")


def fits_here(wheel: Path) -> bool:
    """Returns whether this Python and this machine can install it."""
    _, _, python, _, platforms = wheel.name.removesuffix(".whl").split("-")
    return python == f"cp{sys.version_info.major}{sys.version_info.minor}" and platforms.endswith(platform.machine())


def gather(tools: Tools, wheel: Path, folder: Path) -> None:
    """Downloads wheels of all dependencies. Fails for a package without a wheel for this machine."""
    tools.run(["python", "-m", "pip", "download", "--quiet", "--only-binary=:all:", "--dest", str(folder), str(wheel)])


def try_client(wheel: Path, wheelhouse: Path, folder: Path) -> None:
    """Installs the wheel of the client in a new environment in `folder`, and imports it with its messages."""
    python, bare = _environment(wheel, wheelhouse, folder)
    run(
        [python, "-I", "-c", "import imp_client; from imp_client.pb import inference_pb2_grpc; imp_client.connect"],
        env=bare,
    )


def try_wheel(checkout: Checkout, distribution: Distribution, wheel: Path, wheelhouse: Path, folder: Path) -> str:
    """Installs the wheel in a new environment in `folder` and serves from it. Returns the output of the check."""
    python, bare = _environment(wheel, wheelhouse, folder)
    printed = run([python, "-I", str(SERVES)], env=bare)
    expected = {
        f"imp {checkout.version}",
        f"distribution: {distribution.name}",
        f"revision: {checkout.commit}",
        f"backends: {distribution.backends}",
    }
    missing = expected - set(printed.splitlines())
    if missing:
        raise ReleaseError(f"{wheel.name}: imp --version lacks {sorted(missing)}:\n{printed}")
    return printed


def _environment(wheel: Path, wheelhouse: Path, folder: Path) -> tuple[str, dict[str, str]]:
    """Makes an environment with the wheel in `folder`; returns its Python, and the variables to run that with."""
    run([sys.executable, "-m", "venv", "--clear", str(folder)])
    python = str(folder / "bin" / "python")
    # PATH has only the programs of the environment, so no compiler.
    bare = {"PATH": str(folder / "bin"), "HOME": str(folder), "PIP_CONFIG_FILE": "/dev/null"}
    run(
        [python, "-m", "pip", "install", "--quiet", "--no-index", "--find-links", str(wheelhouse), str(wheel)], env=bare
    )
    return python, bare

"""Where `device.cublaslt` looks for the library, and what imp reports if it is missing."""

from __future__ import annotations

from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest

from imp_service.config import AUTO, read_settings
from imp_service.core.cublaslt import cublaslt_places, resolve_cublaslt, search_places
from support.kernels.cublaslt import EMULATED

NAMES = ["libcublasLt.so.13", "libcublasLt.so.12"]
ON_THE_GPU = ("device.kind=cuda_emulated", "model.overrides.unvalidated_kernels=true")


def settings(*assignments: str) -> list[str]:
    return [word for assignment in assignments for word in ("--set", assignment)]


def package_at(monkeypatch: pytest.MonkeyPatch, *roots: Path) -> None:
    spec = ModuleSpec("nvidia", None, is_package=True)
    spec.submodule_search_locations = [str(root) for root in roots]
    monkeypatch.setattr("importlib.util.find_spec", lambda name: spec if roots and name == "nvidia" else None)


def test_gemm_17_packages_come_before_the_loader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package_at(monkeypatch)
    assert search_places() == NAMES
    first, second = tmp_path / "a", tmp_path / "b"
    package_at(monkeypatch, first, second)
    assert search_places() == NAMES
    files = [second / "cu13/lib/libcublasLt.so.13", first / "cublas/lib/libcublasLt.so.12"]
    for file in files:
        file.parent.mkdir(parents=True)
        file.touch()
    assert search_places() == [*map(str, files), *NAMES]


def test_gemm_17_the_setting_names_the_paths_of_cublaslt(monkeypatch: pytest.MonkeyPatch) -> None:
    package_at(monkeypatch)
    assert cublaslt_places(AUTO, "cuda") == NAMES
    assert cublaslt_places(AUTO, "cpu") == cublaslt_places(AUTO, "cuda_emulated") == []
    assert cublaslt_places("off", "cuda") == []
    assert cublaslt_places("/opt/x.so:libcublasLt.so.12", "cuda") == ["/opt/x.so", "libcublasLt.so.12"]


@pytest.mark.parametrize(("kind", "value"), [("cpu", "off"), ("cuda", ":".join(NAMES))])
def test_cfg_8_what_auto_means_is_shown(kind: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    package_at(monkeypatch)
    decided = resolve_cublaslt(read_settings(variables={}, assignments=(f"device.kind={kind}",)))
    (entry,) = (entry for entry in decided.entries() if entry.name == "device.cublaslt")
    assert entry.value == value
    assert str(entry.origin).startswith("auto: ")
    assert resolve_cublaslt(decided) is decided


def test_gemm_17_explain_says_whether_cublaslt_is_available(call) -> None:
    """imp reports it for the GPU of this machine; for another it cannot know."""
    question = ("kernels", "--device", "cuda_emulated", "--explain", "q8_0", "64x512")
    emulated = settings("model.overrides.unvalidated_kernels=true")

    def said(*words: str) -> str:
        status, out, _ = call(*question, *emulated, *words)
        assert status == 0
        (line,) = (line for line in out.splitlines() if line.startswith("q8_0_cublaslt"))
        return str(line)

    why = "rejected  cuBLASLt is not available: device.cublaslt is"
    assert said().endswith(f"{why} auto, and device.kind cuda_emulated")
    assert said(*settings("device.cublaslt=off")).endswith(f"{why} off")
    assert said(*settings(f"device.cublaslt={EMULATED}")).endswith("an earlier kernel takes these rows")
    assert "/no/such.so: cannot open shared object file" in said(*settings("device.cublaslt=/no/such.so"))
    assert said("--gpu", "h200").endswith("cuBLASLt is not available: imp looks for it on the machine with the GPU")


def test_gemm_17_an_override_uses_cublaslt_or_fails_the_start(call) -> None:
    named = settings(*ON_THE_GPU, "model.overrides.gemm.q8_0=q8_0_cublaslt")
    for command in (("inspect",), ("run", "x"), ("config", "check")):
        status, _, err = call(*command, *named)
        assert status != 0
        why = "gemm.q8_0 = q8_0_cublaslt: cuBLASLt is not available: device.cublaslt is"
        assert f"{why} auto, and device.kind cuda_emulated\n" in err
        assert f"{why} off\n" in call(*command, *named, *settings("device.cublaslt=off"))[2]
    status, out, _ = call("inspect", *named, *settings(f"device.cublaslt={EMULATED}"))
    assert status == 0
    assert "q8_0_cublaslt" in out
    status, _, err = call(
        "inspect", *named, *settings(f"device.cublaslt={EMULATED}", "model.overrides.deterministic=true")
    )
    assert status != 0
    assert "deterministic mode does not allow" in err


@pytest.mark.long
def test_gemm_17_a_model_answers_with_cublaslt(call) -> None:
    """The command line runs a prompt of many tokens."""
    words = settings(*ON_THE_GPU, "model.overrides.gemm.q8_0=q8_0_cublaslt", f"device.cublaslt={EMULATED}")
    status, out, err = call("run", *words, "--max-tokens", "2", "--temperature", "0", "one two three " * 90)
    assert status == 0, err
    assert out.strip()

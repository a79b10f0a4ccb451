"""The digest that GetModelInfo reports is of the served bytes, whatever happens to the file's name."""

from __future__ import annotations

import contextlib
import hashlib
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from imp_service import _core
from imp_service.config import read_settings
from imp_service.core import ModelError
from imp_service.core.checkpoint import open_file
from imp_service.core.weights import sha256_of
from imp_service.models import demo_model_path
from imp_service.pb import model_pb2 as pb
from imp_service.pb import model_pb2_grpc
from support.files.safetensors_writer import write_set
from support.servers.served import serve


def digest_of(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, bytes, Path, bytes]:
    """A model and one with other weights, each with its bytes."""
    content = demo_model_path().read_bytes()
    other = content[:-100] + bytes([content[-100] ^ 1]) + content[-99:]
    paths = tmp_path / "model.gguf", tmp_path / "other.gguf"
    for path, its in zip(paths, (content, other), strict=True):
        path.write_bytes(its)
    return paths[0], content, paths[1], other


def when_digested(change: Any, monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    """Makes `change` happen after the file is opened and before its first byte is digested."""

    def changed_before(*arguments: Any) -> str | None:
        change()
        return sha256_of(*arguments)

    monkeypatch.setattr(sys.modules[f"imp_service.{where}"], "sha256_of", changed_before)


def open_files() -> list[str]:
    """Returns the paths that this process has open. A descriptor may close meanwhile."""
    found = []
    for descriptor in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            found.append(str(descriptor.readlink()))
    return found


def reported(path: Path, **how: Any) -> str:
    """Returns the digest that a server of this file reports after it is computed or given up."""
    with serve(f"model.path={path}", **how) as server:
        for thread in threading.enumerate():
            if thread.name == "imp-digest":
                thread.join()
        assert not [each for each in open_files() if str(path.parent) in each], "the model's file is still open"
        return model_pb2_grpc.ModelServiceStub(server.channel()).GetModelInfo(pb.GetModelInfoRequest()).weights_sha256


def test_mod_14_a_file_renamed_over_the_path_is_not_what_is_digested(
    files: tuple[Path, bytes, Path, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, content, other, its = files
    when_digested(lambda: other.replace(path), monkeypatch, "serving.weights_digest")
    assert reported(path) == digest_of(content)
    assert path.read_bytes() == its


def test_mod_14_a_file_that_is_removed_has_its_digest(
    files: tuple[Path, bytes, Path, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, content, _, _ = files
    when_digested(path.unlink, monkeypatch, "serving.weights_digest")
    assert reported(path) == digest_of(content)


def test_mod_14_of_a_file_changed_in_place_the_digest_stays_unknown(
    files: tuple[Path, bytes, Path, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, _, _, its = files
    when_digested(lambda: path.write_bytes(its + b"x"), monkeypatch, "serving.weights_digest")
    assert reported(path) == ""


def test_mod_14_a_pinned_digest_is_compared_with_the_file_that_was_opened(
    files: tuple[Path, bytes, Path, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, content, other, its = files
    when_digested(lambda: other.replace(path), monkeypatch, "core.checkpoint")
    settings = [f"model.path={path}", f"model.sha256={digest_of(its)}"]
    with pytest.raises(ModelError, match=f"sha256 {digest_of(content)}, expected {digest_of(its)}") as refused:
        open_file(read_settings(None, settings, variables={}))
    assert refused.value.reason == "WEIGHTS_CORRUPT"


@pytest.mark.long
def test_mod_14_a_set_of_files_is_digested_in_the_order_of_its_names(tmp_path: Path) -> None:
    index = write_set(tmp_path)
    shards = sorted(tmp_path.glob("*.safetensors"))
    assert len(shards) == 2
    whole = b"".join(path.read_bytes() for path in shards)
    assert sha256_of(_core.open_model_file(index).files) == digest_of(whole)
    # A file next to the shards is no part of the digest.
    (tmp_path / "aside.safetensors").write_bytes(shards[0].read_bytes())
    assert sha256_of(_core.open_model_file(index).files) == digest_of(whole)

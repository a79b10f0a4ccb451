"""C++ errors in Python: each has a message for its cause, and errors of other extensions keep their type."""

from __future__ import annotations

import errno
import importlib.util
import subprocess
import sysconfig
from pathlib import Path

import pybind11
import pytest

from imp_service import _core, _testing

OTHER_EXTENSION = """
#include <new>
#include <pybind11/pybind11.h>
PYBIND11_MODULE(other, module) {
  module.def("fail", [] { throw std::bad_alloc(); });
}
"""


@pytest.mark.parametrize("code", [errno.EAGAIN, errno.ENOMEM])
def test_a_refusal_of_the_system_is_worded_by_its_cause(code: int) -> None:
    with pytest.raises(_core.ResourceExhausted, match=r"files: .*model\.gguf") as file:
        _testing.throw_filesystem_error(code)
    with pytest.raises(_core.ResourceExhausted, match="threads: ") as thread:
        _testing.throw_system_error(code)
    assert file.value.reason == thread.value.reason == "NO_MEMORY"


def test_another_cause_is_no_want_of_memory() -> None:
    with pytest.raises(RuntimeError, match=r"model\.gguf"):
        _testing.throw_filesystem_error(errno.EIO)


@pytest.mark.long
def test_an_error_of_another_extension_stays_its_own(tmp_path: Path) -> None:
    # Uses the compiler that built imp.
    source, built = tmp_path / "other.cpp", tmp_path / f"other{sysconfig.get_config_var('EXT_SUFFIX')}"
    source.write_text(OTHER_EXTENSION)
    includes = [f"-I{pybind11.get_include()}", f"-I{sysconfig.get_path('include')}"]
    subprocess.run(["c++", "-std=c++20", "-shared", "-fPIC", *includes, str(source), "-o", str(built)], check=True)
    spec = importlib.util.spec_from_file_location("other", built)
    assert spec is not None and spec.loader is not None
    other = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(other)
    with pytest.raises(MemoryError):
        other.fail()

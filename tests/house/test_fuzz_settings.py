"""The build and run settings of the fuzz targets, which must not hide faults that a release would show."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

SANITIZE = Path(__file__).resolve().parents[1] / "sanitize"
# Patterns that the targets' sources must contain, and must not contain.
WANTED = {
    "both sanitizers": ("CMakeLists.txt", r"IMP_SANITIZE \"address,undefined\""),
    "the first finding ends it": ("CMakeLists.txt", r"-fno-sanitize-recover=all"),
    "checked containers": ("CMakeLists.txt", r"-D_GLIBCXX_ASSERTIONS"),
    "leaks": ("run", r"ASAN_OPTIONS=\"[^\"]*\bdetect_leaks=1\b"),
    "memory that is refused": ("run", r"ASAN_OPTIONS=\"[^\"]*\ballocator_may_return_null=0\b"),
    "a bound on one allocation": ("run", r"ASAN_OPTIONS=\"[^\"]*\bmax_allocation_size_mb=64\b"),
    "what was found before": ("run", r"\bcorpus/gguf/\* .*\bcorpus/safetensors/\*"),
    "its controls": ("run", r"for fault in abort leak overflow undefined index"),
    "GGUF, and all of its data": ("fuzz_files.cpp", r"check_data\(\*imp::open_gguf\("),
    "a file of any kind": ("fuzz_files.cpp", r"open_model_file\("),
    "safetensors": ("fuzz_files.cpp", r"safetensors::read_header\("),
    "an index": ("fuzz_files.cpp", r"safetensors::read_index\("),
    "JSON": ("fuzz_files.cpp", r"read_json_metadata\("),
    "vocabularies": ("fuzz_files.cpp", r"ScoredMerges\(.*\)\.encode\((?s:.*)ListedMerges\(.*\)\.encode\("),
    "any other error is a finding": ("fuzz_files.cpp", r"catch \(const std::exception& error\) \{[^}]*std::abort\(\)"),
}
UNWANTED = {
    "a finding that is passed over": r"handle_abort=0|halt_on_error=0|exitcode=0|suppressions=|no_sanitize",
    "leaks that are passed over": r"detect_leaks=0|LeakSanitizerDisabler|__lsan_",
    # Except for the program with failing allocations, which forwards to the sanitizer's allocator.
    "an allocator of its own": r"\bLD_PRELOAD\b|tcmalloc|jemalloc|\bvoid\s*\*\s*operator new\b",
}


def missing(files: dict[str, str]) -> list[str]:
    """Returns the required settings that are missing."""
    return [what for what, (name, pattern) in WANTED.items() if not re.search(pattern, files[name])]


def sources() -> dict[str, str]:
    """Returns the files of the targets by name."""
    return {path.name: path.read_text() for path in SANITIZE.iterdir() if path.is_file()}


def test_b10_fuzz_targets_take_every_finding_and_every_way_to_read() -> None:
    files = sources()
    assert missing(files) == []
    assert [
        f"{name}: {what}"
        for name, text in files.items()
        for what, pattern in UNWANTED.items()
        if re.search(pattern, text) and (name, what) != ("failing_allocations.cpp", "an allocator of its own")
    ] == []


@pytest.mark.parametrize("what", WANTED)
def test_b10_a_setting_that_is_gone_is_found(what: str) -> None:
    files = sources()
    name, pattern = WANTED[what]
    assert what in missing({**files, name: re.sub(pattern, "", files[name])})

"""What the project forbids: hidden state in the core, empty file names, sleeping tests, tests that assert nothing."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

FORBIDDEN_IN_CSRC = {
    "getenv": r"\bgetenv\s*\(",
    "thread_local": r"\bthread_local\b",
    "mutable static": (
        r"^\s*(?:inline\s+)?static\s+(?!_?_?assert|const\b|constexpr\b|inline\b[^=;]*\()[^()=;{]*(?:=|;|\{)"
    ),
    "singleton": r"\b[gG]et_?[iI]nstance\s*\(",
    "abort": r"\b(?:std::)?(?:abort|exit|terminate|quick_exit)\s*\(",
    "assert": r"\bassert\s*\(",
    "iostream": r"#\s*include\s*<iostream>",
}
FORBIDDEN_NAMES = {"utils", "helpers", "common", "misc", "manager", "new", "legacy"}


def violations(text: str) -> list[str]:
    return [
        f"{what}: {match.group(0).strip()}"
        for what, pattern in FORBIDDEN_IN_CSRC.items()
        for match in re.finditer(pattern, strip_comments(text), re.MULTILINE)
    ]


def strip_comments(text: str) -> str:
    return re.sub(r"//[^\n]*", "", text)


def namespace_variables(text: str) -> list[str]:
    """Returns variables at namespace scope that are neither constants nor functions."""
    found = []
    depth = 0
    for line in strip_comments(text).splitlines():
        is_namespace = re.match(r"\s*(?:inline\s+)?namespace\b.*\{", line) or re.match(r'\s*extern\s+"C"\s*\{', line)
        if depth == 0 and re.match(
            r"(?:std::|int|float|double|bool|char|auto|[A-Z]\w*\b)[\w:<>,\s*&]*\s\w+\s*(?:=[^=]|\{[^}]*\};|;)", line
        ):
            found.append(line.strip())
        if (not is_namespace and not re.match(r"\}\s*$|\}\s*//", line)) or depth > 0:
            depth += line.count("{") - line.count("}")
    return found


def cpp_files() -> list[Path]:
    """Returns the sources of the core and of the tests' extension."""
    tops = (ROOT / "csrc", ROOT / "tests" / "native")
    found = [p for top in tops for p in sorted(top.rglob("*")) if p.suffix in {".h", ".cpp", ".inl", ".cu", ".cuh"}]
    assert len(found) > 20
    # The emulated GPU stands for a machine, so it may have state; only builds for tests contain it.
    return [p for p in found if "emulator" not in p.parts]


def test_det_18_hon_16_core_has_no_hidden_state() -> None:
    found = [f"{p.relative_to(ROOT)}: {v}" for p in cpp_files() for v in violations(p.read_text())]
    found += [f"{p.relative_to(ROOT)}: {v}" for p in cpp_files() for v in namespace_variables(p.read_text())]
    assert found == []


@pytest.mark.parametrize(
    "line",
    [
        'const char* home = std::getenv("HOME");',
        "thread_local int depth;",
        "static int counter = 0;",
        "static std::vector<int> cache;",
        "  static Registry registry;",
        "Registry& r = Registry::get_instance();",
        "std::abort();",
    ],
)
def test_hon_16_hidden_state_is_found(line: str) -> None:
    assert violations(line) != []


def test_hon_16_a_namespace_variable_is_found() -> None:
    assert namespace_variables("namespace imp {\nint counter = 0;\n}\n") == ["int counter = 0;"]
    assert (
        namespace_variables("namespace imp {\nconstexpr int kLimit = 3;\nint twice(int x) { return 2 * x; }\n}\n") == []
    )


def test_file_names_say_what_is_inside() -> None:
    files = [p for top in ("csrc", "service", "tests", "tools") for p in (ROOT / top).rglob("*") if p.is_file()]
    assert [str(p) for p in files if p.stem in FORBIDDEN_NAMES and "build" not in p.parts] == []


def test_models_are_named_in_their_own_room_only() -> None:
    # llama.cpp is a program.
    families = re.compile(r"\b(?:llama(?!\.cpp)|mistral|qwen\d?|gemma\d?)\b", re.IGNORECASE)
    strays = [
        f"{p.relative_to(ROOT)}: {m.group(0)}"
        for p in cpp_files()
        if p.relative_to(ROOT)
        .as_posix()
        .startswith(("csrc/base", "csrc/tensor", "csrc/files", "csrc/backend", "csrc/engine", "csrc/model/"))
        and not p.relative_to(ROOT).as_posix().startswith("csrc/model/arch/")
        for m in families.finditer(strip_comments(p.read_text()))
    ]
    assert strays == []


def weak_asserts(source: str) -> list[str]:
    """Returns asserts that nearly any value satisfies: not None, non-empty, non-zero, True."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Assert):
            continue
        test = node.test
        if isinstance(test, ast.Constant) or (_is_not_none(test) and not _narrows(source, node)):
            found.append(ast.unparse(node))
    return found


def _is_not_none(test: ast.expr) -> bool:
    if not isinstance(test, ast.Compare) or not isinstance(test.ops[0], ast.IsNot):
        return False
    other = test.comparators[0]
    return isinstance(other, ast.Constant) and other.value is None


def _narrows(source: str, node: ast.Assert) -> bool:
    """Returns whether an `assert x is not None` has a comment that it only narrows a type for the type checker."""
    return "# narrows" in source.splitlines()[node.lineno - 1]


def test_hon_8_no_assert_holds_for_any_value() -> None:
    files = sorted((ROOT / "tests").rglob("test_*.py"))
    assert len(files) > 10
    assert [f"{p.relative_to(ROOT)}: {v}" for p in files for v in weak_asserts(p.read_text())] == []


def test_hon_8_weak_asserts_are_found() -> None:
    assert weak_asserts("assert True\nassert x is not None\nassert x == 3\n") == ["assert True", "assert x is not None"]


def test_hon_12_no_test_sleeps() -> None:
    files = sorted((ROOT / "tests").rglob("*.py"))
    pattern = re.compile(r"\btime\.sleep\(|\basyncio\.sleep\((?!0\))")
    me = Path(__file__)
    assert [str(p.relative_to(ROOT)) for p in files if p != me and pattern.search(p.read_text())] == []

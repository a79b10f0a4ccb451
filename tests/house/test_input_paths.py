"""No input ends the process: the core does not abort, throws only errors that are mapped, and has no recursion."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# Code that ends the process, or throws an error other than the core's own.
ENDINGS = {
    "end of the process": r"\b(?:abort|exit|_exit|_Exit|quick_exit|terminate|raise|kill|__builtin_trap)\s*\(",
    "assert": r"\bassert\s*\(|#\s*include\s*<cassert>",
    "unreachable": r"__builtin_unreachable|\bstd::unreachable\b",
    "unchecked at": r"(?:\.|->)at\s*\(",
    "number of another library": r"\bstd::sto[a-z]+\s*\(|\b(?:atoi|atol|atof|sscanf)\s*\(",
    "bounded by nothing": r"\b(?:strcpy|strcat|sprintf|gets|alloca)\s*\(",
}
WORDS = {
    "if",
    "for",
    "while",
    "switch",
    "return",
    "sizeof",
    "catch",
    "alignas",
    "decltype",
    "noexcept",
    "static_assert",
}
# Overloads with equal numbers of parameters, one of which calls the other.
OVERLOADS = {"engine/run/engine: submit"}
HEAD = re.compile(r"(?<![\w.>])(~?[A-Za-z_]\w*)\s*\(")
# A type precedes the name: this is a variable with its initializer, not a call.
DECLARED = re.compile(r"(?:(?<![\w.])(?!(?:return|else|throw|do)\s)[A-Za-z_]\w*|\w>)\s+$")
BEFORE_BODY = re.compile(
    r"\s*(?:const|noexcept(?:\([^()]*\))?|override|final|->\s*[\w:<>,&*\s]+?)*\s*"
    r"(?::(?!:)\s*\w[\w:<>]*[({][^;]*?[)}]\s*)?\{"
)


def code_of(text: str) -> str:
    """Returns the code without comments and without the content of literals."""
    text = re.sub(r"//[^\n]*", "", text)
    return re.sub(r"'(?:\\.|[^'\\\n])'", "''", re.sub(r'"(?:\\.|[^"\\\n])*"', '""', text))


def endings(text: str) -> list[str]:
    """Returns the ENDINGS that a source contains."""
    return [what for what, pattern in ENDINGS.items() if re.search(pattern, code_of(text))]


def core_files() -> list[Path]:
    return [p for p in sorted((ROOT / "csrc").rglob("*")) if p.suffix in {".h", ".cpp", ".inl", ".cu", ".cuh"}]


@dataclass(frozen=True)
class Function:
    """A function that a source defines: its parameters, and its calls with their numbers of arguments."""

    name: str
    least: int
    most: int
    calls: frozenset[tuple[str, int]]

    def may_be(self, call: tuple[str, int]) -> bool:
        name, n_arguments = call
        return name == self.name and self.least <= n_arguments <= self.most


def group(text: str, begin: int, opening: str = "(", closing: str = ")") -> int:
    """Returns the position after the bracket that closes the one opened before `begin`."""
    depth, at = 1, begin
    while depth and at < len(text):
        depth += (text[at] in opening) - (text[at] in closing)
        at += 1
    return at


def parts(text: str) -> list[str]:
    """Splits text at commas outside brackets."""
    found, depth, last = [], 0, 0
    for at, letter in enumerate(text):
        # "<" is a bracket in a type, and hardly ever a comparison in an argument.
        depth += (letter in "([{<") - (letter in ")]}" or (letter == ">" and text[at - 1 : at] != "-"))
        if letter == "," and depth <= 0:
            found.append(text[last:at])
            last = at + 1
    return [*found, text[last:]] if text.strip() else []


def calls_in(body: str) -> Iterator[tuple[str, int]]:
    for call in re.finditer(r"(?<![\w.>:])(?:this->)?([A-Za-z_]\w*)\s*\(", body):
        if call[1] not in WORDS and not DECLARED.search(body, 0, call.start()):
            yield call[1], len(parts(body[call.end() : group(body, call.end()) - 1]))


def functions(text: str) -> Iterator[Function]:
    code = code_of(text)
    for head in HEAD.finditer(code):
        end = group(code, head.end())
        body = BEFORE_BODY.match(code, end)
        if head[1] in WORDS or body is None:
            continue
        parameters = parts(code[head.end() : end - 1])
        least = sum("=" not in parameter for parameter in parameters)
        inside = code[body.end() : group(code, body.end(), "{", "}")]
        yield Function(head[1], least, len(parameters), frozenset(calls_in(inside)))


def recursive(sources: dict[str, str]) -> list[str]:
    """Returns recursive functions, also indirectly recursive ones, as "unit: name". A unit is a source and its header.

    A call refers to the functions of that name in its own unit; if there are none, to those in other units.
    """
    units: dict[str, dict[str, list[Function]]] = {}
    everywhere: dict[str, list[tuple[str, Function]]] = {}
    for path, text in sources.items():
        unit = path.rpartition(".")[0]
        for function in functions(text):
            units.setdefault(unit, {}).setdefault(function.name, []).append(function)
            everywhere.setdefault(function.name, []).append((unit, function))

    def called(at: tuple[str, Function]) -> Iterator[tuple[str, Function]]:
        unit, function = at
        for call in function.calls:
            own = [(unit, each) for each in units[unit].get(call[0], [])]
            yield from (each for each in own or everywhere.get(call[0], []) if each[1].may_be(call))

    def comes_back(start: tuple[str, Function]) -> bool:
        seen: set[tuple[str, Function]] = set()
        pending = list(called(start))
        while pending and start not in seen:
            at = pending.pop()
            if at not in seen:
                seen.add(at)
                pending += called(at)
        return start in seen

    all_of_them = [each for named in everywhere.values() for each in named]
    return sorted({f"{unit}: {function.name}" for unit, function in all_of_them if comes_back((unit, function))})


def test_b02_nothing_in_the_core_ends_the_process_or_throws_what_is_not_its_own() -> None:
    files = core_files()
    assert len(files) > 100
    assert {str(p.relative_to(ROOT)): found for p in files if (found := endings(p.read_text()))} == {}


def test_b02_no_function_of_the_core_calls_itself() -> None:
    sources = {str(path.relative_to(ROOT / "csrc")): path.read_text() for path in core_files()}
    assert sum(len(list(functions(text))) for text in sources.values()) > 500
    assert recursive(sources) == sorted(OVERLOADS)


@pytest.mark.parametrize(
    "line",
    [
        "std::abort();",
        "assert(n > 0);",
        "std::exit (1);",
        "default: __builtin_unreachable();",
        "return table.at(index);",
        "const int n = std::stoi(text);",
        "raise(SIGABRT);",
    ],
)
def test_b02_an_end_is_found(line: str) -> None:
    assert len(endings(line)) == 1
    assert endings(f"// {line}") == endings("flat(index); std::atomic<int> exit_code;") == []


@pytest.mark.parametrize(
    "source",
    [
        "int depth(const Node& node) { return node.leaf ? 1 : 1 + depth(*node.child); }",
        "void Reader::value() { if (next() == '[') { list(); } }\nvoid Reader::list() { while (more()) value(); }",
        "void walk(int n, int limit = 9) noexcept { if (n) walk(n - 1); }",
        "void Reader::list() const { for (;;) this->list(); }",
    ],
)
def test_b02_a_recursion_is_found(source: str) -> None:
    assert recursive({"files/reader.cpp": source}) != []


def test_b02_a_recursion_through_another_file_is_found() -> None:
    sources = {
        "a.cpp": "void object() { for (;;) list(1); }\nvoid flat() { list(1, 2); }",
        "b.cpp": "void list(int n) { object(); }",
    }
    assert recursive(sources) == ["a: object", "b: list"]


def test_b02_an_overload_is_no_recursion() -> None:
    source = "void check(int a) { check(a, 0); }\nvoid check(int a, int b) { other.check(b); }"
    assert recursive({"check.cpp": source}) == []

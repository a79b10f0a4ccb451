"""Small changes to a Python source that tests should notice, one at a time, as edits of the text."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

COMPARISONS: dict[type[ast.cmpop], str] = {
    ast.Lt: "<=",
    ast.LtE: "<",
    ast.Gt: ">=",
    ast.GtE: ">",
    ast.Eq: "!=",
    ast.NotEq: "==",
    ast.Is: "is not",
    ast.IsNot: "is",
    ast.In: "not in",
    ast.NotIn: "in",
}
ARITHMETIC: dict[type[ast.operator], str] = {
    ast.Add: "-",
    ast.Sub: "+",
    ast.Mult: "//",
    ast.FloorDiv: "*",
    ast.Div: "*",
}


@dataclass(frozen=True, order=True)
class Mutation:
    """Replaces the bytes from `begin` to `end` of a file."""

    path: Path
    line: int
    begin: int
    end: int
    replacement: str
    what: str
    at_import: bool

    @property
    def mutant(self) -> bytes:
        """The changed source."""
        return self.apply(self.path.read_bytes())

    def apply(self, source: bytes) -> bytes:
        """Returns the source with the change."""
        return source[: self.begin] + self.replacement.encode() + source[self.end :]


def mutations_of(path: Path) -> list[Mutation]:
    """Returns every possible change to this file, in the order of lines."""
    source = path.read_bytes()
    finder = _Finder(path, source)
    finder.visit(ast.parse(source))
    return sorted(set(finder.found))


class _Finder(ast.NodeVisitor):
    """Collects possible changes. It skips types, docstrings, messages, checks for the type checker, and no-ops.

    These are changes that no caller can observe: the size of a cache of results, checks that zip() makes of its
    arguments, and None in place of False where the result is a bool.
    """

    def __init__(self, path: Path, source: bytes) -> None:
        self.found: list[Mutation] = []
        self._path = path
        self._source = source
        self._at_import = True
        self._returns_bool = False
        self._starts = [0]
        for line in source.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))

    # Skipped.

    def visit_Assert(self, node: ast.Assert) -> None:
        pass

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        for statement in node.body:
            self.visit(statement)

    def visit_If(self, node: ast.If) -> None:
        if isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            return
        self._negate(node.test)
        self.generic_visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        for default in [*node.args.defaults, *filter(None, node.args.kw_defaults)]:
            self.visit(default)
        outer = self._at_import, self._returns_bool
        self._at_import, self._returns_bool = False, isinstance(node.returns, ast.Name) and node.returns.id == "bool"
        for statement in node.body:
            self.visit(statement)
        self._at_import, self._returns_bool = outer

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self.visit_FunctionDef(node)

    # Changed.

    def visit_IfExp(self, node: ast.IfExp) -> None:
        self._negate(node.test)
        self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        if len(node.ops) == 1:
            begin, end = self._end(node.left), self._begin(node.comparators[0])
            other = COMPARISONS[type(node.ops[0])]
            self._between(begin, end, other, f"comparison becomes {other}", node.lineno)
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        other = "or" if isinstance(node.op, ast.And) else "and"
        first, second = node.values[:2]
        self._between(self._end(first), self._begin(second), other, f"becomes {other}", node.lineno)
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        is_text = any(
            isinstance(each, ast.Constant | ast.JoinedStr) and _is_text(each) for each in (node.left, node.right)
        )
        if (other := ARITHMETIC.get(type(node.op))) is not None and not is_text:
            self._between(self._end(node.left), self._begin(node.right), other, f"becomes {other}", node.lineno)
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, bool):
            self._replace(node, str(not node.value), "opposite constant")
        elif isinstance(node.value, int | float):
            self._replace(node, repr(node.value + 1), "constant plus one")

    def visit_Call(self, node: ast.Call) -> None:
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        if name == "lru_cache":
            return
        if name == "zip":
            is_checked = any(ast.unparse(each) == "strict=True" for each in node.keywords)
            for each in node.args if is_checked else [*node.args, *(each.value for each in node.keywords)]:
                self.visit(each)
            return
        arguments = sorted([*node.args, *node.keywords], key=lambda each: (each.lineno, each.col_offset))
        for i, argument in enumerate(arguments):
            if isinstance(argument, ast.keyword) and argument.arg not in (None, "message"):
                self._drop(arguments, i, f"without {argument.arg}")
        self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Call | ast.Await):
            self._replace(node, "pass", "statement left out")
        if not isinstance(node.value, ast.Constant):
            self.generic_visit(node)

    def visit_Return(self, node: ast.Return) -> None:
        nothing = (None, False) if self._returns_bool else (None,)
        if node.value is not None and not (isinstance(node.value, ast.Constant) and node.value.value in nothing):
            self._replace(node.value, "None", "returns None")
        self.generic_visit(node)

    # Edits.

    def _negate(self, test: ast.expr) -> None:
        begin, end = self._begin(test), self._end(test)
        text = self._source[begin:end].decode()
        self._add(begin, end, f"(not ({text}))", "condition negated", test.lineno)

    def _replace(self, node: ast.stmt | ast.expr, text: str, what: str) -> None:
        self._add(self._begin(node), self._end(node), text, what, node.lineno)

    def _between(self, begin: int, end: int, operator: str, what: str, line: int) -> None:
        # Skips places with a parenthesis or a comment between the operands.
        if not set(self._source[begin:end]) & set(b"()#\n"):
            self._add(begin, end, f" {operator} ", what, line)

    def _drop(self, arguments: list[ast.expr | ast.keyword], i: int, what: str) -> None:
        begin, end = self._begin(arguments[i]), self._end(arguments[i])
        if i + 1 < len(arguments):
            end = self._begin(arguments[i + 1])
        elif i:
            begin = self._end(arguments[i - 1])
        self._add(begin, end, "", what, arguments[i].lineno)

    def _add(self, begin: int, end: int, text: str, what: str, line: int) -> None:
        mutation = Mutation(self._path, line, begin, end, text, what, self._at_import)
        try:
            compile(mutation.apply(self._source), str(self._path), "exec")
        except SyntaxError:
            return
        self.found.append(mutation)

    def _begin(self, node: ast.expr | ast.stmt | ast.keyword) -> int:
        return self._starts[node.lineno - 1] + node.col_offset

    def _end(self, node: ast.expr | ast.stmt | ast.keyword) -> int:
        assert node.end_lineno is not None and node.end_col_offset is not None  # for mypy: parsed nodes have an end
        return self._starts[node.end_lineno - 1] + node.end_col_offset


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str | bytes))


def python_files(folder: Path) -> Iterator[Path]:
    """Yields the sources below a folder, in order."""
    yield from sorted(folder.rglob("*.py"))

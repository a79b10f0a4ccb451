"""Rewrites a template's syntax tree: loops, joins and literals call the environment, which limits and tracks them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from jinja2 import TemplateSyntaxError, nodes
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.visitor import NodeTransformer

_REFUSED = (nodes.Include, nodes.Import, nodes.FromImport, nodes.Extends, nodes.Block)


def guard(
    tree: nodes.Template,
    keep_literal: Callable[[str], nodes.Expr],
    on_name: Callable[[nodes.Filter | nodes.Test], None],
) -> nodes.Template:
    """The same template with counted loops, measured list literals, bounded joins, and tracked string literals.

    `on_name` gets every filter and test. The library refuses an unknown one while compiling, except inside a
    condition: there it fails where it runs.
    """
    guarded: nodes.Template = _Guard(keep_literal, on_name).visit(tree)
    return guarded


class GenerationTag(Extension):
    """`{% generation %}` marks what the assistant wrote, for training; rendering needs only what is inside."""

    tags: ClassVar[set[str]] = {"generation"}  # type: ignore[misc]

    def parse(self, parser: Parser) -> list[nodes.Node]:
        line = next(parser.stream).lineno
        return [nodes.Scope(parser.parse_statements(("name:endgeneration",), drop_needle=True), lineno=line)]


class _Guard(NodeTransformer):
    def __init__(
        self, keep_literal: Callable[[str], nodes.Expr], on_name: Callable[[nodes.Filter | nodes.Test], None]
    ) -> None:
        self._keep_literal = keep_literal
        self._on_name = on_name

    def visit(self, node: nodes.Node, *_args: Any, **_kwargs: Any) -> Any:
        refusal = self._refusal(node)
        if refusal is not None:
            raise TemplateSyntaxError(refusal, node.lineno)
        if isinstance(node, (nodes.Filter, nodes.Test)):
            self._on_name(node)
        if isinstance(node, nodes.Const):
            return self._keep_literal(node.value) if isinstance(node.value, str) else node
        child = self._child_beside_literal(node)
        if child is not None:
            # The literal is a key and never printed, so only the other child is visited.
            setattr(node, child[0], self.visit(child[1]))
            return node
        self.generic_visit(node)
        match node:
            case nodes.For():
                node.iter = _call("counted", node.iter)
            case nodes.Concat():
                return _call("joined", *node.nodes)
            case nodes.List() | nodes.Dict() | nodes.Tuple(ctx="load"):
                return _call("measured", node)
        return node

    @staticmethod
    def _refusal(node: nodes.Node) -> str | None:
        if isinstance(node, nodes.For) and node.recursive:
            return "a recursive loop has no place in a chat template"
        if isinstance(node, _REFUSED):
            return f"{type(node).__name__.lower()} has no place in a chat template"
        return None

    @staticmethod
    def _child_beside_literal(node: nodes.Node) -> tuple[str, nodes.Node] | None:
        """The name and the node of the other child, if one child of `node` is a literal key; else None."""
        match node:
            case nodes.Getitem(arg=nodes.Const()):
                return "node", node.node
            case nodes.Pair(key=nodes.Const()):
                return "value", node.value
        return None


def _call(method: str, *args: nodes.Node) -> nodes.Call:
    """A call of the environment's method; it gets the context first."""
    return nodes.Call(nodes.EnvironmentAttribute(method), [nodes.ContextReference(), *args], [], None, None)

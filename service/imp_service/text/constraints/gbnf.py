"""Checks GBNF grammars, and writes them in the library's notation without changing their language.

Before it parses, the library splits its input into the longest lexemes that match. With a grammar over characters this
would exclude some of its texts. So a grammar without recursion becomes one regular expression, and in a grammar with
recursion each character is a lexeme of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Set
from dataclasses import dataclass

from imp_service.text.constraints.gbnf_parser import (
    Alternation,
    Characters,
    Node,
    Repeat,
    RuleReference,
    Sequence,
    parse_gbnf,
)
from imp_service.text.constraints.grammar_checks import MAX_EXPANSION, find_nonproductive
from imp_service.text.errors import FieldInvalid
from imp_service.text.limits import TextLimits

# The longest regular expression that a grammar becomes. A longer one stays a grammar.
_MAX_REGEX = 1 << 16


@dataclass(frozen=True, slots=True)
class CompiledGrammar:
    """The library's input: a regular expression, or a grammar in the library's own notation."""

    source: str
    is_regex: bool


def compile_gbnf(source: str, path: str, limits: TextLimits) -> CompiledGrammar:
    """Raises `FieldInvalid` with the offset of the error."""
    n_bytes = len(source.encode("utf-8", "surrogatepass"))
    if n_bytes > limits.constraint_bytes:
        raise FieldInvalid(path, f"{n_bytes} bytes, limit {limits.constraint_bytes}")
    rules = parse_gbnf(source, path, limits)
    _check_rules(rules, path)
    order = _children_first(rules)
    _check_expansion(rules, order, path)
    if order is not None:
        regex = _as_regex(rules, order)
        if regex is not None:
            return CompiledGrammar(regex, is_regex=True)
    return CompiledGrammar(_as_grammar(rules), is_regex=False)


def _children(node: Node) -> tuple[Node, ...]:
    match node:
        case Sequence(items):
            return items
        case Alternation(options):
            return options
        case Repeat(item):
            return (item,)
        case Characters() | RuleReference():
            return ()


def _references(node: Node) -> Iterator[RuleReference]:
    waiting = [node]
    while waiting:
        node = waiting.pop()
        if isinstance(node, RuleReference):
            yield node
        waiting.extend(_children(node))


def _check_rules(rules: dict[str, Node], path: str) -> None:
    if not rules:
        raise FieldInvalid(path, "empty")
    if "root" not in rules:
        raise FieldInvalid(path, "no rule named root")
    for node in rules.values():
        for reference in _references(node):
            if reference.rule not in rules:
                raise FieldInvalid(path, f"offset {reference.offset}: no rule named {reference.rule[:64]!r}")
    needs = {name: {reference.rule for reference in _references(node)} for name, node in rules.items()}
    for name in find_nonproductive(needs, lambda name, ending: _ends(rules[name], ending)):
        raise FieldInvalid(path, f"rule {name[:64]!r} refers to itself without an end: no text is derived from it")


def _ends(node: Node, ending: Set[str]) -> bool:
    match node:
        case Characters():
            return True
        case RuleReference(rule):
            return rule in ending
        case Sequence(items):
            return all(_ends(item, ending) for item in items)
        case Alternation(options):
            return any(_ends(option, ending) for option in options)
        case Repeat(item, least):
            return least == 0 or _ends(item, ending)


def _children_first(rules: dict[str, Node]) -> list[str] | None:
    """The rules that root needs, each after those it refers to; None if rules are recursive."""
    needs = {name: {reference.rule for reference in _references(node)} for name, node in rules.items()}
    order: list[str] = []
    state: dict[str, bool] = {}
    waiting = ["root"]
    while waiting:
        name = waiting[-1]
        if name not in state:
            state[name] = False
            open_rules = [other for other in needs[name] if state.get(other) is not True]
            if any(state.get(other) is False for other in open_rules):
                return None
            waiting += open_rules
            continue
        waiting.pop()
        if not state[name]:
            state[name] = True
            order.append(name)
    return order


def _check_expansion(rules: dict[str, Node], order: list[str] | None, path: str) -> None:
    """Limits the size of rules with their repeats written out. If rules are recursive, each is measured alone."""
    sizes: dict[str, int] = {}
    for name in order if order is not None else rules:
        sizes[name] = _expansion(rules[name], sizes)
        if sizes[name] > MAX_EXPANSION:
            raise FieldInvalid(path, f"rule {name[:64]!r}: repeats expand to more than {MAX_EXPANSION} characters")


def _expansion(node: Node, sizes: dict[str, int]) -> int:
    match node:
        case RuleReference(rule):
            return sizes.get(rule, 1)
        case Repeat(item, least, most):
            return _expansion(item, sizes) * max(least, most or 1, 1)
        case Characters():
            return 1
    return sum(_expansion(child, sizes) for child in _children(node))


def _as_regex(rules: dict[str, Node], order: list[str]) -> str | None:
    patterns: dict[str, str] = {}
    for name in order:
        patterns[name] = _regex(rules[name], patterns)
        if len(patterns[name]) > _MAX_REGEX:
            return None
    return patterns["root"]


def _regex(node: Node, patterns: dict[str, str]) -> str:
    match node:
        case Characters(pattern):
            return pattern
        case RuleReference(rule):
            return f"(?:{patterns[rule]})"
        case Sequence(items):
            return "".join(
                f"(?:{_regex(i, patterns)})" if isinstance(i, Alternation) else _regex(i, patterns) for i in items
            )
        case Alternation(options):
            return "|".join(_regex(option, patterns) for option in options)
        case Repeat(item, least, most):
            return f"(?:{_regex(item, patterns)}){_counts_suffix(least, most)}"


def _as_grammar(rules: dict[str, Node]) -> str:
    names = {name: "start" if name == "root" else f"r{index}" for index, name in enumerate(rules)}
    lines = [f"{names[name]}: {_grammar(node, names)}" for name, node in rules.items()]
    return "\n".join(lines) + "\n"


def _grammar(node: Node, names: dict[str, str]) -> str:
    match node:
        case Characters(pattern):
            return f"/{pattern}/"
        case RuleReference(rule):
            return names[rule]
        case Sequence(items):
            return (
                " ".join(
                    f"({_grammar(item, names)})" if isinstance(item, Alternation) else _grammar(item, names)
                    for item in items
                )
                or '""'
            )
        case Alternation(options):
            return " | ".join(_grammar(option, names) for option in options)
        case Repeat(item, least, most):
            return f"({_grammar(item, names)}){_counts_suffix(least, most)}"


def _counts_suffix(least: int, most: int | None) -> str:
    return f"{{{least},{'' if most is None else most}}}"

"""Everything that the sources declare has its rule: fields, methods and reasons; and docs/openai.md has all fields."""

from __future__ import annotations

import ast
import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from imp_service.rpc.imp_v1.requests.field_rules import RULES
from imp_service.rpc.policies import POLICIES
from imp_service.serving.errors.error_table import ERRORS
from imp_service.serving.security.authentication import NO_POLICY
from imp_service.tables import REASONS
from support.calls.raw_calls import SERVICES
from support.calls.request_fields import request_messages

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "service" / "imp_service"
ROLES = {"data", "read", "admin", "anyone"}
# Reasons of the command line, of the client and of failed starts: they never become a status.
NO_STATUS = {"USAGE", "STREAM_BROKEN", "TOKENIZER_INVALID", "TEMPLATE_INVALID", "OVERRIDE_INVALID", "DEVICE_MISSING"}
RAISERS = {"Refusal", "make_error"}


def reasons_in(source: str) -> Iterator[str]:
    """Yields the reasons that Python code raises: first arguments of error constructors, and values of `reason`."""
    for node in ast.walk(ast.parse(source)):
        values: list[ast.expr] = []
        if isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] in RAISERS:
            values = node.args[:1]
        elif isinstance(node, ast.Assign) and ast.unparse(node.targets[0]).split(".")[-1] == "reason":
            values = [node.value]
        for value in values:
            yield from re.findall(r"'([A-Z_]{3,})'", ast.unparse(value))


def without_rule(reasons: set[str]) -> list[str]:
    return sorted(reasons - ERRORS.keys() - NO_STATUS)


def named_in_tests() -> set[str]:
    """Returns the reasons that a test names as a string, or that a function's name contains."""
    found: set[str] = set()
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        if path == Path(__file__):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.update(re.findall(r"\b[A-Z][A-Z_]+\b", node.value))
            elif isinstance(node, ast.FunctionDef):
                found.add(node.name.upper())
    return found


def test_b05_every_field_has_a_rule() -> None:
    fields = {
        f"{message.name}.{field.name}"
        for message in request_messages()
        if not message.GetOptions().map_entry
        for field in message.fields
    }
    assert len(fields) > 80
    assert fields == {f"{message}.{name}" for message, rules in RULES.items() for name in rules.fields}


def test_b05_every_method_has_a_role() -> None:
    methods = {f"{name}/{method.name}": name for name, service in SERVICES.items() for method in service.methods}
    assert len(methods) > 25
    assert {method for method, service in methods.items() if service not in POLICIES} == set()
    assert {policy.role for policy in POLICIES.values()} == ROLES
    # A service without a policy is closed: no token has its role.
    assert NO_POLICY.role not in ROLES


def test_b05_every_reason_has_a_row_and_a_test() -> None:
    raised = {reason for path in sorted(PACKAGE.rglob("*.py")) for reason in reasons_in(path.read_text())}
    # Reasons of model files end a start, and never become a status.
    raised = {reason for reason in raised | set(REASONS) if not reason.startswith("MODEL_")}
    assert len(raised) > 25
    assert without_rule(raised) == []
    assert sorted({reason for reason in ERRORS if reason} - named_in_tests()) == []


@pytest.mark.parametrize(
    "line",
    [
        "raise Refusal('NEVER_HEARD_OF', 'x')",
        "raise serving.Refusal('LOADING' if soon else 'NEVER_HEARD_OF', 'x')",
        "raise make_error('NEVER_HEARD_OF', 'x')",
        "class Odd(TextError):\n    reason = 'NEVER_HEARD_OF'",
        "self.reason = 'NEVER_HEARD_OF'",
    ],
)
def test_b05_a_reason_without_a_row_is_found(line: str) -> None:
    assert without_rule(set(reasons_in(line))) == ["NEVER_HEARD_OF"]


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("write_api_pages", ROOT / "tools" / "write_api_pages.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_oai_10_msg_8_the_pages_are_fresh(tool: ModuleType) -> None:
    for path, tables in tool.PAGES.items():
        assert tool.filled(path.read_text(), tables) == path.read_text()


def test_oai_10_msg_8_a_page_that_is_not_fresh_is_found(tool: ModuleType) -> None:
    for path, tables in tool.PAGES.items():
        page = path.read_text()
        assert tool.filled(page.replace("| `top_k` |", "| `top_q` |"), tables) == page


def test_oai_10_msg_8_every_table_is_on_its_page(tool: ModuleType) -> None:
    for path, tables in tool.PAGES.items():
        page = path.read_text()
        assert [name for name in tables if f"<!-- fields: {name} -->" not in page] == []
        for table in tables.values():
            assert [field for field in table if f"`{field}`" not in page] == []

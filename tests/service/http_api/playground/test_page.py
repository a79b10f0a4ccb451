"""The page as it is served: its size, its headers, and who may load it."""

from __future__ import annotations

import hashlib
import re
from base64 import b64encode
from pathlib import Path

import pytest

import imp_service
from support.servers.http_served import HttpServed, serve_http

PARTS = Path(imp_service.__file__).parent / "http_api" / "pages" / "playground"
MOST_BYTES = 96 * 1024


def policy_of(http: HttpServed) -> dict[str, str]:
    """Returns the content security policy by directive."""
    words = http.client.get("/").headers["content-security-policy"].split("; ")
    return {name: value for name, _, value in (word.partition(" ") for word in words)}


def test_ply_1_the_page_is_one_small_file_that_names_no_other(http: HttpServed) -> None:
    reply = http.client.get("/")
    assert reply.status == 200
    assert reply.headers["content-type"] == "text/html; charset=utf-8"
    text = reply.content.decode()
    assert all(part.read_text() in text for part in PARTS.iterdir() if part.suffix != ".html")
    assert len(reply.content) <= MOST_BYTES
    named = re.findall(r"""(?:src|href|action)=["']?([^"'\s>]*)|url\(|@import|import\(""", text)
    assert all(each.startswith(("data:", "#")) for each in named), named


def test_ply_1_its_policy_allows_its_own_scripts_and_calls_to_its_own_server(http: HttpServed) -> None:
    text = http.client.get("/").content.decode()
    hashes: dict[str, list[str]] = {}
    for kind in ("script", "style"):
        for content in re.findall(f"<{kind}>(.*?)</{kind}>", text, re.DOTALL):
            digest = b64encode(hashlib.sha256(content.encode()).digest()).decode()
            hashes.setdefault(kind, []).append(f"'sha256-{digest}'")
    assert policy_of(http) == {
        "default-src": "'none'",
        "script-src": " ".join(hashes["script"]),
        "style-src": " ".join(hashes["style"]),
        "img-src": "data:",
        "connect-src": "'self'",
        "base-uri": "'none'",
        "form-action": "'none'",
        "frame-ancestors": "'none'",
        "require-trusted-types-for": "'script'",
        "trusted-types": "'none'",
    }


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("x-frame-options", "DENY"),
        ("referrer-policy", "no-referrer"),
        ("cache-control", "no-cache"),
        ("cross-origin-opener-policy", "same-origin"),
        ("cross-origin-resource-policy", "same-origin"),
        ("x-content-type-options", "nosniff"),
    ],
)
def test_ply_1_it_has_the_headers_of_a_page_that_trusts_nobody(http: HttpServed, name: str, value: str) -> None:
    assert http.client.get("/").headers[name] == value


def test_ply_1_the_setting_turns_it_off() -> None:
    with serve_http("http.playground=false") as http:
        assert http.client.get("/").status == 404
        assert http.client.get("/v1/models").status == 200


@pytest.mark.long
def test_ply_1_it_needs_no_key_though_its_calls_do(guarded: HttpServed) -> None:
    assert guarded.client.get("/").status == 200
    assert guarded.client.get("/v1/models").status == 401
    assert guarded.client.get("/health").status == 401

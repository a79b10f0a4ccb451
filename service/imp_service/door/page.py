"""The playground: a page of one file for trying the model. It holds no secret; its calls need a key, as all do."""

from __future__ import annotations

import re
from base64 import b64encode
from functools import cache
from hashlib import sha256
from importlib.resources import files

from imp_service.door.http_call import Headers, HttpCall

HTML = "text/html; charset=utf-8"
_INLINE = re.compile(r"<(script|style)>(.*?)</\1>", re.DOTALL)


async def playground(call: HttpCall) -> None:
    """The page."""
    call.headers += page_headers(page())
    call.answer_with(page().encode(), HTML)


@cache
def page() -> str:
    """The page as it is sent."""
    return files("imp_service.door").joinpath("pages", "playground.html").read_text("utf-8")


@cache
def page_headers(text: str) -> Headers:
    """What a browser may do with the page: run the page's own script, and call the server that it came from."""
    policy = {
        "default-src": "'none'",
        **_sources(text),
        # The icon, which is part of the page.
        "img-src": "data:",
        "connect-src": "'self'",
        "base-uri": "'none'",
        "form-action": "'none'",
        "frame-ancestors": "'none'",
        # Nothing that a model says can become HTML.
        "require-trusted-types-for": "'script'",
        "trusted-types": "'none'",
    }
    return [
        ("content-security-policy", "; ".join(f"{name} {value}" for name, value in policy.items())),
        ("x-frame-options", "DENY"),
        ("referrer-policy", "no-referrer"),
        ("cross-origin-opener-policy", "same-origin"),
        ("cross-origin-resource-policy", "same-origin"),
        # The page of another version may be behind the same address tomorrow.
        ("cache-control", "no-cache"),
    ]


def _sources(text: str) -> dict[str, str]:
    """The page's own script and style by their hashes, so that no others run."""
    found: dict[str, str] = {}
    for kind, content in _INLINE.findall(text):
        digest = b64encode(sha256(content.encode()).digest()).decode()
        found[f"{kind}-src"] = f"'sha256-{digest}'"
    return found

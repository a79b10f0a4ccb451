"""The playground: a page for trying the model. It holds no secret; its calls need a key, as all do.

Its parts are in pages/playground. The server puts them into one document, so a browser loads no other file.
"""

from __future__ import annotations

import re
from base64 import b64encode
from functools import cache
from hashlib import sha256
from importlib.resources import files

from imp_service.http_api.http_call import Headers, HttpCall

HTML = "text/html; charset=utf-8"
_PART = re.compile(r"""<link rel="stylesheet" href="(.+?)">|<script src="(.+?)"></script>""")
_INLINE = re.compile(r"<(script|style)>(.*?)</\1>", re.DOTALL)


async def playground(call: HttpCall) -> None:
    """The page."""
    call.headers += page_headers(page())
    call.answer_with(page().encode(), HTML)


@cache
def page() -> str:
    """The page as it is sent: page.html with the style and the scripts that it names in their places."""
    folder = files("imp_service.http_api").joinpath("pages", "playground")

    def content(part: re.Match[str]) -> str:
        style, script = part.groups()
        kind = "style" if style else "script"
        return f"<{kind}>\n{folder.joinpath(style or script).read_text('utf-8')}</{kind}>"

    return _PART.sub(content, folder.joinpath("page.html").read_text("utf-8"))


@cache
def page_headers(text: str) -> Headers:
    """The policy for browsers: the page may run its own script, and call the server that it came from."""
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
        # After an upgrade, the same address serves the page of another version.
        ("cache-control", "no-cache"),
    ]


def _sources(text: str) -> dict[str, str]:
    """The page's own scripts and style by their hashes, so that no others run."""
    found: dict[str, list[str]] = {}
    for kind, content in _INLINE.findall(text):
        digest = b64encode(sha256(content.encode()).digest()).decode()
        found.setdefault(f"{kind}-src", []).append(f"'sha256-{digest}'")
    return {name: " ".join(hashes) for name, hashes in found.items()}

"""Values as JSON text for answers."""

from __future__ import annotations

import json
import re

_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))
# Control characters that a terminal would obey, line separators at which some clients cut an event, and halves of
# surrogate pairs, which UTF-8 does not have.
_ESCAPED = re.compile("[\x7f-\x9f\u2028\u2029\ud800-\udfff]")


def dumps(value: object) -> str:
    """JSON without spaces. A person can read it in any language."""
    text = _ENCODER.encode(value)
    is_plain = text.isascii() and "\x7f" not in text
    return text if is_plain else _ESCAPED.sub(lambda found: f"\\u{ord(found[0]):04x}", text)

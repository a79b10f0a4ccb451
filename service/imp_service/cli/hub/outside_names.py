"""Names that a hub sends and the library makes files of. Each must be one plain name, never a path."""

import re
from functools import cache
from typing import Any

from huggingface_hub import constants, set_client_factory
from huggingface_hub.utils._http import default_client_factory

from imp_service.cli.failure import CommandError

# A commit, a digest, or the ETag of a server that counts parts.
_NAME = re.compile(r"[0-9A-Za-z][\w.+=:-]{0,127}", re.ASCII)
# As the library reads it: weak or strong, with quotes or without.
_ETAG = re.compile(r'(?:W/)?("?)(.*)\1')


def require_name(name: str) -> str:
    """Returns the name. Raises CommandError."""
    if _NAME.fullmatch(name) is None:
        raise CommandError("HUB_INVALID", f"the hub sent the name {name!r:.80}, expected letters and digits")
    return name


@cache
def check_answers() -> None:
    """From here on, an answer of the hub with a name that could be a path raises before the library uses it."""
    set_client_factory(_checked_client)


def _checked_client() -> Any:
    client = default_client_factory()
    client.event_hooks["response"].append(_check)
    return client


def _check(answer: Any) -> None:
    """Raises CommandError."""
    if (commit := answer.headers.get(constants.HUGGINGFACE_HEADER_X_REPO_COMMIT)) is not None:
        require_name(commit)
    # The library names contents by the ETags of answers to HEAD, and by no others.
    if answer.request.method == "HEAD":
        for header in (constants.HUGGINGFACE_HEADER_X_LINKED_ETAG, "ETag"):
            if etag := answer.headers.get(header):
                found = _ETAG.fullmatch(etag)
                require_name(etag if found is None else found[2])

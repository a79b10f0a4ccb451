"""The token file: the roles and tenants of each bearer token, by the token's SHA-256.

A line is `DIGEST ROLES TENANTS`: hexadecimal digits, names separated by commas, names separated by commas or `*`. A `#`
begins a comment.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from imp_service.config.errors import ConfigError
from imp_service.config.toml import excerpt
from imp_service.tables import LIMITS

ROLES = ("data", "read", "admin")
ANY_TENANT = "*"
# A limit, because every call compares every digest.
MAX_FILE_BYTES = 256 * 1024

_ROLES_TEXT = "data (generate), read (tokenize, metrics) or admin (drain, abort)"
_DIGEST_OF = "`printf %s KEY | sha256sum` prints"
_DIGEST = re.compile(r"[0-9a-f]{64}")
_TENANT = re.compile(rf"[\x21-\x2B\x2D-\x7E]{{1,{LIMITS.tenant_bytes}}}")


@dataclass(frozen=True, slots=True)
class Token:
    """One line."""

    digest: bytes
    roles: frozenset[str]
    # None: any tenant, or no tenant.
    tenants: tuple[str, ...] | None


class Tokens:
    """The tokens of one file."""

    def __init__(self, tokens: Sequence[Token]) -> None:
        self._tokens = tuple(tokens)

    def find(self, word: str) -> Token | None:
        """The token that a caller sent, or None. Takes constant time: every digest is compared, and as a whole."""
        digest = hashlib.sha256(word.encode("utf-8", "surrogateescape")).digest()
        found = None
        for token in self._tokens:
            if hmac.compare_digest(token.digest, digest):
                found = token
        return found


def read_tokens(path: Path) -> Tokens:
    """Raises ConfigError with file and line."""
    try:
        with path.open("rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
    except PermissionError:
        raise ConfigError(f"auth.token_file: {path}", "may not be read", reason="CONFIG_PERMISSION") from None
    except OSError as error:
        raise ConfigError(f"auth.token_file: {path}", f"cannot be read: {error.strerror}") from None
    if len(content) > MAX_FILE_BYTES:
        raise ConfigError(f"auth.token_file: {path}", f"found more than {MAX_FILE_BYTES} bytes, expected at most that")
    tokens = tuple(_tokens(path, content))
    if not tokens:
        raise ConfigError(f"auth.token_file: {path}", "found no token, expected a line for each")
    return Tokens(tokens)


def is_readable_by_all(path: Path) -> bool:
    """Whether everyone on this machine may read the file."""
    return bool(path.stat().st_mode & stat.S_IROTH)


def _tokens(path: Path, content: bytes) -> Iterator[Token]:
    seen: dict[bytes, int] = {}
    for number, line in enumerate(content.split(b"\n"), start=1):
        where = f"{path}:{number}"
        try:
            words = line.decode().partition("#")[0].split()
        except UnicodeDecodeError:
            raise ConfigError(where, "found bytes that are not UTF-8") from None
        if not words:
            continue
        token = _token(where, words)
        if token.digest in seen:
            raise ConfigError(where, f"found the token of line {seen[token.digest]} again")
        seen[token.digest] = number
        yield token


def _token(where: str, words: list[str]) -> Token:
    if len(words) != 3:
        found = f"{len(words)} word{'s' * (len(words) > 1)}"
        raise ConfigError(
            where,
            f"found {found}, expected 3: DIGEST ROLES TENANTS, such as … data,read *; DIGEST is what {_DIGEST_OF}",
        )
    digest, roles, tenants = words
    # The message never holds the word: someone may have put the token itself there.
    if not _DIGEST.fullmatch(digest):
        raise ConfigError(
            where, f"found no digest, expected 64 hexadecimal digits in small letters, which {_DIGEST_OF}"
        )
    for role in roles.split(","):
        if role not in ROLES:
            raise ConfigError(where, f"found role {excerpt(role, 40) or 'nothing'}, expected {_ROLES_TEXT}")
    named = tuple(tenants.split(","))
    for tenant in named if tenants != ANY_TENANT else ():
        if not _TENANT.fullmatch(tenant) or tenant == ANY_TENANT:
            raise ConfigError(
                where, f"found tenant {excerpt(tenant, 40) or 'nothing'}, expected names separated by commas, or *"
            )
    return Token(bytes.fromhex(digest), frozenset(roles.split(",")), None if tenants == ANY_TENANT else named)

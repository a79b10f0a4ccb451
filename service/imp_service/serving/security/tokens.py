"""The files of bearer tokens: the token file has the roles and tenants of each token, by the token's SHA-256.

A line of the token file is `DIGEST ROLES TENANTS`: hexadecimal digits, names separated by commas, names separated by
commas or `*`. A `#` begins a comment. The other file has keys as callers send them, a line each.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import stat
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from imp_service.config.errors import ConfigError
from imp_service.config.toml import excerpt
from imp_service.tables import LIMITS

ROLES = ("data", "read", "admin")
ANY_TENANT = "*"
# A key without roles of its own, as users of vLLM and llama-server know it.
KEY_ROLES = ("data", "read")
EXPECTED_KEY = "expected one key: printable ASCII without spaces"
# A limit, because every call compares every digest.
MAX_FILE_BYTES = 256 * 1024

_ROLES_TEXT = "data (generate), read (tokenize, metrics) or admin (drain, abort)"
_DIGEST_OF = "`printf %s KEY | sha256sum` prints"
_KEY = re.compile(r"[\x21-\x7E]{1,4096}")
_DIGEST = re.compile(r"[0-9a-f]{64}")
_TENANT = re.compile(rf"[\x21-\x2B\x2D-\x7E]{{1,{LIMITS.tenant_bytes}}}")


@dataclass(frozen=True, slots=True)
class Token:
    """One line."""

    digest: bytes
    roles: frozenset[str]
    # None: any tenant, or no tenant.
    tenants: tuple[str, ...] | None


class TokenFile:
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


def read_tokens(path: Path) -> TokenFile:
    """Raises ConfigError with file and line."""
    return _read("auth.token_file", "token", path, _token_of_line)


def read_keys(path: Path) -> TokenFile:
    """Reads a file of keys. Raises ConfigError with file and line."""
    return _read("auth.api_key_file", "key", path, _key_of_line)


def key_token(key: str) -> Token | None:
    """The token of a key as callers send it: it may generate and look. None if it cannot be one."""
    if not _KEY.fullmatch(key):
        return None
    return Token(hashlib.sha256(key.encode()).digest(), frozenset(KEY_ROLES), None)


def _read(setting: str, what: str, path: Path, read: Callable[[str, str], Token | None]) -> TokenFile:
    """`read` reads a line at a place, and returns None if it has no token."""
    where = f"{setting}: {path}"
    try:
        with path.open("rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
    except PermissionError:
        raise ConfigError(where, "may not be read", reason="CONFIG_PERMISSION") from None
    except OSError as error:
        raise ConfigError(where, f"cannot be read: {error.strerror}") from None
    if len(content) > MAX_FILE_BYTES:
        raise ConfigError(where, f"found more than {MAX_FILE_BYTES} bytes, expected at most that")
    tokens = tuple(_tokens(what, path, content, read))
    if not tokens:
        raise ConfigError(where, f"found no {what}, expected a line for each")
    return TokenFile(tokens)


def is_readable_by_all(path: Path) -> bool:
    """Whether everyone on this machine may read the file."""
    return bool(path.stat().st_mode & stat.S_IROTH)


def _tokens(what: str, path: Path, content: bytes, read: Callable[[str, str], Token | None]) -> Iterator[Token]:
    seen: dict[bytes, int] = {}
    for number, line in enumerate(content.split(b"\n"), start=1):
        where = f"{path}:{number}"
        try:
            token = read(where, line.decode())
        except UnicodeDecodeError:
            raise ConfigError(where, "found bytes that are not UTF-8") from None
        if token is None:
            continue
        if token.digest in seen:
            raise ConfigError(where, f"found the {what} of line {seen[token.digest]} again")
        seen[token.digest] = number
        yield token


def _key_of_line(where: str, line: str) -> Token | None:
    key = line.strip()
    if not key or line.startswith("#"):
        return None
    token = key_token(key)
    if token is None:
        raise ConfigError(where, EXPECTED_KEY)
    return token


def _token_of_line(where: str, line: str) -> Token | None:
    words = line.partition("#")[0].split()
    if not words:
        return None
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

"""The token file: what is read, which errors are reported and where, and that a comparison leaks nothing."""

from __future__ import annotations

import hashlib
import hmac
from pathlib import Path

import pytest

from imp_service.cli.failure import exit_status
from imp_service.config.errors import ConfigError
from imp_service.serving.security import tokens as tokens_module
from imp_service.serving.security.tokens import is_readable_by_all, read_keys, read_tokens

A, B = (hashlib.sha256(word.encode()).hexdigest() for word in ("token-a", "token-b"))


def written(folder: Path, content: str | bytes) -> Path:
    path = folder / "tokens"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def test_rpc_24_w22_comments_blanks_and_windows_line_ends_are_read(tmp_path: Path) -> None:
    tokens = read_tokens(written(tmp_path, f"# who\r\n\r\n  {A}\tdata,read  acme,beta # of acme\r\n{B} admin *\r\n"))
    first, second = tokens.find("token-a"), tokens.find("token-b")
    assert first is not None and second is not None
    assert (first.roles, first.tenants) == ({"data", "read"}, ("acme", "beta"))
    assert (second.roles, second.tenants) == ({"admin"}, None)
    for stranger in ("", "token-c", "token-a ", A, "\udcff"):
        assert tokens.find(stranger) is None


@pytest.mark.parametrize(
    ("content", "place", "words"),
    [
        ("", "", "found no token"),
        ("# nobody\n", "", "found no token"),
        ("x" * (tokens_module.MAX_FILE_BYTES + 1), "", "found more than"),
        (f"{A} data *\n\nsecret-token data *\n", ":3", "`printf %s KEY | sha256sum` prints"),
        (f"{A.upper()} data *\n", ":1", "found no digest"),
        (f"{A}\n", ":1", "found 1 word, expected 3: DIGEST ROLES TENANTS, such as … data,read *; DIGEST is what"),
        ("secret-token\n", ":1", "`printf %s KEY | sha256sum` prints"),
        (f"{A} data\n", ":1", "found 2 words, expected 3"),
        (f"{A} data * extra\n", ":1", "found 4 words, expected 3"),
        (f"{A} data,root *\n", ":1", "found role root, expected data (generate), "),
        (
            f"{A} generate *\n",
            ":1",
            "found role generate, expected data (generate), read (tokenize, metrics) or admin (drain, abort)",
        ),
        (f"{A} data, *\n", ":1", "found role nothing"),
        (f"{A} data a,,b\n", ":1", "found tenant nothing"),
        (f"{A} data a,*\n", ":1", "found tenant *"),
        (f"{A} data {'t' * 65}\n", ":1", "found tenant tttt"),
        (f"{A} data *\n{A} read *\n", ":2", "found the token of line 1 again"),
        (b"\xff\xfe data *\n", ":1", "not UTF-8"),
    ],
)
def test_rpc_24_w22_a_bad_file_is_refused_with_its_line(
    tmp_path: Path, content: str | bytes, place: str, words: str
) -> None:
    path = written(tmp_path, content)
    with pytest.raises(ConfigError) as refused:
        read_tokens(path)
    assert refused.value.message.startswith((f"{path}{place}: ", f"auth.token_file: {path}{place}: "))
    assert words in refused.value.message and "secret-token" not in refused.value.message
    assert exit_status(refused.value.reason) == 78


def test_rpc_24_w22_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        read_tokens(tmp_path / "tokens")


def test_rpc_24_keys_are_read_as_callers_send_them(tmp_path: Path) -> None:
    keys = read_keys(written(tmp_path, "# of vLLM's users\n\n  sk-1#a  \r\nsk-2\n"))
    for word in ("sk-1#a", "sk-2"):
        found = keys.find(word)
        assert found is not None and (found.roles, found.tenants) == ({"data", "read"}, None)
    assert [keys.find(word) for word in ("", "sk-1", "# of vLLM's users")] == [None] * 3


@pytest.mark.parametrize(
    ("content", "place", "words"),
    [
        ("", "", "found no key, expected a line for each"),
        ("a b\n", ":1", "expected one key: printable ASCII without spaces"),
        ("k\nsch\u00f6n\n", ":2", "expected one key: printable ASCII without spaces"),
        ("k\nk\n", ":2", "found the key of line 1 again"),
    ],
)
def test_rpc_24_w22_a_bad_file_of_keys_is_refused_with_its_line(
    tmp_path: Path, content: str, place: str, words: str
) -> None:
    path = written(tmp_path, content)
    with pytest.raises(ConfigError) as refused:
        read_keys(path)
    assert refused.value.message.startswith((f"{path}{place}: ", f"auth.api_key_file: {path}{place}: "))
    assert words in refused.value.message and "sch" not in refused.value.message


def test_w22_a_file_that_everyone_may_read_is_distinguished(tmp_path: Path) -> None:
    path = written(tmp_path, f"{A} data *\n")
    path.chmod(0o644)
    assert is_readable_by_all(path)
    path.chmod(0o640)
    assert not is_readable_by_all(path)


def test_rpc_24_w21_every_digest_is_compared_whole_whatever_the_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The work is the same for a right token, a wrong one, and one that matches the first or last entry."""
    tokens = read_tokens(written(tmp_path, f"{A} data *\n{B} data *\n"))
    compared: list[tuple[bytes, bytes]] = []
    compare_digest = hmac.compare_digest

    def compare(one: bytes, other: bytes) -> bool:
        compared.append((one, other))
        return compare_digest(one, other)

    monkeypatch.setattr(tokens_module.hmac, "compare_digest", compare)
    for word in ("token-a", "token-b", "wrong", ""):
        compared.clear()
        tokens.find(word)
        digest = hashlib.sha256(word.encode()).digest()
        assert compared == [(bytes.fromhex(A), digest), (bytes.fromhex(B), digest)]

"""Options of every command that calls a server: its address, TLS, the caller's token, retries and the deadline."""

import sys
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from imp_service.cli.arguments import Once, duration
from imp_service.cli.failure import CommandError, warning_line
from imp_service.client.environment import TARGET_VARIABLE

if TYPE_CHECKING:
    from argparse import _ArgumentGroup
    from ssl import SSLContext

    from imp_service.client.connection import Connection
    from imp_service.client.target import Target, TlsFiles


# Where OpenAI's clients find their token.
KEY_VARIABLE = "OPENAI_API_KEY"


def add_target_option(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--target",
        metavar="ADDRESS",
        action=Once,
        help=f"the server: host:port, unix:///path or dns:///host:port (default: ${TARGET_VARIABLE}, else "
        "127.0.0.1:50051); without a port 50051",
    )


def add_connection_options(parser: "ArgumentParser | _ArgumentGroup") -> None:
    """TLS, token and metadata."""
    _add_tls_options(parser)
    add_caller_options(parser)


def _add_tls_options(parser: "ArgumentParser | _ArgumentGroup") -> None:
    parser.add_argument("--tls", action="store_true", help="speak TLS; --ca, --cert and --key imply it")
    for option, text in (
        ("--ca", "trust servers with a certificate of these authorities (default: gRPC's own)"),
        ("--cert", "the caller's certificate, for mutual TLS"),
        ("--key", "the private key of --cert"),
    ):
        parser.add_argument(option, metavar="FILE", action=Once, help=f"{text}; PEM")


def add_caller_options(parser: "ArgumentParser | _ArgumentGroup") -> None:
    """The caller's token and metadata: the only options for a listener without TLS."""
    token = parser.add_mutually_exclusive_group()
    token.add_argument("--token-file", metavar="FILE", action=Once, help="send the bearer token in FILE")
    token.add_argument(
        "--token-env", metavar="NAME", action=Once, help="send the bearer token in the environment variable NAME"
    )
    parser.add_argument(
        "--metadata",
        metavar="KEY=VALUE",
        type=_pair,
        action="append",
        default=[],
        help="send this with each call, such as --metadata imp-tenant=search or imp-priority=10",
    )


def add_attempts_option(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--attempts",
        metavar="N",
        type=int,
        choices=range(1, 6),
        action=Once,
        help="most attempts if the server refuses a call for a while, 1 to 5 (default: 5); 1: no retry",
    )


def add_deadline_option(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--deadline",
        metavar="TIME",
        type=duration,
        action=Once,
        help="end the call after this long, such as 30s or 500ms",
    )


def connect(arguments: Namespace) -> "Connection":
    from imp_service.client.connection import Connection

    target = target_of(arguments, arguments.target, arguments.attempts, resumes=True)
    return Connection(target, arguments.deadline)


def target_of(
    arguments: Namespace,
    address: str | None,
    attempts: int | None,
    option: str = "--target",
    *,
    resumes: bool = False,
) -> "Target":
    """The server at `address`, or the default one, with the options for TLS, token and retries."""
    from imp_service.client.target import MOST_ATTEMPTS, Target

    tls = _tls_files(arguments)
    token = _token(arguments)
    address = address_of(address, option)
    if tls is None:
        _warn_of_plain_token(address, token)
    return Target(address, tls, token, tuple(arguments.metadata), attempts or MOST_ATTEMPTS, resumes=resumes)


def http_caller_of(arguments: Namespace, url: str, option: str) -> "tuple[dict[str, str], SSLContext | None]":
    """The caller's headers for an OpenAI-compatible server, and its TLS; None: what the system trusts.

    Without an option for the token, it is the one of OpenAI's own clients.
    """
    from urllib.parse import urlsplit

    from imp_service.client.environment import read_variable

    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        raise CommandError("USAGE", f"{option}: {url}: {error}") from None
    if not host or parts.query or parts.fragment or parts.username is not None:
        raise CommandError("USAGE", f"{option}: {url}: expected http://host:port, with or without a path")
    tls, token = _tls_files(arguments), _token(arguments)
    if token is None and read_variable(KEY_VARIABLE):
        token = _checked_token(read_variable(KEY_VARIABLE) or "", f"${KEY_VARIABLE}")
    if parts.scheme == "http":
        if tls is not None:
            raise CommandError("USAGE", f"--tls, --ca, --cert and --key: have no effect with {url}, expected https://")
        _warn_of_plain_token(parts.netloc, token)
    bearer = {} if token is None else {"authorization": f"Bearer {token}"}
    return {**dict(arguments.metadata), **bearer}, None if tls is None else tls.ssl_context()


def address_of(typed: str | None, option: str) -> str:
    """The typed address, else that of the environment, else the default; always with a port."""
    from imp_service.client.environment import read_variable
    from imp_service.client.read_address import DEFAULT_ADDRESS, read_address

    text, origin = typed, option
    if text is None:
        text, origin = read_variable(TARGET_VARIABLE) or DEFAULT_ADDRESS, f"${TARGET_VARIABLE}"
    try:
        return read_address(text)
    except ValueError as error:
        raise CommandError("USAGE", f"{origin}: {text or 'the address'}: {error}") from None


def admin_target_of(arguments: Namespace, address: str, option: str) -> "Target":
    """The admin listener. It never uses TLS, even if the other listeners do."""
    from imp_service.client.target import Target

    found, token = address_of(address, option), _token(arguments)
    _warn_of_plain_token(found, token)
    return Target(found, None, token, tuple(arguments.metadata))


def _warn_of_plain_token(address: str, token: str | None) -> None:
    if token is not None and not _is_local(address):
        print(warning_line(f"the token goes to {address} in plain text; --tls hides it"), file=sys.stderr)


def _tls_files(arguments: Namespace) -> "TlsFiles | None":
    from imp_service.client.target import TlsFiles

    if (arguments.cert is None) != (arguments.key is None):
        raise CommandError("USAGE", "--cert and --key: expected both or neither")
    if not (arguments.tls or arguments.ca or arguments.cert):
        return None
    tls = TlsFiles(arguments.ca, arguments.cert, arguments.key)
    try:
        tls.credentials()  # raises for an unusable file before any call
    except ValueError as error:
        raise CommandError("USAGE", str(error)) from None
    return tls


def _pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    # gRPC ends the process with an exception of its own for characters that HTTP/2 cannot carry.
    if not (equals and key and key.isascii() and value.isascii() and value.isprintable()):
        raise ArgumentTypeError(f"{text}: expected key=value, in printable ASCII")
    return key.lower(), value


def _token(arguments: Namespace) -> str | None:
    if arguments.token_file is not None:
        token, origin = Path(arguments.token_file).read_text(encoding="utf-8").strip(), arguments.token_file
    elif arguments.token_env is not None:
        from imp_service.client.environment import read_variable

        token, origin = read_variable(arguments.token_env) or "", f"${arguments.token_env}"
    else:
        return None
    return _checked_token(token, origin)


def _checked_token(token: str, origin: str) -> str:
    if not (token and token.isascii() and token.isprintable()):
        raise CommandError("USAGE", f"{origin}: no token there, expected one line of printable ASCII")
    return token


def _is_local(address: str) -> bool:
    """Whether a gRPC address, such as dns:///localhost:50051, is of this machine."""
    from imp_service.config.address import Address

    return address.startswith("unix:") or Address(address.rpartition("/")[2]).is_local

"""What people on a terminal read when HTTP is served: addresses, and a command that calls one."""

import shlex
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from imp_service.cli.terminal import print_note
from imp_service.config.address import Address

if TYPE_CHECKING:
    from imp_service.config import Settings

END_LINE = "  Ctrl-C lets running requests finish, a second Ctrl-C ends them"


def is_for_people(settings: "Settings") -> bool:
    """Whether stderr is a terminal, and no setting asks for the lines of the log."""
    return sys.stderr.isatty() and settings.log.format is None


def print_message(notes: Sequence[str], lines: Sequence[str]) -> None:
    """Prints notes, which a terminal breaks between words, and lines, which it does not."""
    for note in notes:
        print_note(note)
    print("\n".join(lines), file=sys.stderr, flush=True)


def http_lines(settings: "Settings", addresses: Sequence[str], *, requires_tokens: bool) -> list[str]:
    """The address of OpenAI's API, and a command that calls it."""
    urls = [_url(Address(text), has_tls=settings.tls.cert is not None) for text in addresses]
    if not urls:
        return []
    lines = [
        f"serving OpenAI's API on {' and '.join(f'{url}/v1' for url in urls)}",
        f"  {curl_line(settings, addresses[0], requires_tokens=requires_tokens)}",
    ]
    pages = [url for url in urls if url.startswith("http")] if settings.http.playground else []
    return [*lines, *(f"  or try it in a browser: {url}/" for url in pages[:1])]


def _url(address: Address, *, has_tls: bool) -> str:
    if address.is_unix:
        return address.text
    return f"{'https' if has_tls else 'http'}://{address.local_text}"


def curl_line(settings: "Settings", text: str, *, requires_tokens: bool) -> str:
    """A command that asks for a chat completion at this address."""
    address = Address(text)
    words = ["curl"]
    if address.socket_path is not None:
        words += ["--unix-socket", str(address.socket_path), "http://localhost/v1/chat/completions"]
    else:
        words += ["--cacert", "CA.pem"] if settings.tls.cert is not None else []
        words += [f"{_url(address, has_tls=settings.tls.cert is not None)}/v1/chat/completions"]
    words += ["-H", "content-type: application/json"]
    if requires_tokens:
        words += ["-H", "authorization: Bearer TOKEN"]
    return shlex.join([*words, "-d", '{"messages": [{"role": "user", "content": "Hello!"}]}'])

"""A hub on loopback that serves repositories of files as Hugging Face's hub does."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from urllib.parse import unquote, urlsplit

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@dataclass
class Hub:
    """The repositories by name, and the faults that the hub shows."""

    repositories: dict[str, dict[str, bytes]]
    n_parameters: int | None = None
    refuses_with: int | None = None  # a status for every request
    is_gated: bool = False
    cuts: list[int] = field(default_factory=list)  # the next downloads end after this many bytes
    corrupts: bool = False  # the content does not match its digest
    ranges: list[str] = field(default_factory=list)  # the Range headers of the downloads
    n_sent: int = 0  # bytes sent in downloads
    ignores_ranges: bool = False
    shifts_ranges: int = 0  # ranges that begin later than asked
    shortens_ranges: int = 0  # ranges that end earlier than asked
    headers: dict[str, str] = field(default_factory=dict)  # headers of downloads that differ from the true ones
    listing: dict[str, object] = field(default_factory=dict)  # fields of listings that differ from the true ones
    digests: dict[str, str] = field(default_factory=dict)  # digests in listings that differ from the true ones
    address: str = ""


class _Handler(BaseHTTPRequestHandler):
    hub: Hub

    def log_message(self, *_: object) -> None:
        pass

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        hub, path = self.hub, unquote(urlsplit(self.path).path)
        if hub.refuses_with is not None:
            return self._refuse(hub.refuses_with, "")
        for name, files in hub.repositories.items():
            if path in (f"/api/models/{name}", *(f"/api/models/{name}/revision/{each}" for each in ("main", COMMIT))):
                return self._send(json.dumps(self._listing(name, files)).encode(), {"Content-Type": "application/json"})
            if path.startswith(f"/{name}/resolve/"):
                if hub.is_gated:
                    return self._refuse(403, "GatedRepo")
                content = files.get(path.removeprefix(f"/{name}/resolve/").partition("/")[2])
                if content is None:
                    return self._refuse(404, "EntryNotFound")
                return self._download(content)
        return self._refuse(404, "RepoNotFound")

    def _listing(self, name: str, files: Mapping[str, bytes]) -> dict[str, object]:
        siblings = [
            {
                "rfilename": file,
                "size": len(content),
                "lfs": {
                    "sha256": self.hub.digests.get(file, _digest(content)),
                    "size": len(content),
                    "pointerSize": 130,
                },
            }
            for file, content in files.items()
        ]
        gguf = {} if self.hub.n_parameters is None else {"gguf": {"total": self.hub.n_parameters}}
        return {"id": name, "sha": COMMIT, "siblings": siblings, **gguf, **self.hub.listing}

    def _download(self, content: bytes) -> None:
        hub = self.hub
        headers = {"ETag": f'"{_digest(content)}"', "X-Repo-Commit": COMMIT, "Accept-Ranges": "bytes"}
        headers |= hub.headers
        first, sent, status = 0, content, 200
        if hub.corrupts:
            sent = bytes([content[0] ^ 1]) + content[1:]
        if "Range" in self.headers and not hub.ignores_ranges:
            begin, _, end = self.headers["Range"].removeprefix("bytes=").partition("-")
            first, sent = int(begin) + hub.shifts_ranges, sent[: int(end) + 1 - hub.shortens_ranges] if end else sent
            headers["Content-Range"] = f"bytes {first}-{len(sent) - 1}/{len(content)}"
            status = 206
        if self.command == "GET":
            hub.ranges.append(self.headers.get("Range", ""))
            hub.n_sent += len(sent) - first
        self._send(sent[first:], headers, status, hub.cuts.pop(0) if hub.cuts and self.command == "GET" else None)

    def _refuse(self, status: int, code: str) -> None:
        self._send(b"", {"X-Error-Code": code} if code else {}, status)

    def _send(self, content: bytes, headers: Mapping[str, str], status: int = 200, cut: int | None = None) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(content[:cut])
        self.close_connection = True


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@contextmanager
def stand_in_hub(**repositories: dict[str, bytes]) -> Iterator[Hub]:
    """Serves the repositories, as owner__name, until the end of the block."""
    hub = Hub({name.replace("__", "/"): files for name, files in repositories.items()})
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"hub": hub}))
    hub.address = f"http://127.0.0.1:{server.server_address[1]}"
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()

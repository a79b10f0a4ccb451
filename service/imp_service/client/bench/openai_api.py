"""HTTP calls of OpenAI's API. The only file of the client that knows aiohttp."""

import json
import ssl
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import Any
from urllib.parse import urlsplit

import aiohttp

from ..failure import CallFailure
from .measure import RequestResult
from .openai_stream import StreamedTokens, StreamFailure, reason_of
from .server_sent_events import EventReader

# Shorter than the time for which servers keep idle connections, so that none closes during a request. uvicorn's 5 s
# are the shortest known.
IDLE_SECONDS = 4.0
CONNECT_SECONDS = 30.0
# HTTP status -> the code of gRPC that determines the exit status.
CODES = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    405: "UNIMPLEMENTED",
    422: "INVALID_ARGUMENT",
    429: "RESOURCE_EXHAUSTED",
    501: "UNIMPLEMENTED",
}


class OpenAiApi:
    """Open connections to the API at `base`, as many as are asked for at once."""

    def __init__(self, session: aiohttp.ClientSession, base: str) -> None:
        self.base = base
        self.server = ""  # the header `server` of the last answer
        self._session = session

    async def fetch(self, path: str, body: bytes | None = None) -> dict[str, Any]:
        """The object that the server answers. Raises CallFailure."""
        content = await self._read(path, body)
        try:
            value = json.loads(content)
        except ValueError:
            value = None
        if not isinstance(value, dict):
            raise CallFailure("UNIMPLEMENTED", "NO_OPENAI_API", f"{self.base}{path}: expected a JSON object")
        return value

    async def accepts(self, path: str, body: bytes) -> None:
        """Raises CallFailure where the server refuses the request."""
        await self._read(path, body)

    async def measure(self, path: str, body: bytes) -> RequestResult:
        """Asks for a stream, and measures it."""
        result = RequestResult(time.perf_counter())
        try:
            async with self._request(path, body) as answer:
                await _read_stream(answer, result)
        except CallFailure as error:
            result.failure = error.reason
        except StreamFailure as error:
            result.failure = error.reason
        result.end()
        return result

    async def _read(self, path: str, body: bytes | None) -> bytes:
        async with self._request(path, body) as answer:
            self.server = answer.headers.get("server", "")
            return await answer.read()

    @asynccontextmanager
    async def _request(self, path: str, body: bytes | None) -> AsyncIterator[aiohttp.ClientResponse]:
        url = self.base + path
        with _explained(url):
            # A redirect would take the token elsewhere.
            asked = self._session.request("GET" if body is None else "POST", url, data=body, allow_redirects=False)
            async with asked as answer:
                if answer.status != 200:
                    raise _failure(answer.status, await answer.read())
                yield answer


async def _read_stream(answer: aiohttp.ClientResponse, result: RequestResult) -> None:
    tokens, events = StreamedTokens(result), EventReader()
    async for content in answer.content.iter_any():
        for data in events.read(content):
            tokens.take(time.perf_counter(), data)
    tokens.end()


@contextmanager
def _explained(url: str) -> Iterator[None]:
    """The failures of a connection."""
    try:
        yield
    except (aiohttp.ClientPayloadError, aiohttp.ServerDisconnectedError, ConnectionResetError) as error:
        raise CallFailure("UNAVAILABLE", "STREAM_BROKEN", f"{url}: the server closed the connection: {error}") from None
    except (TimeoutError, aiohttp.ClientError, OSError) as error:
        raise CallFailure("UNAVAILABLE", "UNAVAILABLE", f"{url}: {error or type(error).__name__}") from None


def _failure(status: int, content: bytes) -> CallFailure:
    """Returns the server's message: in OpenAI's form, vLLM's older form, FastAPI's `detail`, or only the status."""
    code = CODES.get(status, "UNAVAILABLE" if status >= 500 else "UNIMPLEMENTED")
    try:
        body = json.loads(content)
    except ValueError:
        body = None
    error = body.get("error", body) if isinstance(body, dict) else None
    text = error.get("message") or error.get("detail") if isinstance(error, dict) else None
    return CallFailure(code, reason_of(error) or f"HTTP_{status}", str(text or f"status {status}"))


@asynccontextmanager
async def open_openai_api(url: str, headers: Mapping[str, str], tls: ssl.SSLContext | None) -> AsyncIterator[OpenAiApi]:
    """`tls`: None trusts the system's authorities."""
    connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=IDLE_SECONDS, ssl=True if tls is None else tls)
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS)
    sent = {**headers, "content-type": "application/json"}
    async with aiohttp.ClientSession(connector=connector, timeout=timeout, headers=sent) as session:
        yield OpenAiApi(session, base_of(url))


def base_of(url: str) -> str:
    """The address of the API. It is below /v1 unless the URL has a path."""
    return url.rstrip("/") + ("" if urlsplit(url).path.strip("/") else "/v1")

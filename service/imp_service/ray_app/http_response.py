"""The answer of a replica to a request over HTTP: Ray sends an answer of Starlette's by calling it."""

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from imp_service.ray_app.http_side import HttpSide


class DoorResponse(Response):  # type: ignore[misc]
    """Leaves status, headers and body to the replica's HTTP side."""

    def __init__(self, side: HttpSide) -> None:
        super().__init__()
        self._side = side

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._side.answer(scope, receive, send)

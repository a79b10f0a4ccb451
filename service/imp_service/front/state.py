"""What the calls of a front share."""

from __future__ import annotations

from dataclasses import dataclass

from imp_service.config import Settings
from imp_service.front.admission import Turns
from imp_service.front.upstreams import Upstreams
from imp_service.serving.message_memory import MessageMemory
from imp_service.telemetry.log import Log


@dataclass(frozen=True, slots=True)
class FrontOptions:
    """The settings of a front, in seconds and bytes."""

    # How long a call waits while no upstream is ready.
    hold: float = 10.0
    # Of kept bodies and token ids.
    memory: int = 64 * 1024**2
    # While a broken stream waits, a comment is sent this often.
    heartbeat: float = 10.0
    max_connections: int = 512


def front_options(settings: Settings) -> FrontOptions:
    """Those of [front] and [http]."""
    front, heartbeat = settings.front, settings.http.heartbeat.total_seconds()
    return FrontOptions(front.hold.total_seconds(), front.memory, heartbeat, settings.connection.max_connections)


class FrontState:
    """On the event loop's thread."""

    def __init__(self, upstreams: Upstreams, options: FrontOptions, log: Log) -> None:
        self.upstreams = upstreams
        self.options = options
        self.log = log
        self.memory = MessageMemory("kept bodies and token ids", options.memory, "front.memory")
        self.admission = Turns()
        self.n_resumed = self.n_unresumable = self.n_new_tokens = 0
        # The supervisor gave up.
        self.is_lost = False

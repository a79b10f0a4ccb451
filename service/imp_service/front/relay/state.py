"""What the calls of a front share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from imp_service.config import Settings
from imp_service.front.relay.admission import Turns
from imp_service.front.relay.upstreams import Upstreams
from imp_service.serving.message_memory import MessageMemory
from imp_service.telemetry.exposition import exposition
from imp_service.telemetry.front_metrics import FrontCollector, FrontNumbers
from imp_service.telemetry.log import Log

METRICS = "/metrics"


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
    # GET /metrics is answered by the front itself.
    has_own_metrics: bool = False
    # Its names, besides those that no other site can have.
    hosts: Sequence[str] = ()


def front_options(settings: Settings, *, has_metrics: bool = False) -> FrontOptions:
    """Those of [front] and [http]. `has_metrics`: the front answers scrapers, and no engine process of its own."""
    front, http = settings.front, settings.http
    return FrontOptions(
        front.hold.total_seconds(),
        front.memory,
        http.heartbeat.total_seconds(),
        settings.connection.max_connections,
        has_own_metrics=has_metrics and http.public_metrics,
        hosts=http.hosts,
    )


class FrontState(ABC):
    """On the event loop's thread."""

    def __init__(self, upstreams: Upstreams, options: FrontOptions, log: Log) -> None:
        self.upstreams = upstreams
        self.options = options
        self.log = log
        self.memory = MessageMemory("kept bodies and token ids", options.memory, "front.memory")
        self.admission = Turns()
        # By why a stream went on, and how an engine process ended.
        self.resumed, self.deaths = Counter[str](), Counter[str]()
        self.n_lost = self.n_unresumable = 0
        # The supervisor gave up.
        self.is_lost = False

    def metrics(self) -> bytes:
        """The front's own metrics, as text."""
        return exposition(FrontCollector(self.numbers))

    @abstractmethod
    def numbers(self) -> FrontNumbers:
        """What the front has counted, and what it has now."""

    def tell_unresumable(self, why: str, *, is_known: bool) -> None:
        """A stream is relayed, but cannot go on elsewhere. `is_known`: so it is with each stream of such a server."""
        self.n_unresumable += 1
        (self.log.debug if is_known else self.log.warning)("unresumable", message=f"a stream cannot be resumed: {why}")

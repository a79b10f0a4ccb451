"""The live view of imp top: bars and counts on the alternate screen of a terminal."""

from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from imp_service.cli.top.quit_key import QuitKey
from imp_service.cli.utilization_text import (
    GUESSES,
    NO_PROGRESS,
    REQUEST_HEADINGS,
    Snapshot,
    guesses_text,
    percent,
    request_row,
    silence_seconds,
)
from imp_service.client.failure import CallFailure

if TYPE_CHECKING:
    from imp_service.pb.admin_pb2 import RequestState
    from imp_service.pb.model_pb2 import Load


_SPARKS = "▁▂▃▄▅▆▇█"
# A busy engine makes many steps a second: a longer silence means that it is stuck.
LONG_SILENCE_SECONDS = 2.0
HISTORY = 60


def watch(snapshots: Iterator[Snapshot], address: str, end_stream: Callable[[], object]) -> None:
    """Shows snapshots until the stream ends or q is pressed; `end_stream` ends the stream."""
    speeds: deque[float] = deque(maxlen=HISTORY)
    console = Console()
    with Live(console=console, screen=True, auto_refresh=False) as live, QuitKey(end_stream) as key:
        try:
            for load, requests in snapshots:
                speeds.append(load.output_tokens_per_second)
                live.update(view(load, requests, speeds, address), refresh=True)
        except CallFailure:
            if not key.is_pressed:
                raise


def view(load: "Load", requests: "list[RequestState] | None", speeds: "deque[float]", address: str) -> RenderableType:
    """The view of one snapshot."""
    facts = Table.grid(padding=(0, 2))
    facts.add_column(style="bold")
    facts.add_row("running", str(load.running))
    facts.add_row("waiting", f"{load.waiting} requests, {load.waiting_tokens} prompt tokens")
    facts.add_row("sessions", str(load.sessions))
    facts.add_row("output", f"{load.output_tokens_per_second:.1f} tokens/s  {spark_line(speeds)}")
    facts.add_row(GUESSES, guesses_text(load))
    facts.add_row("cache in use", _bar(load.kv_usage, ""))
    facts.add_row("cache hits", _bar(load.cache_hit_rate, " of prompt tokens"))
    silence = silence_seconds(load)
    facts.add_row(NO_PROGRESS, Text(f"{silence:.1f} s", style="bold red" if silence > LONG_SILENCE_SECONDS else ""))
    state = Text("draining", style="bold yellow") if load.draining else Text("accepts calls", style="green")
    time = f"{load.time.ToDatetime():%Y-%m-%d %H:%M:%S} UTC"
    head = Text.assemble("imp top  ", (address, "bold"), "  ", time, "  ", state)
    parts: list[RenderableType] = [head, Panel(facts)]
    if requests is not None:
        parts.append(_request_table(requests, load) if requests else "no requests")
    parts.append(Text("q quits", style="dim"))
    return Group(*parts)


def spark_line(values: "deque[float]") -> str:
    """A sparkline of the values; the highest is a full bar."""
    top = max(values, default=0.0)
    if top <= 0:
        return ""
    return "".join(_SPARKS[min(len(_SPARKS) - 1, int(value / top * len(_SPARKS)))] for value in values)


def _bar(share: float, of: str) -> RenderableType:
    line = Table.grid(padding=(0, 1))
    line.add_row(ProgressBar(total=1.0, completed=share, width=30, complete_style="cyan"), percent(share) + of)
    return line


def _request_table(requests: "list[RequestState]", load: "Load") -> Table:
    table = Table(expand=True)
    for heading in REQUEST_HEADINGS:
        is_number = heading in ("age", "prompt", "output", "unread")
        table.add_column(heading, justify="right" if is_number else "left", no_wrap=True)
    for request in requests:
        # Text(): an id is never markup.
        table.add_row(*(Text(cell) for cell in request_row(request, load.time)))
    return table

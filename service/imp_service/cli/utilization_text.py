"""A server's load and its requests as text."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from google.protobuf.timestamp_pb2 import Timestamp

    from imp_service.pb.admin_pb2 import RequestState
    from imp_service.pb.model_pb2 import Load

# The load, and the requests if the admin listener was asked too.
Snapshot = tuple["Load", "list[RequestState] | None"]

NO_PROGRESS = "no progress for"
GUESSES = "guesses"
REQUEST_HEADINGS = ("request", "state", "age", "prompt", "output", "unread", "peer")


def load_rows(load: "Load") -> list[tuple[str, str]]:
    """Rows of a table: each number with its name."""
    return [
        ("state", "draining: accepts no new calls" if load.draining else "accepts calls"),
        ("running", str(load.running)),
        ("waiting", f"{load.waiting} requests, {load.waiting_tokens} prompt tokens"),
        ("sessions", str(load.sessions)),
        ("output", f"{load.output_tokens_per_second:.1f} tokens/s"),
        (GUESSES, guesses_text(load)),
        ("cache in use", percent(load.kv_usage)),
        ("cache hits", f"{percent(load.cache_hit_rate)} of prompt tokens"),
        (NO_PROGRESS, f"{silence_seconds(load):.1f} s"),
    ]


def load_line(load: "Load") -> str:
    """The load on one line, for logs and pipes."""
    return (
        f"{load.time.ToJsonString()}  running {load.running}  waiting {load.waiting}  sessions {load.sessions}  "
        f"{load.output_tokens_per_second:.1f} tokens/s  cache {percent(load.kv_usage)}  "
        f"hits {percent(load.cache_hit_rate)}  silence {silence_seconds(load):.1f} s"
        f"{'  draining' if load.draining else ''}"
    )


def guesses_text(load: "Load") -> str:
    """How many tokens are guessed ahead, and how many of the guesses are right."""
    drafted = load.draft_tokens_per_second
    if drafted == 0:
        return "none"
    return f"{drafted:.1f} tokens/s, {percent(load.accepted_draft_tokens_per_second / drafted)} right"


def percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def silence_seconds(load: "Load") -> float:
    """Seconds since the last step, if there is work."""
    return load.silence.ToTimedelta().total_seconds()


def request_row(request: "RequestState", now: "Timestamp") -> tuple[str, ...]:
    """One request; `now` is the clock of the server."""
    age = max(0.0, (now.ToNanoseconds() - request.admit_time.ToNanoseconds()) / 1e9)
    return (
        request.request_id,
        "running" if request.running else "waiting",
        f"{age:.1f} s",
        str(request.prompt_tokens),
        str(request.output_tokens),
        str(request.unread_messages),
        request.peer,
    )

"""The goals of imp as a server. They apply to the medians of the rounds."""

from __future__ import annotations

from bench.compare_peers.goals import Verdict
from bench.compare_peers.outcome import IMP
from bench.compare_servers.outcome import Outcome

LLAMA_SERVER = "llama-server"
# Least ratio of generated tokens per second to the peer's, by number of clients.
SPEED = {16: 3.0}
# Largest ratio of the median time to the first token to the peer's.
FIRST_TOKEN = 1 / 3
# Largest ratio of the 99th percentile of the time between tokens to its median, while prompts arrive.
TAIL = 2.5
FRACTION = 0.55
# Largest ratio of the time until the server is ready to the peer's.
START = 1.0


def verdicts(outcome: Outcome) -> list[Verdict]:
    """Returns a verdict on each goal that applies to this number of clients."""
    found = []
    if LLAMA_SERVER in outcome.engines:
        if (least := SPEED.get(outcome.case.clients)) is not None:
            found.append(Verdict("its tokens a second", outcome.ratio(LLAMA_SERVER).median, least))
        first = outcome.ratio(LLAMA_SERVER, "first_token_p50").median
        found.append(Verdict("its first token", first, FIRST_TOKEN, is_least=False))
        start = outcome.starts[IMP] / outcome.starts[LLAMA_SERVER]
        found.append(Verdict("its start", start, START, is_least=False))
    if outcome.case.clients > 1:
        found.append(Verdict("the usual wait for a token, p99", outcome.tail(IMP).median, TAIL, is_least=False))
    found.append(Verdict("the limit", outcome.fraction(IMP).median, FRACTION))
    return found

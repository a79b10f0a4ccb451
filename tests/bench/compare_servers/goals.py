"""What imp is to reach as a server, as data, and whether it did; a goal holds for the medians of the rounds."""

from __future__ import annotations

from bench.compare_peers.goals import Verdict
from bench.compare_peers.outcome import IMP
from bench.compare_servers.outcome import Outcome

LLAMA_SERVER = "llama-server"
# imp's generated tokens a second in the peer's, by the number of clients that it is asked for.
SPEED = {16: 3.0}
# imp's time to the first token, half of them, in the peer's.
FIRST_TOKEN = 1 / 3
# The longest wait for a token of a hundred, in the usual one, where prompts arrive meanwhile.
TAIL = 2.5
FRACTION = 0.55
# Seconds to being ready, in the peer's.
START = 1.0


def verdicts(outcome: Outcome) -> list[Verdict]:
    """Of every goal that is stated for so many clients."""
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

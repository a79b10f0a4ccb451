"""The goals of imp as a server. They apply to the medians of the rounds."""

from __future__ import annotations

from compare.goals import Verdict
from compare.outcome import IMP, Outcome

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
        for of, figure, most in (
            ("its first token", "first_token_p50", FIRST_TOKEN),
            ("its start", "start_seconds", START),
        ):
            found.append(Verdict(of, outcome.ratio(LLAMA_SERVER, figure).median, most, is_least=False))
    if outcome.case.clients > 1:
        tail = outcome.spread(IMP, "inter_token_p99_in_p50").median
        found.append(Verdict("the usual wait for a token, p99", tail, TAIL, is_least=False))
    found.append(Verdict("the limit", outcome.fraction(IMP).median, FRACTION))
    return found

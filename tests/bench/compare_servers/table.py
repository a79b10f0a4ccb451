"""The printed table."""

from __future__ import annotations

from bench.compare_peers.goals import verdict_line
from bench.compare_peers.outcome import IMP
from bench.compare_peers.table import times
from bench.compare_servers.goals import verdicts
from bench.compare_servers.outcome import Outcome

HEADING = (
    f"{'':38} {'server':13} {'tokens/s':>22} {'imp is':>13} {'of limit':>8}   "
    f"{'first token p50, p99':>20}   {'between p50, p99':>16}   {'p99/p50':>7} {'client CPU':>10}"
)
# More CPUs than this used by other processes make the figures of a round doubtful.
OTHERS = 0.1


def lines(outcome: Outcome) -> list[str]:
    """Returns a row for each server, and a remark if other processes used its CPUs."""
    found = []
    for name in outcome.engines:
        speed, median = outcome.tokens_per_s(name), lambda figure, name=name: outcome.figure(name, figure).median
        label = outcome.case.label if name == IMP else ""
        ratio = "" if name == IMP else times(outcome.ratio(name))
        first = f"{median('first_token_p50'):.3f} s {median('first_token_p99'):.3f} s"
        between = f"{1e3 * median('inter_token_p50'):.1f} {1e3 * median('inter_token_p99'):.1f} ms"
        found.append(
            f"{label:38} {name:13} {f'{speed.median:.1f} ({speed.least:.1f} – {speed.most:.1f})':>22} {ratio:>13} "
            f"{100 * outcome.fraction(name).median:6.0f} %   {first:>20}   {between:>16}   "
            f"{outcome.tail(name).median:7.2f} {100 * outcome.client_share(name):8.0f} %"
        )
        if outcome.others(name) > OTHERS:
            found.append(f"{'':38} {name:13} disturbed: other processes used up to {outcome.others(name):.2f} CPUs")
    found.append(f"{'':38} {'imp':13} {verdict_line(verdicts(outcome))}")
    return found

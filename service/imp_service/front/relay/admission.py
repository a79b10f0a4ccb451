"""Finds a request that ends the engine process each time, and refuses it alone.

If the process ends a second time before every call has something new, calls are admitted one at a time, in the order in
which they came. Two ends in a row by the process's own fault, with one call alone inside, and that call is the cause.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterable
from time import monotonic

# Ends by its own fault while one call was admitted, after which the call is the cause.
MAX_FAULTS = 2
# Seconds after which an admitted call that sends nothing yet counts as harmless.
PROOF_SECONDS = 30.0
# How long the body of such a call is refused, and of how many calls.
REFUSED_SECONDS = 600.0
MAX_REFUSED = 1024


class Ticket:
    """One call on its way through the admission."""

    def __init__(self, order: int) -> None:
        self.order = order
        self.n_faults = 0
        self.is_poison = False
        # Set when its turn has come.
        self.turn: asyncio.Event | None = None


class Turns:
    """The calls of one supervised process."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._n_tickets = 0
        self._all: set[Ticket] = set()
        # Those that have nothing new since the process ended.
        self.unproven: set[Ticket] = set()
        self._is_one_by_one = False
        self._admitted: Ticket | None = None
        self._proof: asyncio.TimerHandle | None = None
        # Digest of a body -> until when it is refused.
        self._refused: OrderedDict[bytes, float] = OrderedDict()

    def ticket(self) -> Ticket:
        """That of a new call."""
        self._n_tickets += 1
        ticket = Ticket(self._n_tickets)
        self._all.add(ticket)
        return ticket

    async def enter(self, ticket: Ticket) -> None:
        """Returns when the call may be sent."""
        if not self.may_go(ticket):
            ticket.turn = asyncio.Event()
            await ticket.turn.wait()

    def may_go(self, ticket: Ticket) -> bool:
        """Whether it is the call's turn."""
        return not self._is_one_by_one or ticket is self._admitted

    def prove(self, ticket: Ticket) -> None:
        """The call has a new token, or its end."""
        ticket.n_faults = 0
        self.unproven.discard(ticket)
        if ticket is self._admitted or not self.unproven:
            self._next()

    def leave(self, ticket: Ticket) -> None:
        """The call is over."""
        self._all.discard(ticket)
        if self.unproven:
            self.prove(ticket)

    def ended(self, tickets: Iterable[Ticket], *, is_own_fault: bool) -> Ticket | None:
        """The process ended with these calls inside. Returns the call that is the cause, if that is known now."""
        self._is_one_by_one = self._is_one_by_one or bool(self.unproven)
        suspect, poison = self._admitted, None
        if suspect is not None and is_own_fault:
            suspect.n_faults += 1
            if suspect.n_faults == MAX_FAULTS:
                poison = suspect
                poison.is_poison = True
        self.unproven.update(tickets)
        self.unproven = {ticket for ticket in self.unproven if not ticket.is_poison}
        self._next()
        return poison

    def refuse(self, digest: bytes) -> None:
        """Refuses bodies with this digest for a while. An empty one names none."""
        if digest:
            self._refused[digest] = self._clock() + REFUSED_SECONDS
        if len(self._refused) > MAX_REFUSED:
            self._refused.popitem(last=False)

    def is_refused(self, digest_of: Callable[[], bytes]) -> bool:
        """Whether a body is refused. Its digest is made only if there are refused ones."""
        if not self._refused:
            return False
        digest = digest_of()
        if self._refused.get(digest, 0.0) < self._clock():
            self._refused.pop(digest, None)
        return digest in self._refused

    def _next(self) -> None:
        """Admits the next call: a suspect alone at first, then those that were inside, at last all others."""
        if self._proof is not None:
            self._proof.cancel()
            self._proof = None
        self._admitted = None
        if not self._is_one_by_one:
            return
        if self.unproven:
            self._admitted = min(self.unproven, key=lambda ticket: (-ticket.n_faults, ticket.order))
            self._proof = asyncio.get_running_loop().call_later(PROOF_SECONDS, self.prove, self._admitted)
            _admit(self._admitted)
        else:
            self._is_one_by_one = False
            for ticket in sorted(self._all, key=lambda ticket: ticket.order):
                _admit(ticket)


def _admit(ticket: Ticket) -> None:
    if ticket.turn is not None:
        ticket.turn.set()
        ticket.turn = None

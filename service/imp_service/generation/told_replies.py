"""The replies that the caller of a resumed request has: they are made again, for those who keep what is sent."""

from __future__ import annotations

from collections.abc import Sequence

from imp_service.api.replies import Chunk, Finished
from imp_service.core import CoreScores, StartedEvent
from imp_service.generation.held_scores import HeldScores
from imp_service.generation.output_stream import OutputStream
from imp_service.generation.resume import Seam


class ToldReplies:
    """Those of all sequences of one request."""

    def __init__(self) -> None:
        self._replies: list[Chunk | Finished] = []
        # By stream: the scores of outputs before its seam.
        self._scores: dict[int, CoreScores] = {}

    @property
    def n_ends(self) -> int:
        """How many sequences have an end that the caller has."""
        return sum(isinstance(reply, Finished) for reply in self._replies)

    def add_scores(self, started: StartedEvent) -> None:
        """Takes the scores of a stream's outputs, which were evaluated with the prompt."""
        self._scores[started.stream] = started.scores

    def tell_again(self, stream: OutputStream, seam: Seam) -> None:
        """Makes the replies of outputs that are there again, in the sizes in which they came."""
        while seam.sizes and len(stream.token_ids) >= seam.sizes[0]:
            self._replies.append(stream.take(seam.sizes.pop(0)))

    def add_end(self, end: Finished) -> None:
        """Takes an end that the caller has."""
        self._replies.append(end)

    def replies(self) -> Sequence[Chunk | Finished]:
        """All of them, sequence by sequence, with their scores."""
        replies = sorted(self._replies, key=lambda reply: reply.index)
        for index, scores in self._scores.items():
            _score_again([each for each in replies if isinstance(each, Chunk) and each.index == index], scores)
        self._scores = {}
        return replies


def _score_again(chunks: Sequence[Chunk], core: CoreScores) -> None:
    """Gives the outputs before a seam their scores. The chunk with the seam has those of what was drawn."""
    scores = HeldScores(core).whole()
    for chunk in chunks:
        here = slice(chunk.first_token, chunk.first_token + len(chunk.token_ids) - len(chunk.logprobs))
        chunk.logprobs = scores.logprobs[here] + chunk.logprobs
        chunk.candidates = scores.candidates[here] + chunk.candidates

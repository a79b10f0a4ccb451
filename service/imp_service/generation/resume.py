"""A stream goes on behind the outputs that its caller has: its origin, and where old and new outputs meet."""

from __future__ import annotations

import hashlib
import json
from array import array
from collections.abc import Sequence, Set
from dataclasses import asdict, dataclass, replace
from itertools import islice

from imp_service.api.chat_prompt import ChatPrompt
from imp_service.api.errors import RESUME_MISMATCH, Violation, refuse
from imp_service.api.options import GenerationRequest, SamplingOptions, seed_of
from imp_service.api.resume import REQUEST, REQUEST_DIGITS, SERVER, TOKEN, Origin, Resume, told_path
from imp_service.core import Error, make_error
from imp_service.generation.prompt_images import ReadPrompt


@dataclass(slots=True)
class Seam:
    """Where the outputs of one sequence that its caller has meet the next ones: the last of them is drawn again."""

    sequence: int
    ids: Sequence[int]
    # Nothing follows it: the caller has the end too.
    is_finished: bool
    # How many of the outputs came together, each time. Those that are told already are left out.
    sizes: list[int]
    # Without outputs there is nothing to meet.
    is_met: bool

    @property
    def again(self) -> Sequence[int]:
        """Those that the engine evaluates and does not draw."""
        return self.ids[:-1]

    @property
    def last(self) -> int:
        """The one that is drawn again."""
        return self.ids[-1]

    def mismatch(self) -> Error:
        """The error if the engine draws another one."""
        return mismatch(told_path(self.sequence, len(self.ids) - 1).removeprefix("resume."))


def seams_of(resume: Resume) -> list[Seam]:
    """The seam of each sequence."""
    seams = []
    for i, each in enumerate(resume.sequences):
        ids = list(each.token_ids)
        sizes = list(each.chunks) or [n for n in (len(ids) - 1, 1 if ids else 0) if n > 0]
        seams.append(Seam(i, ids, each.finished, sizes, is_met=not ids))
    return seams


def mismatch(differs: str) -> Error:
    """The error of a stream that would not go on with the same tokens."""
    words = {
        SERVER: "the stream began on a server with another model or other arithmetic",
        REQUEST: "the stream began with another prompt or other options",
    }
    return make_error(
        RESUME_MISMATCH, words.get(differs, f"{differs}: this server draws another token"), {"differs": differs}
    )


def kind_of(differs: str) -> str:
    """What a mismatch is of, in one of three words."""
    return differs if differs in (SERVER, REQUEST) else TOKEN


def require_server(resume: Resume, server: str) -> None:
    """Raises RESUME_MISMATCH if the stream began on a server that draws other tokens."""
    if resume.origin.server != server:
        raise mismatch(SERVER)


def origin_of(request: GenerationRequest, server: str, created: int, digest: str, sampling: SamplingOptions) -> Origin:
    """The origin of a request here. Raises RESUME_MISMATCH if it goes on with a stream of another origin."""
    origin = Origin(server, digest, seed_of(sampling), created)
    if request.resume is not None and request.resume.origin != origin:
        raise mismatch(REQUEST)
    return origin


def with_seed_of(sampling: SamplingOptions, resume: Resume | None) -> SamplingOptions:
    """The sampler of a request; its seed is that of the stream that it goes on with."""
    return sampling if resume is None else replace(sampling, seed=resume.origin.seed)


def request_digest(request: GenerationRequest, prompt: ReadPrompt, sampling: SamplingOptions, most: int) -> str:
    """Everything of a request that decides its outputs. `most`: the outputs that it may have here.

    Not who asks and when, nor how the outputs are delivered and guessed.
    """
    stop, output = request.stop, request.output
    decides = {
        "images": [plan.digest.hex() for plan in prompt.images.plans],
        "sampling": asdict(replace(sampling, logit_bias={})),
        "bias": sorted((int(token), float(bias)) for token, bias in sampling.logit_bias.items()),
        "stop": [list(stop.strings), sorted({*map(int, stop.token_ids)}), stop.include_match, stop.ignore_eos],
        "ends": sorted(prompt.ends),
        "outputs": [most, stop.min_tokens, request.max_reasoning_tokens],
        "constraint": repr(request.constraint),
        "sequences": request.num_sequences,
        "tools": request.prompt.tools_json if isinstance(request.prompt, ChatPrompt) else "",
        "text": [output.text, output.parse, output.special_tokens, request.parallel_tool_calls],
    }
    digest = hashlib.sha256(array("i", prompt.ids).tobytes())
    digest.update(json.dumps(decides, sort_keys=True).encode())
    return digest.hexdigest()[:REQUEST_DIGITS]


def require_possible(seams: Sequence[Seam], most: int, stops: Set[int], min_tokens: int) -> None:
    """Raises FieldsInvalid if outputs are more than the request may have here, or if one of them follows an end.

    `stops`: tokens that end an output which has `min_tokens`.
    """
    wrong = []
    for seam in seams:
        if (n := len(seam.ids)) > most:
            words = f"{n} entries, expected at most {most}: no output of this request is longer"
            wrong.append(Violation(told_path(seam.sequence), words))
        elif not stops.isdisjoint(seam.again):
            ends = (n for n, token in enumerate(seam.again) if n >= min_tokens and token in stops)
            wrong += [behind_end(seam, n + 1) for n in islice(ends, 1)]
    refuse(wrong)


def behind_end(seam: Seam, token: int) -> Violation:
    """An output behind the end of its sequence."""
    return Violation(told_path(seam.sequence, token), f"{seam.ids[token]}, expected none: the output ends before it")


def against_constraint(seam: Seam, token: int) -> Violation:
    """An output that the request's constraint does not allow there."""
    return Violation(told_path(seam.sequence, token), f"{seam.ids[token]} is not allowed there by the constraint")


def allows(mask: bytes, token: int) -> bool:
    """Whether a mask of a constraint has the token."""
    return bool(mask[token >> 3] >> (token & 7) & 1)

"""Writes the replies of a generation as VllmEngine's messages."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from smg_grpc_proto.generated import vllm_engine_pb2 as vllm

from imp_service.api.replies import Candidate, Chunk, Finished, Reply, Started
from imp_service.serving.generation_runner import is_large

# vLLM's finish reasons. Not "error": a gateway repeats a request that ended with it.
FINISH_REASONS: Mapping[str, str] = {
    "stop": "stop",
    "max_tokens": "length",
    "context_full": "length",
    "time_limit": "length",
    "aborted": "abort",
}


@dataclass(slots=True)
class _Output:
    """The output of one sequence so far. If the answer is streamed, only the number of tokens is kept."""

    n_tokens: int = 0
    token_ids: list[int] = field(default_factory=list)
    scores: Any = None


class VllmReplies:
    """The answer to one request: chunks and an end for each sequence, or one message for each whole sequence."""

    def __init__(self, request: Any, n_sequences: int) -> None:
        self._is_streamed = request.stream
        self._n_top = request.sampling_params.logprobs
        self._n_prompt_top = request.sampling_params.prompt_logprobs
        self._outputs = [_Output() for _ in range(n_sequences)]
        self._started: Started | None = None
        self._prompt: Any = None

    def takes_long(self, reply: Reply) -> bool:
        """Whether writing this reply takes too long for the event loop."""
        has_prompt = self._started is not None and not self._is_streamed and is_large(self._started)
        return is_large(reply) or (has_prompt and isinstance(reply, Finished))

    def write(self, reply: Reply) -> Sequence[Any]:
        """The messages that the reply completes."""
        match reply:
            case Started():
                self._started, self._prompt = reply, self._input_logprobs(reply)
                if self._is_streamed and self._prompt is not None:
                    return [self._chunk(i, input_logprobs=self._prompt) for i in range(len(self._outputs))]
            case Chunk():
                return self._add(reply)
            case Finished():
                return [vllm.GenerateResponse(complete=self._complete(reply))]
        return ()

    def _add(self, chunk: Chunk) -> Sequence[Any]:
        output = self._outputs[chunk.index]
        output.n_tokens += len(chunk.token_ids)
        scores = _output_logprobs(chunk, self._n_top) if chunk.logprobs else None
        if self._is_streamed:
            fields = {"token_ids": chunk.token_ids, "completion_tokens": len(chunk.token_ids)}
            return [self._chunk(chunk.index, output_logprobs=scores, **fields)]
        output.token_ids += chunk.token_ids
        if scores is not None:
            output.scores = output.scores or vllm.OutputLogProbs()
            output.scores.MergeFrom(scores)
        return ()

    def _chunk(self, index: int, **fields: Any) -> Any:
        chunk = vllm.GenerateStreamChunk(index=index, **self._counts(), **fields)
        return vllm.GenerateResponse(chunk=chunk)

    def _complete(self, end: Finished) -> Any:
        output = self._outputs[end.index]
        complete = vllm.GenerateComplete(
            index=end.index,
            output_ids=output.token_ids,
            finish_reason=FINISH_REASONS[end.reason],
            completion_tokens=output.n_tokens,
            output_logprobs=output.scores,
            input_logprobs=None if self._is_streamed else self._prompt,
            **self._counts(),
        )
        # As in vLLM, the model's end token is not reported as a match.
        if end.match is not None and end.match.text is not None:
            complete.matched_stop_str = end.match.text
        elif end.match is not None and end.match.token_id is not None:
            complete.matched_token_id = end.match.token_id
        return complete

    def _counts(self) -> Mapping[str, int]:
        """The token counts of the prompt; none if the generation ended before it started."""
        if self._started is None:
            return {}
        return {"prompt_tokens": self._started.prompt_tokens, "cached_tokens": self._started.cached_prompt_tokens}

    def _input_logprobs(self, started: Started) -> Any:
        prompt = started.prompt
        if not prompt.logprobs:
            return None
        found = vllm.InputLogProbs(token_ids=prompt.token_ids)
        for logprob in prompt.logprobs:
            # The first token has no log probability.
            found.token_logprobs.add(**({} if math.isnan(logprob) else {"value": logprob}))
        found.top_logprobs.extend(
            _top(items, self._n_prompt_top) for items in _asked(prompt.candidates, self._n_prompt_top)
        )
        return found


def _output_logprobs(chunk: Chunk, n_top: int) -> Any:
    return vllm.OutputLogProbs(
        token_logprobs=chunk.logprobs,
        token_ids=chunk.token_ids,
        top_logprobs=[_top(items, n_top) for items in _asked(chunk.candidates, n_top)],
    )


def _asked(candidates: Sequence[Sequence[Candidate]], n_top: int) -> Sequence[Sequence[Candidate]]:
    """The candidates, or an empty list if the request asks for none of this kind."""
    return candidates if n_top else ()


def _top(items: Sequence[Candidate], n_top: int) -> Any:
    items = items[:n_top]
    return vllm.TopLogProbs(values=[each.logprob for each in items], token_ids=[each.token_id for each in items])

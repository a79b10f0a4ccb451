"""Measures networks: bits per byte of held-out text, greedy text with margins, a draft's agreement with its target."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from .network import Network


@dataclass(frozen=True)
class Greedy:
    """A greedy continuation of a prompt; margin[i] is the best logit minus the second best at output[i]."""

    output: list[int]
    margins: list[float]


def nats(network: Network, ids: Sequence[int], end_of_text: int) -> float:
    """Returns the negative log-likelihood of `ids`, in windows that fill the context and begin with `end_of_text`."""
    size = network.shape.max_context - 1
    total = 0.0
    for at in range(0, len(ids), size):
        window = torch.tensor([end_of_text, *ids[at : at + size]])
        with torch.no_grad():
            log_probability = network(window[None, :-1])[0].double().log_softmax(-1)
        total -= log_probability.gather(1, window[1:, None]).sum().item()
    return total


def bits_per_byte(total_nats: float, n_bytes: int) -> float:
    return total_nats / math.log(2) / n_bytes


def greedy(network: Network, prompt: Sequence[int], max_tokens: int, stop: Sequence[int]) -> Greedy:
    """Returns the greedy continuation; a stop token ends it and is its last id."""
    ids, margins = list(prompt), []
    for _ in range(max_tokens):
        with torch.no_grad():
            best = network(torch.tensor([ids]))[0, -1].topk(2)
        ids.append(int(best.indices[0]))
        margins.append(float(best.values[0] - best.values[1]))
        if ids[-1] in stop:
            break
    return Greedy(ids[len(prompt) :], margins)


def agreement(target: Network, draft: Network, prompts: torch.Tensor, n_tokens: int) -> float:
    """Returns how often draft and target choose the same token in the target's greedy text after `prompts` [n, m]."""
    ids = prompts
    with torch.no_grad():
        for _ in range(n_tokens):
            ids = torch.cat((ids, target(ids)[:, -1:].argmax(-1)), dim=1)
        proposed = draft(ids[:, :-1]).argmax(-1)
    start = prompts.shape[1]
    return float((proposed[:, start - 1 :] == ids[:, start:]).double().mean())

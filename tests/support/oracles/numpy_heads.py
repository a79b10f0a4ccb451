"""A draft head in float64, written from the definitions of NextN and EAGLE-3."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from support.oracles.numpy_transformer import NumpyLayer, NumpyTransformer, rms_norm, soft_cap

Array = NDArray[np.float64]


@dataclasses.dataclass
class NumpyHead:
    """Weights by name: embedding_norm, hidden_norm, fuse, tap_norm, final_norm, head, embedding; None: the trunk's."""

    trunk: NumpyTransformer
    weights: dict[str, Array]
    layer: NumpyLayer
    head_dim: int
    attention_scale: float
    epsilon: float
    taps: tuple[int, ...] = ()  # of EAGLE-3: the stream before these layers
    hidden_comes_first: bool = False
    residual_is_normed: bool = False
    token_ids: Sequence[int] | None = None  # of the rows of the head

    @property
    def is_eagle(self) -> bool:
        return len(self.taps) > 0

    def hidden(self, tokens: Sequence[int]) -> Array:
        """What the head reads of each row of the trunk."""
        positions = np.arange(len(tokens), dtype=np.float64)
        x = self.trunk.embedding[list(tokens)] * self.trunk.embedding_scale
        streams = [x]
        for layer in self.trunk.layers:
            x = self.trunk.through(layer, x, positions)
            streams.append(x)
        if self.is_eagle:
            return np.concatenate([streams[tap] for tap in self.taps], axis=1)
        return rms_norm(x, self.trunk.final_norm, self.trunk.epsilon)

    def norm(self, x: Array, name: str) -> Array:
        return rms_norm(x, self.weights[name], self.epsilon)

    def own_rows(self, hidden: Array) -> Array:
        """The rows of the trunk in the form in which the head's own output goes on."""
        if not self.is_eagle:
            return hidden
        return (self.norm(hidden, "tap_norm") if "tap_norm" in self.weights else hidden) @ self.weights["fuse"].T

    def outputs(self, tokens: Sequence[int], own: Array) -> tuple[Array, Array]:
        """The head's output and logits of each row: row i has own[i], at position i, and the token after it."""
        embedding = self.weights.get("embedding", self.trunk.embedding)
        e = self.norm(embedding[list(tokens)] * self.trunk.embedding_scale, "embedding_norm")
        h = self.norm(own, "hidden_norm")
        joined = np.concatenate([h, e] if self.hidden_comes_first else [e, h], axis=1)
        if self.is_eagle:
            x, attention_input = (h if self.residual_is_normed else own), joined
        else:
            x = joined @ self.weights["fuse"].T
            attention_input = rms_norm(x, self.layer.weights["attention_norm"], self.epsilon)
        positions = np.arange(len(own), dtype=np.float64)
        pass_of_layer = dataclasses.replace(
            self.trunk, head_dim=self.head_dim, attention_scale=self.attention_scale, epsilon=self.epsilon
        )
        x = x + pass_of_layer.attention(self.layer, attention_input, positions)
        fed = rms_norm(x, self.layer.weights["ffn_norm"], self.epsilon)
        x = x + pass_of_layer.feed_forward(self.layer, fed)
        normed = rms_norm(x, self.weights.get("final_norm", self.trunk.final_norm), self.epsilon)
        return (x if self.is_eagle else normed), self.logits(normed)

    def logits(self, normed: Array) -> Array:
        if "head" not in self.weights:
            return soft_cap(normed @ self.trunk.head.T * self.trunk.logit_scale, self.trunk.logit_soft_cap)
        own = normed @ self.weights["head"].T
        if self.token_ids is None:
            return own
        logits = np.full((len(own), len(self.trunk.embedding)), -1e30)
        logits[:, list(self.token_ids)] = own
        return logits

    def guesses(self, tokens: Sequence[int], chain: Sequence[int]) -> Array:
        """The logits of the token after `tokens`, and then of those after each token of the chain."""
        own = self.own_rows(self.hidden(tokens[:-1]))
        following = list(tokens[1:])
        found = []
        for token in [*chain, 0]:
            output, logits = self.outputs(following, own)
            found.append(logits[-1])
            own, following = np.concatenate([own, output[-1:]]), [*following, token]
        return np.array(found)

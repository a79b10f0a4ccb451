"""An endpoint picker that follows the documented rules of llm-d's picker, for tests without a cluster.

It reads the configuration of conf/kubernetes/overlays/inference_pool, and so tests the metric names there.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

# The picker estimates the number of tokens of a text from this.
CHARACTERS_OF_A_TOKEN = 4


@dataclass(frozen=True)
class Load:
    """The metrics of an endpoint that the picker reads."""

    waiting: float
    running: float
    kv_usage: float
    block_tokens: int
    n_blocks: int


@dataclass
class Endpoint:
    """A server, and the prompt prefixes that it received, the least recently used first."""

    scrape: Callable[[], str]
    load: Load | None = None
    blocks: OrderedDict[bytes, None] = field(default_factory=OrderedDict)


class Picker:
    """Scrapes the endpoints, scores them, and picks the one with the highest sum of weighted scores."""

    def __init__(self, config: Mapping[str, Any], scrapes: Mapping[str, Callable[[], str]]) -> None:
        plugins = {plugin["type"]: plugin.get("parameters", {}) for plugin in config["plugins"]}
        extractor = plugins["core-metrics-extractor"]
        engines = {engine["name"]: engine for engine in extractor["engineConfigs"]}
        self._engine = engines[extractor["defaultEngine"]]
        (profile,) = config["schedulingProfiles"]
        self._weights = {each["pluginRef"]: each["weight"] for each in profile["plugins"] if "weight" in each}
        self.endpoints = {name: Endpoint(scrape) for name, scrape in scrapes.items()}

    def refresh(self) -> Mapping[str, Load]:
        """Scrapes every endpoint. Raises KeyError if a metric is missing, as the picker then logs an error."""
        return {name: self._read(endpoint) for name, endpoint in self.endpoints.items()}

    def pick(self, prompt: str) -> str:
        """Returns the name of the endpoint for this prompt; of equal ones, the first."""
        self.refresh()
        scores = self.scores(prompt)
        best = max(scores, key=lambda name: scores[name])
        self.sent(best, prompt)
        return best

    def sent(self, name: str, prompt: str) -> None:
        """Records that a request went to an endpoint, which keeps its blocks while they fit in its cache."""
        endpoint = self.endpoints[name]
        assert endpoint.load is not None
        for block in _blocks(prompt, endpoint):
            endpoint.blocks[block] = None
            endpoint.blocks.move_to_end(block)
        while len(endpoint.blocks) > endpoint.load.n_blocks:
            endpoint.blocks.popitem(last=False)

    def scores(self, prompt: str) -> Mapping[str, float]:
        """Returns the sum of each endpoint's weighted scores, by the loads of the last scrape."""
        scorers: Mapping[str, Callable[[str], Mapping[str, float]]] = {
            "queue-scorer": self._queue_scores,
            "kv-cache-utilization-scorer": self._kv_scores,
            "prefix-cache-scorer": self._prefix_scores,
        }
        found = [(weight, scorers[name](prompt)) for name, weight in self._weights.items()]
        return {name: sum(weight * scores[name] for weight, scores in found) for name in self.endpoints}

    def _read(self, endpoint: Endpoint) -> Load:
        families = {family.name: family for family in text_string_to_metric_families(endpoint.scrape())}
        engine = self._engine

        def value(spec: str) -> float:
            return float(families[engine[spec]].samples[0].value)

        labels = families[engine["cacheInfoSpec"]].samples[0].labels
        endpoint.load = Load(
            waiting=value("queuedRequestsSpec"),
            running=value("runningRequestsSpec"),
            kv_usage=value("kvUsageSpec"),
            block_tokens=int(labels["block_size"]),
            n_blocks=int(labels["num_gpu_blocks"]),
        )
        return endpoint.load

    def _loads(self) -> Mapping[str, Load]:
        return {name: endpoint.load for name, endpoint in self.endpoints.items() if endpoint.load is not None}

    def _queue_scores(self, prompt: str) -> Mapping[str, float]:
        """Returns scores between 1 for the shortest queue and 0 for the longest."""
        waiting = {name: load.waiting for name, load in self._loads().items()}
        low, high = min(waiting.values()), max(waiting.values())
        return {name: 1.0 if high == low else (high - n) / (high - low) for name, n in waiting.items()}

    def _kv_scores(self, prompt: str) -> Mapping[str, float]:
        return {name: 1 - load.kv_usage for name, load in self._loads().items()}

    def _prefix_scores(self, prompt: str) -> Mapping[str, float]:
        """Returns the share of the prompt's leading blocks that the endpoint received before."""
        scores = {}
        for name, endpoint in self.endpoints.items():
            blocks = _blocks(prompt, endpoint)
            n_known = next((i for i, block in enumerate(blocks) if block not in endpoint.blocks), len(blocks))
            scores[name] = n_known / len(blocks) if blocks else 0.0
        return scores


def _blocks(prompt: str, endpoint: Endpoint) -> Sequence[bytes]:
    """Returns a digest for each whole block of the prompt; it covers all earlier blocks too."""
    assert endpoint.load is not None
    n = endpoint.load.block_tokens * CHARACTERS_OF_A_TOKEN
    digest, found = hashlib.sha256(), []
    for start in range(0, len(prompt) - n + 1, n):
        digest.update(prompt[start : start + n].encode())
        found.append(digest.digest())
    return found

"""Makes the embedder of a loaded model: from its files, its settings and what the core computes."""

from __future__ import annotations

from imp_service.config import ConfigError
from imp_service.core import LoadedModel
from imp_service.core.overrides import YES_NO
from imp_service.generation.embedding import Embedder
from imp_service.generation.embedding_facts import SETTING, CoreFacts, EmbeddingFacts, facts_of
from imp_service.generation.limits import EngineLimits
from imp_service.generation.pairs import FormedPairs, find_pair_reader
from imp_service.generation.scoring import Scorer
from imp_service.generation.text_prompts import read_text_prompts
from imp_service.text import Tokenizer


def make_embedder(loaded: LoadedModel, tokenizer: Tokenizer, limits: EngineLimits) -> Embedder:
    """Raises ConfigError if the settings name a pooling that the model cannot have."""
    core, settings, metadata = loaded.model, loaded.config.settings, loaded.metadata
    prompts = read_text_prompts(metadata)
    pairs = find_pair_reader(tokenizer, metadata, core.architecture)
    computed = CoreFacts(core.pooling, core.vector_width, core.has_head, core.needs_whole_texts, core.max_context)
    facts = facts_of(computed, metadata, settings, prompts, pairs)
    yes_no = None
    if facts.pooling == YES_NO:
        if not facts.has_head or pairs is None or isinstance(pairs, FormedPairs):
            raise _unfit("a model that reads a question and answers it")
        yes_no = _answers(tokenizer)
    truncate = settings.limits.truncate
    return Embedder(facts, tokenizer, prompts, pairs, scorer=Scorer(yes_no), truncate=truncate, limits=limits)


def length_warnings(loaded: LoadedModel, facts: EmbeddingFacts) -> list[str]:
    """A warning if the size of a step shortens the inputs that the model could take."""
    most = loaded.model.max_context
    if facts.max_tokens >= most:
        return []
    return [f"scheduler.step_tokens limits an input to {facts.max_tokens} tokens, the model takes {most}"]


def _answers(tokenizer: Tokenizer) -> tuple[int, int]:
    found = [tokenizer.encode(word, add_special_tokens=False) for word in ("yes", "no")]
    if any(len(ids) != 1 for ids in found):
        raise _unfit("a model with tokens for yes and no")
    return found[0][0], found[1][0]


def _unfit(expected: str) -> ConfigError:
    return ConfigError(SETTING, f"{YES_NO}, expected only with {expected}", reason="OVERRIDE_INVALID")

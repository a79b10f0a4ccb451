"""The model's numbers and the settings that requests are checked against."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import timedelta
from operator import attrgetter
from typing import TYPE_CHECKING

from imp_service.config.settings import Settings
from imp_service.generation.limits import CONTEXT, COUNTS, CoreLimits
from imp_service.generation.text_side import INFILL, REASONING_BUDGET
from imp_service.serving.model_names import public_name
from imp_service.text import ConstraintKind

if TYPE_CHECKING:
    from imp_service.generation import ModelRuntime
    from imp_service.generation.embedding import Embedder
    from imp_service.media import Images

ALL_CONSTRAINTS = tuple(kind.value for kind in ConstraintKind)


@dataclass(frozen=True, slots=True)
class ServedModel(CoreLimits):
    """Made for each request, since a reload may change the settings. Without a model only the settings are known."""

    settings: Settings
    # The number of logits, and of bits in a mask.
    vocab_size: int = 0
    # Ids below it are tokens.
    n_tokens: int = 0
    max_context: int = 0
    # The name the model is served under, then its aliases.
    names: tuple[str, ...] = ()
    # Kinds of constraints that the model supports, by the name of their field.
    constraints: tuple[str, ...] = ()
    # Why no prompt is evaluated in part; empty: requests may ask for it.
    no_sparse_prefill: str = "no model is loaded"
    # What guesses tokens ahead, in the order of use.
    drafters: tuple[str, ...] = ()
    # The text of the chat template.
    template: str = ""
    # What makes vectors and scores of texts; None without a model.
    embedder: Embedder | None = None
    # What reads the images of prompts; None: the model takes none.
    images: Images | None = None
    # What the model does besides generating text, by the names of TextSide.
    capabilities: tuple[str, ...] = ()

    @classmethod
    def of(cls, model: ModelRuntime, settings: Settings) -> ServedModel:
        """Returns the facts of this model and the current settings."""
        return cls(
            settings=settings,
            vocab_size=model.vocab_size,
            n_tokens=model.n_tokens,
            max_context=model.max_context,
            names=_names(model, settings),
            # Constrained output needs an end token.
            constraints=ALL_CONSTRAINTS if model.eos_tokens and model.embedder.facts.has_head else (),
            no_sparse_prefill=model.no_sparse_prefill,
            drafters=model.drafters,
            template=model.text.template_source or "",
            embedder=model.embedder,
            images=model.images,
            capabilities=model.text.capabilities(has_head=model.embedder.facts.has_head),
        )

    @property
    def reasons(self) -> bool:
        """The model's family writes reasoning."""
        return REASONING_BUDGET in self.capabilities

    @property
    def fills_gaps(self) -> bool:
        """The model fills in the middle."""
        return INFILL in self.capabilities

    def most(self, name: str) -> float:
        """A limit of the core by its name, or of the settings by its key; a time in seconds."""
        if name == CONTEXT:
            return self.max_context
        found = COUNTS[name] if name in COUNTS else attrgetter(name)(self.settings)
        return found.total_seconds() if isinstance(found, timedelta) else found

    def lacks(self, feature: str) -> str:
        """Why the server does not offer a feature; empty if it does."""
        kind, _, name = feature.rpartition(".")
        if feature == "sparse_prefill":
            return self.no_sparse_prefill
        if feature == "speculation":
            return "" if self.settings.speculation.drafters else "speculation.drafters is empty"
        if kind == "speculation.drafters":
            return "" if name in self.drafters else f"{name} is not served here"
        return "" if attrgetter(feature)(self.settings) else f"{feature} is off"

    def template_has(self, name: str) -> bool:
        """Whether the chat template knows a role or a variable."""
        return re.search(rf"\b{name}\b", self.template) is not None


def _names(model: ModelRuntime, settings: Settings) -> tuple[str, ...]:
    """The name, the aliases, and the name of the file: people know the file that they serve, and not what is in it."""
    names = (model.name, *settings.model.aliases)
    is_new = model.file_name and public_name(model.file_name) not in map(public_name, names)
    return (*names, model.file_name) if is_new else names

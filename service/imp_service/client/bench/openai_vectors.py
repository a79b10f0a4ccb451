"""Vectors from a server of OpenAI's API: texts of random words."""

from .openai_server import EMBEDDINGS, OpenAiModel, prompt_tokens, vectors_body
from .prompt_words import words, words_for
from .vector_server import AskVectors


class OpenAiVectors:
    """As VectorServer."""

    def __init__(self, model: OpenAiModel) -> None:
        self.facts = model.facts
        self.most_tokens = model.facts.max_context
        self._api = model.api
        self._n_words = 0

    async def fit_texts(self, n_tokens: int) -> None:
        """As VectorServer."""
        self._n_words = await words_for(n_tokens, self._count)

    async def _count(self, text: str) -> int:
        return await self._ask(vectors_body(self.facts.model, [text]))

    async def _ask(self, body: bytes) -> int:
        return prompt_tokens(EMBEDDINGS, await self._api.fetch(EMBEDDINGS, body))

    def prepare(self, stream: int, identity: tuple[int, ...], n_texts: int) -> AskVectors:
        """As VectorServer."""
        texts = [words(self._n_words, *identity, i) for i in range(n_texts)]
        body = vectors_body(self.facts.model, texts)
        return lambda: self._ask(body)

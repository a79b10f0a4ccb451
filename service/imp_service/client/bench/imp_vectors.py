"""Vectors from a server of imp.v1: texts of random token ids."""

from ...pb.inference_pb2 import EmbedRequest
from ...pb.types_pb2 import TokenIds
from .imp_server import ImpServer, random_ids
from .vector_server import AskVectors


class ImpVectors:
    """As VectorServer."""

    def __init__(self, server: ImpServer) -> None:
        self.facts = server.facts
        self.most_tokens: int | None = server.model.embeddings.max_tokens
        self._server = server
        self._n_tokens = 0

    async def fit_texts(self, n_tokens: int) -> None:
        """As VectorServer."""
        self._n_tokens = n_tokens

    def prepare(self, stream: int, identity: tuple[int, ...], n_texts: int) -> AskVectors:
        """As VectorServer."""
        ids = [random_ids(self._server.model, (*identity, i), self._n_tokens) for i in range(n_texts)]
        request = EmbedRequest(token_ids=[TokenIds(ids=each) for each in ids])
        connection = self._server.connection_of(stream)

        async def ask() -> int:
            response = await connection.unary(connection.inference.Embed, request)
            n_tokens: int = response.usage.prompt_tokens
            return n_tokens

        return ask

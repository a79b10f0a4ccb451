"""Embed and Rerank: the vectors of texts, and the order of documents."""

from __future__ import annotations

from functools import partial

from imp_service.api.vectors import Vectors
from imp_service.pb import inference_pb2 as pb
from imp_service.rpc.call import GrpcCall
from imp_service.rpc.encoded import Encoded, Pieces
from imp_service.rpc.imp_v1.requests.check_request import checked_embed, checked_rerank
from imp_service.rpc.imp_v1.requests.read_requests import input_path
from imp_service.rpc.imp_v1.write_replies import write_timings, write_usage
from imp_service.serving.embeddings import InputsRunner, WantedInputs, bytes_of, usage_of
from imp_service.serving.prompt_cost import inputs_bytes
from imp_service.serving.server_state import ServerState

EMBEDDINGS = pb.EmbedResponse.DESCRIPTOR.fields_by_name["embeddings"].number
VALUES = pb.Embedding.DESCRIPTOR.fields_by_name["values"].number


class Embed:
    """Embeds and ranks for one server."""

    def __init__(self, state: ServerState) -> None:
        self._state = state
        self._runner = InputsRunner(state)

    async def embed(self, request: pb.EmbedRequest, call: GrpcCall) -> Encoded:
        """The vectors of all inputs."""
        asked = await checked_embed(request, call.n_request_bytes, self._state)
        wanted = WantedInputs(
            plan=lambda embedder: embedder.plan_texts(asked),
            n_bytes=inputs_bytes(asked.texts),
            field="texts",
            rename=partial(input_path, request),
        )
        if lossy := self._state.model.embedder.approximation(asked.options):
            call.approximate(lossy)
        vectors = (await self._runner.run(wanted, call)).vectors()
        return await self._state.workers.write_if_large(lambda: encode_vectors(vectors), bytes_of(vectors))

    async def rerank(self, request: pb.RerankRequest, call: GrpcCall) -> pb.RerankResponse:
        """The documents, the best first."""
        asked = await checked_rerank(request, call.n_request_bytes, self._state)
        wanted = WantedInputs(
            plan=lambda embedder: embedder.plan_documents(asked),
            n_bytes=inputs_bytes((asked.query, *asked.documents)),
            field="documents",
            rename=str,
        )
        ranking = (await self._runner.run(wanted, call)).ranking()
        return pb.RerankResponse(
            results=[pb.RerankResult(index=each.index, score=each.score) for each in ranking],
            usage=write_usage(usage_of(ranking)),
            truncated=ranking.truncated,
            timings=write_timings(ranking.timings),
        )


def encode_vectors(vectors: Vectors) -> Encoded:
    """The reply. The bytes of a vector are those of its message: protobuf would read each float as an object."""
    pieces = Pieces()
    for vector in vectors:
        message = Pieces()
        message.add_field(VALUES, [vector.tobytes()])
        pieces.add_field(EMBEDDINGS, [message.joined().content])
    rest = pb.EmbedResponse(
        usage=write_usage(usage_of(vectors)), truncated=vectors.truncated, timings=write_timings(vectors.timings)
    )
    pieces.add(rest.SerializeToString())
    return pieces.joined()

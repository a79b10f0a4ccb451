"""The services of imp.v1 that the data listeners serve, each with what answers its calls."""

from __future__ import annotations

from collections.abc import Mapping

from google.protobuf.descriptor import ServiceDescriptor

from imp_service.pb import inference_pb2, tokenizer_pb2
from imp_service.rpc.inference import InferenceServicer
from imp_service.rpc.tokenizer import TokenizerServicer
from imp_service.serving.host import Host

INFERENCE = inference_pb2.DESCRIPTOR.services_by_name["InferenceService"]
TOKENIZER = tokenizer_pb2.DESCRIPTOR.services_by_name["TokenizerService"]
SERVICES = (INFERENCE, TOKENIZER)


def make_servicers(host: Host) -> Mapping[ServiceDescriptor, object]:
    """One servicer for each service."""
    return {INFERENCE: InferenceServicer(host), TOKENIZER: TokenizerServicer(host)}

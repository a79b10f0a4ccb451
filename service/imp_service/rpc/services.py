"""The services of imp.v1 by listener, each with what answers its calls."""

from __future__ import annotations

from collections.abc import Mapping

from google.protobuf.descriptor import ServiceDescriptor

from imp_service.pb import admin_pb2, inference_pb2, model_pb2, tokenizer_pb2
from imp_service.rpc.admin import AdminServicer
from imp_service.rpc.inference import InferenceServicer
from imp_service.rpc.model import ModelServicer
from imp_service.rpc.tokenizer import TokenizerServicer
from imp_service.serving.host import Host

INFERENCE = inference_pb2.DESCRIPTOR.services_by_name["InferenceService"]
TOKENIZER = tokenizer_pb2.DESCRIPTOR.services_by_name["TokenizerService"]
MODEL = model_pb2.DESCRIPTOR.services_by_name["ModelService"]
ADMIN = admin_pb2.DESCRIPTOR.services_by_name["AdminService"]
ALL_SERVICES = (INFERENCE, TOKENIZER, MODEL, ADMIN)


def make_servicers(host: Host) -> Mapping[ServiceDescriptor, object]:
    """Those of the data listeners."""
    return {INFERENCE: InferenceServicer(host), TOKENIZER: TokenizerServicer(host), MODEL: ModelServicer(host)}


def make_admin_servicers(host: Host) -> Mapping[ServiceDescriptor, object]:
    """Those of the admin listener."""
    return {ADMIN: AdminServicer(host)}

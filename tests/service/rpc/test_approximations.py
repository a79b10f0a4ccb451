"""Lossy features are off by default, and each reply that they affect names them."""

from __future__ import annotations

import pytest

from imp_service.pb import inference_pb2, inference_pb2_grpc, tokenizer_pb2, tokenizer_pb2_grpc
from support.served import Served, ask, serve
from support.served_models import scripted


def said(served: Served) -> list[str | None]:
    """Returns imp-approximations from two replies: a generation's, and that of a call that does not use the model."""
    channel = served.channel()
    request = inference_pb2.GenerateUnaryRequest(request=ask([400], 3))
    _, generated = inference_pb2_grpc.InferenceServiceStub(channel).GenerateUnary.with_call(request)
    texts = tokenizer_pb2.TokenizeRequest(texts=["a"])
    _, tokenized = tokenizer_pb2_grpc.TokenizerServiceStub(channel).Tokenize.with_call(texts)
    return [dict(call.initial_metadata()).get("imp-approximations") for call in (generated, tokenized)]


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ([], None),
        (["kv.dtype=bf16"], None),
        (["kv.dtype=q8_0"], "kv=q8_0"),
        (["model.overrides.kv_dtype=q8_0"], "kv=q8_0"),
        (["kv.dtype=q8_0", "model.overrides.kv_dtype=f32"], None),
    ],
)
def test_kvq_10_rpc_12_a_quantized_cache_says_so_in_every_reply(settings: list[str], expected: str | None) -> None:
    with serve(*settings, model=scripted()) as served:
        assert said(served) == [expected, None]

"""Sparse prefill as a client sees it: refused or reported, in every reply, over every transport."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import imp_service
from imp_service import Error, GenerationResult, InvalidArgument, SparsePrefillReport
from imp_service.pb import inference_pb2, inference_pb2_grpc, types_pb2
from support.servers.http_served import HttpServed, serve_http
from support.servers.scraped import scrape
from support.servers.served import Served, ask

ON = ("sparse_prefill.enabled=true", "sparse_prefill.threshold=200")
SMALL = ("device.threads=1", "device.cpus=none", "kv.bytes=8MiB")
PROMPT = [400 + i * 7 % 900 for i in range(400)]
SPARSE, AUTO, DENSE = (
    types_pb2.SPARSE_PREFILL_POLICY_SPARSE,
    types_pb2.SPARSE_PREFILL_POLICY_AUTO,
    types_pb2.SPARSE_PREFILL_POLICY_DENSE,
)
# Chunks of 32, the last with 16 tokens: at 0.3, four of thirteen would be fewer than 120 tokens.
SELECTED = 4 * 32 + 16
# The centres of 7 strata of 13 chunks: 0, 2, 4, 6, 8, 10, 12.
SELECTED_WITH_BACKBONE = 6 * 32 + 16


def result_of(model: Any, prompt: list[int] = PROMPT, **options: Any) -> GenerationResult:
    return model.generate(prompt, **{"max_tokens": 6, "temperature": 0, **options}).result()  # type: ignore[no-any-return]


def report_of(result: GenerationResult) -> SparsePrefillReport:
    return result.sparse_prefill or SparsePrefillReport(False, "not reported")


@pytest.fixture(scope="module")
def library() -> Iterator[Any]:
    with imp_service.load(None, *ON, *SMALL) as model:
        yield model


@pytest.fixture(scope="module")
def http() -> Iterator[HttpServed]:
    with serve_http(*ON) as served:
        yield served


def test_spc_47_the_library_reports_a_sparse_prompt(library: Any) -> None:
    report = report_of(result_of(library, sparse_prefill="sparse"))
    assert (report.is_sparse, report.reason) == (True, "")
    assert (report.scored_tokens, report.selected_tokens) == (400, SELECTED)
    assert report.scoring > 0
    more = result_of(library, sparse_prefill="sparse", sparse_prefill_keep=0.5)
    assert report_of(more).selected_tokens == 6 * 32 + 16
    assert result_of(library).sparse_prefill is None


def test_spc_49_a_request_states_its_backbone(library: Any) -> None:
    """A share of half of the chunks: 7 strata of 13, besides both ends. The settings state none."""
    found = report_of(result_of(library, sparse_prefill="sparse", sparse_prefill_backbone=0.5, cache_salt="a"))
    assert found.selected_tokens == SELECTED_WITH_BACKBONE
    none = report_of(result_of(library, sparse_prefill="sparse", sparse_prefill_backbone=0, cache_salt="b"))
    assert none.selected_tokens == SELECTED
    alone = report_of(result_of(library, sparse_prefill_backbone=0.5, cache_salt="c"))
    assert (alone.is_sparse, alone.reason) == (False, "requested")
    for wrong in (-0.1, 1.1, float("nan"), "much"):
        with pytest.raises(InvalidArgument, match=r"sparse_prefill\.backbone"):
            library.generate(PROMPT, sparse_prefill="sparse", sparse_prefill_backbone=wrong)


@pytest.mark.parametrize(
    ("options", "prompt", "reason"),
    [
        ({"sparse_prefill": "dense"}, PROMPT, "requested"),
        ({"sparse_prefill_keep": 0.5}, PROMPT, "requested"),
        ({"sparse_prefill": "sparse", "sparse_prefill_keep": 1}, PROMPT, "keep_all"),
        ({"sparse_prefill": "sparse", "prompt_logprobs": True}, PROMPT, "prompt_scores"),
        ({"sparse_prefill": "auto"}, PROMPT[:200], "below_threshold"),
        ({"sparse_prefill": "sparse"}, PROMPT[:40], "keep_all"),
    ],
)
def test_spc_40_a_dense_prompt_says_why(library: Any, options: dict[str, Any], prompt: list[int], reason: str) -> None:
    found = result_of(library, prompt, cache_salt=reason, **options)
    assert (report_of(found).is_sparse, report_of(found).reason) == (False, reason)
    assert found.token_ids == result_of(library, prompt, cache_salt=reason).token_ids


def test_spc_47_usage_counts_the_whole_prompt(library: Any) -> None:
    found = result_of(library, sparse_prefill="sparse", cache_salt="usage")
    assert (found.usage.prompt_tokens, found.usage.cached_prompt_tokens) == (400, 0)
    again = result_of(library, cache_salt="usage")
    assert again.usage.cached_prompt_tokens == 0  # nothing of the sparse prompt was kept


@pytest.mark.parametrize("keep", [0, 1.5, float("nan"), -0.1, "much"])
def test_spc_40_bad_numbers_are_refused_zero_included(library: Any, keep: Any) -> None:
    with pytest.raises(InvalidArgument, match=r"sparse_prefill\.keep"):
        library.generate(PROMPT, sparse_prefill="sparse", sparse_prefill_keep=keep)


def test_spc_40_unknown_policies_are_refused(library: Any) -> None:
    with pytest.raises(InvalidArgument, match=r"sparse_prefill\.policy: 'some', expected one of dense, auto, sparse"):
        library.generate(PROMPT, sparse_prefill="some")


def test_spc_43_a_session_refuses_by_name(library: Any) -> None:
    with library.open() as session:
        session.prefill(PROMPT[:50])
        with pytest.raises(InvalidArgument, match="sparse_prefill"):
            session.generate(sparse_prefill="auto", max_tokens=2)
        assert len(session.generate(max_tokens=2, temperature=0).result().token_ids) == 2


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ((), "sparse_prefill.enabled is off"),
        ((ON[0], "model.path={copy}"), "there is no draft model: speculation.model is not set"),
    ],
)
def test_spc_40_where_it_is_not_served_it_is_refused(tmp_path: Any, settings: tuple[str, ...], why: str) -> None:
    copy = tmp_path / "model.gguf"
    copy.write_bytes(imp_service.models.demo_model_path().read_bytes())
    with imp_service.load(None, *SMALL, *(setting.format(copy=copy) for setting in settings)) as model:
        wanted: list[dict[str, Any]] = [{"sparse_prefill": "auto"}, {"sparse_prefill": "sparse"}]
        for options in (*wanted, {"sparse_prefill_keep": 0.5}, {"sparse_prefill_backbone": 0.5}):
            with pytest.raises(Error, match=why) as caught:
                model.generate(PROMPT, **options)
            assert caught.value.reason == "FEATURE_DISABLED"
        dense = result_of(model, sparse_prefill="dense")
        assert dense.sparse_prefill is None
        assert dense.token_ids == result_of(model).token_ids


def test_spc_40_the_settings_decide_for_requests_that_do_not_say() -> None:
    chosen = ("policy=auto", "keep=0.5", "backbone=0.6")
    with imp_service.load(None, *ON, *SMALL, *(f"sparse_prefill.{each}" for each in chosen)) as model:
        found = report_of(result_of(model, sparse_prefill_backbone=0))
        assert (found.is_sparse, found.selected_tokens) == (True, 6 * 32 + 16)
        # The centres of 8 strata of 13 chunks, with both ends among them.
        assert report_of(result_of(model, cache_salt="backbone")).selected_tokens == 7 * 32 + 16
        dense = result_of(model, sparse_prefill="dense").sparse_prefill
        assert dense == SparsePrefillReport(False, "requested")


def said_over_grpc(
    served: Served, *, is_unary: bool, **fields: Any
) -> tuple[inference_pb2.GenerationStarted, str | None]:
    """Returns the first message of a generation, and imp-approximations."""
    stub = inference_pb2_grpc.InferenceServiceStub(served.channel())
    request = ask(PROMPT, 4, cache=types_pb2.CacheOptions(bypass_prefix=True), **fields)
    if is_unary:
        response, call = stub.GenerateUnary.with_call(inference_pb2.GenerateUnaryRequest(request=request))
        return response.started, dict(call.initial_metadata()).get("imp-approximations")
    stream = stub.Generate(request)
    first, *_ = list(stream)
    return first.started, dict(stream.initial_metadata()).get("imp-approximations")


@pytest.mark.long
@pytest.mark.parametrize("is_unary", [False, True])
def test_spc_47_rpc_12_a_sparse_reply_says_so_in_its_head(http: HttpServed, is_unary: bool) -> None:
    served = http.served
    for keep, expected in (
        (None, "sparse_prefill=0.30"),
        (0.5, "sparse_prefill=0.50"),
        (0.125, "sparse_prefill=0.125"),
    ):
        options = types_pb2.SparsePrefillOptions(policy=SPARSE, keep=keep)
        started, approximations = said_over_grpc(served, is_unary=is_unary, sparse_prefill=options)
        assert started.sparse_prefill.effective_policy == SPARSE
        assert started.sparse_prefill.scored_tokens == started.prompt_tokens == 400
        assert 0 < started.sparse_prefill.selected_tokens < 400
        assert started.sparse_prefill.scoring.ToNanoseconds() > 0
        assert approximations == expected
    for options in (None, types_pb2.SparsePrefillOptions(policy=DENSE)):
        started, approximations = said_over_grpc(served, is_unary=is_unary, sparse_prefill=options)
        assert started.HasField("sparse_prefill") == (options is not None)
        assert started.sparse_prefill.fallback_reason == ("" if options is None else "requested")
        assert approximations is None


def test_spc_47_rpc_12_both_lossy_features_are_named() -> None:
    with serve_http(*ON, "kv.dtype=q8_0") as served:
        sparse = types_pb2.SparsePrefillOptions(policy=SPARSE)
        found = [said_over_grpc(served.served, is_unary=False, sparse_prefill=options)[1] for options in (sparse, None)]
    assert found == ["sparse_prefill=0.30,kv=q8_0", "kv=q8_0"]


@pytest.mark.long
@pytest.mark.parametrize("stream", [False, True])
def test_spc_47_http_says_so_in_a_header(http: HttpServed, stream: bool) -> None:
    body = {"prompt": PROMPT, "max_tokens": 4, "temperature": 0, "cache_prompt": False, "stream": stream}
    ask_http = http.client.stream if stream else http.client.post
    for fields, expected in (
        ({"sparse_prefill": "sparse"}, "sparse_prefill=0.30"),
        ({"sparse_prefill": "sparse", "sparse_prefill_keep": 0.4}, "sparse_prefill=0.40"),
        ({"sparse_prefill": "sparse", "sparse_prefill_backbone": 0.1}, "sparse_prefill=0.30"),
        ({"sparse_prefill": "sparse", "sparse_prefill_backbone": 0.6}, "sparse_prefill=0.60"),
        ({"sparse_prefill": "dense"}, None),
        ({}, None),
    ):
        reply = ask_http("/v1/completions", {**body, **fields})
        assert reply.status == 200
        assert reply.headers.get("imp-approximations") == expected
    refused = http.client.post("/v1/completions", {**body, "sparse_prefill": "some"})
    assert (refused.status, refused.error["param"]) == (400, "sparse_prefill")
    several = http.client.post("/v1/completions", {**body, "prompt": [PROMPT, PROMPT], "sparse_prefill": "auto"})
    assert (several.status, several.error["param"]) == (400, "sparse_prefill")


def test_spc_47_clients_and_metrics_say_it_too() -> None:
    with serve_http(*ON) as served, imp_service.connect(served.served.address) as client:
        before = scrape(served.served)
        assert not [name for name in before if "sparse" in name]
        report = report_of(result_of(client, sparse_prefill="sparse", sparse_prefill_keep=0.3))
        assert report.is_sparse
        assert result_of(client, sparse_prefill="auto", prompt=PROMPT[:150]).sparse_prefill == SparsePrefillReport(
            False, "below_threshold"
        )
        assert result_of(client).sparse_prefill is None
        served.wait_for_rest()
        counted = scrape(served.served)
    assert counted["imp_sparse_prefill_total[effective=sparse][reason=]"] == 1
    assert counted["imp_sparse_prefill_total[effective=dense][reason=below_threshold]"] == 1
    assert counted["imp_prompt_tokens_total[kind=sparse_skipped]"] == 400 - report.selected_tokens


def test_spc_47_sessions_over_grpc_refuse_by_name(http: HttpServed) -> None:
    import grpc

    stub = inference_pb2_grpc.InferenceServiceStub(http.served.channel())
    opened = stub.Prefill(inference_pb2.PrefillRequest(token_ids=types_pb2.TokenIds(ids=PROMPT[:40])))
    request = inference_pb2.GenerateRequest(
        session_id=opened.session_id, sparse_prefill=types_pb2.SparsePrefillOptions(policy=AUTO)
    )
    with pytest.raises(grpc.RpcError) as caught:
        list(stub.Generate(request))
    assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert "sparse_prefill" in caught.value.details()
    stub.ReleaseSession(inference_pb2.ReleaseSessionRequest(session_id=opened.session_id))

"""Every field of VllmEngine's GenerateRequest is mapped, refused or ignored, as the table of fields states."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from google.protobuf.descriptor import Descriptor
from smg_grpc_proto.generated import vllm_engine_pb2 as vllm

from imp_service.pb import inference_pb2 as pb
from imp_service.rpc.vllm.fields import IGNORED, MAPPED, REFUSED, STREAM, caller_path
from imp_service.rpc.vllm.requests import translate
from support.calls.failed_calls import failed
from support.calls.filled_messages import filled
from support.calls.vllm_calls import answered, asking, stub
from support.servers.served import Served

REQUEST = vllm.GenerateRequest.DESCRIPTOR
# Field of the caller -> a value, and the value of imp.v1's field.
SAMPLES: dict[str, tuple[Any, Any]] = {
    "request_id": ("mine", "mine"),
    "tokenized.input_ids": ([5, 6, 7], [5, 6, 7]),
    "text": ("the cat", "the cat"),
    "sampling_params.temperature": (0.5, 0.5),
    "sampling_params.top_p": (0.25, 0.25),
    "sampling_params.top_k": (9, 9),
    "sampling_params.min_p": (0.125, 0.125),
    "sampling_params.frequency_penalty": (0.5, 0.5),
    "sampling_params.presence_penalty": (-0.5, -0.5),
    "sampling_params.repetition_penalty": (1.25, 1.25),
    "sampling_params.seed": (12, 12),
    "sampling_params.logit_bias": ({3: 1.5, 4: -2.0}, {3: 1.5, 4: -2.0}),
    "sampling_params.max_tokens": (11, 11),
    "sampling_params.min_tokens": (2, 2),
    "sampling_params.stop": (["a", "b"], ["a", "b"]),
    "sampling_params.stop_token_ids": ([8, 9], [8, 9]),
    "sampling_params.ignore_eos": (True, True),
    "sampling_params.n": (3, 3),
    "sampling_params.logprobs": (4, 4),
    "sampling_params.prompt_logprobs": (0, True),
    "sampling_params.skip_special_tokens": (True, False),
    "sampling_params.json_schema": ('{"type":"object"}', '{"type":"object"}'),
    "sampling_params.regex": ("a+", "a+"),
    "sampling_params.grammar": ('root ::= "a"', 'root ::= "a"'),
    "sampling_params.json_object": (True, None),  # a message without fields
    "sampling_params.choice.choices": (["yes", "no"], ["yes", "no"]),
}
REFUSED_SAMPLES: dict[str, dict[str, Any]] = {
    "kv_transfer_params": {"kv_transfer_params": vllm.KvTransferParams(remote_host="h", remote_port=1)},
    "kv_transfer_params_json": {"kv_transfer_params_json": "{}"},
    "mm_inputs": {"mm_inputs": vllm.MultimodalInputs(im_token_id=1)},
    "extra_mm_inputs": {"extra_mm_inputs": [vllm.MultimodalInputs()]},
    "media_refs": {"media_refs": vllm.MediaRefs()},
    "data_parallel_rank": {"data_parallel_rank": 1},
    "sampling_params.truncate_prompt_tokens": {"sampling_params": vllm.SamplingParams(truncate_prompt_tokens=-1)},
    "sampling_params.structural_tag": {"sampling_params": vllm.SamplingParams(structural_tag="{}")},
}


def leaves(descriptor: Descriptor, prefix: str = "") -> Iterator[str]:
    """Yields the fields of a message and of its inner messages, except those of refused messages."""
    for field in descriptor.fields:
        path, inner = prefix + field.name, field.message_type
        if inner is None or path in REFUSED or inner.GetOptions().map_entry:
            yield path
        else:
            yield from leaves(inner, f"{path}.")


def with_field(path: str, value: Any) -> Any:
    """Returns a request with one field set."""
    request = vllm.GenerateRequest()
    *outer, name = path.split(".")
    message = request
    for each in outer:
        message = getattr(message, each)
    if isinstance(value, dict):
        getattr(message, name).update(value)
    elif isinstance(value, list):
        getattr(message, name).extend(value)
    else:
        setattr(message, name, value)
    return request


def field_at(message: Any, path: str) -> Any:
    """Returns the value of a field: repeated fields as lists, maps as dicts, a message without fields as None."""
    for name in path.split("."):
        assert name in message.DESCRIPTOR.fields_by_name, f"{path} is no field of imp.v1"
        message = getattr(message, name)
    if hasattr(message, "items"):
        return dict(message.items())
    if hasattr(message, "DESCRIPTOR"):
        return None
    return message if isinstance(message, str | int | float) else list(message)


def test_gwy_3_rpc_33_every_field_is_in_the_table_once() -> None:
    known = [*MAPPED, *REFUSED, *IGNORED, STREAM]
    assert sorted(leaves(REQUEST)) == sorted(known)
    assert len(known) > 35
    assert len(set(MAPPED.values())) == len(MAPPED)
    assert SAMPLES.keys() == MAPPED.keys()
    assert REFUSED_SAMPLES.keys() == REFUSED.keys()


@pytest.mark.parametrize("path", MAPPED)
def test_gwy_3_rpc_33_a_mapped_field_sets_its_counterpart(path: str) -> None:
    value, expected = SAMPLES[path]
    translated = translate(with_field(path, value))
    assert field_at(translated, MAPPED[path]) == expected
    parent = MAPPED[path].rpartition(".")[0].partition(".")[0]
    assert not parent or translated.HasField(parent)
    # The field does not always have this value.
    if expected is not None:
        bare = translate(vllm.GenerateRequest(sampling_params=vllm.SamplingParams()))
        assert field_at(bare, MAPPED[path]) != expected
    assert caller_path(MAPPED[path]) == path
    assert caller_path(f"{MAPPED[path]}[3]") == f"{path}[3]"


def test_gwy_3_zero_is_unset_where_it_is_no_value() -> None:
    translated = translate(vllm.GenerateRequest(text="a", sampling_params=vllm.SamplingParams()))
    set_fields = {field.name for field, _ in translated.sampling.ListFields()}
    # As in vLLM, 0 disables these two; a gateway fills in the model's defaults.
    assert set_fields == {"top_k", "min_p"}
    assert (translated.sampling.top_k, translated.sampling.min_p, translated.num_sequences) == (0, 0.0, 1)
    assert not translated.stop.HasField("max_tokens")
    assert not translated.HasField("constraint")
    # Without parameters no field is set.
    bare = pb.GenerateRequest(text="a")
    bare.output.text = False
    assert translate(vllm.GenerateRequest(text="a")) == bare
    assert not translate(vllm.GenerateRequest(sampling_params=vllm.SamplingParams(seed=-1))).sampling.HasField("seed")


@pytest.mark.parametrize("path", REFUSED)
def test_gwy_3_rpc_33_a_refused_field_is_named(served: Served, path: str) -> None:
    request = asking("the cat", max_tokens=2)
    request.MergeFrom(vllm.GenerateRequest(**REFUSED_SAMPLES[path]))
    found = failed(lambda: list(stub(served).Generate(request)))
    assert (found.code, found.reason, found.paths) == ("INVALID_ARGUMENT", "FIELD_INVALID", [path])
    assert REFUSED[path] in found.message


def test_gwy_3_the_only_rank_is_not_refused(served: Served) -> None:
    request = asking("the cat", max_tokens=2)
    request.data_parallel_rank = 0
    assert len(answered(list(stub(served).Generate(request)))[0].ids) == 2


@pytest.mark.parametrize("path", IGNORED)
def test_gwy_3_rpc_33_an_ignored_field_changes_nothing(served: Served, path: str) -> None:
    without = asking([300, 301, 302], max_tokens=12, stop=["e"])
    request = type(without)()
    request.CopyFrom(without)
    request.MergeFrom(with_field(path, "other text" if path.endswith("original_text") else True))
    both = [list(stub(served).Generate(each)) for each in (without, request)]
    assert both[0] == both[1]
    assert both[0][0].complete.output_ids


def test_gwy_3_everything_that_is_wrong_is_reported_at_once(served: Served) -> None:
    request = asking(
        [5, 10**6], top_p=1.5, seed=-2, n=99, logprobs=-1, prompt_logprobs=21, regex="", logit_bias={-1: 1.0, 2: 300.0}
    )
    request.sampling_params.stop.append("")
    request.media_refs.SetInParent()
    found = failed(lambda: list(stub(served).Generate(request)))
    assert found.code == "INVALID_ARGUMENT"
    params = "sampling_params"
    assert sorted(found.paths) == sorted(
        [
            "tokenized.input_ids[1]",
            "media_refs",
            *(f"{params}.{name}" for name in ("top_p", "seed", "n", "logprobs", "prompt_logprobs", "regex", "stop[0]")),
            *(f"{params}.logit_bias[{token}]" for token in (-1, 2)),
        ]
    )


def test_gwy_3_a_request_without_a_prompt_says_so_once(served: Served) -> None:
    found = failed(lambda: list(stub(served).Generate(vllm.GenerateRequest())))
    assert (found.paths, found.code) == (["input"], "INVALID_ARGUMENT")
    assert "tokenized or text" in found.message


def test_gwy_3_errors_of_a_constraint_name_the_field_of_the_caller(served: Served) -> None:
    found = failed(lambda: list(stub(served).Generate(asking("a", grammar="root ::= (", max_tokens=4))))
    assert (found.code, found.paths) == ("INVALID_ARGUMENT", ["sampling_params.grammar"])


@pytest.mark.long
def test_gwy_3_no_request_breaks_the_server(served: Served) -> None:
    """The request has every field set, and each member of each oneof in turn."""
    for member in range(6):
        found = failed(lambda member=member: list(stub(served).Generate(filled(REQUEST, member))))
        assert found.code == "INVALID_ARGUMENT"
        assert len(found.paths) > 3

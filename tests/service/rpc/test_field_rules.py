"""Every field has a rule, and each rule is the document's, for a field alone and in combination with others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import combinations, product
from typing import Any

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

from imp_service.api.errors import FieldsInvalid
from imp_service.config import read_settings
from imp_service.pb import admin_pb2, types_pb2
from imp_service.pb import inference_pb2 as pb
from imp_service.rpc.imp_v1.requests.check_request import check_request
from imp_service.rpc.imp_v1.requests.field_rules import RULES
from imp_service.serving.refusal import Refusal
from imp_service.serving.served_model import ALL_CONSTRAINTS, ServedModel
from support.calls.request_fields import (
    APART,
    GENERATE,
    NAME,
    PREFILL,
    SAMPLING,
    SESSION_STEP,
    STEP,
    TEXT,
    U32,
    leaves,
    put,
    request_messages,
    seconds,
)

SMALL = ("limits.max_prompt_bytes=1KiB", "scheduler.max_running=4")
SETTINGS = read_settings(None, SMALL).settings
OPAQUE = ("google.protobuf.Any", "google.protobuf.Struct", "google.protobuf.BytesValue")
SERVED_MODEL = ServedModel(
    SETTINGS, 2048, 2048, 512, ("imp demo", "alias"), ALL_CONSTRAINTS, capabilities=("reasoning_budget",)
)


def paths_of(request: Message, served_model: ServedModel = SERVED_MODEL) -> list[str]:
    """Returns the paths of the invalid fields."""
    try:
        check_request(request, served_model)
    except FieldsInvalid as error:
        return [violation.path for violation in error.violations]
    return []


def refusal_of(request: Message, served_model: ServedModel = SERVED_MODEL) -> str:
    try:
        check_request(request, served_model)
    except Refusal as error:
        return error.reason
    return ""


def generate(**fields: Any) -> pb.GenerateRequest:
    return pb.GenerateRequest(**{"text": "a", **fields})


def prefill(**fields: Any) -> pb.PrefillRequest:
    return pb.PrefillRequest(**{"text": "a", **fields})


def step() -> pb.SessionStep:
    return pb.SessionStep(session_id="s")


def missing_rules(messages: list[Descriptor]) -> set[str]:
    """Returns fields without a rule, and rules without a field."""
    fields = {(message.name, field.name) for message in messages for field in message.fields if not is_map(message)}
    ruled = {(message, name) for message, rules in RULES.items() for name in rules.fields}
    return {".".join(pair) for pair in fields ^ ruled}


def is_map(message: Descriptor) -> bool:
    return message.GetOptions().map_entry


def test_rpc_4_p31_every_field_of_every_request_has_a_rule() -> None:
    messages = list(request_messages())
    assert len(messages) > 30
    assert missing_rules(messages) == set()
    assert {message.name for message in messages if not is_map(message)} == set(RULES)


def test_rpc_4_p31_a_field_without_a_rule_is_found() -> None:
    file = descriptor_pb2.FileDescriptorProto(name="more.proto", package="imp.v1", syntax="proto3")
    message = file.message_type.add(name="CacheOptions")
    for number, name in enumerate(("bypass_prefix", "salt", "ttl"), 1):
        message.field.add(name=name, number=number, type=FieldDescriptor.TYPE_BOOL, label=1)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    changed = pool.FindMessageTypeByName("imp.v1.CacheOptions")
    messages = [changed if each.name == "CacheOptions" else each for each in request_messages()]
    assert missing_rules(messages) == {"CacheOptions.ttl"}


def test_p43_no_request_takes_tensors_or_opaque_bytes() -> None:
    opaque = {
        f"{message.name}.{field.name}"
        for message in request_messages()
        for field in message.fields
        if field.type == FieldDescriptor.TYPE_BYTES
        or (field.is_repeated and field.type in (FieldDescriptor.TYPE_FLOAT, FieldDescriptor.TYPE_DOUBLE))
        or (
            field.message_type is not None
            and field.message_type.full_name in ("google.protobuf.Any", "google.protobuf.Struct")
        )
    }
    assert opaque == {"StepOptions.allowed_token_mask", "Image.encoded", "RawImage.rgb"}


@pytest.mark.parametrize(
    ("make", "table"),
    [(generate, GENERATE), (prefill, PREFILL), (step, SESSION_STEP)],
    ids=["generate", "prefill", "step"],
)
def test_rpc_6_rpc_7_p05_p07_p08_p09_p11_p12_p14_p15_p21_p22_p23_p24_p28_p31_all_pairs(
    make: Callable[[], Message], table: dict[str, Any]
) -> None:
    assert {path for path, _ in leaves(make().DESCRIPTOR)} - APART <= table.keys()

    settings = read_settings(None, [*SMALL, 'speculation.drafters=["ngram"]']).settings
    drafting = replace(SERVED_MODEL, settings=settings, drafters=("ngram", "grammar"))

    def judge(request: Message) -> list[str]:
        whole = pb.DecodeStepRequest(steps=[request]) if isinstance(request, pb.SessionStep) else request
        return [path.removeprefix("steps[0].") for path in paths_of(whole, drafting)]

    values = [
        (path, value, wrong)
        for path, (ok, bad) in table.items()
        for wrong, group in ((0, ok), (1, bad))
        for value in group
    ]
    assert len(values) > 60
    for path, value, is_wrong in values:
        request = make()
        put(request, path, value)
        found = judge(request)
        assert bool(found) == is_wrong, (path, value, found)
        assert all(each.startswith(path) for each in found)
    # For pairs the worst value represents the bad ones, and both ends of the range the good ones.
    few = [
        (path, value, wrong)
        for path, (ok, bad) in table.items()
        for wrong, group in ((0, ok[:2]), (1, bad[-1:]))
        for value in group
    ]
    for (path_a, value_a, wrong_a), (path_b, value_b, wrong_b) in combinations(few, 2):
        if path_a == path_b or {path_a, path_b} == {"step.sample", "step.allowed_token_mask"}:
            continue
        request = make()
        put(request, path_a, value_a)
        put(request, path_b, value_b)
        found = judge(request)
        roots = {root for root, wrong in ((path_a, wrong_a), (path_b, wrong_b)) if wrong}
        assert {next(root for root in (path_a, path_b) if each.startswith(root)) for each in found} == roots, found


@pytest.mark.parametrize("path", ["session_id", "new_session_id"])
@pytest.mark.parametrize("name", NAME[1])
def test_p25_ids_of_sessions(path: str, name: str) -> None:
    request = pb.ForkSessionRequest(session_id="s")
    put(request, path, name)
    assert paths_of(request) == [path]


def test_p01_something_to_evaluate_is_required() -> None:
    assert paths_of(pb.GenerateRequest()) == ["prompt"]
    assert paths_of(pb.PrefillRequest()) == ["input"]
    assert paths_of(pb.GenerateUnaryRequest()) == ["request"]
    assert paths_of(pb.DecodeStreamRequest()) == ["request"]
    assert paths_of(pb.DecodeStepRequest()) == ["steps"]
    assert paths_of(pb.DecodeStepRequest(steps=[pb.SessionStep()])) == ["steps[0].session_id"]
    for request in (pb.ForkSessionRequest(), pb.TruncateSessionRequest(), pb.ReleaseSessionRequest()):
        assert paths_of(request) == ["session_id"]
    for make in (generate, prefill):
        assert paths_of(make(text="")) == ["text"]
        assert paths_of(make(text=None, token_ids=types_pb2.TokenIds())) == ["token_ids.ids"]
        assert paths_of(make(text=None, chat=types_pb2.ChatPrompt())) == ["chat.messages"]
    assert paths_of(pb.GenerateRequest(session_id="")) == ["session_id"]
    assert paths_of(pb.PrefillRequest(session_id="", text="a")) == []


def test_p03_p04_ids_beyond_the_vocabulary_are_reported_with_their_index() -> None:
    for token in (2048, 2**31, U32):
        ids = types_pb2.TokenIds(ids=[0, 2047, token])
        assert paths_of(pb.GenerateRequest(token_ids=ids)) == ["token_ids.ids[2]"]
        assert paths_of(pb.PrefillRequest(token_ids=ids)) == ["token_ids.ids[2]"]
        assert paths_of(pb.EmbedRequest(token_ids=[ids, ids])) == ["token_ids[0].ids[2]", "token_ids[1].ids[2]"]
        assert paths_of(generate(stop=types_pb2.StopOptions(token_ids=[1, token], min_tokens=1))) == [
            "stop.token_ids[1]"
        ]
        assert paths_of(generate(sampling=types_pb2.SamplingOptions(logit_bias={token: 1.0}))) == [
            f"sampling.logit_bias[{token}]"
        ]
        steps = [pb.SessionStep(session_id="a"), pb.SessionStep(session_id="b", token_ids=[token])]
        assert paths_of(pb.DecodeStepRequest(steps=steps)) == ["steps[1].token_ids[0]"]


@pytest.mark.parametrize("make", [generate, prefill])
def test_rpc_7_prompts_have_a_bound_in_bytes(make: Callable[..., Message]) -> None:
    def said(n: int) -> types_pb2.ChatPrompt:
        words = [types_pb2.ChatMessage(role="user", content="c" * n), types_pb2.ChatMessage(role="user", content="c")]
        return types_pb2.ChatPrompt(messages=words)

    assert [paths_of(make(text=text)) for group in TEXT for text in group] == [[], ["text"]]
    assert paths_of(make(text="é" * 513)) == ["text"]
    assert paths_of(make(text=None, chat=said(1024 - 9))) == []
    assert paths_of(make(text=None, chat=said(1024 - 8))) == ["chat"]


def chat(**fields: Any) -> pb.GenerateRequest:
    message = {
        name: fields.pop(name) for name in list(fields) if name in types_pb2.ChatMessage.DESCRIPTOR.fields_by_name
    }
    messages = [types_pb2.ChatMessage(**{"role": "user", "content": "x", **message})]
    return pb.GenerateRequest(chat=types_pb2.ChatPrompt(messages=messages, **fields))


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"role": ""}, "chat.messages[0].role"),
        ({"role": "r" * 65}, "chat.messages[0].role"),
        ({"role": "a\nb"}, "chat.messages[0].role"),
        ({"role": "<|im_start|>"}, "chat.messages[0].role"),
        ({"name": "n" * 129}, "chat.messages[0].name"),
        ({"tool_call_id": "n" * 129}, "chat.messages[0].tool_call_id"),
        ({"tool_calls_json": "{}"}, "chat.messages[0].tool_calls_json"),
        ({"tool_calls_json": "[1]"}, "chat.messages[0].tool_calls_json"),
        ({"tools_json": "{}"}, "chat.tools_json"),
        ({"documents_json": "{}"}, "chat.documents_json"),
        ({"documents_json": "[1]"}, "chat.documents_json"),
        ({"tools_json": "["}, "chat.tools_json"),
        ({"tools_json": "[" * 33 + "]" * 33}, "chat.tools_json"),
        ({"template_kwargs_json": "[]"}, "chat.template_kwargs_json"),
        ({"template_kwargs_json": '{"a": NaN}'}, "chat.template_kwargs_json"),
        ({"template_kwargs_json": '{"a": 1, "a": 2}'}, "chat.template_kwargs_json"),
        ({"template_kwargs_json": '{"a": ' * 9 + "1" + "}" * 9}, "chat.template_kwargs_json"),
        ({"template_kwargs_json": '{"messages": []}'}, "chat.template_kwargs_json"),
        ({"continue_final_message": True}, "chat.continue_final_message"),
    ],
)
def test_p01_rpc_7_chats(fields: dict[str, Any], path: str) -> None:
    assert paths_of(chat(**fields)) == [path]


def test_rpc_7_valid_chats_are_accepted() -> None:
    assert paths_of(chat(role="r" * 64, name="n" * 128, tool_call_id="t" * 128, tool_calls_json='[{"id": "1"}]')) == []
    assert paths_of(chat(tools_json="[" * 32 + "]" * 32, template_kwargs_json='{"enable_thinking": false}')) == []
    assert paths_of(chat(role="assistant", continue_final_message=True, add_generation_prompt=False)) == []
    many = pb.GenerateRequest(chat=types_pb2.ChatPrompt(messages=[types_pb2.ChatMessage(role="u")] * 1025))
    assert paths_of(many) == ["chat.messages"]


@pytest.mark.parametrize(
    ("constraint", "path"),
    [
        (types_pb2.Constraint(), "constraint"),
        (types_pb2.Constraint(json_schema=""), "constraint.json_schema"),
        (types_pb2.Constraint(regex="a", unbounded_whitespace=True), "constraint.unbounded_whitespace"),
        (types_pb2.Constraint(gbnf='root ::= "a"', unbounded_whitespace=True), "constraint.unbounded_whitespace"),
        (types_pb2.Constraint(json_schema=" " * (64 * 1024 + 1)), "constraint.json_schema"),
        (types_pb2.Constraint(regex=""), "constraint.regex"),
        (types_pb2.Constraint(regex="a" * (8 * 1024 + 1)), "constraint.regex"),
        (types_pb2.Constraint(gbnf=""), "constraint.gbnf"),
        (types_pb2.Constraint(gbnf="#" * (64 * 1024 + 1)), "constraint.gbnf"),
        (types_pb2.Constraint(choices=types_pb2.Choices()), "constraint.choices.values"),
        (types_pb2.Constraint(choices=types_pb2.Choices(values=["a", ""])), "constraint.choices.values[1]"),
        (types_pb2.Constraint(choices=types_pb2.Choices(values=["a" * 1025])), "constraint.choices.values[0]"),
        (types_pb2.Constraint(choices=types_pb2.Choices(values=["a"] * 1025)), "constraint.choices.values"),
        (types_pb2.Constraint(choices=types_pb2.Choices(values=["a" * 1000] * 66)), "constraint.choices.values"),
    ],
)
def test_txt_22_rpc_7_an_invalid_constraint_is_refused_at_its_field(
    constraint: types_pb2.Constraint, path: str
) -> None:
    assert paths_of(generate(constraint=constraint)) == [path]


def test_txt_24_a_kind_that_the_model_lacks_is_unimplemented() -> None:
    kinds = {
        "json_schema": types_pb2.Constraint(json_schema="{}"),
        "regex": types_pb2.Constraint(regex="a"),
        "gbnf": types_pb2.Constraint(gbnf='root ::= "a"'),
        "choices": types_pb2.Constraint(choices=types_pb2.Choices(values=["a"])),
        "json_object": types_pb2.Constraint(json_object=types_pb2.JsonObject()),
    }
    assert (
        kinds.keys()
        == set(ALL_CONSTRAINTS)
        == {field.name for field in types_pb2.Constraint.DESCRIPTOR.oneofs_by_name["kind"].fields}
    )
    for kind, constraint in kinds.items():
        without = ServedModel(SETTINGS, 2048, 2048, 512, ("imp demo",), tuple(k for k in ALL_CONSTRAINTS if k != kind))
        assert paths_of(generate(constraint=constraint)) == []
        with pytest.raises(Refusal) as raised:
            check_request(generate(constraint=constraint), without)
        assert (raised.value.reason, raised.value.details) == (
            "NOT_SUPPORTED_BY_MODEL",
            {"feature": f"constraint.{kind}"},
        )


def test_p20_txt_9_min_tokens_within_max_tokens() -> None:
    for most, least, wrong in ((5, 5, False), (5, 6, True), (0, 1, True), (None, 6, False)):
        request = generate(stop=types_pb2.StopOptions(max_tokens=most, min_tokens=least))
        assert paths_of(request) == (["stop.min_tokens"] if wrong else [])


def test_gen_15_the_servers_ceiling_is_named() -> None:
    served_model = ServedModel(
        read_settings(None, ["limits.max_tokens=64"]).settings, 2048, 2048, 512, ("imp demo",), ()
    )
    assert [paths_of(generate(stop=types_pb2.StopOptions(max_tokens=n)), served_model) for n in (64, 65)] == [
        [],
        ["stop.max_tokens"],
    ]
    assert paths_of(generate(), served_model) == []


def test_a_session_has_one_sequence_and_its_own_cache() -> None:
    def on_session(**fields: Any) -> pb.GenerateRequest:
        return pb.GenerateRequest(session_id="s", **fields)

    assert paths_of(on_session(num_sequences=1)) == []
    assert paths_of(on_session(num_sequences=2)) == ["num_sequences"]
    assert paths_of(on_session(cache=types_pb2.CacheOptions(salt="x"))) == ["cache"]
    scored = types_pb2.OutputOptions(prompt_logprobs=True, prompt_token_ids=True)
    assert paths_of(on_session(output=scored)) == ["output.prompt_logprobs", "output.prompt_token_ids"]


def test_p32_ten_bad_fields_are_ten_violations() -> None:
    request = pb.GenerateRequest(token_ids=types_pb2.TokenIds(ids=[1]))
    bad = {path: values[1][0] for path, values in GENERATE.items() if values[1]}
    ten = list(bad)[:: len(bad) // 10][:10]
    for path in ten:
        put(request, path, bad[path])
    assert len(ten) == 10
    found = paths_of(request)
    assert len(found) == 10
    assert all(any(each.startswith(path) for each in found) for path in ten)


def test_rpc_4_an_unknown_enum_value_is_shown_as_a_number() -> None:
    sparse = types_pb2.SparsePrefillOptions(policy=99)
    with pytest.raises(FieldsInvalid, match=r"sparse_prefill\.policy: 99, expected one of dense, auto, sparse"):
        check_request(generate(sparse_prefill=sparse), SERVED_MODEL)


def test_p37_masks() -> None:
    served_model = ServedModel(SETTINGS, 2045, 2045, 512, ("imp demo",), ())
    wrong = [bytes(255) + b"\x20", bytes(255) + b"\x80", b"\xff" * 256, b"\xff" * 255, b"\xff" * 257, bytes(256)]
    for mask in wrong:
        assert paths_of(prefill(step=pb.StepOptions(allowed_token_mask=mask)), served_model) == [
            "step.allowed_token_mask"
        ]
    for mask in (bytes(255) + b"\x10", b"\xff" * 255 + b"\x1f", b""):
        assert paths_of(prefill(step=pb.StepOptions(allowed_token_mask=mask)), served_model) == []
    unused = pb.StepOptions(allowed_token_mask=b"\xff" * 255 + b"\x1f", sample=False)
    assert paths_of(prefill(step=unused), served_model) == ["step.allowed_token_mask"]


def test_steps_are_of_different_sessions_and_not_too_many() -> None:
    def steps(*names: str) -> pb.DecodeStepRequest:
        return pb.DecodeStepRequest(steps=[pb.SessionStep(session_id=name) for name in names])

    assert paths_of(steps("a", "b", "c", "d")) == []
    assert paths_of(steps("a", "b", "c", "d", "e")) == ["steps"]
    assert paths_of(steps("a", "b", "a", "b")) == ["steps[2].session_id", "steps[3].session_id"]


def test_paths_have_their_members_before_them() -> None:
    bad = types_pb2.SamplingOptions(top_p=0)
    step = pb.DecodeStepRequest(steps=[pb.SessionStep(session_id="a"), pb.SessionStep(session_id="b", sampling=bad)])
    assert paths_of(pb.GenerateUnaryRequest(request=generate(sampling=bad))) == ["request.sampling.top_p"]
    assert paths_of(pb.DecodeStreamRequest(prefill=prefill(sampling=bad))) == ["prefill.sampling.top_p"]
    assert paths_of(pb.DecodeStreamRequest(step=step)) == ["step.steps[1].sampling.top_p"]
    assert paths_of(pb.DecodeStreamRequest(release=pb.ReleaseSessionRequest())) == ["release.session_id"]


def test_fields_come_before_names_and_names_before_features() -> None:
    sparse = types_pb2.SparsePrefillOptions(policy=types_pb2.SPARSE_PREFILL_POLICY_SPARSE)
    request = generate(model="nosuch", sparse_prefill=sparse, num_sequences=9)
    assert paths_of(request) == ["num_sequences"]
    request.num_sequences = 8
    assert refusal_of(request) == "MODEL_NOT_SERVED"
    request.model = "alias"
    assert refusal_of(request) == "FEATURE_DISABLED"
    request.sparse_prefill.policy = types_pb2.SPARSE_PREFILL_POLICY_DENSE
    assert refusal_of(request) == ""


FEATURES_OFF = ("features.logits=false", "features.prompt_logprobs=false", "speculation.drafters=[]")


@pytest.mark.parametrize(
    ("fields", "feature"),
    [
        ({"speculation": types_pb2.SpeculationOptions(enabled=True)}, "speculation.enabled"),
        ({"speculation": types_pb2.SpeculationOptions(max_draft_tokens=4)}, "speculation.max_draft_tokens"),
        ({"speculation": types_pb2.SpeculationOptions(drafters=["ngram"])}, "speculation.drafters"),
        ({"sparse_prefill": types_pb2.SparsePrefillOptions(policy=2)}, "sparse_prefill.policy"),
        ({"sparse_prefill": types_pb2.SparsePrefillOptions(policy=3)}, "sparse_prefill.policy"),
        ({"sparse_prefill": types_pb2.SparsePrefillOptions(keep=0.5)}, "sparse_prefill.keep"),
        ({"output": types_pb2.OutputOptions(prompt_logprobs=True)}, "output.prompt_logprobs"),
    ],
)
def test_p28_p38_features_that_are_off(fields: dict[str, Any], feature: str) -> None:
    settings = read_settings(None, FEATURES_OFF).settings
    served_model = ServedModel(settings, 2048, 2048, 512, ("imp demo",), ())
    with pytest.raises(Refusal) as raised:
        check_request(generate(**fields), served_model)
    assert (raised.value.reason, raised.value.details) == ("FEATURE_DISABLED", {"feature": feature})


def test_p38_steps_have_the_same_switches() -> None:
    settings = read_settings(None, FEATURES_OFF).settings
    served_model = ServedModel(settings, 2048, 2048, 512, ("imp demo",), ())
    asks = {name: pb.StepOptions(**{name: True}) for name in ("logits", "scores")}
    for name, options in asks.items():
        with pytest.raises(Refusal) as raised:
            check_request(prefill(step=options), served_model)
        assert raised.value.details == {"feature": f"step.{name}"}
        assert refusal_of(prefill(step=options)) == ""
    steps = [pb.SessionStep(session_id="a", step=asks["logits"])]
    with pytest.raises(Refusal) as raised:
        check_request(pb.DecodeStepRequest(steps=steps), served_model)
    assert raised.value.details == {"feature": "steps[0].step.logits"}
    # A step's scores of a few tokens are no prompt scores: the switch does not apply to them.
    steps = [pb.SessionStep(session_id="a", step=asks["scores"])]
    assert refusal_of(pb.DecodeStepRequest(steps=steps), served_model) == ""


def test_p36_the_inputs_of_a_call_are_judged() -> None:
    ids = types_pb2.TokenIds(ids=[1])
    for request, path in (
        (pb.EmbedRequest(), "texts"),
        (pb.EmbedRequest(texts=["a"], token_ids=[ids]), "texts"),
        (pb.EmbedRequest(texts=["a"] * 2049), "texts"),
        (pb.EmbedRequest(token_ids=[ids] * 2049), "token_ids"),
        (pb.EmbedRequest(texts=["a", ""]), "texts[1]"),
        (pb.EmbedRequest(token_ids=[types_pb2.TokenIds()]), "token_ids[0].ids"),
        (pb.EmbedRequest(texts=["a"], dimensions=0), "dimensions"),
        (pb.EmbedRequest(texts=["a"], truncate=9), "truncate"),  # type: ignore[arg-type]
        (pb.RerankRequest(query="", documents=["a"]), "query"),
        (pb.RerankRequest(query="a"), "documents"),
        (pb.RerankRequest(query="a", documents=["b", ""]), "documents[1]"),
        (pb.RerankRequest(query="a", documents=["b"], top_n=0), "top_n"),
    ):
        assert paths_of(request) == [path]
    for known in (pb.EmbedRequest(texts=["a"], normalize=False), pb.RerankRequest(query="a", documents=["b"])):
        assert refusal_of(known) == ""
        known.model = "nosuch"
        assert refusal_of(known) == "MODEL_NOT_SERVED"


def test_p39_p40_control() -> None:
    assert paths_of(admin_pb2.DrainRequest(timeout=seconds(-1))) == ["timeout"]
    assert paths_of(admin_pb2.DrainRequest(timeout=seconds(0))) == []
    for n, wrong in ((0, True), (1, False), (1000, False), (1001, True)):
        assert paths_of(admin_pb2.ProfileRequest(steps=n)) == (["steps"] if wrong else [])
    for limit, wrong in ((seconds(0), True), (seconds(0, 1), False), (seconds(3600), False), (seconds(3600, 1), True)):
        profile = admin_pb2.ProfileRequest(steps=1, time_limit=limit)
        assert paths_of(profile) == (["time_limit"] if wrong else [])
    ids = ["a"]
    assert paths_of(admin_pb2.AbortRequest(request_ids=ids, all=True)) == ["request_ids"]
    assert paths_of(admin_pb2.AbortRequest()) == ["request_ids"]
    assert paths_of(admin_pb2.AbortRequest(request_ids=ids)) == paths_of(admin_pb2.AbortRequest(all=True)) == []
    assert paths_of(admin_pb2.AbortRequest(request_ids=ids * 1025)) == ["request_ids"]
    assert paths_of(admin_pb2.AbortRequest(request_ids=["a", ""])) == ["request_ids[1]"]


def test_huge_requests_are_judged_by_their_counts() -> None:
    huge = pb.DecodeStepRequest(steps=[pb.SessionStep(session_id=f"s{i}") for i in range(50_000)])
    assert paths_of(huge) == ["steps"]
    bias = types_pb2.SamplingOptions(logit_bias=dict.fromkeys(range(50_000), 1000.0))
    assert paths_of(generate(sampling=bias)) == ["sampling.logit_bias"]
    assert len(paths_of(pb.GenerateRequest(token_ids=types_pb2.TokenIds(ids=[U32] * 100_000)))) == 1000


def test_the_tables_say_the_same_of_samplers_everywhere() -> None:
    assert {path.removeprefix("sampling.") for path in PREFILL if path.startswith("sampling.")} == SAMPLING.keys()
    for (name, (_, bad)), make in product((*SAMPLING.items(),), (generate, prefill)):
        for value in bad:
            request = make()
            put(request, f"sampling.{name}", value)
            assert paths_of(request) != []
    assert {field.name for field in pb.StepOptions.DESCRIPTOR.fields} == STEP.keys()

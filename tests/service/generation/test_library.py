"""The Python API: names, keyword options, conversations, results, tokens, errors, and the docstrings' examples."""

import asyncio
import doctest
import inspect
from dataclasses import fields, is_dataclass, replace
from itertools import islice
from typing import Any

import grpc
import pytest

import imp_service
from imp_service import (
    ChatMessage,
    ChatPrompt,
    Chunk,
    ConstraintKind,
    ConstraintSpec,
    DryOptions,
    FieldsInvalid,
    GenerationRequest,
    LanguageModel,
    SamplingOptions,
    SparsePrefillOptions,
    SpeculationOptions,
    StepOptions,
    StopOptions,
)
from imp_service.api.arguments import chat_of, request_of
from imp_service.core import make_error
from imp_service.pb import inference_pb2 as pb
from imp_service.pb import types_pb2
from support.calls.wire_ways import by_generate, reason_of
from support.calls.workload import Outcome, random_requests
from support.servers.served import Served

PROMPT = "Once upon a time"
MESSAGES = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "What is 3 plus 4?"}]


def keywords(request: GenerationRequest) -> dict[str, Any]:
    """Returns a request's options as keywords, without imp's own table of them."""
    given: dict[str, Any] = {}
    renamed = {
        "strings": "stop",
        "token_ids": "stop_token_ids",
        "salt": "cache_salt",
        "enabled": "speculation_enabled",
        "policy": "sparse_prefill",
        "keep": "sparse_prefill_keep",
        "backbone": "sparse_prefill_backbone",
    }
    groups = (request.sampling, request.stop, request.output, request.cache)
    for group in (*groups, request.speculation, request.sparse_prefill):
        for field in fields(group):
            given[renamed.get(field.name, field.name)] = getattr(group, field.name)
    for name in (
        "constraint",
        "num_sequences",
        "priority",
        "tenant",
        "tool_choice",
        "parallel_tool_calls",
        "max_reasoning_tokens",
    ):
        given[name] = getattr(request, name)
    return given


def outcome(generation: imp_service.Generation) -> Outcome:
    result = generation.result()
    return Outcome(tuple(result.token_ids), result.text, result.finish_reason)


def test_lib_1_the_package_shows_its_names_and_no_other() -> None:
    names = imp_service.__all__
    assert dir(imp_service) == names == sorted(names) and len(set(names)) == len(names)
    assert [name for name in names if getattr(imp_service, name, None) is None] == []
    with pytest.raises(AttributeError, match="GenerationRun"):
        _ = imp_service.GenerationRun  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "name", ["LanguageModel", "Session", "Generation", "Generations", "AsyncGeneration", "AsyncGenerations"]
)
def test_lib_1_what_the_service_uses_is_not_shown(name: str) -> None:
    public = {each for each in dir(getattr(imp_service, name)) if not each.startswith("_")}
    inner = {"client", "core", "text", "config", "plan", "submit_step", "fold_step", "finish_step", "sequence"}
    assert public and not public & inner
    assert [each for each in public if not inspect.getdoc(getattr(getattr(imp_service, name), each))] == []


def test_lib_2_keywords_make_the_request_that_the_classes_make(library: LanguageModel) -> None:
    requests = random_requests(24, 5, library._runtime.tokenizer)
    requests += [replace(requests[0], speculation=SpeculationOptions(enabled=False, max_draft_tokens=4))]
    requests += [replace(requests[0], sparse_prefill=SparsePrefillOptions("auto", 0.4, 0.1))]
    for request in requests:
        assert request_of(request.prompt, keywords(request)) == request
    every = set(inspect.signature(LanguageModel.generate).parameters) - {"self", "prompt"}
    kinds = {kind.value for kind in ConstraintKind}
    groups = {field.name for field in fields(GenerationRequest) if is_dataclass(field.default)}
    # The suffix becomes the prompt; requests that resume are tested elsewhere.
    assert every == keywords(requests[0]).keys() | kinds | groups | {"suffix", "resume"}


def test_lib_2_a_keyword_overrides_a_request_and_its_classes() -> None:
    stop = StopOptions(max_tokens=4, strings=("a",))
    request = GenerationRequest(PROMPT, SamplingOptions(temperature=1.0, seed=3), stop)
    changed = request_of(request, {"max_tokens": 5, "temperature": 0})
    assert changed == replace(
        request, sampling=SamplingOptions(temperature=0, seed=3), stop=replace(stop, max_tokens=5)
    )
    assert request_of(PROMPT, {"stop": stop, "max_tokens": 6}).stop == replace(stop, max_tokens=6)
    assert request_of(PROMPT, {"stop": "\n"}).stop.strings == ("\n",)
    assert request_of(PROMPT, {"dry": DryOptions(base=2.0)}).sampling.dry == DryOptions(base=2.0)


CONSTRAINTS: dict[str, tuple[Any, ConstraintSpec]] = {
    "json_schema": ({"type": "integer"}, ConstraintSpec(ConstraintKind.JSON_SCHEMA, '{"type": "integer"}')),
    "regex": ("[ab]+", ConstraintSpec(ConstraintKind.REGEX, "[ab]+")),
    "gbnf": ('root ::= "a"', ConstraintSpec(ConstraintKind.GBNF, 'root ::= "a"')),
    "choices": (["yes", "no"], ConstraintSpec(ConstraintKind.CHOICES, choices=("yes", "no"))),
    "json_object": (True, ConstraintSpec(ConstraintKind.JSON_OBJECT)),
}


@pytest.mark.parametrize("kind", [kind.value for kind in ConstraintKind])
def test_lib_2_each_kind_of_constraint_is_a_keyword(kind: str) -> None:
    value, expected = CONSTRAINTS[kind]
    assert request_of(PROMPT, {kind: value}).constraint == expected
    assert request_of(PROMPT, {kind: None, "constraint": expected}).constraint == expected
    with pytest.raises(TypeError, match="more than one constraint"):
        request_of(PROMPT, {kind: value, "constraint": expected})


def test_lib_2_an_unknown_name_is_a_type_error_with_the_close_ones(library: LanguageModel) -> None:
    with pytest.raises(TypeError, match=r"generate\(\) got an unexpected keyword argument 'max_token'.*'max_tokens'"):
        library.generate(PROMPT, max_token=4)
    with pytest.raises(TypeError, match=r"'temprature'.*'temperature'"):
        library.chat(MESSAGES, temprature=0)
    with pytest.raises(TypeError, match=r"'regx'.*'regex'"):
        library.generate_async(PROMPT, regx="a")
    with library.open() as session, pytest.raises(TypeError, match=r"'logit'.*'logits'"):
        session.prefill(PROMPT, logit=True)
    with pytest.raises(TypeError, match="sampling: dict, expected SamplingOptions"):
        library.generate(PROMPT, sampling={"temperature": 0})
    with pytest.raises(TypeError, match=r"'zzz'$"):
        library.open(zzz=1)


@pytest.mark.long
def test_lib_3_the_library_gives_the_tokens_of_the_service(library: LanguageModel, served: Served) -> None:
    requests = random_requests(16, 41, library._runtime.tokenizer)
    found = [outcome(library.generate(request.prompt, **keywords(request))) for request in requests]
    assert found == [by_generate(served.inference, library, request) for request in requests]
    hot = next(r for r, o in zip(requests, found, strict=True) if r.sampling.seed is not None and len(o.token_ids) > 8)
    given = {**keywords(hot), "temperature": 1.5, "seed": 1}
    assert outcome(library.generate(hot.prompt, **given)) != outcome(
        library.generate(hot.prompt, **{**given, "seed": 2})
    )


def test_lib_3_a_conversation_is_that_of_the_service(library: LanguageModel, served: Served) -> None:
    chat = types_pb2.ChatPrompt(messages=[types_pb2.ChatMessage(**each) for each in MESSAGES])
    request = pb.GenerateRequest(chat=chat, sampling={"temperature": 0}, stop={"max_tokens": 20})
    reply = served.inference.GenerateUnary(pb.GenerateUnaryRequest(request=request)).sequences[0]
    expected = Outcome(tuple(reply.output.token_ids), reply.output.text, reason_of(reply.reason))
    for messages in (MESSAGES, [ChatMessage(**each) for each in MESSAGES]):
        assert outcome(library.chat(messages, temperature=0, max_tokens=20)) == expected
    other = [MESSAGES[0], {"role": "user", "content": "What is 3 plus 5?"}]
    assert outcome(library.chat(other, temperature=0, max_tokens=20)) != expected


def test_lib_3_steps_with_keywords_give_the_tokens_of_a_generation(library: LanguageModel) -> None:
    whole = library.generate(PROMPT, max_tokens=12, temperature=0.9, seed=5).result().token_ids
    with library.open() as session:
        tokens = [session.prefill(PROMPT, temperature=0.9, seed=5).token_id]
        tokens += [session.decode_step().token_id for _ in range(3)]
        with session.fork() as twin:
            assert tokens + twin.generate(max_tokens=8).result().token_ids == whole
        tokens += session.generate(max_tokens=8).result().token_ids
    with library.open(temperature=0.9, seed=6) as other:
        apart = [other.prefill(PROMPT).token_id, *other.generate(max_tokens=11).result().token_ids]
    assert tokens == whole != apart


def test_lib_3_a_step_takes_its_options_by_keyword(library: LanguageModel) -> None:
    asked = StepOptions(top_logprobs=3, logits=True)
    with library.open(temperature=0) as session, library.open(SamplingOptions(temperature=0)) as other:
        one, two = session.prefill(PROMPT, top_logprobs=3, logits=True), other.prefill(PROMPT, asked)
        assert (one.token_id, one.candidates, one.logits) == (two.token_id, two.candidates, two.logits)
        assert len(one.candidates) == 3 and len(one.logits) == 4 * library.vocab_size
        assert session.decode_step(sample=False).token_id is None


def test_lib_5_a_result_is_the_whole_output_however_much_was_read(library: LanguageModel) -> None:
    options: dict[str, Any] = {"max_tokens": 12, "temperature": 0, "logprobs": True, "top_logprobs": 2}
    replies = list(library.generate(PROMPT, **options, prompt_logprobs=True))
    chunks = [each for each in replies if isinstance(each, Chunk)]
    for n_read in (0, 1, 5, len(replies)):
        generation = library.generate(PROMPT, **options, prompt_logprobs=True)
        assert len([*islice(generation, n_read)]) <= n_read
        result = generation.result()
        assert result.text == "".join(each.text for each in replies)
        assert result.token_ids == [token for each in chunks for token in each.token_ids]
        assert result.logprobs == [logprob for each in chunks for logprob in each.logprobs]
        assert len(result.candidates) == result.usage.output_tokens == 12
        assert len(result.prompt.logprobs) == result.usage.prompt_tokens == len(library.tokenize(PROMPT))


def test_lib_5_each_sequence_has_its_result(library: LanguageModel) -> None:
    options: dict[str, Any] = {"temperature": 1, "seed": 4, "max_tokens": 6}
    generation = library.generate(PROMPT, num_sequences=3, **options)
    first, *others = generation.results()
    assert first.token_ids == library.generate(PROMPT, **options).result().token_ids
    assert [first.token_ids] * 2 != [each.token_ids for each in others]
    with pytest.raises(FieldsInvalid, match="num_sequences"):
        generation.result()


def test_lib_5_a_generation_that_was_left_has_no_result(library: LanguageModel) -> None:
    with library.generate(PROMPT, max_tokens=400, ignore_eos=True) as generation:
        next(generation)
    with pytest.raises(imp_service.StateError) as caught:
        generation.result()
    assert caught.value.reason == "CANCELLED"
    assert list(generation) == []


BAD_MESSAGES: dict[str, Any] = {
    "chat.messages": {"role": "user", "content": "Hello"},
    "chat.messages[0]": ["Hello"],
    "chat.messages[1].contents": [ChatMessage("user", "a"), {"role": "user", "content": "b", "contents": "c"}],
    "chat.messages[0].content": [{"role": "user", "content": 7}],
    "chat.messages[0].content[0]": [{"role": "user", "content": [7]}],
    "chat.messages[0].role": [{"content": "a"}],
}


@pytest.mark.parametrize("field", BAD_MESSAGES)
def test_lib_6_a_wrong_message_is_named(library: LanguageModel, field: str) -> None:
    with pytest.raises(FieldsInvalid) as caught:
        library.chat(BAD_MESSAGES[field], max_tokens=4)
    assert (caught.value.reason, [each.path for each in caught.value.violations]) == ("FIELD_INVALID", [field])


def test_lib_6_tools_and_calls_are_values_or_json() -> None:
    call = {"type": "function", "function": {"name": "f", "arguments": {}}}
    messages = [{"role": "assistant", "content": None, "tool_calls": [call]}]
    made = chat_of(messages, {"tools": [{"type": "function"}], "template_kwargs": '{"a": 1}'})
    written = '[{"type": "function", "function": {"name": "f", "arguments": {}}}]'
    assert made == ChatPrompt(
        (ChatMessage("assistant", None, tool_calls_json=written),),
        tools_json='[{"type": "function"}]',
        template_kwargs_json='{"a": 1}',
    )


def test_lib_6_every_failure_is_an_error_with_a_reason(library: LanguageModel, served: Served) -> None:
    failures = {
        "FIELD_INVALID": lambda: library.generate(PROMPT, temperature=-1),
        "CONTEXT_TOO_LONG": lambda: library.generate(list(range(300, 400)) * 60),
        "POSITION_BEYOND_END": lambda: library.open().truncate(3),
        "MODEL_MISSING": lambda: imp_service.load("/nowhere/model.gguf"),
    }
    for reason, fail in failures.items():
        with pytest.raises(imp_service.Error) as caught:
            fail()
        assert caught.value.reason == reason and caught.value.message
    with pytest.raises(imp_service.ConfigError):
        imp_service.load(None, "no.such=setting")
    # Errors of the text layer: the service names the same field.
    pattern = types_pb2.Constraint(regex="(")
    for fail, ask in (
        (lambda: library.generate(PROMPT, regex="("), pb.GenerateRequest(text=PROMPT, constraint=pattern)),
        (lambda: library.generate("\ud800"), None),
        (lambda: library.tokenize("\ud800"), None),
        (lambda: library.detokenize([-1]), None),
    ):
        with pytest.raises(FieldsInvalid) as invalid:
            fail()
        assert invalid.value.violations[0].path in ("constraint.regex", "text", "token_ids[0]")
        if ask is not None:
            with pytest.raises(grpc.RpcError) as refused:
                list(served.inference.Generate(ask))
            assert str(invalid.value.violations[0]) in refused.value.details()


@pytest.mark.parametrize("reason", ["TOKENIZER_INVALID", "TEMPLATE_INVALID", "TEMPLATE_FAILED", "NO_CHAT_TEMPLATE"])
def test_lib_6_the_text_layers_reasons_are_known(reason: str) -> None:
    assert make_error(reason, "told").reason == reason


@pytest.mark.parametrize("special", [True, False])
def test_tokens_of_a_text_and_back(library: LanguageModel, special: bool) -> None:
    tokenizer = library._runtime.tokenizer
    text = "naïve <|im_start|> 🙂"
    ids = library.tokenize(text, parse_special_tokens=special)
    assert ids == tokenizer.encode(text, parse_special_tokens=special)
    assert ("<|im_start|>" in library.detokenize(ids)) is not special
    assert library.detokenize(ids, special_tokens=True) == text


PUBLIC = {"imp_service": imp_service, **{name: getattr(imp_service, name) for name in imp_service.__all__}}
FINDER = doctest.DocTestFinder()
EXAMPLES = [
    example
    for name, public in PUBLIC.items()
    if not isinstance(public, str)
    for example in FINDER.find(public, name)
    if example.examples
]


@pytest.mark.few(10)
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_lib_7_an_example_shows_what_happens(example: doctest.DocTest, library: LanguageModel) -> None:
    example.globs = {**PUBLIC, "model": library, "asyncio": asyncio}
    told: list[str] = []
    results = doctest.DocTestRunner().run(example, out=told.append)
    assert results.failed == 0, "".join(told)


def test_lib_7_the_calls_that_people_begin_with_have_examples() -> None:
    begun = {
        f"LanguageModel.{name}" for name in ("generate", "chat", "generate_async", "chat_async", "open", "tokenize")
    }
    begun |= {f"Session.{name}" for name in ("prefill", "decode_step", "generate", "fork", "truncate")}
    assert begun | {"imp_service", "load", "Generation.result"} <= {example.name for example in EXAMPLES}

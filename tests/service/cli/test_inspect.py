"""imp inspect: facts with their origins, tensors, memory, and the exit status for a bad file."""

from __future__ import annotations

import json
import math

import pytest
from gguf import GGUFReader

from imp_service.models import demo_draft_model_path, demo_model_path
from support.files.gguf_writer import ARRAY, F32, I32, STRING, Key, string
from support.files.hf_contents import hf_config, hf_tensors, write_hf
from support.files.hub_directory import model_for, write_directory
from support.machine.command_line import demo_with, demo_with_keys, error_lines
from support.models.tiny_models import tiny
from support.models.tiny_vision_models import write_vision_files
from support.servers.served import serve
from support.text.hub_tokenizers import library_of

DEMO = str(demo_model_path())


def _inspect(call, *words: str) -> dict:
    status, out, err = call("inspect", *words, "--json")
    assert status == 0, err
    return json.loads(out)


def test_every_fact_is_shown_with_its_value_and_origin(call):
    plain = {fact["name"]: fact for fact in _inspect(call, DEMO)["facts"]}
    words = ("-c", "256", "--set", "model.overrides.rope_theta=5e5", "--set", "model.overrides.eos_token_ids=[2]")
    changed = {fact["name"]: fact for fact in _inspect(call, DEMO, *words)["facts"]}
    assert list(changed) == list(plain)
    assert {fact["origin"] for fact in plain.values()} <= {"checkpoint", "architecture", "override"}
    differ = {name for name in plain if plain[name] != changed[name]}
    assert differ == {"max_context", "rope_theta"}
    assert (changed["max_context"]["value"], changed["max_context"]["origin"]) == ("256", "override")
    assert (float(changed["rope_theta"]["value"]), changed["rope_theta"]["origin"]) == (5e5, "override")
    text = call("inspect", DEMO, *words)[1]
    for name, fact in changed.items():
        assert any(line.split()[:1] == [name] and fact["origin"] in line for line in text.splitlines()), name


def test_tensors_are_those_of_the_file(call):
    told = _inspect(call, DEMO, "--tensors")
    tensors = {tensor.name: tensor for tensor in GGUFReader(DEMO).tensors}
    by_type: dict[str, list[int]] = {}
    for tensor in tensors.values():
        row = by_type.setdefault(tensor.tensor_type.name.lower(), [0, 0, 0])
        row[0] += 1
        row[1] += int(tensor.n_elements)
        row[2] += int(tensor.n_bytes)
    found = {row["dtype"]: [row["n_tensors"], row["n_elements"], row["n_bytes"]] for row in told["tensor_types"]}
    assert found == by_type
    assert {weight["tensor"] for weight in told["tensors"]} <= set(tensors)
    for weight in told["tensors"]:
        shape = list(tensors[weight["tensor"]].shape)
        assert ([weight["k"], weight["n"]] if len(shape) == 2 else [weight["n"]]) == shape
        assert bool(weight["kernels"]) == (len(shape) == 2), weight
    assert "tensors" not in _inspect(call, DEMO)


def test_the_memory_is_what_loading_then_takes(call):
    import imp_service

    memory = _inspect(call, DEMO, "-c", "256", "--set", "device.threads=1")["memory"]
    with imp_service.load(DEMO, "model.overrides.max_context=256", "device.threads=1") as model:
        assert memory["items"] == model._runtime.core.memory["items"]
        assert memory["context"] == model.max_context == 256
    assert memory["total_bytes"] == sum(memory["items"].values())
    assert memory["fits"] is True


def test_what_does_not_fit_is_reported_with_the_largest_context_that_does(call, monkeypatch: pytest.MonkeyPatch):
    from imp_service.config import machine
    from imp_service.core import inspect

    whole, far = _inspect(call, DEMO)["memory"], ("--set", "model.overrides.untrained_context=true")
    limit = whole["total_bytes"] - whole["items"]["kv"] + 16 * 1024**2
    monkeypatch.setattr(inspect, "memory_limit", lambda: machine.MemoryLimit(limit, "memory.max"))
    memory = _inspect(call, DEMO, "-c", "64K", *far)["memory"]
    assert (memory["fits"], memory["limit_bytes"]) == (False, limit)
    assert memory["total_bytes"] > limit
    largest = memory["largest_context"]
    # The cache cannot use all of the 16 MiB: scratch memory grows with the context too.
    assert 2048 < largest <= 16 * 1024**2 // memory["kv_bytes_per_token"]
    assert _inspect(call, DEMO, "-c", str(largest), *far)["memory"]["fits"]
    assert not _inspect(call, DEMO, "-c", str(largest + 1), *far)["memory"]["fits"]
    status, out, _ = call("inspect", DEMO, "-c", "64K", *far)
    assert status == 0
    assert f"the largest that fits is {largest}: -c {largest}\n" in out


def test_check_reads_the_data_and_builds_the_text_side(call):
    assert _inspect(call, DEMO)["checked"] is None
    assert _inspect(call, DEMO, "--check")["checked"] == "data"
    assert _inspect(call, DEMO, "--check", "--values")["checked"] == "data and values"


def test_a_bad_file_ends_with_its_status_and_one_line(call, tmp_path):
    whole = demo_model_path().read_bytes()
    files = {
        "m01.gguf": (b"GGML" + whole[4:], 65, "MODEL_FORMAT"),
        "short.gguf": (whole[:7], 65, "MODEL_TRUNCATED"),
        "m02.gguf": (whole[:4] + b"\x04" + whole[5:], 65, "MODEL_VERSION"),
        "m19.gguf": (whole.replace(b"qwen3", b"qwen9"), 65, "MODEL_UNSUPPORTED"),
        "cut.gguf": (whole[:-4096], 65, "MODEL_OFFSET"),
    }
    for name, (content, status, reason) in files.items():
        assert content != whole
        (tmp_path / name).write_bytes(content)
        found, out, err = call("inspect", "--check", name)
        assert (found, out) == (status, ""), (name, err)
        assert err.startswith(f"imp: error: {reason}: {name}")
        assert err.count("\n") == 1
        assert len(err.encode()) <= 500
    assert call("inspect", "--check", "none.gguf")[0] == 66
    (tmp_path / "link.gguf").symlink_to("nowhere.gguf")
    assert call("inspect", "--check", "link.gguf")[0] == 66


def test_a_tokenizer_or_template_that_cannot_be_used_is_found_by_check_alone(call, tmp_path):
    demo_with(tmp_path / "t.gguf", b"tokenizer.ggml.tokens", b"tokenizer.ggml.tokenz")
    assert call("inspect", "t.gguf")[0] == 0
    status, _, err = call("inspect", "--check", "t.gguf")
    assert (status, err.startswith("imp: error: TOKENIZER_INVALID: ")) == (65, True), err
    demo_with(tmp_path / "no.gguf", b"tokenizer.chat_template", b"tokenizer.chat_untitled")
    status, out, _ = call("inspect", "--check", "no.gguf")
    assert status == 0
    assert "chat template: no" in out
    (tmp_path / "bad.jinja").write_text("{% for %}")
    status, _, err = call("inspect", "--check", DEMO, "--set", "model.overrides.chat_template=bad.jinja")
    assert (status, err.startswith("imp: error: TEMPLATE_INVALID: ")) == (65, True), err


def test_m84_strings_of_a_file_that_are_not_utf8_are_reported_in_utf8(call, tmp_path):
    latin = "é\x1b[2J".encode("latin-1")
    for key in ("general.name", "general.license", "general.basename", "general.file_type"):
        own = key if string(key) in demo_model_path().read_bytes() else ""
        strange = demo_with_keys(tmp_path / "m.gguf", Key(key, STRING, latin), without=own)
        status, out, err = call("inspect", "--check", str(strange))
        assert status == 0 and "\x1b" not in out + err, (key, err)
    for key, reason in (
        ("tokenizer.ggml.model", "TOKENIZER_INVALID"),
        ("tokenizer.ggml.pre", "TOKENIZER_INVALID"),
        ("tokenizer.chat_template", "TEMPLATE_INVALID"),
    ):
        broken = demo_with_keys(tmp_path / "m.gguf", Key(key, STRING, latin), without=key)
        status, _, err = call("inspect", "--check", str(broken))
        assert status == 65 and f": {reason}: m.gguf" in err and f"{key}: not UTF-8\n" in err, err
        status, out, _ = call("inspect", str(broken))
        assert status == 0 and f"{key}: not UTF-8" in out and "\x1b" not in out
    for key in ("general.architecture", "general.type", "general.name"):
        wrong = demo_with_keys(
            tmp_path / "m.gguf", Key(key, ARRAY, ["a", "b"], STRING), without=key if key != "general.type" else ""
        )
        assert call("inspect", "--check", str(wrong))[0] == (0 if key == "general.name" else 65)


def test_l18_values_without_check(call):
    status, out, err = call("inspect", DEMO, "--values")
    assert (status, out) == (64, "")
    assert err.startswith("imp: error: USAGE: --values: given without --check")
    assert err.endswith("\nimp inspect --help lists what it takes\n")


def test_smp_27_a_recommended_sampler_that_cannot_be_used_is_reported_and_ends_nothing(call, tmp_path):
    base = "general.sampling."
    keys = (Key(base + "penalty_last_n", I32, -1), Key(base + "top_k", I32, -1), Key(base + "min_p", F32, math.nan))
    path = str(demo_with_keys(tmp_path / "odd.gguf", *keys))
    warning = "general.sampling.min_p: nan, expected 0 to 1; not used"
    assert warning in _inspect(call, path, "--check")["warnings"]
    status, _, err = call("run", "Once", "-m", path, "--max-tokens", "2")
    assert (status, f"imp: warning: {warning}" in err.splitlines()) == (0, True), err


def test_the_model_may_be_given_as_elsewhere_by_an_option(call):
    assert call("inspect", "-m", DEMO) == call("inspect", DEMO)
    status, out, err = call("inspect", "-m", DEMO, DEMO)
    assert (status, out, error_lines(err)[-1]) == (
        64, "", "imp: error: USAGE: MODEL: given together with --model, expected one of them",
    )  # fmt: skip


def test_txt_29_each_end_is_shown_with_its_sources(call):
    keys = "tokenizer.ggml."
    ends = [
        {"token_id": 2045, "text": "<|endoftext|>", "sources": [f"{keys}eot_token_id", "spelled <|endoftext|>"]},
        {"token_id": 2047, "text": "<|im_end|>", "sources": [f"{keys}eos_token_id", "spelled <|im_end|>"]},
    ]
    assert _inspect(call, DEMO)["ends"] == ends
    out = call("inspect", DEMO)[1]
    for end in ends:
        words = f"{end['token_id']}  {end['text']}"
        assert any(words in line and ", ".join(end["sources"]) in line for line in out.splitlines())
    changed = _inspect(call, DEMO, "--set", "model.overrides.eos_token_ids=[5]")["ends"]
    assert [(end["token_id"], end["sources"]) for end in changed] == [(5, ["model.overrides.eos_token_ids"])]
    assert "end tokens: none" in call("inspect", DEMO, "--set", "model.overrides.eos_token_ids=[]")[1]


def test_inspect_says_what_a_models_text_side_can_do(call, tmp_path):
    told = _inspect(call, DEMO)
    assert (told["tokenizer_fault"], told["chat_template_fault"], told["has_chat_template"]) == (None, None, True)
    assert "pre-tokenizer qwen2, 2048 tokens" in told["tokenizer"]
    assert "\nchat template: yes\n" in call("inspect", DEMO)[1]
    broken = str(demo_with(tmp_path / "broken.gguf", b"{% endfor %}", b"{% endfur %}"))
    assert "line 1" in _inspect(call, broken)["chat_template_fault"]
    assert "\nchat template: broken (imp run works, imp chat does not): " in call("inspect", broken)[1]
    unknown = str(demo_with(tmp_path / "pre.gguf", b"qwen2", b"qwenX"))
    assert "\ntext: none, neither imp run nor imp chat works: tokenizer.ggml.pre: " in call("inspect", unknown)[1]
    works = _inspect(call, unknown, "--set", "model.overrides.pre_tokenizer=qwen2")
    assert works["tokenizer_fault"] is None and "pre-tokenizer qwen2" in works["tokenizer"]


def test_inspect_of_a_directory_without_a_tokenizer_says_that_it_gives_no_text(call, tmp_path):
    folder = tmp_path / "hub"
    folder.mkdir()
    model = tiny("qwen3")
    write_hf(folder / "model.safetensors", hf_config(model), hf_tensors(model))
    (folder / "generation_config.json").write_text('{"eos_token_id": [2, 7]}')
    told = _inspect(call, str(folder))
    assert told["tokenizer"] is None and told["tokenizer_fault"].startswith("tokenizer.json: missing")
    assert [(end["token_id"], end["sources"]) for end in told["ends"]] == [
        (2, ["eos_token_id", "generation_config.eos_token_id"]),
        (7, ["generation_config.eos_token_id"]),
    ]
    out = call("inspect", str(folder))[1]
    assert "\ntext: none, neither imp run nor imp chat works: tokenizer.json: " in out
    assert "imp run works" not in out
    for command in (("run", "-m", str(folder), "hello"), ("chat", "-m", str(folder))):
        status, _, err = call(*command)
        assert (status, err.count("\n")) == (65, 1)
        assert err.startswith("imp: error: TOKENIZER_INVALID: hub/tokenizer.json: missing")


def test_a_tokenizer_error_names_file_and_key(call, tmp_path):
    demo_with(tmp_path / "t.gguf", b"tokenizer.ggml.tokens", b"tokenizer.ggml.tokenz")
    for command in (("run", "-m", "t.gguf", "hello"), ("chat", "-m", "t.gguf"), ("inspect", "--check", "t.gguf")):
        status, _, err = call(*command)
        assert status == 65
        assert err == "imp: error: TOKENIZER_INVALID: t.gguf: key tokenizer.ggml.tokens: missing or empty\n"


def test_spc_29_a_draft_is_compared_before_anything_is_loaded(call, tmp_path):
    draft = str(demo_draft_model_path())
    told = _inspect(call, DEMO, "--draft", draft)
    assert told["draft"]["path"] == draft
    assert told["draft"]["max_context"] == 512
    assert {"draft weights", "draft kv"} < set(told["memory"]["items"])
    assert _inspect(call, DEMO)["draft"] is None
    text = call("inspect", DEMO, "--draft", draft)[1]
    assert "vocabulary  matches" in text and "of a token: reads" in text
    other = tiny("qwen3", vocab_size=2048).write(tmp_path / "other.gguf")
    status, _, err = call("inspect", DEMO, "--draft", str(other))
    assert status == 78 and "speculation.model: other.gguf: " in err


def test_t55_check_refuses_a_tokenizer_that_fails_on_a_text(call, tmp_path):
    library = library_of("byte level")
    folder = write_directory(tmp_path / "hub", library, model_for(library))
    assert call("inspect", "--check", str(folder))[0] == 0
    document = json.loads((folder / "tokenizer.json").read_text())
    split = document["pre_tokenizer"]["pretokenizers"]
    for part in (
        {"type": "FixedLength", "length": 0},
        {"type": "Split", "pattern": {"Regex": "(z|z)*Q"}, "behavior": "Isolated", "invert": False},
    ):
        document["pre_tokenizer"]["pretokenizers"] = [part, *split]
        (folder / "tokenizer.json").write_text(json.dumps(document))
        status, _, err = call("inspect", "--check", str(folder))
        line = next(line for line in err.splitlines() if line.startswith("imp: error: "))
        assert status == 65 and line.startswith("imp: error: TOKENIZER_INVALID: hub/tokenizer.json"), err


def test_kvq_16_caches_are_compared(call, tmp_path):
    caches = _inspect(call, DEMO, "--kv", "bf16,rot8,q8_0/rot4,rot4,rot4/rot4")["caches"]
    rows = {row["kv_dtype"]: row for row in caches["types"]}
    assert list(rows) == ["f32", "bf16", "rot8", "q8_0/rot4", "rot4"]
    per_value = {"f32": 32, "bf16": 16, "rot8": 8.5, "q8_0/rot4": (8.5 + 4.5) / 2, "rot4": 4.5}
    values = 2 * 64 * 2 * 4  # K and V, head size, heads, layers
    assert {name: row["bytes_per_token"] for name, row in rows.items()} == {
        name: values * bits / 8 for name, bits in per_value.items()
    }
    assert all(row["context"] == caches["room_bytes"] // row["bytes_per_token"] for row in rows.values())
    found = [row["divergence"] for row in rows.values()]
    assert found[0] == 0 < min(found[1:3])
    assert max(found[1:3]) < found[3] < found[4]
    assert rows["f32"]["same_top"] == 1
    text = call("inspect", DEMO, "--kv", "q8_0/rot4")[1]
    assert "caches: predictions at 127 places of a text of 256 tokens, beside an f32 cache" in text
    line = next(line for line in text.splitlines() if line.startswith("q8_0/rot4"))
    assert line.split()[1:3] == ["832", "B"]
    own = tmp_path / "own.txt"
    own.write_text("It was a dark and stormy night. " * 30)
    longer = _inspect(call, DEMO, "--kv", "rot4", "--text", str(own))["caches"]
    assert longer["n_tokens"] != caches["n_tokens"] == 256
    assert longer["types"][1]["divergence"] != rows["rot4"]["divergence"]


def test_rsm_2_the_fingerprint_of_a_file_is_that_of_its_server(call):
    told = _inspect(call, DEMO, "--fingerprint")["fingerprint"]
    with serve() as served:
        known = served.state.model.fingerprint
    # A test server has no warm-up.
    assert {**told["parts"], "logits": "none"} == known.parts
    assert len(told["digest"]) == 16 and told["parts"]["logits"] != "none"
    lines = call("inspect", DEMO, "--fingerprint")[1].splitlines()
    assert f"fingerprint: {told['digest']}" in lines
    assert {("cache", "bf16"), ("device", "cpu")} <= {tuple(line.split()) for line in lines}
    assert "fingerprint" not in _inspect(call, DEMO)


def test_kvq_7_kvq_16_a_type_that_the_device_cannot_have_says_why(call):
    on_gpu = ("--set", "device.kind=cuda_emulated", "--set", "model.overrides.unvalidated_kernels=true")
    status, out, err = call("inspect", DEMO, "--kv", "rot4,f16/q8_0", *on_gpu)
    assert status == 0, err
    assert "\nrot4: demo.gguf: kv dtype: rot4, expected f16, bf16 or q8_0 on cuda" in out
    assert "\nf16/q8_0: demo.gguf: kv dtype: f16/q8_0, expected f16, bf16 or q8_0 on cuda" in out


def test_kvq_16_wrong_words_are_refused(call, tmp_path):
    for words, said in (
        (
            ("--kv", "q8_0,q4_0"),
            '--kv: q4_0: expected "f32", "f16", "bf16", "q8_0", "rot8", "rot4", "rot3" or "rot2", or two of them',
        ),
        (("--kv", "q8_0,q4_0"), 'the nearest is "rot4"'),
        (("--text", "x"), "--text: given without --kv, expected --kv too"),
        (("--kv", "rot4", "--text", str(tmp_path / "none")), "--text: "),
    ):
        status, _, err = call("inspect", DEMO, *words)
        assert status == 64
        assert said in err


@pytest.fixture(scope="module")
def sight(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """A model and its projector, in folders of their own."""
    folder = tmp_path_factory.mktemp("sight")
    model, projector = write_vision_files(folder)
    (folder / "p").mkdir()
    return str(model), str(projector.rename(folder / "p" / projector.name))


def test_vis_4_the_tower_is_shown_with_what_an_image_costs(call, sight: tuple[str, str]):
    model, projector = sight
    told = _inspect(call, model, "--projector", projector, "--tensors")
    vision = told["vision"]
    assert (vision["family"], vision["n_layers"], vision["hidden_size"]) == ("idefics3", 3, 48)
    assert (vision["tile_size"], vision["patch_size"], vision["longest_side"]) == (56, 7, 112)
    assert (vision["part_cells"], vision["max_image_cells"]) == (16, 80)
    tensors = {tensor.name: tensor for tensor in GGUFReader(projector).tensors}
    assert {weight["tensor"] for weight in vision["weights"]} == set(tensors)
    assert {"projector", "media"} < set(told["memory"]["items"])
    text = call("inspect", model, "--projector", projector)[1]
    assert "\nvision tower\n" in text and "of a part; 80 of the largest image" in text
    [kernels] = [line for line in text.split("vision tower", 1)[1].splitlines() if "weights multiplied by" in line]
    assert kernels.split()[:2] == ["20", "f32"]  # six of each layer, the patches and the projection
    for name in ("projector", "media"):
        assert any(line.split()[:1] == [name] for line in text.splitlines())


def test_vis_4_a_model_of_text_shows_no_tower(call, sight: tuple[str, str]):
    model, projector = sight
    for words in ((model,), (model, "--projector", projector, "--set", "model.vision=false")):
        told = _inspect(call, *words)
        assert told["vision"] is None and not {"projector", "media"} & set(told["memory"]["items"])
        assert "vision tower" not in call("inspect", *words)[1]


def test_vis_5_exit_codes_of_projectors(call, sight: tuple[str, str], tmp_path):
    model, projector = sight
    text = tiny("llama").write(tmp_path / "text.gguf")
    small = ("--projector", projector, "--set", "media.cache_bytes=2559")
    cases = {
        ("--projector", str(text)): (65, "MODEL_UNSUPPORTED: model.projector of tiny.gguf: text.gguf: "),
        ("--projector", "none.gguf"): (66, "MODEL_MISSING: model.projector of tiny.gguf: none.gguf"),
        small: (78, "CONFIG_INVALID: media.cache_bytes: 2.5 KiB, a tile of an image takes 2.5 KiB"),
    }
    for words, (status, line) in cases.items():
        found, _, err = call("inspect", model, *words)
        assert (found, len(err.splitlines())) == (status, 1)
        assert err.startswith(f"imp: error: {line}"), err

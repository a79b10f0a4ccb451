"""The fingerprint of a model: what decides tokens changes it, and nothing else does."""

from __future__ import annotations

import dataclasses
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import gguf
import pytest

import imp_service
from imp_service import LanguageModel
from imp_service.generation import fingerprint_parts as module
from imp_service.generation.fingerprint import Fingerprint
from imp_service.generation.fingerprint_parts import warmed_up
from imp_service.models import demo_model_path
from support.kernels.devices import ISAS
from support.models.tiny_heads import TinyNextN
from support.models.tiny_models import TinyModel, tiny
from support.models.tiny_vision_models import write_vision_files
from support.models.worded_encoders import write_encoder
from support.text.tiny_vocabularies import byte_level

SMALL = ("device.threads=1", "kv.bytes=8MiB")


def fingerprint(*settings: str, path: Path | None = None) -> Fingerprint:
    with imp_service.load(path, *SMALL, *settings) as model:
        return model._runtime.fingerprint


@pytest.fixture(scope="module")
def plain() -> Fingerprint:
    return fingerprint()


NEUTRAL: Mapping[str, tuple[str, ...]] = {
    "threads": ("device.threads=2",),
    **{f"isa {isa}": (f"device.isa={isa}",) for isa in ISAS},
    "no pages": ("device.huge_pages=false",),
    "no drafters": ("speculation.drafters=[]",),
    "draft model": ('speculation.drafters=["ngram","model"]', "speculation.max_draft_tokens=3"),
    "sparse prefill": ('speculation.drafters=["model"]', "sparse_prefill.enabled=true", "sparse_prefill.keep=0.5"),
    "cache": ("kv.bytes=4MiB", "kv.block_tokens=32", "kv.prefix_cache=false"),
    "scheduler": ("scheduler.max_running=3", "scheduler.prefill_chunk=7", "scheduler.step_tokens=9"),
    "context": ("limits.max_context=100", "limits.max_tokens=7"),
    "overridden context": ("model.overrides.max_context=128",),
    "names": ("model.name=other", 'model.aliases=["more"]'),
    "default sampling": ("model.overrides.default_sampling.temperature=2", "model.overrides.default_sampling.top_k=3"),
    "what is so anyway": (
        "kv.dtype=bf16",
        "model.overrides.rope_theta=10000",
        "model.overrides.eos_token_ids=[2045, 2047]",
        "model.overrides.kv_layers.0-1=bf16",
    ),
    "deterministic, as CPUs are": ("model.overrides.deterministic=true",),
    "text": ("text.threads=1", "text.cache_bytes=0", "limits.max_prompt_bytes=2048"),
}


@pytest.mark.parametrize("kind", NEUTRAL)
def test_rsm_2_what_changes_no_token_changes_no_digest(kind: str, plain: Fingerprint) -> None:
    assert fingerprint(*NEUTRAL[kind]) == plain


# Settings -> the parts that differ. `logits` are what all of them decide together.
TELLING: Mapping[str, set[str]] = {
    "kv.dtype=q8_0": {"cache", "logits"},
    "model.overrides.kv_layers.0-1=f32": {"cache", "logits"},
    "model.overrides.rope_theta=9999": {"model.rope_theta", "logits"},
    'model.overrides.rope_scaling.type="linear"': {
        "model.rope_scaling", "model.rope_scaling_factor", "model.rope_attention_factor",
    },
    "model.overrides.eos_token_ids=[2]": {"end_tokens"},
    "model.overrides.suppress_tokens=[3]": {"suppressed_tokens"},
    "model.overrides.gemm.q8_0=reference": {"kernels", "logits"},
    "model.overrides.dialect=hermes": {"dialect"},
    "model.overrides.pre_tokenizer=llama-bpe": {"tokenizer"},
}  # fmt: skip


@pytest.mark.parametrize("setting", TELLING)
def test_rsm_2_what_changes_a_token_is_named(setting: str, plain: Fingerprint) -> None:
    other = fingerprint(setting)
    assert other.digest != plain.digest
    assert set(plain.difference(other.parts)) == TELLING[setting]


def test_rsm_2_another_template_is_named(plain: Fingerprint, tmp_path: Path) -> None:
    template = tmp_path / "chat.jinja"
    template.write_text("{% for each in messages %}{{ each.content }}{% endfor %}")
    assert plain.difference(fingerprint(f"model.overrides.chat_template={template}").parts) == ["templates"]


def test_rsm_2_other_libraries_and_revisions_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with imp_service.load(None, *SMALL) as model:
        here = warmed_up(model._runtime)
        monkeypatch.setattr(module, "version", lambda package: f"0.{len(package)}")
        monkeypatch.setattr(module, "ARITHMETIC_REVISION", 10**6)
        monkeypatch.setattr(module, "__version__", "7.8.9")
        there = warmed_up(model._runtime)
    assert here.difference(there.parts) == ["arithmetic", "imp", "llguidance", "tokenizers"]
    assert (there.parts["imp"], there.parts["arithmetic"]) == ("7.8", "1000000")


def test_rsm_2_a_copy_a_split_and_a_packed_cache_are_one_model(tmp_path: Path, plain: Fingerprint) -> None:
    copy = tmp_path / "another-name.gguf"
    shutil.copy(demo_model_path(), copy)
    os.utime(copy, (1e9, 1e9))  # a file that is new is not cached
    cache = f"model.packed_cache={tmp_path / 'packed'}"
    assert fingerprint(path=copy) == plain
    with imp_service.load(copy, *SMALL, cache) as model:
        assert model._runtime.fingerprint == plain
        assert model._runtime.core.write_packed(lambda: True)
    with imp_service.load(copy, *SMALL, cache) as model:
        assert model._runtime.core.packed["was_read"]
        assert model._runtime.fingerprint == plain


def split_of(path: Path, folder: Path) -> Path:
    """Writes the file as shards of a few tensors each; returns the first."""
    reader = gguf.GGUFReader(path)
    writer = gguf.GGUFWriter(folder / "m.gguf", "", split_max_tensors=7)
    writer.kv_data[0].clear()
    for name, field in reader.fields.items():
        if not name.startswith("GGUF."):
            kind, *of = field.types
            writer.add_key_value(name, field.contents(), kind, of[-1] if of else None)
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
    for write in (writer.write_header_to_file, writer.write_kv_data_to_file, writer.write_tensors_to_file):
        write()
    writer.close()
    return min(folder.glob("m-00001-of-*.gguf"))


def test_rsm_2_a_file_and_its_split_are_one_model(tmp_path: Path, plain: Fingerprint) -> None:
    assert fingerprint(path=split_of(demo_model_path(), tmp_path)) == plain


@pytest.mark.parametrize("name", ["token_embd.weight", "blk.0.attn_q.weight", "blk.3.ffn_down.weight"])
def test_rsm_2_a_flipped_bit_in_a_weight_is_found(name: str, tmp_path: Path, plain: Fingerprint) -> None:
    tensor = next(each for each in gguf.GGUFReader(demo_model_path()).tensors if each.name == name)
    content = bytearray(demo_model_path().read_bytes())
    content[tensor.data_offset + 10] ^= 1  # of a number in the first block
    path = tmp_path / "m.gguf"
    path.write_bytes(content)
    assert plain.difference(fingerprint(path=path).parts) == ["logits"]


def written(path: Path, source: TinyModel | TinyNextN) -> Path:
    """Writes a tiny model with words."""
    contents = source.contents()
    contents.keys = {**contents.keys, **byte_level(merges=[("t", "h")])}
    return contents.write(path)


N_WORDS = len(cast(list[str], byte_level(merges=[("t", "h")])["tokenizer.ggml.tokens"]))


def test_rsm_2_other_tensors_are_named(tmp_path: Path) -> None:
    model = tiny("llama", vocab_size=N_WORDS)
    known = fingerprint(path=written(tmp_path / "a.gguf", model))
    wider = fingerprint(path=written(tmp_path / "b.gguf", dataclasses.replace(model, ffn_size=80)))
    assert known.difference(wider.parts) == ["logits", "model.ffn_size", "tensors"]
    halved = fingerprint(path=written(tmp_path / "c.gguf", dataclasses.replace(model, dtype="f16")))
    assert known.difference(halved.parts) == ["kernels", "logits", "tensors"]
    more = fingerprint(path=written(tmp_path / "d.gguf", dataclasses.replace(model, vocab_size=N_WORDS + 1)))
    assert known.difference(more.parts) == ["logits", "model.vocab_size", "suppressed_tokens", "tensors"]


def test_rsm_2_load_changes_no_bit_of_the_first_step(plain: Fingerprint) -> None:
    with imp_service.load(None, *SMALL) as model:
        running = [model.generate("Once upon a time", max_tokens=60, seed=i, temperature=1) for i in range(4)]
        for each in running:
            next(each)
        assert model._runtime.fingerprint == plain
        for each in running:
            assert len(each.result().token_ids) > 0


def test_rsm_2_drafters_with_weights_are_no_part(tmp_path: Path) -> None:
    path = written(tmp_path / "m.gguf", TinyNextN(tiny("qwen2", tied=False, vocab_size=N_WORDS)))
    known = fingerprint("speculation.drafters=[]", path=path)
    assert fingerprint('speculation.drafters=["head"]', path=path) == known


def test_rsm_2_an_encoder_has_the_bits_of_a_vector(tmp_path: Path) -> None:
    path = write_encoder(tmp_path / "mean")
    known = fingerprint(path=path)
    assert (known.parts["dialect"], known.parts["templates"]) == ("none", "none")
    other = fingerprint("model.overrides.pooling=cls", path=path)
    assert known.difference(other.parts) == ["logits", "model.pooling"]


def test_rsm_2_a_projector_and_the_libraries_of_images_are_named(tmp_path: Path) -> None:
    path, _ = write_vision_files(tmp_path)
    seeing, blind = fingerprint(path=path), fingerprint("model.vision=false", path=path)
    names = seeing.difference(blind.parts)
    assert {"projector", "projector_tensors", "projector_kernels", "images.pil", "images.libjpeg_turbo"} <= set(names)
    assert all(name.startswith(("projector", "images.")) for name in names)


def test_rsm_2_a_digest_is_that_of_all_parts() -> None:
    parts: dict[str, Any] = {"a": "1", "b": "2"}
    known = Fingerprint.of(parts)
    assert Fingerprint.of(dict(reversed(parts.items()))) == known
    assert len({known.digest, Fingerprint.of({"a": "1"}).digest, Fingerprint.of({"a": "1", "b": "3"}).digest}) == 3
    assert len(known.digest) == 16 and int(known.digest, 16)
    assert known.difference({"a": "1", "c": "2"}) == ["b", "c"]


def test_rsm_2_it_is_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    with imp_service.load(None, *SMALL) as model:
        assert isinstance(model, LanguageModel)
        known = model._runtime.fingerprint
        n_steps = model._runtime.client.engine.stats().n_steps
        assert model._runtime.fingerprint is known
        assert model._runtime.client.engine.stats().n_steps == n_steps

"""Random weights of real shapes: the published sizes, the published mixes, and a model that loads and runs."""

import dataclasses
import math

import gguf
import pytest

from imp_service import _core
from imp_service.core.bench.engine_runs import DecodeBatch, EngineRuns
from imp_service.core.engine_client import EngineClient
from imp_service.core.synthetic import MIXES, SHAPES, Shape, metadata, synthetic_file, tensors

# The counts of the model cards and weight files; a shared embedding counts once.
PARAMETERS = {
    "0.6b": 596_049_920,
    "1.7b": 1_720_574_976,
    "4b": 4_022_468_096,
    "1b": 1_235_814_400,
    "gemma-1b": 999_885_952,
}
SMALL = Shape("Small", "llama", 2, 256, 512, 4, 2, 64, 320, 512, 1e4, 1e-5, False)
SMALL_EXPERTS = dataclasses.replace(
    SMALL, architecture="qwen3moe", qk_norm=True, n_experts=6, n_experts_used=2, expert_ffn_size=256
)


def size(tensor: tuple) -> int:
    return math.prod(tensor[2])


@pytest.mark.parametrize("name", SHAPES)
def test_shapes_have_the_published_number_of_parameters(name: str) -> None:
    assert sum(map(size, tensors(SHAPES[name], MIXES["q8_0"]))) == PARAMETERS[name]


@pytest.mark.parametrize(
    ("mix", "bits"),
    # Bits per weight of each type, from the gguf package; the mix of Q4_K_M is checked below.
    [(mix, gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[mix.upper()]]) for mix in ("q8_0", "f16", "bf16", "f32")],
)
def test_plain_types_are_in_every_matrix(mix: str, bits: tuple[int, int]) -> None:
    file = synthetic_file("0.6b", mix)
    matrices = [tensor for tensor in tensors(SHAPES["0.6b"], MIXES[mix]) if len(tensor[2]) == 2]
    assert {tensor[1] for tensor in matrices} == {mix}
    per_block, block_bytes = bits
    matrix_bytes = sum(map(size, matrices)) * block_bytes // per_block
    norm_bytes = 4 * sum(size(tensor) for tensor in tensors(SHAPES["0.6b"], MIXES[mix]) if len(tensor[2]) == 1)
    assert sum(tensor.n_bytes for tensor in file.tensors) == matrix_bytes + norm_bytes


def test_q4_k_m_has_six_bits_where_the_hubs_files_do() -> None:
    found = {tensor[0]: tensor[1] for tensor in tensors(SHAPES["0.6b"], MIXES["q4_k_m"]) if len(tensor[2]) == 2}
    six = {name for name, dtype in found.items() if dtype == "q6_k"}
    # Layers of 28: 3 at each end, and every third between.
    layers = [0, 1, 2, 5, 8, 11, 14, 17, 20, 23, 24, 25, 26, 27]
    assert six == {"token_embd.weight"} | {f"blk.{i}.{name}.weight" for i in layers for name in ("attn_v", "ffn_down")}
    assert {found[name] for name in found.keys() - six} == {"q4_k"}


@pytest.mark.few(4)
@pytest.mark.parametrize(
    ("shape", "mix"), [*[pytest.param(SMALL, mix, id=mix) for mix in MIXES], (SMALL_EXPERTS, "q4_k_m")]
)
def test_random_weights_load_and_run(shape: Shape, mix: str) -> None:
    file = _core.make_synthetic_file(metadata(shape, mix), list(tensors(shape, MIXES[mix])))
    model = _core.Model.load(file, threads=1, kv_bytes=2**20)
    assert (model.architecture, model.vocab_size, model.n_heads, model.head_dim) == (shape.architecture, 320, 4, 64)
    client = EngineClient(
        _core.Engine(model, _core.EngineOptions(n_blocks=model.n_blocks, max_context=model.max_context))
    )
    runs = EngineRuns(client, model.vocab_size)
    with DecodeBatch(runs, batch=3, depth=20) as batch:
        before = client.engine.stats()
        for _ in range(2):
            assert batch.decode(6) > 0
        after = client.engine.stats()
        assert after.n_outputs - before.n_outputs == 2 * 3 * 6
        assert after.sessions == 3
    # Nothing of it remains, and cached parts of a prompt are computed again.
    cached = client.engine.stats().n_cached_tokens
    assert all(runs.prefill(64) > 0 for _ in range(2))
    assert client.engine.stats().n_cached_tokens == cached
    assert client.engine.stats().sessions == 0
    client.close()


def test_the_residual_stream_keeps_its_size() -> None:
    deviations = {tensor[0]: tensor[4] for tensor in tensors(SHAPES["4b"], MIXES["q8_0"])}
    assert deviations["blk.35.ffn_down.weight"] == deviations["blk.0.attn_output.weight"]
    assert deviations["blk.0.ffn_up.weight"] / deviations["blk.0.ffn_down.weight"] == pytest.approx(math.sqrt(2 * 36))


@pytest.mark.parametrize(("kind", "message"), [("int4", "kind: int4, expected one of int8, bf16, f32")])
def test_probes_refuse_what_they_do_not_know(kind: str, message: str) -> None:
    with pytest.raises(_core.InvalidArgument, match=message):
        _core.probe_peak(kind, 1)


def test_probes_give_rates_of_the_right_unit() -> None:
    """Bounds the rates: a thousand times slower and a thousand times faster than any x86-64 machine."""
    assert 1e6 < _core.probe_read_bandwidth(1, seconds=0.001) < 1e15
    assert 1e6 < _core.probe_peak("f32", 2, seconds=0.001) < 1e17
    assert 1e6 < _core.probe_peak("bf16", 1, seconds=0.001) < 1e18
    assert 1e6 < _core.probe_peak("int8", 1, seconds=0.001) < 1e18

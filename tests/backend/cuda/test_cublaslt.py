"""Products by cuBLASLt: found at run time or refused with a message, correct on both devices, and never partial.

The emulated device uses our own library in its place, which is opened like NVIDIA's.
"""

from __future__ import annotations

import dataclasses
import functools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from imp_service import _core
from imp_service import _testing as core
from imp_service.core.cublaslt import search_places
from support.kernels.bits import assert_same_bits
from support.kernels.cublaslt import EMULATED, places
from support.kernels.devices import GPU_KINDS, emulated_only
from support.kernels.gpu_gemm import (
    TILE_TYPES,
    Input,
    bias_of,
    is_within,
    k_of,
    many_row_input,
    run,
)
from support.kernels.gpu_gemm import many_row_product as exactly
from support.kernels.weights import random_rows, random_weight
from support.models.forward_runs import Cache, load, logits, prompt, rms_distance
from support.models.tiny_models import tiny
from support.oracles import tolerances
from support.oracles.forward_bounds import int8_activations_bound

Floats = NDArray[np.float32]
Float64s = NDArray[np.float64]

# Neither is a multiple of 16; the larger one takes several strips on the emulated device.
SMALL, LARGE = 37, 150
ROWS = [1, 16, 17, 65, 130, 200]

each_device = pytest.mark.parametrize("device", GPU_KINDS)
each_type = pytest.mark.parametrize("dtype", TILE_TYPES)


@functools.cache
def refusal(device: str) -> str | None:
    reason: str | None = core.gpu_kernels_here(device, places(device))["q8_0_cublaslt"][1]
    return reason


def products(device: str, dtype: str, terms: list[tuple[object, int, Floats | None]], x: Input, k: int,
             **how: object) -> list[Floats]:  # fmt: skip
    if (reason := refusal(device)) is not None:
        pytest.skip(f"no cuBLASLt for this device: {reason}")
    return run(device, f"{dtype}_cublaslt", terms, x, k, cublaslt=places(device), **how)


@functools.lru_cache(maxsize=16)
def x_of(dtype: str, m: int = max(ROWS)) -> Input:
    return many_row_input(dtype, random_rows(max(ROWS), k_of(dtype), seed=3)).rows(slice(m))


# One product.


@pytest.mark.sweep
@each_device
@each_type
@pytest.mark.parametrize(("n", "m"), [*((SMALL, m) for m in ROWS), (LARGE, 70)])
def test_gemm_9_gemm_10_equals_float64_and_writes_nothing_else(device: str, dtype: str, n: int, m: int) -> None:
    k, x, weight = k_of(dtype), x_of(dtype, m), random_weight(dtype, n, k_of(dtype))
    [out] = products(device, dtype, [(weight.file, n, None)], x, k, thread_order=m)
    exact, bound = exactly(x.exact, weight)
    assert is_within(out, exact, bound)
    # Negative controls: two columns exchanged, and two elements of k exchanged.
    swapped = weight.values.astype(np.float64)[:, np.r_[1, 0, 2:k]]
    assert not is_within(out, x.exact @ swapped.T, bound)
    assert not is_within(out, np.roll(exact, 1, axis=1), bound)


@each_device
@each_type
def test_gemm_10_control_a_changed_scale_is_seen(device: str, dtype: str) -> None:
    k, x = k_of(dtype), x_of(dtype, 17)
    weight, other = random_weight(dtype, SMALL, k), random_weight(dtype, SMALL, k, seed=1)
    changed = weight.file.copy()
    row = len(changed) // SMALL
    changed[-row // 2 :] = other.file[-row // 2 :]
    [out] = products(device, dtype, [(changed, SMALL, None)], x, k)
    exact, bound = exactly(x.exact, weight)
    assert is_within(out[:, :-1], exact[:, :-1], bound[:, :-1])
    assert not is_within(out, exact, bound)


@pytest.mark.few(4)
@each_device
@each_type
def test_gemm_10_terms_of_one_launch_have_their_own_weights_and_biases(device: str, dtype: str) -> None:
    k, x, sizes = k_of(dtype), x_of(dtype, 20), [37, 16, 150, 50]
    weights = [random_weight(dtype, n, k, seed=i) for i, n in enumerate(sizes)]
    biases = [bias_of(37), None, bias_of(150), None]
    terms = [(weight.file, weight.n, bias) for weight, bias in zip(weights, biases, strict=True)]
    for out, weight, bias in zip(products(device, dtype, terms, x, k), weights, biases, strict=True):
        assert is_within(out, *exactly(x.exact, weight, bias))
        assert bias is None or not is_within(out, *exactly(x.exact, weight))


def gated(activation: str, gate: Float64s, up: Float64s) -> Float64s:
    if activation == "silu":
        return gate / (1 + np.exp(-gate)) * up
    return 0.5 * gate * (1 + np.tanh(np.sqrt(2 / np.pi) * (gate + 0.044715 * gate**3))) * up


@pytest.mark.few(2)
@each_device
@pytest.mark.parametrize(
    ("dtype", "activation"),
    [("q8_0", "silu"), ("q4_k", "gelu_tanh"), ("f8_e4m3", "silu"), ("f16", "silu"), ("bf16", "gelu_tanh")],
)
def test_krn_3_a_pair_is_gated_before_it_is_written(device: str, dtype: str, activation: str) -> None:
    """Uses several strips of both weights and several parts of the rows."""
    k, n = k_of(dtype), LARGE
    x = many_row_input(dtype, random_rows(70, k) / np.float32(64))  # gates of about one
    weights, bias = [random_weight(dtype, n, k, seed=seed) for seed in (1, 2)], bias_of(n)
    terms = [(weights[0].file, n, bias), (weights[1].file, n, None)]
    out, untouched = products(device, dtype, terms, x, k, fusion=activation)
    gate, gate_bound = exactly(x.exact, weights[0], bias)
    up, up_bound = exactly(x.exact, weights[1])
    expected = gated(activation, gate, up)
    # Neither activation has a slope above 1.13 or exceeds its argument.
    through = 1.13 * gate_bound * (np.abs(up) + up_bound) + np.abs(gate) * up_bound
    bound = through + tolerances.gelu_tanh(gate, up) + tolerances.elementwise(expected, 8)
    assert is_within(out, expected, bound)
    assert np.isnan(untouched).all()
    assert not is_within(out, gated(activation, up, gate), bound)


@each_device
@each_type
def test_det_11_runs_have_the_same_bits_whatever_lay_in_scratch(device: str, dtype: str) -> None:
    k, x, weight = k_of(dtype), x_of(dtype, 33), random_weight(dtype, SMALL, k_of(dtype))
    runs = [products(device, dtype, [(weight.file, SMALL, None)], x, k, fill=fill, thread_order=fill)[0]
            for fill in (0, 0xFF, 0x7B)]  # fmt: skip
    for out in runs[1:]:
        assert_same_bits(out, runs[0])


@each_device
def test_gemm_10_what_is_not_finite_stays_in_its_row(device: str) -> None:
    for dtype in ("q8_0", "bf16"):
        k, rows = k_of(dtype), random_rows(20, k_of(dtype))
        x = many_row_input(dtype, rows)
        broken = x.bytes.copy()
        at = 2 * (-(-k // 256) * 256) if dtype == "q8_0" else 0  # the row's factor, or its first element
        broken[7, at : at + 4] = np.full(1, np.nan, np.float32).view(np.uint8)
        weight = random_weight(dtype, SMALL, k)
        [out] = products(device, dtype, [(weight.file, SMALL, None)], Input(broken, x.exact), k)
        others = np.arange(20) != 7
        exact, bound = exactly(x.exact, weight)
        assert np.isnan(out[7]).all()
        assert is_within(out[others], exact[others], bound[others])


# How products are divided.


@pytest.mark.parametrize("n_products", [1, 2])
@pytest.mark.parametrize(("n", "k"), [(1, 1), (37, 275), (14336, 4096), (4096, 14336), (151936, 1024), (512, 1 << 20)])
def test_gemm_9_scratch_is_bounded_whatever_the_weight(n: int, k: int, n_products: int) -> None:
    """Weights of the larger models' layers take one strip or two; parts of x have a power of two of rows."""
    sizes = []
    for m in (1, 15, 512, 2048, 65536):
        strip, last, part, n_bytes = core.cublaslt_cut(n, k, n_products, m)
        assert strip % 16 == last % 16 == 0
        assert 0 < last <= strip
        assert -(-n // strip) * strip - strip + last == -(-n // 16) * 16
        assert part in (16, 32, 64, 128, 256, 512, 1024, 2048)
        sizes.append(n_bytes)
    assert sizes == sorted(sizes)
    assert sizes[-1] <= (32 + 128 + 64 + 1) << 20
    if max(n, k) == 14336:
        assert -(-n // strip) <= 2
        assert part >= 512


def test_an_algorithm_is_for_the_rows_between_two_powers_of_two() -> None:
    assert [core.cublaslt_bucket(m) for m in (1, 16, 17, 32, 33, 2048)] == [
        (1, 16), (1, 16), (17, 32), (17, 32), (33, 64), (1025, 2048),
    ]  # fmt: skip


# cuBLASLt in a backend.


def device_with(kind: str, library: list[str] | None = None) -> Any:
    return core.Device(kind=kind, cublaslt=places(kind) if library is None else library)


def by_cublaslt(dtype: str) -> dict[str, Any]:
    return {"overrides": [(dtype, f"{dtype}_cublaslt")], "deterministic": False}


@pytest.mark.long
@each_device
def test_gemm_4_an_override_takes_it_for_many_rows_and_others_for_few(device: str) -> None:
    if (reason := refusal(device)) is not None:
        pytest.skip(f"no cuBLASLt for this device: {reason}")
    gpu, k = device_with(device), 512
    weights = [random_weight("q4_k", n, k, seed=n) for n in (SMALL, LARGE)]
    terms = [(weight.n, ("q4_k", weight.file, bias_of(weight.n))) for weight in weights]
    for m, kernel in ((4, "q4_k_dp4a"), (40, "q4_k_imma"), (300, "q4_k_cublaslt")):
        before, x = gpu.launches(), random_rows(m, k, seed=m)
        outs = gpu.linear(x, terms, fill=0xFF, **by_cublaslt("q4_k"))
        ran = {name for name, count in gpu.launches().items() if count > before[name] and name.startswith("q4_k")}
        assert ran == {kernel}
        for out, weight in zip(outs, weights, strict=True):
            exact = x.astype(np.float64) @ weight.values.T + bias_of(weight.n)
            assert np.linalg.norm(out - exact) < tolerances.INT8_ACTIVATIONS_RMS * np.linalg.norm(exact)
            assert np.linalg.norm(out - exact[::-1]) > np.linalg.norm(exact)


@pytest.mark.long
@each_device
@pytest.mark.parametrize("dtype", ["q8_0", "bf16"])
def test_krn_3_a_gate_and_what_it_gates_are_one_launch(device: str, dtype: str) -> None:
    if (reason := refusal(device)) is not None:
        pytest.skip(f"no cuBLASLt for this device: {reason}")
    gpu, k, m = device_with(device), 352, 260
    gate, up = (random_weight(dtype, LARGE, k, seed=seed) for seed in (1, 2))
    x = random_rows(m, k) / np.float32(32)
    how = by_cublaslt(dtype)
    out = gpu.gated_linear("silu", x, LARGE, (dtype, gate.file, None), (dtype, up.file, bias_of(LARGE)), fill=1, **how)
    assert gpu.launches()[f"{dtype}_cublaslt"] == 1
    wide = x.astype(np.float64)
    expected = gated("silu", wide @ gate.values.T, wide @ up.values.T + bias_of(LARGE))
    allowed = tolerances.BFLOAT16_ACTIVATIONS_RMS if dtype == "bf16" else tolerances.FLOAT16_ACTIVATIONS_RMS
    assert np.linalg.norm(out - expected) < 3 * allowed * np.linalg.norm(expected)
    told, held = device_with(device).scratch_for(dtype, gate.file, LARGE, k, m, **how)
    assert told == held


@emulated_only
def test_det_13_the_deterministic_mode_does_not_take_it() -> None:
    gpu, weight = device_with("cuda_emulated"), random_weight("q8_0", SMALL, 352)
    with pytest.raises(_core.ModelError, match="deterministic mode does not allow") as error:
        gpu.linear(random_rows(2, 352), [(SMALL, ("q8_0", weight.file, None))], overrides=[("q8_0", "q8_0_cublaslt")])
    assert error.value.reason == "OVERRIDE_INVALID"


@emulated_only
def test_gemm_16_no_order_takes_it() -> None:
    """Only an override selects it, whether it has run on hardware or not."""
    rows = _core.explain("q8_0", 64, 512, device="cuda_emulated", unvalidated=True, cublaslt=[EMULATED])
    [(accepted, reason)] = [(accepted, reason) for name, accepted, reason in rows if name == "q8_0_cublaslt"]
    assert (accepted, reason) == (False, "an earlier kernel takes these rows")


Q8_0 = tiny("qwen3", hidden_size=256, ffn_size=512, n_heads=4, n_kv_heads=2, head_dim=64, n_layers=1, dtype="q8_0")


@each_device
def test_a_long_prompt_takes_it_and_what_follows_does_not(device: str, tmp_path: Path) -> None:
    if (reason := refusal(device)) is not None:
        pytest.skip(f"no cuBLASLt for this device: {reason}")
    model = load(Q8_0, tmp_path, device=device, gemm=[("q8_0", "q8_0_cublaslt")], cublaslt=places(device))
    cache, tokens = Cache(model), prompt(261, Q8_0.vocab_size)
    blocks = cache.blocks(261)
    expected = Q8_0.oracle().logits(tokens)
    got = cache.run((tokens[:260], 0, blocks))[0]
    assert rms_distance(got, expected[:260]) < int8_activations_bound(Q8_0)
    ran = model.launches["q8_0_cublaslt"]
    assert ran > 0
    assert model.warnings == []
    last = cache.run((tokens[260:], 260, blocks))[0]
    assert model.launches["q8_0_cublaslt"] == ran
    assert rms_distance(last, expected[260:]) < int8_activations_bound(Q8_0)


@pytest.mark.long
@emulated_only
def test_gemm_17_experts_are_not_its(tmp_path: Path) -> None:
    """An override can still select it for the other weights of the same model."""
    mixture = dataclasses.replace(Q8_0, architecture="qwen3moe", n_experts=4, expert_ffn_size=128)
    with pytest.raises(_core.ModelError, match="only the GPU knows how many rows an expert has") as error:
        load(mixture, tmp_path, device="cuda_emulated", gemm=[("q8_0", "q8_0_cublaslt")], cublaslt=[EMULATED])
    assert error.value.reason == "OVERRIDE_INVALID"
    model = load(
        mixture, tmp_path, device="cuda_emulated", gemm=[("blk.*.attn_*.weight", "q8_0_cublaslt")], cublaslt=[EMULATED]
    )
    tokens = prompt(256, mixture.vocab_size)
    assert rms_distance(logits(model, tokens), mixture.oracle().logits(tokens)) < int8_activations_bound(mixture)
    assert model.launches["q8_0_cublaslt"] == mixture.n_layers * 4


@pytest.mark.long
@each_device
def test_det_10_where_it_is_all_there_is_steps_are_captured_with_it(device: str, tmp_path: Path) -> None:
    """Graphs capture its calls: each replay multiplies again."""
    if (reason := refusal(device)) is not None:
        pytest.skip(f"no cuBLASLt for this device: {reason}")
    model = load(
        Q8_0, tmp_path, device=device, gemm=[("q8_0", "q8_0_cublaslt")], unvalidated_kernels=False,
        cublaslt=places(device),
    )  # fmt: skip
    kernels = {tuple(weight["kernels"]) for weight in model.weights if weight["layout"] == "tile16"}
    assert kernels == {("q8_0_cublaslt",)}
    [warning] = model.warnings
    assert warning.startswith("q8_0_cublaslt is tuned for 256 rows and more, but multiplies batches of any size")
    cache, tokens = Cache(model), prompt(12, Q8_0.vocab_size)
    expected, blocks = Q8_0.oracle().logits(tokens), cache.blocks(12)
    cache.run((tokens[:5], 0, blocks))
    for at in range(5, 12):
        got = cache.run(([tokens[at]], at, blocks))[0]
        assert rms_distance(got, expected[at : at + 1]) < int8_activations_bound(Q8_0)
    counts = core.gpu_step_counts(model)
    assert (counts["captures"], counts["failures"]) == (1, 0)
    assert counts["replays"] >= 5


# Faults of the library.


def patched(folder: Path, symbol: str) -> str:
    """Writes the emulated library without one function."""
    content = Path(EMULATED).read_bytes()
    name = symbol.encode() + b"\0"
    assert name in content
    path = folder / "libcublasLt.so.13"
    path.write_bytes(content.replace(b"\0" + name, b"\0" + name.replace(b"cublas", b"cublaz")))
    return str(path)


def words(library: list[str]) -> str:
    """Returns the reason that explain() gives for the row; checks that an override gives the same."""
    rows = _core.explain("q4_k", 64, 512, device="cuda_emulated", unvalidated=True, cublaslt=library)
    [said] = [reason for name, accepted, reason in rows if name == "q4_k_cublaslt" and not accepted]
    weight = random_weight("q4_k", 16, 256)
    with pytest.raises(_core.ModelError) as error:
        device_with("cuda_emulated", library).linear(
            random_rows(1, 256), [(16, ("q4_k", weight.file, None))], **by_cublaslt("q4_k")
        )
    assert error.value.reason == "OVERRIDE_INVALID"
    assert str(error.value).endswith(f"gemm.q4_k = q4_k_cublaslt: {said}")
    return str(said)


@emulated_only
def test_gemm_17_what_is_not_to_be_used_is_off() -> None:
    assert words([]) == "cuBLASLt is not available: device.cublaslt is off"


@emulated_only
def test_gemm_17_what_is_not_there_is_named(tmp_path: Path) -> None:
    missing = str(tmp_path / "libcublasLt.so.13")
    said = words([missing, "libimp_has_none.so.13"])
    assert said.startswith(f"cuBLASLt is not available: {missing}: cannot open shared object file")
    assert "; libimp_has_none.so.13: cannot open" in said


@emulated_only
@pytest.mark.parametrize("symbol", ["cublasLtCreate", "cublasLtMatmulAlgoCheck", "cublasLtMatmul"])
def test_gemm_17_a_library_without_a_function_is_passed_over(symbol: str, tmp_path: Path) -> None:
    library = patched(tmp_path, symbol)
    assert words([library]) == f"cuBLASLt is not available: {library} has no {symbol}"
    rows = _core.explain("q4_k", 64, 512, device="cuda_emulated", unvalidated=True, cublaslt=[library, EMULATED])
    assert ("q4_k_cublaslt", False, "an earlier kernel takes these rows") in rows


@emulated_only
def test_gemm_17_a_library_that_finds_no_gpu_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IMP_EMULATED_CUBLASLT", "create")
    assert words([EMULATED]) == "cuBLASLt is not available: cublasLtCreate: CUBLAS_STATUS_NOT_INITIALIZED (1)"


@emulated_only
def test_gemm_17_a_gpu_that_is_not_here_has_none() -> None:
    rows = {name: reason for name, _, reason in _core.explain(
        "q4_k", 64, 512, device="cuda_emulated", gpu="h200", unvalidated=True, cublaslt=[EMULATED])}  # fmt: skip
    assert rows["q4_k_cublaslt"] == "cuBLASLt is not available: imp looks for it on the machine with the GPU"


@emulated_only
def test_gemm_17_a_shape_without_an_algorithm_ends_the_load(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IMP_EMULATED_CUBLASLT", "heuristic")
    weight = random_weight("q8_0", SMALL, 352)
    with pytest.raises(_core.ModelError, match=r"no algorithm for weights of 48x512 .*NOT_SUPPORTED \(15\)") as error:
        device_with("cuda_emulated").linear(
            random_rows(300, 352), [(SMALL, ("q8_0", weight.file, None))], **by_cublaslt("q8_0")
        )
    assert error.value.reason == "MODEL_UNSUPPORTED"


@emulated_only
@pytest.mark.parametrize("offers", ["unwanted", "strict"])
def test_det_11_algorithms_that_split_sums_or_need_more_room_are_not_taken(
    offers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The library offers them against the request, or among few others; any of them would fail the test."""
    monkeypatch.setenv("IMP_EMULATED_CUBLASLT", offers)
    k, x, weight = k_of("q8_0"), x_of("q8_0", 40), random_weight("q8_0", SMALL, k_of("q8_0"))
    [out] = products("cuda_emulated", "q8_0", [(weight.file, SMALL, None)], x, k)
    assert is_within(out, *exactly(x.exact, weight))


@emulated_only
def test_a_product_that_fails_ends_the_step_and_the_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = load(Q8_0, tmp_path, device="cuda_emulated", gemm=[("q8_0", "q8_0_cublaslt")], cublaslt=[EMULATED])
    tokens = prompt(260, Q8_0.vocab_size)
    assert np.isfinite(logits(model, tokens[:3])).all()
    monkeypatch.setenv("IMP_EMULATED_CUBLASLT", "multiply")
    cache = Cache(model)
    with pytest.raises(_core.DeviceError, match=r"CUBLAS_STATUS_EXECUTION_FAILED \(13\)") as error:
        cache.run((tokens, 0, cache.blocks(260)))
    assert error.value.reason == "DEVICE_FAULT"
    monkeypatch.delenv("IMP_EMULATED_CUBLASLT")
    with pytest.raises(_core.DeviceError, match="EXECUTION_FAILED"):  # the failure persists
        cache.run((tokens[:2], 0, cache.blocks(2)))


@emulated_only
def test_gemm_17_nvidias_own_has_every_function() -> None:
    """Without a GPU it returns the error that the code expects."""
    packaged = [place for place in search_places() if "/" in place]
    if not packaged:
        pytest.skip("the package nvidia-cublas is not installed")
    rows = _core.explain("q4_k", 64, 512, device="cuda_emulated", unvalidated=True, cublaslt=packaged[:1])
    [said] = [reason for name, _, reason in rows if name == "q4_k_cublaslt"]
    assert said in (
        "cuBLASLt is not available: cublasLtCreate: CUBLAS_STATUS_NOT_INITIALIZED (1)",
        "an earlier kernel takes these rows",  # there is a GPU
    )

"""Random weights for benchmarks: the requested deviation in every type, and the same bytes for any order of reads."""

import numpy as np
import pytest

from imp_service import _core, _testing
from support.kernels.weights import decode
from support.oracles import tolerances

TYPES = ["f32", "f16", "bf16", "q4_0", "q8_0", "q4_k", "q6_k", "mxfp4", "f8_e4m3"]
SHAPE = (512, 96)
DEVIATION = 0.02


def weights(dtype: str) -> np.ndarray:
    """Returns all weights of one tensor, decoded by another package."""
    model = _core.make_synthetic_file({}, [("a.weight", dtype, SHAPE, 0.0, DEVIATION)])
    raw = np.frombuffer(_testing.read_tensor(model, "a.weight"), dtype=np.uint8)
    return decode(dtype, raw, *SHAPE[::-1]).astype(np.float64).ravel()


@pytest.mark.parametrize("dtype", TYPES)
def test_weights_have_the_deviation_asked_for(dtype: str) -> None:
    values = weights(dtype)
    assert values.size == SHAPE[0] * SHAPE[1]
    # The coarsest type has steps of about a fifth of the deviation, and its centre may be half a step from zero.
    assert abs(values.mean()) < tolerances.standard_errors(DEVIATION, values.size) + DEVIATION / 8
    assert abs(values.std() / DEVIATION - 1) < tolerances.SYNTHETIC_DEVIATION
    assert np.unique(values).size > 8


def test_means_are_for_norms() -> None:
    model = _core.make_synthetic_file({}, [("norm.weight", "f32", (4096,), 1.0, 0.1)])
    values = np.frombuffer(_testing.read_tensor(model, "norm.weight"), dtype=np.float32)
    assert abs(values.mean() - 1.0) < tolerances.standard_errors(0.1, values.size)
    assert abs(values.std() / 0.1 - 1) < tolerances.SYNTHETIC_DEVIATION


@pytest.mark.parametrize("dtype", TYPES)
def test_bytes_do_not_depend_on_how_they_are_read(dtype: str) -> None:
    model = _core.make_synthetic_file({}, [("b.weight", "f16", (32,), 0, 1), ("a.weight", dtype, (256, 3), 0, 0.02)])
    whole = bytes(_testing.read_tensor(model, "a.weight"))
    assert whole == b"".join(
        bytes(_testing.read_tensor(model, "a.weight", at, min(7, len(whole) - at))) for at in range(0, len(whole), 7)
    )


def test_what_cannot_be_made_is_refused_by_name() -> None:
    with pytest.raises(
        _core.InvalidArgument, match=r"a\.weight: random weights of type q2_k, expected one of f32, f16"
    ):
        _core.make_synthetic_file({}, [("a.weight", "q2_k", (256, 2), 0, 1)])
    with pytest.raises(_core.InvalidArgument, match=r"a\.weight: a shape that does not fill blocks"):
        _core.make_synthetic_file({}, [("a.weight", "q8_0", (33, 2), 0, 1)])

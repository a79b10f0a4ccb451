"""What `imp bench --image` says of an image: the time of its parts, and how long a stream waits for it."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest

from imp_service.cli.bench import pictures
from imp_service.cli.shell import main
from support.models.tiny_vision_models import AROUND, PLACES, vocabulary, write_vision_files

FEW = ["--prefill", "0", "--decode", "0", "--threads", "1", "--reps", "2", "--set", "kv.bytes=2MiB"]
# Two tiles and an overview, or four and one.
SIZES, CELLS = ["112x28", "112x84"], [48, 80]
PARTS = ("decode", "encode", "first_token")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write_vision_files(tmp_path_factory.mktemp("image_bench"))[0])


def test_med_28_the_bench_measures_each_size(model: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", model, *FEW, "--image", ",".join(SIZES), "--json"]) == 0
    found: list[Any] = json.loads(capfd.readouterr().out)["images"]
    assert [f"{each['width']}x{each['height']}" for each in found] == SIZES
    assert [each["image_tokens"] for each in found] == CELLS
    tile = "<image>" * 16
    row = f"{AROUND}{PLACES[0]}{tile}{AROUND}{PLACES[1]}{tile}"
    written = vocabulary().encode(f"{row}\n\n{AROUND}<global-img>{tile}{AROUND}", add_special_tokens=False)
    assert found[0]["prompt_tokens"] == len(written.ids) + 64
    for each in found:
        times = {name: value["samples"] for name, value in each.items() if isinstance(value, dict)}
        assert len(times) == 5 and all(len(samples) == 2 and min(samples) > 0 for samples in times.values())
        for decode, encode, first in zip(*(times[f"{part}_seconds"] for part in PARTS), strict=True):
            assert first > decode + encode
        assert each["gap_ratio"] == each["gap_seconds"]["median"] / each["text_gap_seconds"]["median"]


def test_med_28_no_file_is_written_beside_the_stream(
    model: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """That would take more time of the processors than the decoder does."""
    threads = []
    real_png = pictures._png

    def png(width: int, height: int, pixels: bytes) -> bytes:
        threads.append(threading.current_thread())
        return real_png(width, height, pixels)

    monkeypatch.setattr(pictures, "_png", png)
    assert main(["bench", model, *FEW, "--image", SIZES[0]]) == 0
    assert set(threads) == {threading.main_thread()}
    capfd.readouterr()


def test_med_28_the_table_names_its_columns(model: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", model, *FEW, "--image", SIZES[0]]) == 0
    lines = capfd.readouterr().out.splitlines()
    heading = next(line for line in lines if line.startswith("image"))
    assert all(name in heading for name in ("decode: ms", "encode: ms", "first token: ms", "longest gap: ms"))
    assert sum(line.startswith("112 x 28") for line in lines) == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--image", "56"], "USAGE: argument --image: 56: expected WIDTHxHEIGHT in pixels"),
        (["--image", "0x9"], "USAGE: argument --image: 0x9: expected WIDTHxHEIGHT"),
        (["--image", "20000x1"], "FIELD_INVALID: image: is 20000 x 1 pixels, more than 16384 on one side (media.side)"),
        (["--image", "56x56,9999999x9999999"], "more than 40000000 together (media.pixels)"),
        (["--image", "9x9", "--set", "model.overrides.max_context=80"], "CONTEXT_TOO_LONG: image 9x9 and 64 tokens: 1"),
        (["--image", "56x56", "--set", "model.vision=false"], "FEATURE_DISABLED: model.vision is off"),
    ],
)
def test_med_28_what_cannot_be_measured_is_refused_first(
    arguments: list[str], said: str, model: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", model, *FEW, *arguments]) != 0
    out, err = capfd.readouterr()
    assert out == "" and said in err


def test_med_28_a_model_without_a_tower_is_refused(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", *FEW, "--image", "56x56"]) == 64
    assert "NOT_SUPPORTED_BY_MODEL: the built-in demo reads no images" in capfd.readouterr().err
    assert main(["bench", "--server", "127.0.0.1:1", "--image", "56x56"]) == 64
    assert "--image: has no effect with --server" in capfd.readouterr().err

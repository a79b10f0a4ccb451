"""The process that decodes images opens nothing, keeps its limits, and its death costs one request."""

from __future__ import annotations

import asyncio
import importlib.metadata
import json
import os
import re
import resource
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from PIL import Image

from imp_service.media import EncodedImage, Images, ImagesRefused, MediaLimits, PillowMissing
from imp_service.media import decoder as decoder_module
from imp_service.media import worker as worker_module
from imp_service.media.decoder import ImageDecoder, ImageReading
from imp_service.media.formats import Header, ImageFormat
from imp_service.process import worker_process
from imp_service.text.errors import FieldInvalid
from support.machine.limited import limit_growth
from support.media.image_files import MODES, pixels_of, saved
from support.media.pixel_cases import SMALL
from support.media.png_writer import RGB, chunk, png
from support.run.patience import HANGS_AFTER

SIZES = SMALL["fixed"]
SITE_PACKAGES = str(Path(Image.__file__).parents[1])
FILE = EncodedImage(MODES["jpeg"](pixels_of(40, 30)))
OTHER = EncodedImage(MODES["jpeg"](pixels_of(40, 30, seed=1)))


@pytest.fixture
def images() -> Iterator[Images]:
    made = Images(SIZES, MediaLimits(waiting_bytes=0))
    yield made
    made.close()


def decoded(images: Images, source: EncodedImage = FILE) -> int:
    """Returns the number of bytes of the tiles."""
    return len(asyncio.run(images.decode(images.plan(source, "image"))).data)


N_BYTES = 3 * 224 * 112


def pid_of(images: Images) -> int:
    worker = images._decoder._worker._worker
    assert worker is not None  # narrows
    return worker.pid


# Plans an image, whose digest needs the worker's versions, and prints whether this process imported a decoder.
PLANNED = """
import sys
from imp_service.media import FixedSizes, Images, MediaLimits, RawImage
half = (0.5, 0.5, 0.5)
images = Images(FixedSizes(patch_size=14, image_mean=half, image_std=half, resample=2, width=56, height=56,
                           scale_factor=4), MediaLimits())
images.plan(RawImage(1, 1, bytes(3)), "image")
images.close()
print("PIL" in sys.modules)
"""


def test_vis_7_the_server_itself_imports_no_decoder() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", PLANNED], capture_output=True, text=True, timeout=HANGS_AFTER, check=True
    )
    assert ran.stdout == "False\n"


def test_vis_7_pillow_has_the_formats_and_says_its_versions(images: Images) -> None:
    libraries = images.libraries()
    assert libraries["pil"] == importlib.metadata.version("pillow")
    assert {name for name, version in libraries.items() if re.match(r"\d+\.", version)} >= {"jpg", "webp", "zlib"}


# Runs the worker's file, and from its first message on notes what it opens; at last something that the hook must see.
TRACED = """
import os, runpy, sys
opened = []
def note(event, arguments):
    if event.startswith(("open", "os.", "socket.", "subprocess.", "import", "ctypes.dlopen")):
        opened.append(f"{event} {arguments}")
write, started = os.write, []
def first_write(descriptor, data):
    if not started:
        started.append(True)
        sys.addaudithook(note)
    return write(descriptor, data)
os.write = first_write
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
try:
    open("control")
except OSError as error:
    opened.append(f"{error.errno}")
write(2, ", ".join(opened).encode())
"""
EMFILE_AFTER_CONTROL = b"open ('control', 'r', 524288), 24"


def test_vis_7_the_worker_opens_nothing_for_any_mode() -> None:
    request = b""
    files = [make(pixels_of(21, 13)) for make in MODES.values()]
    # Pillow warns of an animation without frames.
    files.append(png(pixels_of(21, 13)[..., :3], RGB, chunks=[chunk(b"acTL", bytes(8))]))
    for data in files:
        header = EncodedImage(data).header()
        size = header.width, header.height
        how = {"format": header.format, "size": size, "orientation": header.orientation, "steps": [size], "resample": 3}
        tiles = {"tiles": (1, 1), "tile": size, "has_overview": False}
        limits = {"cpu_seconds": 60, "wall_seconds": 60, "memory_bytes": 1 << 30}
        request += json.dumps({**how, **tiles, **limits, "body_bytes": len(data)}).encode() + b"\n" + data
    command = [sys.executable, "-I", "-S", "-c", TRACED, worker_module.__file__, SITE_PACKAGES]
    ran = subprocess.run(command, input=request, capture_output=True, timeout=HANGS_AFTER, check=True)
    assert ran.stdout.count(b'{"error": "", ') == len(files)
    assert ran.stderr == EMFILE_AFTER_CONTROL


OPENS = """
import runpy, socket, sys
from pathlib import Path
made = runpy.run_path(sys.argv[1])
open("/dev/null").close()
memory = made["_Memory"]()
for opens in (lambda: open("/dev/null"), socket.socket, lambda: Path("/tmp/x").write_bytes(b"")):
    try:
        opens()
        print("opened")
    except OSError as error:
        print(error.errno)
"""


def test_vis_7_the_kernel_lets_the_worker_open_no_file_and_no_socket() -> None:
    ran = subprocess.run(
        [sys.executable, "-I", "-S", "-c", OPENS, worker_module.__file__],
        capture_output=True, text=True, timeout=HANGS_AFTER, check=True,
    )  # fmt: skip
    assert ran.stdout.split() == ["24"] * 3  # EMFILE


def test_vis_7_the_running_worker_has_its_pipes_and_no_room_for_more(images: Images) -> None:
    assert decoded(images) == N_BYTES
    worker = Path(f"/proc/{pid_of(images)}")
    assert sorted(path.name for path in (worker / "fd").iterdir()) == ["0", "1", "2", "3"]
    assert resource.prlimit(pid_of(images), resource.RLIMIT_NOFILE) == (4, 4)
    assert {str((worker / "fd" / number).readlink()).split(":")[0] for number in "01"} == {"pipe"}


def test_vis_7_a_killed_worker_is_replaced_and_the_image_decoded(images: Images) -> None:
    decoded(images)
    pid = pid_of(images)
    os.kill(pid, signal.SIGSTOP)
    found: list[int] = []
    thread = threading.Thread(target=lambda: found.append(decoded(images, OTHER)))
    thread.start()
    os.kill(pid, signal.SIGKILL)
    thread.join(HANGS_AFTER)
    assert found == [N_BYTES]
    assert pid_of(images) != pid


@pytest.fixture
def dying(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A list of signals, of which each request takes one and sends it to its worker; 0 is none."""
    signals: list[int] = []
    real_write = worker_process._write

    def write(worker: subprocess.Popen[bytes], request: bytes, end: float) -> None:
        if signals and (number := signals.pop(0)):
            worker.send_signal(number)
            worker.wait()
        real_write(worker, request, end)

    monkeypatch.setattr(worker_process, "_write", write)
    return signals


KILLED = "the process that decodes images was killed twice while it had this one"


def test_vis_5_vis_7_two_kills_cost_one_request(images: Images, dying: list[int]) -> None:
    dying += [signal.SIGKILL] * 2
    with pytest.raises(ImagesRefused, match=KILLED) as caught:
        decoded(images)
    assert (caught.value.reason, caught.value.path) == ("NO_MEMORY", "image")
    assert decoded(images) == N_BYTES


@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS])
def test_vis_5_vis_7_a_crash_costs_one_request(number: int, images: Images, dying: list[int]) -> None:
    dying.append(number)
    with pytest.raises(FieldInvalid, match=f"cannot be decoded: the process that tried ended with status -{number:d}"):
        decoded(images)
    assert decoded(images) == N_BYTES


def test_vis_7_after_deaths_for_two_images_none_is_decoded_for_a_while(dying: list[int]) -> None:
    now = [100.0]
    images = Images(SIZES, MediaLimits(waiting_bytes=0))
    images._decoder = ImageDecoder(decode_ms=10_000, clock=lambda: now[0])
    dying += [signal.SIGSEGV, signal.SIGSEGV]
    for _ in range(2):
        with pytest.raises(FieldInvalid, match="ended with status"):
            decoded(images)  # the same image: it may be the cause
    assert decoded(images) == N_BYTES
    dying.append(signal.SIGSEGV)
    with pytest.raises(FieldInvalid, match="ended with status"):
        decoded(images, OTHER)
    assert decoded(images) == N_BYTES  # not two in a row
    dying += [signal.SIGSEGV, signal.SIGKILL, signal.SIGKILL]
    with pytest.raises(FieldInvalid, match="ended with status"):
        decoded(images)
    with pytest.raises(ImagesRefused, match=KILLED):
        decoded(images, OTHER)
    for left in (10, 1):
        with pytest.raises(ImagesRefused, match=f"died twice; try again in {left} s") as caught:
            decoded(images)
        assert caught.value.reason == "NO_MEMORY"
        now[0] += 9
    assert decoded(images) == N_BYTES
    images.close()


@pytest.fixture(scope="module")
def slow() -> EncodedImage:
    """An image that takes half a second to decode."""
    return EncodedImage(saved(Image.new("RGB", (6_000, 6_000), "red"), "JPEG", progressive=True))


def test_vis_5_vis_7_an_image_that_takes_too_long_is_refused(slow: EncodedImage) -> None:
    images = Images(SIZES, MediaLimits(decode_ms=100))
    with pytest.raises(FieldInvalid, match="takes more than 100 ms to decode"):
        decoded(images, slow)
    assert decoded(images) == N_BYTES
    images.close()


def test_vis_7_time_is_limited_in_a_process_that_ignores_its_children(slow: EncodedImage) -> None:
    """In process 1 of a container nobody learns how a worker ended. The image must not be retried forever."""
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        images = Images(SIZES, MediaLimits(decode_ms=100))
        with pytest.raises(FieldInvalid, match="takes more than 100 ms or too much memory to decode"):
            decoded(images, slow)
        assert decoded(images) == N_BYTES
        images.close()
    finally:
        signal.signal(signal.SIGCHLD, before)


def test_vis_5_vis_7_an_image_that_takes_too_much_memory_is_refused(images: Images) -> None:
    """The system gives the worker less than such an image needs."""
    decoded(images)
    pid = pid_of(images)
    limit_growth(pid, 20 << 20)
    soft, _ = resource.prlimit(pid, resource.RLIMIT_AS)
    resource.prlimit(pid, resource.RLIMIT_AS, (soft, soft))
    with pytest.raises(FieldInvalid, match="takes more memory to decode than an image of its size may"):
        decoded(images, EncodedImage(saved(Image.new("RGB", (3_000, 3_000)), "JPEG")))
    assert decoded(images) == N_BYTES
    assert pid_of(images) != pid


def test_vis_7_what_the_header_hides_takes_no_more_memory(images: Images) -> None:
    """libwebp allocates its canvases when it opens a file: 128 MB here, for what was said to be 100 pixels."""
    plan = images.plan(FILE, "image")
    hidden = saved(Image.new("RGB", (4_000, 4_000)), "WEBP", quality=0, method=0)
    reading = ImageReading(Header(ImageFormat.WEBP, 10, 10), plan.reading.cut, 3)
    with pytest.raises(FieldInvalid, match="is damaged, or in a form of WebP that is not supported"):
        images._decoder.decode("image", plan.digest, hidden, reading)
    status = Path(f"/proc/{pid_of(images)}/status").read_text()
    assert int(status.split("VmPeak:")[1].split()[0]) < 120 << 10


@pytest.mark.long
def test_vis_7_no_image_needs_more_memory_than_its_worker_has() -> None:
    """libwebp and progressive JPEG take the most for a pixel."""
    images = Images(SIZES, MediaLimits(pixels=9_000_000))
    big = Image.new("RGBA", (3_000, 3_000), (1, 2, 3, 100))
    rgb = big.convert("RGB")
    for data in (
        saved(big, "WEBP", lossless=True, quality=0, method=0),
        saved(big, "PNG"),
        saved(rgb, "JPEG", progressive=True, subsampling=0),
        saved(big.convert("CMYK"), "JPEG"),
    ):
        assert decoded(images, EncodedImage(data)) == N_BYTES
    images.close()


def test_vis_7_a_decoder_that_is_closed_decodes_nothing(images: Images) -> None:
    plan = images.plan(FILE, "image")
    images._decoder.close()
    with pytest.raises(ImagesRefused, match="not decoded: the model is closed"):
        asyncio.run(images.decode(plan))


def test_vis_7_a_worker_that_cannot_start_is_no_fault_of_the_image(
    images: Images, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(decoder_module, "_WORKER", "/no/such/worker.py")
        with pytest.raises(ImagesRefused, match="the process that decodes images does not start: it ended with"):
            images.plan(FILE, "image")
    assert decoded(images) == N_BYTES


def test_vis_5_pillow_must_be_there_and_new_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    advice = "images need Pillow 12 or newer: pip install 'pillow>=12'"
    monkeypatch.setattr(decoder_module.importlib.metadata, "version", lambda _: "11.3.0")
    with pytest.raises(PillowMissing, match=f"pillow: is 11.3.0; {advice}"):
        decoder_module.check_pillow()

    def missing(name: str) -> str:
        raise decoder_module.importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(decoder_module.importlib.metadata, "version", missing)
    with pytest.raises(PillowMissing, match=f"pillow: is not installed; {advice}") as caught:
        decoder_module.check_pillow()
    assert caught.value.reason == "NOT_SUPPORTED_BY_HOST"


def test_vis_7_an_image_of_another_size_is_not_decoded(slow: EncodedImage) -> None:
    """Past the header's reader, the worker compares the size that Pillow finds before it decodes."""
    images = Images(SIZES, MediaLimits(decode_ms=100))
    plan = images.plan(FILE, "image")
    with pytest.raises(FieldInvalid, match="is a damaged JPEG: its header and its pixels have different sizes"):
        images._decoder.decode("image", plan.digest, slow.data, plan.reading)
    images.close()


def test_vis_7_a_worker_does_not_ignore_the_signals_that_its_server_ignores(images: Images) -> None:
    """imp serve ignores SIGALRM, and child processes inherit that: the worker's time limit would never fire."""
    before = signal.signal(signal.SIGALRM, signal.SIG_IGN)
    try:
        decoded(images)
    finally:
        signal.signal(signal.SIGALRM, before)
    ignored = int(Path(f"/proc/{pid_of(images)}/status").read_text().split("SigIgn:")[1].split()[0], 16)
    assert [ignored >> (number - 1) & 1 for number in (signal.SIGALRM, signal.SIGPROF)] == [0, 0]
    assert [ignored >> (number - 1) & 1 for number in (signal.SIGINT, signal.SIGTERM)] == [1, 1]

"""imp inspect and imp k8s of a model that is not downloaded read only headers. The hub is on loopback."""

from __future__ import annotations

import json
import random
import struct
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from huggingface_hub import constants

from imp_service.cli.failure import CommandError
from imp_service.cli.hub import get
from imp_service.cli.hub.header import BrokenHeader, gguf_header, safetensors_header
from imp_service.core.checkpoint import advice_on
from imp_service.models import demo_model_path
from support.files.gguf_writer import FORMATS, STRING, Key, array
from support.files.hub_directory import model_for, write_directory
from support.machine.command_line import demo_with_keys, error_lines
from support.servers.stand_in_hub import COMMIT, Hub, stand_in_hub
from support.text.hub_tokenizers import library_of

MODEL = demo_model_path().read_bytes()
# Weights after the header reveal a complete download.
PADDED = MODEL + bytes(3 * 1024**2)
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The files of a safetensors directory with a few MiB of weights."""
    library = library_of("byte level")
    model = model_for(library, hidden_size=512, ffn_size=1024)
    folder = write_directory(tmp_path_factory.mktemp("hub") / "m", library, model)
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture
def hub(directory: dict[str, bytes]) -> Iterator[Hub]:
    files = {"own__one": {"tiny-Q8_0.gguf": PADDED}, "own__many": {"m-Q8_0.gguf": MODEL, "m-Q4_K_M.gguf": b"GGUF"}}
    with stand_in_hub(**files, own__dir=directory) as started:
        yield started


@pytest.fixture
def inspect(imp, hub: Hub) -> Run:
    def run(*words: str, command: str = "inspect", **variables: str) -> tuple[int, str, str]:
        done = imp(command, *words, **{"HF_ENDPOINT": hub.address, "HF_HUB_DISABLE_XET": "1", **variables})
        return done.returncode, done.stdout.decode(), done.stderr.decode()

    return run


@pytest.mark.long
@pytest.mark.parametrize("reference", ["own/one", "own/dir"])
def test_get_6_lif_19_headers_give_the_report_and_the_manifests_of_the_model(
    inspect: Run, hub: Hub, tmp_path: Path, reference: str
) -> None:
    most = sum(map(len, hub.repositories[reference].values())) - 2 * 1024**2
    status, out, err = inspect("--json", f"hf:{reference}")
    assert status == 0, err
    assert hub.n_sent < most
    n_sent = hub.n_sent
    words = ("-m", f"hf:{reference}", "--image", "r.example/imp:1")
    manifests = inspect(*words, command="k8s")
    # One warning: of the bytes after the last tensor.
    assert (manifests[0], manifests[2].count("warning")) == (0, reference == "own/one")
    assert hub.n_sent - n_sent < most
    assert list(tmp_path.rglob("snapshots")) == []  # the cache is empty
    assert inspect(reference, command="pull")[0] == 0
    assert len(list(tmp_path.rglob("snapshots"))) == 1
    n_sent = hub.n_sent
    whole = json.loads(inspect("--json", f"hf:{reference}", HF_ENDPOINT="http://127.0.0.1:1")[1])
    found = json.loads(out)
    assert found.pop("path") == f"hf:{reference}" and Path(whole.pop("path")).exists()
    assert found == whole
    assert inspect(*words, command="k8s") == manifests and hub.n_sent == n_sent


@pytest.mark.long
def test_lif_19_the_pods_get_the_commit_of_the_hub_now(inspect: Run, hub: Hub, tmp_path: Path) -> None:
    assert inspect("own/one", command="pull")[0] == 0
    (cached,) = (path for path in tmp_path.rglob(COMMIT) if path.parent.name == "snapshots")
    older = cached.rename(cached.with_name("f" * 40)).name
    (cached.parents[1] / "refs" / "main").write_text(older)
    status, out, _ = inspect("-m", "hf:own/one", command="k8s")
    assert (status, COMMIT in out, older in out) == (0, True, False)
    status, out, err = inspect("-m", "hf:own/one", command="k8s", HF_ENDPOINT="http://127.0.0.1:1")
    assert (status, COMMIT in out, older in out) == (0, False, True)
    assert "; the cache is used" in err
    assert inspect("own/one", command="rm")[0] == 0
    status, out, err = inspect("-m", "hf:own/one", command="k8s", HF_ENDPOINT="http://127.0.0.1:1")
    assert (status, out) == (69, "") and "HUB_UNREACHABLE" in err


@pytest.mark.parametrize("ignores_ranges", [False, True])
def test_get_6_a_header_that_takes_several_requests(
    inspect: Run, hub: Hub, tmp_path: Path, ignores_ranges: bool
) -> None:
    """A server without ranges sends each time the file from its beginning."""
    long_header = demo_with_keys(tmp_path / "m.gguf", Key("test.long", STRING, "x" * 1_500_000))
    with long_header.open("ab") as file:
        file.write(bytes(3 * 1024**2))  # weights that are not downloaded
    hub.repositories["own/long"] = {"m.gguf": long_header.read_bytes()}
    hub.ignores_ranges = ignores_ranges
    status, out, err = inspect("--json", "hf:own/long")
    assert status == 0, err
    assert len(hub.ranges) == 2
    here = json.loads(inspect("--json", str(long_header))[1])
    found = json.loads(out)
    assert {found.pop("path"), here.pop("path")} == {"hf:own/long", str(long_header)}
    assert found == here


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ({"shifts_ranges": 8}, "HUB_INVALID: own/one:tiny-Q8_0.gguf: the hub sent bytes 8-1048575/"),
        ({"shortens_ranges": 8}, "HUB_UNREACHABLE: own/one:tiny-Q8_0.gguf: 1048568 bytes arrived, expected 1048576"),
    ],
)
def test_get_6_a_hub_that_sends_another_range(inspect: Run, hub: Hub, fault: dict[str, int], said: str) -> None:
    for name, value in fault.items():
        setattr(hub, name, value)
    status, out, err = inspect("hf:own/one")
    assert (status != 0, out, len(err.splitlines())) == (True, "", 1)
    assert said in err


PARTS = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")
INDEX = "model.safetensors.index.json"


@pytest.mark.parametrize(
    ("names", "indexed", "is_whole"),
    [
        (("config.json", *PARTS, INDEX), PARTS, True),
        (("config.json", *PARTS), (), True),
        (("config.json", "a.safetensors", "b.safetensors", INDEX), ("a.safetensors", "b.safetensors"), True),
        (("config.json", PARTS[0], INDEX), PARTS, False),
        (("config.json", PARTS[1]), (), False),
        (("config.json", "a.safetensors", INDEX), ("a.safetensors", "b.safetensors"), False),
        ((*PARTS, INDEX), PARTS, False),
    ],
)
def test_get_1_get_6_a_directory_of_the_cache_is_used_only_if_it_is_whole(
    names: Sequence[str],
    indexed: Sequence[str],
    is_whole: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A download that was interrupted leaves some of the files."""
    folder = tmp_path / "models--own--dir" / "snapshots" / COMMIT
    (folder.parents[1] / "refs").mkdir(parents=True)
    (folder.parents[1] / "refs" / "main").write_text(COMMIT)
    folder.mkdir(parents=True)
    for name in names:
        (folder / name).write_text(json.dumps({"weight_map": dict(enumerate(indexed))}))
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(get, "read_repository", unreachable)
    found = get.find_cached("own/dir")
    if is_whole:
        assert found is not None and found.path == folder == get.get_model("own/dir")
    else:
        assert found is None
        with pytest.raises(CommandError, match=r"HUB_(UNREACHABLE|INVALID)"):
            get.get_model("own/dir")


def unreachable(*_: object) -> None:
    raise CommandError("HUB_UNREACHABLE", "own/dir: no network")


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (("hf:own/many:Q4_K_M",), 65, "HUB_INVALID: own/many:m-Q4_K_M.gguf: its header does not end"),
        (("hf:own/many:Q2_K",), 64, "no such file or type, expected one of these"),
        (("hf:own/none",), 66, "HUB_NOT_FOUND"),
        (("--check", "hf:own/one"), 64, "--check needs the whole file; run first: imp pull own/one"),
    ],
)
def test_get_6_what_cannot_be_inspected_is_one_line(
    inspect: Run, words: tuple[str, ...], status: int, said: str
) -> None:
    found, _, err = inspect(*words)
    assert (found, error_lines(err)[-1].count(said)) == (status, 1), err


@pytest.mark.long
def test_get_6_a_header_ends_where_the_tensors_are_described() -> None:
    whole = gguf_header(lambda n: MODEL)
    # The data begin at the next multiple of the alignment, 32.
    assert MODEL[whole : whole + -whole % 32] == bytes(-whole % 32)
    for n in random.Random(1).sample(range(whole), 50):
        with pytest.raises(BrokenHeader):
            gguf_header(lambda _, n=n: MODEL[:n])
    assert safetensors_header(lambda n: b"\x02" + bytes(7) + b"{}...") == 10
    with pytest.raises(BrokenHeader):
        safetensors_header(lambda n: b"\xff" * 8 + b"{}")


def test_get_6_a_header_may_have_values_of_every_type() -> None:
    keys = [each for kind in FORMATS for each in (Key(f"one{kind}", kind), array(f"two{kind}", kind, [0, 0]))]
    keys += [array("texts", STRING, ["a", "bc"]), Key("end", STRING, "x")]
    header = struct.pack("<4sIQQ", b"GGUF", 3, 0, len(keys)) + b"".join(key.encode() for key in keys)
    assert gguf_header(lambda _: header + bytes(32)) == len(header)


@pytest.mark.parametrize("seed", range(3))
def test_get_6_broken_headers_end(seed: int) -> None:
    rng, header = random.Random(seed), MODEL[:4096]
    for _ in range(100):
        broken = bytearray(header)
        for _ in range(4):
            broken[rng.randrange(4, 200)] = rng.choice([0, 1, 8, 9, 127, 255])
        with pytest.raises(BrokenHeader):
            gguf_header(lambda n, data=bytes(broken): data)


@pytest.mark.few(2)
@pytest.mark.parametrize("command", ["run", "serve", "chat", "inspect"])
def test_get_7_an_unknown_name_says_how_to_pull(inspect: Run, command: str) -> None:
    words = ["-m", "no-such-model"] if command != "inspect" else ["no-such-model"]
    status, _, err = inspect(*words, *(["hi"] if command == "run" else []), command=command)
    assert status == 66
    assert "no-such-model: is no file, no folder, no downloaded model and no name of [models]; imp ls" in err


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("Qwen/Qwen3-0.6B-GGUF", "imp pull Qwen/Qwen3-0.6B-GGUF, or write hf:Qwen/Qwen3-0.6B-GGUF in its place"),
        ("qwen3:8b", "imp pull OWNER/NAME:TYPE"),
        ("https://huggingface.co/a/b/blob/main/x.gguf", "imp pull a/b:x.gguf"),
        ("qwen3", "imp pull OWNER/NAME:TYPE"),
    ],
)
def test_get_7_each_kind_of_name_has_its_advice(name: str, said: str) -> None:
    assert said in (advice_on(name) or "")


def test_get_7_the_name_of_a_file_has_no_advice() -> None:
    assert advice_on("missing.gguf") is None

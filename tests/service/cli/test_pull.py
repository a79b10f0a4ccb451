"""imp pull, ls and rm, and models by reference. The hub is on loopback."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from huggingface_hub import constants

from imp_service.cli.failure import CommandError
from imp_service.cli.hub.choose import HubFile, choices_of, choose, with_projector
from imp_service.cli.hub.hub import download, read_repository
from imp_service.cli.hub.reference import HubReference, read_reference
from imp_service.config import read_settings
from imp_service.models import demo_model_path
from support.deploy.manifests import refusals
from support.deploy.pods import imp_of, of_kind, pod_of, stream_documents
from support.machine.command_line import clean_environment
from support.models.tiny_vision_models import write_vision_files
from support.servers.stand_in_hub import COMMIT, Hub, stand_in_hub

MODEL = demo_model_path().read_bytes()
DIGEST = hashlib.sha256(MODEL).hexdigest()
LINK = f"{DIGEST}  tiny-Q8_0.gguf"


@pytest.fixture
def hub() -> Iterator[Hub]:
    with stand_in_hub(
        own__one={"tiny-Q8_0.gguf": MODEL, "README.md": b"# tiny", "run.py": b"print()"},
        own__many={"m-Q8_0.gguf": MODEL, "m-Q4_K_M.gguf": b"GGUF"},
        own__text={"README.md": b"# none"},
    ) as started:
        yield started


@pytest.fixture
def pull(imp, hub: Hub):
    def run(*words: str, command: str = "pull", **variables: str):
        done = imp(command, *words, **{"HF_ENDPOINT": hub.address, "HF_HUB_DISABLE_XET": "1", **variables})
        return done.returncode, done.stdout.decode(), done.stderr.decode()

    return run


def test_get_1_a_model_is_downloaded_checked_and_shown(pull, tmp_path: Path) -> None:
    status, out, err = pull("own/one", "--to", "here")
    assert (status, (tmp_path / "here" / "tiny-Q8_0.gguf").read_bytes()) == (0, MODEL)
    model = f"{tmp_path}/here/tiny-Q8_0.gguf"
    assert err.splitlines() == [
        LINK,
        f'— Next: imp run {model} "…"; imp chat, imp serve and imp inspect take the same name.',
    ]
    assert (tmp_path / "here" / "tiny-Q8_0.gguf.sha256").read_text() == f"{LINK}\n"
    head, *_, verdict = out.splitlines()
    assert head.startswith("tiny-Q8_0.gguf: gguf, ") and verdict.startswith("fits in ") and len(out.splitlines()) < 8
    assert sorted(p.name for p in (tmp_path / "here").glob("*.*")) == [
        ".cache",
        "tiny-Q8_0.gguf",
        "tiny-Q8_0.gguf.sha256",
    ]


def test_get_1_what_to_type_next_comes_last(hub: Hub, tmp_path: Path) -> None:
    """On a terminal, which shows both streams in the order in which they are written."""
    command = [sys.executable, "-m", "imp_service", "pull", "own/one", "--to", "here"]
    variables = {**clean_environment(tmp_path), "HF_ENDPOINT": hub.address, "HF_HUB_DISABLE_XET": "1"}
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=tmp_path, env=variables, check=True
    )
    assert "Next: imp run " in done.stdout.splitlines()[-1]


@pytest.mark.long
def test_get_1_the_line_to_serve_a_model_of_the_cache_has_its_name(pull, tmp_path: Path) -> None:
    status, _, err = pull("own/one:tiny-Q8_0.gguf", HF_HOME=str(tmp_path / "home"))
    assert status == 0 and '— Next: imp run hf:own/one:tiny-Q8_0.gguf "…"; ' in err.splitlines()[-1]
    status, _, err = pull("own/one", "--revision", "main", HF_HOME=str(tmp_path / "home"))
    assert status == 0 and f"— Next: imp run {tmp_path}/home/" in err


BLOCK = 10 * 1024**2  # the library keeps whole blocks of an interrupted download


@pytest.mark.long
@pytest.mark.parametrize("cuts", [[1], [BLOCK + 7], [2 * BLOCK + 7], [BLOCK + 7, BLOCK - 7]])
def test_get_1_a_download_that_is_cut_goes_on(pull, hub: Hub, tmp_path: Path, cuts: list[int]) -> None:
    content = hub.repositories["own/one"]["big.gguf"] = bytes(range(256)) * (25 * 4096)
    hub.cuts = list(cuts)
    pull("own/one:big.gguf", "--to", ".")
    assert (tmp_path / "big.gguf").read_bytes() == content
    assert hub.ranges[1] == ("" if cuts[0] < BLOCK else f"bytes={cuts[0] // BLOCK * BLOCK}-")
    assert len(hub.ranges) == 1 + len(cuts)


@pytest.mark.long
@pytest.mark.parametrize("to", [(), ("--to", "here")])
def test_get_1_a_wrong_digest_leaves_no_file(pull, hub: Hub, tmp_path: Path, to: tuple[str, ...]) -> None:
    hub.corrupts = True
    status, _, err = pull("own/one", *to)
    assert status == 65 and err.startswith("imp: error: HUB_CORRUPT: tiny-Q8_0.gguf: SHA-256 "), err
    assert [path for path in tmp_path.rglob("*") if path.is_file() and path.stat().st_size >= len(MODEL)] == []
    hub.corrupts = False
    assert pull("own/one", *to)[0] == 0


FAILURES = {
    "unknown": ({}, "own/none", 66, "HUB_NOT_FOUND"),
    "file": ({}, "own/one:other.gguf", 64, "USAGE"),
    "no model": ({}, "own/text", 66, "HUB_NOT_FOUND"),
    "401": ({"refuses_with": 401}, "own/one", 77, "HUB_PERMISSION"),
    "403": ({"refuses_with": 403}, "own/one", 77, "HUB_PERMISSION"),
    "404": ({"refuses_with": 404}, "own/one", 66, "HUB_NOT_FOUND"),
    "500": ({"refuses_with": 500}, "own/one", 69, "HUB_UNREACHABLE"),
    "gated": ({"is_gated": True}, "own/one", 77, "HUB_PERMISSION"),
    "no reference": ({}, "tiny", 64, "USAGE"),
    "tricks": ({}, "../../etc", 64, "USAGE"),
}


@pytest.mark.long
@pytest.mark.parametrize("case", FAILURES)
def test_get_2_each_failure_is_one_line(pull, hub: Hub, case: str) -> None:
    faults, reference, expected, reason = FAILURES[case]
    for name, value in faults.items():
        setattr(hub, name, value)
    status, _, err = pull(reference)
    assert (status, len(err.splitlines())) == (expected, 1), err
    assert err.startswith(f"imp: error: {reason}: "), err


def test_get_2_no_network_and_no_place_to_write(pull, tmp_path: Path) -> None:
    for variables in ({"HF_ENDPOINT": "http://127.0.0.1:1"}, {"HF_HUB_OFFLINE": "1"}):
        status, _, err = pull("own/one", **variables)
        assert (status, len(err.splitlines())) == (69, 1) and "HUB_UNREACHABLE" in err, err
        address = variables.get("HF_ENDPOINT")
        assert (f"no answer from {address}: " in err and "; set HF_ENDPOINT to " in err) == (address is not None)
    (tmp_path / "file").touch()
    status, _, err = pull("own/one", "--to", "file")
    assert (status, len(err.splitlines())) == (74, 1), err


@pytest.mark.long
def test_get_4_what_could_be_meant_is_listed(pull, hub: Hub) -> None:
    hub.n_parameters = len(MODEL)
    hub.repositories["own/some"] = {"m-Q8_0.gguf": MODEL, "m-Q5_K_M.gguf": b"GGUF", "mmproj-f16.gguf": b"GGUF"}
    status, out, err = pull("own/some")
    assert status == 64 and "own/some: expected one of these, such as own/some:m-Q5_K_M.gguf" in err
    assert [line.split() for line in out.splitlines()] == [
        ["file", "size", "bits/weight", "fits"],
        ["m-Q5_K_M.gguf", "4", "B", "0.00", "yes"],
        ["m-Q8_0.gguf", "4.0", "MB", "8.00", "yes"],
    ]
    assert pull("own/some", "--list")[0] == 0
    assert pull("own/some:q8_0", "--no-vision", "--to", ".")[0] == 0


def test_get_4_without_a_type_q4_k_m_is_taken_where_it_is_among_several(pull, hub: Hub, tmp_path: Path) -> None:
    hub.repositories["own/many"] = {"m-Q8_0.gguf": b"GGUF", "m-Q4_K_M.gguf": MODEL}
    status, out, err = pull("own/many", "--to", ".")
    assert (status, (tmp_path / "m-Q4_K_M.gguf").read_bytes()) == (0, MODEL), err
    assert err.startswith("— m-Q4_K_M.gguf of 2 models; imp pull own/many --list shows the others.\n")
    assert not (tmp_path / "m-Q8_0.gguf").exists() and not out.startswith("file")
    assert _chosen(TYPES, None) == ["a/m-Q4_K_M.gguf"]
    assert len(_chosen(["a/m-Q4_K_M.gguf", "b/m-Q4_K_M.gguf", "m-Q8_0.gguf"], None)) == 3


@pytest.mark.long
@pytest.mark.parametrize(
    "word",
    [
        "hf.co/own/many:Q8_0",
        "https://huggingface.co/own/many:q8_0",
        "https://huggingface.co/own/many/blob/main/m-Q8_0.gguf",
        "https://hf.co/own/many/resolve/main/m-Q8_0.gguf?download=true",
        "hf://own/many:m-Q8_0.gguf",
    ],
)
def test_get_1_an_address_of_the_hub_is_a_reference(pull, word: str, tmp_path: Path) -> None:
    status, _, err = pull(word, "--to", ".")
    assert (status, (tmp_path / "m-Q8_0.gguf").exists()) == (0, True), err


def test_get_1_an_address_of_a_repository_and_of_another_revision() -> None:
    for word in ("https://huggingface.co/own/one", "hf.co/own/one/", "www.hf.co/own/one/tree/main"):
        assert read_reference(word) == ("own/one", None)
    with pytest.raises(CommandError, match=r"imp pull own/one:a\.gguf --revision v2"):
        read_reference("https://hf.co/own/one/blob/v2/a.gguf")
    with pytest.raises(CommandError, match="expected OWNER/NAME"):
        read_reference("https://example.com/own/one")


def _chosen(names: list[str], wanted: str | None) -> list[str]:
    return [choice.name for choice in choose(choices_of(HubFile(name, 1, None) for name in names), wanted)]


TYPES = ["a/m-Q4_K_M.gguf", "m-Q4_K_S.gguf", "m-IQ4_XS.gguf", "m.Q4_0.gguf", "m-UD-Q4_K_M.gguf", "m-BF16.gguf"]


@pytest.mark.parametrize(
    ("wanted", "names"),
    [
        ("q4_k_m", ["a/m-Q4_K_M.gguf"]),
        ("UD-Q4_K_M", ["m-UD-Q4_K_M.gguf"]),
        ("iq4_xs", ["m-IQ4_XS.gguf"]),
        ("Q4_XS", []),
        ("Q4_K", []),
        ("Q4_0", ["m.Q4_0.gguf"]),
        ("m-Q4_K_S.gguf", ["m-Q4_K_S.gguf"]),
        ("f16", []),
        ("../x", []),
    ],
)
def test_get_4_a_type_in_any_case(wanted: str, names: list[str]) -> None:
    assert _chosen(TYPES, wanted) == names


@pytest.mark.long
def test_get_4_split_files_come_whole(pull, hub: Hub, tmp_path: Path) -> None:
    parts = [f"Q8/m-Q8_0-0000{i}-of-00002.gguf" for i in (1, 2)]
    hub.repositories["own/split"] = {parts[0]: MODEL, parts[1]: b"GGUF"}
    pull("own/split:Q8_0", "--to", ".")
    assert [(tmp_path / part).stat().st_size for part in parts] == [len(MODEL), 4]
    del hub.repositories["own/split"][parts[1]]
    status, _, err = pull("own/split", "--to", "other")
    assert status == 65 and "1 parts of 2" in err and not (tmp_path / "other").exists()


@pytest.mark.long
@pytest.mark.parametrize(
    "name", ["../evil.gguf", "/evil.gguf", "a/../../evil.gguf", "a\\..\\evil.gguf", "e\x1bvil.gguf"]
)
def test_get_4_a_name_that_leaves_the_folder_is_refused(pull, hub: Hub, name: str, tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="HUB_INVALID"):
        choices_of([HubFile(name, 1, None)])
    hub.repositories["own/evil"] = {name: b"GGUF"}
    status, _, err = pull("own/evil", "--to", "in/here")
    assert status == 65 and err.startswith("imp: error: HUB_INVALID: "), err
    assert list(tmp_path.rglob("*evil*")) == []


def test_get_4_a_model_comes_with_its_projector(pull, hub: Hub, tmp_path: Path) -> None:
    model, projector = (path.read_bytes() for path in write_vision_files(tmp_path / "made"))
    types = ("Q8_0", "BF16", "f16", "F32")
    hub.repositories["own/sight"] = {"tiny.gguf": model, **{f"mmproj-tiny-{name}.gguf": projector for name in types}}
    status, out, err = pull("own/sight", "--to", "here")
    assert status == 0 and out.startswith("tiny.gguf: gguf, "), err
    assert {path.name for path in (tmp_path / "here").glob("*.gguf")} == {"tiny.gguf", "mmproj-tiny-f16.gguf"}
    assert pull(f"{tmp_path}/here/tiny.gguf", "--json", command="inspect")[1].count('"family": "idefics3"') == 1
    assert pull("own/sight", "--to", "blind", "--no-vision")[0] == 0
    assert [path.name for path in (tmp_path / "blind").glob("*.gguf")] == ["tiny.gguf"]


def test_get_4_a_draft_head_is_no_model() -> None:
    """It has to be named."""
    names = ["m-Q8_0.gguf", "mtp-m-Q8_0.gguf", "mmproj-m-Q8_0.gguf"]
    choices = choices_of(HubFile(name, 1, None) for name in names)
    for wanted, expected in ((None, names[0]), ("q8_0", names[0]), (names[1], names[1])):
        [found] = choose(choices, wanted)
        assert found.name == expected
    assert with_projector(choose(choices, names[1])[0], choices).files == [HubFile(names[1], 1, None)]


@pytest.mark.parametrize(
    ("names", "projector"),
    [
        (["m.gguf"], None),
        (["m.gguf", "mmproj-BF16.gguf", "mmproj-F16.gguf", "mmproj-F32.gguf"], "mmproj-F16.gguf"),
        (["m.gguf", "mmproj-q8_0.gguf", "mmproj-BF16.gguf"], "mmproj-BF16.gguf"),
        (["m.gguf", "mmproj-m.gguf", "mmproj-m-Q8_0.gguf"], "mmproj-m-Q8_0.gguf"),
        (["m.gguf", "MMPROJ-model.gguf"], "MMPROJ-model.gguf"),
        (["m.gguf", "other/mmproj-F16.gguf"], None),
    ],
)
def test_get_4_the_projector_of_a_model(names: list[str], projector: str | None) -> None:
    choices = choices_of(HubFile(name, 1, None) for name in names)
    [model] = choose(choices, "m.gguf")
    found = [file.name for file in with_projector(model, choices).files]
    assert found == ["m.gguf", *([] if projector is None else [projector])]
    [alone] = choose(choices, projector or "m.gguf")
    assert projector is None or with_projector(alone, choices) == alone


@pytest.mark.long
def test_get_4_a_directory_brings_neither_code_nor_pickles(pull, hub: Hub, tmp_path: Path) -> None:
    kept = {"config.json": b"{}", "tokenizer.json": b"{}", "model.safetensors": b"x", "generation_config.json": b"{}"}
    kept |= {"preprocessor_config.json": b"{}", "processor_config.json": b"{}"}
    left = {"modeling.py": b"x", "pytorch_model.bin": b"x", "a.pt": b"x", "onnx/model.safetensors": b"x", "x.pkl": b"x"}
    hub.repositories["own/dir"] = kept | left
    pull("own/dir", "--to", "d")
    there = {path.name for path in (tmp_path / "d").iterdir() if path.is_file() and path.suffix != ".sha256"}
    assert there == set(kept)


def test_get_4_a_directory_brings_the_modules_of_an_embedding_model() -> None:
    kept = {
        *("config.json", "tokenizer.json", "vocab.txt", "model.safetensors", "modules.json"),
        *("config_sentence_transformers.json", "sentence_bert_config.json"),
        *("1_Pooling/config.json", "2_Dense/config.json", "2_Dense/model.safetensors"),
    }
    left = {"2_Dense/pytorch_model.bin", "onnx/model.safetensors", "openvino/config.json", "README.md"}
    [model] = choices_of(HubFile(name, 1, None) for name in kept | left)
    assert {file.name for file in model.files} == kept


GREEDY = ("-n", "4", "--temperature", "0", "--json")


@pytest.mark.long
def test_get_1_a_reference_is_a_path_and_stays_without_a_network(pull, hub: Hub) -> None:
    first = pull("hi", "-m", "hf:own/many:Q8_0", *GREEDY, command="run")
    assert first[0] == 0 and json.loads(first[1])["text"]
    away = pull("hi", "-m", "hf:own/many:Q8_0", *GREEDY, command="run", HF_ENDPOINT="http://127.0.0.1:1")
    assert (away[0], json.loads(away[1])["text"]) == (0, json.loads(first[1])["text"])
    assert "the cache is used" in away[2]
    assert pull("hi", "-m", "own/one", *GREEDY, command="run")[0] == 66  # a name without hf: downloads nothing


def test_get_5_ls_shows_and_rm_frees(pull, tmp_path: Path) -> None:
    assert pull(command="ls")[1] == ""
    pull("own/one")
    pull("own/many:Q8_0")
    assert [line.split() for line in pull(command="ls")[1].splitlines()] == [
        ["model", "size"],
        ["hf:own/many:m-Q8_0.gguf", "4.0", "MB"],
        ["hf:own/one:tiny-Q8_0.gguf", "4.0", "MB"],
    ]
    assert pull("own/many:q8_0", command="rm")[2] == "— 4.0 MB freed.\n"
    assert pull("hf:own/one", command="rm")[0] == 0
    assert pull(command="ls")[1] == ""
    assert pull("own/one", command="rm")[0] == 66
    assert "one: not in the cache, imp ls lists what is" in pull("one", command="rm")[2]
    assert [path for path in tmp_path.rglob("*") if path.is_file() and path.stat().st_size >= len(MODEL)] == []


OTHERS = b"what the user keeps"
# A name that leads out of the cache's folder of contents, or of the folder for the download.
PATHS = ["../{}", "../../../{}", "../../../../{}", "/{}", "..", "a/b", "x" * 300]


def _files(folder: Path) -> dict[Path, bytes]:
    """The files of a folder, without those in which the library remembers its downloads."""
    paths = (path for path in folder.rglob("*") if ".cache" not in path.parts or path.name == "made.txt")
    return {path: path.read_bytes() for path in paths if path.is_file()}


@pytest.fixture
def in_process(hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Lets this process use the hub; returns the folder of its cache."""
    template = constants.HUGGINGFACE_CO_URL_TEMPLATE.removeprefix(constants.ENDPOINT)
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", hub.address + template)
    monkeypatch.setattr(constants, "ENDPOINT", hub.address)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "home" / "hub"))
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    return tmp_path / "home" / "hub"


def _get_tiny(folder: Path | None) -> None:
    reference = HubReference("own/one", None)
    download(reference, choices_of(read_repository(reference, None).files)[0], None, folder)


@pytest.mark.parametrize("to", [None, "here"])
@pytest.mark.parametrize("header", ["ETag", "X-Linked-Etag", "X-Repo-Commit"])
def test_get_8_a_name_from_the_hub_is_never_a_path(
    hub: Hub, in_process: Path, tmp_path: Path, header: str, to: str | None
) -> None:
    for folder in (tmp_path, in_process.parent, in_process, in_process / "models--own--one", tmp_path / "here"):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "there.txt").write_bytes(OTHERS)
    before = _files(tmp_path)
    for name in (form.format(name) for form in PATHS for name in ("made.txt", "there.txt")):
        hub.headers = {header: f'"{name}"' if "tag" in header.lower() else name}
        with pytest.raises(CommandError, match=r"^HUB_INVALID: "):
            _get_tiny(None if to is None else tmp_path / to)
        assert _files(tmp_path) == before, name


def test_get_8_the_names_of_other_servers_of_a_hub_are_taken(hub: Hub, in_process: Path) -> None:
    for name in ('W/"5d41402abc4b2a76b9719d911017c592"', '"a1B2-12"', f'"{DIGEST}"'):
        hub.headers = {"ETag": name}
        _get_tiny(None)
    assert len(list(in_process.rglob("tiny-Q8_0.gguf"))) == 1


@pytest.mark.long
def test_get_8_a_wrong_digest_removes_only_what_the_pull_wrote(pull, hub: Hub, tmp_path: Path) -> None:
    mine, home = tmp_path / "mine.gguf", tmp_path / "home"
    mine.write_bytes(MODEL)
    hub.digests["tiny-Q8_0.gguf"] = "0" * 64
    # Files of the user: in the folder for the download, and linked into the cache.
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "tiny-Q8_0.gguf").write_bytes(MODEL)
    status, _, err = pull("own/one", "--to", "here")
    assert status == 65 and "HUB_CORRUPT" in err and "was there before" in err, err
    assert (tmp_path / "here" / "tiny-Q8_0.gguf").read_bytes() == MODEL
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked" / "tiny-Q8_0.gguf").symlink_to(mine)
    status, _, err = pull("own/one", "--to", "linked")
    assert status == 73 and "found a symbolic link" in err, err
    snapshot = home / "hub" / "models--own--one" / "snapshots" / COMMIT
    snapshot.mkdir(parents=True)
    (snapshot / "tiny-Q8_0.gguf").symlink_to(mine)
    assert pull("own/one", HF_HOME=str(home))[0] == 65
    assert mine.read_bytes() == MODEL and not (snapshot / "tiny-Q8_0.gguf").is_symlink()
    # The content of another model: the hub gives its name to this one.
    hub.digests.clear()
    assert pull("own/many:Q8_0", HF_HOME=str(home))[0] == 0
    hub.digests["m-Q4_K_M.gguf"], hub.headers = "0" * 64, {"ETag": f'"{DIGEST}"'}
    assert pull("own/many:Q4_K_M", HF_HOME=str(home))[0] == 65
    (kept,) = (home / "hub" / "models--own--many" / "snapshots").rglob("*.gguf")
    assert kept.read_bytes() == MODEL


WRONG = [None, 7, -1, 1.5, True, "text", [], ["text"], [[]], [None], {}, {"a": []}, [{}], {"rfilename": {}}]
SIBLING = {"rfilename": "tiny-Q8_0.gguf", "size": len(MODEL), "lfs": {"sha256": DIGEST, "size": 1, "pointerSize": 1}}


LISTINGS: list[dict[str, object]] = [
    *({key: wrong} for key in ("siblings", "sha", "gguf", "id") for wrong in WRONG),
    *({"siblings": [{**SIBLING, key: wrong}]} for key in SIBLING for wrong in WRONG),
    *({"siblings": [{**SIBLING, "lfs": {"sha256": wrong, "size": 1, "pointerSize": 1}}]} for wrong in WRONG),
    *({"gguf": {"total": wrong}} for wrong in WRONG),
]
# Of these, a listing with another value of the type is one that the reader takes.
REFUSED: list[dict[str, object]] = [
    *({"sha": name} for name in ("../x", "--to=/", "a/b", "a b", "x" * 300, 7, ["text"])),
    *({"siblings": [{**SIBLING, "size": size}]} for size in (-1, 1 << 63, "4", 1.5)),
    {"siblings": [{"rfilename": 7}]},
    {"siblings": [{**SIBLING, "lfs": {"sha256": "../x", "size": 1, "pointerSize": 1}}]},
]


def test_get_8_a_listing_of_a_wrong_form_is_an_error_of_the_hub(hub: Hub, in_process: Path) -> None:
    for listing in [*LISTINGS, *REFUSED]:
        hub.listing = listing
        try:
            choices_of(read_repository(HubReference("own/one", None), None).files)
        except CommandError as error:
            assert error.reason == "HUB_INVALID", (listing, error)
        else:
            assert listing not in REFUSED, listing
    for revision in ("../../x", "/x", "a/../b"):
        with pytest.raises(CommandError, match=r"USAGE: .*: expected a branch"):
            read_repository(HubReference("own/one", None), revision)


def test_get_5_rm_takes_the_name_alone_if_it_is_that_of_one_repository(pull, hub: Hub) -> None:
    hub.repositories["our/many"] = {"m-Q8_0.gguf": MODEL + b" "}
    for word in ("own/many:Q8_0", "own/one", "our/many"):
        pull(word)
    assert pull("many", command="rm")[::2] == (64, "imp: error: USAGE: many: expected one of our/many, own/many\n")
    assert pull("ONE:q8_0", command="rm")[::2] == (0, "— 4.0 MB freed.\n")
    assert [line.split()[0] for line in pull(command="ls")[1].splitlines()[1:]] == [
        "hf:our/many:m-Q8_0.gguf",
        "hf:own/many:m-Q8_0.gguf",
    ]


def test_get_5_rm_leaves_what_others_use(pull, hub: Hub, tmp_path: Path) -> None:
    home, mine = tmp_path / "home", tmp_path / "mine.gguf"
    mine.write_bytes(MODEL)
    # Two models of a repository have the same content, and so one file in the cache.
    hub.repositories["own/twins"] = {"a-Q8_0.gguf": MODEL, "b-Q8_0.gguf": MODEL}
    for name in ("a-Q8_0.gguf", "b-Q8_0.gguf"):
        pull(f"own/twins:{name}", HF_HOME=str(home))
    repository = home / "hub" / "models--own--twins"
    (kept,) = repository.rglob("b-Q8_0.gguf")
    assert pull("own/twins:a-Q8_0.gguf", command="rm", HF_HOME=str(home))[::2] == (0, "— 0 B freed.\n")
    assert kept.read_bytes() == MODEL
    # The user's own file, linked into the cache.
    kept.with_name("c-Q8_0.gguf").symlink_to(mine)
    assert pull("own/twins", command="rm", HF_HOME=str(home))[::2] == (0, "— 4.0 MB freed.\n")
    assert mine.read_bytes() == MODEL and list(repository.rglob("*.gguf")) == [] == list(
        (repository / "blobs").iterdir()
    )
    # Both at once: one file, counted once.
    for name in ("a-Q8_0.gguf", "b-Q8_0.gguf"):
        pull(f"own/twins:{name}", HF_HOME=str(home))
    assert pull("own/twins", command="rm", HF_HOME=str(home))[::2] == (0, "— 4.0 MB freed.\n")
    assert [path for path in repository.rglob("*") if path.is_file() and path.stat().st_size >= len(MODEL)] == []


def test_get_5_ls_lists_the_models_next_to_strange_files(pull, tmp_path: Path) -> None:
    home = tmp_path / "home"
    pull("own/one", HF_HOME=str(home))
    (file,) = home.rglob("tiny-Q8_0.gguf")
    (file.parent / "bad\x1b[2Jname.gguf").write_bytes(b"GGUF")
    (home / "hub" / "models--own--b\x1bd" / "snapshots" / COMMIT).mkdir(parents=True)
    (home / "hub" / "models--own--b\x1bd" / "snapshots" / COMMIT / "m.gguf").write_bytes(b"GGUF")
    status, out, err = pull(command="ls", HF_HOME=str(home))
    assert (status, err, len(out.splitlines())) == (0, "", 2) and "hf:own/one" in out, out


@pytest.mark.long
@pytest.mark.parametrize("kind", ["--standalone", "--sidecar"])
def test_lif_19_pods_download_a_model_of_the_hub_before_they_start(pull, hub: Hub, tmp_path: Path, kind: str) -> None:
    status, out, err = pull(kind, "-m", "hf:own/many:Q8_0", "--image", "r.example/imp:1", command="k8s")
    assert status == 0, err
    documents = stream_documents(out)
    assert refusals(documents) == []
    pod = pod_of(documents)
    fetch = pod["initContainers"][0]
    imp = imp_of(documents)
    assert {key: fetch[key] for key in ("image", "resources", "securityContext")} == {
        key: imp[key] for key in ("image", "resources", "securityContext")
    }
    assert fetch["args"] == ["pull", "own/many:Q8_0", "--revision", COMMIT, "--to", "/model"]
    (volume,) = (each["emptyDir"] for each in pod["volumes"] if each["name"] == "model")
    assert int(volume["sizeLimit"].removesuffix("Mi")) * 1024**2 > len(MODEL) + 128 * 1024**2
    policies = [each["spec"]["egress"] for each in documents if each["kind"] == "NetworkPolicy"]
    port = int(hub.address.rpartition(":")[2])
    assert all([rule["ports"][0]["port"] for rule in egress] == [53, port] for egress in policies)
    assert len(policies) == (kind == "--standalone")
    # The container's own command, as a user without a home that can write only to the volume.
    folder = tmp_path / "volume"
    folder.mkdir()
    variables = {each["name"]: each["value"].replace("/model", str(folder)) for each in fetch["env"] if "value" in each}
    assert variables["HF_ENDPOINT"] == hub.address and fetch["env"][-1]["valueFrom"]["secretKeyRef"]["optional"]
    words = [word.replace("/model", str(folder)) for word in fetch["args"]]
    before = {path for path in tmp_path.rglob("*") if folder not in path.parents}
    done = subprocess.run(
        [sys.executable, "-m", "imp_service", *words],
        env={"PATH": "/usr/bin:/bin", "HF_HUB_DISABLE_XET": "1", "HOME": "/proc/none", **variables},
        cwd="/",
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert {path for path in tmp_path.rglob("*") if folder not in path.parents} == before
    (tmp_path / "imp.conf").write_text(of_kind(documents, "ConfigMap")["data"]["imp.conf"])
    path = read_settings(str(tmp_path / "imp.conf"), variables={}).settings.model.path
    assert Path(str(path).replace("/model", str(folder), 1)).read_bytes() == MODEL


def test_lif_19_with_a_claim_pods_download_nothing(pull) -> None:
    status, out, err = pull("-m", "hf:own/many:Q8_0", "--model-claim", "models", command="k8s")
    assert status == 0, err
    documents = stream_documents(out)
    assert refusals(documents) == []
    assert "initContainers" not in pod_of(documents)
    assert {"name": "model", "persistentVolumeClaim": {"claimName": "models", "readOnly": True}} in pod_of(documents)[
        "volumes"
    ]
    assert 'path = "/model/m-Q8_0.gguf"' in of_kind(documents, "ConfigMap")["data"]["imp.conf"]

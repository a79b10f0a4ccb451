"""The commands on a model directory as a hub has it: by path, and by reference through the hub's cache."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import imp_service
from support.files.hub_directory import model_for, write_directory
from support.servers.stand_in_hub import stand_in_hub
from support.text.hub_tokenizers import library_of

GREEDY = ("--temperature", "0", "--max-tokens", "12")
CODE = {"modeling_own.py": b"raise SystemExit('this must not run')", "tokenization_own.py": b"1/0"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    library = library_of("byte level")
    place = write_directory(tmp_path_factory.mktemp("hub") / "Tiny-Qwen3", library, model_for(library))
    named = place / "additional_chat_templates"
    named.mkdir()
    (named / "tool_use.jinja").write_text("{{ tools | length }}")
    config = json.loads((place / "config.json").read_text())
    (place / "config.json").write_text(json.dumps(config | {"auto_map": {"AutoModel": "modeling_own.Own"}}))
    for name, code in CODE.items():
        (place / name).write_bytes(code)
    return place


@pytest.fixture(scope="module")
def expected(folder: Path) -> str:
    with imp_service.load(folder, "device.threads=1") as model:
        return model.chat([{"role": "user", "content": "Hello"}], max_tokens=12, temperature=0).result().text


@pytest.mark.long
def test_hub_10_run_and_chat_answer_from_a_directory(imp, folder: Path, expected: str) -> None:
    ran = imp("run", "-m", str(folder), "Hello", *GREEDY, "--json")
    assert ran.returncode == 0, ran.stderr
    told = json.loads(ran.stdout)
    assert told["model"] == "Tiny-Qwen3" and told["text"]
    talked = imp("chat", "-m", str(folder), *GREEDY, stdin=b"Hello\n")
    assert talked.returncode == 0 and expected.split("\n", maxsplit=1)[0] in talked.stdout.decode(), talked.stderr


def test_hub_10_inspect_shows_what_a_directory_says_of_text(call, folder: Path) -> None:
    status, out, _ = call("inspect", str(folder), "--check", "--json")
    told = json.loads(out)
    assert (status, told["tokenizer_fault"], told["chat_template_fault"]) == (0, None, None)
    assert told["tokenizer"] == f"byte-level BPE (GPT-2), {library_of('byte level').get_vocab_size()} tokens"
    assert [end["text"] for end in told["ends"]] == ["<|im_end|>"]
    assert {"tokenizer_config.eos_token", "spelled <|im_end|>"} < set(told["ends"][0]["sources"])


@pytest.mark.long
def test_hub_10_get_4_a_reference_is_a_folder_of_links_and_needs_no_network(imp, folder: Path, tmp_path: Path) -> None:
    files = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    words = ("run", "-m", "hf:own/Tiny-Qwen3", "Hello", *GREEDY, "--json")
    with stand_in_hub(own__dir={}) as hub:
        hub.repositories["own/Tiny-Qwen3"] = files
        here = {"HF_ENDPOINT": hub.address, "HF_HUB_DISABLE_XET": "1"}
        first = imp(*words, **here)
    assert first.returncode == 0, first.stderr
    (cached,) = tmp_path.rglob("snapshots/*")
    there = {str(path.relative_to(cached)): path for path in cached.rglob("*") if path.suffix != ".sha256"}
    assert {name for name, path in there.items() if path.is_file()} == set(files) - set(CODE)
    assert there["tokenizer.json"].is_symlink() and there["additional_chat_templates/tool_use.jinja"].is_symlink()
    again = imp(*words, **here)
    by_path = imp("run", "-m", str(folder), "Hello", *GREEDY, "--json")
    told = [json.loads(each.stdout) for each in (first, again, by_path)]
    assert [each["model"] for each in told] == ["Tiny-Qwen3"] * 3
    assert told[0]["token_ids"] == told[1]["token_ids"] == told[2]["token_ids"]

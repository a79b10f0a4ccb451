"""The roles of special tokens, from tokenizer_config.json and special_tokens_map.json."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from imp_service.text.directory.json_files import JsonObject, read_json_object

CONFIG_FILE = "tokenizer_config.json"
_MAP_FILE = "special_tokens_map.json"
# The roles, as templates know them.
ROLES = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")


@dataclass(frozen=True, slots=True)
class SpecialNames:
    """What the configuration of a tokenizer says beside its vocabulary."""

    # Role -> the token's spelling.
    spelled: Mapping[str, str]
    # Whether a text gets the tokens of these roles; None: the vocabulary's own file says.
    adds_bos: bool | None
    adds_eos: bool | None
    config: JsonObject


def read_special_names(files: Mapping[str, bytes]) -> SpecialNames:
    """The roles that the files name. tokenizer_config.json decides where both have one."""
    config = read_json_object(CONFIG_FILE, files.get(CONFIG_FILE, b"{}"))
    older = read_json_object(_MAP_FILE, files.get(_MAP_FILE, b"{}"))
    spelled = {}
    for role in ROLES:
        source = config if role in config.members else older
        text = _spelling(source, role)
        if text:
            spelled[role] = text
    # If a file has one of the two flags, the one that is missing is false: so does `transformers`.
    is_stated = "add_bos_token" in config.members or "add_eos_token" in config.members
    return SpecialNames(
        spelled,
        config.flag("add_bos_token") if is_stated else None,
        config.flag("add_eos_token") if is_stated else None,
        config,
    )


def _spelling(source: JsonObject, role: str) -> str | None:
    """A token is a string, or an object with its flags."""
    if isinstance(source.members.get(role), dict):
        token = source.object(role)
        assert token is not None  # narrows
        return token.text("content")
    return source.text(role)

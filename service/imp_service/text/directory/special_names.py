"""The roles of special tokens, from tokenizer_config.json and special_tokens_map.json."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from imp_service.text.directory.json_files import JsonObject, read_json_object

CONFIG_FILE = "tokenizer_config.json"
_MAP_FILE = "special_tokens_map.json"
# The roles that every model may have.
_ROLES = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
# Special tokens without a role, as a list; or with roles of the model's own, as an object.
_FURTHER = ("additional_special_tokens", "extra_special_tokens", "model_specific_special_tokens")


@dataclass(frozen=True, slots=True)
class SpecialNames:
    """The special tokens and flags in the configuration of a tokenizer."""

    # Role -> the token's spelling. Templates know tokens by their roles.
    spelled: Mapping[str, str]
    # The spellings of special tokens without a role.
    further: frozenset[str]
    # Whether a text gets the tokens of these roles; None: the vocabulary's own file states it.
    adds_bos: bool | None
    adds_eos: bool | None
    config: JsonObject

    @property
    def special(self) -> frozenset[str]:
        """The spellings of all special tokens that the configuration names."""
        return self.further | set(self.spelled.values())


def read_special_names(files: Mapping[str, bytes]) -> SpecialNames:
    """The roles that the files name. If both files name one, tokenizer_config.json applies."""
    config = read_json_object(CONFIG_FILE, files.get(CONFIG_FILE, b"{}"))
    older = read_json_object(_MAP_FILE, files.get(_MAP_FILE, b"{}"))
    spelled = {**dict(_roles(older)), **dict(_roles(config))}
    # A null in the configuration states that there is none.
    for role in _ROLES:
        if role in config.members and config.members[role] is None:
            spelled.pop(role, None)
    return SpecialNames(
        spelled,
        frozenset([*_further(older), *_further(config)]),
        config.flag("add_bos_token") if "add_bos_token" in config.members else None,
        config.flag("add_eos_token") if "add_eos_token" in config.members else None,
        config,
    )


def _roles(source: JsonObject) -> Iterator[tuple[str, str]]:
    """Every key that ends in `_token` and has a token. In `_ROLES` any other value is refused."""
    for role, value in source.members.items():
        if role in _ROLES or (role.endswith("_token") and isinstance(value, str | dict)):
            text = _spelling(source, role)
            if text:
                yield role, text
    for name in _FURTHER:
        if isinstance(source.members.get(name), dict):
            own = source.object(name)
            assert own is not None  # narrows
            for role in own.members:
                text = _spelling(own, role)
                if text:
                    yield role, text


def _further(source: JsonObject) -> Iterator[str]:
    for name in _FURTHER:
        if isinstance(source.members.get(name), dict):
            continue
        for token in source.array(name):
            text = token.get("content") if isinstance(token, dict) else token
            if not isinstance(text, str):
                raise source.fail(name, "expected tokens")
            yield text


def _spelling(source: JsonObject, role: str) -> str | None:
    """A token is a string, or an object with its flags."""
    if isinstance(source.members.get(role), dict):
        token = source.object(role)
        assert token is not None  # narrows
        return token.text("content")
    return source.text(role)

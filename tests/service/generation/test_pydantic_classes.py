"""Classes of pydantic as constraints and for results, and the schemas that are made of them."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from imp_service import LanguageModel
from imp_service.api.json_classes import schema_of


class Owner(BaseModel):
    name: str = Field(max_length=8)


class Cat(BaseModel):
    """A cat with everything that pydantic writes in schemas: references, lists, unions, a default."""

    name: str = Field(max_length=8)
    age: int = Field(ge=0, le=20)
    owner: Owner
    friends: list[Owner] = Field(max_length=1)
    lives: int | None = Field(default=9, ge=0, le=9)


class Open(BaseModel):
    model_config = ConfigDict(extra="allow")
    properties: int


class OldCat:
    """A class as pydantic 1 makes them."""

    def __init__(self, name: str) -> None:
        self.name = name

    @classmethod
    def schema(cls) -> dict[str, Any]:
        return {"type": "object", "properties": {"name": {"type": "string", "maxLength": 5}}, "required": ["name"]}

    @classmethod
    def parse_raw(cls, text: str) -> OldCat:
        return cls(**json.loads(text))


@pytest.mark.parametrize("seed", range(4))
def test_lib_11_an_output_is_an_object_of_the_class(library: LanguageModel, seed: int) -> None:
    result = library.generate("A cat as JSON: ", json_schema=Cat, seed=seed, max_tokens=300).result()
    cat = result.parse(Cat)
    assert isinstance(cat, Cat) and isinstance(cat.owner, Owner)
    assert json.loads(result.text) == result.parse() and cat == Cat.model_validate(result.parse())
    assert result.parse().keys() <= Cat.model_fields.keys() and result.parse()["owner"].keys() == {"name"}


def test_lib_11_an_adapter_and_a_class_of_pydantic_1_are_taken(library: LanguageModel) -> None:
    adapter = TypeAdapter(list[Owner])
    owners = library.generate("Owners: ", json_schema=adapter, max_tokens=300, seed=1).result().parse(adapter)
    assert isinstance(owners, list) and all(isinstance(each, Owner) for each in owners)
    old = library.generate("A cat: ", json_schema=OldCat, max_tokens=40, temperature=0).result().parse(OldCat)
    assert isinstance(old, OldCat) and len(old.name) <= 5


def test_lib_11_a_class_has_no_further_members_unless_it_allows_them() -> None:
    schema = json.loads(schema_of(Cat))
    assert schema["additionalProperties"] is False
    assert schema["$defs"]["Owner"]["additionalProperties"] is False
    opened = json.loads(schema_of(Open))
    assert opened["additionalProperties"] is True
    assert opened["properties"] == {"properties": {"title": "Properties", "type": "integer"}}
    # A caller's own schema stays as it is.
    own = {"type": "object", "properties": {"a": {"type": "integer"}}}
    assert json.loads(schema_of(own)) == own and schema_of(json.dumps(own)) == json.dumps(own)


@pytest.mark.parametrize("value", [int, 7, ["a"], SimpleNamespace()])
def test_lib_11_another_class_is_a_type_error(library: LanguageModel, value: Any) -> None:
    with pytest.raises(TypeError, match=r"^json_schema: \w+, expected a JSON Schema .* a class of pydantic"):
        library.generate("a", json_schema=value)
    result = library.generate("a", choices=["1"]).result()
    with pytest.raises(TypeError, match="expected a class of pydantic"):
        result.parse(value)


def test_lib_11_an_output_that_is_cut_is_no_value(library: LanguageModel) -> None:
    cut = library.generate("A cat as JSON: ", json_schema=Cat, max_tokens=3, temperature=0).result()
    for kind in (None, Cat):
        with pytest.raises(ValueError, match="the text is not whole: the output was ended by max_tokens"):
            cut.parse(kind)
    whole = replace(cut, text='{"name": "Tom"}', finish_reason="stop")
    with pytest.raises(ValidationError, match="age"):
        whole.parse(Cat)

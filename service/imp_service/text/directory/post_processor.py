"""The ids that the post-processor of a tokenizer.json puts around a text, and around the two texts of a pair."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from imp_service.text.directory.json_files import JsonObject
from imp_service.text.tokens.pair_form import PairForm


@dataclass(frozen=True, slots=True)
class Around:
    """The ids around a text, and those of a pair; None: the file has no form of a pair that imp knows."""

    before: tuple[int, ...] = ()
    after: tuple[int, ...] = ()
    pair: PairForm | None = None


# An id and its type, or the name of a text, "A" or "B", and its type.
_Step = tuple[int | str, int]


def around_of(part: JsonObject) -> Around | None:
    """What one part of a post-processor adds. None: it only moves offsets."""
    match part.text("type"):
        case "TemplateProcessing":
            single = _steps(part, "single")
            at = next((i for i, (step, _) in enumerate(single) if isinstance(step, str)), len(single))
            return Around(_ids(single[:at]), _ids(single[at:]), _pair_of(_steps(part, "pair")))
        case "BertProcessing":
            cls, sep = _id_of_pair(part, "cls"), _id_of_pair(part, "sep")
            return Around(cls, sep, PairForm(cls, sep, sep, n_of_first=1))
        case "RobertaProcessing":
            cls, sep = _id_of_pair(part, "cls"), _id_of_pair(part, "sep")
            return Around(cls, sep, PairForm(cls, sep + sep, sep))
        case "ByteLevel":
            return None
        case found:
            raise part.fail("type", f"{found or 'missing'}, expected TemplateProcessing or ByteLevel")


def _pair_of(steps: Sequence[_Step]) -> PairForm | None:
    """The form if its texts are A and B, in this order, and no type 0 follows a type 1."""
    texts = [i for i, (step, _) in enumerate(steps) if isinstance(step, str)]
    types = [kind for _, kind in steps]
    if [steps[i][0] for i in texts] != ["A", "B"] or types != sorted(types) or set(types) - {0, 1}:
        return None
    first, second = texts
    n_of_first = types.index(1) - first - 1 if 1 in types else None
    if n_of_first is not None and not 0 <= n_of_first < second - first:
        return None
    return PairForm(_ids(steps[:first]), _ids(steps[first:second]), _ids(steps[second:]), n_of_first)


def _ids(steps: Sequence[_Step]) -> tuple[int, ...]:
    return tuple(step for step, _ in steps if isinstance(step, int))


def _steps(part: JsonObject, form: str) -> list[_Step]:
    named = part.object("special_tokens")
    steps: list[_Step] = []
    for step in part.objects(form):
        token = step.object("SpecialToken")
        if token is None:
            text = step.object("Sequence")
            steps.append(("A", 0) if text is None else (text.text("id") or "", _type_of(text)))
            continue
        name = token.text("id") or ""
        found = None if named is None else named.object(name)
        if found is None:
            raise token.fail("id", f"{name}: not in special_tokens")
        ids = found.array("ids")
        if not all(type(each) is int for each in ids):
            raise found.fail("ids", "expected token ids")
        steps += [(each, _type_of(token)) for each in ids]
    return steps


def _type_of(step: JsonObject) -> int:
    found = step.members.get("type_id", 0)
    if type(found) is not int:
        raise step.fail("type_id", f"{found!r:.40}, expected a number")
    return found


def _id_of_pair(part: JsonObject, name: str) -> tuple[int, ...]:
    pair = part.array(name)
    if len(pair) != 2 or type(pair[1]) is not int:
        raise part.fail(name, "expected a token and its id")
    return (pair[1],)

"""The fields of calls that embed texts or rank documents as data, as `http_api.openai.fields` has those of OpenAI's."""

from __future__ import annotations

from dataclasses import fields

from imp_service.api.facts import facts_of
from imp_service.api.vectors import EmbedOptions, RerankOptions
from imp_service.http_api.requests import values
from imp_service.http_api.requests.option_rows import REQUEST, SERVING
from imp_service.http_api.requests.rows import Accepted, Ignored, Means, Refused, Sets, Table
from imp_service.http_api.vectors import values as own

_ABOUT = {each.name: facts_of(each).about for options in (EmbedOptions, RerankOptions) for each in fields(options)}

COMMON: Table = {
    "model": SERVING["model"],
    "truncate": Sets(own.truncation, "truncate", "true cuts the end of what is too long; or `NONE`, `START` or `END`"),
    "truncation_side": Sets(values.only("left", "right"), "", "`left` cuts the start instead of the end"),
    "truncation_direction": Means(own.direction, "truncation_side"),
    "truncate_prompt_tokens": Sets(values.whole, "max_tokens", "what is longer is cut; -1: to the model's limit"),
    "instruction": Sets(values.text, "instruction", "put where the model's prompt has a place for it"),
    "priority": REQUEST["priority"],
    "user": Accepted(values.text, "not used"),
}
_EMBED: Table = {
    "dimensions": Sets(values.whole, "dimensions", _ABOUT["dimensions"]),
    "normalize": Sets(values.flag, "normalize", _ABOUT["normalize"]),
    "prompt_name": Sets(values.text, "prompt_name", _ABOUT["prompt_name"]),
}
EMBEDDINGS: Table = {
    "input": Sets(values.anything, "texts", "a string, token ids, or a list of either"),
    "encoding_format": Sets(values.only("float", "base64"), "", "`base64`: the bytes of the vector's 32-bit floats"),
    **_EMBED,
    "add_special_tokens": Sets(values.flag, "add_special_tokens", _ABOUT["add_special_tokens"]),
    **COMMON,
    "input_type": Means(own.input_type, "prompt_name"),
    "use_activation": Means(values.flag, "normalize"),
    "safety_identifier": Accepted(values.text, "not used"),
    "metadata": Accepted(values.members, "not used"),
    "embedding_type": Accepted(values.only("float"), "use `encoding_format`"),
    "keep_alive": Ignored("the model stays loaded"),
    "num_ctx": Ignored("`limits.max_context` of the server's settings is the context"),
    "messages": Refused("use `input`"),
    "prompt": Refused("use `input`"),
    "images": Refused("imp embeds texts"),
}
TEI_EMBED: Table = {
    "inputs": Sets(values.anything, "texts", "a string, token ids, or a list of either"),
    **_EMBED,
    **COMMON,
}
_SCORES: Table = {
    **COMMON,
    "raw_scores": Sets(values.flag, "raw_scores", _ABOUT["raw_scores"]),
    "use_activation": Means(own.negated, "raw_scores"),
    "max_tokens_per_doc": Sets(values.whole, "max_document_tokens", _ABOUT["max_document_tokens"]),
}
RERANK: Table = {
    "query": Sets(values.text, "query", "what the documents are ranked by"),
    "documents": Sets(own.documents, "documents", "strings, or objects with `text`"),
    "texts": Means(own.documents, "documents"),
    "top_n": Sets(values.whole, "top_n", _ABOUT["top_n"]),
    "return_documents": Sets(values.flag, "", "adds each document's text; default true, but for `/v2` and `texts`"),
    "return_text": Means(values.flag, "return_documents"),
    **_SCORES,
    "rank_fields": Accepted(values.only(["text"]), "documents have a text alone"),
    "max_chunks_per_doc": Refused("imp does not split documents: `max_tokens_per_doc` cuts them"),
}
SCORE: Table = {
    "text_1": Sets(own.texts_or_objects, "", "a string, or a list of them"),
    "text_2": Sets(own.texts_or_objects, "", "as many strings, or any number where `text_1` is one"),
    "queries": Means(own.texts_or_objects, "text_1"),
    "data_1": Means(own.texts_or_objects, "text_1"),
    "documents": Means(own.texts_or_objects, "text_2"),
    "data_2": Means(own.texts_or_objects, "text_2"),
    **_SCORES,
}

"""Writes a network and its vocabulary as one GGUF file: matrices in Q8_0, norms in F32."""

import json
from pathlib import Path
from typing import Any

import gguf
import torch
from gguf.quants import quantize
from tokenizers import Tokenizer

from .network import Network, Shape
from .vocabulary import CHAT_TEMPLATE, END_OF_TEXT, PRE_TOKENIZER_NAME, SPECIAL_TOKENS, TURN_END, special_id

SOURCES = [
    ("Generated stories, descriptions and conversations", "tools/demo_model/corpus", "imp"),
    ("Jane Austen's novels", "https://cran.r-project.org/package=janeaustenr", "Project Gutenberg"),
    ("WordNet 3.0 glosses", "https://wordnet.princeton.edu/", "Princeton University"),
]
LICENSE = "Apache-2.0 AND LicenseRef-WordNet-3.0"


def _add_shape(writer: gguf.GGUFWriter, shape: Shape) -> None:
    writer.add_block_count(shape.n_layers)
    writer.add_context_length(shape.max_context)
    writer.add_embedding_length(shape.hidden_size)
    writer.add_feed_forward_length(shape.ffn_size)
    writer.add_head_count(shape.n_heads)
    writer.add_head_count_kv(shape.n_kv_heads)
    writer.add_key_length(shape.head_dim)
    writer.add_value_length(shape.head_dim)
    writer.add_layer_norm_rms_eps(shape.norm_epsilon)
    writer.add_rope_freq_base(shape.rope_theta)
    writer.add_vocab_size(shape.vocab_size)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q8_0)
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)


def _add_vocabulary(writer: gguf.GGUFWriter, tokenizer: Tokenizer) -> None:
    """Adds tokens in their byte-level spelling; the special ones are control tokens and never match text."""
    ids = tokenizer.get_vocab()
    tokens = sorted(ids, key=ids.__getitem__)
    merges = json.loads(tokenizer.to_str())["model"]["merges"]
    kinds = [gguf.TokenType.CONTROL if token in SPECIAL_TOKENS else gguf.TokenType.NORMAL for token in tokens]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(PRE_TOKENIZER_NAME)
    writer.add_token_list(tokens)
    writer.add_token_types(kinds)
    writer.add_token_merges([" ".join(merge) for merge in merges])
    # A turn ends with TURN_END, plain text with END_OF_TEXT. Both end a generation, so each has a key.
    writer.add_eos_token_id(special_id(tokenizer, TURN_END))
    writer.add_eot_token_id(special_id(tokenizer, END_OF_TEXT))
    writer.add_bos_token_id(special_id(tokenizer, END_OF_TEXT))
    writer.add_pad_token_id(special_id(tokenizer, END_OF_TEXT))
    writer.add_add_bos_token(False)
    writer.add_chat_template(CHAT_TEMPLATE)


def _add_about(writer: gguf.GGUFWriter, name: str, description: str) -> None:
    writer.add_type("model")
    writer.add_name(name)
    writer.add_description(description)
    writer.add_license(LICENSE)
    writer.add_license_name("Apache License 2.0, with the WordNet 3.0 notice")
    writer.add_license_link("service/imp_service/models/README.md")
    writer.add_organization("the imp authors")
    writer.add_source_url("tools/train_demo_model.py")
    writer.add_languages(["en"])
    # These defaults give readable text; at temperature 1, a model of this size does not.
    writer.add_float32("general.sampling.temp", 0.7)
    writer.add_float32("general.sampling.top_p", 0.95)
    writer.add_dataset_count(len(SOURCES))
    for index, (title, url, organization) in enumerate(SOURCES):
        writer.add_dataset_name(index, title)
        writer.add_dataset_url(index, url)
        writer.add_dataset_organization(index, organization)


def export(network: Network, tokenizer: Tokenizer, path: Path, name: str, description: str) -> None:
    """Writes the file. It has no output.weight, because the embedding is the output matrix."""
    writer = gguf.GGUFWriter(path, "qwen3")
    _add_about(writer, name, description)
    _add_shape(writer, network.shape)
    _add_vocabulary(writer, tokenizer)
    for parameter_name, parameter in network.named_parameters():
        values = parameter.detach().to(torch.float32).numpy()
        tensor_name = parameter_name.replace(".attention.", ".")
        if values.ndim == 1:
            writer.add_tensor(tensor_name, values)
        else:
            quantized = gguf.GGMLQuantizationType.Q8_0
            writer.add_tensor(tensor_name, quantize(values, quantized), raw_dtype=quantized)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def read_back(path: Path) -> Network:
    """Returns the network of the file, with dequantized weights."""
    reader = gguf.GGUFReader(path)

    def fact(key: str) -> Any:
        return reader.fields[f"qwen3.{key}"].contents()

    shape = Shape(
        hidden_size=fact("embedding_length"),
        n_layers=fact("block_count"),
        n_heads=fact("attention.head_count"),
        n_kv_heads=fact("attention.head_count_kv"),
        head_dim=fact("attention.key_length"),
        ffn_size=fact("feed_forward_length"),
        vocab_size=fact("vocab_size"),
        max_context=fact("context_length"),
        rope_theta=fact("rope.freq_base"),
        norm_epsilon=fact("attention.layer_norm_rms_epsilon"),
    )
    network = Network(shape)
    tensors = {tensor.name: tensor for tensor in reader.tensors}
    with torch.no_grad():
        for parameter_name, parameter in network.named_parameters():
            tensor = tensors.pop(parameter_name.replace(".attention.", "."))
            parameter.copy_(torch.from_numpy(gguf.quants.dequantize(tensor.data, tensor.tensor_type).copy()))
    if tensors:
        raise ValueError(f"{path}: unknown tensors: {sorted(tensors)}")
    return network

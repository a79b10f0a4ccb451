"""Settings as llama.cpp, vLLM, Ollama and transformers name them, in options and keywords, and imp's key of each."""

from collections.abc import Mapping
from typing import NamedTuple

CONTEXT, DEVICE = "limits.max_context", "device.kind"


class ForeignName(NamedTuple):
    """imp's key in place of a name, and a value for an example."""

    key: str
    value: str
    remark: str = ""
    # The values of the other name are values of the key too.
    is_same: bool = True


_GPU = ForeignName(DEVICE, "cuda", "imp uses the CPU unless device.kind says otherwise", is_same=False)
# By name, in Python's spelling.
FOREIGN_NAMES: Mapping[str, ForeignName] = {
    **dict.fromkeys(("ngl", "n_gpu_layers", "gpu_layers", "gpu", "gpus", "num_gpu", "device", "device_map"), _GPU),
    **dict.fromkeys(
        ("ctx", "ctx_size", "n_ctx", "num_ctx", "context", "context_length", "context_size"), ForeignName(CONTEXT, "N")
    ),
    **dict.fromkeys(("max_model_len", "max_seq_len", "max_context", "max_context_length"), ForeignName(CONTEXT, "N")),
    **dict.fromkeys(
        ("t", "threads", "n_threads", "num_threads", "num_thread", "cpu_threads"), ForeignName("device.threads", "N")
    ),
    **dict.fromkeys(
        ("np", "parallel", "n_parallel", "max_num_seqs", "n_seq_max"), ForeignName("scheduler.max_running", "N")
    ),
    **dict.fromkeys(
        ("max_num_batched_tokens", "n_batch", "num_batch", "b", "batch_size", "ub", "n_ubatch", "ubatch_size"),
        ForeignName("scheduler.step_tokens", "N"),
    ),
    **dict.fromkeys(("alias", "model_alias", "served_model_name"), ForeignName("model.name", "NAME")),
    "chat_template_file": ForeignName("model.overrides.chat_template", "FILE"),
    "chat_template": ForeignName("model.overrides.chat_template", "FILE", is_same=False),
    "gpu_memory_utilization": ForeignName("kv.bytes", "SIZE", "for the memory of the cache", is_same=False),
    **dict.fromkeys(
        ("kv_cache_dtype", "cache_type_k", "cache_type_v", "type_k", "type_v", "ctk", "ctv"),
        ForeignName("kv.dtype", "q8_0", is_same=False),
    ),
    "enable_prefix_caching": ForeignName("kv.prefix_cache", "true"),
    **dict.fromkeys(("draft_model", "model_draft", "speculative_model"), ForeignName("speculation.model", "FILE")),
}

// The facts that config.json has for all decoders.
#pragma once

#include "model/arch/decoder_facts.h"

namespace imp {

// Like read_gguf_decoder. Without head_dim in the file it is default_head_dim; 0 means hidden_size / n_heads.
void read_hf_decoder(FactReader& facts, const TensorNames& names, int default_head_dim);

// RoPE of the layers without a window: ropes[0]. The keys are in `rope_parameters` (under full_attention if layers
// differ), or in `rope_theta` and `rope_scaling`.
void read_hf_rope(FactReader& facts, RopeStyle style, double default_theta);

// The layers that `layer_types` calls sliding_attention, or those of the period.
void read_hf_windows(FactReader& facts, const MixedWindows& defaults);

// For families with a key that enables windows: refuses a model that sets it. No published model does.
void refuse_optional_windows(FactReader& facts);

// Experts; each family has its own keys for number and size.
void read_hf_experts(FactReader& facts, std::string_view count_key, std::string_view ffn_size_key);

// For families that may have layers without experts: refuses a model with such layers. No published model has any.
void refuse_dense_layers(FactReader& facts);

// Reads a soft cap. Null disables it; a missing key keeps the default in `cap`.
void read_hf_soft_cap(FactReader& facts, std::string_view field, std::string_view key, float& cap);

// Marks the keys that do not affect the arithmetic as read, so that the rest is unknown.
void skip_hf_bookkeeping(FactReader& facts);

}  // namespace imp

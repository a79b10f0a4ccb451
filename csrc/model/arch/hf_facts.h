// The facts that decoders state in a config.json.
#pragma once

#include "model/arch/decoder_facts.h"

namespace imp {

// As read_gguf_decoder. Where the file does not state head_dim it is default_head_dim; 0: hidden_size / n_heads.
void read_hf_decoder(FactReader& facts, const TensorNames& names, int default_head_dim);

// Rotary positions of the layers that see all keys: ropes[0]. The keys are in `rope_parameters` (of the kind of layer
// called full_attention, where there are several), or in `rope_theta` and `rope_scaling`.
void read_hf_rope(FactReader& facts, RopeStyle style, double default_theta);

// The layers that `layer_types` calls sliding_attention, or those of the period.
void read_hf_windows(FactReader& facts, const MixedWindows& defaults);

// For families whose windows are switched on by a key of their own, and never are in what is published.
void refuse_optional_windows(FactReader& facts);

// Experts, whose number and size have a key of their own in each family.
void read_hf_experts(FactReader& facts, std::string_view count_key, std::string_view ffn_size_key);

// For families that can have layers without experts, and never have in what is published.
void refuse_dense_layers(FactReader& facts);

// A key that null switches off, and that has a default where it is missing.
void read_hf_soft_cap(FactReader& facts, std::string_view field, std::string_view key, float& cap);

// The keys without bearing on the arithmetic are marked as read, so that what is left is not understood.
void skip_hf_bookkeeping(FactReader& facts);

}  // namespace imp

// The facts for which all GGUF decoders have the same keys.
#pragma once

#include "model/arch/decoder_facts.h"

namespace imp {

// Whether layers may have feed-forwards and kv heads of different sizes.
enum class GgufLayers : std::uint8_t { equal, different };

// Sizes, norm epsilon, vocabulary, tied embeddings, end tokens. Every layer sees all keys; attention_scale is
// head_dim^(-1/2) unless the file says otherwise.
void read_gguf_decoder(FactReader& facts, NormKind norm_kind = NormKind::rms, GgufLayers layers = GgufLayers::equal);

// Whether there are experts. Throws if the file has a router but not the number of experts.
bool has_gguf_experts(FactReader& facts);
void refuse_gguf_experts(FactReader& facts);
// `normalized` is the default if the file does not say. The size of an expert is ffn_size by default.
void read_gguf_experts(FactReader& facts, bool normalized);

// RoPE of the layers without a window: ropes[0].
void read_gguf_rope(FactReader& facts, RopeStyle style, double default_theta);

// Whether the file states a sliding window.
bool has_gguf_windows(FactReader& facts);

// A sliding window for all layers, if the file has one.
void read_gguf_window(FactReader& facts);

// Sliding windows in some of the layers.
void read_gguf_windows(FactReader& facts, const MixedWindows& defaults);

}  // namespace imp

// The facts that GGUF decoders state in the same keys.
#pragma once

#include "model/arch/decoder_facts.h"

namespace imp {

// Sizes, norm epsilon, vocabulary, tied head, end tokens; every layer sees all keys; attention_scale is
// head_dim^(-1/2) unless the file says otherwise.
void read_gguf_decoder(FactReader& facts);

// Whether there are experts: a router without a count of them is refused.
bool has_gguf_experts(FactReader& facts);
void refuse_gguf_experts(FactReader& facts);
// `normalized`: unless the file says otherwise. Without a size of their own experts have ffn_size.
void read_gguf_experts(FactReader& facts, bool normalized);

// Rotary positions of the layers that see all keys: ropes[0].
void read_gguf_rope(FactReader& facts, RopeStyle style, double default_theta);

// All layers see a window, where the file names one.
void read_gguf_window(FactReader& facts);

// Layers that see a window among layers that see all keys.
void read_gguf_windows(FactReader& facts, const MixedWindows& defaults);

}  // namespace imp

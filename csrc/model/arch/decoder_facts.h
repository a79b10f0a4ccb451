// The facts that GGUF decoders state in the same keys.
#pragma once

#include "model/arch/fact_reader.h"

namespace imp {

// Sizes, norm epsilon, vocabulary, tied head, end tokens; every layer sees all keys; attention_scale is
// head_dim^(-1/2) unless the file says otherwise.
void read_decoder(FactReader& facts);

// Rotary positions of the layers that see all keys: ropes[0].
void read_rope(FactReader& facts, RopeStyle style, double default_theta);

// Biases, where layer 0 has them: checkpoints state them by their tensors alone.
void read_biases(FactReader& facts);

// All layers see a window, where the file names one.
void read_window(FactReader& facts);

// Layers that see a window among layers that see all keys, where the file does not say otherwise.
struct MixedWindows {
  int window = 0;
  int period = 1;  // of each so many layers the last sees all keys
  int rope = 0;    // index of the windowed layers' rope
};
void read_mixed_windows(FactReader& facts, const MixedWindows& defaults);

// What gemma 2 and 3 share: scaled embedding, norms before and after, gelu.
void read_gemma(FactReader& facts);

}  // namespace imp

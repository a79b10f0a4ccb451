// Facts that the formats store under different keys but that follow from them in the same way.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "model/arch/fact_reader.h"
#include "model/arch/tensor_names.h"

namespace imp {

// The vocabulary has as many rows as the embedding. Rows from n_tokens on are padding: they are no tokens and are never
// drawn.
void read_vocabulary(FactReader& facts, std::string_view embedding, std::optional<std::int64_t> n_tokens);

// Refuses an id that is no token. The service decides which tokens end a generation, since it knows their text.
void check_end_token(const FactReader& facts, std::string_view whole_key, std::uint32_t token);

// Biases of one kind: the model has all of them if it has one.
void read_biases(FactReader& facts);

// Gives every layer attention over keys and values of its own.
void add_layers(ModelConfig& config);

// Linear attention in some layers, whose state takes the place of keys and values.
void set_linear_layers(ModelConfig& config, const std::vector<bool>& linear);

// The last layers of the file only guess further tokens: imp leaves them out.
void leave_out_draft_layers(FactReader& facts, std::string_view key);

// Layers that see a window among layers that see all keys.
struct MixedWindows {
  int window = 0;
  int period = 1;  // the last of every `period` layers sees all keys
  int rope = 0;    // index of the windowed layers' rope
};
// For each layer whether it is not the last of `period`.
std::vector<bool> all_but_last_of(const ModelConfig& config, int period);
void set_windows(ModelConfig& config, const std::vector<bool>& windowed, const MixedWindows& windows);

void give_all_layers_experts(ModelConfig& config);

// Layers that are not rotated have no RoPE.
void leave_rope_out(ModelConfig& config, const std::vector<bool>& rotated);

std::vector<bool> windowed_layers(const ModelConfig& config);

// Shared by Gemma 2 and 3: scaled embedding, norms before and after, gelu.
void set_gemma(ModelConfig& config);

}  // namespace imp

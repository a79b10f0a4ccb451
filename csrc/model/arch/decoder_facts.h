// Facts that the formats store under different keys but that follow from them in the same way.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "model/arch/fact_reader.h"
#include "model/arch/tensor_names.h"

namespace imp {

// The vocabulary has as many rows as the embedding. Rows from n_tokens on are padding, and are never sampled.
void read_vocabulary(FactReader& facts, std::string_view embedding, std::optional<std::int64_t> n_tokens);

// Refuses an id outside of the vocabulary. The service decides which tokens end a generation, since it has their text.
void check_end_token(const FactReader& facts, std::string_view whole_key, std::int64_t token);

// Refuses a file whose flag, if it has one, says that rows see more, or less, than those of the family.
void require_causal(FactReader& facts, std::string_view key);

// Biases of one kind: the model has all of them if it has one.
void read_biases(FactReader& facts);

// Gives every layer attention with its own KV cache.
void add_layers(ModelConfig& config);

// Gives some layers linear attention, with a recurrent state instead of a KV cache.
void set_linear_layers(ModelConfig& config, const std::vector<bool>& linear);

// Excludes the layers for multi-token prediction at the end of the file from n_layers, and counts them.
void leave_out_draft_layers(FactReader& facts, std::string_view key);

// A model with sliding windows in some layers. The other layers see all keys.
struct MixedWindows {
  int window = 0;
  int period = 1;  // the last of every `period` layers sees all keys
  int rope = 0;    // index of the windowed layers' rope
};
// For each layer: false for the last layer of each period, true for the others.
std::vector<bool> all_but_last_of(const ModelConfig& config, int period);
void set_windows(ModelConfig& config, const std::vector<bool>& windowed, const MixedWindows& windows);

void give_all_layers_experts(ModelConfig& config);

// M-RoPE: how many pairs rotate by a cell's position in the text, by its row and by its column.
using ImageAxes = std::array<std::uint32_t, 3>;
// Gives each pair of ropes[0] its plane. The pairs take the axes in turn; once those of an axis are used up, its pairs
// rotate by the position in the text. `axes` has the numbers of pairs if the file has none under `key`.
void read_image_axes(FactReader& facts, std::string_view key, ImageAxes axes);

// Removes RoPE from the layers that are not `rotated`.
void leave_rope_out(ModelConfig& config, const std::vector<bool>& rotated);

std::vector<bool> windowed_layers(const ModelConfig& config);

// In these layers the cells of an image see all of it.
void let_cells_see_ahead(ModelConfig& config, const std::vector<bool>& layers);

// Shared by Gemma 2 and 3: scaled embedding, norms before and after, gelu.
void set_gemma(ModelConfig& config);

}  // namespace imp

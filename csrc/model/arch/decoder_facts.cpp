// Checks and completes vocabulary, end tokens, biases and windows.
#include "model/arch/decoder_facts.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <iterator>
#include <string>

#include "model/config/model_limits.h"

namespace imp {

void read_vocabulary(FactReader& facts, std::string_view name, std::optional<std::int64_t> n_tokens) {
  const TensorInfo* embedding = facts.file().find(name);
  if (!embedding) facts.refuse_tensor(Reason::MODEL_TENSOR, name, "missing", "the embedding");
  const std::int64_t rows = embedding->dims[1];
  if (rows > model_limits::kVocabulary) {
    facts.refuse_tensor(Reason::MODEL_LIMIT, name, std::to_string(rows) + " rows",
                        "at most " + std::to_string(model_limits::kVocabulary));
  }
  if (rows < n_tokens.value_or(rows)) {
    facts.refuse_tensor(Reason::MODEL_TENSOR, name, "shape " + shape_text(*embedding),
                        "rows for " + std::to_string(*n_tokens) + " tokens");
  }
  facts.config.vocab_size = static_cast<int>(rows);
  facts.note_tensor("vocab_size", name);
  if (!n_tokens) facts.note_tensor("n_tokens", name);
  facts.config.n_tokens = static_cast<int>(n_tokens.value_or(rows));
  for (std::int64_t id = n_tokens.value_or(rows); id < rows; ++id) {
    facts.config.suppressed_tokens.push_back(static_cast<std::int32_t>(id));
  }
}

void check_end_token(const FactReader& facts, std::string_view whole_key, std::int64_t token) {
  const int n_tokens = facts.config.n_tokens;
  if (token >= n_tokens) {
    facts.file().metadata().refuse_value(whole_key, std::to_string(token), "less than " + std::to_string(n_tokens));
  }
}

void require_causal(FactReader& facts, std::string_view key) {
  const bool is_expected = !facts.config.is_two_sided;
  if (!facts.has(key) || facts.find_flag(key) == is_expected) return;
  facts.refuse(Reason::MODEL_UNSUPPORTED, key, is_expected ? "false" : "true", is_expected ? "true" : "false");
}

void read_biases(FactReader& facts) {
  const TensorNames& names = facts.names();
  const auto find = [&](std::string_view field, std::initializer_list<std::string_view> tensors, bool& out) {
    for (int i = 0; i < facts.config.n_layers; ++i) {
      for (const std::string_view tensor : tensors) {
        const std::string name = names.bias(i, tensor);
        if (!facts.has_tensor(name)) continue;
        out = true;
        return facts.note_tensor(field, name);
      }
    }
  };
  find("qkv_bias", {names.q, names.k, names.v, names.optional_qkv}, facts.config.qkv_bias);
  find("output_bias", {names.output}, facts.config.output_bias);
  find("ffn_bias", {names.gate, names.up, names.down}, facts.config.ffn_bias);
}

void add_layers(ModelConfig& config) {
  const LayerConfig layer = {
      .n_kv_heads = config.n_kv_heads, .head_dim = config.head_dim, .ffn_size = config.ffn_size, .xielu = {}};
  config.layers.assign(static_cast<std::size_t>(config.n_layers), layer);
  for (int i = 0; i < config.n_layers; ++i) config.layers[static_cast<std::size_t>(i)].kv = i;
}

void set_linear_layers(ModelConfig& config, const std::vector<bool>& linear) {
  int n_kv = 0, n_states = 0;
  for (std::size_t i = 0; i < config.layers.size(); ++i) {
    config.layers[i].kv = linear[i] ? kNoKv : n_kv++;
    config.layers[i].state = linear[i] ? n_states++ : kNoState;
  }
}

void leave_out_draft_layers(FactReader& facts, std::string_view key) {
  ModelConfig& config = facts.config;
  const std::uint64_t n = facts.find_integer(key).value_or(0);
  if (n >= static_cast<std::uint64_t>(config.n_layers)) {
    facts.refuse(Reason::MODEL_VALUE, key, std::to_string(n),
                 "less than the " + std::to_string(config.n_layers) + " layers");
  }
  config.n_draft_layers = static_cast<int>(n);
  config.n_layers -= config.n_draft_layers;
  add_layers(config);
}

std::vector<bool> all_but_last_of(const ModelConfig& config, int period) {
  std::vector<bool> chosen(config.layers.size());
  for (std::size_t i = 0; i < chosen.size(); ++i) chosen[i] = (i + 1) % static_cast<std::size_t>(period) != 0;
  return chosen;
}

void set_windows(ModelConfig& config, const std::vector<bool>& windowed, const MixedWindows& windows) {
  for (std::size_t i = 0; i < windowed.size(); ++i) {
    if (!windowed[i]) continue;
    config.layers[i].window = windows.window;
    config.layers[i].rope = windows.rope;
  }
}

void give_all_layers_experts(ModelConfig& config) {
  for (LayerConfig& layer : config.layers) layer.has_experts = true;
}

void read_image_axes(FactReader& facts, std::string_view key, ImageAxes axes) {
  const std::vector<std::uint32_t> found = facts.find_integers(key);
  if (!found.empty()) {
    const bool has_others = std::ranges::any_of(found.begin() + std::min(std::ssize(found), std::ssize(axes)),
                                                found.end(), [](std::uint32_t n) { return n > 0; });
    if (found.size() < axes.size() || has_others) {
      facts.refuse(Reason::MODEL_UNSUPPORTED, key, std::to_string(found.size()) + " axes",
                   "three: text, rows, columns");
    }
    std::copy_n(found.begin(), axes.size(), axes.begin());
  }
  RopeConfig& rope = facts.config.ropes.front();
  rope.planes.assign(static_cast<std::size_t>(rope.dims) / 2, 0);
  for (std::size_t pair = 0; pair < rope.planes.size(); ++pair) {
    const std::size_t axis = pair % axes.size();
    if (pair / axes.size() < axes[axis]) rope.planes[pair] = static_cast<std::uint8_t>(axis);
  }
}

void leave_rope_out(ModelConfig& config, const std::vector<bool>& rotated) {
  for (std::size_t i = 0; i < rotated.size(); ++i) {
    if (!rotated[i]) config.layers[i].rope = kNoRope;
  }
}

std::vector<bool> windowed_layers(const ModelConfig& config) {
  std::vector<bool> windowed;
  for (const LayerConfig& layer : config.layers) windowed.push_back(layer.window > 0);
  return windowed;
}

void let_cells_see_ahead(ModelConfig& config, const std::vector<bool>& layers) {
  for (std::size_t i = 0; i < layers.size(); ++i) config.layers[i].ahead = layers[i] ? kAllAhead : 0;
}

void set_gemma(ModelConfig& config) {
  config.embedding_scale = std::sqrt(static_cast<float>(config.hidden_size));
  config.norm_placement = NormPlacement::pre_and_post;
}

}  // namespace imp

// Gemma 4: windowed and other layers have heads of different sizes; values are normalized; the last layers share the
// keys and values of earlier ones. Small models have an embedding for each layer, others experts and a dense branch.
#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <string>
#include <vector>

#include "base/printable.h"
#include "model/arch/architecture.h"
#include "model/arch/gemma4.h"
#include "model/arch/gguf_facts.h"
#include "model/arch/gguf_names.h"
#include "model/arch/hf_facts.h"
#include "model/arch/hf_names.h"
#include "model/config/model_limits.h"

namespace imp {
namespace {

constexpr TensorNames kHfInnerGemma4Names = hf_names_of_inner_model(kHfGemma4Names);
constexpr TensorNames kHfOuterGemma4Names = hf_names_of_outer_part(kHfGemma4Names);
void set_gemma4(ModelConfig& config) {
  set_gemma(config);
  config.qk_norm = QkNorm::head;
  config.value_norm = true;
  config.attention_scale = 1;
}

// The RoPE of windowed layers is never scaled.
void add_windowed_rope(ModelConfig& config, int dims) {
  config.ropes.push_back({.style = RopeStyle::halves, .dims = dims, .theta = 10000, .scaling = {}});
}

// Takes the sizes of the last layer, which has no window, as those of the model.
void take_sizes_of_last(ModelConfig& config) {
  config.head_dim = config.layers.back().head_dim;
  config.n_kv_heads = config.layers.back().n_kv_heads;
}

// The last layers share the cache of an earlier layer: the last one before them with the same kind of window.
void share_kv(FactReader& facts, std::string_view key) {
  std::vector<LayerConfig>& layers = facts.config.layers;
  const std::uint64_t n_sharing = facts.find_integer(key).value_or(0);
  const auto refuse = [&](const char* expected) {
    facts.refuse(facts.file().metadata().wrong_value(), key, std::to_string(n_sharing), expected);
  };
  if (n_sharing == 0) return;
  if (n_sharing >= layers.size()) refuse("less than the number of layers");
  const auto first = layers.end() - static_cast<std::ptrdiff_t>(n_sharing);
  for (auto layer = first; layer != layers.end(); ++layer) {
    const auto shared = std::find_if(std::make_reverse_iterator(first), layers.rend(),
                                     [&](const LayerConfig& earlier) { return earlier.window == layer->window; });
    if (shared == layers.rend()) refuse("layers of each kind before those that share");
    // Both use the same cells, so a different shape would read or write beyond them.
    if (shared->n_kv_heads != layer->n_kv_heads || shared->head_dim != layer->head_dim) {
      refuse("layers with heads as those whose keys and values they share");
    }
    layer->kv = shared->kv;
    layer->shares_kv = true;
  }
}

void set_layer_embedding(ModelConfig& config, int size) {
  const float root = std::sqrt(static_cast<float>(size));
  const float half = std::sqrt(0.5F);  // the sum of table and projection is divided by sqrt(2)
  // The projection is multiplied by hidden^(-1/2) before its norm, which is the same as a greater epsilon.
  config.layer_embedding = {.size = size,
                            .table_scale = root * half,
                            .norm_epsilon = config.norm_epsilon * static_cast<float>(config.hidden_size),
                            .projection_scale = half};
}

// The reference replaces the placeholder of images by the padding token before it reads the layers' embeddings.
void set_cell_token(FactReader& facts, std::string_view whole_key) {
  const auto token = facts.file().metadata().find_integer<std::uint32_t>(whole_key).value_or(0);
  if (token >= static_cast<std::uint32_t>(facts.config.vocab_size)) {
    facts.file().metadata().refuse_value(whole_key, std::to_string(token),
                                         "less than " + std::to_string(facts.config.vocab_size));
  }
  facts.config.layer_embedding.cell_token = static_cast<std::int32_t>(token);
}

void read_output_scales(FactReader& facts) {
  for (int i = 0; i < facts.config.n_layers; ++i) {
    const std::string name = facts.names().in_layer(i, facts.names().output_scale);
    if (facts.has_tensor(name))
      facts.config.layers[static_cast<std::size_t>(i)].output_scale = facts.tensor_value(name);
  }
}

void read_gguf_windowed_heads(FactReader& facts) {
  ModelConfig& config = facts.config;
  int head_dim = config.head_dim;
  facts.find_count("windowed_head_dim", "attention.key_length_swa", model_limits::kHeadDim, head_dim);
  int value_length = head_dim;
  facts.find_count("windowed_head_dim", "attention.value_length_swa", model_limits::kHeadDim, value_length);
  if (value_length != head_dim) {
    facts.refuse(Reason::MODEL_UNSUPPORTED, "attention.value_length_swa", std::to_string(value_length),
                 "the key length " + std::to_string(head_dim));
  }
  int dims = head_dim;
  facts.find_count("windowed_rope_dims", "rope.dimension_count_swa", model_limits::kHeadDim, dims);
  add_windowed_rope(config, dims);
  facts.find_number("windowed_rope_theta", "rope.freq_base_swa", config.ropes[1].theta);
  read_gguf_windows(facts, {.window = 512, .period = 6, .rope = 1});
  for (LayerConfig& layer : config.layers) {
    if (layer.window > 0) layer.head_dim = head_dim;
  }
}

// Sizes of layers without a window: for all of them, or for each layer that differs.
void read_hf_full_heads(FactReader& facts) {
  ModelConfig& config = facts.config;
  const bool keys_are_values = facts.find_flag("attention_k_eq_v");
  facts.origins.note("windowed_head_dim", Origin::checkpoint, facts.origins.find("head_dim").source);
  facts.origins.note("windowed_n_kv_heads", Origin::checkpoint, facts.origins.find("n_kv_heads").source);
  int head_dim = 512, n_kv_heads = config.n_kv_heads;
  facts.find_count("head_dim", "global_head_dim", model_limits::kHeadDim, head_dim);
  if (keys_are_values) {
    facts.find_count("n_kv_heads", "num_global_key_value_heads", model_limits::kHeads, n_kv_heads);
  } else {
    facts.ignore("num_global_key_value_heads");
  }
  for (std::size_t i = 0; i < config.layers.size(); ++i) {
    LayerConfig& layer = config.layers[i];
    const std::string at = "per_layer_config." + std::to_string(i) + ".";
    facts.find_count("head_dim", at + "head_dim", model_limits::kHeadDim, layer.head_dim);
    facts.find_count("n_kv_heads", at + "num_key_value_heads", model_limits::kHeads, layer.n_kv_heads);
    layer.values_are_keys = keys_are_values && layer.window == 0;
  }
  if (facts.has_section("per_layer_config")) return;
  for (LayerConfig& layer : config.layers) {
    if (layer.window > 0) continue;
    layer.head_dim = head_dim;
    layer.n_kv_heads = n_kv_heads;
  }
}

// Layers of a kind have one RoPE, so their heads have one size.
void require_equal_heads(const FactReader& facts, int windowed_head_dim) {
  for (const LayerConfig& layer : facts.config.layers) {
    const int expected = layer.window > 0 ? windowed_head_dim : facts.config.head_dim;
    if (layer.head_dim == expected) continue;
    facts.refuse(Reason::MODEL_UNSUPPORTED, "per_layer_config", "head_dim " + std::to_string(layer.head_dim),
                 std::to_string(expected) + ", as in other layers of its kind");
  }
}

void read_hf_gemma4_ropes(FactReader& facts, int windowed_dims) {
  ModelConfig& config = facts.config;
  read_hf_rope(facts, RopeStyle::halves, 1000000);
  if (!facts.has("rope_parameters.full_attention.rope_type")) config.ropes[0].n_rotated_pairs = config.head_dim / 8;
  add_windowed_rope(config, windowed_dims);
  constexpr const char* kWindowed = "rope_parameters.sliding_attention.";
  require_plain_rope(facts, kWindowed);
  facts.find_number("windowed_rope_theta", std::string(kWindowed) + "rope_theta", config.ropes[1].theta);
}

void read_hf_gemma4_experts(FactReader& facts) {
  ModelConfig& config = facts.config;
  if (!facts.find_flag("enable_moe_block")) {
    for (const char* key : {"num_experts", "top_k_experts", "moe_intermediate_size"}) facts.ignore(key);
    return;
  }
  config.experts.normalized = true;
  config.dense_beside_experts = true;
  config.has_expert_scales = true;
  facts.count("n_experts", "num_experts", model_limits::kExperts, config.experts.n_experts);
  facts.count("n_experts_used", "top_k_experts", model_limits::kExperts, config.experts.n_used);
  facts.count("expert_ffn_size", "moe_intermediate_size", model_limits::kFfn, config.expert_ffn_size);
  give_all_layers_experts(config);
}

// "vision": the cells of an image see all of it in windowed layers, and in no others.
void read_hf_direction(FactReader& facts, bool is_vision_by_default) {
  constexpr std::string_view kKey = "use_bidirectional_attention", kVision = "vision";
  const auto direction = facts.find_word("", kKey);
  if (direction.value_or(kVision) != kVision) {
    facts.refuse(Reason::MODEL_UNSUPPORTED, kKey, printable(*direction), "null or vision");
  }
  const bool is_vision = direction || (is_vision_by_default && !facts.is_null(kKey));
  if (is_vision) let_cells_see_ahead(facts.config, windowed_layers(facts.config));
}

constexpr HfDefaults kGemma4Defaults = {.n_heads = 8, .n_kv_heads = 4, .context = 131072, .epsilon = 1e-6F};

void read_gemma4_gguf(FactReader& facts) {
  ModelConfig& config = facts.config;
  read_gemma4_layers_gguf(facts);
  share_kv(facts, "attention.shared_kv_layers");
  const TensorNames& names = facts.names();
  for (int i = 0; i < config.n_layers; ++i) {
    LayerConfig& layer = config.layers[static_cast<std::size_t>(i)];
    const bool has_v =
        facts.has_tensor(names.weight(i, names.v)) || facts.has_tensor(names.weight(i, names.optional_qkv));
    layer.values_are_keys = !layer.shares_kv && !has_v;
  }
  facts.find_number("logit_soft_cap", "final_logit_softcapping", config.logit_soft_cap);
  int size = 0;
  if (facts.find_integer("embedding_length_per_layer_input").value_or(0) > 0) {
    facts.count("layer_embedding_size", "embedding_length_per_layer_input", model_limits::kHidden, size);
    set_layer_embedding(config, size);
    set_cell_token(facts, "tokenizer.ggml.padding_token_id");
  }
  // Files do not say it. Those of the models that do have no embeddings of layers.
  if (size == 0) let_cells_see_ahead(config, windowed_layers(config));
  if (!has_gguf_experts(facts)) return;
  read_gguf_experts(facts, true);
  config.dense_beside_experts = true;
  config.has_expert_scales = facts.has_tensor(facts.names().in_layer(0, facts.names().expert_scales));
}

void read_gemma4_base_hf(FactReader& facts) {
  ModelConfig& config = facts.config;
  read_gemma4_layers_hf(facts);
  share_kv(facts, "num_kv_shared_layers");
  if (facts.find_flag("use_double_wide_mlp")) {
    for (LayerConfig& layer : config.layers) layer.ffn_size *= layer.shares_kv ? 2 : 1;
  }
  read_hf_soft_cap(facts, "logit_soft_cap", "final_logit_softcapping", config.logit_soft_cap);
  int size = facts.has_tensor(facts.names().layer_table) ? 256 : 0;
  if (facts.find_integer("hidden_size_per_layer_input").value_or(1) == 0) {
    size = 0;
  } else {
    facts.find_count("layer_embedding_size", "hidden_size_per_layer_input", model_limits::kHidden, size);
  }
  facts.ignore("vocab_size_per_layer_input");  // the table has as many rows as the embedding
  if (size > 0) {
    set_layer_embedding(config, size);
    set_cell_token(facts, std::string(facts.is_part() ? "text_config." : "") + "pad_token_id");
  }
  read_hf_gemma4_experts(facts);
}

void read_gemma4_hf(FactReader& facts) {
  read_gemma4_base_hf(facts);
  read_hf_direction(facts, false);
}

void read_gemma4_unified_hf(FactReader& facts) {
  read_gemma4_base_hf(facts);
  read_hf_direction(facts, true);
}

}  // namespace

void read_gemma4_layers_gguf(FactReader& facts) {
  facts.config.activation = GatedActivation::gelu_tanh;
  read_gguf_decoder(facts, NormKind::rms, GgufLayers::different);
  set_gemma4(facts.config);
  read_gguf_rope(facts, RopeStyle::halves, 1000000);
  read_gguf_windowed_heads(facts);
  take_sizes_of_last(facts.config);
  read_output_scales(facts);
}

void read_gemma4_layers_hf(FactReader& facts) {
  ModelConfig& config = facts.config;
  config.activation = GatedActivation::gelu_tanh;
  read_hf_decoder(facts, {.head_dim = 256, .defaults = kGemma4Defaults});
  set_gemma4(config);
  const int windowed_dims = config.head_dim;
  read_hf_windows(facts, {.window = 512, .period = 6, .rope = 1});
  // Whatever the list says, the last layer has no window.
  config.layers.back().window = config.layers.back().rope = 0;
  read_hf_full_heads(facts);
  take_sizes_of_last(config);
  require_equal_heads(facts, windowed_dims);
  read_hf_gemma4_ropes(facts, windowed_dims);
  read_output_scales(facts);
}

Family gemma4_family() noexcept {
  static constexpr std::array kRows = {
      Architecture{ModelFormat::gguf, "gemma4", read_gemma4_gguf, &kGgufNames},
      Architecture{ModelFormat::hf, "gemma4_text", read_gemma4_hf, &kHfGemma4Names},
      Architecture{ModelFormat::hf, "gemma4_unified_text", read_gemma4_unified_hf, &kHfGemma4Names},
      Architecture{
          ModelFormat::hf, "gemma4", read_gemma4_hf, &kHfInnerGemma4Names, "text_config.", {&kHfOuterGemma4Names}},
      Architecture{ModelFormat::hf,
                   "gemma4_unified",
                   read_gemma4_unified_hf,
                   &kHfInnerGemma4Names,
                   "text_config.",
                   {&kHfOuterGemma4Names}},
  };
  return kRows;
}

}  // namespace imp

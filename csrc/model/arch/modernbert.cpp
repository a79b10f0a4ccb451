// ModernBERT: two ropes, windows in two of three layers, norms without biases, and none before the first attention.
#include <array>
#include <cstddef>
#include <vector>

#include "model/arch/architecture.h"
#include "model/arch/encoder_facts.h"
#include "model/arch/gguf_facts.h"
#include "model/arch/gguf_names.h"
#include "model/arch/hf_facts.h"
#include "model/arch/hf_names.h"
#include "model/config/model_limits.h"

namespace imp {
namespace {

constexpr int kLocalWindow = 128;
constexpr int kLocalPeriod = 3;
constexpr double kGlobalTheta = 160000, kLocalTheta = 10000;

constexpr TensorNames kGgufModernNames = [] {
  TensorNames names = kGgufNames;
  names.gate_up = "ffn_up";
  names.text.embedding_norm = "token_embd_norm.weight";
  return names;
}();

constexpr TensorNames kHfModernNames = {
    .embedding = "embeddings.tok_embeddings.weight",
    .final_norm = "final_norm.weight",
    .layer = "layers.",
    .attention_norm = "attn_norm",
    .qkv = "attn.Wqkv",
    .output = "attn.Wo",
    .ffn_norm = "mlp_norm",
    .gate_up = "mlp.Wi",
    .down = "mlp.Wo",
    .text = {.embedding_norm = "embeddings.norm.weight"},
};

// Checkpoints of an encoder with a head.
constexpr TensorNames kHfOuterModernNames = [] {
  TensorNames names = kHfModernNames;
  names.embedding = "model.embeddings.tok_embeddings.weight";
  names.final_norm = "model.final_norm.weight";
  names.layer = "model.layers.";
  names.text.embedding_norm = "model.embeddings.norm.weight";
  return names;
}();

std::vector<bool> all_but_first_of(const ModelConfig& config, int period) {
  std::vector<bool> chosen(config.layers.size());
  for (std::size_t i = 0; i < chosen.size(); ++i) chosen[i] = i % static_cast<std::size_t>(period) != 0;
  return chosen;
}

void add_local_rope(ModelConfig& config) {
  const RopeConfig& rope = config.ropes[0];
  config.ropes.push_back({.style = rope.style, .dims = rope.dims, .theta = kLocalTheta, .scaling = {}});
}

void finish_modernbert(FactReader& facts) {
  read_biases(facts);
  facts.config.layers.front().has_attention_norm = false;
  see_both_sides(facts.config);
  read_text_embedding(facts, 0);
}

void read_modernbert_gguf(FactReader& facts) {
  begin_encoder(facts);
  facts.config.activation = GatedActivation::gelu_erf;
  read_gguf_decoder(facts, NormKind::layer);
  read_gguf_rope(facts, RopeStyle::halves, kGlobalTheta);
  add_local_rope(facts.config);
  facts.find_number("windowed_rope_theta", "rope.freq_base_swa", facts.config.ropes[1].theta);
  MixedWindows windows = {.window = kLocalWindow, .period = kLocalPeriod, .rope = 1};
  facts.find_count("windows", "attention.sliding_window", model_limits::kContext, windows.window);
  facts.find_count("windows", "attention.sliding_window_pattern", model_limits::kLayers, windows.period);
  set_windows(facts.config, all_but_first_of(facts.config, windows.period), windows);
  finish_modernbert(facts);
}

void read_modernbert_windows(FactReader& facts) {
  facts.accept("sliding_window", "local_attention");
  MixedWindows windows = {.window = kLocalWindow, .period = kLocalPeriod, .rope = 1};
  facts.find_count("windows", "global_attn_every_n_layers", model_limits::kLayers, windows.period);
  if (facts.has("layer_types")) return read_hf_windows(facts, windows);
  facts.find_count("windows", "sliding_window", model_limits::kContext, windows.window);
  set_windows(facts.config, all_but_first_of(facts.config, windows.period), windows);
}

void ignore_modernbert_training(FactReader& facts) {
  for (const char* key : {"classifier_activation", "classifier_bias", "classifier_pooling", "cls_token_id",
                          "decoder_bias", "deterministic_flash_attn", "initializer_cutoff_factor", "mlp_dropout",
                          "position_embedding_type", "reference_compile", "repad_logits_with_grad", "sep_token_id",
                          "sparse_pred_ignore_index", "sparse_prediction"}) {
    facts.ignore(key);
  }
}

void read_modernbert_hf(FactReader& facts) {
  begin_encoder(facts);
  facts.config.activation = GatedActivation::gelu_erf;
  facts.accept("rope_theta", "global_rope_theta");
  read_hf_decoder(facts, {.epsilon = "norm_eps", .defaults = {.epsilon = 1e-5F}});
  facts.config.norm_kind = NormKind::layer;
  facts.find_flag("norm_bias", "norm_bias", facts.config.norm_bias);
  read_hf_rope(facts, RopeStyle::halves, kGlobalTheta);
  add_local_rope(facts.config);
  for (const char* key : {"local_rope_theta", "rope_parameters.sliding_attention.rope_theta"}) {
    facts.find_number("windowed_rope_theta", key, facts.config.ropes[1].theta);
  }
  require_plain_rope(facts, "rope_parameters.sliding_attention.");
  read_modernbert_windows(facts);
  ignore_modernbert_training(facts);
  finish_modernbert(facts);
}

}  // namespace

Family modernbert_family() noexcept {
  static constexpr std::array kRows = {
      Architecture{.format = ModelFormat::gguf,
                   .name = "modern-bert",
                   .read = read_modernbert_gguf,
                   .names = &kGgufModernNames,
                   .is_encoder = true},
      Architecture{.format = ModelFormat::hf,
                   .name = "modernbert",
                   .read = read_modernbert_hf,
                   .names = &kHfModernNames,
                   .other_names = {&kHfOuterModernNames},
                   .is_encoder = true},
  };
  return kRows;
}

}  // namespace imp

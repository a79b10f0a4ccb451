// Gemma 3: q and k are normalized; five of six layers have a sliding window and a RoPE of their own.
#include <array>
#include <cmath>
#include <vector>

#include "model/arch/architecture.h"
#include "model/arch/encoder_facts.h"
#include "model/arch/gguf_facts.h"
#include "model/arch/gguf_names.h"
#include "model/arch/hf_facts.h"
#include "model/arch/hf_names.h"

namespace imp {
namespace {

constexpr TensorNames kHfInnerFourNormNames = hf_names_of_inner_model(kHfFourNormNames);
constexpr TensorNames kHfBareFourNormNames = hf_names_of_bare_decoder(kHfFourNormNames);
constexpr TensorNames kHfOuterFourNormNames = hf_names_of_outer_part(kHfFourNormNames);
// The RoPE of windowed layers has a higher frequency and is never scaled.
void add_windowed_rope(ModelConfig& config) {
  const RopeConfig& rope = config.ropes[0];
  config.ropes.push_back({.style = rope.style, .dims = rope.dims, .theta = 10000, .scaling = {}});
}

// Defaults for vision-language models, whose files have only the values that differ.
constexpr HfDefaults kGemma3Defaults = {.n_heads = 8, .n_kv_heads = 4, .context = 131072, .epsilon = 1e-6F};

// In all layers, within their windows.
void let_images_see_themselves(ModelConfig& config) {
  let_cells_see_ahead(config, std::vector<bool>(config.layers.size(), true));
}

// EmbeddingGemma is an encoder; the others read images.
void finish_sides(ModelConfig& config) {
  config.is_two_sided ? see_both_sides(config) : let_images_see_themselves(config);
}

void read_gemma3_gguf(FactReader& facts) {
  ModelConfig& config = facts.config;
  facts.config.activation = GatedActivation::gelu_tanh;
  read_gguf_decoder(facts);
  refuse_gguf_experts(facts);
  set_gemma(config);
  config.qk_norm = QkNorm::head;
  read_gguf_rope(facts, RopeStyle::halves, 1000000);
  add_windowed_rope(config);
  // Files written by Ollama name these keys "global" and "local".
  facts.find_number("rope_theta", "rope.global.freq_base", config.ropes[0].theta);
  for (const char* key : {"rope.freq_base_swa", "rope.local.freq_base"}) {
    facts.find_number("windowed_rope_theta", key, config.ropes[1].theta);
  }
  if (has_gguf_windows(facts)) read_gguf_windows(facts, {.window = 0, .period = 6, .rope = 1});
  finish_sides(config);
  facts.find_number("attention_soft_cap", "attn_logit_softcapping", config.attention_soft_cap);
  facts.find_number("logit_soft_cap", "final_logit_softcapping", config.logit_soft_cap);
  // The 27B model scales scores by hidden size per head. Files do not say so; only its depth identifies it.
  constexpr int kLayersOf27B = 62;
  if (config.n_layers == kLayersOf27B && !facts.has("attention.scale")) {
    config.attention_scale = 1 / std::sqrt(static_cast<float>(config.hidden_size) / static_cast<float>(config.n_heads));
  }
}

void read_gemma3_hf(FactReader& facts) {
  ModelConfig& config = facts.config;
  facts.config.activation = GatedActivation::gelu_tanh;
  if (facts.find_flag("use_bidirectional_attention")) begin_encoder(facts);
  read_hf_decoder(facts, {.head_dim = 256, .query_scalar = 256, .defaults = kGemma3Defaults});
  set_gemma(config);
  config.qk_norm = QkNorm::head;
  read_hf_rope(facts, RopeStyle::halves, 1000000);
  add_windowed_rope(config);
  for (const char* key : {"rope_local_base_freq", "rope_parameters.sliding_attention.rope_theta"}) {
    facts.find_number("windowed_rope_theta", key, config.ropes[1].theta);
  }
  facts.ignore("rope_parameters.sliding_attention.rope_type");  // never scaled
  read_hf_windows(facts, {.window = 4096, .period = 6, .rope = 1});
  finish_sides(config);
  // The key is left from Gemma 2, and transformers ignores it.
  if (facts.has("attn_logit_softcapping")) {
    facts.refuse(Reason::MODEL_UNSUPPORTED, "attn_logit_softcapping", "a number", "null");
  }
  read_hf_soft_cap(facts, "logit_soft_cap", "final_logit_softcapping", config.logit_soft_cap);
}

void read_gemma_embedding_gguf(FactReader& facts) {
  begin_encoder(facts);
  read_gemma3_gguf(facts);
}

}  // namespace

Family gemma3_family() noexcept {
  static constexpr std::array kRows = {
      Architecture{ModelFormat::gguf, "gemma3", read_gemma3_gguf, &kGgufNames},
      Architecture{.format = ModelFormat::gguf,
                   .name = "gemma-embedding",
                   .read = read_gemma_embedding_gguf,
                   .names = &kGgufNames,
                   .is_encoder = true},
      Architecture{ModelFormat::hf, "gemma3_text", read_gemma3_hf, &kHfFourNormNames, "", {&kHfBareFourNormNames}},
      Architecture{
          ModelFormat::hf, "gemma3", read_gemma3_hf, &kHfInnerFourNormNames, "text_config.", {&kHfOuterFourNormNames}},
  };
  return kRows;
}

}  // namespace imp

// Llama and models of the same structure.
#include <array>

#include "model/arch/architecture.h"
#include "model/arch/draft_heads.h"
#include "model/arch/gguf_facts.h"
#include "model/arch/gguf_names.h"
#include "model/arch/hf_facts.h"
#include "model/arch/hf_names.h"
#include "model/arch/llama.h"

namespace imp {

void read_llama_gguf(FactReader& facts) {
  read_gguf_decoder(facts);
  read_gguf_nextn(facts);
  // GGUF permutes the rows of q and k of this architecture, so that rotated pairs are adjacent.
  read_gguf_rope(facts, RopeStyle::adjacent, 10000);
  read_biases(facts);
  read_gguf_window(facts);
  if (has_gguf_experts(facts)) read_gguf_experts(facts, true);
}

void read_llama_base_hf(FactReader& facts, const HfTraits& traits) {
  read_hf_decoder(facts, traits);
  // Rows are permuted when they are read, as GGUF does: a model has the same bits from either format.
  read_hf_rope(facts, RopeStyle::adjacent, 10000);
  read_biases(facts);
}

namespace {

// The text part of Idefics3 and SmolVLM.
constexpr TensorNames kHfTextModelNames = [] {
  TensorNames names = kHfNames;
  names.embedding = "model.text_model.embed_tokens.weight";
  names.final_norm = "model.text_model.norm.weight";
  names.layer = "model.text_model.layers.";
  return names;
}();

void read_llama_hf(FactReader& facts) {
  read_llama_base_hf(facts, {});
}

// Files of larger models have only the values of their text part that differ from these.
constexpr HfDefaults kTextModelDefaults = {
    .n_layers = 32, .hidden_size = 4096, .ffn_size = 11008, .n_heads = 32, .context = 2048, .epsilon = 1e-6F};

void read_text_model_hf(FactReader& facts) {
  read_llama_base_hf(facts, {.defaults = kTextModelDefaults});
  for (const char* key : {"qk_layer_norms", "rope_interleaved"}) require_flag(facts, key, false);
  for (const char* key :
       {"_flash_attn_2_enabled", "is_llama_config", "neftune_noise_alpha", "pixel_shuffle_factor", "use_resampler"}) {
    facts.ignore(key);
  }
  for (const char* section : {"perceiver_config", "transformers.js_config"}) facts.ignore_section(section);
}

}  // namespace

Family llama_family() noexcept {
  static constexpr std::array kRows = {
      Architecture{ModelFormat::gguf, "llama", read_llama_gguf, &kGgufNames},
      Architecture{ModelFormat::hf, "llama", read_llama_hf, &kHfNames, "", {&kHfBareNames}},
      Architecture{ModelFormat::hf, "idefics3", read_text_model_hf, &kHfTextModelNames, "text_config."},
      Architecture{ModelFormat::hf, "smolvlm", read_text_model_hf, &kHfTextModelNames, "text_config."},
  };
  return kRows;
}

}  // namespace imp

// Llama and models of the same structure, with Mistral's sliding window and Mixtral's experts.
#include "model/arch/architecture.h"
#include "model/arch/draft_heads.h"
#include "model/arch/gguf_facts.h"
#include "model/arch/hf_facts.h"

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

void read_llama_hf(FactReader& facts) {
  read_llama_base_hf(facts, {});
}

void read_mistral_hf(FactReader& facts) {
  read_llama_base_hf(facts, {.defaults = {.n_kv_heads = 8}});
  constexpr int kWindow = 4096;
  read_hf_window(facts, kWindow);
}

void read_mixtral_hf(FactReader& facts) {
  read_hf_decoder(facts, {.defaults = {.n_kv_heads = 8}});
  read_hf_rope(facts, RopeStyle::adjacent, 1000000);
  read_hf_window(facts, 0);
  facts.config.experts.normalized = true;
  read_hf_experts(facts, "num_local_experts", "intermediate_size");
}

}  // namespace imp

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

void read_llama_hf(FactReader& facts) {
  read_llama_base_hf(facts, {});
}

}  // namespace

Family llama_family() noexcept {
  static constexpr std::array kRows = {
      Architecture{ModelFormat::gguf, "llama", read_llama_gguf, &kGgufNames},
      Architecture{ModelFormat::hf, "llama", read_llama_hf, &kHfNames},
  };
  return kRows;
}

}  // namespace imp

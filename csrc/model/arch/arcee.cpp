// Arcee: Llama with a feed-forward without a gate.
#include <array>

#include "model/arch/architecture.h"
#include "model/arch/gguf_facts.h"
#include "model/arch/gguf_names.h"
#include "model/arch/hf_facts.h"
#include "model/arch/hf_names.h"

namespace imp {
namespace {

void read_arcee_gguf(FactReader& facts) {
  read_gguf_decoder(facts);
  refuse_gguf_experts(facts);
  // GGUF permutes the rows of q and k of this architecture, so that rotated pairs are adjacent.
  read_gguf_rope(facts, RopeStyle::adjacent, 10000);
  read_biases(facts);
  facts.config.plain_activation = PlainActivation::relu_squared;
}

void read_arcee_hf(FactReader& facts) {
  facts.config.plain_activation = PlainActivation::relu_squared;
  read_hf_decoder(facts, {.has_gate = false});
  read_hf_rope(facts, RopeStyle::adjacent, 10000);
  read_biases(facts);
}

}  // namespace

Family arcee_family() noexcept {
  static constexpr std::array kRows = {
      Architecture{ModelFormat::gguf, "arcee", read_arcee_gguf, &kGgufNames},
      Architecture{ModelFormat::hf, "arcee", read_arcee_hf, &kHfNames},
  };
  return kRows;
}

}  // namespace imp

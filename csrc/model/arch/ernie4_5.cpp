// ERNIE 4.5 without experts: Llama whose checkpoints hold rotated pairs side by side.
#include <array>

#include "model/arch/architecture.h"
#include "model/arch/gguf_facts.h"
#include "model/arch/gguf_names.h"
#include "model/arch/hf_facts.h"
#include "model/arch/hf_names.h"

namespace imp {
namespace {

void read_ernie4_5_gguf(FactReader& facts) {
  read_gguf_decoder(facts);
  refuse_gguf_experts(facts);
  read_gguf_rope(facts, RopeStyle::adjacent, 500000);
  read_biases(facts);
}

void read_ernie4_5_hf(FactReader& facts) {
  read_hf_decoder(facts, {.head_dim = 128, .defaults = {.n_kv_heads = 2}});
  read_hf_rope(facts, RopeStyle::adjacent, 500000);
  read_biases(facts);
}

}  // namespace

Family ernie4_5_family() noexcept {
  static constexpr std::array kRows = {
      Architecture{ModelFormat::gguf, "ernie4_5", read_ernie4_5_gguf, &kGgufNames},
      Architecture{ModelFormat::hf, "ernie4_5", read_ernie4_5_hf, &kHfAdjacentNames},
  };
  return kRows;
}

}  // namespace imp

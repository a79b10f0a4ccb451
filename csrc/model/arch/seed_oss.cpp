// Seed-OSS: Qwen 2 with heads of a size of their own.
#include <array>

#include "model/arch/architecture.h"
#include "model/arch/gguf_facts.h"
#include "model/arch/gguf_names.h"
#include "model/arch/hf_facts.h"
#include "model/arch/hf_names.h"

namespace imp {
namespace {

void read_seed_oss_gguf(FactReader& facts) {
  read_gguf_decoder(facts);
  refuse_gguf_experts(facts);
  read_gguf_rope(facts, RopeStyle::halves, 10000000);
  read_biases(facts);
}

void read_seed_oss_hf(FactReader& facts) {
  read_hf_decoder(facts, {.head_dim = 128, .defaults = {.n_kv_heads = 8}});
  read_hf_rope(facts, RopeStyle::halves, 10000);
  read_biases(facts);
  facts.ignore("attention_out_bias");  // the tensors show it
}

}  // namespace

Family seed_oss_family() noexcept {
  static constexpr std::array kRows = {
      Architecture{ModelFormat::gguf, "seed_oss", read_seed_oss_gguf, &kGgufLateNormNames},
      Architecture{ModelFormat::hf, "seed_oss", read_seed_oss_hf, &kHfNames},
  };
  return kRows;
}

}  // namespace imp

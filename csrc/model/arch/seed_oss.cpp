// Seed-OSS: Qwen 2 with heads of a size of their own.
#include "model/arch/architecture.h"
#include "model/arch/gguf_facts.h"
#include "model/arch/hf_facts.h"

namespace imp {

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

}  // namespace imp

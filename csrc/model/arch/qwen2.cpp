// Qwen 2 and 2.5: biases on q, k and v.
#include "model/arch/architecture.h"
#include "model/arch/gguf_facts.h"
#include "model/arch/hf_facts.h"

namespace imp {

void read_qwen2_gguf(FactReader& facts) {
  read_gguf_decoder(facts);
  read_gguf_rope(facts, RopeStyle::halves, 10000);
  facts.config.qkv_bias = true;
}

void read_qwen2_hf(FactReader& facts) {
  read_hf_decoder(facts, kHfNames, 0);
  read_hf_rope(facts, RopeStyle::halves, 10000);
  refuse_optional_windows(facts);
  facts.config.qkv_bias = true;
}

}  // namespace imp

// Qwen 3: q and k are normalized, nothing has a bias.
#include "model/arch/architecture.h"
#include "model/arch/gguf_facts.h"
#include "model/arch/hf_facts.h"

namespace imp {

void read_qwen3_gguf(FactReader& facts) {
  read_gguf_decoder(facts);
  read_gguf_rope(facts, RopeStyle::halves, 10000);
  facts.config.qk_norm = true;
}

void read_qwen3_hf(FactReader& facts) {
  read_hf_decoder(facts, kHfNames, 128);
  read_hf_rope(facts, RopeStyle::halves, 10000);
  refuse_optional_windows(facts);
  facts.config.qk_norm = true;
}

}  // namespace imp

// Qwen 2 and 2.5: biases on q, k and v.
#include "model/arch/architecture.h"
#include "model/arch/decoder_facts.h"

namespace imp {

void read_qwen2(FactReader& facts) {
  read_decoder(facts);
  read_rope(facts, RopeStyle::halves, 10000);
  facts.config.qkv_bias = true;
}

}  // namespace imp

// Qwen 3: q and k are normalized, nothing has a bias.
#include "model/arch/architecture.h"
#include "model/arch/decoder_facts.h"

namespace imp {

void read_qwen3(FactReader& facts) {
  read_decoder(facts);
  read_rope(facts, RopeStyle::halves, 10000);
  facts.config.qk_norm = true;
}

}  // namespace imp

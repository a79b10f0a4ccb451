// Phi 3 and 4: one tensor for q, k and v, and one for gate and up. Some have LongRoPE, partial rotation or windows.
#include "model/arch/architecture.h"
#include "model/arch/gguf_facts.h"
#include "model/arch/hf_facts.h"

namespace imp {

void read_phi3_gguf(FactReader& facts) {
  read_gguf_decoder(facts);
  refuse_gguf_experts(facts);
  read_gguf_rope(facts, RopeStyle::halves, 10000);
  read_gguf_window(facts);
}

void read_phi3_hf(FactReader& facts) {
  read_hf_decoder(facts);
  read_hf_rope(facts, RopeStyle::halves, 10000);
  read_hf_window(facts, 0);
  for (const char* key : {"full_attn_mod", "interpolate_factor"}) require_integer(facts, key, 1);
}

}  // namespace imp

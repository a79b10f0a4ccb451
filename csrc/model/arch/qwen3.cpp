// Qwen 3: q and k are normalized; no biases. With or without experts.
#include "model/arch/architecture.h"
#include "model/arch/gguf_facts.h"
#include "model/arch/hf_facts.h"

namespace imp {

void read_qwen3_gguf(FactReader& facts) {
  read_gguf_decoder(facts);
  refuse_gguf_experts(facts);
  read_gguf_rope(facts, RopeStyle::halves, 10000);
  facts.config.qk_norm = true;
}

void read_qwen3_moe_gguf(FactReader& facts) {
  read_gguf_decoder(facts);
  read_gguf_rope(facts, RopeStyle::halves, 10000);
  read_gguf_experts(facts, true);
  facts.config.qk_norm = true;
}

void read_qwen3_hf(FactReader& facts) {
  read_hf_decoder(facts, kHfNames, 128);
  read_hf_rope(facts, RopeStyle::halves, 10000);
  refuse_optional_windows(facts);
  if (facts.has("use_qk_norm") && !facts.find_flag("use_qk_norm")) {
    facts.refuse(Reason::MODEL_UNSUPPORTED, "use_qk_norm", "false", "true");
  }
  facts.config.qk_norm = true;
}

void read_qwen3_moe_hf(FactReader& facts) {
  read_qwen3_hf(facts);
  // Files use both names.
  read_hf_experts(facts, facts.has("num_experts") ? "num_experts" : "num_local_experts", "moe_intermediate_size");
  facts.find_flag("expert_weights_normalized", "norm_topk_prob", facts.config.experts.normalized);
  refuse_dense_layers(facts);
}

}  // namespace imp

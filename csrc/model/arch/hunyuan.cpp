// Hunyuan dense: q and k are normalized after they are rotated.
#include <array>

#include "model/arch/architecture.h"
#include "model/arch/gguf_facts.h"
#include "model/arch/gguf_names.h"
#include "model/arch/hf_facts.h"
#include "model/arch/hf_names.h"

namespace imp {
namespace {

constexpr TensorNames kHfHunyuanNames = [] {
  TensorNames names = kHfNames;
  names.q_norm = "self_attn.query_layernorm";
  names.k_norm = "self_attn.key_layernorm";
  return names;
}();

void read_hunyuan_dense_gguf(FactReader& facts) {
  read_gguf_decoder(facts);
  refuse_gguf_experts(facts);
  read_gguf_rope(facts, RopeStyle::halves, 10000);
  read_biases(facts);
  facts.config.qk_norm = QkNorm::rotated_head;
}

void read_hunyuan_dense_hf(FactReader& facts) {
  read_hf_decoder(facts);
  read_hf_rope(facts, RopeStyle::halves, 10000);
  read_biases(facts);
  for (const char* key : {"use_qk_norm", "use_rotary_pos_emb"}) require_flag(facts, key, true);
  require_flag(facts, "use_cla", false);
  require_word(facts, "norm_type", "rms");
  require_integer(facts, "attention_head_dim", static_cast<std::uint64_t>(facts.config.head_dim));
  facts.config.qk_norm = QkNorm::rotated_head;
}

}  // namespace

Family hunyuan_family() noexcept {
  static constexpr std::array kRows = {
      Architecture{ModelFormat::gguf, "hunyuan-dense", read_hunyuan_dense_gguf, &kGgufNames},
      Architecture{ModelFormat::hf, "hunyuan_v1_dense", read_hunyuan_dense_hf, &kHfHunyuanNames},
  };
  return kRows;
}

}  // namespace imp

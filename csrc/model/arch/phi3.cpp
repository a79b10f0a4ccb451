// Phi 3 and 4: one tensor for q, k and v, and one for gate and up. Some have LongRoPE, partial rotation or windows.
#include <array>

#include "model/arch/architecture.h"
#include "model/arch/gguf_facts.h"
#include "model/arch/gguf_names.h"
#include "model/arch/hf_facts.h"
#include "model/arch/hf_names.h"

namespace imp {
namespace {

// Phi 3: one tensor for q, k and v, one for gate and up.
constexpr TensorNames kHfPhi3Names = [] {
  TensorNames names = kHfNames;
  names.qkv = "self_attn.qkv_proj";
  names.gate_up = "mlp.gate_up_proj";
  return names;
}();

constexpr TensorNames kGgufPhi3Names = [] {
  TensorNames names = kGgufNames;
  names.qkv = "attn_qkv";
  names.gate_up = "ffn_up";
  return names;
}();

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

}  // namespace

Family phi3_family() noexcept {
  static constexpr std::array kRows = {
      Architecture{ModelFormat::gguf, "phi3", read_phi3_gguf, &kGgufPhi3Names},
      Architecture{ModelFormat::hf, "phi3", read_phi3_hf, &kHfPhi3Names},
  };
  return kRows;
}

}  // namespace imp

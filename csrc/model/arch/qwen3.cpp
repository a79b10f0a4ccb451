// Qwen 3, and the decoder of Qwen 3 VL: q and k are normalized. With or without experts.
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "model/arch/architecture.h"
#include "model/arch/draft_heads.h"
#include "model/arch/gguf_facts.h"
#include "model/arch/gguf_names.h"
#include "model/arch/hf_facts.h"
#include "model/arch/hf_names.h"
#include "model/arch/qwen3_vl.h"

namespace imp {
namespace {

// Tensors with all experts, whose names have no suffix.
constexpr TensorNames kHfQwen3VlMoeNames = [] {
  TensorNames names = kHfNames;
  names.experts = "";
  names.expert_gate_up = "mlp.experts.gate_up_proj";
  names.expert_down = "mlp.experts.down_proj";
  names.stack_suffix = "";
  names.stack_bias_suffix = "_bias";
  names.stack_form = StackForm::either;
  return names;
}();

constexpr TensorNames kHfInnerQwen3VlMoeNames = hf_names_of_inner_model(kHfQwen3VlMoeNames);
constexpr TensorNames kHfOuterQwen3VlMoeNames = hf_names_of_outer_part(kHfQwen3VlMoeNames);
constexpr double kVisionTheta = 500000;
constexpr ImageAxes kQwen3VlAxes = {24, 20, 20};
constexpr HfTraits kQwen3 = {.head_dim = 128, .defaults = {.n_kv_heads = 32}};
constexpr HfTraits kQwen3Moe = {.defaults = {.n_kv_heads = 4}};
constexpr HfTraits kQwen3VisionMoe = {.defaults = {.n_kv_heads = 16}};

void read_qwen3_base_hf(FactReader& facts, const HfTraits& traits, double default_theta) {
  read_hf_decoder(facts, traits);
  read_hf_rope(facts, RopeStyle::halves, default_theta);
  read_biases(facts);
  require_flag(facts, "use_qk_norm", true);
  facts.config.qk_norm = QkNorm::head;
}

void read_hf_routing(FactReader& facts) {
  // Files use both names.
  read_hf_experts(facts, facts.has("num_experts") ? "num_experts" : "num_local_experts", "moe_intermediate_size");
  read_hf_dense_layers(facts);
}

void read_qwen3_gguf(FactReader& facts) {
  read_gguf_decoder(facts);
  read_gguf_nextn(facts);
  refuse_gguf_experts(facts);
  read_gguf_rope(facts, RopeStyle::halves, 10000);
  read_biases(facts);
  facts.config.qk_norm = QkNorm::head;
}

void read_qwen3_moe_gguf(FactReader& facts) {
  read_gguf_decoder(facts);
  read_gguf_rope(facts, RopeStyle::halves, 10000);
  read_gguf_experts(facts, true);
  read_biases(facts);
  facts.config.qk_norm = QkNorm::head;
}

void set_deepstack(FactReader& facts, std::string_view whole_key, std::uint64_t n_layers) {
  const auto most = static_cast<std::uint64_t>(facts.config.n_layers);
  if (n_layers > most) {
    facts.file().metadata().refuse_value(whole_key, std::to_string(n_layers),
                                         "at most the " + std::to_string(most) + " layers");
  }
  facts.config.n_deepstack_layers = static_cast<int>(n_layers);
  if (facts.file().metadata().contains(whole_key)) facts.note_key("n_deepstack_layers", whole_key);
}

// The file has a number for each of them: the layer of the tower whose output it adds.
void read_hf_vision(FactReader& facts) {
  read_hf_image_axes(facts, kQwen3VlAxes);
  const bool is_given = facts.file().metadata().contains(kHfDeepstackKey);
  set_deepstack(facts, kHfDeepstackKey,
                is_given ? facts.find_whole_integers(kHfDeepstackKey).size() : kHfDeepstackLayers.size());
}

void read_gguf_vision(FactReader& facts) {
  constexpr std::string_view kKey = "n_deepstack_layers";
  read_image_axes(facts, "rope.dimension_sections", kQwen3VlAxes);
  const std::string whole_key =
      std::string(facts.file().metadata().string("general.architecture")) + "." + std::string(kKey);
  set_deepstack(facts, whole_key, facts.find_integer(kKey).value_or(0));
}

void read_qwen3_vl_gguf(FactReader& facts) {
  read_qwen3_gguf(facts);
  read_gguf_vision(facts);
}

void read_qwen3_vl_moe_gguf(FactReader& facts) {
  read_qwen3_moe_gguf(facts);
  read_gguf_vision(facts);
}

void read_qwen3_hf(FactReader& facts) {
  read_qwen3_base_hf(facts, kQwen3, 10000);
  read_hf_windows_of_last(facts);
}

void read_qwen3_moe_hf(FactReader& facts) {
  read_qwen3_base_hf(facts, kQwen3Moe, 10000);
  read_hf_optional_window(facts, kHfWindow);
  read_hf_routing(facts);
  facts.find_flag("expert_weights_normalized", "norm_topk_prob", facts.config.experts.normalized);
}

void read_qwen3_vl_hf(FactReader& facts) {
  read_qwen3_base_hf(facts, kQwen3, kVisionTheta);
  ignore_hf_windows(facts);
  read_hf_vision(facts);
}

void read_qwen3_vl_moe_hf(FactReader& facts) {
  read_qwen3_base_hf(facts, kQwen3VisionMoe, kVisionTheta);
  ignore_hf_windows(facts);
  read_hf_routing(facts);
  facts.config.experts.normalized = true;
  facts.ignore("norm_topk_prob");  // transformers normalizes, whatever it says
  read_hf_vision(facts);
}

}  // namespace

Family qwen3_family() noexcept {
  static constexpr std::array kRows = {
      Architecture{ModelFormat::gguf, "qwen3", read_qwen3_gguf, &kGgufNames},
      Architecture{ModelFormat::gguf, "qwen3moe", read_qwen3_moe_gguf, &kGgufNames},
      Architecture{ModelFormat::gguf, "qwen3vl", read_qwen3_vl_gguf, &kGgufNames},
      Architecture{ModelFormat::gguf, "qwen3vlmoe", read_qwen3_vl_moe_gguf, &kGgufNames},
      Architecture{ModelFormat::hf, "qwen3", read_qwen3_hf, &kHfNames, "", {&kHfBareNames}},
      Architecture{ModelFormat::hf, "qwen3_moe", read_qwen3_moe_hf, &kHfNames},
      Architecture{ModelFormat::hf, "qwen3_vl", read_qwen3_vl_hf, &kHfInnerNames, "text_config.", {&kHfOuterNames}},
      Architecture{ModelFormat::hf,
                   "qwen3_vl_moe",
                   read_qwen3_vl_moe_hf,
                   &kHfInnerQwen3VlMoeNames,
                   "text_config.",
                   {&kHfOuterQwen3VlMoeNames}},
  };
  return kRows;
}

}  // namespace imp

// The list of architectures, one row each.
#include "model/arch/registry.h"

#include <array>

#include "base/printable.h"
#include "model/arch/gguf_names.h"
#include "model/arch/hf_names.h"
#include "model/arch/unsupported.h"

namespace imp {
namespace {

constexpr std::array kArchitectures = {
    Architecture{ModelFormat::gguf, "llama", read_llama_gguf, &kGgufNames},
    Architecture{ModelFormat::gguf, "qwen2", read_qwen2_gguf, &kGgufNames},
    Architecture{ModelFormat::gguf, "qwen2moe", read_qwen2_moe_gguf, &kGgufNames},
    Architecture{ModelFormat::gguf, "qwen3", read_qwen3_gguf, &kGgufNames},
    Architecture{ModelFormat::gguf, "qwen3moe", read_qwen3_moe_gguf, &kGgufNames},
    Architecture{ModelFormat::gguf, "qwen3vl", read_qwen3_vl_gguf, &kGgufNames},
    Architecture{ModelFormat::gguf, "qwen3vlmoe", read_qwen3_vl_moe_gguf, &kGgufNames},
    Architecture{ModelFormat::gguf, "qwen35", read_qwen35_gguf, &kGgufQwen35Names},
    Architecture{ModelFormat::gguf, "qwen35moe", read_qwen35_moe_gguf, &kGgufQwen35Names},
    Architecture{
        ModelFormat::gguf, "qwen3next", read_qwen3_next_gguf, &kGgufQwen3NextNames, "", {&kGgufFusedQwen3NextNames}},
    Architecture{ModelFormat::gguf, "gemma", read_gemma_gguf, &kGgufNames},
    Architecture{ModelFormat::gguf, "gemma2", read_gemma2_gguf, &kGgufNames},
    Architecture{ModelFormat::gguf, "gemma3", read_gemma3_gguf, &kGgufNames},
    Architecture{ModelFormat::gguf, "gemma4", read_gemma4_gguf, &kGgufNames},
    Architecture{ModelFormat::gguf, "mistral3", read_mistral3_gguf, &kGgufNames},
    Architecture{ModelFormat::gguf, "smollm3", read_smollm3_gguf, &kGgufNames},
    Architecture{ModelFormat::gguf, "olmo2", read_olmo2_gguf, &kGgufNames},
    Architecture{ModelFormat::gguf, "granite", read_granite_gguf, &kGgufNames},
    Architecture{ModelFormat::gguf, "granitemoe", read_granite_moe_gguf, &kGgufNames},
    Architecture{ModelFormat::gguf, "phi3", read_phi3_gguf, &kGgufPhi3Names},
    Architecture{ModelFormat::gguf, "exaone4", read_exaone4_gguf, &kGgufNames},
    Architecture{ModelFormat::gguf, "seed_oss", read_seed_oss_gguf, &kGgufLateNormNames},
    Architecture{ModelFormat::gguf, "hunyuan-dense", read_hunyuan_dense_gguf, &kGgufNames},
    Architecture{ModelFormat::gguf, "glm4", read_glm4_gguf, &kGgufGlm4Names},
    Architecture{ModelFormat::gguf, "ernie4_5", read_ernie4_5_gguf, &kGgufNames},
    Architecture{ModelFormat::gguf, "starcoder2", read_starcoder2_gguf, &kGgufNames},
    Architecture{ModelFormat::gguf, "command-r", read_command_r_gguf, &kGgufNames},
    Architecture{ModelFormat::gguf, "cohere2", read_cohere2_gguf, &kGgufNames},
    Architecture{ModelFormat::gguf, "arcee", read_arcee_gguf, &kGgufNames},
    Architecture{ModelFormat::gguf, "apertus", read_apertus_gguf, &kGgufNames},
    Architecture{ModelFormat::gguf, "gpt-oss", read_gpt_oss_gguf, &kGgufLateNormNames},
    Architecture{ModelFormat::hf, "llama", read_llama_hf, &kHfNames},
    Architecture{ModelFormat::hf, "mistral", read_mistral_hf, &kHfNames},
    Architecture{ModelFormat::hf, "ministral3", read_ministral3_hf, &kHfNames},
    Architecture{ModelFormat::hf, "mixtral", read_mixtral_hf, &kHfMixtralNames},
    Architecture{ModelFormat::hf, "qwen2", read_qwen2_hf, &kHfNames},
    Architecture{ModelFormat::hf, "mimo", read_mimo_hf, &kHfNames},
    Architecture{ModelFormat::hf, "qwen2_moe", read_qwen2_moe_hf, &kHfNames},
    Architecture{ModelFormat::hf, "qwen3", read_qwen3_hf, &kHfNames},
    Architecture{ModelFormat::hf, "qwen3_moe", read_qwen3_moe_hf, &kHfNames},
    Architecture{ModelFormat::hf, "qwen3_5_text", read_qwen3_5_hf, &kHfQwen35Names, "", {&kHfInnerQwen35Names}},
    Architecture{ModelFormat::hf,
                 "qwen3_5_moe_text",
                 read_qwen3_5_moe_hf,
                 &kHfQwen35Names,
                 "",
                 {&kHfQwen35StackNames, &kHfInnerQwen35StackNames, &kHfInnerQwen35Names}},
    Architecture{ModelFormat::hf, "qwen3_next", read_qwen3_next_hf, &kHfQwen3NextNames},
    Architecture{ModelFormat::hf, "gemma", read_gemma_hf, &kHfGemmaNames},
    Architecture{ModelFormat::hf, "gemma2", read_gemma2_hf, &kHfFourNormNames},
    Architecture{ModelFormat::hf, "gemma3_text", read_gemma3_hf, &kHfFourNormNames},
    Architecture{ModelFormat::hf, "gemma4_text", read_gemma4_hf, &kHfGemma4Names},
    Architecture{ModelFormat::hf, "gemma4_unified_text", read_gemma4_hf, &kHfGemma4Names},
    Architecture{ModelFormat::hf, "smollm3", read_smollm3_hf, &kHfNames},
    Architecture{ModelFormat::hf, "olmo2", read_olmo2_hf, &kHfPostNormNames},
    Architecture{ModelFormat::hf, "olmo3", read_olmo3_hf, &kHfPostNormNames},
    Architecture{ModelFormat::hf, "granite", read_granite_hf, &kHfNames},
    Architecture{ModelFormat::hf, "granitemoe", read_granite_moe_hf, &kHfGraniteMoeNames},
    Architecture{ModelFormat::hf, "granitemoeshared", read_granite_moe_hf, &kHfGraniteMoeNames},
    Architecture{ModelFormat::hf, "granitemoehybrid", read_granite_hybrid_hf, &kHfGraniteHybridNames},
    Architecture{ModelFormat::hf, "phi3", read_phi3_hf, &kHfPhi3Names},
    Architecture{ModelFormat::hf, "exaone4", read_exaone4_hf, &kHfPostNormNames},
    Architecture{ModelFormat::hf, "seed_oss", read_seed_oss_hf, &kHfNames},
    Architecture{ModelFormat::hf, "hunyuan_v1_dense", read_hunyuan_dense_hf, &kHfHunyuanNames},
    Architecture{ModelFormat::hf, "glm4", read_glm4_hf, &kHfGlm4Names},
    Architecture{ModelFormat::hf, "ernie4_5", read_ernie4_5_hf, &kHfAdjacentNames},
    Architecture{ModelFormat::hf, "starcoder2", read_starcoder2_hf, &kHfStarcoder2Names},
    Architecture{ModelFormat::hf, "cohere", read_cohere_hf, &kHfAdjacentNames},
    Architecture{ModelFormat::hf, "cohere2", read_cohere2_hf, &kHfAdjacentNames},
    Architecture{ModelFormat::hf, "arcee", read_arcee_hf, &kHfNames},
    Architecture{ModelFormat::hf, "apertus", read_apertus_hf, &kHfApertusNames},
    Architecture{ModelFormat::hf, "gpt_oss", read_gpt_oss_hf, &kHfGptOssNames},
    // Text parts of larger models.
    Architecture{ModelFormat::hf, "mistral3", read_mistral3_hf, &kHfInnerNames, "text_config.", {&kHfOuterNames}},
    Architecture{ModelFormat::hf, "qwen3_vl", read_qwen3_vl_hf, &kHfInnerNames, "text_config.", {&kHfOuterNames}},
    Architecture{ModelFormat::hf,
                 "qwen3_vl_moe",
                 read_qwen3_vl_moe_hf,
                 &kHfInnerQwen3VlMoeNames,
                 "text_config.",
                 {&kHfOuterQwen3VlMoeNames}},
    Architecture{ModelFormat::hf, "qwen3_5", read_qwen3_5_hf, &kHfInnerQwen35Names, "text_config.", {&kHfQwen35Names}},
    Architecture{ModelFormat::hf,
                 "qwen3_5_moe",
                 read_qwen3_5_moe_hf,
                 &kHfInnerQwen35StackNames,
                 "text_config.",
                 {&kHfInnerQwen35StackNames, &kHfInnerQwen35Names}},
    Architecture{
        ModelFormat::hf, "gemma3", read_gemma3_hf, &kHfInnerFourNormNames, "text_config.", {&kHfOuterFourNormNames}},
    Architecture{
        ModelFormat::hf, "gemma4", read_gemma4_hf, &kHfInnerGemma4Names, "text_config.", {&kHfOuterGemma4Names}},
    Architecture{ModelFormat::hf,
                 "gemma4_unified",
                 read_gemma4_hf,
                 &kHfInnerGemma4Names,
                 "text_config.",
                 {&kHfOuterGemma4Names}},
};

std::string known_names(ModelFormat format) {
  std::string names;
  for (const Architecture& known : kArchitectures) {
    if (known.format == format) names += (names.empty() ? "" : ", ") + std::string(known.name);
  }
  return names;
}

}  // namespace

std::span<const Architecture> all_architectures() noexcept {
  return kArchitectures;
}

const Architecture& architecture_of(const ModelFile& file) {
  // Random weights use the keys and names of GGUF.
  const ModelFormat format = file.format() == "safetensors" ? ModelFormat::hf : ModelFormat::gguf;
  const std::string_view name =
      file.metadata().string(format == ModelFormat::gguf ? "general.architecture" : "model_type");
  refuse_other_kinds(file);
  for (const Architecture& known : kArchitectures) {
    if (known.format == format && known.name == name) return known;
  }
  constexpr std::size_t kShown = 64;  // a name may be as long as its file
  throw ModelError(Reason::MODEL_UNSUPPORTED, file.metadata().where() + ": architecture " + printable(name, kShown) +
                                                  ": unknown, imp knows " + known_names(format));
}

}  // namespace imp

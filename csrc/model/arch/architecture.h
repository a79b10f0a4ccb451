// An architecture in one format: its name in checkpoints, the reader of its keys, and its tensor names.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "model/arch/fact_reader.h"
#include "model/arch/tensor_names.h"

namespace imp {

enum class ModelFormat : std::uint8_t { gguf, hf };

struct Architecture {
  ModelFormat format;
  std::string_view name;      // as checkpoints spell it
  void (*read)(FactReader&);  // fills in config and origins
  const TensorNames* names;
  // The section of the keys, if the architecture is the text part of a larger model.
  std::string_view section = "";
  // Alternative tensor names. A file uses the first of these lists whose `embedding` and `marker` tensors it has.
  std::array<const TensorNames*, 3> other_names = {};

  std::string key_prefix() const {
    return format == ModelFormat::gguf ? std::string(name) + "." : std::string(section);
  }
  // The list of names that the file uses.
  const TensorNames& names_in(const ModelFile& file) const {
    for (const TensorNames* others : other_names) {
      if (others == nullptr || file.find(others->embedding) == nullptr) continue;
      if (others->marker.empty() || file.find(others->marker) != nullptr) return *others;
    }
    return *names;
  }
};

// The readers, one file per family.
void read_llama_gguf(FactReader& facts);
void read_llama_hf(FactReader& facts);
void read_mistral_hf(FactReader& facts);
void read_mixtral_hf(FactReader& facts);
void read_mistral3_gguf(FactReader& facts);
void read_mistral3_hf(FactReader& facts);
void read_ministral3_hf(FactReader& facts);
void read_qwen2_gguf(FactReader& facts);
void read_qwen2_hf(FactReader& facts);
void read_mimo_hf(FactReader& facts);
void read_qwen2_moe_gguf(FactReader& facts);
void read_qwen2_moe_hf(FactReader& facts);
void read_qwen3_gguf(FactReader& facts);
void read_qwen3_hf(FactReader& facts);
void read_qwen3_moe_gguf(FactReader& facts);
void read_qwen3_moe_hf(FactReader& facts);
void read_qwen3_vl_gguf(FactReader& facts);
void read_qwen3_vl_hf(FactReader& facts);
void read_qwen3_vl_moe_gguf(FactReader& facts);
void read_qwen3_vl_moe_hf(FactReader& facts);
void read_qwen35_gguf(FactReader& facts);
void read_qwen35_moe_gguf(FactReader& facts);
void read_qwen3_next_gguf(FactReader& facts);
void read_qwen3_5_hf(FactReader& facts);
void read_qwen3_5_moe_hf(FactReader& facts);
void read_qwen3_next_hf(FactReader& facts);
void read_gemma_gguf(FactReader& facts);
void read_gemma_hf(FactReader& facts);
void read_gemma2_gguf(FactReader& facts);
void read_gemma2_hf(FactReader& facts);
void read_gemma3_gguf(FactReader& facts);
void read_gemma3_hf(FactReader& facts);
void read_gemma4_gguf(FactReader& facts);
void read_gemma4_hf(FactReader& facts);
void read_smollm3_gguf(FactReader& facts);
void read_smollm3_hf(FactReader& facts);
void read_olmo2_gguf(FactReader& facts);
void read_olmo2_hf(FactReader& facts);
void read_olmo3_hf(FactReader& facts);
void read_granite_gguf(FactReader& facts);
void read_granite_hf(FactReader& facts);
void read_granite_hybrid_hf(FactReader& facts);
void read_granite_moe_gguf(FactReader& facts);
void read_granite_moe_hf(FactReader& facts);
void read_phi3_gguf(FactReader& facts);
void read_phi3_hf(FactReader& facts);
void read_exaone4_gguf(FactReader& facts);
void read_exaone4_hf(FactReader& facts);
void read_seed_oss_gguf(FactReader& facts);
void read_seed_oss_hf(FactReader& facts);
void read_hunyuan_dense_gguf(FactReader& facts);
void read_hunyuan_dense_hf(FactReader& facts);
void read_glm4_gguf(FactReader& facts);
void read_glm4_hf(FactReader& facts);
void read_ernie4_5_gguf(FactReader& facts);
void read_ernie4_5_hf(FactReader& facts);
void read_starcoder2_gguf(FactReader& facts);
void read_starcoder2_hf(FactReader& facts);
void read_command_r_gguf(FactReader& facts);
void read_cohere_hf(FactReader& facts);
void read_cohere2_gguf(FactReader& facts);
void read_cohere2_hf(FactReader& facts);
void read_arcee_gguf(FactReader& facts);
void read_arcee_hf(FactReader& facts);
void read_apertus_gguf(FactReader& facts);
void read_apertus_hf(FactReader& facts);
void read_gpt_oss_gguf(FactReader& facts);
void read_gpt_oss_hf(FactReader& facts);

}  // namespace imp

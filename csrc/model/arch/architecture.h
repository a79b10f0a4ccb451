// An architecture in one format: its name in checkpoints, the reader of its keys, and its tensor names.
#pragma once

#include <cstdint>
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
};

// The readers, one file per family.
void read_llama_gguf(FactReader& facts);
void read_llama_hf(FactReader& facts);
void read_mistral_hf(FactReader& facts);
void read_mixtral_hf(FactReader& facts);
void read_qwen2_gguf(FactReader& facts);
void read_qwen2_hf(FactReader& facts);
void read_qwen2_moe_gguf(FactReader& facts);
void read_qwen2_moe_hf(FactReader& facts);
void read_qwen3_gguf(FactReader& facts);
void read_qwen3_hf(FactReader& facts);
void read_qwen3_moe_gguf(FactReader& facts);
void read_qwen3_moe_hf(FactReader& facts);
void read_gemma2_gguf(FactReader& facts);
void read_gemma2_hf(FactReader& facts);
void read_gemma3_gguf(FactReader& facts);
void read_gemma3_hf(FactReader& facts);

}  // namespace imp

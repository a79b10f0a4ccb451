// An architecture in one format: its name in checkpoints, the reader of its keys, and its tensor names.
#pragma once

#include <array>
#include <cstdint>
#include <span>
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
  bool is_encoder = false;  // it makes vectors of texts, and no text

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

// The rows of a family. Each family has one file: its names of tensors, its readers and its rows.
using Family = std::span<const Architecture>;

Family llama_family() noexcept;
Family qwen2_family() noexcept;
Family qwen3_family() noexcept;
Family qwen3_5_family() noexcept;
Family gemma_family() noexcept;
Family gemma2_family() noexcept;
Family gemma3_family() noexcept;
Family gemma4_family() noexcept;
Family mistral_family() noexcept;
Family smollm3_family() noexcept;
Family olmo2_family() noexcept;
Family granite_family() noexcept;
Family phi3_family() noexcept;
Family exaone4_family() noexcept;
Family seed_oss_family() noexcept;
Family hunyuan_family() noexcept;
Family glm4_family() noexcept;
Family ernie4_5_family() noexcept;
Family starcoder2_family() noexcept;
Family cohere_family() noexcept;
Family arcee_family() noexcept;
Family apertus_family() noexcept;
Family gpt_oss_family() noexcept;
Family bert_family() noexcept;
Family nomic_bert_family() noexcept;
Family modernbert_family() noexcept;

}  // namespace imp

// What an architecture is: a name that checkpoints give, a reader of their keys, and the names of their tensors.
#pragma once

#include <string_view>

#include "model/arch/fact_reader.h"
#include "model/arch/tensor_names.h"

namespace imp {

struct Architecture {
  std::string_view name;      // general.architecture
  void (*read)(FactReader&);  // fills in config and origins
  const TensorNames* names;
};

// The readers, one file each.
void read_llama(FactReader& facts);
void read_qwen2(FactReader& facts);
void read_qwen3(FactReader& facts);
void read_gemma2(FactReader& facts);
void read_gemma3(FactReader& facts);

}  // namespace imp

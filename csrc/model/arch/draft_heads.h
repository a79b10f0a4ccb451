// Finds and reads draft heads.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "files/model_file.h"
#include "model/arch/head_config.h"
#include "model/arch/tensor_names.h"
#include "model/config/model_config.h"

namespace imp {

class FactReader;

// A head that imp can run, or why it cannot.
struct OwnHead {
  std::optional<HeadConfig> config;
  std::string why_not;     // empty if there is a head, or no sign of one
  std::string first_name;  // of its tensors
};

// The head in a model's own file: NextN ("multi-token prediction" of DeepSeek V3), under the names of GGUF, MiMo or
// Qwen. A head of another kind never keeps its model from loading.
OwnHead find_nextn(const ModelFile& file, const TensorNames& names, const ModelConfig& target);

// The number of NextN layers at the end of a GGUF file's layers. Its tensors decide where the key says nothing.
void read_gguf_nextn(FactReader& facts);

// A head in a file or folder of its own. Throws ModelError.
HeadConfig read_head(const ModelFile& file, std::string_view target_architecture, const ModelConfig& target);

// The kinds of such heads: EAGLE-3, and Gemma 4's assistant.
HeadConfig read_eagle3(const ModelFile& file, const ModelConfig& target);
bool is_assistant(const ModelFile& file);
HeadConfig read_assistant(const ModelFile& file, std::string_view target_architecture, const ModelConfig& target);

// Why a head cannot read this target; empty if it can.
std::string why_no_head(const ModelConfig& target);

}  // namespace imp

// The list of architectures, one row each.
#include "model/arch/registry.h"

#include <array>

#include "base/printable.h"

namespace imp {
namespace {

constexpr std::array kArchitectures = {
    Architecture{ModelFormat::gguf, "llama", read_llama_gguf, &kGgufNames},
    Architecture{ModelFormat::gguf, "qwen2", read_qwen2_gguf, &kGgufNames},
    Architecture{ModelFormat::gguf, "qwen2moe", read_qwen2_moe_gguf, &kGgufNames},
    Architecture{ModelFormat::gguf, "qwen3", read_qwen3_gguf, &kGgufNames},
    Architecture{ModelFormat::gguf, "qwen3moe", read_qwen3_moe_gguf, &kGgufNames},
    Architecture{ModelFormat::gguf, "gemma2", read_gemma2_gguf, &kGgufNames},
    Architecture{ModelFormat::gguf, "gemma3", read_gemma3_gguf, &kGgufNames},
    Architecture{ModelFormat::hf, "llama", read_llama_hf, &kHfNames},
    Architecture{ModelFormat::hf, "mistral", read_mistral_hf, &kHfNames},
    Architecture{ModelFormat::hf, "mixtral", read_mixtral_hf, &kHfMixtralNames},
    Architecture{ModelFormat::hf, "qwen2", read_qwen2_hf, &kHfNames},
    Architecture{ModelFormat::hf, "qwen2_moe", read_qwen2_moe_hf, &kHfNames},
    Architecture{ModelFormat::hf, "qwen3", read_qwen3_hf, &kHfNames},
    Architecture{ModelFormat::hf, "qwen3_moe", read_qwen3_moe_hf, &kHfNames},
    Architecture{ModelFormat::hf, "gemma2", read_gemma2_hf, &kHfFourNormNames},
    Architecture{ModelFormat::hf, "gemma3_text", read_gemma3_hf, &kHfFourNormNames},
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
  for (const Architecture& known : kArchitectures) {
    if (known.format == format && known.name == name) return known;
  }
  constexpr std::size_t kShown = 64;  // a name may be as long as its file
  throw ModelError(Reason::MODEL_UNSUPPORTED, file.metadata().where() + ": architecture " + printable(name, kShown) +
                                                  ": unknown, imp knows " + known_names(format));
}

}  // namespace imp

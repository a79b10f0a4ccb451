// The list of architectures, one row each.
#include "model/arch/registry.h"

#include <array>

#include "base/printable.h"

namespace imp {
namespace {

constexpr std::array kArchitectures = {
    Architecture{"llama", read_llama, &kGgufNames},   Architecture{"qwen2", read_qwen2, &kGgufNames},
    Architecture{"qwen3", read_qwen3, &kGgufNames},   Architecture{"gemma2", read_gemma2, &kGgufNames},
    Architecture{"gemma3", read_gemma3, &kGgufNames},
};

std::string known_names() {
  std::string names;
  for (const Architecture& known : kArchitectures) names += (names.empty() ? "" : ", ") + std::string(known.name);
  return names;
}

}  // namespace

std::span<const Architecture> all_architectures() noexcept {
  return kArchitectures;
}

const Architecture& architecture_of(const ModelFile& file) {
  const std::string& where = file.metadata().where();
  // Random weights come under the keys and names of GGUF.
  if (file.format() != "gguf" && file.format() != "synthetic") {
    throw ModelError(Reason::MODEL_UNSUPPORTED,
                     where + ": format " + std::string(file.format()) + ": weights are read from gguf files");
  }
  const std::string_view name = file.metadata().string("general.architecture");
  for (const Architecture& known : kArchitectures) {
    if (known.name == name) return known;
  }
  constexpr std::size_t kShown = 64;  // a name can be as long as its file
  throw ModelError(Reason::MODEL_UNSUPPORTED,
                   where + ": architecture " + printable(name, kShown) + ": unknown, imp knows " + known_names());
}

}  // namespace imp

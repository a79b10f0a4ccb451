// The list of families, and the architecture of a file.
#include "model/arch/registry.h"

#include <array>
#include <vector>

#include "base/printable.h"
#include "model/arch/unsupported.h"

namespace imp {
namespace {

using FamilyOf = Family() noexcept;
constexpr std::array<FamilyOf*, 26> kFamilies = {
    llama_family,      qwen2_family,      qwen3_family,    qwen3_5_family, gemma_family,   gemma2_family,
    gemma3_family,     gemma4_family,     mistral_family,  smollm3_family, olmo2_family,   granite_family,
    phi3_family,       exaone4_family,    seed_oss_family, hunyuan_family, glm4_family,    ernie4_5_family,
    starcoder2_family, cohere_family,     arcee_family,    apertus_family, gpt_oss_family, bert_family,
    nomic_bert_family, modernbert_family,
};

std::vector<Architecture> rows_of_families() {
  std::vector<Architecture> rows;
  for (FamilyOf* const family_of : kFamilies) {
    const Family family = family_of();
    rows.insert(rows.end(), family.begin(), family.end());
  }
  return rows;
}

std::string known_names(ModelFormat format) {
  std::string names;
  for (const Architecture& known : all_architectures()) {
    if (known.format == format) names += (names.empty() ? "" : ", ") + std::string(known.name);
  }
  return names;
}

}  // namespace

std::span<const Architecture> all_architectures() {
  static const std::vector<Architecture> kRows = rows_of_families();
  return kRows;
}

const Architecture& architecture_of(const ModelFile& file) {
  // Random weights use the keys and names of GGUF.
  const ModelFormat format = file.format() == "safetensors" ? ModelFormat::hf : ModelFormat::gguf;
  const std::string_view name =
      file.metadata().string(format == ModelFormat::gguf ? "general.architecture" : "model_type");
  refuse_other_kinds(file);
  for (const Architecture& known : all_architectures()) {
    if (known.format != format || known.name != name) continue;
    refuse_other_tasks(file, known);
    return known;
  }
  constexpr std::size_t kShown = 64;  // a name may be as long as its file
  throw ModelError(Reason::MODEL_UNSUPPORTED, file.metadata().where() + ": architecture " + printable(name, kShown) +
                                                  ": unknown, imp knows " + known_names(format));
}

}  // namespace imp

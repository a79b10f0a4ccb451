// The list of families of towers, and the steps of resolution.
#include "model/arch/vision/resolve_vision.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>
#include <variant>

#include "base/error.h"
#include "base/printable.h"
#include "model/arch/resolve.h"
#include "model/config/validate.h"

namespace imp {
namespace {

using VisionFamilyOf = VisionFamily() noexcept;
constexpr std::array<VisionFamilyOf*, 4> kVisionFamilies = {gemma3_vision, gemma4_vision, idefics3_vision,
                                                            qwen3_vl_vision};

ModelFormat format_of(const ModelFile& file) noexcept {
  return file.format() == "safetensors" ? ModelFormat::hf : ModelFormat::gguf;
}

bool has_patches(const ModelFile& file, const VisionArchitecture& known) {
  return file.find(std::string(known.tensors.patches) + ".weight") != nullptr;
}

// The first of the rows with this name that is wanted; null: none is.
template <class IsWanted>
const VisionArchitecture* find_row(ModelFormat format, std::string_view name, const IsWanted& is_wanted) {
  for (VisionFamilyOf* const family_of : kVisionFamilies) {
    for (const VisionArchitecture& known : family_of()) {
      if (known.format == format && known.name == name && is_wanted(known)) return &known;
    }
  }
  return nullptr;
}

// Of the rows with this name, that whose tensors the file has, or the first one.
const VisionArchitecture* find_family(const ModelFile& file, ModelFormat format, std::string_view name) {
  const auto has_its_patches = [&file](const VisionArchitecture& known) { return has_patches(file, known); };
  const VisionArchitecture* const found = find_row(format, name, has_its_patches);
  return found != nullptr ? found : find_row(format, name, [](const VisionArchitecture&) { return true; });
}

// Rows of a family that have the same name follow each other.
std::string known_families(ModelFormat format) {
  std::string names;
  std::string_view last;
  for (VisionFamilyOf* const family_of : kVisionFamilies) {
    for (const VisionArchitecture& known : family_of()) {
      if (known.format != format || known.name == last) continue;
      names += (names.empty() ? "" : ", ") + std::string(known.name);
      last = known.name;
    }
  }
  return names;
}

[[noreturn]] void refuse(const Metadata& metadata, std::string_view key, std::string_view found,
                         std::string_view expected) {
  throw ModelError(Reason::MODEL_UNSUPPORTED, metadata.where() + ": key " + std::string(key) + ": " + printable(found) +
                                                  ", expected " + std::string(expected));
}

// The key that names the family.
std::string_view family_key(const Metadata& metadata, ModelFormat format) {
  if (format == ModelFormat::hf) return "model_type";
  constexpr std::string_view kArchitecture = "general.architecture";
  const std::string_view architecture = metadata.string(kArchitecture);
  if (architecture != "clip") refuse(metadata, kArchitecture, architecture, "clip, the kind of a projector (mmproj)");
  constexpr std::string_view kHasVision = "clip.has_vision_encoder";
  if (!metadata.find_boolean(kHasVision).value_or(false)) refuse(metadata, kHasVision, "false", "true");
  constexpr std::string_view kOfVision = "clip.vision.projector_type";
  return metadata.contains(kOfVision) ? kOfVision : "clip.projector_type";
}

const VisionArchitecture& architecture_of_tower(const ModelFile& file) {
  const Metadata& metadata = file.metadata();
  const ModelFormat format = format_of(file);
  const std::string_view key = family_key(metadata, format);
  const std::string_view name = metadata.string(key);
  if (const VisionArchitecture* known = find_family(file, format, name)) return *known;
  refuse(metadata, key, name, "one of " + known_families(format));
}

// Products with weights of bfloat16 round what they read to that type. So they round the inputs and the outputs of
// attention anyway, and a cache of bfloat16 adds less than a tenth to the error of the cells.
void choose_cache_type_of_tower(FactReader& facts) {
  choose_cache_type(facts);
  if (is_mostly(facts.file(), [](DType type) { return type == DType::BF16; })) {
    facts.config.kv_types = {KvType::bf16, KvType::bf16};
  }
}

void check_grid(const ModelFile& file, const VisionConfig& config) {
  const int a_side = config.tile_size / config.patch_size;
  if (a_side > 0 && a_side % config.reduced_side == 0) return;
  throw ModelError(file.metadata().wrong_value(),
                   file.metadata().where() + ": a tile of " + std::to_string(config.tile_size) + " pixels a side has " +
                       std::to_string(a_side) + " patches of " + std::to_string(config.patch_size) +
                       ", expected a multiple of " + std::to_string(config.reduced_side) + ", which become one cell");
}

}  // namespace

bool has_vision(const ModelFile& file) noexcept {
  const MetadataValue* type = file.metadata().find("model_type");
  const auto* name = type != nullptr ? std::get_if<std::string>(&type->value) : nullptr;
  if (format_of(file) != ModelFormat::hf || name == nullptr) return false;
  const auto owns_some = [&file](const VisionArchitecture& known) {
    return std::ranges::any_of(file.tensors(), [&](const TensorInfo& tensor) { return known.owns(tensor.name); });
  };
  return find_row(ModelFormat::hf, *name, owns_some) != nullptr;
}

ResolvedVision resolve_vision(const ModelFile& file, int most_cells) {
  const VisionArchitecture& architecture = architecture_of_tower(file);
  const std::string_view prefix = architecture.format == ModelFormat::gguf ? "clip.vision." : "vision_config.";
  VisionFacts vision{.facts = FactReader(file, prefix, *architecture.names), .config = {}};
  vision.config.names = *architecture.names;
  vision.config.tensors = architecture.tensors;
  vision.config.max_cells = most_cells;
  choose_cache_type_of_tower(vision.facts);
  architecture.read(vision);
  if (vision.config.has_one_size()) check_grid(file, vision.config);
  vision.facts.config.trained_context = vision.facts.config.max_context = vision.config.max_part_patches();
  validate_layers(vision.facts.config, vision.facts.origins, file.metadata().where(), file.metadata().wrong_value());

  ResolvedVision resolved;
  resolved.architecture = &architecture;
  resolved.read_tensors = vision.facts.read_tensors();
  resolved.omitted_sizes = vision.facts.omitted();
  resolved.config = std::move(vision.config);
  resolved.config.layers = std::move(vision.facts.config);
  for (const std::string& key : vision.facts.unread_keys()) resolved.warnings.push_back(not_understood(key));
  return resolved;
}

}  // namespace imp

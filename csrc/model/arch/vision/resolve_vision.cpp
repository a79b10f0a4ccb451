// The list of families of towers, and the steps of resolution.
#include "model/arch/vision/resolve_vision.h"

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
constexpr std::array<VisionFamilyOf*, 1> kVisionFamilies = {idefics3_vision};

ModelFormat format_of(const ModelFile& file) noexcept {
  return file.format() == "safetensors" ? ModelFormat::hf : ModelFormat::gguf;
}

const VisionArchitecture* find_family(ModelFormat format, std::string_view name) noexcept {
  for (VisionFamilyOf* const family_of : kVisionFamilies) {
    for (const VisionArchitecture& known : family_of()) {
      if (known.format == format && known.name == name) return &known;
    }
  }
  return nullptr;
}

std::string known_families(ModelFormat format) {
  std::string names;
  for (VisionFamilyOf* const family_of : kVisionFamilies) {
    for (const VisionArchitecture& known : family_of()) {
      if (known.format == format) names += (names.empty() ? "" : ", ") + std::string(known.name);
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
  if (const VisionArchitecture* known = find_family(format, name)) return *known;
  refuse(metadata, key, name, "one of " + known_families(format));
}

void check_grid(const ModelFile& file, const VisionConfig& config) {
  if (config.patches_a_side() > 0 && config.patches_a_side() % config.shuffle == 0) return;
  throw ModelError(file.metadata().wrong_value(),
                   file.metadata().where() + ": a tile of " + std::to_string(config.tile_size) + " pixels a side has " +
                       std::to_string(config.patches_a_side()) + " patches of " + std::to_string(config.patch_size) +
                       ", expected a multiple of " + std::to_string(config.shuffle) + ", which become one cell");
}

}  // namespace

bool has_vision(const ModelFile& file) noexcept {
  const MetadataValue* type = file.metadata().find("model_type");
  const auto* name = type != nullptr ? std::get_if<std::string>(&type->value) : nullptr;
  return format_of(file) == ModelFormat::hf && name != nullptr && find_family(ModelFormat::hf, *name) != nullptr;
}

ResolvedVision resolve_vision(const ModelFile& file) {
  const VisionArchitecture& architecture = architecture_of_tower(file);
  const std::string_view prefix = architecture.format == ModelFormat::gguf ? "clip.vision." : "vision_config.";
  VisionFacts vision{.facts = FactReader(file, prefix, *architecture.names), .config = {}};
  vision.config.names = *architecture.names;
  vision.config.tensors = architecture.tensors;
  architecture.read(vision);
  check_grid(file, vision.config);
  validate_layers(vision.facts.config, vision.facts.origins, file.metadata().where(), file.metadata().wrong_value());
  choose_cache_type(vision.facts);

  ResolvedVision resolved;
  resolved.architecture = &architecture;
  resolved.omitted_sizes = vision.facts.omitted();
  resolved.config = std::move(vision.config);
  resolved.config.layers = std::move(vision.facts.config);
  for (const std::string& key : vision.facts.unread_keys()) resolved.warnings.push_back(not_understood(key));
  return resolved;
}

}  // namespace imp

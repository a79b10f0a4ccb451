// Reads sizes of towers, and how images become tiles.
#include "model/arch/vision/tower_facts.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "files/json_metadata.h"
#include "model/arch/decoder_facts.h"
#include "model/config/model_limits.h"
#include "model/config/number_text.h"

namespace imp {
namespace {

std::array<float, 3> read_colours(const Metadata& metadata, const std::string& key) {
  const std::vector<float> found = metadata.numbers(key);
  std::array<float, 3> colours;
  if (found.size() != colours.size()) {
    metadata.refuse_value(key, std::to_string(found.size()) + " values", "3, one for each colour");
  }
  for (const float value : found) {
    if (!std::isfinite(value)) metadata.refuse_value(key, number_text(value), "a finite number");
  }
  std::ranges::copy(found, colours.begin());
  return colours;
}

void read_mean_and_deviation(const Metadata& metadata, const std::string& prefix, VisionConfig& config) {
  config.mean = read_colours(metadata, prefix + "image_mean");
  const std::string key = prefix + "image_std";
  config.deviation = read_colours(metadata, key);
  for (const float value : config.deviation) {
    if (value <= 0) metadata.refuse_value(key, number_text(value), "numbers above 0");
  }
}

int read_side(const Metadata& metadata, const std::string& key) {
  const auto side = metadata.integer<std::int64_t>(key);
  if (side < 1 || side > model_limits::kImageSide) {
    metadata.refuse_value(key, std::to_string(side), "1 to " + std::to_string(model_limits::kImageSide));
  }
  return static_cast<int>(side);
}

void require_true(const Metadata& metadata, const std::string& key) {
  if (!metadata.find_boolean(key).value_or(true)) metadata.refuse_value(key, "false", "true");
}

// How images are read, and the prefix of its keys.
struct ImageProcessor {
  Metadata metadata;
  std::string prefix;
};

ImageProcessor read_image_processor(const ModelFile& file) {
  constexpr std::string_view kSection = "image_processor.";
  const auto is_inside = [&](const auto& entry) { return entry.first.starts_with(kSection); };
  if (auto whole = find_json_beside(file.path(), "processor_config.json")) {
    if (std::ranges::any_of(whole->entries(), is_inside)) return {std::move(*whole), std::string(kSection)};
  }
  if (auto own = find_json_beside(file.path(), "preprocessor_config.json")) return {std::move(*own), ""};
  throw ModelError(Reason::MODEL_MISSING,
                   file.name() + ": has no preprocessor_config.json beside it, which says how images are read");
}

}  // namespace

void read_gguf_tower(VisionFacts& vision) {
  FactReader& facts = vision.facts;
  ModelConfig& layers = facts.config;
  VisionConfig& config = vision.config;
  facts.count("n_layers", "block_count", model_limits::kLayers, layers.n_layers);
  facts.count("hidden_size", "embedding_length", model_limits::kHidden, layers.hidden_size);
  facts.count("ffn_size", "feed_forward_length", model_limits::kFfn, layers.ffn_size);
  facts.count("n_heads", "attention.head_count", model_limits::kHeads, layers.n_heads);
  facts.number("norm_epsilon", "attention.layer_norm_epsilon", layers.norm_epsilon);
  facts.count("tile_size", "image_size", model_limits::kTileSide, config.tile_size);
  facts.count("patch_size", "patch_size", model_limits::kTileSide, config.patch_size);
  facts.count("width", "projection_dim", model_limits::kHidden, config.width);
  read_mean_and_deviation(facts.file().metadata(), "clip.vision.", config);
  for (const char* key : {"image_mean", "image_std", "projector_type"}) facts.ignore(key);
}

void read_hf_tower(VisionFacts& vision, const HfTowerDefaults& defaults) {
  FactReader& facts = vision.facts;
  ModelConfig& layers = facts.config;
  VisionConfig& config = vision.config;
  const auto count = [&](std::string_view field, std::string_view key, std::int64_t limit, int by_default, int& out) {
    out = by_default;
    if (!facts.find_count(field, key, limit, out)) facts.note_omitted(key, out);
  };
  count("n_layers", "num_hidden_layers", model_limits::kLayers, defaults.n_layers, layers.n_layers);
  count("hidden_size", "hidden_size", model_limits::kHidden, defaults.hidden_size, layers.hidden_size);
  count("ffn_size", "intermediate_size", model_limits::kFfn, defaults.ffn_size, layers.ffn_size);
  count("n_heads", "num_attention_heads", model_limits::kHeads, defaults.n_heads, layers.n_heads);
  count("tile_size", "image_size", model_limits::kTileSide, defaults.tile_size, config.tile_size);
  count("patch_size", "patch_size", model_limits::kTileSide, defaults.patch_size, config.patch_size);
  layers.norm_epsilon = defaults.epsilon;
  facts.find_number("norm_epsilon", "layer_norm_eps", layers.norm_epsilon);
  config.width = defaults.width;
  FactReader(facts.file(), "text_config.", facts.names())
      .find_count("width", "hidden_size", model_limits::kHidden, config.width);
}

void set_siglip(VisionFacts& vision) {
  ModelConfig& layers = vision.facts.config;
  const ModelFile& file = vision.facts.file();
  if (layers.hidden_size % layers.n_heads != 0) {
    throw ModelError(file.metadata().wrong_value(),
                     file.metadata().where() + ": the tower has " + std::to_string(layers.n_heads) +
                         " heads, expected a divisor of its width " + std::to_string(layers.hidden_size));
  }
  layers.n_kv_heads = layers.n_heads;
  layers.head_dim = layers.hidden_size / layers.n_heads;
  layers.attention_scale = 1 / std::sqrt(static_cast<float>(layers.head_dim));
  layers.norm_kind = NormKind::layer;
  for (bool* has_bias : {&layers.norm_bias, &layers.qkv_bias, &layers.output_bias, &layers.ffn_bias}) *has_bias = true;
  layers.plain_activation = PlainActivation::gelu_tanh;
  layers.trained_context = layers.max_context = vision.config.n_patches();
  add_layers(layers);
  for (LayerConfig& layer : layers.layers) {
    layer.rope = kNoRope;
    layer.ahead = kAllAhead;
    layer.kv = 0;
  }
}

void read_hf_images(VisionFacts& vision) {
  const auto [metadata, prefix] = read_image_processor(vision.facts.file());
  VisionConfig& config = vision.config;
  read_mean_and_deviation(metadata, prefix, config);
  for (const char* key : {"do_convert_rgb", "do_resize", "do_rescale", "do_normalize", "do_image_splitting"}) {
    require_true(metadata, prefix + key);
  }
  constexpr int kLanczos = 1;
  const std::string resample = prefix + "resample", rescale = prefix + "rescale_factor";
  if (const int found = metadata.find_integer<int>(resample).value_or(kLanczos); found != kLanczos) {
    metadata.refuse_value(resample, std::to_string(found), std::to_string(kLanczos) + ", Lanczos' filter");
  }
  constexpr float kToOne = 1.0F / 255;
  if (const float found = metadata.find_number(rescale).value_or(kToOne); found != kToOne) {
    metadata.refuse_value(rescale, number_text(found), number_text(kToOne));
  }
  config.longest_side = read_side(metadata, prefix + "size.longest_edge");
  const std::string tile = prefix + "max_image_size.longest_edge";
  if (const int found = read_side(metadata, tile); found != config.tile_size) {
    metadata.refuse_value(tile, std::to_string(found), std::to_string(config.tile_size) + ", the tower's image_size");
  }
}

}  // namespace imp

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

void require_flag(const Metadata& metadata, const std::string& key, bool flag = true) {
  if (metadata.find_boolean(key).value_or(flag) == flag) return;
  metadata.refuse_value(key, flag ? "false" : "true", flag ? "true" : "false");
}

ImageProcessor read_image_processor(const ModelFile& file) {
  constexpr std::string_view kSection = "image_processor.";
  const auto is_inside = [&](const auto& entry) { return entry.first.starts_with(kSection); };
  if (auto whole = find_json_beside(file.path(), "processor_config.json")) {
    if (std::ranges::any_of(whole->entries(), is_inside)) return {std::move(*whole), std::string(kSection)};
  }
  if (auto own = find_json_beside(file.path(), "preprocessor_config.json")) return {std::move(*own), ""};
  throw ModelError(Reason::MODEL_MISSING,
                   file.name() + ": has no preprocessor_config.json beside it, which says how images are read; with " +
                       "model.vision = false the model is loaded without its tower");
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

void read_hf_size(FactReader& facts, std::string_view field, const HfSize& size, std::int64_t limit, int& out) {
  out = size.by_default;
  if (!facts.find_count(field, size.key, limit, out)) facts.note_omitted(size.key, out);
}

void read_hf_sizes(VisionFacts& vision, const HfTowerSizes& sizes) {
  FactReader& facts = vision.facts;
  ModelConfig& layers = facts.config;
  read_hf_size(facts, "n_layers", sizes.n_layers, model_limits::kLayers, layers.n_layers);
  read_hf_size(facts, "hidden_size", sizes.hidden_size, model_limits::kHidden, layers.hidden_size);
  read_hf_size(facts, "ffn_size", sizes.ffn_size, model_limits::kFfn, layers.ffn_size);
  read_hf_size(facts, "n_heads", sizes.n_heads, model_limits::kHeads, layers.n_heads);
  read_hf_size(facts, "patch_size", sizes.patch_size, model_limits::kTileSide, vision.config.patch_size);
}

void read_hf_width(VisionFacts& vision, int by_default) {
  vision.config.width = by_default;
  FactReader(vision.facts.file(), "text_config.", vision.facts.names())
      .find_count("width", "hidden_size", model_limits::kHidden, vision.config.width);
}

void set_heads_of_width(FactReader& facts) {
  ModelConfig& layers = facts.config;
  const ModelFile& file = facts.file();
  if (layers.hidden_size % layers.n_heads != 0) {
    throw ModelError(file.metadata().wrong_value(),
                     file.metadata().where() + ": the tower has " + std::to_string(layers.n_heads) +
                         " heads, expected a divisor of its width " + std::to_string(layers.hidden_size));
  }
  layers.n_kv_heads = layers.n_heads;
  layers.head_dim = layers.hidden_size / layers.n_heads;
}

void add_tower_layers(ModelConfig& layers) {
  add_layers(layers);
  for (LayerConfig& layer : layers.layers) {
    layer.rope = kNoRope;
    layer.ahead = kAllAhead;
    layer.kv = 0;
  }
}

void rotate_by_places(ModelConfig& layers, double theta, Axis first) {
  const auto n_pairs = static_cast<std::size_t>(layers.head_dim / 2);
  const auto plane = static_cast<std::uint8_t>(first);
  RopeConfig rope = {.dims = layers.head_dim, .theta = theta, .scaling = {}, .is_axial = true};
  rope.planes.assign(n_pairs, 1 - plane);
  std::fill_n(rope.planes.begin(), n_pairs / 2, plane);
  layers.ropes = {rope};
  for (LayerConfig& layer : layers.layers) layer.rope = 0;
}

void set_siglip(VisionFacts& vision) {
  ModelConfig& layers = vision.facts.config;
  set_heads_of_width(vision.facts);
  layers.attention_scale = 1 / std::sqrt(static_cast<float>(layers.head_dim));
  layers.norm_kind = NormKind::layer;
  for (bool* has_bias : {&layers.norm_bias, &layers.qkv_bias, &layers.output_bias, &layers.ffn_bias}) *has_bias = true;
  layers.plain_activation = PlainActivation::gelu_tanh;
  add_tower_layers(layers);
}

void require_gelu_tanh(const ModelFile& file) {
  constexpr std::string_view kGelu = "clip.use_gelu";
  const Metadata& metadata = file.metadata();
  if (metadata.find_boolean(kGelu).value_or(false)) return;
  throw ModelError(Reason::MODEL_UNSUPPORTED,
                   metadata.where() + ": key " + std::string(kGelu) + ": false, expected true");
}

ImageProcessor read_hf_images(VisionFacts& vision, const ImageFilter& filter, bool is_normalized) {
  ImageProcessor processor = read_image_processor(vision.facts.file());
  const auto& [metadata, prefix] = processor;
  if (is_normalized) {
    read_mean_and_deviation(metadata, prefix, vision.config);
  } else {
    vision.config.mean.fill(0);
    vision.config.deviation.fill(1);
  }
  require_flag(metadata, prefix + "do_normalize", is_normalized);
  for (const char* key : {"do_convert_rgb", "do_resize", "do_rescale"}) require_flag(metadata, prefix + key);
  const std::string resample = prefix + "resample", rescale = prefix + "rescale_factor";
  if (const int found = metadata.find_integer<int>(resample).value_or(filter.number); found != filter.number) {
    metadata.refuse_value(resample, std::to_string(found),
                          std::to_string(filter.number) + ", " + std::string(filter.name));
  }
  constexpr float kToOne = 1.0F / 255;
  if (const float found = metadata.find_number(rescale).value_or(kToOne); found != kToOne) {
    metadata.refuse_value(rescale, number_text(found), number_text(kToOne));
  }
  return processor;
}

void read_hf_tiles(VisionFacts& vision) {
  const auto [metadata, prefix] = read_hf_images(vision, kLanczos);
  VisionConfig& config = vision.config;
  require_flag(metadata, prefix + "do_image_splitting");
  config.longest_side = read_side(metadata, prefix + "size.longest_edge");
  const std::string tile = prefix + "max_image_size.longest_edge";
  if (const int found = read_side(metadata, tile); found != config.tile_size) {
    metadata.refuse_value(tile, std::to_string(found), std::to_string(config.tile_size) + ", the tower's image_size");
  }
}

}  // namespace imp

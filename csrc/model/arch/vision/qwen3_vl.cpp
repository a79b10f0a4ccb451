// Qwen 3 VL, 3.5 and 3.6: patches rotate by row and column, squares of four become one cell. Qwen 3 VL also makes cells
// from the outputs of some layers before the last ("DeepStack: Deeply Stacking Visual Tokens").
#include <algorithm>
#include <array>
#include <cmath>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "model/arch/hf_facts.h"
#include "model/arch/qwen3_vl.h"
#include "model/arch/vision/tower_facts.h"
#include "model/config/model_limits.h"

namespace imp {
namespace {

constexpr int kMerge = 2, kFrames = 2;

constexpr TensorNames kGgufQwenNames = {
    .final_norm = "v.post_ln.weight",
    .layer = "v.blk.",
    .attention_norm = "ln1",
    .qkv = "attn_qkv",
    .output = "attn_out",
    .ffn_norm = "ln2",
    .up = "ffn_up",
    .down = "ffn_down",
};

constexpr TensorNames kHfQwenNames = {
    .final_norm = "model.visual.merger.norm.weight",
    .layer = "model.visual.blocks.",
    .attention_norm = "norm1",
    .qkv = "attn.qkv",
    .output = "attn.proj",
    .ffn_norm = "norm2",
    .up = "mlp.linear_fc1",
    .down = "mlp.linear_fc2",
};

constexpr VisionTensors kGgufQwenTensors = {
    .patches = "v.patch_embd", .second_frame = "v.patch_embd.weight.1", .positions = "v.position_embd.weight"};

constexpr VisionTensors kHfQwenTensors = {.patches = "model.visual.patch_embed.proj",
                                          .positions = "model.visual.pos_embed.weight"};

// The sizes of all: LayerNorm and two products for each slice of a cell. The first slice is made behind the norm of the
// last layer, which is its own; each other one normalizes the square of patches.
void set_tower(VisionFacts& vision, double theta, std::string first, std::string second) {
  VisionConfig& config = vision.config;
  config.sizing = ImageSizing::range;
  config.reduced_side = kMerge;
  config.frames = kFrames;
  set_siglip(vision);
  rotate_by_places(vision.facts.config, theta, Axis::row);
  config.projectors.push_back({.layer = vision.facts.config.n_layers - 1,
                               .norm = {},
                               .first = std::move(first),
                               .second = std::move(second),
                               .has_bias = true});
}

// `at` begins the names of its tensors.
void add_tap(VisionFacts& vision, int layer, const std::string& at, std::string_view first, std::string_view second) {
  const CellNorm norm = {
      .kind = NormKind::layer, .epsilon = vision.facts.config.norm_epsilon, .tensor = at + "norm", .has_bias = true};
  vision.config.projectors.push_back({.layer = layer,
                                      .norm = norm,
                                      .first = at + std::string(first),
                                      .second = at + std::string(second),
                                      .has_bias = true});
}

// The files have the width of a slice, which is that of the decoder's rows.
void set_width(VisionConfig& config) {
  config.width *= static_cast<int>(config.projectors.size());
}

std::string layer_text(int layer) {
  return "layer " + std::to_string(layer);
}

void check_tap(const FactReader& facts, std::string_view key, int layer, int after) {
  const int n_layers = facts.config.n_layers;
  if (layer > after && layer < n_layers - 1) return;
  facts.refuse(facts.file().metadata().wrong_value(), key, layer_text(layer),
               "ascending layers before the last of " + std::to_string(n_layers));
}

void set_range(VisionConfig& config, std::int64_t least, std::int64_t most) {
  const std::int64_t of_cell = std::int64_t{config.cell_side()} * config.cell_side();
  config.min_pixels = least;
  config.max_pixels = most;
  config.max_cells =
      static_cast<int>(std::min<std::int64_t>({config.max_cells, most / of_cell, model_limits::kImageCells}));
}

constexpr std::int64_t kMostPixels = model_limits::kImageSide * model_limits::kImageSide;

// A number of pixels from `least` on.
std::int64_t checked_pixels(const Metadata& metadata, const std::string& key, std::int64_t found, std::int64_t least) {
  if (found >= least && found <= kMostPixels) return found;
  metadata.refuse_value(key, std::to_string(found),
                        std::to_string(least) + " to " + std::to_string(kMostPixels) + " pixels");
}

// Files that do not say it: from 8 cells to the most that the server allows.
void read_gguf_range(VisionFacts& vision) {
  constexpr std::int64_t kLeastCells = 8;
  VisionConfig& config = vision.config;
  FactReader& facts = vision.facts;
  const Metadata& metadata = facts.file().metadata();
  const std::int64_t of_cell = std::int64_t{config.cell_side()} * config.cell_side();
  const auto read = [&](const char* key, std::int64_t absent, std::int64_t bound) {
    const std::string whole = std::string("clip.vision.") + key;
    facts.ignore(key);
    return checked_pixels(metadata, whole, metadata.find_integer<std::int64_t>(whole).value_or(absent), bound);
  };
  const std::int64_t most_cells =
      std::min({std::int64_t{config.max_cells}, model_limits::kImageCells, kMostPixels / of_cell});
  const std::int64_t least = read("image_min_pixels", std::min(kLeastCells, most_cells) * of_cell, 1);
  set_range(config, least, read("image_max_pixels", std::max(least, most_cells * of_cell), std::max(least, of_cell)));
}

// preprocessor_config.json has the range as `size` or as numbers of pixels, which count if both exist.
void read_hf_range(VisionFacts& vision) {
  VisionConfig& config = vision.config;
  const auto [metadata, prefix] = read_hf_images(vision, kBicubic);
  const auto require = [&](const char* key, int expected) {
    const std::string whole = prefix + key;
    const int found = metadata.find_integer<int>(whole).value_or(expected);
    if (found != expected) metadata.refuse_value(whole, std::to_string(found), std::to_string(expected));
  };
  require("patch_size", config.patch_size);
  require("merge_size", kMerge);
  require("temporal_patch_size", kFrames);
  const auto read = [&](const char* pixels, const char* size, std::int64_t bound) {
    const bool has_pixels = metadata.find_integer<std::int64_t>(prefix + pixels).has_value();
    const std::string key = prefix + (has_pixels ? pixels : size);
    return checked_pixels(metadata, key, metadata.integer<std::int64_t>(key), bound);
  };
  const std::int64_t of_cell = std::int64_t{config.cell_side()} * config.cell_side();
  const std::int64_t least = read("min_pixels", "size.shortest_edge", 1);
  set_range(config, least, read("max_pixels", "size.longest_edge", std::max(least, of_cell)));
}

void read_gguf_taps(VisionFacts& vision) {
  constexpr std::string_view kKey = "is_deepstack_layers";
  FactReader& facts = vision.facts;
  const auto flags = facts.find_flags("taps", kKey);
  if (!flags) return;
  if (std::ssize(*flags) != facts.config.n_layers) {
    facts.refuse(facts.file().metadata().wrong_value(), kKey, std::to_string(flags->size()) + " layers",
                 std::to_string(facts.config.n_layers));
  }
  for (int layer = 0; layer < facts.config.n_layers; ++layer) {
    if (!(*flags)[static_cast<std::size_t>(layer)]) continue;
    check_tap(facts, kKey, layer, -1);
    add_tap(vision, layer, "v.deepstack." + std::to_string(layer) + ".", "fc1", "fc2");
  }
}

// `by_default`: those of files that do not say.
void read_hf_taps(VisionFacts& vision, std::span<const std::uint32_t> by_default) {
  constexpr std::string_view kKey = "deepstack_visual_indexes";
  const bool is_given = vision.facts.file().metadata().contains(kHfDeepstackKey);
  const std::vector<std::uint32_t> said = vision.facts.find_integers(kKey);
  int after = -1, number = 0;
  for (const std::uint32_t found : is_given ? std::span<const std::uint32_t>(said) : by_default) {
    const int layer = static_cast<int>(std::min<std::uint32_t>(found, model_limits::kLayers));
    check_tap(vision.facts, kKey, layer, after);
    add_tap(vision, layer, "model.visual.deepstack_merger_list." + std::to_string(number++) + ".", "linear_fc1",
            "linear_fc2");
    after = layer;
  }
}

// The file has the size of a picture that the table was made for.
void read_qwen3_vl_gguf(VisionFacts& vision) {
  read_gguf_tower(vision);
  require_gelu_tanh(vision.facts.file());
  require_integer(vision.facts, "spatial_merge_size", kMerge);
  VisionConfig& config = vision.config;
  config.table_side = std::exchange(config.tile_size, 0) / config.patch_size;
  if (config.table_side == 0) {
    vision.facts.refuse(vision.facts.file().metadata().wrong_value(), "image_size", "less than a patch",
                        "the size of a picture that the table of positions was made for");
  }
  constexpr double kTheta = 10000;
  set_tower(vision, kTheta, "mm.0", "mm.2");
  read_gguf_taps(vision);
  read_gguf_range(vision);
  set_width(config);
}

// A square number of places.
void read_table(VisionFacts& vision) {
  constexpr std::string_view kKey = "num_position_embeddings";
  FactReader& facts = vision.facts;
  int n_places = 0;
  read_hf_size(facts, "table_side", {kKey, 2304}, model_limits::kContext, n_places);
  const auto side = static_cast<int>(std::lround(std::sqrt(n_places)));
  if (side * side != n_places) {
    facts.refuse(facts.file().metadata().wrong_value(), kKey, std::to_string(n_places), "a square number");
  }
  vision.config.table_side = side;
}

void read_qwen_hf(VisionFacts& vision, std::span<const std::uint32_t> taps) {
  FactReader& facts = vision.facts;
  VisionConfig& config = vision.config;
  read_hf_sizes(vision, {.n_layers = {"depth", 27},
                         .hidden_size = {"hidden_size", 1152},
                         .ffn_size = {"intermediate_size", 4304},
                         .n_heads = {"num_heads", 16},
                         .patch_size = {"patch_size", 16}});
  facts.config.norm_epsilon = 1e-6F;
  read_hf_size(facts, "width", {"out_hidden_size", 3584}, model_limits::kHidden, config.width);
  read_table(vision);
  require_word(facts, "hidden_act", "gelu_pytorch_tanh");
  require_integer(facts, "in_channels", 3);
  require_integer(facts, "spatial_merge_size", kMerge);
  require_integer(facts, "temporal_patch_size", kFrames);
  double theta = 10000;
  require_word(facts, "rope_parameters.rope_type", "axial");
  facts.find_number("rope_theta", "rope_parameters.rope_theta", theta);
  set_tower(vision, theta, "model.visual.merger.linear_fc1", "model.visual.merger.linear_fc2");
  read_hf_taps(vision, taps);
  read_hf_range(vision);
  set_width(config);
  skip_hf_bookkeeping(facts);
}

void read_qwen3_vl_hf(VisionFacts& vision) {
  read_qwen_hf(vision, kHfDeepstackLayers);
}

// It has no DeepStack.
void read_qwen3_5_hf(VisionFacts& vision) {
  read_qwen_hf(vision, {});
}

constexpr VisionArchitecture hf_qwen_row(std::string_view name, void (*read)(VisionFacts&)) {
  return {ModelFormat::hf, name, read, &kHfQwenNames, kHfQwenTensors, {"model.visual.", "model.visual."}};
}

}  // namespace

VisionFamily qwen3_vl_vision() noexcept {
  static constexpr std::array kRows = {
      VisionArchitecture{
          ModelFormat::gguf, "qwen3vl_merger", read_qwen3_vl_gguf, &kGgufQwenNames, kGgufQwenTensors, {"v.", "mm."}},
      hf_qwen_row("qwen3_vl", read_qwen3_vl_hf),
      hf_qwen_row("qwen3_vl_moe", read_qwen3_vl_hf),
      hf_qwen_row("qwen3_5", read_qwen3_5_hf),
      hf_qwen_row("qwen3_5_moe", read_qwen3_5_hf),
  };
  return kRows;
}

}  // namespace imp

// Gemma 4: four norms in a layer, heads of which each half rotates by an axis, products within bounds. A cell is the
// mean of a square of patches.
#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <utility>

#include "model/arch/hf_facts.h"
#include "model/arch/vision/tower_facts.h"
#include "model/config/model_limits.h"
#include "model/config/number_text.h"

namespace imp {
namespace {

constexpr int kGemma4Pooled = 3, kSoftTokens = 280;

constexpr TensorNames kGgufGemma4Names = {
    .layer = "v.blk.",
    .attention_norm = "ln1",
    .q = "attn_q",
    .k = "attn_k",
    .v = "attn_v",
    .q_norm = "attn_q_norm",
    .k_norm = "attn_k_norm",
    .output = "attn_out",
    .post_attention_norm = "attn_post_norm",
    .ffn_norm = "ln2",
    .gate = "ffn_gate",
    .up = "ffn_up",
    .down = "ffn_down",
    .post_ffn_norm = "ffn_post_norm",
    .rope_quarters_apart = true,
};

constexpr TensorNames kHfGemma4Names = {
    .layer = "model.vision_tower.encoder.layers.",
    .attention_norm = "input_layernorm",
    .q = "self_attn.q_proj.linear",
    .k = "self_attn.k_proj.linear",
    .v = "self_attn.v_proj.linear",
    .q_norm = "self_attn.q_norm",
    .k_norm = "self_attn.k_norm",
    .output = "self_attn.o_proj.linear",
    .post_attention_norm = "post_attention_layernorm",
    .ffn_norm = "pre_feedforward_layernorm",
    .gate = "mlp.gate_proj.linear",
    .up = "mlp.up_proj.linear",
    .down = "mlp.down_proj.linear",
    .post_ffn_norm = "post_feedforward_layernorm",
    .rope_quarters_apart = true,
};

constexpr VisionTensors kGgufGemma4Tensors = {
    .patches = "v.patch_embd", .positions = "v.position_embd.weight", .mean = "v.std_bias", .factors = "v.std_scale"};

constexpr VisionTensors kHfGemma4Tensors = {.patches = "model.vision_tower.patch_embedder.input_proj",
                                            .positions = "model.vision_tower.patch_embedder.position_embedding_table",
                                            .mean = "model.vision_tower.std_bias",
                                            .factors = "model.vision_tower.std_scale",
                                            .has_pixels = true};

// The layers, whose sizes are known.
void set_gemma4_layers(FactReader& facts, double theta) {
  ModelConfig& layers = facts.config;
  layers.attention_scale = 1;
  layers.norm_placement = NormPlacement::pre_and_post;
  layers.qk_norm = QkNorm::head;
  layers.value_norm = true;
  layers.kv_types = {KvType::f32, KvType::f32};  // scores are not scaled down, and with them the errors of keys
  layers.activation = GatedActivation::gelu_tanh;
  add_tower_layers(layers);
  rotate_by_places(layers, theta, Axis::column);
}

// `product`: of the last step, which reads the mean of patches without the norm's weight.
void set_gemma4_tower(VisionFacts& vision, std::string product, int n_places) {
  VisionConfig& config = vision.config;
  const ModelConfig& layers = vision.facts.config;
  if (n_places < config.reduced_side) {
    vision.facts.refuse_tensor(vision.facts.file().metadata().wrong_value(), config.tensors.positions,
                               std::to_string(n_places) + " places",
                               "at least the " + std::to_string(config.reduced_side) + " patches of a cell's side");
  }
  config.sizing = ImageSizing::soft_tokens;
  config.reduction = Reduction::mean;
  config.mean_scale = std::sqrt(static_cast<float>(layers.hidden_size));
  config.patch_bias = false;
  config.axis_places = n_places;
  config.max_cells = std::min(config.max_cells, n_places / config.reduced_side);
  const CellNorm norm = {.kind = NormKind::rms, .epsilon = layers.norm_epsilon, .tensor = ""};
  config.projectors.push_back({.layer = layers.n_layers - 1, .norm = norm, .first = std::move(product), .second = ""});
}

// The values of a pixel are doubled, and one is taken away.
void centre_colours(VisionConfig& config) {
  for (std::size_t colour = 0; colour < config.mean.size(); ++colour) {
    config.deviation[colour] /= 2;
    config.mean[colour] += config.deviation[colour];
  }
}

// A bound that the file does not have is infinite, unless it needs all of them.
void read_bounds(FactReader& facts, const std::string& product, const char* low, const char* high, bool needs_all,
                 float& least, float& greatest) {
  const std::string lower = product + low, upper = product + high;
  if (needs_all || facts.has_tensor(lower)) least = facts.tensor_value(lower);
  if (needs_all || facts.has_tensor(upper)) greatest = facts.tensor_value(upper);
  if (least <= greatest) return;
  facts.refuse_tensor(facts.file().metadata().wrong_value(), lower, number_text(least),
                      "a number that is at most the " + number_text(greatest) + " of " + upper);
}

// The bounds of a product have its name, without the last word of the name of its weight.
void read_clips(FactReader& facts, bool needs_all) {
  constexpr std::string_view kLinear = ".linear";
  const TensorNames& names = facts.names();
  const std::array products = {std::pair{names.q, &LayerClips::q},       std::pair{names.k, &LayerClips::k},
                               std::pair{names.v, &LayerClips::v},       std::pair{names.output, &LayerClips::output},
                               std::pair{names.gate, &LayerClips::gate}, std::pair{names.up, &LayerClips::up},
                               std::pair{names.down, &LayerClips::down}};
  for (int i = 0; i < facts.config.n_layers; ++i) {
    LayerClips& clips = facts.config.layers[static_cast<std::size_t>(i)].clips.emplace();
    for (auto [name, of_product] : products) {
      if (name.ends_with(kLinear)) name.remove_suffix(kLinear.size());
      const std::string product = names.in_layer(i, name);
      Clip& clip = clips.*of_product;
      read_bounds(facts, product, ".input_min", ".input_max", needs_all, clip.least_input, clip.greatest_input);
      read_bounds(facts, product, ".output_min", ".output_max", needs_all, clip.least_output, clip.greatest_output);
    }
  }
}

bool has_bounds(const ModelFile& file) {
  constexpr std::array<std::string_view, 4> kEnds = {".input_min", ".input_max", ".output_min", ".output_max"};
  return std::ranges::any_of(file.tensors(), [&](const TensorInfo& tensor) {
    const auto ends_it = [&](std::string_view end) { return tensor.name.ends_with(end); };
    return tensor.name.starts_with(kGgufGemma4Names.layer) && std::ranges::any_of(kEnds, ends_it);
  });
}

// The file does not say how many places its tables have.
int places_of(const ModelFile& file) {
  const TensorInfo* tables = file.find(kGgufGemma4Tensors.positions);
  constexpr int kPlaces = 10240;
  return tables == nullptr ? kPlaces : static_cast<int>(std::min(tables->dims[1], model_limits::kContext));
}

// Files of llama.cpp's converter say nothing of the activation, which is gelu by tanh.
void require_no_silu(const ModelFile& file) {
  constexpr std::string_view kSilu = "clip.use_silu";
  const Metadata& metadata = file.metadata();
  if (metadata.find_boolean(kSilu).value_or(false)) metadata.refuse_value(kSilu, "true", "false");
}

void read_gemma4_gguf(VisionFacts& vision) {
  read_gguf_tower(vision);
  require_no_silu(vision.facts.file());
  FactReader& facts = vision.facts;
  VisionConfig& config = vision.config;
  config.tile_size = 0;
  config.reduced_side = kGemma4Pooled;
  facts.find_count("reduced_side", "projector.scale_factor", model_limits::kShuffle, config.reduced_side);
  config.soft_tokens = kSoftTokens;
  centre_colours(config);
  set_heads_of_width(facts);
  constexpr double kTheta = 100;
  set_gemma4_layers(facts, kTheta);
  if (has_bounds(facts.file())) read_clips(facts, false);
  config.is_standardized = facts.has_tensor(kGgufGemma4Tensors.mean) || facts.has_tensor(kGgufGemma4Tensors.factors);
  set_gemma4_tower(vision, "mm.input_projection", places_of(facts.file()));
}

void read_hf_soft_tokens(VisionFacts& vision) {
  VisionConfig& config = vision.config;
  const auto [metadata, prefix] = read_hf_images(vision, kBicubic, false);
  const auto require = [&](const char* key, int expected) {
    const std::string whole = prefix + key;
    const int found = metadata.find_integer<int>(whole).value_or(expected);
    if (found != expected) metadata.refuse_value(whole, std::to_string(found), std::to_string(expected));
  };
  require("patch_size", config.patch_size);
  require("pooling_kernel_size", config.reduced_side);
  const std::string key = prefix + "max_soft_tokens";
  config.soft_tokens = metadata.find_integer<int>(key).value_or(kSoftTokens);
  if (config.soft_tokens >= 1 && config.soft_tokens <= model_limits::kImageCells) return;
  metadata.refuse_value(key, std::to_string(config.soft_tokens), "1 to " + std::to_string(model_limits::kImageCells));
}

// RoPE of the library's default kind is that of two axes.
double read_hf_theta(FactReader& facts) {
  constexpr std::string_view kType = "rope_parameters.rope_type";
  const std::string_view type = facts.find_word("rope_type", kType).value_or("axial");
  if (type != "axial" && type != "default") facts.refuse(Reason::MODEL_UNSUPPORTED, kType, type, "axial or default");
  double theta = 100;
  facts.find_number("rope_theta", "rope_parameters.rope_theta", theta);
  return theta;
}

void read_gemma4_hf(VisionFacts& vision) {
  FactReader& facts = vision.facts;
  ModelConfig& layers = facts.config;
  read_hf_sizes(vision, {.n_layers = {"num_hidden_layers", 16},
                         .hidden_size = {"hidden_size", 768},
                         .ffn_size = {"intermediate_size", 3072},
                         .n_heads = {"num_attention_heads", 12},
                         .patch_size = {"patch_size", 16}});
  read_hf_size(facts, "n_kv_heads", {"num_key_value_heads", 12}, model_limits::kHeads, layers.n_kv_heads);
  read_hf_size(facts, "head_dim", {"head_dim", 64}, model_limits::kHeadDim, layers.head_dim);
  read_hf_size(facts, "reduced_side", {"pooling_kernel_size", kGemma4Pooled}, model_limits::kShuffle,
               vision.config.reduced_side);
  int n_places = 0;
  read_hf_size(facts, "axis_places", {"position_embedding_size", 10240}, model_limits::kContext, n_places);
  layers.norm_epsilon = 1e-6F;
  facts.find_number("norm_epsilon", "rms_norm_eps", layers.norm_epsilon);
  require_word(facts, "hidden_activation", "gelu_pytorch_tanh");
  read_hf_width(vision, 2304);
  set_gemma4_layers(facts, read_hf_theta(facts));
  if (facts.find_flag("use_clipped_linears")) read_clips(facts, true);
  vision.config.is_standardized = facts.find_flag("standardize");
  set_gemma4_tower(vision, "model.embed_vision.embedding_projection", n_places);
  read_hf_soft_tokens(vision);
  centre_colours(vision.config);
  skip_hf_bookkeeping(facts);
  // The processor decides how many cells an image has; the towers of other models have layers of two kinds.
  for (const char* key : {"default_output_length", "global_head_dim", "max_position_embeddings"}) facts.ignore(key);
}

}  // namespace

VisionFamily gemma4_vision() noexcept {
  static constexpr std::array kRows = {
      VisionArchitecture{
          ModelFormat::gguf, "gemma4v", read_gemma4_gguf, &kGgufGemma4Names, kGgufGemma4Tensors, {"v.", "mm."}},
      VisionArchitecture{ModelFormat::hf,
                         "gemma4",
                         read_gemma4_hf,
                         &kHfGemma4Names,
                         kHfGemma4Tensors,
                         {"model.vision_tower.", "model.embed_vision."}},
  };
  return kRows;
}

}  // namespace imp

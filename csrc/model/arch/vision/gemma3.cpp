// Gemma 3: SigLIP over the whole picture in one size; a cell is the mean of a square of patches.
#include <array>
#include <cmath>
#include <string>

#include "model/arch/hf_facts.h"
#include "model/arch/vision/siglip.h"
#include "model/arch/vision/tower_facts.h"
#include "model/config/model_limits.h"

namespace imp {
namespace {

// Published files call the tower vision_tower.vision_model. Versions of the library omit the second word, or place
// everything in `model`.
constexpr TensorNames kHubNames =
    hf_siglip_names("vision_tower.vision_model.encoder.layers.", "vision_tower.vision_model.post_layernorm.weight");
constexpr VisionTensors kHubTensors = {.patches = "vision_tower.vision_model.embeddings.patch_embedding",
                                       .positions = "vision_tower.vision_model.embeddings.position_embedding.weight"};

constexpr TensorNames kInnerNames = hf_siglip_names("model.vision_tower.vision_model.encoder.layers.",
                                                    "model.vision_tower.vision_model.post_layernorm.weight");
constexpr VisionTensors kInnerTensors = {
    .patches = "model.vision_tower.vision_model.embeddings.patch_embedding",
    .positions = "model.vision_tower.vision_model.embeddings.position_embedding.weight"};

constexpr TensorNames kShortNames =
    hf_siglip_names("vision_tower.encoder.layers.", "vision_tower.post_layernorm.weight");
constexpr VisionTensors kShortTensors = {.patches = "vision_tower.embeddings.patch_embedding",
                                         .positions = "vision_tower.embeddings.position_embedding.weight"};

constexpr TensorNames kInnerShortNames =
    hf_siglip_names("model.vision_tower.encoder.layers.", "model.vision_tower.post_layernorm.weight");
constexpr VisionTensors kInnerShortTensors = {.patches = "model.vision_tower.embeddings.patch_embedding",
                                              .positions = "model.vision_tower.embeddings.position_embedding.weight"};

// `at` begins the names of its tensors, which end in `suffix`. The norm's weight is stored minus `offset`.
void add_gemma3_projector(VisionFacts& vision, const std::string& at, std::string_view suffix, float offset) {
  vision.config.sizing = ImageSizing::fixed;
  vision.config.reduction = Reduction::mean;
  Projector& projector = add_siglip_projector(vision, at + "input_projection");
  projector.norm = {.kind = NormKind::rms,
                    .epsilon = vision.facts.config.norm_epsilon,
                    .tensor = at + "soft_emb_norm",
                    .offset = offset};
  projector.suffix = suffix;
  projector.is_transposed = true;
}

void read_gemma3_gguf(VisionFacts& vision) {
  read_gguf_siglip(vision);
  vision.config.reduced_side = 4;
  vision.facts.find_count("reduced_side", "projector.scale_factor", model_limits::kShuffle, vision.config.reduced_side);
  add_gemma3_projector(vision, "mm.", ".weight", 0);
}

// The file has the number of cells. They lie in as many rows as columns.
void read_hf_cells(VisionFacts& vision) {
  constexpr std::string_view kKey = "mm_tokens_per_image";
  FactReader whole(vision.facts.file(), "", vision.facts.names());
  int n_cells = 256;
  whole.find_count("reduced_side", kKey, model_limits::kImageCells, n_cells);
  const auto side = static_cast<int>(std::lround(std::sqrt(n_cells)));
  const int patches = vision.config.tile_size / vision.config.patch_size;
  if (side * side != n_cells || side > patches || patches % side != 0) {
    whole.refuse(whole.file().metadata().wrong_value(), kKey, std::to_string(n_cells),
                 "the square of a divisor of " + std::to_string(patches) + ", the patches of a side");
  }
  vision.config.reduced_side = patches / side;
}

void read_hf_size_of_images(VisionFacts& vision) {
  const auto [metadata, prefix] = read_hf_images(vision, kBilinear);
  for (const char* side : {"size.height", "size.width"}) {
    const std::string key = prefix + side;
    const int tile = vision.config.tile_size;
    if (const int found = metadata.integer<int>(key); found != tile) {
      metadata.refuse_value(key, std::to_string(found), std::to_string(tile) + ", the tower's image_size");
    }
  }
  const std::string crops = prefix + "do_pan_and_scan";
  if (metadata.find_boolean(crops).value_or(false)) metadata.refuse_value(crops, "true", "false");
}

void read_gemma3_hf(VisionFacts& vision) {
  read_hf_siglip(vision, {.n_layers = 12,
                          .hidden_size = 768,
                          .ffn_size = 3072,
                          .n_heads = 12,
                          .tile_size = 224,
                          .patch_size = 16,
                          .width = 2304});
  read_hf_cells(vision);
  const bool is_inner = vision.config.tensors.patches.starts_with("model.");
  add_gemma3_projector(vision, is_inner ? "model.multi_modal_projector.mm_" : "multi_modal_projector.mm_", "_weight",
                       1);
  read_hf_size_of_images(vision);
  skip_hf_bookkeeping(vision.facts);
  vision.facts.ignore("vision_use_head");  // its head has tensors of its own
}

constexpr VisionArchitecture hf_gemma3_row(const TensorNames& names, const VisionTensors& tensors) {
  const bool is_inner = tensors.patches.starts_with("model.");
  return {ModelFormat::hf,
          "gemma3",
          read_gemma3_hf,
          &names,
          tensors,
          {is_inner ? "model.vision_tower." : "vision_tower.",
           is_inner ? "model.multi_modal_projector." : "multi_modal_projector."}};
}

}  // namespace

VisionFamily gemma3_vision() noexcept {
  static constexpr std::array kRows = {
      VisionArchitecture{
          ModelFormat::gguf, "gemma3", read_gemma3_gguf, &kGgufSiglipNames, kGgufSiglipTensors, {"v.", "mm."}},
      hf_gemma3_row(kHubNames, kHubTensors),
      hf_gemma3_row(kInnerNames, kInnerTensors),
      hf_gemma3_row(kShortNames, kShortTensors),
      hf_gemma3_row(kInnerShortNames, kInnerShortTensors),
  };
  return kRows;
}

}  // namespace imp

// Idefics3 and SmolVLM: SigLIP over tiles, whose patches are shuffled into fewer and wider cells.
#include <array>

#include "model/arch/hf_facts.h"
#include "model/arch/vision/siglip.h"
#include "model/arch/vision/tower_facts.h"
#include "model/config/model_limits.h"

namespace imp {
namespace {

constexpr TensorNames kHfIdefics3Names =
    hf_siglip_names("model.vision_model.encoder.layers.", "model.vision_model.post_layernorm.weight");

constexpr VisionTensors kHfIdefics3Tensors = {.patches = "model.vision_model.embeddings.patch_embedding",
                                              .positions = "model.vision_model.embeddings.position_embedding.weight"};

void read_idefics3_gguf(VisionFacts& vision) {
  read_gguf_siglip(vision);
  VisionConfig& config = vision.config;
  config.reduced_side = 4;
  vision.facts.find_count("reduced_side", "projector.scale_factor", model_limits::kShuffle, config.reduced_side);
  constexpr int kTilesASide = 4;
  config.longest_side = kTilesASide * config.tile_size;
  vision.facts.find_count("longest_side", "preproc_image_size", model_limits::kImageSide, config.longest_side);
  add_siglip_projector(vision, "mm.model.fc");
}

void read_idefics3_hf(VisionFacts& vision) {
  FactReader& facts = vision.facts;
  read_hf_siglip(vision, {.n_layers = 12,
                          .hidden_size = 1152,
                          .ffn_size = 3072,
                          .n_heads = 16,
                          .tile_size = 224,
                          .patch_size = 32,
                          .width = 4096});
  vision.config.reduced_side = 2;
  FactReader(facts.file(), "", facts.names())
      .find_count("reduced_side", "scale_factor", model_limits::kShuffle, vision.config.reduced_side);
  add_siglip_projector(vision, "model.connector.modality_projection.proj");
  read_hf_tiles(vision);
  skip_hf_bookkeeping(facts);
  for (const char* key :
       {"max_image_size.longest_edge", "size.longest_edge", "tie_word_embeddings", "use_base_siglip"}) {
    facts.ignore(key);
  }
}

constexpr VisionArchitecture hf_idefics3_row(std::string_view name) {
  return {ModelFormat::hf,    name,
          read_idefics3_hf,   &kHfIdefics3Names,
          kHfIdefics3Tensors, {"model.vision_model.", "model.connector."}};
}

}  // namespace

VisionFamily idefics3_vision() noexcept {
  static constexpr std::array kRows = {
      VisionArchitecture{
          ModelFormat::gguf, "idefics3", read_idefics3_gguf, &kGgufSiglipNames, kGgufSiglipTensors, {"v.", "mm."}},
      hf_idefics3_row("idefics3"),
      hf_idefics3_row("smolvlm"),
  };
  return kRows;
}

}  // namespace imp

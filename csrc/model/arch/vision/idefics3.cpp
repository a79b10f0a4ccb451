// Idefics3 and SmolVLM: SigLIP over tiles, whose patches are shuffled into fewer and wider cells.
#include <array>
#include <string>
#include <utility>

#include "model/arch/hf_facts.h"
#include "model/arch/vision/tower_facts.h"
#include "model/config/model_limits.h"

namespace imp {
namespace {

constexpr TensorNames kGgufTowerNames = {
    .final_norm = "v.post_ln.weight",
    .layer = "v.blk.",
    .attention_norm = "ln1",
    .optional_qkv = "attn_qkv",
    .q = "attn_q",
    .k = "attn_k",
    .v = "attn_v",
    .output = "attn_out",
    .ffn_norm = "ln2",
    .up = "ffn_up",
    .down = "ffn_down",
};

constexpr TensorNames kHfTowerNames = {
    .final_norm = "model.vision_model.post_layernorm.weight",
    .layer = "model.vision_model.encoder.layers.",
    .attention_norm = "layer_norm1",
    .q = "self_attn.q_proj",
    .k = "self_attn.k_proj",
    .v = "self_attn.v_proj",
    .output = "self_attn.out_proj",
    .ffn_norm = "layer_norm2",
    .up = "mlp.fc1",
    .down = "mlp.fc2",
};

constexpr VisionTensors kGgufTensors = {
    .patches = "v.patch_embd", .positions = "v.position_embd.weight", .projection = "mm.model.fc.weight"};

constexpr VisionTensors kHfTensors = {.patches = "model.vision_model.embeddings.patch_embedding",
                                      .positions = "model.vision_model.embeddings.position_embedding.weight",
                                      .projection = "model.connector.modality_projection.proj.weight"};

// Older files call the first product of the feed-forward ffn_down, and the second one ffn_up.
void swap_names_of_old_files(VisionFacts& vision) {
  TensorNames& names = vision.config.names;
  const TensorInfo* up = vision.facts.file().find(names.weight(0, names.up));
  const std::int64_t ffn = vision.facts.config.ffn_size;
  if (up != nullptr && up->dims[0] == ffn && up->dims[1] != ffn) std::swap(names.up, names.down);
}

void require_gelu_tanh(const ModelFile& file) {
  constexpr std::string_view kGelu = "clip.use_gelu";
  const Metadata& metadata = file.metadata();
  if (metadata.find_boolean(kGelu).value_or(false)) return;
  throw ModelError(Reason::MODEL_UNSUPPORTED,
                   metadata.where() + ": key " + std::string(kGelu) + ": false, expected true");
}

void read_idefics3_gguf(VisionFacts& vision) {
  read_gguf_tower(vision);
  require_gelu_tanh(vision.facts.file());
  VisionConfig& config = vision.config;
  config.shuffle = 4;
  vision.facts.find_count("shuffle", "projector.scale_factor", model_limits::kShuffle, config.shuffle);
  constexpr int kTilesASide = 4;
  config.longest_side = kTilesASide * config.tile_size;
  vision.facts.find_count("longest_side", "preproc_image_size", model_limits::kImageSide, config.longest_side);
  set_siglip(vision);
  swap_names_of_old_files(vision);
}

void read_idefics3_hf(VisionFacts& vision) {
  FactReader& facts = vision.facts;
  read_hf_tower(vision, {.n_layers = 12,
                         .hidden_size = 1152,
                         .ffn_size = 3072,
                         .n_heads = 16,
                         .tile_size = 224,
                         .patch_size = 32,
                         .width = 4096,
                         .epsilon = 1e-6F});
  require_word(facts, "hidden_act", "gelu_pytorch_tanh");
  require_integer(facts, "num_channels", 3);
  vision.config.shuffle = 2;
  FactReader(facts.file(), "", facts.names())
      .find_count("shuffle", "scale_factor", model_limits::kShuffle, vision.config.shuffle);
  set_siglip(vision);
  read_hf_images(vision);
  skip_hf_bookkeeping(facts);
  for (const char* key :
       {"max_image_size.longest_edge", "size.longest_edge", "tie_word_embeddings", "use_base_siglip"}) {
    facts.ignore(key);
  }
}

constexpr VisionArchitecture hf_row(std::string_view name) {
  return {ModelFormat::hf, name,       read_idefics3_hf,
          &kHfTowerNames,  kHfTensors, {"model.vision_model.", "model.connector."}};
}

}  // namespace

VisionFamily idefics3_vision() noexcept {
  static constexpr std::array kRows = {
      VisionArchitecture{
          ModelFormat::gguf, "idefics3", read_idefics3_gguf, &kGgufTowerNames, kGgufTensors, {"v.", "mm."}},
      hf_row("idefics3"),
      hf_row("smolvlm"),
  };
  return kRows;
}

}  // namespace imp

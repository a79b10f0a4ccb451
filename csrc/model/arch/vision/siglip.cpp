#include "model/arch/vision/siglip.h"

#include <string>
#include <utility>

#include "model/arch/hf_facts.h"
#include "model/arch/vision/tower_facts.h"
#include "model/config/model_limits.h"

namespace imp {
namespace {

// Older files call the first product of the feed-forward ffn_down, and the second one ffn_up.
void swap_names_of_old_files(VisionFacts& vision) {
  TensorNames& names = vision.config.names;
  const TensorInfo* up = vision.facts.file().find(names.weight(0, names.up));
  const std::int64_t ffn = vision.facts.config.ffn_size;
  if (up != nullptr && up->dims[0] == ffn && up->dims[1] != ffn) std::swap(names.up, names.down);
}

}  // namespace

void read_gguf_siglip(VisionFacts& vision) {
  read_gguf_tower(vision);
  require_gelu_tanh(vision.facts.file());
  set_siglip(vision);
  swap_names_of_old_files(vision);
}

void read_hf_siglip(VisionFacts& vision, const SiglipDefaults& defaults) {
  FactReader& facts = vision.facts;
  read_hf_sizes(vision, {.n_layers = {"num_hidden_layers", defaults.n_layers},
                         .hidden_size = {"hidden_size", defaults.hidden_size},
                         .ffn_size = {"intermediate_size", defaults.ffn_size},
                         .n_heads = {"num_attention_heads", defaults.n_heads},
                         .patch_size = {"patch_size", defaults.patch_size}});
  read_hf_size(facts, "tile_size", {"image_size", defaults.tile_size}, model_limits::kTileSide,
               vision.config.tile_size);
  facts.config.norm_epsilon = 1e-6F;
  facts.find_number("norm_epsilon", "layer_norm_eps", facts.config.norm_epsilon);
  read_hf_width(vision, defaults.width);
  require_word(facts, "hidden_act", "gelu_pytorch_tanh");
  require_integer(facts, "num_channels", 3);
  set_siglip(vision);
}

Projector& add_siglip_projector(VisionFacts& vision, std::string product) {
  const int last = vision.facts.config.n_layers - 1;
  vision.config.projectors.push_back({.layer = last, .norm = {}, .first = std::move(product), .second = ""});
  return vision.config.projectors.back();
}

}  // namespace imp

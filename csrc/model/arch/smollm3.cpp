// SmolLM3: Llama, but some layers do not rotate q and k.
#include <array>

#include "model/arch/architecture.h"
#include "model/arch/gguf_facts.h"
#include "model/arch/gguf_names.h"
#include "model/arch/hf_facts.h"
#include "model/arch/hf_names.h"
#include "model/config/model_limits.h"

namespace imp {
namespace {

constexpr int kRopePeriod = 4;  // the last of every four layers has no RoPE

std::vector<bool> rotated_by_list(FactReader& facts, std::string_view key) {
  const std::vector<std::uint32_t> list = facts.find_integers(key);
  const std::size_t n_layers = facts.config.layers.size();
  if (list.size() < n_layers) {
    facts.refuse(Reason::MODEL_CONFIG, key, std::to_string(list.size()) + " values",
                 "at least one for each of " + std::to_string(n_layers) + " layers");
  }
  facts.note_key("layers_without_rope", key);
  std::vector<bool> rotated(n_layers);
  for (std::size_t i = 0; i < n_layers; ++i) rotated[i] = list[i] != 0;
  return rotated;
}

void read_smollm3_gguf(FactReader& facts) {
  read_gguf_decoder(facts);
  refuse_gguf_experts(facts);
  // GGUF permutes the rows of q and k of this architecture, so that rotated pairs are adjacent.
  read_gguf_rope(facts, RopeStyle::adjacent, 10000);
  read_biases(facts);
  leave_rope_out(facts.config, all_but_last_of(facts.config, kRopePeriod));
}

void read_smollm3_hf(FactReader& facts) {
  read_hf_decoder(facts, {.defaults = {.n_kv_heads = 4}});
  read_hf_rope(facts, RopeStyle::adjacent, 2000000);
  read_biases(facts);
  int period = kRopePeriod;
  facts.find_count("layers_without_rope", "no_rope_layer_interval", model_limits::kLayers, period);
  const std::vector<bool> rotated =
      facts.has("no_rope_layers") ? rotated_by_list(facts, "no_rope_layers") : all_but_last_of(facts.config, period);
  std::vector<bool> without_rope = rotated;
  without_rope.flip();
  read_hf_optional_windows(facts, without_rope, 0);
  leave_rope_out(facts.config, rotated);
}

}  // namespace

Family smollm3_family() noexcept {
  static constexpr std::array kRows = {
      Architecture{ModelFormat::gguf, "smollm3", read_smollm3_gguf, &kGgufNames},
      Architecture{ModelFormat::hf, "smollm3", read_smollm3_hf, &kHfNames},
  };
  return kRows;
}

}  // namespace imp

// Apertus: q and k are normalized; a feed-forward without a gate, whose activation has parameters in each layer.
#include <array>
#include <cmath>

#include "model/arch/architecture.h"
#include "model/arch/gguf_facts.h"
#include "model/arch/gguf_names.h"
#include "model/arch/hf_facts.h"
#include "model/arch/hf_names.h"

namespace imp {
namespace {

constexpr TensorNames kHfApertusNames = [] {
  TensorNames names = kHfNames;
  names.attention_norm = "attention_layernorm";
  names.ffn_norm = "feedforward_layernorm";
  return names;
}();

// What files hold: the two slopes before softplus.
struct StoredXielu {
  float alpha_p = 0, alpha_n = 0, beta = 0, eps = 0;
};

XieluParams resolved(const StoredXielu& stored) {
  const auto softplus = [](float x) { return std::log1p(std::exp(x)); };
  return {.positive = softplus(stored.alpha_p),
          .negative = stored.beta + softplus(stored.alpha_n),
          .slope = stored.beta,
          .largest = stored.eps};
}

void set_apertus(ModelConfig& config) {
  config.qk_norm = QkNorm::head;
  config.plain_activation = PlainActivation::xielu;
}

// The keys have no architecture in front. Each is a list with a number for each layer, or one number.
std::vector<float> xielu_numbers(FactReader& facts, const std::string& key) {
  const std::size_t n_layers = facts.config.layers.size();
  const Metadata& metadata = facts.file().metadata();
  const MetadataValue* value = metadata.find(key);
  const auto* list = value ? std::get_if<NumericArray>(&value->value) : nullptr;
  if (!list) return std::vector<float>(n_layers, metadata.number(key));
  if (list->type != ValueType::F32 || list->size() != n_layers) {
    metadata.refuse_value(key, value->type_description(), "a f32 for each of " + std::to_string(n_layers) + " layers");
  }
  std::vector<float> numbers;
  for (std::size_t i = 0; i < n_layers; ++i) numbers.push_back(list->element<float>(i));
  return numbers;
}

// The RoPE that transformers uses for files without RoPE parameters. It ignores rope_theta in them.
constexpr double kApertusTheta = 12000000;
const RopeScaling kApertusScaling = {.kind = RopeScalingKind::wavelength,
                                     .factor = 8,
                                     .original_context = 8192,
                                     .low_freq_factor = 1,
                                     .high_freq_factor = 4,
                                     .short_divisors = {},
                                     .long_divisors = {}};

void read_apertus_rope(FactReader& facts) {
  if (has_hf_rope(facts)) return read_hf_rope(facts, RopeStyle::halves, kApertusTheta);
  facts.ignore("rope_theta");
  facts.config.ropes.push_back(
      {.style = RopeStyle::halves, .dims = facts.config.head_dim, .theta = kApertusTheta, .scaling = kApertusScaling});
}

void read_apertus_gguf(FactReader& facts) {
  read_gguf_decoder(facts);
  refuse_gguf_experts(facts);
  read_gguf_rope(facts, RopeStyle::halves, kApertusTheta);
  read_biases(facts);
  set_apertus(facts.config);
  const auto alpha_p = xielu_numbers(facts, "xielu.alpha_p"), alpha_n = xielu_numbers(facts, "xielu.alpha_n");
  const auto beta = xielu_numbers(facts, "xielu.beta"), eps = xielu_numbers(facts, "xielu.eps");
  for (std::size_t i = 0; i < facts.config.layers.size(); ++i) {
    facts.config.layers[i].xielu = resolved({alpha_p[i], alpha_n[i], beta[i], eps[i]});
  }
}

void read_apertus_hf(FactReader& facts) {
  facts.config.plain_activation = PlainActivation::xielu;
  read_hf_decoder(facts, {.has_gate = false});
  read_apertus_rope(facts);
  read_biases(facts);
  require_flag(facts, "qk_norm", true);
  require_flag(facts, "post_norm", false);
  set_apertus(facts.config);
  for (int i = 0; i < facts.config.n_layers; ++i) {
    const auto value = [&](const char* name) {
      return facts.tensor_value(std::string(facts.names().layer) + std::to_string(i) + ".mlp.act_fn." + name);
    };
    facts.config.layers[static_cast<std::size_t>(i)].xielu =
        resolved({value("alpha_p"), value("alpha_n"), value("beta"), value("eps")});
  }
}

}  // namespace

Family apertus_family() noexcept {
  static constexpr std::array kRows = {
      Architecture{ModelFormat::gguf, "apertus", read_apertus_gguf, &kGgufNames},
      Architecture{ModelFormat::hf, "apertus", read_apertus_hf, &kHfApertusNames},
  };
  return kRows;
}

}  // namespace imp

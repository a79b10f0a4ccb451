// EAGLE-3 ("EAGLE-3: Scaling up Inference Acceleration of Large Language Models via Training-Time Test").
#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <string_view>
#include <vector>

#include "base/printable.h"
#include "model/arch/draft_heads.h"
#include "model/arch/hf_facts.h"
#include "model/arch/hf_names.h"
#include "model/config/model_limits.h"
#include "model/config/validate.h"

namespace imp {
namespace {

constexpr std::size_t kTaps = 3;

void read_sizes(FactReader& facts, const ModelConfig& target) {
  ModelConfig& config = facts.config;
  int n_layers = 1;
  facts.find_count("n_layers", "num_hidden_layers", model_limits::kLayers, n_layers);
  if (n_layers != 1) facts.refuse(Reason::MODEL_UNSUPPORTED, "num_hidden_layers", std::to_string(n_layers), "1");
  config.n_layers = 1;
  facts.count("hidden_size", "hidden_size", model_limits::kHidden, config.hidden_size);
  for (const char* key : {"hidden_size", "target_hidden_size"}) {
    int found = target.hidden_size;
    facts.find_count("hidden_size", key, model_limits::kHidden, found);
    if (found == target.hidden_size) continue;
    facts.refuse(Reason::MODEL_CONFIG, key, std::to_string(found),
                 "the model's hidden size " + std::to_string(target.hidden_size));
  }
  facts.count("ffn_size", "intermediate_size", model_limits::kFfn, config.ffn_size);
  facts.count("n_heads", "num_attention_heads", model_limits::kHeads, config.n_heads);
  config.n_kv_heads = config.n_heads;
  facts.find_count("n_kv_heads", "num_key_value_heads", model_limits::kHeads, config.n_kv_heads);
  if (!facts.find_count("head_dim", "head_dim", model_limits::kHeadDim, config.head_dim)) {
    if (config.hidden_size % config.n_heads != 0) {
      facts.refuse(Reason::MODEL_CONFIG, "num_attention_heads", std::to_string(config.n_heads),
                   "a divisor of hidden_size " + std::to_string(config.hidden_size));
    }
    config.head_dim = config.hidden_size / config.n_heads;
  }
  config.attention_scale = 1 / std::sqrt(static_cast<float>(config.head_dim));
  facts.number("norm_epsilon", "rms_norm_eps", config.norm_epsilon);
  require_word(facts, "hidden_act", "silu");
}

// With `draft_vocab_size` tokens of its own, or all tokens of the target.
void read_tokens(FactReader& facts, const ModelConfig& target) {
  ModelConfig& config = facts.config;
  facts.count("n_tokens", "vocab_size", model_limits::kVocabulary, config.n_tokens);
  if (config.n_tokens < target.n_tokens) {
    facts.refuse(Reason::MODEL_CONFIG, "vocab_size", std::to_string(config.n_tokens),
                 "at least the model's " + std::to_string(target.n_tokens) + " tokens");
  }
  config.vocab_size = target.vocab_size;
  facts.count("vocab_size", "draft_vocab_size", model_limits::kVocabulary, config.vocab_size);
  if (config.vocab_size > target.vocab_size) {
    facts.refuse(Reason::MODEL_CONFIG, "draft_vocab_size", std::to_string(config.vocab_size),
                 "at most the model's " + std::to_string(target.vocab_size) + " tokens");
  }
}

// The layers before which the residual stream is read. A section of its own, as SGLang writes it, counts the layers
// whose output is read.
std::vector<int> read_taps(FactReader& facts, const ModelConfig& target) {
  constexpr std::string_view kKey = "eagle_aux_hidden_state_layer_ids";
  const std::string inner = "eagle_config." + std::string(kKey);
  const bool is_inner = !facts.has(kKey) && facts.has(inner);
  const std::string key = is_inner ? inner : std::string(kKey);
  std::vector<int> taps;
  for (const std::uint32_t layer : facts.find_integers(key)) {
    const std::int64_t tap = std::int64_t{layer} + (is_inner ? 1 : 0);
    if (tap > target.n_layers) {
      facts.refuse(Reason::MODEL_CONFIG, key, std::to_string(layer),
                   "a layer of the model, which has " + std::to_string(target.n_layers));
    }
    taps.push_back(static_cast<int>(tap));
  }
  if (taps.empty()) {
    taps = {2, target.n_layers / 2, target.n_layers - 3};
    const bool is_deep = std::ranges::all_of(taps, [&](int tap) { return tap >= 0 && tap <= target.n_layers; });
    if (!is_deep) {
      facts.refuse(Reason::MODEL_CONFIG, key, "missing",
                   "three layers of the model, which has " + std::to_string(target.n_layers));
    }
  }
  if (taps.size() != kTaps || !std::ranges::is_sorted(taps)) {
    facts.refuse(Reason::MODEL_CONFIG, key, std::to_string(taps.size()) + " layers", "three, in ascending order");
  }
  return taps;
}

void name_tensors(const ModelFile& file, FactReader& facts, const ModelConfig& target, HeadConfig& head) {
  const auto has = [&](const std::string& name) { return file.find(name) != nullptr; };
  const std::string prefix = has("midlayer.self_attn.q_proj.weight") ? "midlayer." : "layers.0.";
  head.names = kHfNames;
  head.joined_layer = prefix;
  if (has("layers.1.self_attn.q_proj.weight")) {
    facts.refuse_tensor(Reason::MODEL_TENSOR, "layers.1.self_attn.q_proj.weight", "a second layer", "one layer");
  }
  const auto optional = [&](const std::string& name) { return has(name) ? name : std::string(); };
  HeadTensors& tensors = head.tensors;
  tensors.embedding = optional("embed_tokens.weight");
  tensors.embedding_norm = prefix + std::string(kHfNames.attention_norm) + ".weight";
  tensors.hidden_norm = prefix + "hidden_norm.weight";
  bool norms_taps = false;
  facts.find_flag("", "norm_before_fc", norms_taps);
  if (norms_taps) tensors.tap_norm = "input_norm.weight";
  tensors.fuse = "fc.weight";
  tensors.final_norm = "norm.weight";
  tensors.output_head = "lm_head.weight";
  if (facts.config.vocab_size != target.vocab_size || has("d2t")) tensors.ids = "d2t";
}

}  // namespace

HeadConfig read_eagle3(const ModelFile& file, const ModelConfig& target) {
  if (const std::string why = why_no_head(target); !why.empty()) {
    throw ModelError(Reason::MODEL_UNSUPPORTED, file.metadata().where() + ": " + why +
                                                    ", expected attention over all keys and norms before each part");
  }
  FactReader facts(file, "", kHfNames);
  read_sizes(facts, target);
  read_tokens(facts, target);
  facts.config.trained_context = target.trained_context;
  facts.config.max_context = target.max_context;
  read_hf_rope(facts, RopeStyle::halves, 10000);
  facts.config.ropes.front().scaling.context = target.max_context;
  facts.config.kv_types = target.kv_types;
  add_layers(facts.config);
  validate(facts.config, facts.origins, file.metadata().where(), file.metadata().wrong_value());
  HeadConfig head{
      .kind = "eagle3", .target_hidden = target.hidden_size, .joins_for_attention = true, .feeds_back_normed = false};
  head.taps = read_taps(facts, target);
  facts.find_flag("", "norm_before_residual", head.residual_is_normed);
  name_tensors(file, facts, target, head);
  facts.config.qkv_bias = file.find(head.joined_layer + "self_attn.q_proj.bias") != nullptr;
  head.stack = facts.config;
  head.embedding_rows = head.stack.n_tokens;
  return head;
}

}  // namespace imp

// Reads the keys that config.json files share.
#include "model/arch/hf_facts.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <string>
#include <utility>

#include "base/printable.h"
#include "files/float8_scheme.h"
#include "model/arch/hf_names.h"
#include "model/arch/pooling_facts.h"
#include "model/config/model_limits.h"
#include "model/config/number_text.h"

namespace imp {
namespace {

// A number that a family's files may leave out.
void count_or_default(FactReader& facts, std::string_view field, std::string_view key, std::int64_t limit,
                      int by_default, int& out) {
  out = by_default;
  if (by_default == 0) return facts.count(field, key, limit, out);
  facts.find_count(field, key, limit, out);
}

int divided_head_dim(const FactReader& facts) {
  const ModelConfig& config = facts.config;
  if (config.hidden_size % config.n_heads != 0) {
    facts.refuse(Reason::MODEL_CONFIG, "num_attention_heads", std::to_string(config.n_heads),
                 "a divisor of hidden_size " + std::to_string(config.hidden_size));
  }
  return config.hidden_size / config.n_heads;
}

// Whether a size that the file does not state follows from others: the family has no constant, or the file says null.
bool is_derived(FactReader& facts, std::string_view key, int constant) {
  return constant == 0 || facts.is_null(key);
}

void read_heads(FactReader& facts, const HfTraits& traits) {
  ModelConfig& config = facts.config;
  count_or_default(facts, "n_heads", "num_attention_heads", model_limits::kHeads, traits.defaults.n_heads,
                   config.n_heads);
  constexpr std::string_view kKvHeads = "num_key_value_heads", kHeadDim = "head_dim";
  if (!facts.find_count("n_kv_heads", kKvHeads, model_limits::kHeads, config.n_kv_heads)) {
    config.n_kv_heads =
        is_derived(facts, kKvHeads, traits.defaults.n_kv_heads) ? config.n_heads : traits.defaults.n_kv_heads;
    facts.note_omitted(kKvHeads, config.n_kv_heads);
  }
  if (!facts.find_count("head_dim", kHeadDim, model_limits::kHeadDim, config.head_dim)) {
    config.head_dim = is_derived(facts, kHeadDim, traits.head_dim) ? divided_head_dim(facts) : traits.head_dim;
    facts.note_omitted(kHeadDim, config.head_dim);
  }
  float scalar = static_cast<float>(traits.query_scalar == 0 ? config.head_dim : traits.query_scalar);
  facts.find_number("attention_scale", "query_pre_attn_scalar", scalar);
  config.attention_scale = 1 / std::sqrt(scalar);
}

// The names of activations in config.json.
constexpr std::array<std::pair<std::string_view, GatedActivation>, 4> kGated = {
    {{"silu", GatedActivation::silu},
     {"swish", GatedActivation::silu},
     {"gelu", GatedActivation::gelu_erf},
     {"gelu_pytorch_tanh", GatedActivation::gelu_tanh}}};
constexpr std::array<std::pair<std::string_view, PlainActivation>, 5> kPlain = {
    {{"gelu", PlainActivation::gelu_erf},
     {"gelu_new", PlainActivation::gelu_tanh},
     {"gelu_pytorch_tanh", PlainActivation::gelu_tanh},
     {"relu2", PlainActivation::relu_squared},
     {"xielu", PlainActivation::xielu}}};

template <class Table>
auto activation_in(const Table& table, FactReader& facts, std::string_view key, std::string_view word) {
  std::string known;
  for (const auto& [name, kind] : table) {
    if (name == word) return kind;
    known += (known.empty() ? "" : ", ") + std::string(name);
  }
  facts.refuse(Reason::MODEL_UNSUPPORTED, key, printable(word), "one of " + known);
}

void read_activation(FactReader& facts, const HfTraits& traits) {
  facts.ignore("hidden_act");  // hidden_activation overrides it
  const std::string_view key = facts.has("hidden_activation") ? "hidden_activation" : "hidden_act";
  const auto word = facts.find_word("activation", key);
  if (!word) return;
  if (traits.gelu_is_tanh && *word == "gelu") {
    facts.config.activation = GatedActivation::gelu_tanh;
  } else if (traits.has_gate) {
    facts.config.activation = activation_in(kGated, facts, key, *word);
  } else {
    facts.config.plain_activation = activation_in(kPlain, facts, key, *word);
  }
}

// The flag of a vision-language model counts before that of its text part.
bool is_head_apart(FactReader& facts) {
  constexpr std::string_view kKey = "tie_word_embeddings";
  const bool is_apart = facts.has(kKey) && !facts.find_flag(kKey);
  return is_apart && !(facts.is_part() && facts.file().metadata().find_boolean(kKey).value_or(false));
}

void read_tied_head(FactReader& facts) {
  const bool stated_apart = is_head_apart(facts);
  const bool has_tensor = facts.has_tensor(facts.names().output_head);
  if (stated_apart && !has_tensor && facts.names().layer == kHfBareNames.layer) {
    facts.config.has_head = false;
    return;
  }
  facts.config.tied_head = !stated_apart && !has_tensor;
  if (stated_apart) facts.note_key("tied_head", "tie_word_embeddings");
}

// Checkpoints of one model_type may also be classifiers or encoders.
void refuse_other_tasks(FactReader& facts) {
  if (facts.config.is_two_sided) return;  // whose classes architecture_of() knows
  const MetadataValue* value = facts.file().metadata().find("architectures");
  if (!value || value->is_null()) return;
  const auto* tasks = std::get_if<StringArray>(&value->value);
  std::string found;
  for (std::size_t i = 0; tasks && i < tasks->size(); ++i) {
    if ((*tasks)[i].ends_with("ForCausalLM")) return;
    if (facts.has("modules.0.type") && (*tasks)[i].ends_with("Model")) return;
    if (facts.is_part() && (*tasks)[i].ends_with("ForConditionalGeneration")) return;
    found += (found.empty() ? "" : ", ") + printable((*tasks)[i]);
  }
  facts.refuse(Reason::MODEL_UNSUPPORTED, "architectures", found.empty() ? "none" : found, "one ending in ForCausalLM");
}

// The layers that `layer_types` calls sliding_attention; empty without that key.
std::optional<std::vector<bool>> windowed_by_types(FactReader& facts) {
  const StringArray* types = facts.find_words("windows", "layer_types");
  if (!types) return std::nullopt;
  for (const char* key : {"sliding_window_pattern", "_sliding_window_pattern"}) facts.ignore(key);  // layer_types wins
  const std::size_t n_layers = facts.config.layers.size();
  if (types->size() != n_layers) {
    facts.refuse(Reason::MODEL_CONFIG, "layer_types", std::to_string(types->size()) + " values",
                 "one for each of " + std::to_string(n_layers) + " layers");
  }
  std::vector<bool> windowed(n_layers);
  for (std::size_t i = 0; i < n_layers; ++i) {
    windowed[i] = (*types)[i] == "sliding_attention";
    if (!windowed[i] && (*types)[i] != "full_attention") {
      facts.refuse(Reason::MODEL_UNSUPPORTED, "layer_types", printable((*types)[i]),
                   "full_attention or sliding_attention");
    }
  }
  return windowed;
}

// The last of each period of layers sees all keys. Files state its length, or a word such as "LLLG": local layers, then
// a global one.
void read_period(FactReader& facts, const char* key, int& period) {
  const MetadataValue* value = facts.file().metadata().find(key);
  const auto* word = value ? std::get_if<std::string>(&value->value) : nullptr;
  if (!word) {
    facts.find_count("windows", key, model_limits::kLayers, period);
    return;
  }
  facts.ignore(key);
  if (word->empty() || word->find_first_not_of('L') != word->size() - 1 || word->back() != 'G') {
    facts.refuse(Reason::MODEL_UNSUPPORTED, key, printable(*word), "a number, or letters L and one G at the end");
  }
  period = static_cast<int>(word->size());
}

// 0 if the files disable windows.
int enabled_window(FactReader& facts, int by_default) {
  const bool is_null = facts.is_null("sliding_window");
  if (!facts.find_flag("use_sliding_window") || is_null) return 0;
  facts.find_count("windows", "sliding_window", model_limits::kContext, by_default);
  return by_default;
}

// The file reader has already checked these keys if there are 8-bit weights, and those of 4 bits need none.
void read_quantization(FactReader& facts) {
  const Metadata& config = facts.file().metadata();
  const bool is_mxfp4 = config.find_string("quantization_config.quant_method") == "mxfp4";
  if (!is_mxfp4 && !float8_scheme(config)) return;
  for (const auto& [key, value] : config.entries()) {
    if (is_quantization_key(key)) facts.ignore(key);
  }
}

void read_hf_vocabulary(FactReader& facts) {
  const std::string_view embedding = facts.names().embedding;
  int n_tokens = 0;
  if (!facts.find_count("n_tokens", "vocab_size", model_limits::kVocabulary, n_tokens)) {
    if (!facts.is_part()) facts.count("n_tokens", "vocab_size", model_limits::kVocabulary, n_tokens);
    return read_vocabulary(facts, embedding, std::nullopt);
  }
  read_vocabulary(facts, embedding, n_tokens);
  if (facts.config.vocab_size != n_tokens) {
    facts.refuse_tensor(Reason::MODEL_TENSOR, embedding, std::to_string(facts.config.vocab_size) + " rows",
                        std::to_string(n_tokens) + ", as vocab_size says");
  }
}

}  // namespace

void read_hf_decoder(FactReader& facts, const HfTraits& traits) {
  ModelConfig& config = facts.config;
  refuse_other_tasks(facts);
  read_quantization(facts);
  count_or_default(facts, "n_layers", "num_hidden_layers", model_limits::kLayers, traits.defaults.n_layers,
                   config.n_layers);
  count_or_default(facts, "trained_context", "max_position_embeddings", model_limits::kContext, traits.defaults.context,
                   config.trained_context);
  config.max_context = config.trained_context;
  facts.origins.note("max_context", Origin::checkpoint, facts.origins.find("trained_context").source);
  count_or_default(facts, "hidden_size", "hidden_size", model_limits::kHidden, traits.defaults.hidden_size,
                   config.hidden_size);
  // Models in which every layer has experts may not state the size of another feed-forward.
  constexpr std::string_view kFfnSize = "intermediate_size", kExpertSize = "moe_intermediate_size";
  const bool has_only_experts = !facts.has(kFfnSize) && facts.has(kExpertSize);
  count_or_default(facts, "ffn_size", has_only_experts ? kExpertSize : kFfnSize, model_limits::kFfn,
                   traits.defaults.ffn_size, config.ffn_size);
  read_heads(facts, traits);
  config.norm_epsilon = traits.defaults.epsilon;
  if (!facts.find_number("norm_epsilon", traits.epsilon, config.norm_epsilon) && traits.defaults.epsilon == 0) {
    facts.number("norm_epsilon", traits.epsilon, config.norm_epsilon);
  }
  read_hf_vocabulary(facts);
  for (const char* key : {"eos_token_id", "generation_config.eos_token_id"}) {
    for (const std::int64_t token : facts.find_token_ids(key)) check_end_token(facts, key, token);
  }
  read_activation(facts, traits);
  require_causal(facts, "is_causal");
  config.has_head ? read_tied_head(facts) : facts.ignore("tie_word_embeddings");
  add_layers(config);
  read_hf_pooling(facts);
  skip_hf_bookkeeping(facts);
}

void read_hf_windows(FactReader& facts, const MixedWindows& defaults) {
  ModelConfig& config = facts.config;
  MixedWindows windows = defaults;
  facts.find_count("windows", "sliding_window_size", model_limits::kContext, windows.window);
  facts.find_count("windows", "sliding_window", model_limits::kContext, windows.window);  // wins if both exist
  if (const auto windowed = windowed_by_types(facts)) return set_windows(config, *windowed, windows);
  for (const char* key : {"_sliding_window_pattern", "sliding_window_pattern"}) read_period(facts, key, windows.period);
  set_windows(config, all_but_last_of(config, windows.period), windows);
}

void read_hf_window(FactReader& facts, int by_default) {
  const bool is_null = facts.is_null("sliding_window");
  read_hf_windows(facts, {.window = is_null ? 0 : by_default, .period = facts.config.n_layers + 1, .rope = 0});
}

void read_hf_optional_windows(FactReader& facts, const std::vector<bool>& windowed, int by_default) {
  const auto by_types = windowed_by_types(facts);
  set_windows(facts.config, by_types.value_or(windowed), {.window = enabled_window(facts, by_default)});
}

void read_hf_optional_window(FactReader& facts, int by_default) {
  facts.ignore("layer_types");
  const std::vector<bool> windowed(facts.config.layers.size(), true);
  set_windows(facts.config, windowed, {.window = enabled_window(facts, by_default)});
}

std::uint64_t read_max_window_layers(FactReader& facts) {
  constexpr std::uint64_t kByDefault = 28;
  return facts.find_integer("max_window_layers").value_or(kByDefault);
}

void read_hf_windows_of_last(FactReader& facts) {
  const std::uint64_t n_full = read_max_window_layers(facts);
  std::vector<bool> windowed(facts.config.layers.size());
  for (std::size_t i = 0; i < windowed.size(); ++i) windowed[i] = i >= n_full;
  read_hf_optional_windows(facts, windowed, kHfWindow);
}

void ignore_hf_windows(FactReader& facts) {
  for (const char* key : {"use_sliding_window", "sliding_window", "layer_types"}) facts.ignore(key);
}

void read_hf_experts(FactReader& facts, std::string_view count_key, std::string_view ffn_size_key) {
  ModelConfig& config = facts.config;
  facts.count("n_experts", count_key, model_limits::kExperts, config.experts.n_experts);
  facts.count("n_experts_used", "num_experts_per_tok", model_limits::kExperts, config.experts.n_used);
  facts.count("expert_ffn_size", ffn_size_key, model_limits::kFfn, config.expert_ffn_size);
  give_all_layers_experts(config);
  // These concern training.
  for (const char* key : {"output_router_logits", "router_aux_loss_coef", "router_jitter_noise"}) facts.ignore(key);
}

void read_hf_dense_layers(FactReader& facts) {
  std::vector<LayerConfig>& layers = facts.config.layers;
  const std::uint64_t step = std::max<std::uint64_t>(facts.find_integer("decoder_sparse_step").value_or(1), 1);
  const std::vector<std::uint32_t> dense = facts.find_integers("mlp_only_layers");
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const bool is_dense = std::ranges::find(dense, i) != dense.end();
    layers[i].has_experts = (i + 1) % step == 0 && !is_dense;
  }
  if (std::ranges::none_of(layers, &LayerConfig::has_experts)) {
    facts.refuse(Reason::MODEL_CONFIG, "decoder_sparse_step", std::to_string(step), "at least one layer with experts");
  }
}

void require_word(FactReader& facts, std::string_view key, std::string_view word) {
  const auto found = facts.find_word("", key);
  if (found && *found != word) facts.refuse(Reason::MODEL_UNSUPPORTED, key, printable(*found), word);
}

void require_flag(FactReader& facts, std::string_view key, bool flag) {
  if (facts.has(key) && facts.find_flag(key) != flag) {
    facts.refuse(Reason::MODEL_UNSUPPORTED, key, flag ? "false" : "true", flag ? "true" : "false");
  }
}

void require_integer(FactReader& facts, std::string_view key, std::uint64_t number) {
  const std::uint64_t found = facts.find_integer(key).value_or(number);
  if (found != number) facts.refuse(Reason::MODEL_UNSUPPORTED, key, std::to_string(found), std::to_string(number));
}

void require_number(FactReader& facts, std::string_view key, float number) {
  float found = number;
  facts.find_number("", key, found);
  if (found != number) facts.refuse(Reason::MODEL_UNSUPPORTED, key, number_text(found), number_text(number));
}

void read_hf_soft_cap(FactReader& facts, std::string_view field, std::string_view key, float& cap) {
  if (facts.is_null(key)) cap = 0;
  facts.find_number(field, key, cap);
}

void skip_hf_bookkeeping(FactReader& facts) {
  constexpr std::array kKeys = {
      "_attn_implementation",
      "_attn_implementation_autoset",
      "_name_or_path",
      "architectures",
      "attention_bias",
      "attention_dropout",
      "attention_probs_dropout_prob",
      "attn_implementation",
      "auto_map",
      "bos_token_id",
      "cache_implementation",
      "classifier_dropout",
      "dtype",
      "embd_pdrop",
      "embedding_dropout",
      "eod_token_id",
      "gradient_checkpointing",
      "hidden_dropout_prob",
      "initializer_range",
      "max_window_layers",
      "mlp_bias",
      "model_type",
      "output_attentions",
      "output_hidden_states",
      "pad_token_id",
      "pretraining_tp",
      "resid_pdrop",
      "residual_dropout",
      "return_dict",
      "torch_dtype",
      "transformers_version",
      "use_bias",
      "use_cache",
      "unk_token_id",
  };
  for (const char* key : kKeys) facts.ignore(key);
  for (const char* section : {"id2label", "label2id"}) facts.ignore_section(section);
}

}  // namespace imp

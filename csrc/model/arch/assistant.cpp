// Gemma 4's assistant: layers of that family without keys and values, over both halves of a projection.
#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include "base/printable.h"
#include "model/arch/draft_heads.h"
#include "model/arch/gemma4.h"
#include "model/arch/gguf_facts.h"
#include "model/arch/gguf_names.h"
#include "model/arch/hf_facts.h"
#include "model/config/model_limits.h"
#include "model/config/number_text.h"
#include "model/config/validate.h"

namespace imp {
namespace {

constexpr std::string_view kGguf = "gemma4-assistant";

bool is_gguf(const ModelFile& file) {
  return file.format() == "gguf";
}

std::string_view kind_key(const ModelFile& file) {
  return is_gguf(file) ? "general.architecture" : "model_type";
}

std::string_view kind_of(const ModelFile& file) {
  return file.metadata().find_string(kind_key(file)).value_or("");
}

[[noreturn]] void refuse(const ModelFile& file, Reason reason, const std::string& what) {
  throw ModelError(reason, file.metadata().where() + ": " + what);
}

void require_width(FactReader& facts, std::string_view key, const ModelConfig& target) {
  int found = 0;
  facts.count("target_hidden", key, model_limits::kHidden, found);
  if (found == target.hidden_size) return;
  facts.refuse(Reason::MODEL_CONFIG, key, std::to_string(found),
               "the model's hidden size " + std::to_string(target.hidden_size));
}

void read_gguf(FactReader& facts, const ModelConfig& target) {
  read_gemma4_layers_gguf(facts);
  const auto n_layers = static_cast<std::uint64_t>(facts.config.n_layers);
  for (const char* key : {"nextn_predict_layers", "attention.shared_kv_layers"}) require_integer(facts, key, n_layers);
  require_integer(facts, "embedding_length_per_layer_input", 0);
  refuse_gguf_experts(facts);
  require_width(facts, "embedding_length_out", target);
}

void read_hf(FactReader& facts, const ModelConfig& target) {
  read_gemma4_layers_hf(facts);
  require_integer(facts, "num_kv_shared_layers", static_cast<std::uint64_t>(facts.config.n_layers));
  for (const char* key : {"hidden_size_per_layer_input", "vocab_size_per_layer_input"}) require_integer(facts, key, 0);
  for (const char* key : {"enable_moe_block", "use_double_wide_mlp"}) require_flag(facts, key, false);
  // No row of a head is a cell of an image, so the last of these has no effect.
  for (const char* key : {"num_experts", "top_k_experts", "moe_intermediate_size", "use_bidirectional_attention"}) {
    facts.ignore(key);
  }
  FactReader outer(facts.file(), "", facts.names());
  require_width(outer, "backbone_hidden_size", target);
}

// Small assistants score the tokens of a few clusters ("ordered embeddings"). GGUF files leave the clusters out.
HeadClusters read_clusters(const ModelFile& file, const ModelConfig& config) {
  FactReader facts(file, "", kHfGemma4Names);
  if (is_gguf(file) || !facts.find_flag("use_ordered_embeddings")) return {};
  HeadClusters clusters{.n = 2048, .n_used = 32};
  facts.find_count("clusters", "num_centroids", model_limits::kVocabulary, clusters.n);
  facts.find_count("clusters_used", "centroid_intermediate_top_k", kMaxClustersUsed, clusters.n_used);
  if (config.vocab_size % clusters.n != 0) {
    facts.refuse(Reason::MODEL_CONFIG, "num_centroids", std::to_string(clusters.n),
                 "a divisor of the " + std::to_string(config.vocab_size) + " tokens");
  }
  if (clusters.n_used > clusters.n) {
    facts.refuse(Reason::MODEL_CONFIG, "centroid_intermediate_top_k", std::to_string(clusters.n_used),
                 "at most the " + std::to_string(clusters.n) + " centroids");
  }
  return clusters;
}

// Its queries meet keys that the model has rotated.
void require_ropes(const ModelFile& file, const ModelConfig& config, const ModelConfig& target) {
  for (std::size_t i = 0; i < config.ropes.size(); ++i) {
    const RopeConfig& own = config.ropes[i];
    const RopeConfig& of_target = target.ropes[i];
    if (own.dims == of_target.dims && own.theta == of_target.theta) continue;
    const auto text = [](const RopeConfig& rope) {
      return "theta " + number_text(rope.theta) + " over " + std::to_string(rope.dims) + " elements";
    };
    refuse(
        file, Reason::MODEL_CONFIG,
        std::string(i == 0 ? "" : "windowed ") + "rope: " + text(own) + ", expected the model's, " + text(of_target));
  }
}

// A layer reads the cells of the target's last layer of its kind, with a window or without.
void read_cells_of(const ModelConfig& target, const ModelFile& file, ModelConfig& config) {
  for (std::size_t i = 0; i < config.layers.size(); ++i) {
    LayerConfig& layer = config.layers[i];
    const bool is_windowed = layer.window > 0;
    const auto source = std::find_if(target.layers.rbegin(), target.layers.rend(),
                                     [&](const LayerConfig& each) { return (each.window > 0) == is_windowed; });
    const std::string name = "layer " + std::to_string(i);
    if (source == target.layers.rend()) {
      refuse(file, Reason::MODEL_CONFIG,
             name + (is_windowed ? ": a window" : ": no window") + ", expected the kind of some layer of the model");
    }
    if (layer.n_kv_heads != source->n_kv_heads || layer.head_dim != source->head_dim) {
      const auto text = [](const LayerConfig& of) {
        return std::to_string(of.n_kv_heads) + " heads of " + std::to_string(of.head_dim);
      };
      refuse(file, Reason::MODEL_CONFIG,
             name + ": " + text(layer) + " for keys and values, expected the model's, " + text(*source));
    }
    layer.kv = source->kv;
    layer.shares_kv = true;
  }
}

// The layers, which fit those of the target.
void read_stack(FactReader& facts, const ModelConfig& target) {
  const ModelFile& file = facts.file();
  ModelConfig& config = facts.config;
  is_gguf(file) ? read_gguf(facts, target) : read_hf(facts, target);
  require_number(facts, "final_logit_softcapping", 0);
  facts.unread_keys();  // refuses those that change the arithmetic
  if (config.vocab_size != target.vocab_size) {
    facts.refuse_tensor(Reason::MODEL_CONFIG, facts.names().embedding, std::to_string(config.vocab_size) + " rows",
                        "the model's " + std::to_string(target.vocab_size) + " tokens");
  }
  validate(config, facts.origins, file.metadata().where(), file.metadata().wrong_value());
  require_ropes(file, config, target);
  read_cells_of(target, file, config);
  config.ropes = target.ropes;
  config.trained_context = target.trained_context;
  config.max_context = target.max_context;
}

HeadTensors tensors_of(const FactReader& facts, const HeadClusters& clusters) {
  const bool in_gguf = is_gguf(facts.file());
  const TensorNames& names = facts.names();
  HeadTensors tensors;
  tensors.fuse = in_gguf ? "nextn.pre_projection.weight" : "pre_projection.weight";
  tensors.feed_back = in_gguf ? "nextn.post_projection.weight" : "post_projection.weight";
  tensors.final_norm = names.final_norm;
  tensors.output_head = facts.config.tied_head ? names.embedding : names.output_head;
  if (clusters.n == 0) return tensors;
  tensors.centroids = "masked_embedding.centroids.weight";
  tensors.clusters = "masked_embedding.token_ordering";
  return tensors;
}

}  // namespace

bool is_assistant(const ModelFile& file) {
  const std::string_view kind = kind_of(file);
  return is_gguf(file) ? kind == kGguf : kind == "gemma4_assistant" || kind == "gemma4_unified_assistant";
}

HeadConfig read_head(const ModelFile& file, std::string_view target_architecture, const ModelConfig& target) {
  if (is_assistant(file)) return read_assistant(file, target_architecture, target);
  if (!is_gguf(file)) return read_eagle3(file, target);
  const std::string_view kind = kind_of(file);
  const bool is_older = kind == "gemma4_assistant" || kind == "gemma4_mtp";
  refuse(file, Reason::MODEL_UNSUPPORTED,
         "key " + std::string(kind_key(file)) + ": " + printable(kind) +
             (is_older ? ", an older layout of Gemma 4's assistant, expected gemma4-assistant: convert it again"
                       : ", expected gemma4-assistant"));
}

HeadConfig read_assistant(const ModelFile& file, std::string_view target_architecture, const ModelConfig& target) {
  if (!target_architecture.starts_with("gemma4")) {
    refuse(file, Reason::MODEL_UNSUPPORTED,
           "the assistant of a Gemma 4, expected a head for " + std::string(target_architecture));
  }
  FactReader facts(file, is_gguf(file) ? std::string(kGguf) + "." : "text_config.",
                   is_gguf(file) ? kGgufNames : kHfGemma4Names);
  read_stack(facts, target);
  const HeadClusters clusters = read_clusters(file, facts.config);
  return {.kind = "assistant",
          .stack = facts.config,
          .target_hidden = target.hidden_size,
          .target_ropes = {0, 1},
          .reads_target = true,
          .clusters = clusters,
          .tensors = tensors_of(facts, clusters),
          .names = facts.names(),
          .read_tensors = facts.read_tensors()};
}

}  // namespace imp

// NextN: a layer of the target's kind over the product of embedding and hidden row.
#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "model/arch/decoder_facts.h"
#include "model/arch/draft_heads.h"
#include "model/arch/hf_names.h"

namespace imp {
namespace {

constexpr std::string_view kFuse = "nextn.eh_proj";
constexpr std::string_view kMimoLayers = "model.mtp_layers.";
// Tensor names of Qwen's NextN layer in a model directory.
constexpr std::string_view kQwen = "mtp.", kQwenLayers = "mtp.layers.";
constexpr std::string_view kInnerQwen = "model.mtp.", kInnerQwenLayers = "model.mtp.layers.";

// The number after a prefix of a tensor's name, or nothing.
std::optional<int> number_after(std::string_view prefix, std::string_view tensor) {
  TensorNames names;
  names.layer = prefix;
  const int number = names.layer_of(tensor);
  return number < 0 ? std::nullopt : std::optional(number);
}

// The number of the draft layer that a tensor belongs to, or nothing. Tensors outside the layers belong to the first.
std::optional<int> draft_layer_of(std::string_view tensor, const TensorNames& names, const ModelConfig& target) {
  if (const int layer = names.layer_of(tensor) - target.n_layers; layer >= 0 && layer < target.n_draft_layers) {
    return layer;
  }
  for (const std::string_view prefix : {kMimoLayers, kQwenLayers, kInnerQwenLayers}) {
    if (const std::optional<int> layer = number_after(prefix, tensor)) return layer;
  }
  return tensor.starts_with(kQwen) || tensor.starts_with(kInnerQwen) ? std::optional(0) : std::nullopt;
}

// The last layer of the target that has keys and values, and not only a recurrent state; -1: none.
int last_with_attention(const ModelConfig& target) {
  int layer = target.n_layers - 1;
  while (layer >= 0 && target.layers[static_cast<std::size_t>(layer)].state != kNoState) --layer;
  return layer;
}

// A head whose layer has the shape of the target's last layer with attention, but has no window.
HeadConfig head_like(const ModelConfig& target, const TensorNames& names) {
  HeadConfig head{.kind = "nextn", .stack = target, .target_hidden = target.hidden_size, .names = names};
  ModelConfig& layer = head.stack;
  layer.n_layers = 1;
  layer.n_draft_layers = 0;
  layer.layers = {target.layers[static_cast<std::size_t>(last_with_attention(target))]};
  LayerConfig& only = layer.layers.front();
  // The sizes of the model are those of its first layer, which may have others.
  layer.n_kv_heads = only.n_kv_heads;
  layer.head_dim = only.head_dim;
  layer.ffn_size = only.ffn_size;
  head.target_ropes = {std::exchange(only.rope, 0)};
  layer.ropes = {target.ropes[static_cast<std::size_t>(head.target_ropes.front())]};
  only.kv = 0;
  layer.kv_ranges.clear();  // of the model's layers
  only.window = only.ahead = 0;
  return head;
}

HeadConfig gguf_head(const ModelFile& file, const TensorNames& names, const ModelConfig& target) {
  TensorNames own = names;
  own.first_layer = target.n_layers;
  HeadConfig head = head_like(target, own);
  const auto optional = [&](std::string_view name) {
    std::string tensor = own.weight(0, name);
    return file.find(tensor) == nullptr ? std::string() : tensor;
  };
  head.tensors.fuse = own.weight(0, kFuse);
  head.tensors.embedding_norm = own.weight(0, "nextn.enorm");
  head.tensors.hidden_norm = own.weight(0, "nextn.hnorm");
  head.tensors.embedding = optional("nextn.embed_tokens");
  head.embedding_rows = target.vocab_size;
  head.tensors.final_norm = optional("nextn.shared_head_norm");
  head.tensors.output_head = optional("nextn.shared_head_head");
  return head;
}

HeadConfig mimo_head(const TensorNames& names, const ModelConfig& target) {
  TensorNames own = names;
  own.layer = kMimoLayers;
  HeadConfig head = head_like(target, own);
  head.hidden_comes_first = true;
  head.tensors.fuse = own.weight(0, "input_proj");
  head.tensors.embedding_norm = own.weight(0, "token_layernorm");
  head.tensors.hidden_norm = own.weight(0, "hidden_layernorm");
  head.tensors.final_norm = own.weight(0, "final_layernorm");
  return head;
}

// The experts of the layer may lie in one tensor where those of the target do not, or the reverse.
HeadConfig qwen_head(const ModelFile& file, const ModelConfig& target, bool is_inner) {
  TensorNames own = kHfQwen35StackNames;
  own.layer = is_inner ? kInnerQwenLayers : kQwenLayers;
  if (file.find(own.stack(0, own.expert_gate_up)) == nullptr) {
    own = kHfQwen35Names;
    own.layer = is_inner ? kInnerQwenLayers : kQwenLayers;
  }
  HeadConfig head = head_like(target, own);
  const auto named = [&](const char* name) { return std::string(is_inner ? kInnerQwen : kQwen) + name + ".weight"; };
  head.tensors.fuse = named("fc");
  head.tensors.embedding_norm = named("pre_fc_norm_embedding");
  head.tensors.hidden_norm = named("pre_fc_norm_hidden");
  head.tensors.final_norm = named("norm");
  return head;
}

// The head of the tensors that the file has, or nothing.
std::optional<HeadConfig> head_of(const ModelFile& file, const TensorNames& names, const ModelConfig& target) {
  const auto has = [&](const std::string& tensor) { return file.find(tensor) != nullptr; };
  if (target.n_draft_layers > 0 && has(names.weight(target.n_layers, kFuse))) return gguf_head(file, names, target);
  if (has(std::string(kMimoLayers) + "0.input_proj.weight")) return mimo_head(names, target);
  if (!target.output_gate) return std::nullopt;
  for (const bool is_inner : {false, true}) {
    if (has(std::string(is_inner ? kInnerQwen : kQwen) + "fc.weight")) return qwen_head(file, target, is_inner);
  }
  return std::nullopt;
}

}  // namespace

std::string why_no_head(const ModelConfig& target) {
  const int layer = last_with_attention(target);
  if (layer < 0) return "the model has no layer with keys";
  const bool is_plain = target.norm_kind == NormKind::rms && target.norm_placement == NormPlacement::pre &&
                        !target.parallel_blocks && target.residual_scale == 1 && target.layer_embedding.size == 0 &&
                        !target.plain_activation && !target.value_norm && !target.attention_sinks &&
                        target.query_scale.growth == 0 &&
                        target.layers[static_cast<std::size_t>(layer)].rope != kNoRope;
  return is_plain ? "" : "the model's layers are of another kind";
}

void read_gguf_nextn(FactReader& facts) {
  constexpr std::string_view kKey = "nextn_predict_layers";
  if (facts.find_integer(kKey)) return leave_out_draft_layers(facts, kKey);
  ModelConfig& config = facts.config;
  const auto has_head = [&](int layer) { return facts.has_tensor(facts.names().weight(layer, kFuse)); };
  if (has_head(config.n_layers)) {
    config.n_draft_layers = 1;
  } else if (config.n_layers > 1 && has_head(config.n_layers - 1)) {
    config.n_draft_layers = 1;
    --config.n_layers;
    add_layers(config);
  }
}

OwnHead find_nextn(const ModelFile& file, const TensorNames& names, const ModelConfig& target) {
  OwnHead found;
  int last = 0;
  for (const TensorInfo& tensor : file.tensors()) {
    const std::optional<int> layer = draft_layer_of(tensor.name, names, target);
    if (!layer) continue;
    if (found.first_name.empty()) found.first_name = tensor.name;
    last = std::max(last, *layer);
  }
  if (found.first_name.empty()) {
    if (target.n_draft_layers > 0) found.why_not = "the file has no tensors of it";
    return found;
  }
  found.why_not = why_no_head(target);
  if (!found.why_not.empty()) return found;
  std::optional<HeadConfig> head = head_of(file, names, target);
  if (last > 0) {
    found.why_not = "the file has more than one";
  } else if (!head) {
    found.why_not = "its tensors are of another kind";
  } else if (const bool has_experts = file.find(head->names.weight(0, head->names.router)) != nullptr;
             has_experts != head->stack.layers.front().has_experts) {
    found.why_not = has_experts ? "it has experts, and the model's layers have none"
                                : "it has no experts, and the model's layers have some";
  } else {
    found.config = std::move(head);
  }
  return found;
}

}  // namespace imp

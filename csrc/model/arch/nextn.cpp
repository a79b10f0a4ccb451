// NextN: a layer of the target's kind over the product of embedding and hidden row.
#include <algorithm>
#include <array>
#include <string>
#include <string_view>

#include "model/arch/decoder_facts.h"
#include "model/arch/draft_heads.h"
#include "model/model_limits.h"

namespace imp {
namespace {

constexpr std::string_view kFuse = "nextn.eh_proj";
constexpr std::string_view kMtp = "model.mtp_layers.";
constexpr std::string_view kMtpOfQwen = "mtp.";

// The layer's tensors, and the norms of q and k and the biases that the target's layers have.
void name_layer(const TensorNames& names, const std::string& prefix, const ModelConfig& config, HeadTensors& tensors) {
  const auto weight = [&](std::string_view name) { return prefix + std::string(name) + ".weight"; };
  const auto bias = [&](std::string_view name) { return prefix + std::string(name) + ".bias"; };
  tensors.attention_norm = weight(names.attention_norm);
  tensors.q = weight(names.q);
  tensors.k = weight(names.k);
  tensors.v = weight(names.v);
  if (config.qkv_bias) {
    tensors.q_bias = bias(names.q);
    tensors.k_bias = bias(names.k);
    tensors.v_bias = bias(names.v);
  }
  if (config.qk_norm == QkNorm::head) {
    tensors.q_norm = weight(names.q_norm);
    tensors.k_norm = weight(names.k_norm);
  }
  tensors.output = weight(names.output);
  tensors.ffn_norm = weight(names.ffn_norm);
  tensors.gate = weight(names.gate);
  tensors.up = weight(names.up);
  tensors.down = weight(names.down);
}

// One layer like the target's last, which sees all keys.
ModelConfig layer_of(const ModelConfig& target) {
  ModelConfig layer = target;
  layer.n_layers = 1;
  layer.n_draft_layers = 0;
  layer.layers = {target.layers.back()};
  layer.ropes = {target.ropes[static_cast<std::size_t>(layer.layers.front().rope)]};
  layer.layers.front().rope = 0;
  layer.layers.front().kv = 0;
  layer.layers.front().window = 0;
  return layer;
}

HeadConfig gguf_head(const ModelFile& file, const TensorNames& names, const ModelConfig& target) {
  HeadConfig head{.kind = "nextn", .layer = layer_of(target), .embedding_rows = target.vocab_size};
  const int layer = target.n_layers;
  const auto optional = [&](std::string_view name) {
    std::string tensor = names.weight(layer, name);
    return file.find(tensor) == nullptr ? std::string() : tensor;
  };
  name_layer(names, names.in_layer(layer, ""), target, head.tensors);
  head.tensors.fuse = names.weight(layer, kFuse);
  head.tensors.embedding_norm = names.weight(layer, "nextn.enorm");
  head.tensors.hidden_norm = names.weight(layer, "nextn.hnorm");
  head.tensors.embedding = optional("nextn.embed_tokens");
  head.tensors.final_norm = optional("nextn.shared_head_norm");
  head.tensors.head = optional("nextn.shared_head_head");
  return head;
}

HeadConfig mimo_head(const TensorNames& names, const ModelConfig& target) {
  HeadConfig head{.kind = "nextn", .layer = layer_of(target), .hidden_comes_first = true};
  const std::string prefix = std::string(kMtp) + "0.";
  name_layer(names, prefix, target, head.tensors);
  head.tensors.fuse = prefix + "input_proj.weight";
  head.tensors.embedding_norm = prefix + "token_layernorm.weight";
  head.tensors.hidden_norm = prefix + "hidden_layernorm.weight";
  head.tensors.final_norm = prefix + "final_layernorm.weight";
  return head;
}

}  // namespace

std::string why_no_head(const ModelConfig& target) {
  if (target.n_state_layers() > 0) return "the model has a recurrent state";
  const bool is_plain = target.norm_kind == NormKind::rms && target.norm_placement == NormPlacement::pre &&
                        !target.parallel_blocks && target.residual_scale == 1 && target.layer_embedding.size == 0 &&
                        !target.plain_activation && !target.value_norm && !target.output_gate &&
                        !target.attention_sinks && target.query_scale.growth == 0 &&
                        target.layers.back().rope != kNoRope;
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
  bool is_of_layer = false, is_second = false;
  for (const TensorInfo& tensor : file.tensors()) {
    const int layer = names.layer_of(tensor.name);
    const bool is_draft = layer >= target.n_layers && layer < target.n_layers + target.n_draft_layers;
    const bool is_mtp = tensor.name.starts_with(kMtp);
    if (!is_draft && !is_mtp && !tensor.name.starts_with(kMtpOfQwen) && !tensor.name.starts_with("model.mtp."))
      continue;
    if (found.first_name.empty()) found.first_name = tensor.name;
    is_of_layer |= is_draft || is_mtp;
    is_second |= layer > target.n_layers || (is_mtp && !tensor.name.starts_with(std::string(kMtp) + "0."));
  }
  if (found.first_name.empty()) {
    if (target.n_draft_layers > 0) found.why_not = "the file has no tensors of it";
    return found;
  }
  found.why_not = why_no_head(target);
  if (!found.why_not.empty()) return found;
  const bool is_gguf = file.find(names.weight(target.n_layers, kFuse)) != nullptr;
  const bool is_mimo = file.find(std::string(kMtp) + "0.input_proj.weight") != nullptr;
  if (is_second) {
    found.why_not = "the file has more than one";
  } else if (!is_of_layer || (!is_gguf && !is_mimo)) {
    found.why_not = "its tensors are of another kind";
  } else if (target.layers.back().has_experts || file.find(names.weight(target.n_layers, names.router)) != nullptr) {
    found.why_not = "it has experts";
  } else {
    found.config = is_gguf ? gguf_head(file, names, target) : mimo_head(names, target);
  }
  return found;
}

}  // namespace imp

// Nomic BERT: rotated positions, a gated feed-forward without biases, norms after each sum.
#include <array>
#include <cstdint>
#include <string_view>
#include <utility>

#include "model/arch/architecture.h"
#include "model/arch/encoder_facts.h"
#include "model/arch/gguf_facts.h"
#include "model/arch/gguf_names.h"
#include "model/arch/hf_facts.h"
#include "model/arch/hf_names.h"

namespace imp {
namespace {

constexpr TensorNames kGgufNomicNames = [] {
  TensorNames names = kGgufNames;
  names.post_attention_norm = "attn_output_norm";
  names.post_ffn_norm = "layer_output_norm";
  names.text.token_types = "token_types.weight";
  names.text.embedding_norm = "token_embd_norm.weight";
  return names;
}();

constexpr TensorNames kHfNomicNames = {
    .embedding = "embeddings.word_embeddings.weight",
    .layer = "encoder.layers.",
    .qkv = "attn.Wqkv",
    .output = "attn.out_proj",
    .post_attention_norm = "norm1",
    .gate = "mlp.fc12",
    .up = "mlp.fc11",
    .down = "mlp.fc2",
    .post_ffn_norm = "norm2",
    .text = {.token_types = "embeddings.token_type_embeddings.weight", .embedding_norm = "emb_ln.weight"},
};

void finish_nomic(FactReader& facts) {
  read_biases(facts);
  set_after_sum(facts.config);
  see_both_sides(facts.config);
  read_text_embedding(facts, 0);
}

void read_nomic_gguf(FactReader& facts) {
  begin_encoder(facts);
  read_gguf_decoder(facts, NormKind::layer);
  refuse_gguf_experts(facts);
  read_gguf_rope(facts, RopeStyle::halves, 10000);
  finish_nomic(facts);
}

// The code beside the first checkpoints names its keys after those of GPT-2.
void accept_first_names(FactReader& facts) {
  const std::array<std::pair<std::string_view, std::string_view>, 7> names = {{
      {"num_hidden_layers", "n_layer"},
      {"num_attention_heads", "n_head"},
      {"hidden_size", "n_embd"},
      {"intermediate_size", "n_inner"},
      {"layer_norm_eps", "layer_norm_epsilon"},
      {"rope_theta", "rotary_emb_base"},
      {"max_position_embeddings", facts.has("max_trained_positions") ? "max_trained_positions" : "n_positions"},
  }};
  for (const auto& [key, other] : names) facts.accept(key, other);
  for (const char* key : {"n_positions", "use_flash_attn", "rotary_emb_scale_base", "fused_dropout_add_ln"}) {
    facts.ignore(key);
  }
  require_word(facts, "activation_function", "swiglu");
  require_flag(facts, "scale_attn_weights", true);
  require_number(facts, "rotary_emb_fraction", 1);
  for (const char* key : {"prenorm", "causal", "parallel_block", "qkv_proj_bias", "mlp_fc1_bias", "mlp_fc2_bias"}) {
    require_flag(facts, key, false);
  }
}

void read_nomic_hf(FactReader& facts) {
  begin_encoder(facts);
  accept_first_names(facts);
  read_hf_decoder(facts, {.epsilon = "layer_norm_eps", .defaults = {.epsilon = 1e-12F}});
  facts.config.norm_kind = NormKind::layer;
  read_hf_rope(facts, RopeStyle::halves, 1000);
  finish_nomic(facts);
  require_integer(facts, "type_vocab_size", static_cast<std::uint64_t>(facts.config.text_embedding.n_token_types));
}

}  // namespace

Family nomic_bert_family() noexcept {
  static constexpr std::array kRows = {
      Architecture{.format = ModelFormat::gguf,
                   .name = "nomic-bert",
                   .read = read_nomic_gguf,
                   .names = &kGgufNomicNames,
                   .is_encoder = true},
      Architecture{.format = ModelFormat::hf,
                   .name = "nomic_bert",
                   .read = read_nomic_hf,
                   .names = &kHfNomicNames,
                   .is_encoder = true},
  };
  return kRows;
}

}  // namespace imp

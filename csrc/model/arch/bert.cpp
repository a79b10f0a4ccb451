// BERT, RoBERTa and XLM-RoBERTa: learned positions and token types, norms after each sum.
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "model/arch/architecture.h"
#include "model/arch/encoder_facts.h"
#include "model/arch/gguf_facts.h"
#include "model/arch/gguf_names.h"
#include "model/arch/hf_facts.h"
#include "model/arch/hf_names.h"

namespace imp {
namespace {

constexpr TensorNames kGgufBertNames = [] {
  TensorNames names = kGgufNames;
  names.post_attention_norm = "attn_output_norm";
  names.post_ffn_norm = "layer_output_norm";
  names.text.positions = "position_embd.weight";
  names.text.token_types = "token_types.weight";
  names.text.embedding_norm = "token_embd_norm.weight";
  names.text.score_dense = "cls";
  names.text.score_output = "cls.output";
  return names;
}();

// Checkpoints of the encoder alone.
constexpr TensorNames kHfBertNames = {
    .embedding = "embeddings.word_embeddings.weight",
    .layer = "encoder.layer.",
    .q = "attention.self.query",
    .k = "attention.self.key",
    .v = "attention.self.value",
    .output = "attention.output.dense",
    .post_attention_norm = "attention.output.LayerNorm",
    .up = "intermediate.dense",
    .down = "output.dense",
    .post_ffn_norm = "output.LayerNorm",
    .text = {.positions = "embeddings.position_embeddings.weight",
             .token_types = "embeddings.token_type_embeddings.weight",
             .embedding_norm = "embeddings.LayerNorm.weight",
             .unused = {"embeddings.position_ids", "pooler.dense.weight", "pooler.dense.bias"}},
};

// Those of an encoder with a head.
constexpr TensorNames kHfOuterBertNames = [] {
  TensorNames names = kHfBertNames;
  names.embedding = "bert.embeddings.word_embeddings.weight";
  names.layer = "bert.encoder.layer.";
  names.text = {.positions = "bert.embeddings.position_embeddings.weight",
                .token_types = "bert.embeddings.token_type_embeddings.weight",
                .embedding_norm = "bert.embeddings.LayerNorm.weight",
                .score_dense = "bert.pooler.dense",
                .score_output = "classifier",
                .unused = {"bert.embeddings.position_ids", "bert.pooler.dense.weight", "bert.pooler.dense.bias"}};
  return names;
}();
constexpr TensorNames kHfOuterRobertaNames = [] {
  TensorNames names = kHfBertNames;
  names.embedding = "roberta.embeddings.word_embeddings.weight";
  names.layer = "roberta.encoder.layer.";
  names.text = {
      .positions = "roberta.embeddings.position_embeddings.weight",
      .token_types = "roberta.embeddings.token_type_embeddings.weight",
      .embedding_norm = "roberta.embeddings.LayerNorm.weight",
      .score_dense = "classifier.dense",
      .score_output = "classifier.out_proj",
      .unused = {"roberta.embeddings.position_ids", "roberta.pooler.dense.weight", "roberta.pooler.dense.bias"}};
  return names;
}();

// `offset`: the row of the first token in the table of positions.
void finish_bert(FactReader& facts, int offset) {
  read_biases(facts);
  set_after_sum(facts.config);
  see_both_sides(facts.config);
  leave_rope_out(facts.config, std::vector<bool>(facts.config.layers.size()));
  read_text_embedding(facts, offset);
  read_score_head(facts);
}

void read_bert_gguf(FactReader& facts) {
  begin_encoder(facts);
  read_gguf_decoder(facts, NormKind::layer);
  facts.config.plain_activation = PlainActivation::gelu_erf;
  finish_bert(facts, 0);
}

void read_bert_family(FactReader& facts, int offset) {
  begin_encoder(facts);
  facts.config.plain_activation = PlainActivation::gelu_erf;
  read_hf_decoder(facts, {.epsilon = "layer_norm_eps", .has_gate = false, .defaults = {.epsilon = 1e-12F}});
  facts.config.norm_kind = NormKind::layer;
  require_word(facts, "position_embedding_type", "absolute");
  require_flag(facts, "is_decoder", false);
  require_flag(facts, "add_cross_attention", false);
  finish_bert(facts, offset);
  require_integer(facts, "type_vocab_size", static_cast<std::uint64_t>(facts.config.text_embedding.n_token_types));
}

void read_bert_hf(FactReader& facts) {
  read_bert_family(facts, 0);
}

constexpr std::uint64_t kMostPadding = 16;

// Positions follow that of padding, which is its token.
void read_roberta_hf(FactReader& facts) {
  constexpr std::string_view kPadding = "pad_token_id";
  const std::uint64_t padding = facts.find_integer(kPadding).value_or(1);
  if (padding > kMostPadding) {
    facts.refuse(Reason::MODEL_UNSUPPORTED, kPadding, std::to_string(padding), "0 to " + std::to_string(kMostPadding));
  }
  read_bert_family(facts, static_cast<int>(padding) + 1);
}

constexpr Architecture hf_encoder(std::string_view name, void (*read)(FactReader&), const TensorNames* outer) {
  return {.format = ModelFormat::hf,
          .name = name,
          .read = read,
          .names = &kHfBertNames,
          .other_names = {outer},
          .is_encoder = true};
}

}  // namespace

Family bert_family() noexcept {
  static constexpr std::array kRows = {
      Architecture{.format = ModelFormat::gguf,
                   .name = "bert",
                   .read = read_bert_gguf,
                   .names = &kGgufBertNames,
                   .is_encoder = true},
      hf_encoder("bert", read_bert_hf, &kHfOuterBertNames),
      hf_encoder("roberta", read_roberta_hf, &kHfOuterRobertaNames),
      hf_encoder("xlm-roberta", read_roberta_hf, &kHfOuterRobertaNames),
  };
  return kRows;
}

}  // namespace imp

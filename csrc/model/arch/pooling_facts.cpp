// Reads pooling_type of GGUF, and the files of sentence-transformers.
#include "model/arch/pooling_facts.h"

#include <array>
#include <cstdint>
#include <string>
#include <utility>

#include "base/printable.h"
#include "model/config/model_limits.h"

namespace imp {
namespace {

constexpr std::array kGgufPooling = {Pooling::none, Pooling::mean, Pooling::cls, Pooling::last, Pooling::rank};

struct Mode {
  std::string_view key;   // a flag
  std::string_view word;  // of `pooling_mode`
  Pooling pooling;        // none: imp does not compute it
};
constexpr std::array<Mode, 6> kModes = {{
    {"pooling.pooling_mode_mean_tokens", "mean", Pooling::mean},
    {"pooling.pooling_mode_cls_token", "cls", Pooling::cls},
    {"pooling.pooling_mode_lasttoken", "lasttoken", Pooling::last},
    {"pooling.pooling_mode_max_tokens", "max", Pooling::none},
    {"pooling.pooling_mode_mean_sqrt_len_tokens", "mean_sqrt_len_tokens", Pooling::none},
    {"pooling.pooling_mode_weightedmean_tokens", "weightedmean", Pooling::none},
}};
constexpr std::string_view kExpected = "one of mean, cls and lasttoken";

void set_pooling(FactReader& facts, Pooling pooling, std::string_view whole_key) {
  facts.config.pooling = pooling;
  facts.note_key("pooling", whole_key);
}

void read_word(FactReader& facts, std::string_view key, std::string_view word) {
  for (const Mode& mode : kModes) {
    if (mode.word == word && mode.pooling != Pooling::none) return set_pooling(facts, mode.pooling, key);
  }
  facts.refuse(Reason::MODEL_UNSUPPORTED, key, printable(word), kExpected);
}

void read_flags(FactReader& facts) {
  for (const Mode& mode : kModes) {
    if (!facts.file().metadata().find_boolean(mode.key).value_or(false)) continue;
    if (mode.pooling == Pooling::none) facts.refuse(Reason::MODEL_UNSUPPORTED, mode.key, "true", kExpected);
    if (facts.config.pooling != Pooling::none) {
      facts.refuse(Reason::MODEL_UNSUPPORTED, mode.key, "true beside another kind of pooling", kExpected);
    }
    set_pooling(facts, mode.pooling, mode.key);
  }
}

void read_mode(FactReader& facts) {
  constexpr std::string_view kWord = "pooling.pooling_mode", kPrompt = "pooling.include_prompt";
  const Metadata& metadata = facts.file().metadata();
  if (!metadata.find_boolean(kPrompt).value_or(true)) {
    facts.refuse(Reason::MODEL_UNSUPPORTED, kPrompt, "false", "true");
  }
  if (metadata.is_array(kWord)) facts.refuse(Reason::MODEL_UNSUPPORTED, kWord, "several kinds", kExpected);
  if (const auto word = metadata.find_string(kWord)) return read_word(facts, kWord, *word);
  read_flags(facts);
}

std::optional<PlainActivation> activation_of(FactReader& facts, const std::string& key) {
  const std::string_view name = facts.file().metadata().string(key);
  const std::string_view last = name.substr(name.rfind('.') + 1);
  if (last == "Tanh") return PlainActivation::tanh;
  if (last != "Identity") facts.refuse(Reason::MODEL_UNSUPPORTED, key, printable(name), "Tanh or Identity");
  return std::nullopt;
}

void read_projections(FactReader& facts) {
  for (int i = 0;; ++i) {
    const std::string at = "dense." + std::to_string(i) + ".";
    int size = 0;
    if (!facts.find_count("projections", at + "out_features", model_limits::kHidden, size)) return;
    facts.config.projections.push_back({.size = size,
                                        .has_bias = facts.file().metadata().find_boolean(at + "bias").value_or(true),
                                        .activation = activation_of(facts, at + "activation_function")});
  }
}

void read_gguf_projections(FactReader& facts) {
  for (std::size_t i = 0;; ++i) {
    const std::string tensor = facts.names().text.projection(i) + ".weight";
    const TensorInfo* found = facts.file().find(tensor);
    if (found == nullptr) return;
    if (found->dims[1] > model_limits::kHidden) {
      facts.refuse_tensor(Reason::MODEL_LIMIT, tensor, std::to_string(found->dims[1]) + " rows",
                          "at most " + std::to_string(model_limits::kHidden));
    }
    facts.config.projections.push_back({.size = static_cast<int>(found->dims[1]), .activation = {}});
    facts.note_tensor("projections", tensor);
  }
}

// The score of a decoder is made of the logits of two tokens, whose rows of the head its classifier repeats.
void leave_to_logits(FactReader& facts) {
  constexpr std::string_view kRows = "cls.output.weight";
  facts.config.pooling = Pooling::none;
  const TensorInfo* found = facts.file().find(kRows);
  if (found == nullptr || found->dims[1] == 2) return;
  facts.refuse_tensor(Reason::MODEL_UNSUPPORTED, kRows, std::to_string(found->dims[1]) + " rows",
                      "2, of the tokens yes and no");
}

void read_longest_text(FactReader& facts) {
  int longest = 0;
  const OriginNote before = facts.origins.find("max_context");
  if (!facts.find_count("max_context", "sentence_bert.max_seq_length", model_limits::kContext, longest)) return;
  if (longest < facts.config.max_context) {
    facts.config.max_context = longest;
  } else {
    facts.origins.note("max_context", before.origin, before.source);
  }
}

// A class that classifies, whose one label is the score of a reranker.
bool is_reranker(const FactReader& facts) {
  const StringArray* classes = facts.file().metadata().find_strings("architectures");
  return classes != nullptr && classes->size() > 0 && (*classes)[0].ends_with("ForSequenceClassification");
}

}  // namespace

void read_gguf_pooling(FactReader& facts) {
  constexpr std::string_view kKey = "pooling_type";
  const auto type = facts.find_integer(kKey);
  if (!type) return;
  if (*type >= kGgufPooling.size()) facts.refuse(Reason::MODEL_UNSUPPORTED, kKey, std::to_string(*type), "0 to 4");
  facts.config.pooling = kGgufPooling[static_cast<std::size_t>(*type)];
  if (facts.config.pooling == Pooling::rank && !facts.config.is_two_sided) return leave_to_logits(facts);
  facts.note_key("pooling",
                 std::string(facts.file().metadata().string("general.architecture")) + "." + std::string(kKey));
  read_gguf_projections(facts);
}

void read_hf_pooling(FactReader& facts) {
  if (facts.is_part()) return;
  if (is_reranker(facts)) return set_pooling(facts, Pooling::rank, "architectures");
  read_mode(facts);
  read_projections(facts);
  read_longest_text(facts);
}

}  // namespace imp

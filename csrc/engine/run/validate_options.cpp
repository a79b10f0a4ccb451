// Compares each option with its range and with the model.
#include "engine/run/validate_options.h"

#include <algorithm>
#include <sstream>
#include <string>
#include <variant>

#include "base/error.h"

namespace imp {
namespace {

void require(bool holds, const char* option, std::int64_t found, const std::string& expected) {
  if (!holds) throw FieldInvalid(option, std::to_string(found) + ", expected " + expected);
}

void check_range(const EngineField& field, const EngineOptions& options) {
  const auto value = std::visit([&](auto member) { return static_cast<double>(options.*member); }, field.member);
  if (value >= field.low && value <= field.high) return;  // NaN is outside
  std::ostringstream problem;
  problem << value << ", expected " << field.low << " to " << field.high;
  throw FieldInvalid(std::string(field.name), problem.str());
}

void check_media(const EngineOptions& options, const ForwardPass& forward, const MediaFacts& media) {
  const int max_rows = options.max_running + media.max_atomic_cells;
  require(forward.limits().max_rows >= max_rows, "max_running", options.max_running,
          "so few that these and an image fit the model's max_rows, " + std::to_string(forward.limits().max_rows));
  require(options.media_rows >= media.max_rows, "media_rows", options.media_rows,
          "at least the rows of the largest part of an image, " + std::to_string(media.max_rows));
}

// A model without a head draws nothing, and does not tell how many tokens there are.
void check_tokens(const EngineOptions& options, int vocab_size) {
  const bool has_head = vocab_size > 0;
  require(has_head ? options.n_tokens >= 0 && options.n_tokens <= vocab_size : options.n_tokens > 0, "n_tokens",
          options.n_tokens,
          has_head ? "at most the model's rows, " + std::to_string(vocab_size) : "at least 1: the model has no head");
  if (!std::ranges::is_sorted(options.control_tokens)) {
    throw FieldInvalid("control_tokens", "not sorted, expected ascending ids");
  }
  for (const std::int32_t token : options.suppressed_tokens) {
    require(!has_head || (token >= 0 && token < vocab_size), "suppressed_tokens", token,
            "a token id below " + std::to_string(vocab_size));
  }
}

}  // namespace

void validate(const EngineOptions& options, const ForwardPass& forward, const MediaEncoder* encoder) {
  if (encoder != nullptr) check_media(options, forward, encoder->facts());
  for (const EngineField& field : kEngineFields) check_range(field, options);
  const KvGeometry geometry = forward.kv_geometry(options.n_blocks, options.n_state_slots);
  const int block_tokens = geometry.block_tokens;
  const ForwardLimits& limits = forward.limits();
  const std::int64_t cache_tokens = static_cast<std::int64_t>(options.n_blocks) * block_tokens;
  require(options.max_context > 0, "max_context", options.max_context, "at least 1");
  require(cache_tokens >= options.max_context, "max_context", options.max_context,
          "at most the tokens that the cache holds, " + std::to_string(cache_tokens));
  const bool has_state = geometry.state.n_layers > 0;
  require(has_state ? options.n_state_slots >= 2 : options.n_state_slots == 0, "n_state_slots", options.n_state_slots,
          has_state ? "at least 2: a step reads one and writes another" : "0: the model has no recurrent state");
  check_tokens(options, forward.vocab_size());
  require(options.step_tokens >= options.max_running, "step_tokens", options.step_tokens,
          "at least max_running, " + std::to_string(options.max_running));
  require(limits.max_rows >= options.step_tokens, "step_tokens", options.step_tokens,
          "at most the model's max_rows, " + std::to_string(limits.max_rows));
  require(limits.max_logits_rows >= options.max_running, "max_running", options.max_running,
          "at most the model's max_logits_rows, " + std::to_string(limits.max_logits_rows));
  require(options.max_queued_events > 0, "max_queued_events", options.max_queued_events, "at least 1");
  require(options.max_cached_blocks >= 0, "max_cached_blocks", options.max_cached_blocks, "at least 0");
}

AdmissionFacts admission_facts(const EngineOptions& options, const ForwardPass& forward, const MediaEncoder* encoder,
                               const HashSecret& secret) {
  return {.vocab_size = forward.vocab_size(),
          .block_tokens = forward.kv_geometry(options.n_blocks, options.n_state_slots).block_tokens,
          .secret = secret,
          .pooling = forward.pooling(),
          .media = encoder != nullptr ? std::optional(encoder->facts()) : std::nullopt};
}

}  // namespace imp

// The ranges of the sampler's fields.
#include "engine/sampling_options.h"

#include <algorithm>
#include <limits>
#include <sstream>
#include <string>

#include "base/error.h"

namespace imp {
namespace {

constexpr float kMaxBias = 100;

enum class Lower : bool { included, excluded };

struct FloatRange {
  const char* field;
  float SamplerParams::* member;
  float low;
  float high;
  Lower lower = Lower::included;
};

struct IntRange {
  const char* field;
  std::int32_t SamplerParams::* member;
  std::int32_t low;
  std::int32_t high;
};

constexpr std::int32_t kAny = std::numeric_limits<std::int32_t>::max();

constexpr FloatRange kFloats[] = {
    {"sampling.temperature", &SamplerParams::temperature, 0, 100},
    {"sampling.top_p", &SamplerParams::top_p, 0, 1, Lower::excluded},
    {"sampling.min_p", &SamplerParams::min_p, 0, 1},
    {"sampling.typical_p", &SamplerParams::typical_p, 0, 1, Lower::excluded},
    {"sampling.repetition_penalty", &SamplerParams::repetition_penalty, 0.01F, 100},
    {"sampling.frequency_penalty", &SamplerParams::frequency_penalty, -2, 2},
    {"sampling.presence_penalty", &SamplerParams::presence_penalty, -2, 2},
    {"sampling.dry.multiplier", &SamplerParams::dry_multiplier, 0, 100},
    {"sampling.dry.base", &SamplerParams::dry_base, 1, 100},
};

constexpr IntRange kInts[] = {
    {"sampling.top_k", &SamplerParams::top_k, 0, kAny},
    {"sampling.penalty_window", &SamplerParams::penalty_window, 0, kAny},
    {"sampling.dry.allowed_length", &SamplerParams::dry_allowed_length, 0, 1024},
    {"sampling.dry.window", &SamplerParams::dry_window, 0, kAny},
};

template <class T>
[[noreturn]] void refuse(const std::string& field, T found, const std::string& expected) {
  std::ostringstream message;
  message << field << ": " << found << ", expected " << expected;
  throw InvalidArgument(Reason::FIELD_INVALID, message.str(), {{"field", field}});
}

template <class T>
std::string from_to(T low, T high, Lower lower = Lower::included) {
  std::ostringstream text;
  text << (lower == Lower::excluded ? "more than " : "") << low << " to " << high;
  return text.str();
}

void validate_biases(std::span<const LogitBias> biases, int vocab_size) {
  if (biases.size() > kMaxLogitBias) {
    refuse("sampling.logit_bias", biases.size(), "at most " + std::to_string(kMaxLogitBias) + " entries");
  }
  for (const LogitBias& bias : biases) {
    const std::string field = "sampling.logit_bias[" + std::to_string(bias.token) + "]";
    if (bias.token < 0 || bias.token >= vocab_size) {
      refuse(field, bias.token, "a token id below " + std::to_string(vocab_size));
    }
    if (!(bias.bias >= -kMaxBias && bias.bias <= kMaxBias)) refuse(field, bias.bias, from_to(-kMaxBias, kMaxBias));
  }
}

}  // namespace

void validate(const SamplingOptions& options, int vocab_size) {
  for (const FloatRange& range : kFloats) {
    const float value = options.values.*range.member;
    // Written so that NaN is out of range.
    const bool above = range.lower == Lower::excluded ? value > range.low : value >= range.low;
    if (!(above && value <= range.high)) refuse(range.field, value, from_to(range.low, range.high, range.lower));
  }
  for (const IntRange& range : kInts) {
    const std::int32_t value = options.values.*range.member;
    if (value < range.low) refuse(range.field, value, "at least " + std::to_string(range.low));
    if (value > range.high) refuse(range.field, value, "at most " + std::to_string(range.high));
  }
  validate_biases(options.logit_bias, vocab_size);
  for (const std::int32_t token : options.dry_breakers) {
    if (token < 0 || token >= vocab_size) {
      refuse("sampling.dry.breakers", token, "token ids below " + std::to_string(vocab_size));
    }
  }
  if (!std::ranges::is_sorted(options.dry_breakers)) refuse("sampling.dry.breakers", "a list", "ascending token ids");
}

}  // namespace imp

// Checks sampling options against the table of sampler fields.
#include "engine/data/sampling_options.h"

#include <algorithm>
#include <cmath>
#include <sstream>
#include <string>

#include "base/error.h"

namespace imp {
namespace {

template <class T>
[[noreturn]] void refuse(const std::string& field, T found, const std::string& expected) {
  std::ostringstream problem;
  problem << found << ", expected " << expected;
  throw FieldInvalid(field, problem.str());
}

std::string from_to(double low, double high, bool above = false) {
  std::ostringstream text;
  if (std::isinf(high)) {
    text << "at least " << low;
  } else {
    text << (above ? "more than " : "") << low << " to " << high;
  }
  return text.str();
}

// Rounds the bounds to the value's type: the float nearest to 0.01 is in a range from 0.01 on. NaN is outside.
template <class T>
bool is_within(const SamplerField& field, T value) {
  const T low = static_cast<T>(field.low);
  const bool is_high_enough = field.above ? value > low : value >= low;
  return is_high_enough && (std::isinf(field.high) || value <= static_cast<T>(field.high));
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
  for (const SamplerField& field : kSamplerFields) {
    const auto check = [&](auto member) {
      const auto value = options.values.*member;
      if (is_within(field, value)) return;
      refuse("sampling." + std::string(field.name), value, from_to(field.low, field.high, field.above));
    };
    std::visit(check, field.member);
  }
  validate_biases(options.logit_bias, vocab_size);
  for (const std::int32_t token : options.dry_breakers) {
    if (token < 0 || token >= vocab_size) {
      refuse("sampling.dry.breakers", token, "token ids below " + std::to_string(vocab_size));
    }
  }
  if (!std::ranges::is_sorted(options.dry_breakers)) {
    refuse("sampling.dry.breakers", "not sorted", "ascending token ids");
  }
}

}  // namespace imp

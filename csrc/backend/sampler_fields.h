// The numbers of a sampler, and the one table of their ranges and meanings. The engine reads it here. The service's
// checks, imp.conf, replies and help read it through `_core.sampler_fields()`.
#pragma once

#include <cstdint>
#include <iterator>
#include <limits>
#include <string_view>
#include <variant>

namespace imp {

// All fields except the lists and the seed, each resolved. An initial value leaves the distribution unchanged.
struct SamplerValues {
  float temperature = 1;
  std::int32_t top_k = 0;
  float top_p = 1;
  float min_p = 0;
  float typical_p = 1;
  float repetition_penalty = 1;
  float frequency_penalty = 0;
  float presence_penalty = 0;
  std::int32_t penalty_window = 0;
  float dry_multiplier = 0;
  float dry_base = 1.75F;
  std::int32_t dry_allowed_length = 2;
  std::int32_t dry_window = 0;
};

struct SamplerField {
  std::string_view name;  // in imp.v1's SamplingOptions; after "dry." in its DryOptions
  std::variant<float SamplerValues::*, std::int32_t SamplerValues::*> member;
  double low = 0;
  double high = 0;
  std::string_view meaning;
  double example = 0;  // in imp.conf
  bool above = false;  // low itself is out of range
};

inline constexpr double kNoBound = std::numeric_limits<double>::infinity();  // only the type's

inline constexpr SamplerField kSamplerFields[] = {
    {.name = "temperature",
     .member = &SamplerValues::temperature,
     .low = 0,
     .high = 100,
     .meaning = "randomness of the draw; below 1e-4: always the likeliest token",
     .example = 0.7},
    {.name = "top_k",
     .member = &SamplerValues::top_k,
     .low = 0,
     .high = kNoBound,
     .meaning = "draw only from this many of the likeliest tokens; 0: all",
     .example = 40},
    {.name = "top_p",
     .member = &SamplerValues::top_p,
     .low = 0,
     .high = 1,
     .meaning = "draw only from the likeliest tokens that together reach this probability; 1: all",
     .example = 0.95,
     .above = true},
    {.name = "min_p",
     .member = &SamplerValues::min_p,
     .low = 0,
     .high = 1,
     .meaning = "drop tokens below this fraction of the likeliest token's probability; 0: none",
     .example = 0.05},
    {.name = "typical_p",
     .member = &SamplerValues::typical_p,
     .low = 0,
     .high = 1,
     .meaning = "draw only from the most typical tokens that together reach this probability; 1: all",
     .example = 1,
     .above = true},
    {.name = "repetition_penalty",
     .member = &SamplerValues::repetition_penalty,
     .low = 0.01,
     .high = 100,
     .meaning = "divide positive logits of tokens in the text by this, multiply negative ones; 1: none",
     .example = 1.1},
    {.name = "frequency_penalty",
     .member = &SamplerValues::frequency_penalty,
     .low = -2,
     .high = 2,
     .meaning = "subtract this from a token's logit for each time it occurs in the output; 0: none",
     .example = 0},
    {.name = "presence_penalty",
     .member = &SamplerValues::presence_penalty,
     .low = -2,
     .high = 2,
     .meaning = "subtract this from the logit of each token that occurs in the output; 0: none",
     .example = 0},
    {.name = "penalty_window",
     .member = &SamplerValues::penalty_window,
     .low = 0,
     .high = kNoBound,
     .meaning = "number of last tokens that the penalties look at; 0: all",
     .example = 64},
    {.name = "dry.multiplier",
     .member = &SamplerValues::dry_multiplier,
     .low = 0,
     .high = 100,
     .meaning = "penalty of a token that would continue a repeated sequence; 0: none",
     .example = 0.8},
    {.name = "dry.base",
     .member = &SamplerValues::dry_base,
     .low = 1,
     .high = 100,
     .meaning = "factor by which the penalty grows with each repeated token",
     .example = 1.75},
    {.name = "dry.allowed_length",
     .member = &SamplerValues::dry_allowed_length,
     .low = 0,
     .high = 1024,
     .meaning = "longest repeated sequence without a penalty",
     .example = 2},
    {.name = "dry.window",
     .member = &SamplerValues::dry_window,
     .low = 0,
     .high = kNoBound,
     .meaning = "number of last tokens in which repeats are searched; 0: all",
     .example = 0},
};

// Fails if a number has no row.
static_assert(sizeof(SamplerValues) == std::size(kSamplerFields) * sizeof(float));

inline constexpr double kMaxBias = 100;     // in magnitude
inline constexpr int kMaxLogitBias = 1024;  // per request, one for each token

}  // namespace imp

// Each penalty visits only the ids it concerns; the masks visit all.
#include "backend/cpu/penalties.h"

#include <algorithm>
#include <limits>

namespace imp::cpu {
namespace {

using Ids = std::span<const std::int32_t>;

// The last `window` ids; 0: all.
Ids last(Ids ids, std::int32_t window) {
  const auto n = static_cast<std::size_t>(std::max(window, 0));
  return n == 0 || n >= ids.size() ? ids : ids.last(n);
}

bool has_penalties(const SamplerParams& params) {
  return params.repetition_penalty != 1 || params.frequency_penalty != 0 || params.presence_penalty != 0 ||
         params.dry_multiplier != 0;
}

class Adjuster {
 public:
  Adjuster(std::span<float> logits, const SamplingScratch& scratch) : logits_(logits), scratch_(scratch) {}

  void repetition(Ids history, float penalty) {
    clear_counts(history);
    for (const std::int32_t id : history) {
      if (!exists(id) || scratch_.counts[id]++ > 0) continue;
      const float logit = logits_[static_cast<std::size_t>(id)];
      set(id, logit > 0 ? logit / penalty : logit * penalty);
    }
  }

  void frequency_and_presence(Ids output, float frequency, float presence) {
    clear_counts(output);
    for (const std::int32_t id : output) {
      if (exists(id)) ++scratch_.counts[id];
    }
    for (const std::int32_t id : output) {
      if (!exists(id) || scratch_.counts[id] == 0) continue;
      const float penalty = frequency * static_cast<float>(scratch_.counts[id]) + presence;
      set(id, logits_[static_cast<std::size_t>(id)] - penalty);
      scratch_.counts[id] = 0;
    }
  }

  // Read from its end, the history repeats its own beginning where a suffix occurred before: the lengths are the
  // Z-function of the reversed history, cut at the first breaker.
  void dry(Ids history, const SamplerParams& params) {
    const auto n = static_cast<std::int64_t>(history.size());
    const auto from_end = [&](std::int64_t i) { return history[static_cast<std::size_t>(n - 1 - i)]; };
    std::int64_t limit = 0;
    while (limit < n && !std::ranges::binary_search(params.dry_breakers, from_end(limit))) ++limit;
    std::int32_t* matches = scratch_.matches;
    for (std::int64_t i = 1, begin = 0, end = 0; i < n; ++i) {
      std::int64_t length = i < end ? std::min<std::int64_t>(end - i, matches[i - begin]) : 0;
      while (i + length < n && from_end(length) == from_end(i + length)) ++length;
      matches[i] = static_cast<std::int32_t>(length);
      if (i + length > end) {
        begin = i;
        end = i + length;
      }
    }
    // counts holds the longest match that the id followed, plus one.
    clear_counts(history);
    for (std::int64_t i = 1; i <= n; ++i) {
      const std::int32_t follower = from_end(i - 1);
      if (!exists(follower)) continue;
      const std::int64_t match = i < n ? std::min<std::int64_t>(matches[i], limit) : 0;
      std::int32_t& longest = scratch_.counts[follower];
      longest = std::max(longest, static_cast<std::int32_t>(match + 1));
    }
    for (const std::int32_t id : history) {
      if (!exists(id) || scratch_.counts[id] == 0) continue;
      const std::int32_t excess = scratch_.counts[id] - 1 - params.dry_allowed_length;
      if (excess >= 0) {
        const double penalty = static_cast<double>(params.dry_multiplier) * power(params.dry_base, excess);
        set(id, logits_[static_cast<std::size_t>(id)] - static_cast<float>(penalty));
      }
      scratch_.counts[id] = 0;
    }
  }

  void bias(std::span<const LogitBias> biases) {
    for (const LogitBias& entry : biases) {
      if (exists(entry.token)) set(entry.token, logits_[static_cast<std::size_t>(entry.token)] + entry.bias);
    }
  }

  void mask(const SampleRequest& request) {
    constexpr std::size_t kBits = 32;
    for (std::size_t first = 0; first < logits_.size(); first += kBits) {
      std::uint32_t allowed = ~std::uint32_t{0};
      for (const std::uint32_t* words : request.masks) {
        if (words != nullptr) allowed &= words[first / kBits];
      }
      if (allowed == ~std::uint32_t{0}) continue;
      const std::size_t n = std::min(kBits, logits_.size() - first);
      for (std::size_t bit = 0; bit < n; ++bit) {
        if ((allowed >> bit & 1U) == 0) logits_[first + bit] = -std::numeric_limits<float>::infinity();
      }
    }
  }

 private:
  bool exists(std::int32_t id) const { return id >= 0 && static_cast<std::size_t>(id) < logits_.size(); }

  // Penalties move extreme logits beyond float's range; a finite row must stay one.
  void set(std::int32_t id, float logit) {
    constexpr float kMost = std::numeric_limits<float>::max();
    logits_[static_cast<std::size_t>(id)] = std::clamp(logit, -kMost, kMost);
  }

  void clear_counts(Ids ids) {
    for (const std::int32_t id : ids) {
      if (exists(id)) scratch_.counts[id] = 0;
    }
  }

  // By squaring: the same multiplications everywhere.
  static double power(double base, std::int32_t exponent) {
    double result = 1;
    for (; exponent > 0; exponent /= 2, base *= base) {
      if (exponent % 2 != 0) result *= base;
    }
    return result;
  }

  std::span<float> logits_;
  const SamplingScratch& scratch_;
};

}  // namespace

bool leaves_logits(const SampleRequest& request) {
  const bool unmasked = std::ranges::all_of(request.masks, [](const std::uint32_t* words) { return words == nullptr; });
  return unmasked && !has_penalties(*request.params) && request.params->logit_bias.empty();
}

void adjust_logits(const SampleRequest& request, std::span<float> logits, const SamplingScratch& scratch) {
  const SamplerParams& params = *request.params;
  const Ids output = request.history.last(static_cast<std::size_t>(request.n_output));
  Adjuster adjuster(logits, scratch);
  if (params.repetition_penalty != 1) {
    adjuster.repetition(last(request.history, params.penalty_window), params.repetition_penalty);
  }
  if (params.frequency_penalty != 0 || params.presence_penalty != 0) {
    adjuster.frequency_and_presence(last(output, params.penalty_window), params.frequency_penalty,
                                    params.presence_penalty);
  }
  if (params.dry_multiplier != 0) adjuster.dry(last(request.history, params.dry_window), params);
  adjuster.bias(params.logit_bias);
  adjuster.mask(request);
}

}  // namespace imp::cpu

// RoPE frequencies with every kind of scaling.
#include "model/config/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/error.h"

namespace imp {
namespace {

// The pairs over which YaRN (NTK-by-parts) passes from unscaled (below `first`) to scaled (above `last`).
struct Ramp {
  double first = 0;
  double last = 0;
  double scaled_part(double pair) const {
    const double width = first == last ? 0.001 : last - first;  // avoids a division by zero if both ends are equal
    return std::clamp((pair - first) / width, 0.0, 1.0);
  }
};

// The index, as a real number, of the pair that rotates `turns` times over the original context.
double pair_of_rotations(const RopeConfig& rope, double turns) {
  const double context = rope.scaling.original_context;
  return rope.dims * std::log(context / (turns * 2 * std::numbers::pi)) / (2 * std::log(rope.theta));
}

Ramp yarn_ramp(const RopeConfig& rope) {
  double first = pair_of_rotations(rope, rope.scaling.beta_fast);
  double last = pair_of_rotations(rope, rope.scaling.beta_slow);
  if (rope.scaling.truncated) {
    first = std::floor(first);
    last = std::ceil(last);
  }
  return {std::max(0.0, first), std::min(rope.dims - 1.0, last)};
}

// 1 for frequencies with many rotations in the original context, 0 for those with few.
double unscaled_fraction(const RopeScaling& scaling, double frequency) {
  const double turns = scaling.original_context * frequency / (2 * std::numbers::pi);
  if (scaling.high_freq_factor <= scaling.low_freq_factor) return turns < scaling.low_freq_factor ? 0 : 1;
  const double part = (turns - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor);
  return std::clamp(part, 0.0, 1.0);
}

// The factor of a pair's frequency.
double scaling_of(const RopeScaling& scaling, const Ramp& ramp, int pair, double frequency) {
  const double scaled = 1 / scaling.factor;
  switch (scaling.kind) {
    case RopeScalingKind::none:
    case RopeScalingKind::longrope:
    case RopeScalingKind::dynamic:
      return 1;
    case RopeScalingKind::linear:
      return scaled;
    case RopeScalingKind::yarn: {
      const double unscaled_part = (1 - ramp.scaled_part(pair)) * scaling.extrapolation;
      return scaled * (1 - unscaled_part) + unscaled_part;
    }
    case RopeScalingKind::wavelength: {
      const double unscaled_part = unscaled_fraction(scaling, frequency);
      return scaled * (1 - unscaled_part) + unscaled_part;
    }
  }
  return 1;
}

float magnitude_of(const RopeScaling& scaling) {
  const bool sharpened = scaling.kind == RopeScalingKind::yarn && scaling.extrapolation != 0;
  return static_cast<float>(scaling.attention_factor * (sharpened ? yarn_magnitude(scaling) : 1));
}

// Theta grows so that the lowest frequency covers the context as it covered the original one.
double theta_of(const RopeConfig& rope) {
  const RopeScaling& scaling = rope.scaling;
  if (scaling.kind != RopeScalingKind::dynamic || !scaling.is_beyond_original()) return rope.theta;
  const double stretch = scaling.factor * scaling.context / scaling.original_context - (scaling.factor - 1);
  return rope.theta * std::pow(stretch, rope.dims / (rope.dims - 2.0));
}

}  // namespace

double yarn_magnitude(const RopeScaling& scaling) {
  if (scaling.factor <= 1) return 1;
  // Attention over longer contexts has flatter scores. YaRN sharpens them by this factor, half on q and half on k.
  const auto grown = [&](double mscale) { return 1 + 0.1 * mscale * std::log(scaling.factor); };
  return grown(scaling.mscale) / grown(scaling.mscale_all_dim);
}

std::span<const float> divisors_of(const RopeConfig& config) {
  const RopeScaling& scaling = config.scaling;
  if (scaling.kind != RopeScalingKind::longrope) return {};
  return scaling.is_beyond_original() ? scaling.long_divisors : scaling.short_divisors;
}

int planes_of(const RopeConfig& rope) {
  return rope.planes.empty() ? 1 : *std::ranges::max_element(rope.planes) + 1;
}

int planes_of(const ModelConfig& config, const ForwardLimits& limits) {
  int most = 1;
  if (!limits.takes_media) return most;
  for (const RopeConfig& rope : config.ropes) most = std::max(most, planes_of(rope));
  return most;
}

Rope resolve_rope(const RopeConfig& config, std::span<const float> factors) {
  const int n_pairs = config.dims / 2;
  IMP_CHECK(factors.empty() || factors.size() == static_cast<std::size_t>(n_pairs));
  const Ramp ramp = config.scaling.kind == RopeScalingKind::yarn ? yarn_ramp(config) : Ramp{};
  Rope rope{.style = config.style,
            .dims = config.dims,
            .frequencies = {},
            .magnitude = magnitude_of(config.scaling),
            .planes = config.planes};
  const double theta = theta_of(config);
  const int n_runs = config.is_axial ? planes_of(config) : 1;
  for (int i = 0; i < n_pairs; ++i) {
    double frequency = std::pow(theta, -2.0 * (i % (n_pairs / n_runs)) * n_runs / config.dims);
    frequency *= scaling_of(config.scaling, ramp, i, frequency);
    if (!factors.empty()) frequency /= static_cast<double>(factors[static_cast<std::size_t>(i)]);
    const bool is_rotated = config.n_rotated_pairs == 0 || i < config.n_rotated_pairs;
    rope.frequencies.push_back(is_rotated ? frequency : 0);
  }
  return rope;
}

}  // namespace imp

// Reads the RoPE of config.json files.
#include <algorithm>
#include <cmath>

#include "base/printable.h"
#include "model/arch/hf_facts.h"
#include "model/config/model_limits.h"
#include "model/config/number_text.h"
#include "model/config/rope.h"

namespace imp {
namespace {

// Only a part of the pairs is rotated. Their frequencies are those that they have if all pairs are rotated.
constexpr std::string_view kProportional = "proportional";

RopeScalingKind hf_scaling_kind(FactReader& facts, const std::string& at) {
  const bool has_old_key = facts.has(at + "type");  // rope_type wins if both exist
  const std::string key = facts.has(at + "rope_type") || !has_old_key ? at + "rope_type" : at + "type";
  const auto word = facts.find_word("rope_scaling", key);
  if (!word || *word == "default") return RopeScalingKind::none;
  if (*word == "linear") return RopeScalingKind::linear;
  if (*word == "yarn") return RopeScalingKind::yarn;
  if (*word == "llama3") return RopeScalingKind::wavelength;
  if (*word == "longrope" || *word == "su") return RopeScalingKind::longrope;  // its first name was "su"
  if (*word == "dynamic") return RopeScalingKind::dynamic;
  if (*word == kProportional) return facts.has(at + "factor") ? RopeScalingKind::linear : RopeScalingKind::none;
  facts.refuse(Reason::MODEL_UNSUPPORTED, key, printable(*word),
               "one of default, linear, dynamic, yarn, llama3, longrope, proportional");
}

// The divisors, and the magnitude: attention_factor, or else what the ratio of both contexts gives.
void read_longrope(FactReader& facts, const std::string& at, RopeScaling& scaling) {
  scaling.short_divisors = facts.find_numbers(at + "short_factor");
  scaling.long_divisors = facts.find_numbers(at + "long_factor");
  for (const char* key : {"mscale", "mscale_all_dim", "short_mscale", "long_mscale"}) {
    if (facts.has(at + key)) facts.refuse(Reason::MODEL_UNSUPPORTED, at + key, "given", "none with longrope");
  }
  if (facts.find_number("rope_attention_factor", at + "attention_factor", scaling.attention_factor)) return;
  if (scaling.factor <= 1) return;
  scaling.attention_factor = std::sqrt(1 + std::log(scaling.factor) / std::log(scaling.original_context));
}

// Reads the factor of cosine and sine, which YaRN and LongRoPE have. For YaRN it is attention_factor, or else a factor
// computed from both mscales. One mscale without the other has no effect.
void read_magnitude(FactReader& facts, const std::string& at, RopeScaling& scaling) {
  if (scaling.kind == RopeScalingKind::longrope) return read_longrope(facts, at, scaling);
  if (scaling.kind != RopeScalingKind::yarn) {
    for (const char* key : {"mscale", "mscale_all_dim", "attention_factor"}) facts.ignore(at + key);
    return;
  }
  double mscale = 0, mscale_all_dim = 0;
  facts.find_number("rope_mscale", at + "mscale", mscale);
  facts.find_number("rope_mscale_all_dim", at + "mscale_all_dim", mscale_all_dim);
  if (facts.find_number("rope_attention_factor", at + "attention_factor", scaling.attention_factor)) {
    scaling.attention_factor /= yarn_magnitude(scaling);
  } else if (mscale != 0 && mscale_all_dim != 0) {
    scaling.mscale = mscale;
    scaling.mscale_all_dim = mscale_all_dim;
  }
}

void read_hf_scaling(FactReader& facts, const std::string& at, RopeScaling& scaling) {
  scaling.kind = hf_scaling_kind(facts, at);
  scaling.original_context = facts.config.trained_context;
  // Phi-3 states it outside the section. Dynamic scaling begins after max_position_embeddings, whatever this says.
  for (const std::string& section : {std::string(), at}) {
    const std::string key = section + "original_max_position_embeddings";
    if (scaling.kind == RopeScalingKind::dynamic) {
      facts.ignore(key);
    } else {
      facts.find_count("rope_original_context", key, model_limits::kContext, scaling.original_context);
    }
  }
  const bool has_factor = facts.find_number("rope_scaling_factor", at + "factor", scaling.factor);
  if (!has_factor && (scaling.kind == RopeScalingKind::yarn || scaling.kind == RopeScalingKind::longrope)) {
    scaling.factor = static_cast<double>(facts.config.trained_context) / scaling.original_context;
  }
  facts.find_number("rope_beta_fast", at + "beta_fast", scaling.beta_fast);
  facts.find_number("rope_beta_slow", at + "beta_slow", scaling.beta_slow);
  facts.find_number("rope_low_freq_factor", at + "low_freq_factor", scaling.low_freq_factor);
  facts.find_number("rope_high_freq_factor", at + "high_freq_factor", scaling.high_freq_factor);
  facts.find_flag("rope_truncated", at + "truncate", scaling.truncated);
  read_magnitude(facts, at, scaling);
  facts.ignore(at + "finetuned");  // how the model was trained: no effect
}

// Hunyuan says "dynamic" and states how far theta is stretched, whatever the context.
void read_fixed_stretch(FactReader& facts, const std::string& at, RopeConfig& rope) {
  double alpha = 0;
  if (!facts.find_number("rope_theta", at + "alpha", alpha) || rope.scaling.kind != RopeScalingKind::dynamic) return;
  rope.scaling = {};
  if (alpha != 0) rope.theta *= std::pow(alpha, rope.dims / (rope.dims - 2.0));
}

void require_divisors(const FactReader& facts, const std::string& at, const RopeConfig& rope) {
  if (rope.scaling.kind != RopeScalingKind::longrope) return;
  const auto n_pairs = static_cast<std::size_t>(rope.dims) / 2;
  const auto require = [&](const char* key, const std::vector<float>& divisors) {
    const bool is_valid = divisors.size() == n_pairs &&
                          std::ranges::all_of(divisors, [](float each) { return each > 0 && std::isfinite(each); });
    if (is_valid) return;
    facts.refuse(Reason::MODEL_CONFIG, at + key, std::to_string(divisors.size()) + " values",
                 "a number above 0 for each of " + std::to_string(n_pairs) + " pairs");
  };
  require("short_factor", rope.scaling.short_divisors);
  require("long_factor", rope.scaling.long_divisors);
}

// The prefix of the keys of layers without a window.
std::string rope_section(FactReader& facts) {
  for (const char* section : {"rope_parameters.full_attention.", "rope_parameters."}) {
    for (const char* key : {"rope_theta", "rope_type"}) {
      if (facts.has(std::string(section) + key)) return section;
    }
  }
  return "rope_scaling.";
}

}  // namespace

void read_hf_rope(FactReader& facts, RopeStyle style, double default_theta, float default_rotated) {
  RopeConfig rope;
  rope.style = style;
  rope.theta = default_theta;
  const std::string section = rope_section(facts);
  facts.find_number("rope_theta", "rope_theta", rope.theta);
  facts.find_number("rope_theta", section + "rope_theta", rope.theta);
  float rotated = default_rotated;
  facts.find_number("rope_dims", "partial_rotary_factor", rotated);
  facts.find_number("rope_dims", section + "partial_rotary_factor", rotated);
  if (!(rotated > 0 && rotated <= 1)) {
    facts.refuse(Reason::MODEL_CONFIG, "partial_rotary_factor", number_text(rotated), "above 0, at most 1");
  }
  rope.dims = static_cast<int>(static_cast<float>(facts.config.head_dim) * rotated);
  if (facts.find_word("", section + "rope_type") == kProportional) {
    rope.n_rotated_pairs = rope.dims / 2;
    rope.dims = facts.config.head_dim;
  }
  read_hf_scaling(facts, section, rope.scaling);
  read_fixed_stretch(facts, section, rope);
  require_divisors(facts, section, rope);
  facts.config.ropes.push_back(rope);
}

bool has_hf_rope(const FactReader& facts) {
  return facts.has_section("rope_parameters") || facts.has_members("rope_scaling");
}

// transformers interleaves the pairs of the axes whatever `mrope_interleaved` says.
void read_hf_image_axes(FactReader& facts, const ImageAxes& by_default) {
  constexpr std::string_view kOld = "rope_scaling.mrope_section", kNew = "rope_parameters.mrope_section";
  for (const char* section : {"rope_scaling.", "rope_parameters."}) {
    facts.ignore(std::string(section) + "mrope_interleaved");
  }
  facts.ignore(kOld);
  read_image_axes(facts, facts.has(kNew) ? kNew : kOld, by_default);
}

void require_plain_rope(FactReader& facts, const std::string& section) {
  RopeScaling scaling;
  scaling.kind = hf_scaling_kind(facts, section);
  if (scaling.kind != RopeScalingKind::none) {
    facts.refuse(Reason::MODEL_UNSUPPORTED, section + "rope_type", "a scaling", "default");
  }
}

}  // namespace imp

// The ops that a backend counts, and their names in logs and profiles.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace imp {

enum class Op : std::uint8_t {
  embed,
  rms_norm,
  add_norm,
  rope_angles,
  rope_planes,
  rope,
  append_kv,
  rope_append,
  attend_decode,
  attend_prefill,
  attend_sinks,
  attend_ahead,
  attention_mass,
  gated_activation,
  clamped_activation,
  route_experts,
  expert_biases,
  mix_experts,
  add,
  add_gated,
  scale,
  clamp,
  standardize,
  layer_norm,
  activate,
  scale_by_position,
  norm_heads,
  scale_experts,
  multiply_sigmoid,
  rms_norm_gated,
  short_conv,
  delta_rule,
  soft_cap,
  gather_rows,
  write_rows,
  spread_columns,
  clustered_product,
  sample,
  score,
  read_row,
  copy_block,
  count,
};

// In the order of the enumeration Op.
inline constexpr std::array<std::string_view, static_cast<std::size_t>(Op::count)> kOpNames = {
    "embed",
    "rms_norm",
    "add_norm",
    "rope_angles",
    "rope_planes",
    "rope",
    "append_kv",
    "rope_append",
    "attend_decode",
    "attend_prefill",
    "attend_sinks",
    "attend_ahead",
    "attention_mass",
    "gated_activation",
    "clamped_activation",
    "route_experts",
    "expert_biases",
    "mix_experts",
    "add",
    "add_gated",
    "scale",
    "clamp",
    "standardize",
    "layer_norm",
    "activate",
    "scale_by_position",
    "norm_heads",
    "scale_experts",
    "multiply_sigmoid",
    "rms_norm_gated",
    "short_conv",
    "delta_rule",
    "soft_cap",
    "gather_rows",
    "write_rows",
    "spread_columns",
    "clustered_product",
    "sample",
    "score",
    "read_row",
    "copy_block",
};

// Ops that only some models use and that a backend may lack.
inline constexpr std::array kOptionalOps = {Op::attend_sinks,
                                            Op::attend_ahead,
                                            Op::rope_planes,
                                            Op::write_rows,
                                            Op::attention_mass,
                                            Op::clamped_activation,
                                            Op::expert_biases,
                                            Op::scale,
                                            Op::layer_norm,
                                            Op::activate,
                                            Op::scale_by_position,
                                            Op::norm_heads,
                                            Op::scale_experts,
                                            Op::multiply_sigmoid,
                                            Op::rms_norm_gated,
                                            Op::short_conv,
                                            Op::delta_rule,
                                            Op::spread_columns,
                                            Op::clamp,
                                            Op::clustered_product,
                                            Op::standardize};
constexpr bool is_optional(Op op) noexcept {
  return std::ranges::find(kOptionalOps, op) != kOptionalOps.end();
}

}  // namespace imp

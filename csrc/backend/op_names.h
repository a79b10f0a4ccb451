// The ops that a backend counts, and their names in logs and profiles.
#pragma once

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
  rope,
  append_kv,
  rope_append,
  attend_decode,
  attend_prefill,
  gated_activation,
  route_experts,
  mix_experts,
  add,
  add_gated,
  scale,
  layer_norm,
  activate,
  scale_by_position,
  soft_cap,
  gather_rows,
  sample,
  score,
  read_row,
  copy_block,
  count,
};

// In the order of the enumeration Op.
inline constexpr std::array<std::string_view, static_cast<std::size_t>(Op::count)> kOpNames = {"embed",
                                                                                               "rms_norm",
                                                                                               "add_norm",
                                                                                               "rope_angles",
                                                                                               "rope",
                                                                                               "append_kv",
                                                                                               "rope_append",
                                                                                               "attend_decode",
                                                                                               "attend_prefill",
                                                                                               "gated_activation",
                                                                                               "route_experts",
                                                                                               "mix_experts",
                                                                                               "add",
                                                                                               "add_gated",
                                                                                               "scale",
                                                                                               "layer_norm",
                                                                                               "activate",
                                                                                               "scale_by_position",
                                                                                               "soft_cap",
                                                                                               "gather_rows",
                                                                                               "sample",
                                                                                               "score",
                                                                                               "read_row",
                                                                                               "copy_block"};

}  // namespace imp

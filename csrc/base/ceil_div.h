// Division and rounding of integers upwards. No argument is negative.
#pragma once

namespace imp {

// These are always inlined, so that a file compiled for one instruction set has no copy that another file could call.
template <class Value, class Divisor>
[[gnu::always_inline]] constexpr auto ceil_div(Value value, Divisor by) noexcept {
  return (value + by - 1) / by;
}

template <class Value, class Unit>
[[gnu::always_inline]] constexpr auto round_up(Value value, Unit unit) noexcept {
  return ceil_div(value, unit) * unit;
}

}  // namespace imp

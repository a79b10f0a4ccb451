// How the rows of a text become one vector.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace imp {

enum class Pooling : std::uint8_t {
  none,
  mean,
  cls,   // the first row
  last,  // the last row
  rank,  // the scores of a classifier, of the first row
};

// In the order of the enumeration.
inline constexpr std::array<std::string_view, 5> kPoolingNames = {"none", "mean", "cls", "last", "rank"};
constexpr std::string_view name_of(Pooling pooling) noexcept {
  return kPoolingNames[static_cast<std::size_t>(pooling)];
}

// The vectors that a forward pass makes.
struct PoolingFacts {
  Pooling pooling = Pooling::none;  // none: it makes no vectors
  int width = 0;                    // of a vector
  int n_token_types = 0;            // 0: rows have no types
  bool needs_whole_texts = false;   // all rows of a text must be in one batch
  bool sees_all = false;            // rows see all of their text
};

}  // namespace imp

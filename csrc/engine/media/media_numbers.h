// The numbers that stand for parts of media in the tokens of sequences.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>

#include "engine/data/media_span.h"

namespace imp {

// Equal parts with equal cells have the same number, and other parts have other numbers. So whatever compares tokens,
// the prefix cache above all, compares media exactly. A part that was not used for long is forgotten and gets a new
// number: that costs a miss in the cache.
class MediaNumbers {
 public:
  static constexpr std::size_t kMostKnown = 65536;

  // Of the parts that it knows, it forgets the older half if there are more than most_known.
  explicit MediaNumbers(std::int64_t n_numbers, std::size_t most_known = kMostKnown)
      : n_numbers_(n_numbers), most_known_(most_known) {}

  // Whether a new part needs restart() first.
  bool is_used_up() const noexcept { return n_given_ == n_numbers_; }
  // Forgets all parts and gives the numbers again, without those that sequences hold. No cache may know the others.
  void restart(std::set<std::int32_t> held);
  // For a new part, is_used_up() must be false.
  std::int32_t number_of(const MediaSpan& span);

 private:
  // What decides the content of the cells.
  struct Part {
    MediaDigest digest;
    int part;
    int n_cells;
    int n_positions;
    std::array<int, 2> grid;
    bool is_atomic;
    auto operator<=>(const Part&) const = default;
  };
  struct Known {
    std::int32_t number = 0;
    std::uint64_t last_use = 0;
  };

  std::int32_t next_number() const noexcept;
  void skip_held();
  void forget_older_half();

  std::int64_t n_numbers_;
  std::size_t most_known_;
  std::int64_t n_given_ = 0;
  std::uint64_t n_uses_ = 0;
  std::set<std::int32_t> held_;  // not given
  std::map<Part, Known> known_;
};

}  // namespace imp

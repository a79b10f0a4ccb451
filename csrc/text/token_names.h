// The ids of a vocabulary by the names of its tokens.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace imp {

// A hash table with open addressing over one buffer of all names: two allocations instead of one for each token.
class TokenNames {
 public:
  static constexpr std::int32_t kNone = -1;

  // By id. An empty name is none. Of two ids with one name, the first has it and the other has none.
  explicit TokenNames(std::span<const std::string_view> names);

  static std::uint64_t hash_of(std::string_view name) noexcept;

  std::size_t size() const noexcept { return ends_.size(); }
  std::string_view operator[](std::int32_t id) const noexcept {
    const auto place = static_cast<std::size_t>(id);
    const std::size_t begin = place == 0 ? 0 : ends_[place - 1];
    return {bytes_.data() + begin, ends_[place] - begin};
  }
  // The id of a name, or kNone.
  std::int32_t find(std::string_view name) const noexcept;

 private:
  struct Slot {
    std::int32_t id = kNone;
    std::uint32_t tag = 0;  // the upper half of the name's hash
  };

  std::size_t slot_of(std::string_view name, std::uint64_t hash) const noexcept;

  std::string bytes_;
  std::vector<std::size_t> ends_;
  std::vector<Slot> slots_;  // a power of two, of which at least a fifth is empty
  std::size_t longest_ = 0;
};

}  // namespace imp

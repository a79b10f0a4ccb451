#include "text/token_names.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>

#include "base/error.h"

namespace imp {
namespace {

constexpr std::size_t kAhead = 8;

template <class Word>
std::uint64_t word_at(std::string_view bytes, std::size_t at) noexcept {
  Word word;
  std::memcpy(&word, bytes.data() + at, sizeof word);
  return word;
}

// The bytes of a name of at most 8 bytes, some of them twice.
std::uint64_t short_word(std::string_view name) noexcept {
  if (name.size() >= 4) return word_at<std::uint32_t>(name, 0) << 32 | word_at<std::uint32_t>(name, name.size() - 4);
  if (name.empty()) return 0;
  return word_at<std::uint8_t>(name, 0) << 16 | word_at<std::uint8_t>(name, name.size() / 2) << 8 |
         word_at<std::uint8_t>(name, name.size() - 1);
}

std::uint32_t tag_of(std::uint64_t hash) noexcept {
  return static_cast<std::uint32_t>(hash >> 32);
}

}  // namespace

// Names are short: a call of a stronger hash would take longer than this.
std::uint64_t TokenNames::hash_of(std::string_view name) noexcept {
  constexpr std::uint64_t kMixer = 0x9e3779b97f4a7c15;
  std::uint64_t hash = name.size() * kMixer;
  const auto mix = [&hash](std::uint64_t word) {
    hash = (hash ^ word) * kMixer;
    hash ^= hash >> 32;
  };
  for (; name.size() > 8; name.remove_prefix(8)) mix(word_at<std::uint64_t>(name, 0));
  mix(short_word(name));
  return hash;
}

TokenNames::TokenNames(std::span<const std::string_view> names)
    : slots_(std::bit_ceil(names.size() + names.size() / 4 + 1)) {
  if (names.size() > std::numeric_limits<std::int32_t>::max()) throw FieldInvalid("names", "more than ids");
  std::size_t n_bytes = 0;
  for (const std::string_view name : names) n_bytes += name.size();
  bytes_.reserve(n_bytes);
  ends_.reserve(names.size());
  for (std::size_t id = 0; id < names.size(); ++id) {
    const std::uint64_t hash = hash_of(names[id]);
    // The slots are in another order than the names, so each is a miss of the caches.
    const std::string_view later = names[std::min(id + kAhead, names.size() - 1)];
    __builtin_prefetch(&slots_[hash_of(later) & (slots_.size() - 1)]);
    Slot& slot = slots_[slot_of(names[id], hash)];
    if (!names[id].empty() && slot.id == kNone) {
      slot = {static_cast<std::int32_t>(id), tag_of(hash)};
      bytes_ += names[id];
      longest_ = std::max(longest_, names[id].size());
    }
    ends_.push_back(bytes_.size());
  }
}

// The place of a name, or the empty one where it would be.
std::size_t TokenNames::slot_of(std::string_view name, std::uint64_t hash) const noexcept {
  const std::size_t mask = slots_.size() - 1;
  std::size_t at = hash & mask;
  while (slots_[at].id != kNone && (slots_[at].tag != tag_of(hash) || (*this)[slots_[at].id] != name)) {
    at = (at + 1) & mask;
  }
  return at;
}

std::int32_t TokenNames::find(std::string_view name) const noexcept {
  if (name.size() > longest_) return kNone;
  return slots_[slot_of(name, hash_of(name))].id;
}

}  // namespace imp

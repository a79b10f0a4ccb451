// The ids of words that were encoded before. Texts repeat their words.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string_view>
#include <utility>
#include <vector>

#include "text/token_names.h"

namespace imp {

// Short words with few ids; a word takes the place of another one with the same hash.
class WordCache {
 public:
  // Appends the ids of a word: those in the cache, or those that `encode` appends.
  template <class Encode>
  void append(std::string_view word, std::vector<std::int32_t>& ids, const Encode& encode) {
    if (word.size() > kMaxBytes) return encode();
    Entry& entry = entries_[TokenNames::hash_of(word) % entries_.size()];
    if (std::string_view(entry.word.data(), entry.n_bytes) == word) {
      ids.insert(ids.end(), entry.ids.begin(), entry.ids.begin() + entry.n_ids);
      return;
    }
    const std::size_t n_before = ids.size();
    encode();
    const std::size_t n_ids = ids.size() - n_before;
    if (n_ids > kMaxIds) return;
    entry.n_bytes = static_cast<std::uint8_t>(word.size());
    entry.n_ids = static_cast<std::uint8_t>(n_ids);
    std::ranges::copy(word, entry.word.begin());
    std::copy(ids.end() - static_cast<std::ptrdiff_t>(n_ids), ids.end(), entry.ids.begin());
  }

 private:
  static constexpr std::size_t kMaxBytes = 30;
  static constexpr std::size_t kMaxIds = 8;
  struct Entry {  // of the empty word, which has no ids
    std::uint8_t n_bytes = 0;
    std::uint8_t n_ids = 0;
    std::array<char, kMaxBytes> word{};
    std::array<std::int32_t, kMaxIds> ids{};
  };
  static_assert(sizeof(Entry) == 64);

  std::vector<Entry> entries_{16384};
};

// Working memory that calls use one after another, each of which has one for itself.
template <class Memory>
class MemoryPool {
 public:
  template <class Use>
  void with(const Use& use) {
    std::unique_ptr<Memory> memory = taken();
    use(*memory);
    const std::lock_guard lock(mutex_);
    free_.push_back(std::move(memory));
  }

 private:
  std::unique_ptr<Memory> taken() {
    const std::lock_guard lock(mutex_);
    if (free_.empty()) return std::make_unique<Memory>();
    std::unique_ptr<Memory> memory = std::move(free_.back());
    free_.pop_back();
    return memory;
  }

  std::mutex mutex_;
  std::vector<std::unique_ptr<Memory>> free_;
};

}  // namespace imp

// A hash table of fixed size from keys to small numbers. The caller stores the keys.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/error.h"
#include "engine/kv/block_hash.h"

namespace imp {

// Open addressing with linear probing, at most half full. Keys are hashes, so the table does not hash them. `key_of`
// returns the key of a number in the table.
class KeyTable {
 public:
  static constexpr std::int32_t kNone = -1;

  explicit KeyTable(std::size_t n_most) : slots_(std::bit_ceil(2 * n_most + 1), kNone) {}

  // The number stored under the key, or kNone.
  template <class KeyOf>
  std::int32_t find(const BlockKey& key, const KeyOf& key_of) const {
    return slots_[slot_of(key, key_of)];
  }

  // The key must not be in the table.
  template <class KeyOf>
  void insert(std::int32_t number, const KeyOf& key_of) {
    slots_[slot_of(key_of(number), key_of)] = number;
  }

  // Empties a slot and moves later entries of the probe sequence back (backward shift deletion).
  template <class KeyOf>
  void erase(std::int32_t number, const KeyOf& key_of) {
    const std::size_t mask = slots_.size() - 1;
    std::size_t hole = slot_of(key_of(number), key_of);
    IMP_CHECK(slots_[hole] == number);
    for (std::size_t slot = (hole + 1) & mask; slots_[slot] != kNone; slot = (slot + 1) & mask) {
      const std::size_t home = key_of(slots_[slot]).low & mask;
      if (((slot - home) & mask) < ((slot - hole) & mask)) continue;
      slots_[hole] = slots_[slot];
      hole = slot;
    }
    slots_[hole] = kNone;
  }

 private:
  // The slot that holds the key, or the free slot where it belongs.
  template <class KeyOf>
  std::size_t slot_of(const BlockKey& key, const KeyOf& key_of) const {
    const std::size_t mask = slots_.size() - 1;
    std::size_t slot = key.low & mask;
    while (slots_[slot] != kNone && key_of(slots_[slot]) != key) slot = (slot + 1) & mask;
    return slot;
  }

  std::vector<std::int32_t> slots_;
};

}  // namespace imp

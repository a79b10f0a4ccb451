// The encodings of media that are kept, in one arena of rows.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "engine/kv/block_hash.h"

namespace imp {

// A part of a medium. Scopes do not share encodings, so that the time of one tells nothing of another.
struct EncodingKey {
  BlockKey scope;
  std::int32_t number = 0;
  bool operator<(const EncodingKey& other) const noexcept;
  bool operator==(const EncodingKey&) const = default;
};

// Who still has to evaluate the cells of an encoding. What a running sequence needs next may take the room of all that
// is needed less; the rest takes only the room of what nobody needs.
enum class NeededBy : std::uint8_t { nobody, waiting, running };

class MediaStore {
 public:
  static constexpr int kBlockRows = 16;

  // Room for n_rows rows, rounded up to whole blocks.
  MediaStore(Backend& backend, int width, int n_rows);

  bool contains(const EncodingKey& key) const { return kept_.contains(key); }
  // Where the rows of an encoding are in arena(). It must be there.
  std::span<const std::int32_t> rows(const EncodingKey& key);
  Rows arena() const noexcept { return arena_; }
  int n_rows() const noexcept { return kBlockRows * n_blocks_; }
  int n_rows_kept() const noexcept { return n_rows() - kBlockRows * static_cast<int>(free_.size()); }

  // Nobody needs any encoding.
  void clear_needs() noexcept;
  void need(const EncodingKey& key, NeededBy by) noexcept;
  // Makes room for n_rows rows: evicts encodings that are needed less than by `by`, the least needed first, then the
  // least recently used. Evicts nothing if that is not enough, and returns false.
  bool make_room(int n_rows, NeededBy by);
  // Copies an encoding. There must be room for it, and it must not be kept.
  void add(const EncodingKey& key, Rows encoding);
  void evict_unneeded();
  void clear();

 private:
  struct Kept {
    std::vector<std::int32_t> blocks;
    std::vector<std::int32_t> rows;
    NeededBy needed = NeededBy::nobody;
    std::uint64_t last_use = 0;
  };
  using Place = std::map<EncodingKey, Kept>::iterator;

  void evict(Place place);

  Backend& backend_;
  int n_blocks_;
  Rows arena_;
  std::vector<std::int32_t> free_;  // blocks
  std::map<EncodingKey, Kept> kept_;
  std::uint64_t n_uses_ = 0;
};

}  // namespace imp

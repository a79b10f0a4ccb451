// Byte-pair encoding by a list of merges, as in byte-level vocabularies and in Gemma 4's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/byte_tokens.h"
#include "text/token_names.h"
#include "text/word_cache.h"
#include "text/word_merger.h"
#include "text/words.h"

namespace imp {

struct MergeRules {
  // The names are spelled in the byte alphabet, and words are bytes. Otherwise a character without a token is spelled
  // by the tokens of its bytes.
  bool is_byte_level = true;
  // A word that is a token is taken whole.
  bool ignores_merges = false;
};

// Any thread may use it.
class ListedMerges {
 public:
  // `names` by id. `lines` by rank: two names with a space between them, and none in them. Of two lines with one pair,
  // the second counts. Throws FieldInvalid if `rules` need a token that is missing.
  ListedMerges(std::span<const std::string_view> names, std::span<const std::string_view> lines, MergeRules rules);

  // Whether every line is that, and its two parts joined are a name too. Other lines merge nothing.
  bool knows_all_lines() const noexcept { return knows_all_lines_; }
  std::int32_t find(std::string_view name) const noexcept { return names_.find(name); }
  void encode(const Words& words, std::vector<std::int32_t>& ids) const;

 private:
  using Rank = std::uint32_t;
  struct Slot {
    std::uint64_t pair;
    Rank rank;
    std::int32_t id;  // of the result; kNone: an empty slot
  };

  struct Memory {
    WordMerger<Rank> symbols;
    std::string spelled;
    WordCache cache;
  };

  static std::uint64_t pair_of(std::int32_t left, std::int32_t right) noexcept;
  std::size_t slot_of(std::uint64_t pair) const noexcept;
  bool add_line(std::string_view line, Rank rank, std::string& text, std::int32_t& result);
  std::optional<MergedPair<Rank>> merged(std::int32_t left, std::int32_t right) const noexcept;

  void encode_word(std::string_view word, Memory& memory, std::vector<std::int32_t>& ids) const;
  void encode_part(std::string_view part, Memory& memory, std::vector<std::int32_t>& ids) const;

  TokenNames names_;
  ByteIds bytes_;
  WordCuts cuts_;
  MergeRules rules_;
  std::vector<Slot> slots_;  // a power of two, of which at least a fifth is empty
  bool knows_all_lines_ = true;
  mutable MemoryPool<Memory> memory_;
};

}  // namespace imp

// Byte-pair encoding by scores, as in SentencePiece: any two neighbours that form a token may merge.
#pragma once

#include <compare>
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

// Any thread may use it. It needs no list of merges: that of a large vocabulary has half a million, and a text uses
// few.
class ScoredMerges {
 public:
  // By id. A score that is not finite: no merge becomes this token. Throws FieldInvalid if there are not as many scores
  // as names, or if a byte has no token.
  ScoredMerges(std::span<const std::string_view> names, std::span<const float> scores);

  std::int32_t find(std::string_view name) const noexcept { return names_.find(name); }
  void encode(const Words& words, std::vector<std::int32_t>& ids) const;

 private:
  // The best score first, then the order of the tokens.
  struct Rank {
    float below;  // the score, negative
    std::int32_t id, left, right;
    auto operator<=>(const Rank&) const = default;
  };

  struct Memory {
    WordMerger<Rank> symbols;
    std::string spelled;  // the names of the symbols, so that any two neighbours are one part of it
    WordCache cache;
  };

  void encode_part(std::string_view part, Memory& memory, std::vector<std::int32_t>& ids) const;

  TokenNames names_;
  ByteIds bytes_;
  WordCuts cuts_;
  std::vector<float> scores_;
  mutable MemoryPool<Memory> memory_;
};

}  // namespace imp

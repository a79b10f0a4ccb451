// Finds where a sequence repeats itself, and guesses that it goes on as it did there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/speculation/guess.h"

namespace imp {

// Prompt lookup ("prompt lookup decoding"), found as LZ77 finds repeats: chains of the places that end with the same
// two tokens, newest first. Of at most kMaxCandidates places the one with the longest match wins, of equal ones the
// newest. Where the match is short, the text may be an edited copy: then the token just drawn is looked for a little
// ahead of where the last guesses stopped being right.
//
// The index belongs to one sequence and does not own its tokens. About 12 bytes a token. Time is linear in the tokens,
// whatever they are, because matches and candidates are bounded.
class NgramIndex {
 public:
  static constexpr int kMaxCandidates = 16;
  static constexpr int kMaxMatch = 64;
  static constexpr int kSureMatch = 4;  // below it, an edited copy is tried
  static constexpr int kLookAhead = 24;
  // Classes below it are the binary logarithms of lengths of matches. The others are those of edited copies.
  static constexpr int kEditedCopy = 7;

  // Nothing allocates up to this many tokens. `tokens` begins with those in the index.
  void reserve(std::span<const std::int32_t> tokens, std::size_t n_tokens);
  std::size_t capacity() const noexcept { return newest_.size(); }
  // Adds the tokens after the first size().
  void extend(std::span<const std::int32_t> tokens);
  // Forgets all but the first n_tokens, exactly as if they had never been added. More than size() changes nothing.
  void truncate(std::span<const std::int32_t> tokens, std::size_t n_tokens);
  std::size_t size() const noexcept { return previous_.size(); }

  // Appends up to n_wanted guesses of what follows `tokens`, all of which are in the index.
  void propose(std::span<const std::int32_t> tokens, int n_wanted, std::vector<Guess>& guesses);

 private:
  static constexpr std::int32_t kNone = -1;
  struct Match {
    std::int32_t source = kNone;  // the place of the first guess
    int length = 0;
  };

  std::size_t bucket_of(std::span<const std::int32_t> tokens, std::size_t end) const noexcept;
  void add(std::span<const std::int32_t> tokens, std::size_t end);
  Match longest_match(std::span<const std::int32_t> tokens) const noexcept;
  std::int32_t edited_copy(std::span<const std::int32_t> tokens);

  std::vector<std::int32_t> newest_;    // per bucket: the newest place that ends with two tokens of this hash
  std::vector<std::int32_t> previous_;  // per place: the one before it in its bucket
  // Where the last guesses came from, and the number of tokens then.
  std::int32_t source_ = kNone;
  std::size_t source_size_ = 0;
};

}  // namespace imp

// Prompt lookup: finds where the last tokens occurred before, and guesses that the same tokens follow.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/data/guess.h"

namespace imp {

// "Prompt lookup decoding", with hash chains as in LZ77: a chain lists the positions that end with the same two tokens,
// newest first. Of the newest kMaxCandidates positions, the one with the longest match wins; of equal matches, the
// newest. A short match may come from an edited copy. Then the last token is searched from the position at which the
// previous guesses stopped being right.
//
// The index belongs to one sequence and does not own its tokens. It takes about 12 bytes per token. Its time is linear
// in the number of tokens, whatever they are, because matches and candidates are bounded.
class NgramIndex {
 public:
  static constexpr int kMaxCandidates = 16;
  static constexpr int kMaxMatch = 64;
  static constexpr int kSureMatch = 4;  // an edited copy is tried only for shorter matches
  static constexpr int kLookAhead = 24;
  // Confidence classes: the binary logarithm of the length of the match, plus kEditedCopy for an edited copy.
  static constexpr int kEditedCopy = 7;

  // Reserves memory for n_tokens. `tokens` begins with the tokens that are in the index.
  void reserve(std::span<const std::int32_t> tokens, std::size_t n_tokens);
  std::size_t capacity() const noexcept { return newest_.size(); }
  // Adds the tokens after the first size().
  void extend(std::span<const std::int32_t> tokens);
  // As new, with the same memory.
  void clear() noexcept;
  // Removes all but the first n_tokens, as if the others had never been added. Does nothing if there are not more.
  void truncate(std::span<const std::int32_t> tokens, std::size_t n_tokens);
  std::size_t size() const noexcept { return previous_.size(); }

  // Appends n_wanted guesses for the tokens after `tokens`, fewer if media follow in the copy, or none. All of `tokens`
  // must be in the index.
  void propose(std::span<const std::int32_t> tokens, int n_wanted, std::vector<Guess>& guesses);

 private:
  static constexpr std::int32_t kNone = -1;
  struct Match {
    std::int32_t source = kNone;  // position of the first guess
    int length = 0;
  };

  std::size_t bucket_of(std::span<const std::int32_t> tokens, std::size_t end) const noexcept;
  void add(std::span<const std::int32_t> tokens, std::size_t end);
  Match longest_match(std::span<const std::int32_t> tokens) const noexcept;
  std::int32_t edited_copy(std::span<const std::int32_t> tokens);

  std::vector<std::int32_t> newest_;    // by bucket: the newest position that ends with two tokens of this hash
  std::vector<std::int32_t> previous_;  // by position: the previous one in the same bucket
  // The position of the first of the last guesses, and the number of tokens at that time.
  std::int32_t source_ = kNone;
  std::size_t source_size_ = 0;
};

}  // namespace imp

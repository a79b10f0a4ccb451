// Hash chains over pairs of tokens.
#include "engine/sequence/ngram_index.h"

#include <algorithm>
#include <bit>

#include "backend/batch.h"
#include "base/error.h"

namespace imp {
namespace {

std::uint8_t confidence_of(int length, bool is_edited) {
  const int log2 = length == 0 ? 0 : std::bit_width(static_cast<unsigned>(length)) - 1;
  return static_cast<std::uint8_t>(log2 + (is_edited ? NgramIndex::kEditedCopy : 0));
}

}  // namespace

std::size_t NgramIndex::bucket_of(std::span<const std::int32_t> tokens, std::size_t end) const noexcept {
  const auto left = static_cast<std::uint32_t>(tokens[end - 1]);
  const auto right = static_cast<std::uint32_t>(tokens[end]);
  const std::uint64_t key = (std::uint64_t{left} << 32U | right) * 0x9E3779B97F4A7C15U;
  return static_cast<std::size_t>(key >> 32U) & (newest_.size() - 1);
}

void NgramIndex::add(std::span<const std::int32_t> tokens, std::size_t end) {
  std::int32_t previous = kNone;
  if (end > 0) {
    std::int32_t& newest = newest_[bucket_of(tokens, end)];
    previous = newest;
    newest = static_cast<std::int32_t>(end);
  }
  previous_.push_back(previous);
}

// If there are too few buckets, makes more and adds all tokens again.
void NgramIndex::reserve(std::span<const std::int32_t> tokens, std::size_t n_tokens) {
  const std::size_t n_added = previous_.size();
  previous_.reserve(n_tokens);
  if (n_tokens <= newest_.size()) return;
  newest_.assign(std::bit_ceil(std::max<std::size_t>(n_tokens, 64)), kNone);
  previous_.clear();
  for (std::size_t end = 0; end < n_added; ++end) add(tokens, end);
}

void NgramIndex::extend(std::span<const std::int32_t> tokens) {
  if (tokens.size() > capacity()) reserve(tokens, tokens.size());
  for (std::size_t end = previous_.size(); end < tokens.size(); ++end) add(tokens, end);
}

void NgramIndex::clear() noexcept {
  std::ranges::fill(newest_, kNone);
  previous_.clear();
  source_ = kNone;
  source_size_ = 0;
}

void NgramIndex::truncate(std::span<const std::int32_t> tokens, std::size_t n_tokens) {
  while (previous_.size() > n_tokens) {
    const std::size_t end = previous_.size() - 1;
    if (end > 0) newest_[bucket_of(tokens, end)] = previous_.back();
    previous_.pop_back();
  }
  if (source_size_ > n_tokens) source_ = kNone;
}

NgramIndex::Match NgramIndex::longest_match(std::span<const std::int32_t> tokens) const noexcept {
  Match best;
  const auto last = static_cast<std::int32_t>(tokens.size()) - 1;
  std::int32_t end = previous_[static_cast<std::size_t>(last)];
  for (int i = 0; i < kMaxCandidates && end != kNone; ++i, end = previous_[static_cast<std::size_t>(end)]) {
    int length = 0;
    const int most = std::min<int>(kMaxMatch, end + 1);
    while (length < most &&
           tokens[static_cast<std::size_t>(end - length)] == tokens[static_cast<std::size_t>(last - length)]) {
      ++length;
    }
    if (length >= 2 && length > best.length) best = {.source = end + 1, .length = length};
  }
  return best;
}

// After an edit, which replaces, removes or inserts a few tokens, the copy continues. Searches the last token from the
// position at which the guesses stopped being right.
std::int32_t NgramIndex::edited_copy(std::span<const std::int32_t> tokens) {
  if (source_ == kNone || tokens.size() <= source_size_) return kNone;
  const std::size_t n_drawn = tokens.size() - source_size_;
  const std::size_t left_at = static_cast<std::size_t>(source_) + n_drawn - 1;
  const std::size_t end = std::min(left_at + kLookAhead, tokens.size() - 1);
  for (std::size_t at = left_at; at < end; ++at) {
    if (tokens[at] == tokens.back()) return static_cast<std::int32_t>(at) + 1;
  }
  source_ = left_at < tokens.size() ? static_cast<std::int32_t>(left_at) : kNone;
  source_size_ = tokens.size();
  return kNone;
}

void NgramIndex::propose(std::span<const std::int32_t> tokens, int n_wanted, std::vector<Guess>& guesses) {
  IMP_CHECK(tokens.size() == size());
  if (tokens.size() < 2) return;
  const Match match = longest_match(tokens);
  std::int32_t source = match.source;
  bool is_edited = false;
  if (match.length < kSureMatch) {
    const std::int32_t copy = edited_copy(tokens);
    is_edited = copy != kNone;
    if (is_edited) source = copy;
  }
  if (source == kNone) return;
  source_ = source;
  source_size_ = tokens.size();
  const std::uint8_t confidence = confidence_of(match.length, is_edited);
  const std::size_t first = guesses.size();
  for (int i = 0; i < n_wanted; ++i) {
    // Beyond the last token, the guesses repeat themselves: the text is periodic.
    const auto at = static_cast<std::size_t>(source + i);
    const std::int32_t token = at < tokens.size() ? tokens[at] : guesses[first + at - tokens.size()].token;
    if (is_media(token)) return;
    guesses.push_back({.token = token, .confidence = confidence});
  }
}

}  // namespace imp

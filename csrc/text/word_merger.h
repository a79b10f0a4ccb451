// Merges the symbols of a word pair by pair, the best pair first: the loop of byte-pair encoding.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

namespace imp {

struct Symbol {
  std::int32_t id = 0;
  std::uint32_t begin = 0;  // in the word, in bytes
  std::uint32_t size = 0;   // in bytes; 0: it is part of a symbol before it
  std::int32_t previous = 0;
  std::int32_t next = 0;
};

// What a pair of neighbours becomes. Ranks have an order; the lowest is merged first.
template <class Rank>
struct MergedPair {
  Rank rank{};
  std::int32_t id = 0;
};

// The symbols of one word. It keeps its memory from word to word. Time grows as n log n with the length of a word.
template <class Rank>
class WordMerger {
 public:
  void clear() noexcept { symbols_.clear(); }
  // Gives back the memory of a long word, which is up to a hundred times as large as the word.
  void forget_long_word() noexcept {
    if (symbols_.capacity() <= kKeptSymbols && pairs_.capacity() <= kKeptSymbols) return;
    symbols_ = {};
    pairs_ = {};
  }
  // Adds a symbol after the others.
  void add(std::int32_t id, std::size_t n_bytes) {
    const auto place = static_cast<std::int32_t>(symbols_.size());
    const std::uint32_t begin = place == 0 ? 0 : symbols_.back().begin + symbols_.back().size;
    symbols_.push_back({id, begin, static_cast<std::uint32_t>(n_bytes), place - 1, place + 1});
  }
  // Merges until no pair is left. `find` takes two neighbours and returns an optional MergedPair. Of pairs with equal
  // ranks the leftmost is merged first.
  template <class Find>
  void merge(const Find& find) {
    if (symbols_.size() < 2) return;
    symbols_.back().next = kNone;
    pairs_.clear();
    is_heap_ = false;
    for (std::int32_t left = 0; symbols_[at(left)].next != kNone; ++left) note(left, find);
    is_heap_ = pairs_.size() > kFewPairs;
    if (is_heap_) std::ranges::make_heap(pairs_, std::greater{});
    while (!pairs_.empty()) {
      const Pair pair = taken_best();
      if (!is_current(pair)) continue;
      join(pair);
      note(symbols_[at(pair.left)].previous, find);
      note(pair.left, find);
    }
  }
  void append_ids(std::vector<std::int32_t>& ids) const {
    for (const Symbol& symbol : symbols_) {
      if (symbol.size > 0) ids.push_back(symbol.id);
    }
  }

 private:
  static constexpr std::int32_t kNone = -1;
  static constexpr std::size_t kFewPairs = 16;
  static constexpr std::size_t kKeptSymbols = 4096;
  struct Pair {
    Rank rank;
    std::int32_t id;     // of the result
    std::int32_t left;   // place of the left symbol
    std::uint32_t size;  // of the result, in bytes
    friend bool operator>(const Pair& a, const Pair& b) noexcept {
      return std::tie(b.rank, b.left) < std::tie(a.rank, a.left);
    }
  };

  static std::size_t at(std::int32_t place) noexcept { return static_cast<std::size_t>(place); }

  // Notes the pair of a symbol and the next one, if they merge.
  template <class Find>
  void note(std::int32_t place, const Find& find) {
    if (place == kNone || symbols_[at(place)].next == kNone) return;
    const Symbol& left = symbols_[at(place)];
    const Symbol& right = symbols_[at(left.next)];
    const std::optional<MergedPair<Rank>> merged = find(left, right);
    if (!merged) return;
    pairs_.push_back({merged->rank, merged->id, place, left.size + right.size});
    if (is_heap_) std::ranges::push_heap(pairs_, std::greater{});
  }
  // Takes the pair with the best rank out. Of few pairs a search finds it sooner than a heap.
  Pair taken_best() {
    if (is_heap_) {
      std::ranges::pop_heap(pairs_, std::greater{});
    } else {
      std::swap(*std::ranges::max_element(pairs_, std::greater{}), pairs_.back());
    }
    const Pair pair = pairs_.back();
    pairs_.pop_back();
    return pair;
  }
  // Whether neither symbol has grown or gone. If the left one took the right one, both together are larger.
  bool is_current(const Pair& pair) const noexcept {
    const Symbol& left = symbols_[at(pair.left)];
    return left.size > 0 && left.next != kNone && left.size + symbols_[at(left.next)].size == pair.size;
  }
  void join(const Pair& pair) noexcept {
    Symbol& left = symbols_[at(pair.left)];
    Symbol& right = symbols_[at(left.next)];
    left.id = pair.id;
    left.size = pair.size;
    left.next = right.next;
    right.size = 0;
    if (right.next != kNone) symbols_[at(right.next)].previous = pair.left;
  }

  std::vector<Symbol> symbols_;
  std::vector<Pair> pairs_;
  bool is_heap_ = false;  // what pairs_ is
};

}  // namespace imp

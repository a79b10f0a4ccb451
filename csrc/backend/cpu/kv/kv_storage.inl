// The storage types of the KV cache and their inner loops, one struct per type.
//
//   Element   a lane's load: kElements neighbours, along head_dim for K and along tokens for V
//   Factor    the other operand: kElements neighbours of a query, or of a row of weights
//   Part      what a register holds of either: a product is added in kParts steps, part 0 first
//
// A word is 32 bits: one float, or a pair of bfloat16.
#pragma once

#include "backend/cpu/kv/kv_pairs.inl"
#include "backend/cpu/ops/cpu_ops.h"

namespace imp::cpu {
namespace {

// What F32 and F16 have in common: an element becomes a float32 and is multiplied as one.
struct UnpairedStorage {
  static constexpr bool kQuantized = false;
  static constexpr int kElements = 1;
  static constexpr int kParts = 1;
  using Part = Lanes;

  // Queries are packed as [words of a query][kTileQueries], words of kWordElements elements.
  using Queries = const float*;
  static constexpr int kWordElements = 1;
  static IntLanes factor_words(const float* row, int n) { return bits(load_up_to(row, n)); }
  template <int part>
  static Lanes query(Queries q, int step, int i) {
    return broadcast(q[step * kTileQueries + i]);
  }
  // Writes weights of 16 tokens as Factors into a row of scores whose earlier tokens have been read. Returns the
  // rounded weights.
  static Lanes store_weights(float* scores, int token, Lanes x) {
    store(scores + token, x);
    return x;
  }
  template <int part>
  static Lanes factor(const void* factors, int i) {
    return broadcast(static_cast<const float*>(factors)[i]);
  }
  static Lanes add(Lanes sum, Lanes element, Lanes factor) { return fma(factor, element, sum); }
  // The first n of 16 · kElements elements of a row, as 16 words.
  static IntLanes words_of(const float* row, int n) { return bits(load_up_to(row, n)); }
};

struct F32Storage : UnpairedStorage {
  using Element = float;
  using Row = const Element*;
  static Row values(const void* panel, int step, int width) { return static_cast<Row>(panel) + step * width; }
  template <int part>
  static Lanes read(Row row, int element) {
    return load(row + element);
  }
  static void write(Element* to, IntLanes words) { store(to, from_bits(words)); }
};

struct F16Storage : UnpairedStorage {
  using Element = std::uint16_t;
  using Row = const Element*;
  static Row values(const void* panel, int step, int width) { return static_cast<Row>(panel) + step * width; }
  template <int part>
  static Lanes read(Row row, int element) {
    return load_f16(row + element);
  }
  static void write(Element* to, IntLanes words) { store_f16(to, from_bits(words)); }
};

// Bfloat16 storage. Queries and weights are rounded to bfloat16; sums are float32.
struct BF16Storage {
  static constexpr bool kQuantized = false;
  static constexpr int kElements = 2;
  static constexpr int kParts = kPairParts;
  using Part = PairPart;
  using Element = std::uint32_t;  // the even below

  using Queries = const float*;
  static constexpr int kWordElements = kPairWordElements;
  static IntLanes factor_words(const float* row, int n) { return pair_factor_words(row, n); }
  template <int part>
  static Part query(Queries q, int step, int i) {
    return broadcast_query<part>(q + step * (kElements / kWordElements) * kTileQueries + i, kTileQueries);
  }
  static Lanes store_weights(float* scores, int token, Lanes x) {
    return store_rounded(reinterpret_cast<PairFactor*>(scores) + token, x);
  }
  template <int part>
  static Part factor(const void* factors, int i) {
    return broadcast_factors<part>(static_cast<const PairFactor*>(factors) + kElements * i);
  }
  static Lanes add(Lanes sum, Part element, Part factor) { return add_product(sum, element, factor); }

  using Row = const Element*;
  static Row values(const void* panel, int step, int width) { return static_cast<Row>(panel) + step * width; }
  template <int part>
  static Part read(Row row, int element) {
    return part_of_pairs<part>(load_words(row + element));
  }
  // One element of each pair (0: the even one); the other becomes zero.
  template <int part>
  static Part read_one(Row row, int element, int which) {
    const std::uint32_t mask = which == 0 ? 0x0000FFFF : 0xFFFF0000;
    return part_of_pairs<part>(load_words(row + element) & broadcast_int(static_cast<std::int32_t>(mask)));
  }
  static IntLanes words_of(const float* row, int n) {
    return join_upper_halves(round_bf16(load_up_to(row, n)),
                             round_bf16(load_up_to(row + kLanes, n > kLanes ? n - kLanes : 0)));
  }
  static void write(Element* to, IntLanes words) { store_int(reinterpret_cast<std::int32_t*>(to), words); }
};

}  // namespace
}  // namespace imp::cpu

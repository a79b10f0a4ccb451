// Packs tiles and restores rows. Each type has one list of moves for both directions.
#include "backend/cuda/gemm/layouts.h"

#include <algorithm>
#include <cstring>

#include "backend/cuda/gemm/tiles.h"
#include "base/error.h"

namespace imp::cuda {
namespace {

// Bits at one place in a row of the file and another in a tile.
struct Move {
  int in_file;  // byte offset in the row's part of this tile
  int in_tile;
  int file_shift = 0;
  int tile_shift = 0;
  std::uint32_t mask = ~0U;  // after the shift; two bytes use the low half
};
constexpr std::uint32_t kNibbles = 0x0F0F0F0F, kPairs = 0x03030303;

// Each calls move_4(Move) or move_2(Move) for every four or two bytes of the part of a row (0 to 15) in one tile,
// n_elements of it. Four elements are neighbours in both.
template <class Move4, class Move2>
void move_q8_0(int row, int n_elements, const Move4& move_4, const Move2& move_2) {
  for (int block = 0; block < n_elements / kBlockElements; ++block) {
    const int from = block * 34;
    move_2({.in_file = from, .in_tile = Tile<DType::Q8_0>::kScales + scale_offset(row, block)});
    for (int i = 0; i < kBlockElements; i += 4) {
      move_4({.in_file = from + 2 + i, .in_tile = byte_offset(row, block * kBlockElements + i)});
    }
  }
}

template <class Move4, class Move2>
void move_q4_0(int row, int n_elements, const Move4& move_4, const Move2& move_2) {
  for (int block = 0; block < n_elements / kBlockElements; ++block) {
    const int from = block * 18;
    move_2({.in_file = from, .in_tile = Tile<DType::Q4_0>::kScales + scale_offset(row, block)});
    for (int i = 0; i < kBlockElements; i += 4) {
      const int k = block * kBlockElements + i;
      move_4({from + 2 + i % 16, nibble_offset(row, k), i / 16 * 4, nibble_shift(k), kNibbles});
    }
  }
}

// Q4_K and Q5_K pair blocks in halves of bytes, as tiles do.
template <class Move4>
void move_nibbles_of_k(int row, int in_file, const Move4& move_4) {
  for (int i = 0; i < kTileElements / 2; i += 4) {
    move_4({.in_file = in_file + i, .in_tile = nibble_offset(row, i / 32 * 64 + i % 32)});
  }
}

template <class Move4>
void move_q4_k(int row, const Move4& move_4) {
  for (int i = 0; i < 16; i += 4) {
    move_4({.in_file = i, .in_tile = Tile<DType::Q4_K>::kHeaders + header_offset(row) + i});
  }
  move_nibbles_of_k(row, 16, move_4);
}

template <class Move4>
void move_q5_k(int row, const Move4& move_4) {
  for (int i = 0; i < 16; i += 4) {
    move_4({.in_file = i, .in_tile = Tile<DType::Q5_K>::kHeaders + header_offset(row) + i});
  }
  for (int i = 0; i < kBlockElements; i += 4) {
    move_4({.in_file = 16 + i, .in_tile = Tile<DType::Q5_K>::kFifthBits + bit_offset(row, i)});
  }
  move_nibbles_of_k(row, 48, move_4);
}

template <class Move4, class Move2>
void move_q6_k(int row, const Move4& move_4, const Move2& move_2) {
  for (int k = 0; k < kTileElements; k += 4) {
    const int half = k / 128;
    move_4({half * 64 + k % 64, nibble_offset(row, k), k % 128 / 64 * 4, nibble_shift(k), kNibbles});
    move_4({128 + half * 32 + k % 32, Tile<DType::Q6_K>::kHighBits + pair_offset(row, k), k % 128 / 32 * 2,
            pair_shift(k), kPairs});
  }
  for (int block = 0; block < kTileBlocks; ++block) {
    move_2({.in_file = 192 + block * 2, .in_tile = Tile<DType::Q6_K>::kScales + scale_offset(row, block)});
  }
  move_2({.in_file = 208, .in_tile = Tile<DType::Q6_K>::kFactors + factor_offset(row)});
}

template <class Move4, class Move2>
void move_halves(int row, int n_elements, const Move4& move_4, const Move2& move_2) {
  for (int k = 0; k + 1 < n_elements; k += 2) move_4({.in_file = k * 2, .in_tile = half_offset(row, k)});
  if (n_elements % 2 != 0) move_2({.in_file = (n_elements - 1) * 2, .in_tile = half_offset(row, n_elements - 1)});
}

template <class Move4>
void move_f8_e4m3(int row, int n_elements, const Move4& move_4) {
  for (int block = 0; block < n_elements / kFloatBlockElements; ++block) {
    const int from = block * 68;
    move_4({.in_file = from, .in_tile = Tile<DType::F8_E4M3>::kScales + float_scale_offset(row, block)});
    for (int i = 0; i < kFloatBlockElements; i += 4) {
      move_4({.in_file = from + 4 + i, .in_tile = byte_offset(row, block * kFloatBlockElements + i)});
    }
  }
}

template <class Move4, class Move2>
void move_row(DType type, int row, int n_elements, const Move4& move_4, const Move2& move_2) {
  switch (type) {
    case DType::Q8_0:
      return move_q8_0(row, n_elements, move_4, move_2);
    case DType::Q4_0:
      return move_q4_0(row, n_elements, move_4, move_2);
    case DType::Q4_K:
      return move_q4_k(row, move_4);
    case DType::Q5_K:
      return move_q5_k(row, move_4);
    case DType::Q6_K:
      return move_q6_k(row, move_4, move_2);
    case DType::F8_E4M3:
      return move_f8_e4m3(row, n_elements, move_4);
    case DType::F16:
    case DType::BF16:
      return move_halves(row, n_elements, move_4, move_2);
    default:
      IMP_CHECK(has_tiles(type));
  }
}

// Copies bits from one place into another, which must be zero.
template <class Word>
void add_bits(const std::byte* from, int from_shift, std::byte* to, int to_shift, std::uint32_t mask) {
  Word word, other;
  std::memcpy(&word, from, sizeof word);
  std::memcpy(&other, to, sizeof other);
  const std::uint32_t bits = (static_cast<std::uint32_t>(word) >> from_shift & mask) << to_shift;
  other = static_cast<Word>(other | bits);
  std::memcpy(to, &other, sizeof other);
}

// Moves a row's part of one tile: into the tile, or out of it.
template <bool kPacks>
void move_part(DType type, int row, int n_elements, const std::byte* from, std::byte* to) {
  const auto move = [=]<class Word>(const Move& m) {
    kPacks ? add_bits<Word>(from + m.in_file, m.file_shift, to + m.in_tile, m.tile_shift, m.mask)
           : add_bits<Word>(from + m.in_tile, m.tile_shift, to + m.in_file, m.file_shift, m.mask);
  };
  move_row(
      type, row, n_elements, [&](const Move& m) { move.template operator()<std::uint32_t>(m); },
      [&](const Move& m) { move.template operator()<std::uint16_t>(m); });
}

// Calls part(number of the tile along k, its elements, their offset in a row of the file).
template <class Part>
void for_each_part(const GemmProblem& problem, const Part& part) {
  const std::int64_t bytes = *row_bytes(problem.weight, kTileElements);
  for (std::int64_t tile = 0; tile < tiles_along(problem.k); ++tile) {
    const std::int64_t left = problem.k - tile * kTileElements;
    part(tile, static_cast<int>(std::min<std::int64_t>(left, kTileElements)), tile * bytes);
  }
}

std::int64_t tile_bytes(DType type) {
  return kTileRows * *row_bytes(type, kTileElements);
}

}  // namespace

bool has_tiles(DType weight) noexcept {
#define IMP_CASE(name, Type, kernel) case DType::Type:
  switch (weight) {
    IMP_TILE_TYPES(IMP_CASE, any)
    return true;
    default:
      return false;
  }
#undef IMP_CASE
}

void pack_rows(const GemmProblem& problem, WeightLayout layout, std::int64_t first_row, std::int64_t n_rows,
               const std::byte* rows, std::byte* out) {
  const std::int64_t row_size = *row_bytes(problem.weight, problem.k);
  if (layout == WeightLayout::file) {
    std::memcpy(out, rows, static_cast<std::size_t>(n_rows * row_size));
    return;
  }
  IMP_CHECK(layout == WeightLayout::tile16 && first_row % kTileRows == 0);
  const std::int64_t tile_size = tile_bytes(problem.weight), n_tiles = tiles_along(problem.k);
  std::memset(out, 0, static_cast<std::size_t>(strips_of(n_rows) * n_tiles * tile_size));
  for (std::int64_t row = 0; row < n_rows; ++row) {
    for_each_part(problem, [&](std::int64_t tile, int n_elements, std::int64_t in_file) {
      move_part<true>(problem.weight, static_cast<int>(row % kTileRows), n_elements, rows + row * row_size + in_file,
                      out + (row / kTileRows * n_tiles + tile) * tile_size);
    });
  }
}

void unpack_row(const GemmProblem& problem, WeightLayout layout, const std::byte* weight, std::int64_t row,
                std::byte* out) {
  const std::int64_t row_size = *row_bytes(problem.weight, problem.k);
  if (layout == WeightLayout::file) {
    std::memcpy(out, weight + row * row_size, static_cast<std::size_t>(row_size));
    return;
  }
  IMP_CHECK(layout == WeightLayout::tile16);
  const std::int64_t tile_size = tile_bytes(problem.weight), n_tiles = tiles_along(problem.k);
  std::memset(out, 0, static_cast<std::size_t>(row_size));
  for_each_part(problem, [&](std::int64_t tile, int n_elements, std::int64_t in_file) {
    move_part<false>(problem.weight, static_cast<int>(row % kTileRows), n_elements,
                     weight + (row / kTileRows * n_tiles + tile) * tile_size, out + in_file);
  });
}

}  // namespace imp::cuda

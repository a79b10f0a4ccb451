// The arrangements, one list per type, and the moves that follow them.
#include "backend/cpu/gemm/quantized/arrangement.h"

#include <cstring>

#include "backend/cpu/gemm/quantized/panel_blocks.h"

namespace imp::cpu {

namespace {

constexpr std::size_t kRows = 16;

constexpr Run kQ8_0[] = {{2, 4, 8, Change::plus_128}, {0, 2, 1}};
constexpr Run kQ4_0[] = {{2, 4, 4}, {0, 2, 1}};  // IQ4_NL too
constexpr Run kMXFP4[] = {{1, 4, 4}, {0, 1, 1}};
constexpr Run kQ4_1[] = {{4, 4, 4}, {0, 2, 2}};
constexpr Run kQ5_0[] = {{6, 4, 4}, {2, 4, 1, Change::spread_bits}, {0, 2, 1}};
constexpr Run kQ5_1[] = {{8, 4, 4}, {4, 4, 1, Change::spread_bits}, {0, 2, 2}};
constexpr Run kQ2_K[] = {{16, 4, 16}, {0, 1, 16}, {80, 2, 2}};
constexpr Run kQ3_K[] = {{0, 4, 24}, {96, 1, 12}, {108, 2, 1}};
constexpr Run kQ4_K[] = {{16, 4, 32}, {4, 1, 12}, {0, 2, 2}};
constexpr Run kQ5_K[] = {{16, 4, 40}, {4, 1, 12}, {0, 2, 2}};
constexpr Run kQ6_K[] = {{0, 4, 48}, {192, 2, 8}, {208, 2, 1}};  // of a block that regroup_q6_k has changed
constexpr Run kIQ4_XS[] = {{8, 4, 32}, {4, 1, 4}, {2, 2, 1}, {0, 2, 1}};

constexpr std::size_t bytes_of(std::span<const Run> runs) {
  std::size_t total = 0;
  for (const Run& run : runs) total += static_cast<std::size_t>(run.unit_bytes * run.n_units);
  return total;
}

// The structures are the arrangements: as large, and a whole number of file blocks.
static_assert(sizeof(PanelBlockQ8_0) == kRows * bytes_of(kQ8_0) && bytes_of(kQ8_0) == 34);
static_assert(sizeof(PanelBlockQ4_0) == kRows * bytes_of(kQ4_0) && bytes_of(kQ4_0) == 18);
static_assert(sizeof(PanelBlockMXFP4) == kRows * bytes_of(kMXFP4) && bytes_of(kMXFP4) == 17);
static_assert(sizeof(PanelBlockQ4_1) == kRows * bytes_of(kQ4_1) && bytes_of(kQ4_1) == 20);
static_assert(sizeof(PanelBlockQ5_0) == kRows * bytes_of(kQ5_0) && bytes_of(kQ5_0) == 22);
static_assert(sizeof(PanelBlockQ5_1) == kRows * bytes_of(kQ5_1) && bytes_of(kQ5_1) == 24);
static_assert(sizeof(PanelBlockQ2_K) == kRows * bytes_of(kQ2_K) && bytes_of(kQ2_K) == 84);
static_assert(sizeof(PanelBlockQ3_K) == kRows * bytes_of(kQ3_K) && bytes_of(kQ3_K) == 110);
static_assert(sizeof(PanelBlockQ4_K) == kRows * bytes_of(kQ4_K) && bytes_of(kQ4_K) == 144);
static_assert(sizeof(PanelBlockQ5_K) == kRows * bytes_of(kQ5_K) && bytes_of(kQ5_K) == 176);
static_assert(sizeof(PanelBlockQ6_K) == kRows * bytes_of(kQ6_K) && bytes_of(kQ6_K) == 210);
static_assert(sizeof(PanelBlockIQ4_XS) == kRows * bytes_of(kIQ4_XS) && bytes_of(kIQ4_XS) == 136);

constexpr std::uint32_t kPlus128 = 0x80808080;  // flipping the top bit adds 128 to each of four bytes

std::uint32_t spread(std::uint32_t bits) noexcept {
  std::uint32_t spread_out = 0;
  for (unsigned i = 0; i < 32; ++i) spread_out |= (bits >> i & 1U) << (8 * (i % 4) + i / 4);
  return spread_out;
}

std::uint32_t gather(std::uint32_t bits) noexcept {
  std::uint32_t gathered = 0;
  for (unsigned i = 0; i < 32; ++i) gathered |= (bits >> (8 * (i % 4) + i / 4) & 1U) << i;
  return gathered;
}

// Codes of Q6_K as the panel has them: see PanelBlockQ6_K. Words of four codes, j-th of group g = 4h + q.
constexpr std::size_t kHighBitsQ6_K = 128, kCodeBytesQ6_K = 192;

std::uint32_t load_word(const std::byte* from) noexcept {
  std::uint32_t word;
  std::memcpy(&word, from, sizeof word);
  return word;
}

// Where the file has the low four bits (in a nibble, from bit low_shift on) and the high two of a word's codes.
struct PlaceQ6_K {
  std::size_t low, high;
  unsigned low_shift, high_shift;
};

constexpr PlaceQ6_K place_of(std::size_t word) noexcept {
  const std::size_t half = word / 32, quarter = word / 8 % 4, j = word % 8;
  return {64 * half + 32 * (quarter % 2) + 4 * j, kHighBitsQ6_K + 32 * half + 4 * j,
          static_cast<unsigned>(quarter / 2 * 4), static_cast<unsigned>(2 * quarter)};
}

constexpr std::uint32_t kTwoBits = 0x03030303, kFourBits = 0x0F0F0F0F, kSixBits = 0x3F3F3F3F;

void regroup_q6_k(std::byte* block) noexcept {
  std::byte codes[kCodeBytesQ6_K];
  for (std::size_t i = 0; i < 64; i += 4) {
    std::uint32_t words[4];
    for (std::size_t j = 0; j < 4; ++j) {
      const PlaceQ6_K place = place_of(i + j);
      words[j] = (load_word(block + place.low) >> place.low_shift & kFourBits) |
                 (load_word(block + place.high) >> place.high_shift & kTwoBits) << 4;
    }
    for (std::size_t j = 0; j < 3; ++j) {
      const std::uint32_t unit = words[j] | (words[3] >> (2 * j) & kTwoBits) << 6;
      std::memcpy(codes + (3 * i / 4 + j) * 4, &unit, sizeof unit);
    }
  }
  std::memcpy(block, codes, sizeof codes);
}

void ungroup_q6_k(std::byte* block) noexcept {
  std::byte codes[kCodeBytesQ6_K] = {};
  const auto add = [&](std::size_t at, std::uint32_t bits) {
    const std::uint32_t word = load_word(codes + at) | bits;
    std::memcpy(codes + at, &word, sizeof word);
  };
  for (std::size_t i = 0; i < 64; i += 4) {
    std::uint32_t words[4] = {};
    for (std::size_t j = 0; j < 3; ++j) {
      const std::uint32_t unit = load_word(block + (3 * i / 4 + j) * 4);
      words[j] = unit & kSixBits;
      words[3] |= (unit >> 6 & kTwoBits) << (2 * j);
    }
    for (std::size_t j = 0; j < 4; ++j) {
      const PlaceQ6_K place = place_of(i + j);
      add(place.low, (words[j] & kFourBits) << place.low_shift);
      add(place.high, (words[j] >> 4 & kTwoBits) << place.high_shift);
    }
  }
  std::memcpy(block, codes, sizeof codes);
}

enum class Way { to_panel, to_file };

template <Way way>
void change(Change what, std::byte* unit) noexcept {
  if (what == Change::none) return;
  std::uint32_t word;
  std::memcpy(&word, unit, sizeof word);
  if (what == Change::plus_128) {
    word ^= kPlus128;
  } else {
    word = way == Way::to_panel ? spread(word) : gather(word);
  }
  std::memcpy(unit, &word, sizeof word);
}

// One row's units of a run, between consecutive units in the file and every 16th in the panel.
template <Way way, std::size_t unit, class File, class Panel>
void move_units(File* file, Panel* panel, const Run& run) noexcept {
  for (int i = 0; i < run.n_units; ++i, file += unit, panel += kRows * unit) {
    if constexpr (way == Way::to_panel) {
      std::memcpy(panel, file, unit);
      if constexpr (unit == 4) change<way>(run.change, panel);
    } else {
      std::memcpy(file, panel, unit);
      if constexpr (unit == 4) change<way>(run.change, file);
    }
  }
}

template <Way way, class File, class Panel>
void move_block(std::span<const Run> runs, File* file, Panel* panel, std::size_t row) noexcept {
  for (const Run& run : runs) {
    const auto unit = static_cast<std::size_t>(run.unit_bytes);
    File* const in_file = file + run.file_offset;
    Panel* const in_panel = panel + row * unit;
    if (unit == 4) {
      move_units<way, 4>(in_file, in_panel, run);
    } else if (unit == 2) {
      move_units<way, 2>(in_file, in_panel, run);
    } else {
      move_units<way, 1>(in_file, in_panel, run);
    }
    panel += kRows * unit * static_cast<std::size_t>(run.n_units);
  }
}

}  // namespace

std::span<const Run> arrangement(DType dtype) noexcept {
  switch (dtype) {
    case DType::Q8_0:
      return kQ8_0;
    case DType::Q4_0:
    case DType::IQ4_NL:
      return kQ4_0;
    case DType::Q4_1:
      return kQ4_1;
    case DType::Q5_0:
      return kQ5_0;
    case DType::Q5_1:
      return kQ5_1;
    case DType::Q2_K:
      return kQ2_K;
    case DType::Q3_K:
      return kQ3_K;
    case DType::Q4_K:
      return kQ4_K;
    case DType::Q5_K:
      return kQ5_K;
    case DType::Q6_K:
      return kQ6_K;
    case DType::IQ4_XS:
      return kIQ4_XS;
    case DType::MXFP4:
      return kMXFP4;
    case DType::F32:
    case DType::F16:
    case DType::BF16:
      break;
  }
  return {};
}

void pack_blocks(DType dtype, const std::byte* rows, int n_rows, std::int64_t n_blocks, std::byte* panel) noexcept {
  const std::span<const Run> runs = arrangement(dtype);
  const std::size_t block = bytes_of(runs);
  const auto blocks = static_cast<std::size_t>(n_blocks);
  std::byte regrouped[sizeof(PanelBlockQ6_K) / kRows];
  for (std::size_t b = 0; b < blocks; ++b) {
    for (std::size_t row = 0; row < static_cast<std::size_t>(n_rows); ++row) {
      const std::byte* file = rows + (row * blocks + b) * block;
      if (dtype == DType::Q6_K) {
        std::memcpy(regrouped, file, block);
        regroup_q6_k(regrouped);
        file = regrouped;
      }
      move_block<Way::to_panel>(runs, file, panel + b * kRows * block, row);
    }
  }
}

void unpack_blocks(DType dtype, const std::byte* panel, std::int64_t row, std::int64_t n_blocks,
                   std::byte* out) noexcept {
  const std::span<const Run> runs = arrangement(dtype);
  const std::size_t block = bytes_of(runs);
  for (std::size_t b = 0; b < static_cast<std::size_t>(n_blocks); ++b) {
    move_block<Way::to_file>(runs, out + b * block, panel + b * kRows * block, static_cast<std::size_t>(row));
    if (dtype == DType::Q6_K) ungroup_q6_k(out + b * block);
  }
}

}  // namespace imp::cpu

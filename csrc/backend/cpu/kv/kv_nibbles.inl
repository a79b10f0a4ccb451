// How rot4, rot3 and rot2 store codes: as nibbles, so that one lookup of 16 bytes finds the levels of a register.
//
// Nibbles of rot3 have one bit that is zero, and those of rot2 two. It is not stored, and which one it is depends on
// the element's place, so that the stored bits of several places fill a byte, each in its position. For this every code
// has several nibbles, of which one fits each place.
#pragma once

#include "backend/cpu/kv/kv_levels.inl"

namespace imp::cpu {
namespace {

template <int bits>
constexpr int code_of_nibble(int nibble) {
  if (bits == 3) return nibble < 8 ? nibble : 15 - nibble;
  return bits == 2 ? (nibble & 3) ^ nibble >> 2 : nibble;
}
// The bits of a nibble that are stored among the first 8 bytes of a block, 16 for rot4: element i in byte i % 8. The
// place is i / 4 % 4; elements from 16 on have the high halves of bytes.
template <int bits>
constexpr int first_bits(int place) {
  return bits == 4 ? 15 : place < 2 ? 3 : 12;
}
// The bit that rot3 stores in four further bytes, element i in byte i % 4.
template <int bits>
constexpr int further_bit(int place) {
  return bits == 3 ? 8 >> place : 0;
}

struct NibbleTables {
  std::uint8_t of_code[4][16];                              // [place][code]
  alignas(64) std::int32_t first[kLanes], further[kLanes];  // the stored bits of 16 elements, for four tokens
};
template <int bits>
constexpr NibbleTables nibble_tables() {
  NibbleTables tables = {};
  for (int place = 0; place < 4; ++place) {
    const int is_stored = first_bits<bits>(place) | further_bit<bits>(place);
    for (int nibble = 0; nibble < 16; ++nibble) {
      if ((nibble & ~is_stored) != 0) continue;
      tables.of_code[place][code_of_nibble<bits>(nibble)] = static_cast<std::uint8_t>(nibble);
    }
  }
  for (int i = 0; i < kLanes; ++i) {
    tables.first[i] = first_bits<bits>(i / 4) * 0x01010101;
    tables.further[i] = further_bit<bits>(i / 4) * 0x01010101;
  }
  return tables;
}

struct NibbleLevels {
  std::uint8_t v[16];
};
// Plus `offset`, as bytes.
template <int bits>
constexpr NibbleLevels nibble_levels(int offset) {
  NibbleLevels levels = {};
  for (int i = 0; i < 16; ++i) {
    levels.v[i] = static_cast<std::uint8_t>(static_cast<int>(level_of<bits>(code_of_nibble<bits>(i))) + offset);
  }
  return levels;
}

}  // namespace
}  // namespace imp::cpu

// Where the elements of a tile lie in shared memory for products of warpgroups: index arithmetic, host and device
// alike.
#pragma once

#include <cstdint>

namespace imp::cuda {

// A tile has rows of 128 bytes, one after the other; eight of them, an atom, are what its order repeats after.
inline constexpr int kTileRowBytes = 128;
inline constexpr int kTileAlignment = 1024;

// The 16-byte pieces of a row change places by the row's number in its atom, so that the same piece of eight rows is in
// eight places. Of an address in shared memory, and so of any place counted from an aligned one; its own inverse.
constexpr std::uint32_t swizzled(std::uint32_t address) {
  return address ^ (address >> 3 & 0x70U);
}

// What products are told of a tile whose rows lie along their depth: the address of its first element in shared memory.
// 16 elements further on are 32 bytes further on.
constexpr std::uint64_t tile_descriptor(std::uint32_t shared_address) {
  constexpr std::uint64_t kAtomBytes = kTileAlignment >> 4, kUnused = 1, kSwizzle128 = 1;
  return (shared_address & 0x3ffffU) >> 4 | kUnused << 16 | kAtomBytes << 32 | kSwizzle128 << 62;
}

}  // namespace imp::cuda

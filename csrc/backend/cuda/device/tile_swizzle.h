// Places of a tile's elements in shared memory for wgmma (the 128-byte swizzle): index arithmetic for host and device.
#pragma once

#include <cstdint>

namespace imp::cuda {

// A tile has consecutive rows of 128 bytes. The swizzle repeats every eight rows, an atom.
inline constexpr int kTileRowBytes = 128;
inline constexpr int kTileAlignment = 1024;

// XORs the number of a 16-byte chunk with the number of its row in the atom, so that equal chunks of eight rows lie in
// different banks. For an address in shared memory, or an offset from an aligned one. Its own inverse.
constexpr std::uint32_t swizzled(std::uint32_t address) {
  return address ^ (address >> 3 & 0x70U);
}

// The descriptor of a tile whose rows lie along k, from the address of its first element in shared memory. 16 elements
// further are 32 bytes further.
constexpr std::uint64_t tile_descriptor(std::uint32_t shared_address) {
  constexpr std::uint64_t kAtomBytes = kTileAlignment >> 4, kUnused = 1, kSwizzle128 = 1;
  return (shared_address & 0x3ffffU) >> 4 | kUnused << 16 | kAtomBytes << 32 | kSwizzle128 << 62;
}

}  // namespace imp::cuda

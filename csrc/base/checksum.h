// A fast 64-bit checksum against accidental corruption: flipped bits, truncation, swapped parts. Not cryptographic.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace imp {

// Runs at the speed of memory. Its value is part of file formats: it is the same on every machine and never changes.
std::uint64_t checksum(std::span<const std::byte> bytes, std::uint64_t seed = 0) noexcept;

}  // namespace imp

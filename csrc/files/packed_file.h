// A file of weights in the layout that the kernels read: written once, then read back without conversion.
//
// The file has a header, the key, a checksum of each piece, and the parts:
//   0 magic · 8 version (u32) · 12 zero (u32) · 16 bytes of the key (u64) · 24 pieces (u64)
//   32 begin of the parts (u64) · 40 bytes of the file (u64) · 48 checksum of key and pieces' checksums (u64)
//   56 zero (u64) · 64 the key, padded to 8 · a u64 per piece · padding to 64 · the parts, each padded to 64
// The reader trusts nothing but the checksums: it computes all other fields itself and rejects a file that differs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"

namespace imp {

// Parts are read and checked in pieces of this size, which fit a core's cache; the last piece of a part may be shorter.
inline constexpr std::size_t kPackedPieceBytes = std::size_t{1} << 18;

// The layout for a key and sizes of parts.
struct PackedPlaces {
  PackedPlaces(std::string_view key, std::span<const std::uint64_t> part_bytes);

  std::uint64_t n_pieces = 0;
  std::uint64_t parts_begin = 0;
  std::uint64_t file_bytes = 0;
  struct Part {
    std::uint64_t first_piece, offset, n_bytes;
  };
  std::vector<Part> parts;
};

class PackedFile {
 public:
  // Throws ModelError if the file cannot be read, belongs to another user, is writable by everybody, or differs from
  // what write_packed_file() makes of this key and these sizes.
  PackedFile(const std::string& path, std::string_view key, std::span<const std::uint64_t> part_bytes,
             PreadFunction pread = {});

  // Reads bytes of a part from `offset` on, a multiple of kPackedPieceBytes, to another multiple or the part's end.
  // Throws ModelError if they differ from what was written. Any thread may call it.
  void read(std::size_t part, std::uint64_t offset, std::span<std::byte> out) const;

 private:
  void check_header(std::string_view key);

  File file_;
  PackedPlaces places_;
  std::vector<std::uint64_t> checksums_;
};

// Returns false, and leaves no file, if goes_on() returns false before the end. Throws ModelError(MODEL_IO) if the file
// cannot be written.
bool write_packed_file(const std::string& path, std::string_view key, std::span<const std::span<const std::byte>> parts,
                       const std::function<bool()>& goes_on);

}  // namespace imp

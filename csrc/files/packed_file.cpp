// Reads and writes packed files. Both compute the same layout.
#include "files/packed_file.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "base/ceil_div.h"
#include "base/checksum.h"
#include "base/error.h"
#include "base/new_file.h"

namespace imp {
namespace {

constexpr std::array<char, 8> kMagic = {'I', 'M', 'P', 'P', 'A', 'C', 'K', '\n'};
constexpr std::uint32_t kVersion = 1;

struct Header {
  std::array<char, 8> magic = kMagic;
  std::uint32_t version = kVersion;
  std::uint32_t zero = 0;
  std::uint64_t key_bytes = 0;
  std::uint64_t n_pieces = 0;
  std::uint64_t parts_begin = 0;
  std::uint64_t file_bytes = 0;
  std::uint64_t checksum = 0;
  std::uint64_t reserved = 0;
};
static_assert(sizeof(Header) == 64);

constexpr std::uint64_t checksums_begin(std::uint64_t key_bytes) {
  return sizeof(Header) + round_up(key_bytes, 8);
}

std::uint64_t pieces_of(std::uint64_t n_bytes) {
  return ceil_div(n_bytes, kPackedPieceBytes);
}

std::uint64_t checksum_of(std::string_view key, std::span<const std::uint64_t> checksums) {
  return checksum(std::as_bytes(checksums), checksum(std::as_bytes(std::span(key))));
}

Header header_of(std::string_view key, const PackedPlaces& places, std::span<const std::uint64_t> checksums) {
  return {.key_bytes = key.size(),
          .n_pieces = places.n_pieces,
          .parts_begin = places.parts_begin,
          .file_bytes = places.file_bytes,
          .checksum = checksum_of(key, checksums)};
}

[[noreturn]] void refuse(const File& file, const std::string& what) {
  throw ModelError(Reason::MODEL_FORMAT, file.name() + ": " + what);
}

}  // namespace

PackedPlaces::PackedPlaces(std::string_view key, std::span<const std::uint64_t> part_bytes) {
  for (const std::uint64_t n_bytes : part_bytes) n_pieces += pieces_of(n_bytes);
  parts_begin = round_up(checksums_begin(key.size()) + n_pieces * sizeof(std::uint64_t), 64);
  file_bytes = parts_begin;
  std::uint64_t piece = 0;
  for (const std::uint64_t n_bytes : part_bytes) {
    parts.push_back({piece, file_bytes, n_bytes});
    piece += pieces_of(n_bytes);
    file_bytes += round_up(n_bytes, 64);
  }
}

PackedFile::PackedFile(const std::string& path, std::string_view key, std::span<const std::uint64_t> part_bytes,
                       PreadFunction pread)
    : file_(path, std::move(pread), Links::REFUSE), places_(key, part_bytes) {
  if (!file_.is_trusted()) refuse(file_, "belongs to another user, or everybody may write it");
  check_header(key);
}

void PackedFile::check_header(std::string_view key) {
  Header found;
  if (file_.size_bytes() < sizeof found) refuse(file_, "has no header");
  file_.read_at(0, std::as_writable_bytes(std::span(&found, 1)));
  if (found.magic != kMagic) refuse(file_, "is not a file of packed weights");
  const Header expected = header_of(key, places_, {});
  if (found.version != expected.version || found.key_bytes != key.size() || found.n_pieces != places_.n_pieces ||
      found.parts_begin != places_.parts_begin || found.file_bytes != places_.file_bytes) {
    refuse(file_, "was made from another model, or by another version of imp");
  }
  if (file_.size_bytes() != places_.file_bytes) {
    refuse(file_,
           "has " + std::to_string(file_.size_bytes()) + " bytes, expected " + std::to_string(places_.file_bytes));
  }
  std::string found_key(key.size(), '\0');
  file_.read_at(sizeof found, std::as_writable_bytes(std::span(found_key)));
  checksums_.resize(places_.n_pieces);
  file_.read_at(checksums_begin(key.size()), std::as_writable_bytes(std::span(checksums_)));
  if (checksum_of(found_key, checksums_) != found.checksum) refuse(file_, "its header is damaged");
  if (found_key != key) refuse(file_, "was made from another model, or by another version of imp");
}

void PackedFile::read(std::size_t part, std::uint64_t offset, std::span<std::byte> out) const {
  const PackedPlaces::Part& place = places_.parts[part];
  IMP_CHECK(offset % kPackedPieceBytes == 0 && offset <= place.n_bytes && out.size() <= place.n_bytes - offset);
  IMP_CHECK(out.size() % kPackedPieceBytes == 0 || offset + out.size() == place.n_bytes);
  std::uint64_t piece = place.first_piece + offset / kPackedPieceBytes;
  for (std::uint64_t at = place.offset + offset; !out.empty(); ++piece, at += kPackedPieceBytes) {
    const auto bytes = out.first(std::min(kPackedPieceBytes, out.size()));
    file_.read_at(at, bytes);
    // The piece is checked while it is still in a core's cache. The checksum includes the piece's number, so that
    // pieces cannot be swapped.
    if (checksum(bytes, piece) != checksums_[piece]) refuse(file_, "is damaged at byte " + std::to_string(at));
    out = out.subspan(bytes.size());
  }
}

bool write_packed_file(const std::string& path, std::string_view key, std::span<const std::span<const std::byte>> parts,
                       const std::function<bool()>& goes_on) {
  std::vector<std::uint64_t> part_bytes;
  for (const auto& part : parts) part_bytes.push_back(part.size());
  const PackedPlaces places(key, part_bytes);
  std::vector<std::uint64_t> checksums;
  NewFile file(path, places.file_bytes);
  for (std::size_t i = 0; i < parts.size(); ++i) {
    std::uint64_t at = places.parts[i].offset;
    for (std::span<const std::byte> left = parts[i]; !left.empty(); at += kPackedPieceBytes) {
      if (!goes_on()) return false;
      const auto bytes = left.first(std::min(kPackedPieceBytes, left.size()));
      checksums.push_back(checksum(bytes, checksums.size()));
      file.write_at(at, bytes);
      left = left.subspan(bytes.size());
    }
  }
  // If the last part is not a multiple of 64, the file ends with padding that is not written yet.
  const std::byte last{};
  if (parts.empty() || parts.back().size() % 64 != 0) file.write_at(places.file_bytes - 1, {&last, 1});
  file.write_at(checksums_begin(key.size()), std::as_bytes(std::span(checksums)));
  file.write_at(sizeof(Header), std::as_bytes(std::span(key)));
  const Header header = header_of(key, places, checksums);
  file.write_at(0, std::as_bytes(std::span(&header, 1)));
  file.commit();
  return true;
}

}  // namespace imp

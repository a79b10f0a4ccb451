// Refills the buffer and reports a file that ends too early.
#include "files/byte_reader.h"

#include <algorithm>
#include <bit>
#include <string>

#include "base/error.h"

namespace imp {
namespace {

static_assert(std::endian::native == std::endian::little, "checkpoints are little-endian and are copied as they are");

constexpr std::size_t kBufferBytes = std::size_t{256} << 10;

}  // namespace

ByteReader::ByteReader(const File& file, std::uint64_t max_end)
    : file_(&file), max_end_(max_end), buffer_(std::min<std::uint64_t>(kBufferBytes, file.size_bytes())) {}

void ByteReader::copy_across(std::span<std::byte> out) {
  const std::size_t buffered = filled_ - used_;
  if (buffered > 0) std::memcpy(out.data(), buffer_.data() + used_, buffered);
  out = out.subspan(buffered);
  position_ += buffered;
  used_ = filled_ = 0;
  if (out.size() >= buffer_.size()) {  // large arrays are read in place
    file_->read_at(position_, out);
    position_ += out.size();
    return;
  }
  filled_ = std::min<std::uint64_t>(buffer_.size(), bytes_left());
  file_->read_at(position_, std::span(buffer_).first(filled_));
  std::memcpy(out.data(), buffer_.data(), out.size());
  used_ = out.size();
  position_ += out.size();
}

void ByteReader::refuse(std::uint64_t n_bytes, std::string_view what) const {
  const std::string wants = file_->name() + ": " + std::string(what) + ": needs " + std::to_string(n_bytes) +
                            " bytes at byte " + std::to_string(position_);
  if (n_bytes > max_end_ - position_) {
    throw ModelError(Reason::MODEL_LIMIT, wants + ", metadata may reach to byte " + std::to_string(max_end_));
  }
  throw ModelError(Reason::MODEL_TRUNCATED, wants + ", file has " + std::to_string(file_->size_bytes()));
}

}  // namespace imp

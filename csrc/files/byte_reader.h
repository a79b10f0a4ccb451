// Reads a file's metadata sequentially through a small buffer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/file.h"

namespace imp {

// Never reads beyond the file's end. The file must outlive the reader. Not thread-safe.
class ByteReader {
 public:
  // Metadata must end by byte `max_end` of the file.
  ByteReader(const File& file, std::uint64_t max_end);

  std::uint64_t position() const noexcept { return position_; }
  std::uint64_t bytes_left() const noexcept { return file_->size_bytes() - position_; }

  // Throws MODEL_LIMIT or MODEL_TRUNCATED, with `what`, unless n_bytes more can be read.
  void require(std::uint64_t n_bytes, std::string_view what) const {
    if (n_bytes > max_end_ - position_ || n_bytes > bytes_left()) refuse(n_bytes, what);
  }
  // Little-endian numbers. Errors name `what`.
  template <class T>
    requires std::is_trivially_copyable_v<T>
  T number(std::string_view what) {
    require(sizeof(T), what);
    T value;
    copy(std::as_writable_bytes(std::span(&value, 1)));
    return value;
  }
  void bytes(std::span<std::byte> out, std::string_view what) {
    require(out.size(), what);
    copy(out);
  }

 private:
  void copy(std::span<std::byte> out) {
    if (out.size() <= filled_ - used_) {
      if (!out.empty()) std::memcpy(out.data(), buffer_.data() + used_, out.size());
      used_ += out.size();
      position_ += out.size();
    } else {
      copy_across(out);
    }
  }
  void copy_across(std::span<std::byte> out);
  [[noreturn]] void refuse(std::uint64_t n_bytes, std::string_view what) const;

  const File* file_;
  std::uint64_t max_end_;
  std::uint64_t position_ = 0;  // of the next byte, in the file
  std::vector<std::byte> buffer_;
  std::size_t used_ = 0;
  std::size_t filled_ = 0;
};

}  // namespace imp

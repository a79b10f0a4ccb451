// A file that is written under a temporary name and renamed when it is complete.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace imp {

// Only the owner can read and write it. Until commit() it is `path`.partial, locked: a second process that writes the
// same file is refused. The next writer takes over a file that a crashed process left. Errors are ModelError(MODEL_IO);
// messages name the file without its directory.
class NewFile {
 public:
  // Preallocates n_bytes if the file system can.
  NewFile(std::string path, std::uint64_t n_bytes);
  ~NewFile();  // without commit(): removes the temporary file
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;

  void write_at(std::uint64_t offset, std::span<const std::byte> bytes);
  // Waits until the bytes are on disk, then replaces the old file.
  void commit();

 private:
  [[noreturn]] void fail(const std::string& what) const;

  std::string path_;
  std::string partial_;
  int fd_ = -1;
  bool owns_partial_ = false;
};

}  // namespace imp

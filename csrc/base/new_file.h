// A file that is written beside its place and moved there once it is whole.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace imp {

// Readable and writable by its owner alone. Until commit() there is `path`.partial, locked: a second process that wants
// to write the same file is refused. What a process leaves behind that dies meanwhile, the next writer takes over.
// Errors are ModelError(MODEL_IO); messages name the file without its directory.
class NewFile {
 public:
  // Room for n_bytes is taken at once where the file system can.
  NewFile(std::string path, std::uint64_t n_bytes);
  ~NewFile();  // without commit(): removes what was written
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;

  void write_at(std::uint64_t offset, std::span<const std::byte> bytes);
  // Waits until the bytes are on the disk, then takes the place of the file that was there.
  void commit();

 private:
  [[noreturn]] void fail(const std::string& what) const;

  std::string path_;
  std::string partial_;
  int fd_ = -1;
  bool owns_partial_ = false;
};

}  // namespace imp

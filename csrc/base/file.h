// A regular file that is opened once and read at given offsets. It is never mapped, and an error is raised once it
// changes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>

namespace imp {

// Replaces pread(2), with the same contract, in tests that need failing reads.
using PreadFunction = std::function<std::int64_t(int fd, void* out, std::size_t n_bytes, std::uint64_t offset)>;

enum class Links : std::uint8_t { FOLLOW, REFUSE };

// A version of a file, as far as the file system can distinguish versions.
struct FileStamp {
  std::uint64_t size_bytes = 0;
  std::int64_t modified_s = 0;
  std::int64_t modified_ns = 0;
  // Changes with any metadata, such as the name or the mode. Unlike the time of modification, nobody can set it back.
  std::int64_t changed_s = 0;
  std::int64_t changed_ns = 0;
  std::uint64_t inode = 0;
};

// Errors are ModelError with MODEL_MISSING (no such regular file), MODEL_PERMISSION or MODEL_IO, and
// ResourceExhausted where the system lacks descriptors or memory. Messages name the file without its directory.
// Reading is safe from any thread.
class File {
 public:
  // An empty `pread` means the system's. `links` decides whether `path` may be a symbolic link.
  explicit File(const std::string& path, PreadFunction pread = {}, Links links = Links::FOLLOW);

  const std::string& name() const noexcept { return name_; }
  std::uint64_t size_bytes() const noexcept { return stamp_.size_bytes; }
  const FileStamp& stamp() const noexcept { return stamp_; }  // when it was opened
  // Whether this user or root owns the file, and others cannot write it.
  bool is_trusted() const;

  // Fills `out` from byte `offset` on. The caller stays within size_bytes(); an earlier end of file is MODEL_IO.
  void read_at(std::uint64_t offset, std::span<std::byte> out) const;
  // Throws MODEL_IO if size or time of modification have changed since the opening. After a successful check, all
  // earlier reads belong to one version of the file, within the resolution of the file system's clock.
  void check_unchanged() const;

 private:
  class Descriptor {
   public:
    explicit Descriptor(int fd) noexcept : fd_(fd) {}
    ~Descriptor();
    Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
    Descriptor& operator=(Descriptor&&) = delete;
    int get() const noexcept { return fd_; }

   private:
    int fd_;
  };

  std::string name_;
  PreadFunction pread_;
  Descriptor descriptor_;
  FileStamp stamp_;
};

// The last component of a path.
std::string file_name(const std::string& path);

}  // namespace imp

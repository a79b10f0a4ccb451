// A regular file opened once for reading at given places: never mapped, and refused once it changes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>

namespace imp {

// Stands in for pread(2), with its contract, where a test wants reads to fail.
using PreadFunction = std::function<std::int64_t(int fd, void* out, std::size_t n_bytes, std::uint64_t offset)>;

enum class Links : std::uint8_t { FOLLOW, REFUSE };

// A version of a file, as far as the file system tells versions apart.
struct FileStamp {
  std::uint64_t size_bytes = 0;
  std::int64_t modified_s = 0;
  std::int64_t modified_ns = 0;
  // Of whatever is known of it, its name or its mode too. Unlike the above nobody can set it to what it was.
  std::int64_t changed_s = 0;
  std::int64_t changed_ns = 0;
  std::uint64_t inode = 0;
};

// Errors are ModelError with MODEL_MISSING (no such regular file), MODEL_PERMISSION or MODEL_IO, and
// ResourceExhausted where the system lacks descriptors or memory. Messages name the file without its directory.
// Reading is safe from any thread.
class File {
 public:
  // An empty `pread` is the system's. Links says what happens where `path` itself is a symbolic link.
  explicit File(const std::string& path, PreadFunction pread = {}, Links links = Links::FOLLOW);

  const std::string& name() const noexcept { return name_; }
  std::uint64_t size_bytes() const noexcept { return stamp_.size_bytes; }
  const FileStamp& stamp() const noexcept { return stamp_; }  // of its opening
  // Whether it is this user's or the system's, and not everybody may write it.
  bool is_only_ours() const;

  // Fills `out` from byte `offset` on. The caller keeps within size_bytes(); an end before that is MODEL_IO.
  void read_at(std::uint64_t offset, std::span<std::byte> out) const;
  // Throws MODEL_IO where size or time of modification are no longer those of the opening. What was read before a
  // successful check is of one version of the file, as far as the file system's clock can tell versions apart.
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

// Locks the temporary file, flushes it to disk and renames it.
#include "base/new_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/printable.h"

namespace imp {
namespace {

// Whether `path` still names the open file: another process may have renamed it in the meantime.
bool is_named(const std::string& path, int fd) {
  struct stat open{}, named{};
  return fstat(fd, &open) == 0 && lstat(path.c_str(), &named) == 0 && S_ISREG(open.st_mode) &&
         open.st_ino == named.st_ino && open.st_dev == named.st_dev;
}

// Best effort: if a crash undoes the rename, the complete old file remains.
void flush_directory_of(const std::string& path) {
  const std::size_t slash = path.find_last_of('/');
  const std::string directory = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  const int fd = ::open(directory.c_str(), O_RDONLY | O_CLOEXEC | O_DIRECTORY);
  if (fd < 0) return;
  fsync(fd);
  ::close(fd);
}

}  // namespace

NewFile::NewFile(std::string path, std::uint64_t n_bytes) : path_(std::move(path)), partial_(path_ + ".partial") {
  fd_ = ::open(partial_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, S_IRUSR | S_IWUSR);
  if (fd_ < 0) fail("creating it");
  try {
    if (flock(fd_, LOCK_EX | LOCK_NB) != 0) fail("locking it (another process writes it)");
    if (!is_named(partial_, fd_)) {
      errno = EEXIST;
      fail("creating it (another process has just written it)");
    }
    owns_partial_ = true;
    if (fchmod(fd_, S_IRUSR | S_IWUSR) != 0 || ftruncate(fd_, 0) != 0) fail("emptying it");
#if defined(__linux__)
    const bool has_room = fallocate(fd_, 0, 0, static_cast<off_t>(n_bytes)) == 0;
    if (!has_room && errno != EOPNOTSUPP && errno != ENOSYS) fail("taking " + std::to_string(n_bytes) + " bytes");
#endif
  } catch (...) {
    if (owns_partial_) unlink(partial_.c_str());
    ::close(fd_);
    throw;
  }
}

NewFile::~NewFile() {
  if (owns_partial_) unlink(partial_.c_str());
  ::close(fd_);
}

void NewFile::fail(const std::string& what) const {
  const std::string why = std::generic_category().message(errno);
  throw ModelError(Reason::MODEL_IO, printable(file_name(path_), 255) + ": " + what + ": " + why);
}

void NewFile::write_at(std::uint64_t offset, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t done = pwrite(fd_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) fail("writing at byte " + std::to_string(offset));
    bytes = bytes.subspan(static_cast<std::size_t>(done));
    offset += static_cast<std::uint64_t>(done);
  }
}

void NewFile::commit() {
  if (fsync(fd_) != 0) fail("writing it to the disk");
  if (std::rename(partial_.c_str(), path_.c_str()) != 0) fail("moving it to its place");
  owns_partial_ = false;
  flush_directory_of(path_);
}

}  // namespace imp

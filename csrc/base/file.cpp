// Opens files with checks and reads with retries.
#include "base/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "base/error.h"
#include "base/printable.h"

namespace imp {
namespace {

std::string describe(int error) {
  return std::generic_category().message(error);
}

[[noreturn]] void refuse_open(const std::string& name, int error) {
  const std::string message = name + ": " + describe(error) + ", expected a readable file";
  switch (error) {
    case EACCES:
    case EPERM:
      throw ModelError(Reason::MODEL_PERMISSION, message);
    case ENOENT:
    case ENOTDIR:
    case ELOOP:
    case ENAMETOOLONG:
    case ENXIO:
    case ENODEV:
      throw ModelError(Reason::MODEL_MISSING, message);
    case EMFILE:
    case ENFILE:
    case ENOMEM:
      throw ResourceExhausted(Reason::NO_MEMORY, message);
    default:
      throw ModelError(Reason::MODEL_IO, message);
  }
}

const char* kind_of(mode_t mode) {
  if (S_ISDIR(mode)) return "a directory";
  if (S_ISFIFO(mode)) return "a pipe";
  if (S_ISSOCK(mode)) return "a socket";
  return "a device";
}

int open_descriptor(const std::string& path, const std::string& name, Links links) {
  if (path.find('\0') != std::string::npos) refuse_open(name, ENOENT);
  // O_NONBLOCK, since opening a pipe without a writer would wait. It has no effect on regular files.
  const int flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY | (links == Links::REFUSE ? O_NOFOLLOW : 0);
  for (;;) {
    const int fd = ::open(path.c_str(), flags);
    if (fd >= 0) return fd;
    if (errno != EINTR) refuse_open(name, errno);
  }
}

struct stat status_of(int fd, const std::string& name) {
  struct stat status{};
  if (fstat(fd, &status) != 0) throw ModelError(Reason::MODEL_IO, name + ": " + describe(errno));
  return status;
}

FileStamp stamp_of(int fd, const std::string& name) {
  const struct stat status = status_of(fd, name);
  return {.size_bytes = static_cast<std::uint64_t>(status.st_size),
          .modified_s = status.st_mtim.tv_sec,
          .modified_ns = status.st_mtim.tv_nsec,
          .changed_s = status.st_ctim.tv_sec,
          .changed_ns = status.st_ctim.tv_nsec,
          .inode = status.st_ino};
}

// The most that one system call reads; the system's limit is just under 2 GiB.
constexpr std::size_t kMaxReadBytes = std::size_t{1} << 30;

}  // namespace

std::string file_name(const std::string& path) {
  const std::size_t end = path.find_last_not_of('/') + 1;  // 0 if there are only slashes
  const std::size_t begin = path.substr(0, end).find_last_of('/') + 1;
  return end == 0 ? path : path.substr(begin, end - begin);
}

File::Descriptor::~Descriptor() {
  if (fd_ >= 0) ::close(fd_);
}

File::File(const std::string& path, PreadFunction pread, Links links)
    : name_(printable(file_name(path), 255)),
      pread_(std::move(pread)),
      descriptor_(open_descriptor(path, name_, links)) {
  const mode_t mode = status_of(descriptor_.get(), name_).st_mode;
  if (!S_ISREG(mode)) {
    throw ModelError(Reason::MODEL_MISSING, name_ + ": is " + kind_of(mode) + ", expected a regular file");
  }
  stamp_ = stamp_of(descriptor_.get(), name_);
}

bool File::is_trusted() const {
  const struct stat status = status_of(descriptor_.get(), name_);
  // The group may have write permission: the owner gave it, or Kubernetes did for a volume's fsGroup.
  return (status.st_uid == geteuid() || status.st_uid == 0) && (status.st_mode & S_IWOTH) == 0;
}

void File::read_at(std::uint64_t offset, std::span<std::byte> out) const {
  while (!out.empty()) {
    const std::size_t wanted = std::min(out.size(), kMaxReadBytes);
    const std::int64_t got = pread_ ? pread_(descriptor_.get(), out.data(), wanted, offset)
                                    : ::pread(descriptor_.get(), out.data(), wanted, static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      throw ModelError(Reason::MODEL_IO,
                       name_ + ": reading at byte " + std::to_string(offset) + ": " + describe(errno));
    }
    if (got == 0) {
      throw ModelError(Reason::MODEL_IO, name_ + ": ends at byte " + std::to_string(offset) + " now, had " +
                                             std::to_string(size_bytes()) + " when it was opened");
    }
    out = out.subspan(static_cast<std::size_t>(got));
    offset += static_cast<std::uint64_t>(got);
  }
}

void File::check_unchanged() const {
  const FileStamp now = stamp_of(descriptor_.get(), name_);
  if (now.size_bytes == stamp_.size_bytes && now.modified_s == stamp_.modified_s &&
      now.modified_ns == stamp_.modified_ns) {
    return;
  }
  throw ModelError(Reason::MODEL_IO, name_ + ": changed while it was read");
}

}  // namespace imp

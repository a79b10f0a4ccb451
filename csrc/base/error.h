// The errors of the core. Each has a reason from the API's error table and says what was found and what was expected.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace imp {

// The reasons. The service maps each to a gRPC status, the command line to an exit code.
enum class Reason : std::uint8_t {
  // the caller's request
  FIELD_INVALID,
  CONTEXT_TOO_LONG,
  POSITION_BEYOND_END,
  POSITION_MISMATCH,
  SESSION_NOT_FOUND,
  SESSION_EXPIRED,
  SESSION_BUSY,
  NO_PENDING_TOKEN,
  NO_CANDIDATE,
  FEATURE_DISABLED,
  CANCELLED,
  // the engine's resources
  QUEUE_FULL,
  KV_FULL,
  NO_MEMORY,
  SESSIONS_FULL,
  TENANT_LIMIT,
  // the checkpoint
  MODEL_MISSING,
  MODEL_PERMISSION,
  MODEL_IO,
  MODEL_FORMAT,
  MODEL_VERSION,
  MODEL_TRUNCATED,
  MODEL_LIMIT,
  MODEL_TYPE,
  MODEL_VALUE,
  MODEL_KEY,
  MODEL_TENSOR,
  MODEL_STRING,
  MODEL_DUPLICATE,
  MODEL_SHAPE,
  MODEL_OFFSET,
  MODEL_HEADER,
  MODEL_CONFIG,
  MODEL_SHARD,
  MODEL_NONFINITE,
  MODEL_UNSUPPORTED,
  OVERRIDE_INVALID,
  // the machine and internal errors
  DEVICE_MISSING,
  DEVICE_FAULT,
  NON_FINITE,
  DRAINING,
  BUG,
};

std::string_view reason_name(Reason reason) noexcept;

// Values of a reason, such as {"needed", "12"}; see the API's error table.
using ErrorDetails = std::vector<std::pair<std::string, std::string>>;

class Error : public std::runtime_error {
 public:
  Error(Reason reason, const std::string& message, ErrorDetails details = {})
      : std::runtime_error(message), reason_(reason), details_(std::move(details)) {}
  Reason reason() const noexcept { return reason_; }
  const ErrorDetails& details() const noexcept { return details_; }

 private:
  Reason reason_;
  ErrorDetails details_;
};

// The request is invalid; nothing has changed.
class InvalidArgument : public Error {
 public:
  using Error::Error;
};
// The request is well formed, but the sequence is in the wrong state; nothing has changed.
class StateError : public Error {
 public:
  using Error::Error;
};
// The checkpoint cannot be used.
class ModelError : public Error {
 public:
  using Error::Error;
};
// KV blocks, memory or queue places are lacking; the same call may succeed later.
class ResourceExhausted : public Error {
 public:
  using Error::Error;
};
// The hardware is absent or failed.
class DeviceError : public Error {
 public:
  using Error::Error;
};
// A bug of imp.
class InternalError : public Error {
 public:
  using Error::Error;
};

[[noreturn]] void fail_check(const char* condition, const char* file, int line);

}  // namespace imp

// Checks an invariant. A failure is a bug of imp, never the caller's.
#define IMP_CHECK(condition) \
  ((condition) ? static_cast<void>(0) : ::imp::fail_check(#condition, __FILE_NAME__, __LINE__))

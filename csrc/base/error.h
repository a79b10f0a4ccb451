// The errors of the core. Each has a reason from the API's error table and says what was found and what was expected.
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace imp {

// The one table of error reasons, each with its class of errors. The enum, Python's classes and the service's handling
// of events come from it. The service maps each reason to one gRPC status, the command line to one exit code.
#define IMP_REASONS(X)                      \
  /* the caller's request */                \
  X(FIELD_INVALID, InvalidArgument)         \
  X(CONTEXT_TOO_LONG, InvalidArgument)      \
  X(POSITION_BEYOND_END, InvalidArgument)   \
  X(POSITION_INSIDE_MEDIA, InvalidArgument) \
  X(POSITION_MISMATCH, StateError)          \
  X(SESSION_NOT_FOUND, StateError)          \
  X(SESSION_EXPIRED, StateError)            \
  X(SESSION_BUSY, StateError)               \
  X(NO_PENDING_TOKEN, StateError)           \
  X(NO_CANDIDATE, StateError)               \
  X(FEATURE_DISABLED, StateError)           \
  X(CANCELLED, StateError)                  \
  /* the engine's resources */              \
  X(QUEUE_FULL, ResourceExhausted)          \
  X(KV_FULL, ResourceExhausted)             \
  X(NO_MEMORY, ResourceExhausted)           \
  X(SESSIONS_FULL, ResourceExhausted)       \
  X(TENANT_LIMIT, ResourceExhausted)        \
  /* the checkpoint */                      \
  X(MODEL_MISSING, ModelError)              \
  X(MODEL_PERMISSION, ModelError)           \
  X(MODEL_IO, ModelError)                   \
  X(MODEL_FORMAT, ModelError)               \
  X(MODEL_VERSION, ModelError)              \
  X(MODEL_TRUNCATED, ModelError)            \
  X(MODEL_LIMIT, ModelError)                \
  X(MODEL_TYPE, ModelError)                 \
  X(MODEL_VALUE, ModelError)                \
  X(MODEL_KEY, ModelError)                  \
  X(MODEL_TENSOR, ModelError)               \
  X(MODEL_STRING, ModelError)               \
  X(MODEL_DUPLICATE, ModelError)            \
  X(MODEL_SHAPE, ModelError)                \
  X(MODEL_OFFSET, ModelError)               \
  X(MODEL_HEADER, ModelError)               \
  X(MODEL_CONFIG, ModelError)               \
  X(MODEL_SHARD, ModelError)                \
  X(MODEL_NONFINITE, ModelError)            \
  X(MODEL_UNSUPPORTED, ModelError)          \
  X(OVERRIDE_INVALID, ModelError)           \
  /* the machine and internal errors */     \
  X(DEVICE_MISSING, DeviceError)            \
  X(DEVICE_FAULT, DeviceError)              \
  X(NON_FINITE, InternalError)              \
  X(DRAINING, StateError)                   \
  X(BUG, InternalError)

#define IMP_REASON(name, kind) name,
enum class Reason : std::uint8_t { IMP_REASONS(IMP_REASON) };
#undef IMP_REASON

struct ReasonRow {
  std::string_view name;
  std::string_view kind;  // the name of the class, here and in Python
};

#define IMP_REASON(name, kind) {#name, #kind},
inline constexpr ReasonRow kReasons[] = {IMP_REASONS(IMP_REASON)};
#undef IMP_REASON

constexpr const ReasonRow& row_of(Reason reason) noexcept {
  return kReasons[static_cast<std::size_t>(reason)];
}

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
// A field of a request, an option or an argument is invalid. `field` is its path in the caller's words. The message
// begins with it, and the details contain it.
class FieldInvalid : public InvalidArgument {
 public:
  FieldInvalid(const std::string& field, const std::string& problem)
      : InvalidArgument(Reason::FIELD_INVALID, field + ": " + problem, {{"field", field}}) {}
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
// Not enough KV blocks, memory or queue places; the same call may succeed later.
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

// A failure as the client sees it. If there is no memory for its message, only its reason is reported.
#pragma once

#include <exception>
#include <new>
#include <string>

#include "base/error.h"

namespace imp {

struct Failure {
  Reason reason = Reason::BUG;
  std::string message;
  ErrorDetails details;
};

// Short enough for the string's inline buffer.
constexpr const char* kOutOfMemory = "out of memory";

// The failure of the error that `make` returns, or of `lacking` if there is no memory to make it.
template <class Make>
Failure failure_of(Reason lacking, const Make& make) noexcept {
  try {
    const Error& error = make();
    return {error.reason(), error.what(), error.details()};
  } catch (const std::bad_alloc&) {
    return {lacking, kOutOfMemory, {}};
  }
}

// The failure of any exception, with the reason from the table of errors.
Failure failure_of(const std::exception_ptr& thrown) noexcept;

}  // namespace imp

// A failure as it is told. Where there is no memory for its words, its reason is told alone.
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

// So short that a string holds it within itself.
constexpr const char* kNoWords = "out of memory";

// Of the error that `make` returns; of `lacking` where there is no memory to make it.
template <class Make>
Failure failure_of(Reason lacking, const Make& make) noexcept {
  try {
    const Error& error = make();
    return {error.reason(), error.what(), error.details()};
  } catch (const std::bad_alloc&) {
    return {lacking, kNoWords, {}};
  }
}

// Whatever was thrown, in the words of the error table.
Failure failure_of(const std::exception_ptr& thrown) noexcept;

}  // namespace imp

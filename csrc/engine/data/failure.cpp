// Turns exceptions into failures.
#include "engine/data/failure.h"

namespace imp {

Failure failure_of(const std::exception_ptr& thrown) noexcept {
  return failure_of(Reason::NO_MEMORY, [&thrown]() -> Error {
    try {
      std::rethrow_exception(thrown);
    } catch (const Error& error) {
      return error;
    } catch (const std::bad_alloc&) {
      return {Reason::NO_MEMORY, "an allocation failed; nothing has changed"};
    } catch (const std::exception& error) {
      return {Reason::BUG, error.what()};
    } catch (...) {
      return {Reason::BUG, "an exception of an unknown type"};
    }
  });
}

}  // namespace imp

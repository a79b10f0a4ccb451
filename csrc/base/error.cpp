// The abort on a broken invariant.
#include "base/error.h"

namespace imp {

void fail_check(const char* condition, const char* file, int line) {
  throw InternalError(Reason::BUG, std::string(file) + ":" + std::to_string(line) + ": " + condition);
}

}  // namespace imp

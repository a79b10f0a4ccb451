// The order of a real device's threads cannot be set.
#include "native/gpu/thread_order.h"

namespace imp::cuda {

void set_thread_order(Stream&, unsigned) {}

}  // namespace imp::cuda

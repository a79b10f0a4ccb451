// The order in which an emulated device runs the threads of a block, as tests set it.
#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/make_emulated_backend.h"

namespace imp::cuda {

void set_thread_order(Backend& backend, unsigned seed) {
  static_cast<CudaBackend&>(backend).stream().thread_order = seed;
}

}  // namespace imp::cuda

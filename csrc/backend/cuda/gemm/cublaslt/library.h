// Opens cuBLASLt where it is.
#pragma once

#include <span>
#include <string>

#include "backend/cuda/gemm/cublaslt/api.h"

namespace imp::cuda {

// Tries these in order; names without '/' are first looked for among what the process has loaded, then, in their turn,
// where the loader looks. Returns why none of them could be used; empty: `api` is one's. It stays loaded: its own
// threads, and other users in the process, may need it.
std::string open_cublaslt(std::span<const std::string> paths, cublaslt::Api& api);

}  // namespace imp::cuda

// Opens cuBLASLt.
#pragma once

#include <span>
#include <string>

#include "backend/cuda/gemm/cublaslt/api.h"

namespace imp::cuda {

// Tries these in order. For a name without '/' it first looks among the libraries that the process has loaded, then in
// the loader's paths. Returns why none can be used; if empty, `api` is filled. The library stays loaded: its threads,
// and other users in the process, may need it.
std::string open_cublaslt(std::span<const std::string> paths, cublaslt::Api& api);

}  // namespace imp::cuda

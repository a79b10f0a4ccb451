// Finds the library's functions by name.
#include "backend/cuda/gemm/cublaslt/library.h"

#include <dlfcn.h>

namespace imp::cuda {
namespace {

// The first missing function; null: none is missing.
class Binding {
 public:
  explicit Binding(void* library) : library_(library) {}

  template <class Function>
  void bind(const char* name, Function*& function) {
    function = reinterpret_cast<Function*>(dlsym(library_, name));
    if (function == nullptr && missing_ == nullptr) missing_ = name;
  }
  const char* missing() const { return missing_; }

 private:
  void* library_;
  const char* missing_ = nullptr;
};

const char* bind_all(void* library, cublaslt::Api& api) {
  Binding binding(library);
  binding.bind("cublasLtCreate", api.create);
  binding.bind("cublasLtDestroy", api.destroy);
  binding.bind("cublasLtGetStatusName", api.name_of);
  binding.bind("cublasLtMatmulDescCreate", api.make_product);
  binding.bind("cublasLtMatmulDescDestroy", api.free_product);
  binding.bind("cublasLtMatmulDescSetAttribute", api.set_product);
  binding.bind("cublasLtMatrixLayoutCreate", api.make_layout);
  binding.bind("cublasLtMatrixLayoutDestroy", api.free_layout);
  binding.bind("cublasLtMatrixLayoutSetAttribute", api.set_layout);
  binding.bind("cublasLtMatmulPreferenceCreate", api.make_preference);
  binding.bind("cublasLtMatmulPreferenceDestroy", api.free_preference);
  binding.bind("cublasLtMatmulPreferenceSetAttribute", api.set_preference);
  binding.bind("cublasLtMatmulAlgoGetHeuristic", api.find_algorithms);
  binding.bind("cublasLtMatmulAlgoCheck", api.check_algorithm);
  binding.bind("cublasLtMatmulAlgoConfigGetAttribute", api.get_algorithm);
  binding.bind("cublasLtMatmul", api.multiply);
  return binding.missing();
}

std::string why_not_opened() {
  const char* const error = dlerror();
  return error != nullptr ? error : "it cannot be opened";
}

}  // namespace

std::string open_cublaslt(std::span<const std::string> paths, cublaslt::Api& api) {
  if (paths.empty()) return "device.cublaslt is off";
  for (const std::string& path : paths) {
    if (path.find('/') != std::string::npos) continue;
    void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
    if (library != nullptr && bind_all(library, api) == nullptr) return "";
  }
  std::string reasons;
  for (const std::string& path : paths) {
    void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    const char* const missing = library != nullptr ? bind_all(library, api) : nullptr;
    if (library != nullptr && missing == nullptr) return "";
    if (!reasons.empty()) reasons += "; ";
    reasons += missing != nullptr ? path + " has no " + missing : why_not_opened();
  }
  return reasons;
}

}  // namespace imp::cuda

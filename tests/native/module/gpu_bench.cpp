// `_testing`: measures single kernels of a GPU.
#include "native/gpu/gpu_bench.h"

#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <stdexcept>

#include "backend/make_backend.h"
#include "native/module/ops.h"

namespace py = pybind11;

namespace imp::bindings {
namespace {

using Bytes = py::array_t<std::uint8_t, py::array::c_style>;
using Floats = py::array_t<float, py::array::c_style | py::array::forcecast>;

// The functions for the real or for the emulated GPU.
struct World {
  decltype(&cuda_emulated::multiply) multiply;
  decltype(&cuda_emulated::bench_products) bench_products;
  decltype(&cuda_emulated::bench_attention) bench_attention;
};

World world_of(const std::string& kind) {
  if (kind == "cuda_emulated") {
    return {&cuda_emulated::multiply, &cuda_emulated::bench_products, &cuda_emulated::bench_attention};
  }
#if IMP_CUDA
  if (kind == "cuda") return {&cuda::multiply, &cuda::bench_products, &cuda::bench_attention};
#endif
  throw std::invalid_argument("no GPU kernels of kind " + kind + " in this build");
}

ProductBench product_of(const std::string& weight, std::int64_t n, const Bytes& rows, const Floats& x) {
  if (x.ndim() != 2 || x.shape(0) == 0) throw std::invalid_argument("x is not [some rows, k]");
  const std::int64_t k = x.shape(1);
  const auto dtype = dtype_from_name(weight);
  const auto row = dtype ? row_bytes(*dtype, k) : std::nullopt;
  if (!row || rows.size() == 0 || rows.size() % *row != 0) throw std::invalid_argument("not rows of " + weight);
  return {.problem = {*dtype, n, k},
          .rows = {reinterpret_cast<const std::byte*>(rows.data()), static_cast<std::size_t>(rows.size())},
          .x = {x.data(), static_cast<std::size_t>(x.size())},
          .cases = {}};
}

Floats multiply(const std::string& kind, const std::string& kernel, const std::string& weight, std::int64_t n,
                const Bytes& rows, const Floats& x, const std::vector<std::string>& cublaslt) {
  ProductBench product = product_of(weight, n, rows, x);
  product.cublaslt = cublaslt;
  product.cases = {{kernel, static_cast<int>(x.shape(0))}};
  std::vector<float> found;
  {
    const py::gil_scoped_release release;
    found = world_of(kind).multiply(product);
  }
  Floats out({x.shape(0), static_cast<py::ssize_t>(n)});
  std::ranges::copy(found, out.mutable_data());
  return out;
}

std::vector<Seconds> bench_products(const std::string& kind, const std::string& weight, std::int64_t n,
                                    const Bytes& rows, const Floats& x,
                                    const std::vector<std::pair<std::string, int>>& cases, std::size_t walk_bytes,
                                    double seconds, int threads, const std::vector<std::string>& cublaslt) {
  ProductBench bench = product_of(weight, n, rows, x);
  bench.cublaslt = cublaslt;
  bench.cases = cases;
  bench.walk_bytes = walk_bytes;
  bench.seconds = seconds;
  bench.n_threads = threads;
  const py::gil_scoped_release release;
  return world_of(kind).bench_products(bench);
}

Seconds bench_attention(const std::string& kind, int n_heads, int n_kv_heads, int head_dim, int sequences, int rows,
                        int tokens, int layers, double seconds) {
  const AttentionBench bench = {.params = {.n_heads = n_heads,
                                           .n_kv_heads = n_kv_heads,
                                           .head_dim = head_dim,
                                           .scale = 1.0F / static_cast<float>(head_dim)},
                                .n_sequences = sequences,
                                .n_rows = rows,
                                .n_tokens = tokens,
                                .n_layers = layers,
                                .seconds = seconds};
  const py::gil_scoped_release release;
  return world_of(kind).bench_attention(bench);
}

// For each kernel: the most rows that it takes (None: any number), and why this device cannot run it (None: it can).
py::dict kernels_here(const std::string& kind, const std::vector<std::string>& cublaslt) {
  const auto backend = make_backend(
      {.kind = kind, .isa = "auto", .n_threads = 1, .cpus = {}, .memory = {}, .tuning = {}, .cublaslt = cublaslt});
  py::dict found;
  for (const GemmKernel& kernel : backend->registry().kernels()) {
    const std::string refused = refusal(kernel, {kernel.weight, kPanelRows, kTileDepth}, backend->caps());
    const py::object rows = kernel.max_m == kAnyRows ? py::object(py::none()) : py::int_(kernel.max_m);
    const py::object reason = refused.empty() ? py::object(py::none()) : py::str(refused);
    found[py::str(std::string(kernel.name))] = py::make_tuple(rows, reason);
  }
  return found;
}

}  // namespace

void register_testing_gpu_bench(py::module_& module) {
  module.def(
      "gpu_kernels_here", &kernels_here, py::arg("kind"), py::arg("cublaslt") = std::vector<std::string>{},
      "For each kernel, by name: the most rows that it takes (None: any number), and why it cannot run on this device "
      "(None: it can).");
  module.def("multiply_on_gpu", &multiply, py::arg("kind"), py::arg("kernel"), py::arg("weight"), py::arg("n"),
             py::kw_only(), py::arg("rows"), py::arg("x"), py::arg("cublaslt") = std::vector<std::string>{},
             "x · weight^T by one kernel. `rows` are the weight's in the file's format, repeated until there are n.");
  module.def("bench_gpu_products", &bench_products, py::arg("kind"), py::arg("weight"), py::arg("n"), py::kw_only(),
             py::arg("rows"), py::arg("x"), py::arg("cases"), py::arg("walk_bytes"), py::arg("seconds"),
             py::arg("threads") = 1, py::arg("cublaslt") = std::vector<std::string>{},
             "Seconds of one product, several times, for each case: a kernel and a number of rows. `rows` are the "
             "weight's in the file's format, repeated until there are n; `x` is repeated likewise.");
  module.def("bench_gpu_attention", &bench_attention, py::arg("kind"), py::kw_only(), py::arg("n_heads"),
             py::arg("n_kv_heads"), py::arg("head_dim"), py::arg("sequences"), py::arg("rows"), py::arg("tokens"),
             py::arg("layers"), py::arg("seconds"),
             "Seconds of one layer's attention, several times: the last `rows` of sequences of so many tokens.");
}

}  // namespace imp::bindings

// `_testing`: the tiles of the CUDA backend's weights, and its matrix kernels run on arrays.
#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <cstring>
#include <optional>

#include "native/gpu/gemm_trials.h"
#include "native/module/gemm.h"

namespace py = pybind11;

namespace imp::bindings {
namespace {

using Bytes = py::array_t<std::uint8_t, py::array::c_style>;
using Floats = py::array_t<float, py::array::c_style>;
using Ints = py::array_t<std::int32_t, py::array::c_style>;

DType dtype_of(const std::string& name) {
  const auto dtype = dtype_from_name(name);
  if (!dtype) throw py::value_error("no dtype " + name);
  return *dtype;
}

std::span<const std::byte> bytes_of(const Bytes& bytes) {
  return {reinterpret_cast<const std::byte*>(bytes.data()), static_cast<std::size_t>(bytes.size())};
}

Bytes to_array(const std::vector<std::byte>& bytes) {
  Bytes out(static_cast<py::ssize_t>(bytes.size()));
  std::memcpy(out.mutable_data(), bytes.data(), bytes.size());
  return out;
}

// The rows of a weight, or a list with the rows of each expert. None: another kernel multiplies it.
struct Term {
  std::vector<std::optional<Bytes>> weights;
  std::int64_t n;
  std::optional<Floats> bias;
};

Term term_of(const py::tuple& given) {
  Term term{{}, given[1].cast<std::int64_t>(), given[2].cast<std::optional<Floats>>()};
  if (py::isinstance<py::list>(given[0])) {
    term.weights = given[0].cast<std::vector<std::optional<Bytes>>>();
  } else {
    term.weights.push_back(given[0].cast<Bytes>());
  }
  return term;
}

GemmTrialTerm trial_of(const Term& term) {
  GemmTrialTerm trial;
  trial.n = term.n;
  for (const auto& weight : term.weights) {
    trial.weights.push_back(weight ? bytes_of(*weight) : std::span<const std::byte>{});
  }
  if (term.bias) trial.bias = {term.bias->data(), static_cast<std::size_t>(term.bias->size())};
  return trial;
}

GemmFusion fusion_of(const std::string& name) {
  if (name == "none") return GemmFusion::none;
  if (name == "silu") return GemmFusion::silu;
  if (name == "gelu_tanh") return GemmFusion::gelu_tanh;
  throw py::value_error("no fusion " + name);
}

std::vector<std::vector<float>> run_on(const std::string& device, const GemmTrial& trial) {
  const py::gil_scoped_release release;
  if (device == "cuda_emulated") return cuda_emulated::run_gemm(trial);
#if IMP_CUDA
  if (device == "cuda") return cuda::run_gemm(trial);
#endif
  throw py::value_error("no device " + device);
}

std::vector<Floats> run_gemm(const std::string& device, const std::string& kernel, const std::string& weight,
                             const std::vector<py::tuple>& terms, std::int64_t k, const Bytes& x, int m,
                             const std::string& fusion, const std::optional<Ints>& begins,
                             const std::optional<Ints>& sources, unsigned thread_order, std::uint8_t fill,
                             const std::vector<std::string>& cublaslt, int n_processors) {
  std::vector<Term> given;
  for (const py::tuple& term : terms) given.push_back(term_of(term));
  GemmTrial trial;
  trial.kernel = kernel;
  trial.weight = dtype_of(weight);
  trial.k = k;
  trial.m = m;
  for (const Term& term : given) trial.terms.push_back(trial_of(term));
  trial.fusion = fusion_of(fusion);
  trial.x = bytes_of(x);
  trial.x_stride = x.shape(1);
  if (begins) {
    trial.n_experts = static_cast<int>(begins->size()) - 1;
    trial.begins = {begins->data(), static_cast<std::size_t>(begins->size())};
  }
  if (sources) trial.sources = {sources->data(), static_cast<std::size_t>(sources->size())};
  trial.thread_order = thread_order;
  trial.fill = fill;
  trial.cublaslt = cublaslt;
  trial.n_processors = n_processors;
  std::vector<Floats> results;
  for (const std::vector<float>& values : run_on(device, trial)) {
    Floats out({static_cast<std::int64_t>(m), trial.terms[results.size()].n});
    std::memcpy(out.mutable_data(), values.data(), values.size() * sizeof(float));
    results.push_back(out);
  }
  return results;
}

ActivationFormat format_of(const std::string& name) {
  for (const ActivationFormat format : {ActivationFormat::q8_rows, ActivationFormat::f16_rows,
                                        ActivationFormat::f16_even_odd, ActivationFormat::bf16_rows}) {
    if (name_of(format) == name) return format;
  }
  throw py::value_error("no format " + name);
}

Bytes run_preparation(const std::string& device, const Floats& x, const std::string& format, unsigned thread_order) {
  const PreparationTrial trial = {.format = format_of(format),
                                  .x = {x.data(), static_cast<std::size_t>(x.size())},
                                  .m = static_cast<int>(x.shape(0)),
                                  .k = static_cast<int>(x.shape(1)),
                                  .thread_order = thread_order};
  if (device == "cuda_emulated") return to_array(cuda_emulated::run_preparation(trial));
#if IMP_CUDA
  if (device == "cuda") return to_array(cuda::run_preparation(trial));
#endif
  throw py::value_error("no device " + device);
}

}  // namespace

void register_testing_cuda_gemm(py::module_& module) {
  module.def(
      "cuda_pack_tiles",
      [](const std::string& weight, std::int64_t n, std::int64_t k, const Bytes& file) {
        return to_array(cuda_emulated::pack_tiles(dtype_of(weight), n, k, bytes_of(file)));
      },
      py::arg("weight"), py::arg("n"), py::arg("k"), py::arg("file"));
  module.def(
      "cuda_unpack_tiles",
      [](const std::string& weight, std::int64_t n, std::int64_t k, const Bytes& tiles) {
        return to_array(cuda_emulated::unpack_tiles(dtype_of(weight), n, k, bytes_of(tiles)));
      },
      py::arg("weight"), py::arg("n"), py::arg("k"), py::arg("tiles"));
  module.def("cuda_prepare_rows", &run_preparation, py::arg("device"), py::arg("x"), py::arg("format"),
             py::arg("thread_order") = 0);
  module.def("cuda_gemm", &run_gemm, py::arg("device"), py::arg("kernel"), py::arg("weight"), py::arg("terms"),
             py::arg("k"), py::arg("x"), py::arg("m"), py::arg("fusion") = "none", py::arg("begins") = std::nullopt,
             py::arg("sources") = std::nullopt, py::arg("thread_order") = 0, py::arg("fill") = 0xFF,
             py::arg("cublaslt") = std::vector<std::string>{}, py::arg("n_processors") = 1,
             "The kernel's products: terms of (the file's bytes or a list of each expert's, n, bias), x of rows in the "
             "kernel's own format.");
}

}  // namespace imp::bindings

// What this machine can run, its kernels, and why a plan chooses one.
#include "bindings/register.h"

#include <pybind11/stl.h>

#include "backend/cpu/cpu_caps.h"
#include "backend/cpu/gemm/processor_tuning.h"
#include "backend/gemm_registry.h"
#include "backend/make_backend.h"
#include "base/cpu_features.h"
#include "base/error.h"
#include "base/memory_policy.h"
#include "bindings/tuning.h"

namespace py = pybind11;

namespace imp::bindings {
namespace {

DType dtype_of(const std::string& name) {
  const auto dtype = dtype_from_name(name);
  if (!dtype) {
    throw FieldInvalid("weight type", name + ", expected one of " + dtype_names());
  }
  return *dtype;
}

py::list kernels(const std::string& device) {
  py::list rows;
  for (const GemmKernel& kernel : kernels_of(device)) {
    py::dict row;
    row["name"] = std::string(kernel.name);
    row["weight"] = kernel.any_weight ? "any" : std::string(traits(kernel.weight).name);
    row["layout"] = std::string(name_of(kernel.layout));
    row["reduction"] = std::string(name_of(kernel.reduction));
    row["validated"] = kernel.validated;
    rows.append(row);
  }
  return rows;
}

GemmProblem problem_of(const std::string& weight, std::int64_t n, std::int64_t k) {
  const GemmProblem problem{dtype_of(weight), n, k};
  const std::int64_t block = traits(problem.weight).block_elements;
  if (n < 1) throw FieldInvalid("n", std::to_string(n) + ", expected at least 1");
  if (k < 1 || k % block != 0) {
    throw FieldInvalid(
        "k", std::to_string(k) + ", expected a multiple of " + std::to_string(block) + ", the block of " + weight);
  }
  return problem;
}

py::list explain(const std::string& weight, std::int64_t n, std::int64_t k, const std::string& device,
                 const std::string& isa, const std::string& gpu, const PythonTuning& tuning, bool deterministic,
                 bool unvalidated, const std::vector<std::string>& cublaslt, const std::string& kernel) {
  std::unique_ptr<Backend> here;  // asked for its capabilities
  if (device != "cpu" && gpu == "auto") {
    DeviceOptions options;
    options.kind = device;
    options.cublaslt = cublaslt;
    here = make_backend(options);
  }
  const DeviceCaps caps = here != nullptr   ? here->caps()
                          : device == "cpu" ? cpu::caps_of(cpu::features_named(isa))
                                            : gpu_caps(gpu);
  std::vector<GemmPreference> preferences = preferences_of(tuning);
  if (device == "cpu") preferences = cpu::with_processor_tuning(std::move(preferences), caps);
  const GemmRegistry registry(kernels_of(device), caps, std::move(preferences));
  std::vector<GemmOverride> overrides;
  if (!kernel.empty()) overrides.push_back({.pattern = weight, .kernel = kernel});
  const PlanPolicy policy = {.one_reduction = deterministic, .unvalidated_kernels = unvalidated};
  py::list rows;
  for (const GemmCandidate& candidate : registry.explain(problem_of(weight, n, k), "", overrides, policy)) {
    rows.append(py::make_tuple(std::string(candidate.kernel), candidate.accepted, candidate.reason));
  }
  return rows;
}

std::vector<std::string> interchangeable(const std::string& weight, std::int64_t n, std::int64_t k,
                                         std::optional<int> max_m, const std::string& isa) {
  const GemmRegistry registry(kernels_of("cpu"), cpu::caps_of(cpu::features_named(isa)));
  const auto names = registry.interchangeable(problem_of(weight, n, k), max_m.value_or(kAnyRows));
  return {names.begin(), names.end()};
}

}  // namespace

std::vector<GemmPreference> preferences_of(const PythonTuning& tuning) {
  std::vector<GemmPreference> preferences;
  for (const auto& [weight, kernel, max_m] : tuning) {
    preferences.push_back({dtype_of(weight), max_m.value_or(kAnyRows), kernel});
  }
  return preferences;
}

void register_backend(py::module_& module) {
  module.def(
      "interleave_refusal", [](const std::vector<int>& nodes) { return interleave_refusal(nodes); }, py::arg("nodes"),
      "Why the system cannot interleave memory over these NUMA nodes. Empty if it can.");
  module.def(
      "known_isas", [] { return std::vector<std::string>(known_isas().begin(), known_isas().end()); },
      "The values of the setting device.isa. They may be joined with +.");
  module.def(
      "isa_name", [](const std::string& isa) { return isa_name(cpu::features_named(isa)); }, py::arg("isa") = "auto",
      "The shortest list of known_isas(), joined with +, for the same instruction sets. For "
      "`auto`: the instruction sets of this machine.");
  module.def(
      "missing_isa",
      [](const std::string& isa) { return missing_features(detect_cpu_features(), cpu::features_named(isa)); },
      py::arg("isa"), "The features of the named instruction sets that this machine lacks. Empty if it has all.");
  module.def(
      "dtypes",
      [] {
        std::vector<std::string> names;
        for (const DTypeTraits& row : all_dtypes()) names.emplace_back(row.name);
        return names;
      },
      "The weight types that imp can read and multiply.");
  module.def(
      "find_gpu",
      [] {
        const FoundGpu gpu = find_gpu();
        return py::make_tuple(gpu.name, gpu.refusal, gpu.has_validated_kernels);
      },
      "The name of the GPU, why imp cannot use it (empty: it can), and whether kernels for it "
      "have run on such hardware.");
  module.def("kernels", &kernels, py::arg("device") = "cpu",
             "The matrix kernels of a device in order of preference, as dicts.");
  module.def("explain", &explain, py::arg("weight"), py::arg("n"), py::arg("k"), py::kw_only(),
             py::arg("device") = "cpu", py::arg("isa") = "auto", py::arg("gpu") = "auto",
             py::arg("tuning") = PythonTuning{}, py::arg("deterministic") = false, py::arg("unvalidated") = false,
             py::arg("cublaslt") = std::vector<std::string>{}, py::arg("kernel") = "",
             "For each kernel that could multiply an n × k weight: its name, whether imp uses it, and "
             "why or why not. With `unvalidated`, also kernels that never ran on their hardware may "
             "be used. `kernel` is the kernel that an override names.");
  module.def("interchangeable", &interchangeable, py::arg("weight"), py::arg("n"), py::arg("k"), py::kw_only(),
             py::arg("max_m") = py::none(), py::arg("isa") = "auto",
             "The kernels that have the layout of the untuned plan and give equal bits, for up to "
             "max_m rows or any number.");
  module.def("processor_name", &processor_name, "The marketing name of the CPU.");
}

}  // namespace imp::bindings

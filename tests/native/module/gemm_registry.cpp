// `_testing`: plans and explanations, for the CPU's kernel list or for a list given as data.
#include <pybind11/stl.h>

#include <deque>

#include "backend/cpu/cpu_caps.h"
#include "backend/cpu/gemm/kernel_list.h"
#include "backend/cpu/gemm/processor_tuning.h"
#include "backend/cpu/ops/ops_tables.h"
#include "backend/gemm_registry.h"
#include "backend/make_backend.h"
#include "bindings/tuning.h"
#include "native/module/gemm.h"

namespace py = pybind11;

namespace imp::bindings {

namespace {

DType dtype_of(const std::string& name) {
  const auto dtype = dtype_from_name(name);
  if (!dtype) throw py::value_error("no dtype " + name);
  return *dtype;
}

// A table of keys: "cpu" with a name as isa_features() reads it and "amd" or "intel" with family and model, or
// "compute_capability".
DeviceCaps caps_of(const py::dict& table) {
  DeviceCaps caps;
  for (const auto& [key, value] : table) {
    const auto name = key.cast<std::string>();
    if (name == "cpu") {
      caps.cpu = cpu::features_named(value.cast<std::string>());
    } else if (name == "amd" || name == "intel") {
      const auto [family, model] = value.cast<std::pair<int, int>>();
      caps.processor = {name == "amd" ? ProcessorMaker::amd : ProcessorMaker::intel, family, model};
    } else if (name == "compute_capability") {
      caps.device = "cuda";
      caps.compute_capability = value.cast<int>();
    } else {
      throw py::value_error("no capability " + name);
    }
  }
  return caps;
}

// The requirement of a kernel given as data, by name.
decltype(GemmKernel::refuses) refusal_of(const std::string& needs) {
  if (needs.empty()) return [](const GemmProblem&, const DeviceCaps&) -> const char* { return nullptr; };
  if (needs == "sm_90") {
    return [](const GemmProblem&, const DeviceCaps& caps) {
      return caps.compute_capability >= 90 ? nullptr : "needs compute capability 9.0";
    };
  }
  if (needs == "sm_80") {
    return [](const GemmProblem&, const DeviceCaps& caps) {
      return caps.compute_capability >= 80 ? nullptr : "needs compute capability 8.0";
    };
  }
  if (needs == "k % 64") {
    return [](const GemmProblem& problem, const DeviceCaps&) {
      return problem.k % 64 == 0 ? nullptr : "k is not a multiple of 64";
    };
  }
  throw py::value_error("no such need: " + needs);
}

// A kernel list given as data. It owns the names that its rows point to.
class KernelList {
 public:
  explicit KernelList(const std::vector<py::dict>& rows) {
    for (const py::dict& row : rows) {
      names_.push_back(row["name"].cast<std::string>());
      const auto weight = row["weight"].cast<std::string>();
      kernels_.push_back(
          {.name = names_.back(),
           .weight = weight == "any" ? DType::F32 : dtype_of(weight),
           .any_weight = weight == "any",
           .layout = row["layout"].cast<std::string>() == "file" ? WeightLayout::file : WeightLayout::panel16,
           .activations = ActivationFormat::f32,
           .max_m = row["max_m"].is_none() ? kAnyRows : row["max_m"].cast<int>(),
           .reduction = row["reduction"].cast<std::string>() == "q8_block32" ? ReductionId::q8_block32
                                                                             : ReductionId::f32_sequential,
           .validated = row["validated"].cast<bool>(),
           .refuses = refusal_of(row["needs"].cast<std::string>()),
           .scratch_bytes = nullptr,
           .run = nullptr,
           .needs = isa_features(row["isa"].cast<std::string>()).value()});
    }
  }
  std::span<const GemmKernel> rows() const { return kernels_; }

 private:
  std::deque<std::string> names_;
  std::vector<GemmKernel> kernels_;
};

py::object rows_as_data(int max_m) {
  return max_m == kAnyRows ? py::object(py::none()) : py::int_(max_m);
}

py::dict row_as_data(const GemmKernel& kernel) {
  py::dict row;
  row["name"] = kernel.name;
  row["weight"] = kernel.any_weight ? std::string_view("any") : traits(kernel.weight).name;
  row["layout"] = name_of(kernel.layout);
  row["activations"] = name_of(kernel.activations);
  row["reduction"] = name_of(kernel.reduction);
  row["max_m"] = rows_as_data(kernel.max_m);
  row["validated"] = kernel.validated;
  row["isa"] = isa_name(kernel.needs);
  return row;
}

using Overrides = std::vector<std::pair<std::string, std::string>>;

std::vector<GemmOverride> overrides_of(const Overrides& pairs) {
  std::vector<GemmOverride> overrides;
  for (const auto& [pattern, kernel] : pairs) overrides.push_back({pattern, kernel});
  return overrides;
}

// Calls `use` with the registry over the CPU's list, or over `rows`.
template <class Use>
auto with_registry(const py::dict& caps, const std::optional<std::vector<py::dict>>& rows, const Use& use,
                   const PythonTuning& tuning = {}) {
  std::vector<GemmPreference> preferences;
  for (const auto& [weight, kernel, max_m] : tuning) {
    preferences.push_back({dtype_of(weight), max_m.value_or(kAnyRows), kernel});
  }
  const DeviceCaps device = caps_of(caps);
  if (!rows) return use(GemmRegistry(cpu::kernel_list(), device, cpu::with_processor_tuning(preferences, device)));
  const KernelList list(*rows);
  return use(GemmRegistry(list.rows(), device, preferences));
}

py::dict plan_as_data(const GemmPlan& plan) {
  py::dict out;
  py::list kernels;
  for (const auto& [kernel, max_m] : plan.kernels) {
    py::dict row = row_as_data(*kernel);
    row["rows"] = rows_as_data(max_m);  // up to which it runs in this plan
    kernels.append(row);
  }
  out["layout"] = name_of(plan.layout);
  out["kernels"] = kernels;
  out["description"] = describe(plan);
  return out;
}

py::dict plan(const py::dict& caps, const std::string& weight, std::int64_t n, std::int64_t k,
              const std::string& tensor, const Overrides& overrides, const std::optional<std::vector<py::dict>>& rows,
              const PythonTuning& tuning, bool deterministic, bool unvalidated) {
  const PlanPolicy policy = {.one_reduction = deterministic, .unvalidated_kernels = unvalidated};
  const auto as_data = [&](const GemmRegistry& registry) {
    return plan_as_data(registry.plan({dtype_of(weight), n, k}, tensor, overrides_of(overrides), policy));
  };
  return with_registry(caps, rows, as_data, tuning);
}

// Plans with the GPU's own list, for a GPU with the capabilities of the named one.
py::dict gpu_plan(const std::string& gpu, const std::string& weight, std::int64_t n, std::int64_t k,
                  const Overrides& overrides, bool deterministic, bool unvalidated, bool of_experts) {
  const GemmRegistry registry(kernels_of("cuda_emulated"), gpu_caps(gpu));
  const PlanPolicy policy = {.one_reduction = deterministic, .unvalidated_kernels = unvalidated};
  return plan_as_data(registry.plan({dtype_of(weight), n, k, of_experts}, "", overrides_of(overrides), policy));
}

std::vector<std::tuple<std::string, bool, std::string>> explain(const py::dict& caps, const std::string& weight,
                                                                std::int64_t n, std::int64_t k,
                                                                const std::string& tensor, const Overrides& overrides,
                                                                const std::optional<std::vector<py::dict>>& rows,
                                                                const PythonTuning& tuning) {
  const auto as_data = [&](const GemmRegistry& registry) {
    std::vector<std::tuple<std::string, bool, std::string>> lines;
    for (const GemmCandidate& line : registry.explain({dtype_of(weight), n, k}, tensor, overrides_of(overrides))) {
      lines.emplace_back(line.kernel, line.accepted, line.reason);
    }
    return lines;
  };
  return with_registry(caps, rows, as_data, tuning);
}

std::string kernel_for(const py::dict& caps, const std::string& weight, std::int64_t n, std::int64_t k, int m,
                       const std::optional<std::vector<py::dict>>& rows, const PythonTuning& tuning) {
  const auto name = [&](const GemmRegistry& registry) {
    return std::string(registry.plan({dtype_of(weight), n, k}, "", {}).kernel_for(m).name);
  };
  return with_registry(caps, rows, name, tuning);
}

std::vector<std::string> interchangeable(const py::dict& caps, const std::string& weight, std::int64_t n,
                                         std::int64_t k, int max_m, const std::optional<std::vector<py::dict>>& rows) {
  return with_registry(caps, rows, [&](const GemmRegistry& registry) {
    const auto names = registry.interchangeable({dtype_of(weight), n, k}, max_m);
    return std::vector<std::string>(names.begin(), names.end());
  });
}

py::object refusal(const std::string& kernel, const py::dict& caps, const std::string& weight, std::int64_t n,
                   std::int64_t k) {
  for (const GemmKernel& row : all_kernels()) {
    if (row.name != kernel) continue;
    const std::string reason = imp::refusal(row, {dtype_of(weight), n, k}, caps_of(caps));
    return reason.empty() ? py::object(py::none()) : py::str(reason);
  }
  throw py::value_error("no kernel " + kernel);
}

}  // namespace

void register_testing_gemm_registry(py::module_& module) {
  module.def("gemm_kernels", [] {
    py::list rows;
    for (const GemmKernel& kernel : cpu::kernel_list()) rows.append(row_as_data(kernel));
    return rows;
  });
  module.def("gemm_test_kernels", [] {
    py::list rows;
    for (const GemmKernel& kernel : test_kernels()) rows.append(row_as_data(kernel));
    return rows;
  });
  module.def("gemm_plan", &plan, py::arg("caps"), py::arg("weight"), py::arg("n"), py::arg("k"), py::arg("tensor") = "",
             py::arg("overrides") = Overrides{}, py::arg("kernels") = py::none(), py::arg("tuning") = PythonTuning{},
             py::arg("deterministic") = true, py::arg("unvalidated") = false);
  module.def("gpu_gemm_plan", &gpu_plan, py::arg("gpu"), py::arg("weight"), py::arg("n"), py::arg("k"), py::kw_only(),
             py::arg("overrides") = Overrides{}, py::arg("deterministic") = false, py::arg("unvalidated") = true,
             py::arg("of_experts") = false, "The plan of an h200 or an a100.");
  module.def("gemm_explain", &explain, py::arg("caps"), py::arg("weight"), py::arg("n"), py::arg("k"),
             py::arg("tensor") = "", py::arg("overrides") = Overrides{}, py::arg("kernels") = py::none(),
             py::arg("tuning") = PythonTuning{});
  module.def("gemm_kernel_for", &kernel_for, py::arg("caps"), py::arg("weight"), py::arg("n"), py::arg("k"),
             py::arg("m"), py::arg("kernels") = py::none(), py::arg("tuning") = PythonTuning{});
  module.def("gemm_interchangeable", &interchangeable, py::arg("caps"), py::arg("weight"), py::arg("n"), py::arg("k"),
             py::arg("max_m"), py::arg("kernels") = py::none());
  module.def("gemm_refusal", &refusal, py::arg("kernel"), py::arg("caps"), py::arg("weight"), py::arg("n"),
             py::arg("k"));
  module.def("gemm_prefetching_rows",
             [](const py::dict& caps) { return cpu::prefetching_rows(caps_of(caps).processor); });
  module.def("fastest_ops",
             [](const py::dict& caps) { return cpu::ops_for(cpu::fastest_features(caps_of(caps))).isa; });
  module.def("gemm_require_matches", [](const Overrides& overrides, const std::vector<std::string>& tensors) {
    require_matches(overrides_of(overrides), std::vector<std::string_view>(tensors.begin(), tensors.end()));
  });
  // The choice on a CPU with the features that `here` names.
  module.def("resolve_isa", [](const std::string& isa, const std::string& here) {
    return isa_name(cpu::resolve_isa(isa, isa_features(here).value()));
  });
  // The inner loops that such a CPU runs.
  module.def("cpu_ops", [](const std::string& isa) { return cpu::ops_for(isa_features(isa).value()).isa; });
  // All inner loops that this CPU can run, the fastest first.
  module.def("cpu_ops_here", [] {
    const CpuFeatures here = detect_cpu_features();
    std::vector<std::string_view> names;
    for (const cpu::OpsTable& table : cpu::ops_tables()) {
      if (here.includes(table.needs)) names.push_back(table.isa);
    }
    return names;
  });
  module.def("cpu_caps", [](const std::string& isa) {
    py::dict table;
    table["cpu"] = isa_name(cpu::cpu_caps(isa).cpu);
    return table;
  });
}

}  // namespace imp::bindings

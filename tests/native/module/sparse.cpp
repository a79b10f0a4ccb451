// The bindings of the parts of sparse prefill that need no engine: whether a prompt is sparse, and what of it is
// chosen.
#include <pybind11/stl.h>

#include <cstdint>
#include <string>
#include <vector>

#include "bindings/bind_commands.h"
#include "engine/sparse/chunk_selection.h"
#include "engine/sparse/prompt_costs.h"
#include "engine/sparse/sparse_rules.h"
#include "native/module/engine.h"

namespace py = pybind11;

namespace imp::bindings {
namespace {

using Cost = std::pair<double, double>;  // linear, quadratic

PromptCost cost_of(const Cost& cost) {
  return {.linear = cost.first, .quadratic = cost.second};
}

}  // namespace

void register_testing_sparse(py::module_& module) {
  module.attr("SELECTION_CHUNK") = kSelectionChunk;
  module.attr("KEEP_ALL") = kKeepAll;
  module.def("least_selected", &least_selected, py::arg("n_tokens"), py::arg("keep"));
  module.def(
      "select_tokens",
      [](const std::vector<std::int32_t>& tokens, const std::vector<float>& importance, int keep, int anchors,
         const std::vector<std::int32_t>& control_tokens, int backbone) {
        return select_tokens(
            tokens, importance,
            {.keep = keep, .backbone = backbone, .anchors = anchors, .control_tokens = control_tokens});
      },
      py::arg("tokens"), py::arg("importance"), py::arg("keep"), py::arg("anchors") = 1,
      py::arg("control_tokens") = std::vector<std::int32_t>{}, py::arg("backbone") = 0);
  module.def(
      "why_dense",
      [](const std::string& policy, int keep, int n_new, int n_cached, int threshold, int max_tokens, bool wants_scores,
         bool has_media, int max_scored, const Cost& draft, const Cost& model, int backbone) {
        const DenseReason reason =
            why_dense(sparse_request(policy, keep, backbone), {.threshold = threshold, .max_tokens = max_tokens},
                      {.n_cached = n_cached,
                       .n_new = n_new,
                       .wants_scores = wants_scores,
                       .has_media = has_media,
                       .max_scored = max_scored,
                       .draft = cost_of(draft),
                       .model = cost_of(model)});
        return std::string(name_of(reason));
      },
      py::arg("policy"), py::arg("keep"), py::arg("n_new"), py::kw_only(), py::arg("n_cached") = 0,
      py::arg("threshold") = 8192, py::arg("max_tokens") = 65536, py::arg("wants_scores") = false,
      py::arg("has_media") = false, py::arg("max_scored") = 1 << 20, py::arg("draft") = Cost{0.1, 0},
      py::arg("model") = Cost{1, 0}, py::arg("backbone") = 0,
      "Why a prompt is evaluated as a whole; empty: it is not.");
  py::class_<PromptCostFit>(module, "PromptCostFit")
      .def(py::init<>())
      .def("add", &PromptCostFit::add, py::arg("first"), py::arg("n"), py::arg("ns"))
      .def_property_readonly("is_known", &PromptCostFit::is_known)
      .def_property_readonly("cost", [](const PromptCostFit& self) {
        const PromptCost cost = self.cost();
        return Cost{cost.linear, cost.quadratic};
      });
}

}  // namespace imp::bindings

// Vision towers, for the tests.
#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backend/make_backend.h"
#include "model/model.h"
#include "model/vision/vision_tower.h"
#include "native/module/model.h"

namespace py = pybind11;

namespace imp::bindings {
namespace {

using Pixels = py::array_t<std::uint8_t, py::array::c_style | py::array::forcecast>;

std::unique_ptr<Backend> cpu_device(int n_threads, const std::string& isa) {
  return make_backend(
      {.kind = "cpu", .isa = isa, .n_threads = n_threads, .cpus = {}, .memory = {}, .tuning = {}, .cublaslt = {}});
}

// A tower on a device of its own.
class LoadedTower {
 public:
  LoadedTower(const ModelFile& file, int hidden_size, int most_cells, const std::optional<std::string>& kv_type,
              int max_piece, double decoder_row_cost, int n_threads, const std::string& isa)
      : backend_(cpu_device(n_threads, isa)),
        plan_(plan_vision(file, {.name = "the model", .width = hidden_size, .most_cells = most_cells},
                          backend_->registry(), {}, {})),
        options_{.max_piece = max_piece, .decoder_row_cost = decoder_row_cost} {
    if (kv_type) plan_.resolved.config.layers.kv_types = kv_types_from(*kv_type).value();
    memory_ = vision_memory(file, plan_, options_, *backend_);
    for (const PlannedWeight& weight : plan_.weights.weights) {
      if (weight.use != WeightUse::vector) kernels_[weight.tensor->name] = describe(weight.plan);
    }
    model_ = load_vision(file, plan_, *backend_, {});
    tower_ = std::make_unique<VisionTower>(model_, *backend_, options_);
    tower_->set_tokens(7, 7);
  }

  void begin(const Pixels& part, std::optional<int> n_rows) {
    const int height = static_cast<int>(part.shape(0)), width = static_cast<int>(part.shape(1));
    const VisionConfig& config = plan_.resolved.config;
    media_.parts = {{.grid = {height, width},
                     .pixels = {part.data(), part.data() + part.size()},
                     .n_rows = n_rows.value_or(config.cells_of(config.patches_of(height, width)).count())}};
    tower_->begin(media_, 0);
  }
  int advance(int n_rows) { return tower_->advance(n_rows); }
  bool is_done() const { return tower_->is_done(); }

  py::array_t<float> encoding() const {
    const Rows rows = tower_->encoding();
    py::array_t<float> values({rows.n_rows, rows.width});
    for (int row = 0; row < rows.n_rows; ++row) {
      backend_->read_row(rows, row, {values.mutable_data(row), static_cast<std::size_t>(rows.width)});
    }
    return values;
  }

  py::dict facts() const {
    const VisionConfig& config = plan_.resolved.config;
    const MediaFacts& facts = tower_->facts();
    return py::dict(py::arg("tile_size") = config.tile_size, py::arg("longest_side") = config.longest_side,
                    py::arg("min_pixels") = config.min_pixels, py::arg("max_pixels") = config.max_pixels,
                    py::arg("width") = facts.width, py::arg("max_rows") = facts.max_rows,
                    py::arg("max_atomic_cells") = facts.max_atomic_cells,
                    py::arg("placeholder_token") = facts.placeholder, py::arg("row_token") = facts.row_token);
  }
  const std::map<std::string, std::string>& kernels() const { return kernels_; }
  py::dict memory() const {
    return py::dict(py::arg("weights") = memory_.weights_bytes, py::arg("activations") = memory_.activation_bytes,
                    py::arg("scratch") = memory_.scratch_bytes, py::arg("scratch_held") = backend_->scratch_bytes());
  }
  const std::vector<std::string>& warnings() const { return plan_.resolved.warnings; }

 private:
  std::unique_ptr<Backend> backend_;
  VisionPlan plan_;  // its tensors end with the file
  std::map<std::string, std::string> kernels_;
  VisionOptions options_;
  VisionMemory memory_;
  VisionModel model_;
  std::unique_ptr<VisionTower> tower_;
  Media media_;
};

}  // namespace

void register_testing_vision(py::module_& module) {
  module.def("products_per_row", [](const ModelFile& file) {
    const auto backend = cpu_device(1, "auto");
    const LoadPlan plan = plan_load(file, *backend, {}, {});
    return products_per_row(plan.weights, plan.resolved.config.experts);
  });
  py::class_<LoadedTower>(module, "VisionTower")
      .def(py::init<const ModelFile&, int, int, const std::optional<std::string>&, int, double, int,
                    const std::string&>(),
           py::arg("file"), py::kw_only(), py::arg("hidden_size"), py::arg("most_cells") = 1024,
           py::arg("kv_type") = py::none(), py::arg("max_piece") = VisionOptions{}.max_piece,
           py::arg("decoder_row_cost") = 1e6, py::arg("threads") = 1, py::arg("isa") = "auto")
      .def("begin", &LoadedTower::begin, py::arg("part"), py::arg("n_rows") = py::none())
      .def("advance", &LoadedTower::advance, py::arg("n_rows"))
      .def("encoding", &LoadedTower::encoding)
      .def_property_readonly("is_done", &LoadedTower::is_done)
      .def_property_readonly("facts", &LoadedTower::facts)
      .def_property_readonly("kernels", &LoadedTower::kernels)
      .def_property_readonly("memory", &LoadedTower::memory)
      .def_property_readonly("warnings", &LoadedTower::warnings);
}

}  // namespace imp::bindings

// Loading models, and what there is to know about one.
#include "bindings/bind_model.h"

#include <pybind11/functional.h>
#include <pybind11/stl.h>
#include <pybind11/stl/filesystem.h>

#include <filesystem>
#include <optional>
#include <utility>

#include "bindings/tuning.h"
#include "model/loaded_model.h"
#include "model/resolve.h"

namespace py = pybind11;

namespace imp::bindings {
namespace {

py::object path_object(const std::string& path) {
  return py::reinterpret_steal<py::str>(
      PyUnicode_DecodeFSDefaultAndSize(path.data(), static_cast<Py_ssize_t>(path.size())));
}

using GemmPairs = std::vector<std::pair<std::string, std::string>>;
using PythonProgress = std::optional<std::function<void(std::uint64_t, std::uint64_t)>>;

[[noreturn]] void refuse_word(const char* override, const std::string& found, const std::string& known) {
  throw ModelError(Reason::OVERRIDE_INVALID,
                   "override " + std::string(override) + ": " + found + ", known are " + known);
}

RopeScalingKind scaling_kind(const std::string& word) {
  if (word == "none") return RopeScalingKind::none;
  if (word == "linear") return RopeScalingKind::linear;
  if (word == "yarn") return RopeScalingKind::yarn;
  if (word == "llama3") return RopeScalingKind::wavelength;
  refuse_word("rope_scaling.type", word, "none, linear, yarn, llama3");
}

void register_overrides(py::module_& module) {
  using Scaling = RopeScalingOverride;
  py::class_<Scaling>(module, "RopeScaling", "How rotary positions stretch; what is None stays as the file has it.")
      .def(py::init([](const std::optional<std::string>& type, std::optional<double> factor,
                       std::optional<int> original_context, std::optional<double> attention_factor,
                       std::optional<double> beta_fast, std::optional<double> beta_slow,
                       std::optional<double> low_freq_factor, std::optional<double> high_freq_factor) {
             return Scaling{type ? std::optional(scaling_kind(*type)) : std::nullopt,
                            factor,
                            original_context,
                            attention_factor,
                            beta_fast,
                            beta_slow,
                            low_freq_factor,
                            high_freq_factor};
           }),
           py::kw_only(), py::arg("type") = py::none(), py::arg("factor") = py::none(),
           py::arg("original_context") = py::none(), py::arg("attention_factor") = py::none(),
           py::arg("beta_fast") = py::none(), py::arg("beta_slow") = py::none(),
           py::arg("low_freq_factor") = py::none(), py::arg("high_freq_factor") = py::none());

  py::class_<ModelOverrides>(module, "ModelOverrides",
                             "What a user changes about a model. Attributes without a value of their own are None, or "
                             "empty, until they are set.")
      .def(py::init<>())
      .def_readwrite("max_context", &ModelOverrides::max_context)
      .def_property(
          "kv_dtype",
          [](const ModelOverrides& self) {
            return self.kv_dtype ? std::optional(std::string(traits(*self.kv_dtype).name)) : std::nullopt;
          },
          [](ModelOverrides& self, const std::optional<std::string>& word) {
            self.kv_dtype = word ? dtype_from_name(*word) : std::nullopt;
            if (word && !self.kv_dtype) refuse_word("kv_dtype", *word, dtype_names());
          })
      .def_readwrite("rope_theta", &ModelOverrides::rope_theta)
      .def_readwrite("rope_scaling", &ModelOverrides::rope_scaling)
      .def_property(
          "gemm",
          [](const ModelOverrides& self) {
            GemmPairs pairs;
            for (const GemmOverride& one : self.gemm) pairs.emplace_back(one.pattern, one.kernel);
            return pairs;
          },
          [](ModelOverrides& self, const GemmPairs& pairs) {
            self.gemm.clear();
            for (const auto& [pattern, kernel] : pairs) self.gemm.push_back({pattern, kernel});
          },
          "(weight type or tensor glob, kernel) pairs; set as a whole.")
      .def_readwrite("deterministic", &ModelOverrides::deterministic)
      .def_readwrite("unvalidated_kernels", &ModelOverrides::unvalidated_kernels)
      .def_readwrite("eos_token_ids", &ModelOverrides::eos_token_ids)
      .def_readwrite("suppress_tokens", &ModelOverrides::suppress_tokens);
}

py::list fact_list(const std::vector<Fact>& facts) {
  py::list list;
  for (const Fact& fact : facts) {
    list.append(py::dict(py::arg("name") = fact.name, py::arg("value") = fact.value,
                         py::arg("origin") = std::string(origin_name(fact.origin)), py::arg("source") = fact.source));
  }
  return list;
}

py::list weight_list(const std::vector<WeightSummary>& weights) {
  py::list list;
  for (const WeightSummary& weight : weights) {
    py::list kernels;
    for (const PlannedKernel& planned : weight.plan.kernels) kernels.append(std::string(planned.kernel->name));
    list.append(py::dict(py::arg("tensor") = weight.tensor,
                         py::arg("dtype") = std::string(traits(weight.problem.weight).name),
                         py::arg("n") = weight.problem.n, py::arg("k") = weight.problem.k, py::arg("kernels") = kernels,
                         py::arg("n_matrices") = weight.n_matrices, py::arg("use") = std::string(name_of(weight.use)),
                         py::arg("layout") = weight.use == WeightUse::vector ? std::string("vector")
                                                                             : std::string(name_of(weight.plan.layout)),
                         py::arg("n_bytes") = weight.n_bytes));
  }
  return list;
}

py::dict memory_dict(const MemoryPlan& plan) {
  py::dict items;
  for (const MemoryItem& item : plan.items) items[py::str(item.name)] = item.bytes;
  return py::dict(py::arg("items") = items, py::arg("budget_bytes") = plan.budget_bytes,
                  py::arg("n_blocks") = plan.n_blocks, py::arg("max_context") = plan.max_context);
}

// The plan where it all fits, else None and the sentence that says by how much it does not.
py::tuple divide(const MemoryRequest& request) {
  try {
    return py::make_tuple(memory_dict(plan_memory(request)), "");
  } catch (const Error& error) {
    return py::make_tuple(py::none(), std::string(error.what()));
  }
}

py::dict plan_model(const ModelFile& file, const ModelOverrides& overrides, const std::string& device,
                    const std::string& isa, int threads, const PythonTuning& tuning, int max_rows, int max_logits_rows,
                    int kv_block_tokens, std::optional<std::uint64_t> memory_bytes, std::uint64_t reserve_bytes,
                    std::optional<std::uint64_t> kv_bytes, const std::vector<std::string>& cublaslt) {
  LoadOptions options{.limits = {.max_rows = max_rows, .max_logits_rows = max_logits_rows},
                      .kv_block_tokens = kv_block_tokens,
                      .reserve_bytes = reserve_bytes,
                      .kv_bytes = kv_bytes,
                      .progress = {},
                      .packed_cache = {}};
  if (memory_bytes) options.memory_bytes = *memory_bytes;
  const auto backend = make_backend({.kind = device,
                                     .isa = isa,
                                     .n_threads = threads,
                                     .cpus = {},
                                     .memory = {},
                                     .tuning = preferences_of(tuning),
                                     .cublaslt = cublaslt});
  const LoadPlan plan = plan_load(file, *backend, overrides, options);
  const MemoryRequest& request = plan.memory;
  const py::tuple division = divide(request);
  return py::dict(
      py::arg("architecture") = std::string(plan.resolved.architecture->name),
      py::arg("facts") = fact_list(plan.resolved.facts), py::arg("model_warnings") = plan.resolved.warnings,
      py::arg("weight_warnings") = plan.weights.warnings, py::arg("weights") = weight_list(summaries_of(plan.weights)),
      py::arg("vocab_size") = plan.resolved.config.vocab_size, py::arg("n_tokens") = plan.resolved.config.n_tokens,
      py::arg("model_context") = request.model_context, py::arg("weights_bytes") = request.weights_bytes,
      py::arg("scratch_bytes") = request.scratch_bytes, py::arg("logits_bytes") = request.logits_bytes,
      py::arg("reserve_bytes") = request.reserve_bytes, py::arg("kv_block_bytes") = request.kv_block_bytes,
      py::arg("kv_block_tokens") = request.kv_block_tokens, py::arg("memory") = division[0],
      py::arg("refusal") = division[1]);
}

// The callback is Python's: it is called with the lock held, and what it raises ends the load.
LoadProgress with_lock(PythonProgress progress) {
  if (!progress) return {};
  return [report = std::move(*progress)](std::uint64_t done, std::uint64_t total) {
    const py::gil_scoped_acquire lock;
    report(done, total);
  };
}

std::unique_ptr<LoadedModel> load(const ModelFile& file, const ModelOverrides& overrides, const std::string& device,
                                  const std::string& isa, int threads, const std::vector<int>& cpus, bool huge_pages,
                                  const std::vector<int>& interleave_nodes, const PythonTuning& tuning, int max_rows,
                                  int max_logits_rows, int kv_block_tokens, std::optional<std::uint64_t> memory_bytes,
                                  std::uint64_t reserve_bytes, std::optional<std::uint64_t> kv_bytes,
                                  PythonProgress progress, const std::optional<std::filesystem::path>& packed_cache,
                                  const std::vector<std::string>& cublaslt) {
  LoadOptions options{.limits = {.max_rows = max_rows, .max_logits_rows = max_logits_rows},
                      .kv_block_tokens = kv_block_tokens,
                      .reserve_bytes = reserve_bytes,
                      .kv_bytes = kv_bytes,
                      .progress = with_lock(std::move(progress)),
                      .packed_cache = packed_cache ? packed_cache->string() : ""};
  if (memory_bytes) options.memory_bytes = *memory_bytes;
  const py::gil_scoped_release unlocked;
  return std::make_unique<LoadedModel>(
      load_on_device(file,
                     {.kind = device,
                      .isa = isa,
                      .n_threads = threads,
                      .cpus = cpus,
                      .memory = {.huge_pages = huge_pages, .interleave_nodes = interleave_nodes},
                      .tuning = preferences_of(tuning),
                      .cublaslt = cublaslt},
                     overrides, options));
}

py::object packed_dict(const LoadedModel& self) {
  const std::optional<PackedWeights>& packed = self.model->packed();
  if (!packed) return py::none();
  const py::object path = packed->cache ? path_object(packed->cache->path()) : py::none();
  return py::dict(py::arg("path") = path, py::arg("was_read") = packed->was_read, py::arg("why") = packed->why);
}

bool write_packed(const LoadedModel& self, const std::function<bool()>& goes_on) {
  const std::optional<PackedWeights>& packed = self.model->packed();
  if (!packed) throw InvalidArgument(Reason::FIELD_INVALID, "packed_cache: none was given");
  if (!packed->cache) throw InvalidArgument(Reason::FIELD_INVALID, "packed_cache: " + packed->why);
  constexpr int kPiecesPerQuestion = 32;  // each has to wait for Python's lock
  int n_pieces = 0;
  const auto ask = [&] {
    if (n_pieces++ % kPiecesPerQuestion != 0) return true;
    const py::gil_scoped_acquire lock;
    return goes_on();
  };
  const py::gil_scoped_release unlocked;
  return self.model->write_packed(ask);
}

}  // namespace

void register_model(py::module_& module) {
  register_overrides(module);
  py::class_<LoadedModel, py::smart_holder>(module, "Model", "A model on its device; constant.")
      .def_static(
          "load", &load, py::arg("file"), py::kw_only(), py::arg_v("overrides", ModelOverrides{}, "ModelOverrides()"),
          py::arg("device") = "cpu", py::arg("isa") = "auto", py::arg("threads") = 1,
          py::arg("cpus") = std::vector<int>{}, py::arg("huge_pages") = true,
          py::arg("interleave_nodes") = std::vector<int>{}, py::arg("tuning") = PythonTuning{},
          py::arg("max_rows") = 512, py::arg("max_logits_rows") = 64, py::arg("kv_block_tokens") = 16,
          py::arg("memory_bytes") = py::none(), py::arg("reserve_bytes") = 0, py::arg("kv_bytes") = py::none(),
          py::arg("progress") = py::none(), py::arg("packed_cache") = py::none(),
          py::arg("cublaslt") = std::vector<std::string>{},
          "Plans kernels and memory, then reads the weights, without Python's lock. `memory_bytes` bounds "
          "weights, cache, scratch, logits and `reserve_bytes` together; `progress(done_bytes, total_bytes)` "
          "is called about a hundred times; `packed_cache` is a folder in which packed weights may be; `cublaslt` "
          "are files or the loader's names of that library, in order, none: it is not to be used. Raises "
          "ModelError, ResourceExhausted, DeviceError, InvalidArgument.")
      .def_property_readonly("architecture", [](const LoadedModel& self) { return self.model->architecture(); })
      .def_property_readonly("facts", [](const LoadedModel& self) { return fact_list(self.model->facts()); })
      .def_property_readonly("warnings", [](const LoadedModel& self) { return self.model->warnings(); })
      .def_property_readonly(
          "weights", [](const LoadedModel& self) { return weight_list(self.model->weight_summaries()); },
          "Per tensor: its type, shape, kernels by ascending number of rows, layout and bytes.")
      .def_property_readonly("memory", [](const LoadedModel& self) { return memory_dict(self.model->memory()); })
      .def_property_readonly(
          "packed", &packed_dict,
          "None without a cache of packed weights; else its file's `path`, None where the device cannot have one, "
          "whether it `was_read`, and `why` not.")
      .def(
          "write_packed", &write_packed, py::arg("goes_on"),
          "Writes the cache's file, without Python's lock. False, and nothing is left behind, where `goes_on()`, asked "
          "now and then, says no before the end. Raises ModelError where it cannot be written, or must not yet.")
      .def_property_readonly("vocab_size", [](const LoadedModel& self) { return self.model->config().vocab_size; })
      .def_property_readonly("n_tokens", [](const LoadedModel& self) { return self.model->config().n_tokens; })
      .def_property_readonly("max_context", [](const LoadedModel& self) { return self.model->config().max_context; })
      .def_property_readonly("n_blocks", [](const LoadedModel& self) { return self.model->memory().n_blocks; })
      .def_property_readonly("kv_block_tokens", [](const LoadedModel& self) { return self.model->kv_block_tokens(); })
      .def_property_readonly("suppressed_tokens",
                             [](const LoadedModel& self) { return self.model->config().suppressed_tokens; })
      .def_property_readonly(
          "scratch_bytes", [](const LoadedModel& self) { return self.backend->scratch_bytes(); },
          "Held by the ops, beside activations.")
      .def_property_readonly(
          "windows",
          [](const LoadedModel& self) {
            std::vector<int> windows;
            for (const LayerConfig& layer : self.model->config().layers) windows.push_back(layer.window);
            return windows;
          },
          "For each layer how many tokens back attention sees; 0: all.")
      .def_property_readonly("tied_head", [](const LoadedModel& self) { return self.model->config().tied_head; })
      .def_property_readonly("n_heads", [](const LoadedModel& self) { return self.model->config().n_heads; })
      .def_property_readonly("head_dim", [](const LoadedModel& self) { return self.model->config().head_dim; })
      .def_property_readonly(
          "launches",
          [](const LoadedModel& self) {
            py::dict counts;
            for (const Launch& launch : self.backend->launches())
              counts[py::str(std::string(launch.name))] = launch.count;
            return counts;
          },
          "How often each op and kernel has run, by name.")
      .def_property_readonly("device_name", [](const LoadedModel& self) { return self.backend->device_name(); })
      .def_property_readonly("n_threads", [](const LoadedModel& self) { return self.backend->n_threads(); });

  module.def("plan_model", &plan_model, py::arg("file"), py::kw_only(),
             py::arg_v("overrides", ModelOverrides{}, "ModelOverrides()"), py::arg("device") = "cpu",
             py::arg("isa") = "auto", py::arg("threads") = 1, py::arg("tuning") = PythonTuning{},
             py::arg("max_rows") = 512, py::arg("max_logits_rows") = 64, py::arg("kv_block_tokens") = 16,
             py::arg("memory_bytes") = py::none(), py::arg("reserve_bytes") = 0, py::arg("kv_bytes") = py::none(),
             py::arg("cublaslt") = std::vector<std::string>{},
             "What Model.load would do with the same arguments, without reading a weight: facts, kernels and bytes of "
             "each tensor, and `memory`, None where it does not suffice (then `refusal` says why). Raises ModelError.");
  module.def(
      "inspect_model",
      [](const ModelFile& file, const ModelOverrides& overrides) {
        const ResolvedModel model = resolve_model(file, overrides);
        return py::dict(py::arg("architecture") = std::string(model.architecture->name),
                        py::arg("facts") = fact_list(model.facts), py::arg("warnings") = model.warnings);
      },
      py::arg("file"), py::arg_v("overrides", ModelOverrides{}, "ModelOverrides()"),
      "What a checkpoint is, without loading it: every fact with its value, origin and source. Raises ModelError.");
}

}  // namespace imp::bindings

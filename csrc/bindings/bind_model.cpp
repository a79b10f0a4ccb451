// Loading, planning and describing models.
#include "bindings/register.h"

#include <pybind11/functional.h>
#include <pybind11/stl.h>
#include <pybind11/stl/filesystem.h>
#include <pybind11/typing.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <string_view>
#include <type_traits>
#include <utility>

#include "bindings/keywords.h"
#include "bindings/load_options.h"
#include "model/arch/resolve.h"
#include "model/cache_trial.h"
#include "model/config/rope.h"
#include "model/draft_model.h"
#include "model/loaded_model.h"

namespace py = pybind11;

namespace imp::bindings {
namespace {

py::object path_object(const std::string& path) {
  return py::reinterpret_steal<py::str>(
      PyUnicode_DecodeFSDefaultAndSize(path.data(), static_cast<Py_ssize_t>(path.size())));
}

using PythonProgress = std::optional<std::function<void(std::uint64_t, std::uint64_t)>>;

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
                  py::arg("n_blocks") = plan.n_blocks, py::arg("n_draft_blocks") = plan.n_draft_blocks,
                  py::arg("n_state_slots") = plan.n_state_slots, py::arg("max_context") = plan.max_context);
}

// The plan and ""; or None and the error message if it does not fit.
py::tuple divide(const MemoryRequest& request) {
  try {
    return py::make_tuple(memory_dict(plan_memory(request)), "");
  } catch (const Error& error) {
    return py::make_tuple(py::none(), std::string(error.what()));
  }
}

using PythonFile = py::typing::Optional<ModelFile>;

// Null for None.
const ModelFile* file_of(const PythonFile& file) {
  return file.is_none() ? nullptr : file.cast<const ModelFile*>();
}

// What a vision tower reads and makes, and how the model reads its cells.
py::dict vision_dict(std::string_view family, const VisionConfig& config, const std::vector<WeightSummary>& weights,
                     const ModelConfig& model) {
  return py::dict(
      py::arg("family") = std::string(family), py::arg("n_layers") = config.layers.n_layers,
      py::arg("hidden_size") = config.layers.hidden_size, py::arg("sizing") = std::string(name_of(config.sizing)),
      py::arg("patch_size") = config.patch_size, py::arg("reduction") = config.reduced_side,
      py::arg("tile_size") = config.tile_size, py::arg("longest_side") = config.longest_side,
      py::arg("min_pixels") = config.min_pixels, py::arg("max_pixels") = config.max_pixels,
      py::arg("soft_tokens") = config.soft_tokens, py::arg("mean") = config.mean,
      py::arg("deviation") = config.deviation, py::arg("width") = config.width,
      py::arg("part_cells") = config.max_part_cells(), py::arg("max_image_cells") = config.max_image_cells(),
      py::arg("is_atomic") = model.has_atomic_media(), py::arg("n_planes") = planes_of(model, {.takes_media = true}),
      py::arg("weights") = weight_list(weights));
}

py::object vision_of_plan(const LoadPlan& plan) {
  if (!plan.vision) return py::none();
  const auto& [resolved, weights, memory] = *plan.vision;
  return vision_dict(resolved.architecture->name, resolved.config, summaries_of(weights), plan.resolved.config);
}

py::object draft_dict(const LoadPlan& model, const LoadPlan& draft) {
  return py::dict(
      py::arg("architecture") = std::string(draft.resolved.architecture->name),
      py::arg("max_context") = draft.resolved.config.max_context, py::arg("bytes_per_token") = bytes_per_token(draft),
      py::arg("model_bytes_per_token") = bytes_per_token(model), py::arg("weights_bytes") = draft.memory.weights_bytes,
      py::arg("kv_block_bytes") = draft.memory.kv_block_bytes);
}

py::dict plan_model(const ModelFile& file, const ModelOverrides& overrides, const PythonFile& draft_file,
                    const py::kwargs& given) {
  const auto [device, options] = with_keywords(PythonLoadOptions{}, given);
  const auto backend = make_backend(device);
  LoadPlan plan = plan_load(file, *backend, overrides, options);
  py::object draft = py::none();
  if (const ModelFile* found = file_of(draft_file)) {
    draft = draft_dict(plan, plan_draft(*found, *backend, plan, overrides, options));
  }
  const MemoryRequest& request = plan.memory;
  const py::tuple division = divide(request);
  return py::dict(
      py::arg("architecture") = std::string(plan.resolved.architecture->name),
      py::arg("facts") = fact_list(plan.resolved.facts), py::arg("model_warnings") = plan.resolved.warnings,
      py::arg("weight_warnings") = plan.weights.warnings, py::arg("weights") = weight_list(summaries_of(plan.weights)),
      py::arg("vocab_size") = plan.resolved.config.vocab_size, py::arg("n_tokens") = plan.resolved.config.n_tokens,
      py::arg("model_context") = request.model_context, py::arg("weights_bytes") = request.weights_bytes,
      py::arg("scratch_bytes") = request.scratch_bytes, py::arg("logits_bytes") = request.logits_bytes,
      py::arg("reserve_bytes") = request.reserve_bytes, py::arg("head_bytes") = request.head_bytes,
      py::arg("head_block_bytes") = request.head_block_bytes,
      py::arg("head") = plan.head ? std::optional(plan.head->config.kind) : std::nullopt,
      py::arg("vision") = vision_of_plan(plan), py::arg("projector_bytes") = request.projector_bytes,
      py::arg("media_bytes") = request.media_bytes, py::arg("kv_block_bytes") = request.kv_block_bytes,
      py::arg("state_slot_bytes") = request.state_slot_bytes, py::arg("kv_block_tokens") = request.kv_block_tokens,
      py::arg("memory") = division[0], py::arg("refusal") = division[1], py::arg("draft") = draft);
}

// Calls Python's callback with the GIL held. An exception that it raises ends the load.
LoadProgress with_lock(PythonProgress progress) {
  if (!progress) return {};
  return [report = std::move(*progress)](std::uint64_t done, std::uint64_t total) {
    const py::gil_scoped_acquire lock;
    report(done, total);
  };
}

std::unique_ptr<LoadedModel> load(const ModelFile& file, const ModelOverrides& overrides, PythonProgress progress,
                                  const PythonFile& draft, const py::kwargs& given) {
  auto [device, options] = with_keywords(PythonLoadOptions{}, given);
  options.progress = with_lock(std::move(progress));
  const ModelFile* const draft_file = file_of(draft);
  const py::gil_scoped_release unlocked;
  return std::make_unique<LoadedModel>(load_on_device(file, device, overrides, options, draft_file));
}

py::object packed_dict(const LoadedModel& self) {
  const std::optional<PackedWeights>& packed = self.model->packed();
  if (!packed) return py::none();
  const py::object path = packed->cache ? path_object(packed->cache->path()) : py::none();
  return py::dict(py::arg("path") = path, py::arg("was_read") = packed->was_read, py::arg("why") = packed->why);
}

bool write_packed(const LoadedModel& self, const std::function<bool()>& goes_on) {
  const std::optional<PackedWeights>& packed = self.model->packed();
  if (!packed) throw FieldInvalid("packed_cache", "none was given");
  if (!packed->cache) throw FieldInvalid("packed_cache", packed->why);
  constexpr int kPiecesPerQuestion = 32;  // each question waits for the GIL
  int n_pieces = 0;
  const auto ask = [&] {
    if (n_pieces++ % kPiecesPerQuestion != 0) return true;
    const py::gil_scoped_acquire lock;
    return goes_on();
  };
  const py::gil_scoped_release unlocked;
  return self.model->write_packed(ask);
}

CacheTrial run_cache_trial(LoadedModel& self, const std::vector<std::int32_t>& tokens, int n_judged,
                           const std::string& word) {
  const std::optional<KvTypes> types = kv_types_from(word);
  if (!types) throw FieldInvalid("kv_dtype", word + ", expected one of " + kv_type_names());
  if (!self.model->config().has_head) throw FieldInvalid("tokens", "the model predicts none");
  const auto n_tokens = static_cast<int>(tokens.size());
  if (n_judged < 2 || n_judged > n_tokens || n_tokens > self.model->config().max_context) {
    throw FieldInvalid("n_judged", std::to_string(n_judged) + " of " + std::to_string(n_tokens) +
                                       " tokens, expected at least 2 of as many as the context has");
  }
  const int n_known = self.model->config().n_tokens;
  const auto unknown = std::ranges::find_if(tokens, [&](std::int32_t id) { return id < 0 || id >= n_known; });
  if (unknown != tokens.end()) {
    throw FieldInvalid("tokens", std::to_string(*unknown) + ", expected ids below " + std::to_string(n_known));
  }
  const py::gil_scoped_release unlocked;
  const ModelLease lease(self);
  return try_cache_types(*self.decoder, *self.backend, tokens, n_judged,
                         self.model->config().kv_types_by_layer(*types));
}

bool rest(LoadedModel& self) {
  const py::gil_scoped_release unlocked;
  const ModelLease lease(self);
  return self.backend->rest();
}

void register_cache_trial(py::module_& module) {
  py::class_<CacheTrial>(module, "CacheTrial", "What a cache type changes in a model's predictions of a text.")
      .def_readonly("divergence", &CacheTrial::divergence,
                    "Mean Kullback-Leibler divergence from the distributions with an f32 cache, in nats.")
      .def_readonly("same_top", &CacheTrial::same_top, "Share of positions with the same most likely token.")
      .def_readonly("nats", &CacheTrial::nats, "Mean surprise at the text's next token.")
      .def_readonly("f32_nats", &CacheTrial::f32_nats);
}

}  // namespace

void register_model(py::module_& module) {
  register_cache_trial(module);
  py::class_<LoadedModel, py::smart_holder>(module, "Model", "A model loaded on a device. Immutable.")
      .def_static("load", &load, py::arg("file"), py::kw_only(),
                  py::arg_v("overrides", ModelOverrides{}, "ModelOverrides()"), py::arg("progress") = py::none(),
                  py::arg("draft") = py::none(),
                  "Plans kernels and memory, then reads the weights. Releases the GIL. Further keywords "
                  "are those of LoadOptions. `draft` is the file of a draft model. Calls `progress(done_bytes, "
                  "total_bytes)` about a hundred "
                  "times. Raises ModelError, ResourceExhausted, DeviceError or InvalidArgument.")
      .def_property_readonly("architecture", [](const LoadedModel& self) { return self.model->architecture(); })
      .def_property_readonly("facts", [](const LoadedModel& self) { return fact_list(self.model->facts()); })
      .def_property_readonly("warnings", [](const LoadedModel& self) { return self.model->warnings(); })
      .def_property_readonly(
          "weights", [](const LoadedModel& self) { return weight_list(self.model->weight_summaries()); },
          "For each tensor: its type, shape, kernels by ascending number of rows, layout and bytes.")
      .def_property_readonly("memory", [](const LoadedModel& self) { return memory_dict(self.model->memory()); })
      .def_property_readonly("packed", &packed_dict,
                             "The cache of packed weights: the `path` of its file (None if the device supports no "
                             "cache), whether it `was_read`, and `why` not. None without a cache.")
      .def("try_cache_types", &run_cache_trial, py::arg("tokens"), py::kw_only(), py::arg("n_judged"),
           py::arg("kv_dtype"),
           "Compares the predictions at the last tokens of a text with a cache of these types, but for the layers that "
           "an override names, and with an f32 cache. "
           "Releases the GIL. Raises InvalidArgument if an engine runs, and ResourceExhausted.")
      .def("rest", &rest,
           "Ends the threads that compute, so that the process can fork; an engine starts them again. False if the "
           "model's device does not outlive a fork. Releases the GIL. Raises InvalidArgument if an engine runs.")
      .def("write_packed", &write_packed, py::arg("goes_on"),
           "Writes the file of cached packed weights. Releases the GIL. Calls `goes_on()` now and "
           "then; if it returns False, removes the unfinished file and returns False. Raises "
           "ModelError if the file cannot be written, or must not be written yet.")
      .def_property_readonly("vocab_size", [](const LoadedModel& self) { return self.model->config().vocab_size; })
      .def_property_readonly("n_tokens", [](const LoadedModel& self) { return self.model->config().n_tokens; })
      .def_property_readonly(
          "has_head", [](const LoadedModel& self) { return self.model->config().has_head; },
          "Whether it makes logits, and so text.")
      .def_property_readonly(
          "pooling", [](const LoadedModel& self) { return name_of(self.model->config().pooling); },
          "How the rows of a text become a vector: mean, cls, last, or rank for a score. none: the model makes no "
          "vectors.")
      .def_property_readonly(
          "vector_width", [](const LoadedModel& self) { return self.model->config().pooling_facts().width; },
          "Numbers of a vector. 0: the model makes none.")
      .def_property_readonly(
          "n_token_types", [](const LoadedModel& self) { return self.model->config().pooling_facts().n_token_types; },
          "Types that tokens may have. 0: they have none.")
      .def_property_readonly(
          "needs_whole_texts",
          [](const LoadedModel& self) { return self.model->config().pooling_facts().needs_whole_texts; },
          "Whether one step evaluates all tokens of a text whose vector is made.")
      .def_property_readonly("max_context", [](const LoadedModel& self) { return self.model->config().max_context; })
      .def_property_readonly(
          "head",
          [](const LoadedModel& self) {
            return self.model->head() ? std::optional(self.model->head()->config.kind) : std::nullopt;
          },
          "The kind of the draft head: nextn, eagle3 or assistant. None: there is none.")
      .def_property_readonly(
          "vision",
          [](const LoadedModel& self) {
            if (self.vision == nullptr) return py::object(py::none());
            const ModelVision& vision = *self.vision;
            return py::object(vision_dict(vision.family, vision.model.config, vision.weights, self.model->config()));
          },
          "What the vision tower reads and makes. None: the model reads no images.")
      .def_property_readonly("media_rows",
                             [](const LoadedModel& self) { return self.vision ? self.vision->media_rows : 0; })
      .def_property_readonly("n_blocks", [](const LoadedModel& self) { return self.model->memory().n_blocks; })
      .def_property_readonly("n_state_slots",
                             [](const LoadedModel& self) { return self.model->memory().n_state_slots; })
      .def_property_readonly("kv_block_tokens", [](const LoadedModel& self) { return self.model->kv_block_tokens(); })
      .def_property_readonly(
          "kv_dtypes",
          [](const LoadedModel& self) {
            const ModelConfig& config = self.model->config();
            std::vector<std::string> words;
            for (const KvTypes types : config.kv_types_by_layer(config.kv_types)) words.push_back(text_of(types));
            return words;
          },
          "The types of keys and values, by layer of the cache.")
      .def_property_readonly("suppressed_tokens",
                             [](const LoadedModel& self) { return self.model->config().suppressed_tokens; })
      .def_property_readonly(
          "scratch_bytes", [](const LoadedModel& self) { return self.backend->scratch_bytes(); },
          "Scratch memory of the ops, without activations.")
      .def_property_readonly(
          "windows",
          [](const LoadedModel& self) {
            std::vector<int> windows;
            for (const LayerConfig& layer : self.model->config().layers) windows.push_back(layer.window);
            return windows;
          },
          "For each layer the number of tokens that attention looks back. 0: all.")
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
          "The number of runs of each op and kernel, by name.")
      .def_property_readonly(
          "draft",
          [](const LoadedModel& self) -> py::object {
            if (self.draft == nullptr) return py::none();
            const ModelConfig& config = self.draft->config();
            return py::dict(py::arg("architecture") = self.draft->architecture(),
                            py::arg("vocab_size") = config.vocab_size, py::arg("n_tokens") = config.n_tokens,
                            py::arg("max_context") = config.max_context,
                            py::arg("n_blocks") = self.draft->memory().n_blocks, py::arg("cost") = self.draft_cost,
                            py::arg("guesses") = may_guess(config));
          },
          "The draft model, or None. `cost` is the time of its steps by that of the model's, by the bytes that they "
          "read; `guesses`: whether it may guess, and not only score prompts.")
      .def_property_readonly("device_name", [](const LoadedModel& self) { return self.backend->device_name(); })
      .def_property_readonly("n_threads", [](const LoadedModel& self) { return self.backend->n_threads(); });

  module.def("plan_model", &plan_model, py::arg("file"), py::kw_only(),
             py::arg_v("overrides", ModelOverrides{}, "ModelOverrides()"), py::arg("draft") = py::none(),
             "Plans what Model.load would do with the same arguments, without reading a weight: "
             "facts, and the kernels and bytes of each tensor. `memory` is None if the memory is too "
             "small, and `refusal` then says why. Raises ModelError.");
  module.def(
      "inspect_model",
      [](const ModelFile& file, const ModelOverrides& overrides) {
        const ResolvedModel model = resolve_model(file, overrides);
        return py::dict(py::arg("architecture") = std::string(model.architecture->name),
                        py::arg("facts") = fact_list(model.facts), py::arg("warnings") = model.warnings);
      },
      py::arg("file"), py::arg_v("overrides", ModelOverrides{}, "ModelOverrides()"),
      "Describes a checkpoint without loading it: every fact with its value, origin and "
      "source. Raises ModelError.");
}

}  // namespace imp::bindings

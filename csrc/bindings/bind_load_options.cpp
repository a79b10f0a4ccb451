// The keywords of a load, which are also those of its plan.
#include "bindings/load_options.h"

#include <pybind11/stl.h>
#include <pybind11/stl/filesystem.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <type_traits>
#include <utility>

#include "bindings/keywords.h"
#include "bindings/register.h"
#include "bindings/tuning.h"

namespace py = pybind11;

namespace imp::bindings {
namespace {

// Binds a member of the options, which `find` returns, as an attribute.
template <class Find>
void def_attribute(py::class_<PythonLoadOptions>& bound, const char* name, Find find, const char* text = "") {
  using Value = std::remove_reference_t<decltype(find(std::declval<PythonLoadOptions&>()))>;
  bound.def_property(
      name, [find](PythonLoadOptions& self) { return find(self); },
      [find](PythonLoadOptions& self, const Value& value) { find(self) = value; }, text);
}

}  // namespace

void register_load_options(py::module_& module) {
  using Options = PythonLoadOptions;
  py::class_<Options> bound(module, "LoadOptions", "The device and the memory of a model. Keywords set attributes.");
  bound.def(from_keywords<Options>());
  def_attribute(bound, "device", [](Options& self) -> auto& { return self.device.kind; });
  def_attribute(bound, "isa", [](Options& self) -> auto& { return self.device.isa; });
  def_attribute(bound, "threads", [](Options& self) -> auto& { return self.device.n_threads; });
  def_attribute(bound, "cpus", [](Options& self) -> auto& { return self.device.cpus; });
  def_attribute(bound, "huge_pages", [](Options& self) -> auto& { return self.device.memory.huge_pages; });
  def_attribute(bound, "interleave_nodes", [](Options& self) -> auto& { return self.device.memory.interleave_nodes; });
  def_attribute(
      bound, "cublaslt", [](Options& self) -> auto& { return self.device.cublaslt; },
      "Where to look for cuBLASLt, in order: paths, or names for the dynamic loader. Empty: "
      "imp does not use it.");
  def_attribute(bound, "max_rows", [](Options& self) -> auto& { return self.load.limits.max_rows; });
  def_attribute(bound, "max_logits_rows", [](Options& self) -> auto& { return self.load.limits.max_logits_rows; });
  def_attribute(
      bound, "takes_media", [](Options& self) -> auto& { return self.load.limits.takes_media; },
      "Batches may have rows of encodings in place of embeddings.");
  def_attribute(bound, "kv_block_tokens", [](Options& self) -> auto& { return self.load.kv_block_tokens; });
  def_attribute(bound, "reserve_bytes", [](Options& self) -> auto& { return self.load.reserve_bytes; });
  def_attribute(bound, "kv_bytes", [](Options& self) -> auto& { return self.load.kv_bytes; });
  def_attribute(
      bound, "draft_kv_bytes", [](Options& self) -> auto& { return self.load.draft_kv_bytes; },
      "Cache of the draft model. None: a quarter of the model's.");
  def_attribute(
      bound, "with_own_head", [](Options& self) -> auto& { return self.load.with_own_head; },
      "Loads the draft head of the model's own file, if it has one.");
  bound.def_property(
      "head_file", nullptr, [](Options& self, const ModelFile* file) { self.load.head_file = file; },
      "The open file of a draft head. None: the model's own.");
  def_attribute(
      bound, "vision", [](Options& self) -> auto& { return self.load.vision; },
      "Loads a vision tower: that of `projector_file`, or that of the model's own directory if it has one.");
  bound.def_property(
      "projector_file", nullptr, [](Options& self, const ModelFile* file) { self.load.projector_file = file; },
      "The open file of a projector (mmproj). None: the model's own directory.");
  def_attribute(
      bound, "projector_may_not_fit", [](Options& self) -> auto& { return self.load.projector_may_not_fit; },
      "A projector of another model, or of a family that imp does not run, is left out with a warning.");
  def_attribute(
      bound, "media_bytes", [](Options& self) -> auto& { return self.load.media_bytes; },
      "Memory for encodings of images. None: two of the largest image, but at least 64 MiB.");
  def_attribute(
      bound, "image_cells", [](Options& self) -> auto& { return self.load.image_cells; },
      "The most cells of an image in families that read images of any size.");
  def_attribute(
      bound, "draft_scores_prompts", [](Options& self) -> auto& { return self.load.draft_scores_prompts; },
      "The draft model chooses the part of prompts that is evaluated.");
  def_attribute(bound, "max_running", [](Options& self) -> auto& { return self.load.max_running; });
  def_attribute(
      bound, "state_snapshot_bytes", [](Options& self) -> auto& { return self.load.state_snapshot_bytes; },
      "Memory for snapshots of recurrent states. None: load() chooses.");
  bound.def_property(
      "memory_bytes", [](const Options& self) { return self.load.memory_bytes; },
      [](Options& self, std::optional<std::uint64_t> bytes) {
        self.load.memory_bytes = bytes.value_or(LoadOptions{}.memory_bytes);
      },
      "Limit of the sum of weights, cache, scratch, logits and `reserve_bytes`. None: no limit.");
  bound.def_property(
      "tuning", nullptr, [](Options& self, const PythonTuning& tuning) { self.device.tuning = preferences_of(tuning); },
      "Triples (weight type, kernel, largest number of rows or None), by ascending rows of "
      "each type.");
  bound.def_property(
      "packed_cache", nullptr,
      [](Options& self, const std::optional<std::filesystem::path>& folder) {
        self.load.packed_cache = folder ? folder->string() : "";
      },
      "Folder of cached packed weights. None: no cache.");
}

}  // namespace imp::bindings

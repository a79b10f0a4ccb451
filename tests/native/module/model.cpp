// Raw forward passes, memory plans and rotary frequencies, for the tests.
#include "native/module/model.h"

#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <map>
#include <memory>
#include <numeric>
#include <vector>

#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/kv/cpu_kv_pool.h"
#include "model/arch/registry.h"
#include "model/config/apply_overrides.h"
#include "model/config/rope.h"
#include "model/config/validate.h"
#include "model/loaded_model.h"
#include "model/memory_plan.h"
#include "native/module/backend_memory.h"
#include "native/module/device.h"

namespace py = pybind11;

namespace imp::bindings {
namespace {

// The part of one sequence in a batch, as a test gives it.
struct SequenceInput {
  std::vector<std::int32_t> tokens;
  int first_position = 0;
  std::vector<std::int32_t> blocks;
  std::vector<std::int32_t> ends;                    // as in SequenceRows
  std::vector<std::vector<std::int32_t>> positions;  // of each plane; empty: those of text

  std::int32_t position(int plane, std::size_t row) const {
    return positions.empty() ? first_position + static_cast<int>(row) : positions.at(std::size_t(plane)).at(row);
  }
};

// (first row of the batch, values, which of their rows)
using Placed = std::tuple<int, Floats, std::vector<std::int32_t>>;

// All keys, then all values of a block in one layer, as they are stored.
py::bytes block_of(const KvPool& cache, int layer, std::int32_t block) {
  const auto& pool = static_cast<const cpu::CpuKvPool&>(cache);
  std::string bytes;
  for (const std::span<const std::byte> part : {pool.k_block(layer, block), pool.v_block(layer, block)}) {
    bytes.append(reinterpret_cast<const char*>(part.data()), part.size());
  }
  return bytes;
}

// A decoder with a cache: each run() is one forward pass over exactly the rows given. A recurrent state belongs to the
// first block of its sequence, and begins anew at position 0.
class Forward {
 public:
  Forward(const LoadedModel& loaded, int n_blocks)
      : loaded_(loaded), pool_(loaded.backend->make_kv_pool(geometry(loaded, n_blocks))) {}

  py::array_t<float> run(const std::vector<SequenceInput>& inputs, const std::vector<std::int32_t>& logits_rows,
                         const std::vector<Placed>& placed, const std::vector<std::int32_t>& types,
                         const std::vector<std::int32_t>& pooled) {
    std::vector<std::int32_t> tokens, positions;
    std::vector<SequenceRows> sequences;
    std::vector<StateSave> saves(inputs.size());
    for (const SequenceInput& input : inputs) {
      sequences.push_back({.first_row = static_cast<int>(tokens.size()),
                           .n_rows = static_cast<int>(input.tokens.size()),
                           .first_position = input.first_position,
                           .blocks = input.blocks,
                           .ends = input.ends});
      if (has_state()) add_state(sequences.back(), saves[sequences.size() - 1]);
      tokens.insert(tokens.end(), input.tokens.begin(), input.tokens.end());
    }
    for (int plane = 0; plane < loaded_.decoder->n_planes(); ++plane) {
      for (const SequenceInput& input : inputs) {
        for (std::size_t row = 0; row < input.tokens.size(); ++row) positions.push_back(input.position(plane, row));
      }
    }
    std::vector<PlacedRows> on_device;
    for (const auto& [first_row, values, which] : placed) {
      on_device.push_back({.first_row = first_row, .from = to_rows(values), .rows = which});
    }
    const Rows rows = loaded_.decoder->forward({.tokens = tokens,
                                                .positions = positions,
                                                .sequences = sequences,
                                                .logits_rows = logits_rows,
                                                .placed = on_device,
                                                .types = types,
                                                .pooled = pooled},
                                               *pool_);
    return to_array(rows);
  }

  // Of the last run.
  py::array_t<float> vectors() const { return to_array(loaded_.decoder->pooled()); }

  py::bytes block(int layer, std::int32_t block) const { return block_of(*pool_, layer, block); }

  void fill_scratch(std::uint8_t value) { bindings::fill_scratch(*loaded_.backend, value); }

  int n_planes() const { return loaded_.decoder->n_planes(); }

  std::map<std::string, std::uint64_t> launches() const {
    std::map<std::string, std::uint64_t> found;
    for (const Launch& launch : loaded_.backend->launches()) found[std::string(launch.name)] = launch.count;
    return found;
  }

 private:
  static KvGeometry geometry(const LoadedModel& loaded, int n_blocks) {
    return loaded.decoder->kv_geometry(n_blocks, 2 * n_blocks);
  }
  py::array_t<float> to_array(Rows rows) const {
    py::array_t<float> array({rows.n_rows, rows.width});
    for (int row = 0; row < rows.n_rows; ++row) {
      loaded_.backend->read_row(rows, row, {array.mutable_data(row), static_cast<std::size_t>(rows.width)});
    }
    return array;
  }
  Rows to_rows(const Floats& values) const {
    const Rows rows = loaded_.backend->make_rows(static_cast<int>(values.shape(0)), static_cast<int>(values.shape(1)));
    for (py::ssize_t row = 0; row < values.shape(0); ++row) {
      write_device(*loaded_.backend, rows.data + row * rows.stride, values.data(row, 0),
                   static_cast<std::size_t>(rows.width) * sizeof(float));
    }
    return rows;
  }
  bool has_state() const { return pool_->geometry().state.n_layers > 0; }

  // Each block has two slots: one is read, and the other one is written.
  void add_state(SequenceRows& sequence, StateSave& save) {
    const std::int32_t block = sequence.blocks.front();
    if (sequence.first_position > 0) sequence.state = slots_.at(block);
    const std::int32_t next = sequence.state == 2 * block ? 2 * block + 1 : 2 * block;
    save = {.n_rows = sequence.n_rows, .slot = next};
    sequence.state_saves = {&save, 1};
    slots_[block] = next;
  }

  const LoadedModel& loaded_;
  std::map<std::int32_t, std::int32_t> slots_;  // by the first block of a sequence
  std::unique_ptr<KvPool> pool_;
};

using Ids = std::vector<std::int32_t>;

// Both caches have the same block numbers, in an order that is not ascending.
class HeadForward {
 public:
  HeadForward(const LoadedModel& loaded, int n_blocks)
      : loaded_(loaded),
        pool_(loaded.backend->make_kv_pool(loaded.decoder->kv_geometry(n_blocks, kSlots))),
        head_pool_(own_pool(loaded, n_blocks)) {
    for (int block = n_blocks - 1; block >= 0; --block) blocks_.push_back(block);
  }

  // One step of the target. A recurrent state is read from one slot and written to the other.
  void evaluate(const Ids& tokens, int first_position) {
    const Ids positions = in_all_planes(positions_from(first_position, tokens.size()));
    SequenceRows rows = sequence_of(tokens.size(), first_position);
    StateSave save;
    if (pool_->geometry().state.n_layers > 0) {
      if (first_position > 0) rows.state = slot_;
      slot_ = (slot_ + 1) % kSlots;
      save = {.n_rows = rows.n_rows, .slot = slot_};
      rows.state_saves = {&save, 1};
    }
    loaded_.decoder->forward({.tokens = tokens, .positions = positions, .sequences = {&rows, 1}, .logits_rows = {}},
                             *pool_);
  }

  // Of the target's cache.
  py::bytes block(int layer, std::int32_t block) const { return block_of(*pool_, layer, block); }

  py::array_t<float> hidden() { return array_of(loaded_.decoder->hidden()); }

  // next[i] follows row from[i] of the last evaluate(), which is at first_position + i.
  void observe(const Ids& next, int first_position, const Ids& from) {
    const Ids positions = in_all_planes(positions_from(first_position, next.size()));
    const SequenceRows rows = sequence_of(next.size(), first_position);
    loaded_.head->observe({.tokens = next, .positions = positions, .sequences = {&rows, 1}, .logits_rows = {}},
                          loaded_.decoder->hidden(), from, head_pool_.get());
  }

  // cells: the last one that each row sees.
  py::array_t<float> guess(const Ids& rows, const Ids& positions, const Ids& cells) {
    std::vector<SequenceRows> sequences;
    for (const std::int32_t cell : cells.empty() ? positions : cells) {
      sequences.push_back(sequence_of(1, cell));
      sequences.back().first_row = static_cast<int>(sequences.size()) - 1;
    }
    const Ids in_planes = in_all_planes(positions);
    return array_of(
        loaded_.head->guess({.tokens = {}, .positions = in_planes, .sequences = sequences, .logits_rows = {}}, rows,
                            head_pool_ ? *head_pool_ : *pool_));
  }

  void observe_guesses(std::int32_t token, std::int32_t position, std::int32_t from) {
    const SequenceRows rows = sequence_of(1, position);
    const Ids positions = in_all_planes({position});
    loaded_.head->observe_guesses(
        {.tokens = {&token, 1}, .positions = positions, .sequences = {&rows, 1}, .logits_rows = {}}, {&from, 1},
        head_pool_.get());
  }

 private:
  static Ids positions_from(int first, std::size_t n) {
    Ids positions(n);
    std::iota(positions.begin(), positions.end(), first);
    return positions;
  }
  Ids in_all_planes(const Ids& positions) const {
    Ids all;
    for (int i = 0; i < loaded_.decoder->n_planes(); ++i) all.insert(all.end(), positions.begin(), positions.end());
    return all;
  }
  SequenceRows sequence_of(std::size_t n_rows, int first_position) const {
    return {.first_row = 0, .n_rows = static_cast<int>(n_rows), .first_position = first_position, .blocks = blocks_};
  }
  py::array_t<float> array_of(Rows rows) const {
    py::array_t<float> array({rows.n_rows, rows.width});
    for (int row = 0; row < rows.n_rows; ++row) {
      loaded_.backend->read_row(rows, row, {array.mutable_data(row), static_cast<std::size_t>(rows.width)});
    }
    return array;
  }

  static std::unique_ptr<KvPool> own_pool(const LoadedModel& loaded, int n_blocks) {
    const auto geometry = loaded.head->kv_geometry(n_blocks);
    return geometry ? loaded.backend->make_kv_pool(*geometry) : nullptr;
  }

  static constexpr int kSlots = 2;

  const LoadedModel& loaded_;
  std::unique_ptr<KvPool> pool_, head_pool_;  // the head may have none of its own
  std::int32_t slot_ = 0;
  Ids blocks_;
};

// A model whose decoder takes media. What is given replaces what its architecture says: the layers in which rows of
// media see later keys, and the planes by which pairs rotate.
std::unique_ptr<LoadedModel> load_for_media(const ModelFile& file, const ModelOverrides& overrides,
                                            const std::string& device, bool takes_media,
                                            const std::optional<std::vector<std::size_t>>& layers_ahead,
                                            const std::optional<std::vector<std::uint8_t>>& planes, bool with_head) {
  DeviceOptions device_options;
  device_options.kind = device;
  LoadOptions options;
  options.limits = {.max_rows = 256, .max_logits_rows = 256, .takes_media = takes_media};
  options.kv_bytes = 1 << 20;
  options.with_own_head = with_head;
  auto loaded = std::make_unique<LoadedModel>();
  loaded->backend = make_backend(device_options);
  Backend& backend = *loaded->backend;
  LoadPlan plan = plan_load(file, backend, overrides, options);
  ModelConfig& config = plan.resolved.config;
  if (layers_ahead) {
    for (LayerConfig& layer : config.layers) layer.ahead = 0;
    for (const std::size_t layer : *layers_ahead) config.layers.at(layer).ahead = kAllAhead;
  }
  if (planes) config.ropes.front().planes = *planes;
  validate(config, {}, file.name(), Reason::MODEL_CONFIG);
  MemoryPlan memory = plan_memory(plan.memory);
  loaded->model = load_planned(file, backend, std::move(plan), std::move(memory), options);
  const std::optional<HeadModel>& head = loaded->model->head();
  loaded->decoder = std::make_unique<Decoder>(*loaded->model, backend, options.limits,
                                              HiddenRows{.are_kept = head.has_value(), .taps = {}});
  if (head) loaded->head = make_draft_head(*head, *loaded->model, backend, options.limits);
  return loaded;
}

py::dict plan_dict(std::uint64_t budget_bytes, std::uint64_t weights_bytes, std::uint64_t scratch_bytes,
                   std::uint64_t logits_bytes, std::uint64_t reserve_bytes, std::uint64_t kv_block_bytes,
                   int kv_block_tokens, std::optional<std::uint64_t> kv_bytes, int model_context,
                   std::optional<int> max_context, bool is_for_models, std::uint64_t state_slot_bytes, int max_running,
                   std::optional<std::uint64_t> state_snapshot_bytes, std::uint64_t head_bytes,
                   std::uint64_t head_block_bytes, std::uint64_t projector_bytes, std::uint64_t media_bytes) {
  const MemoryPlan plan = plan_memory({.budget_bytes = budget_bytes,
                                       .weights_bytes = weights_bytes,
                                       .scratch_bytes = scratch_bytes,
                                       .logits_bytes = logits_bytes,
                                       .reserve_bytes = reserve_bytes,
                                       .kv_block_bytes = kv_block_bytes,
                                       .kv_block_tokens = kv_block_tokens,
                                       .kv_bytes = kv_bytes,
                                       .head_bytes = head_bytes,
                                       .head_block_bytes = head_block_bytes,
                                       .projector_bytes = projector_bytes,
                                       .media_bytes = media_bytes,
                                       .state_slot_bytes = state_slot_bytes,
                                       .max_running = max_running,
                                       .state_snapshot_bytes = state_snapshot_bytes,
                                       .model_context = model_context,
                                       .max_context = max_context,
                                       .is_for_models = is_for_models});
  py::dict items;
  for (const MemoryItem& item : plan.items) items[py::str(item.name)] = item.bytes;
  return py::dict(py::arg("items") = items, py::arg("n_blocks") = plan.n_blocks,
                  py::arg("n_state_slots") = plan.n_state_slots, py::arg("max_context") = plan.max_context);
}

// Frequencies and magnitude of a rope with the scaling of an override.
py::tuple rope_frequencies(int dims, double theta, const RopeScalingOverride& scaling,
                           const std::vector<float>& factors, bool truncated, double mscale, double mscale_all_dim) {
  ModelConfig config;
  RopeConfig from{.style = RopeStyle::halves, .dims = dims, .theta = theta, .scaling = {}};
  from.scaling.mscale = mscale;
  from.scaling.mscale_all_dim = mscale_all_dim;
  from.scaling.truncated = truncated;
  config.ropes.push_back(from);
  Origins origins;
  ModelOverrides overrides;
  overrides.rope_scaling = scaling;
  apply_overrides(overrides, config, origins);
  const Rope rope = resolve_rope(config.ropes.front(), factors);
  return py::make_tuple(rope.frequencies, rope.magnitude);
}

}  // namespace

void register_model_testing(py::module_& module) {
  py::class_<SequenceInput>(module, "SequenceInput")
      .def(py::init<std::vector<std::int32_t>, int, std::vector<std::int32_t>, std::vector<std::int32_t>,
                    std::vector<std::vector<std::int32_t>>>(),
           py::arg("tokens"), py::arg("first_position"), py::arg("blocks"), py::arg("ends") = Ids{},
           py::arg("positions") = std::vector<Ids>{});
  py::class_<Forward>(module, "Forward")
      .def(py::init<const LoadedModel&, int>(), py::arg("model"), py::arg("n_blocks"), py::keep_alive<1, 2>())
      .def("run", &Forward::run, py::arg("sequences"), py::arg("logits_rows"),
           py::arg("placed") = std::vector<Placed>{}, py::arg("types") = Ids{}, py::arg("pooled") = Ids{})
      .def("vectors", &Forward::vectors)
      .def_property_readonly("launches", &Forward::launches)
      .def_property_readonly("n_planes", &Forward::n_planes)
      .def("block", &Forward::block, py::arg("layer"), py::arg("block"))
      .def("fill_scratch", &Forward::fill_scratch, py::arg("value"));
  py::class_<HeadForward>(module, "HeadForward")
      .def(py::init<const LoadedModel&, int>(), py::arg("model"), py::arg("n_blocks"), py::keep_alive<1, 2>())
      .def("evaluate", &HeadForward::evaluate, py::arg("tokens"), py::arg("first_position"))
      .def("hidden", &HeadForward::hidden)
      .def("observe", &HeadForward::observe, py::arg("next"), py::arg("first_position"), py::arg("source_rows"))
      .def("guess", &HeadForward::guess, py::arg("rows"), py::arg("positions"), py::arg("cells") = Ids{})
      .def("block", &HeadForward::block, py::arg("layer"), py::arg("block"))
      .def("observe_guesses", &HeadForward::observe_guesses, py::arg("token"), py::arg("position"),
           py::arg("source_row"));
  module.def("load_for_media", &load_for_media, py::arg("file"), py::kw_only(), py::arg("overrides") = ModelOverrides{},
             py::arg("device") = "cpu", py::arg("takes_media") = true, py::arg("layers_ahead") = py::none(),
             py::arg("planes") = py::none(), py::arg("with_head") = false);
  // What the decoder needs of encodings.
  module.def("media_traits", [](const LoadedModel& model) {
    const ModelConfig& config = model.model->config();
    std::vector<int> ahead;
    for (const LayerConfig& layer : config.layers) ahead.push_back(layer.ahead > 0 ? 1 : 0);
    return py::dict(
        py::arg("width") = config.media_width(), py::arg("is_atomic") = config.has_atomic_media(),
        py::arg("cell_token") = config.cell_token(-1), py::arg("layers_ahead") = ahead,
        py::arg("planes") = std::vector<int>(config.ropes.front().planes.begin(), config.ropes.front().planes.end()));
  });
  module.def("plan_memory", &plan_dict, py::kw_only(), py::arg("budget_bytes"), py::arg("weights_bytes"),
             py::arg("scratch_bytes"), py::arg("logits_bytes"), py::arg("reserve_bytes"), py::arg("kv_block_bytes"),
             py::arg("kv_block_tokens"), py::arg("kv_bytes"), py::arg("model_context"), py::arg("max_context"),
             py::arg("is_for_models") = false, py::arg("state_slot_bytes") = 0, py::arg("max_running") = 1,
             py::arg("state_snapshot_bytes") = py::none(), py::arg("head_bytes") = 0, py::arg("head_block_bytes") = 0,
             py::arg("projector_bytes") = 0, py::arg("media_bytes") = 0);
  module.def("rope_frequencies", &rope_frequencies, py::arg("dims"), py::arg("theta"), py::arg("scaling"),
             py::arg("factors") = std::vector<float>{}, py::kw_only(), py::arg("truncated") = true,
             py::arg("mscale") = 1.0, py::arg("mscale_all_dim") = 0.0);
  module.def("architectures", [](const std::string& format) {
    std::vector<std::string> names;
    for (const Architecture& architecture : all_architectures()) {
      if ((architecture.format == ModelFormat::gguf) == (format == "gguf")) names.emplace_back(architecture.name);
    }
    return names;
  });
}

}  // namespace imp::bindings

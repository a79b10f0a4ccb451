// `_testing.Cache`: a KV pool with its backend. It appends, attends, and returns the bytes of blocks.
#include <pybind11/stl.h>

#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/kv/cpu_kv_pool.h"
#include "base/error.h"
#include "native/module/backend_memory.h"
#include "native/module/device.h"
#include "native/module/ops.h"

namespace py = pybind11;

namespace imp::bindings {
namespace {

// (rows of the batch, position of the first, blocks)
using Sequence = std::tuple<int, int, std::vector<std::int32_t>>;

// (n_kv_heads, head_dim)
using Layer = std::pair<int, int>;

KvGeometry geometry_of(const std::string& dtype, int n_layers, Layer layer, const std::vector<Layer>& others,
                       int n_blocks, int block_tokens) {
  const auto types = kv_types_from(dtype);
  if (!types) throw std::invalid_argument("no types " + dtype);
  KvGeometry geometry = {.layers = equal_layers(n_layers, {layer.first, layer.second, *types}),
                         .block_tokens = block_tokens,
                         .n_blocks = n_blocks};
  for (const auto& [n_kv_heads, head_dim] : others) geometry.layers.push_back({n_kv_heads, head_dim, *types});
  return geometry;
}

class TestingCache {
 public:
  TestingCache(std::shared_ptr<TestingDevice> device, const std::string& dtype, int n_layers, int n_kv_heads,
               int head_dim, const std::vector<Layer>& other_layers, int n_blocks, int block_tokens)
      : device_(std::move(device)),
        pool_(device_->backend().make_kv_pool(
            geometry_of(dtype, n_layers, {n_kv_heads, head_dim}, other_layers, n_blocks, block_tokens))) {}

  std::size_t n_bytes() const { return pool_->n_bytes(); }

  // Sets every byte, also of unused blocks.
  void fill(std::uint8_t value) {
    const std::vector<std::uint8_t> bytes(memory_of(*pool_).size(), value);
    write_device(device_->backend(), memory_of(*pool_).data(), bytes.data(), bytes.size());
  }

  py::bytes memory() {
    std::string bytes(memory_of(*pool_).size(), '\0');
    read_device(device_->backend(), bytes.data(), memory_of(*pool_).data(), bytes.size());
    return bytes;
  }

  // (K, V) of all heads, in the CPU's layout.
  py::tuple block_bytes(int layer, std::int32_t block) const {
    const auto& pool = dynamic_cast<const cpu::CpuKvPool&>(*pool_);
    const auto bytes = [](std::span<const std::byte> span) {
      return py::bytes(reinterpret_cast<const char*>(span.data()), span.size());
    };
    return py::make_tuple(bytes(pool.k_block(layer, block)), bytes(pool.v_block(layer, block)));
  }

  void append(int layer, const std::vector<Sequence>& sequences, const Floats& k, const Floats& v) {
    const std::vector<SequenceRows> batch = rows_of(sequences);
    reserve(batch, static_cast<int>(k.shape(0)), params_of(layer, pool_->geometry().layer(layer).n_kv_heads, 1, 0, 0),
            0);
    device_->backend().append_kv(*pool_, layer, batch, device_->to_rows(k), device_->to_rows(v));
  }

  // Returns the rotated q. The norm weights [head_dim] are optional.
  Floats rope_append(int layer, const std::vector<Sequence>& sequences, const std::array<Floats, 3>& qkv, bool adjacent,
                     const Floats& angles, const std::optional<Floats>& q_norm, const std::optional<Floats>& k_norm,
                     float epsilon) {
    const std::vector<SequenceRows> batch = rows_of(sequences);
    reserve(batch, static_cast<int>(qkv[0].shape(0)),
            params_of(layer, pool_->geometry().layer(layer).n_kv_heads, 1, 0, 0), 0);
    const Rope rope = {.style = adjacent ? RopeStyle::adjacent : RopeStyle::halves,
                       .dims = static_cast<int>(angles.shape(1)),
                       .frequencies = {}};
    const auto q_weight = q_norm ? load(*q_norm) : nullptr, k_weight = k_norm ? load(*k_norm) : nullptr;
    const Rows q = device_->to_rows(qkv[0]);
    device_->backend().rope_append(*pool_, layer, batch, pool_->geometry().layer(layer).head_dim, rope,
                                   device_->to_rows(angles), {q, {q_weight.get(), epsilon}},
                                   {device_->to_rows(qkv[1]), {k_weight.get(), epsilon}}, device_->to_rows(qkv[2]));
    return device_->to_array(q);
  }

  // ends, starts: of the rows of each sequence; empty, or empty for a sequence: its rows have none.
  // max_context 0: the length of the longest sequence; max_sequences 0: the number of sequences. Larger values reserve
  // more scratch.
  Floats attend(int layer, const std::vector<Sequence>& sequences, const Floats& q, int n_heads, float scale,
                float soft_cap, int window, const std::optional<Floats>& sinks, std::optional<int> scratch_fill,
                int max_context, int max_sequences, int ahead, const std::vector<std::vector<std::int32_t>>& ends,
                const std::vector<std::vector<std::int32_t>>& starts) {
    AttentionParams params = params_of(layer, n_heads, scale, soft_cap, window);
    params.ahead = ahead;
    const auto sink_values = sinks ? load(*sinks) : nullptr;
    params.sinks = sink_values.get();
    const Rows rows = device_->to_rows(q);
    std::vector<SequenceRows> batch = rows_of(sequences);
    for (std::size_t i = 0; i < ends.size(); ++i) batch.at(i).ends = ends[i];
    for (std::size_t i = 0; i < starts.size(); ++i) batch.at(i).starts = starts[i];
    reserve(batch, rows.n_rows, params, max_context, max_sequences);
    Backend& backend = device_->backend();
    if (scratch_fill) fill_scratch(backend, static_cast<std::uint8_t>(*scratch_fill));
    const Rows out = device_->empty_rows(rows.n_rows, rows.width);
    backend.attend(*pool_, layer, batch, params, rows, out);
    return device_->to_array(out);
  }

  // Runs several steps with the same body; a backend may capture the second step and replay it. Each step is
  // (sequences, q), and its sequences have one row each. Returns a result for each step.
  std::vector<Floats> attend_in_steps(int layer, const std::vector<std::pair<std::vector<Sequence>, Floats>>& steps,
                                      int n_heads, float scale, float soft_cap, int window, int max_context) {
    struct Body final : StepBody {
      int layer = 0;
      AttentionParams params;
      Backend* backend = nullptr;
      Rows q, out;
      int max_rows() const noexcept override { return q.n_rows; }
      void run(const Batch& batch, KvPool& pool) override {
        Rows rows = q, results = out;
        rows.n_rows = results.n_rows = static_cast<int>(batch.tokens.size());
        backend->attend(pool, layer, batch.sequences, params, rows, results);
      }
    } body;
    body.layer = layer;
    body.params = params_of(layer, n_heads, scale, soft_cap, window);
    body.backend = &device_->backend();
    constexpr int kMaxRows = 64;
    body.q = device_->to_rows(Floats(std::vector<py::ssize_t>{kMaxRows, steps.front().second.shape(1)}));
    body.out = device_->empty_rows(kMaxRows, body.q.width);
    reserve({}, kMaxRows, body.params, max_context, kMaxRows);
    std::vector<Floats> results;
    for (const auto& [sequences, q] : steps) {
      const std::vector<SequenceRows> batch = rows_of(sequences);
      for (py::ssize_t row = 0; row < q.shape(0); ++row) {
        write_device(*body.backend, body.q.data + row * body.q.stride, q.data(row, 0),
                     static_cast<std::size_t>(body.q.width) * sizeof(float));
      }
      std::vector<std::int32_t> tokens(batch.size()), positions;
      for (const SequenceRows& sequence : batch) positions.push_back(sequence.first_position);
      body.backend->run_step({tokens, positions, batch, {}}, *pool_, body);
      Rows written = body.out;
      written.n_rows = static_cast<int>(batch.size());
      results.push_back(device_->to_array(written));
    }
    return results;
  }

  // Of one query; returns the greatest of `into` and the weights.
  std::vector<float> attention_mass(int layer, int position, const std::vector<std::int32_t>& blocks, const Floats& q,
                                    int n_heads, float scale, float soft_cap, int first_key, std::vector<float> into) {
    const AttentionParams params = params_of(layer, n_heads, scale, soft_cap, 0);
    const SequenceRows row = {.first_row = 0, .n_rows = 1, .first_position = position, .blocks = blocks};
    WorkspaceNeeds needs = needs_of({row}, 1, params, 0, 1);
    needs.ops = {Op::attention_mass};
    device_->backend().reserve(needs);
    device_->backend().attention_mass(*pool_, layer, row, params, device_->to_rows(q), first_key, into);
    return into;
  }

  void copy_block(std::int32_t from, std::int32_t to) { device_->backend().copy_block(*pool_, from, to); }

 private:
  std::unique_ptr<Vector> load(const Floats& values) const {
    return device_->backend().load_vector({values.data(), static_cast<std::size_t>(values.size())});
  }

  AttentionParams params_of(int layer, int n_heads, float scale, float soft_cap, int window) const {
    const KvLayer& kv = pool_->geometry().layer(layer);
    return {.n_heads = n_heads,
            .n_kv_heads = kv.n_kv_heads,
            .head_dim = kv.head_dim,
            .scale = scale,
            .soft_cap = soft_cap,
            .window = window};
  }

  static WorkspaceNeeds needs_of(const std::vector<SequenceRows>& batch, int n_rows, const AttentionParams& params,
                                 int max_context, int max_sequences) {
    int most = std::max(1, max_context);
    for (const SequenceRows& sequence : batch) most = std::max(most, sequence.first_position + sequence.n_rows);
    return {.max_rows = n_rows,
            .max_logits_rows = 1,
            .max_sequences = max_sequences > 0 ? max_sequences : static_cast<int>(batch.size()),
            .vocab_size = 16,
            .max_context = most,
            .attention = params,
            .weights = {}};
  }

  void reserve(const std::vector<SequenceRows>& batch, int n_rows, const AttentionParams& params, int max_context,
               int max_sequences = 0) {
    device_->backend().reserve(needs_of(batch, n_rows, params, max_context, max_sequences));
  }

  static std::vector<SequenceRows> rows_of(const std::vector<Sequence>& sequences) {
    std::vector<SequenceRows> rows;
    int first_row = 0;
    for (const auto& [n_rows, first_position, blocks] : sequences) {
      rows.push_back({.first_row = first_row, .n_rows = n_rows, .first_position = first_position, .blocks = blocks});
      first_row += n_rows;
    }
    return rows;
  }

  std::shared_ptr<TestingDevice> device_;
  std::unique_ptr<KvPool> pool_;
};

}  // namespace

void register_testing_attention(py::module_& module) {
  py::class_<TestingCache>(module, "Cache", "A KV pool. A sequence is (rows, position of the first, blocks).")
      .def(py::init<std::shared_ptr<TestingDevice>, const std::string&, int, int, int, const std::vector<Layer>&, int,
                    int>(),
           py::arg("device"), py::kw_only(), py::arg("dtype"), py::arg("n_layers"), py::arg("n_kv_heads"),
           py::arg("head_dim"), py::arg("other_layers") = std::vector<Layer>{}, py::arg("n_blocks"),
           py::arg("block_tokens") = 16)
      .def_property_readonly("n_bytes", &TestingCache::n_bytes)
      .def("fill", &TestingCache::fill, py::arg("value"))
      .def("memory", &TestingCache::memory)
      .def("block_bytes", &TestingCache::block_bytes, py::arg("layer"), py::arg("block"))
      .def("append", &TestingCache::append, py::arg("layer"), py::arg("sequences"), py::arg("k"), py::arg("v"))
      .def("rope_append", &TestingCache::rope_append, py::arg("layer"), py::arg("sequences"), py::arg("qkv"),
           py::arg("adjacent"), py::arg("angles"), py::arg("q_norm") = py::none(), py::arg("k_norm") = py::none(),
           py::arg("epsilon") = 1e-6F)
      .def("attend", &TestingCache::attend, py::arg("layer"), py::arg("sequences"), py::arg("q"), py::arg("n_heads"),
           py::arg("scale"), py::arg("soft_cap") = 0.0F, py::arg("window") = 0, py::arg("sinks") = py::none(),
           py::arg("scratch_fill") = py::none(), py::arg("max_context") = 0, py::arg("max_sequences") = 0,
           py::arg("ahead") = 0, py::arg("ends") = std::vector<std::vector<std::int32_t>>{},
           py::arg("starts") = std::vector<std::vector<std::int32_t>>{})
      .def("attend_in_steps", &TestingCache::attend_in_steps, py::arg("layer"), py::arg("steps"), py::arg("n_heads"),
           py::arg("scale"), py::arg("soft_cap") = 0.0F, py::arg("window") = 0, py::arg("max_context") = 0)
      .def("attention_mass", &TestingCache::attention_mass, py::arg("layer"), py::arg("position"), py::arg("blocks"),
           py::arg("q"), py::arg("n_heads"), py::arg("scale"), py::arg("soft_cap"), py::arg("first_key"),
           py::arg("into"))
      .def("copy_block", &TestingCache::copy_block, py::arg("source"), py::arg("target"));
  module.def(
      "attention_scratch_for",
      [](TestingDevice& device, int max_rows, int max_sequences, int max_context, int n_heads, int head_dim) {
        const WorkspaceNeeds needs = {.max_rows = max_rows,
                                      .max_logits_rows = 1,
                                      .max_sequences = max_sequences,
                                      .vocab_size = 16,
                                      .max_context = max_context,
                                      .attention = {.n_heads = n_heads, .n_kv_heads = 1, .head_dim = head_dim},
                                      .weights = {}};
        const std::size_t predicted = device.backend().scratch_bytes(needs);
        device.backend().reserve(needs);
        return py::make_tuple(predicted, device.backend().scratch_bytes());
      },
      py::arg("device"), py::kw_only(), py::arg("max_rows"), py::arg("max_sequences"), py::arg("max_context"),
      py::arg("n_heads"), py::arg("head_dim"),
      "The scratch bytes that a device predicts for such batches, and those that it holds after it reserved them.");
  module.def(
      "kv_bytes",
      [](TestingDevice& device, const std::string& dtype, int n_layers, int n_kv_heads, int head_dim,
         const std::vector<Layer>& other_layers, int n_blocks, int block_tokens) {
        return device.backend().kv_bytes(
            geometry_of(dtype, n_layers, {n_kv_heads, head_dim}, other_layers, n_blocks, block_tokens));
      },
      py::arg("device"), py::kw_only(), py::arg("dtype"), py::arg("n_layers"), py::arg("n_kv_heads"),
      py::arg("head_dim"), py::arg("other_layers") = std::vector<Layer>{}, py::arg("n_blocks"),
      py::arg("block_tokens") = 16, "The bytes of such a Cache.");
}

}  // namespace imp::bindings

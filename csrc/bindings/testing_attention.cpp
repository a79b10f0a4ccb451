// `_testing.Cache`: a KV pool with its backend: appends, attends, and shows its bytes.
#include <pybind11/stl.h>

#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/cpu_kv_pool.h"
#include "base/error.h"
#include "bindings/testing_device.h"
#include "bindings/testing_ops.h"

namespace py = pybind11;

namespace imp::bindings {
namespace {

// (rows of the batch, position of the first, blocks)
using Sequence = std::tuple<int, int, std::vector<std::int32_t>>;

class TestingCache {
 public:
  TestingCache(std::shared_ptr<TestingDevice> device, const std::string& dtype, int n_layers, int n_kv_heads,
               int head_dim, int n_blocks, int block_tokens)
      : device_(std::move(device)) {
    const auto type = dtype_from_name(dtype);
    if (!type) throw std::invalid_argument("no dtype " + dtype);
    pool_ = device_->backend().make_kv_pool({.n_layers = n_layers,
                                             .n_kv_heads = n_kv_heads,
                                             .head_dim = head_dim,
                                             .block_tokens = block_tokens,
                                             .n_blocks = n_blocks,
                                             .dtype = *type});
  }

  std::size_t n_bytes() const { return pool_->n_bytes(); }

  // Every byte, used or not.
  void fill(std::uint8_t value) {
    const auto& pool = static_cast<const cpu::CpuKvPool&>(*pool_);
    for (int layer = 0; layer < pool.geometry().n_layers; ++layer) {
      for (std::int32_t block = 0; block < pool.geometry().n_blocks; ++block) {
        std::ranges::fill(pool.k_block(layer, block), std::byte{value});
        std::ranges::fill(pool.v_block(layer, block), std::byte{value});
      }
    }
  }

  // (K, V) of all heads.
  py::tuple block_bytes(int layer, std::int32_t block) const {
    const auto& pool = static_cast<const cpu::CpuKvPool&>(*pool_);
    const auto bytes = [](std::span<const std::byte> span) {
      return py::bytes(reinterpret_cast<const char*>(span.data()), span.size());
    };
    return py::make_tuple(bytes(pool.k_block(layer, block)), bytes(pool.v_block(layer, block)));
  }

  void append(int layer, const std::vector<Sequence>& sequences, const Floats& k, const Floats& v) {
    device_->backend().append_kv(*pool_, layer, rows_of(sequences), device_->to_rows(k), device_->to_rows(v));
  }

  // max_context 0: what the longest sequence holds; more asks for more scratch.
  Floats attend(int layer, const std::vector<Sequence>& sequences, const Floats& q, int n_heads, float scale,
                float soft_cap, int window, std::optional<int> scratch_fill) {
    const KvGeometry& geometry = pool_->geometry();
    const AttentionParams params = {.n_heads = n_heads,
                                    .n_kv_heads = geometry.n_kv_heads,
                                    .head_dim = geometry.head_dim,
                                    .scale = scale,
                                    .soft_cap = soft_cap,
                                    .window = window};
    const Rows rows = device_->to_rows(q);
    const std::vector<SequenceRows> batch = rows_of(sequences);
    int most = 1;
    for (const SequenceRows& sequence : batch) most = std::max(most, sequence.first_position + sequence.n_rows);
    Backend& backend = device_->backend();
    backend.reserve({.max_rows = rows.n_rows,
                     .max_logits_rows = 1,
                     .vocab_size = 16,
                     .max_context = most,
                     .attention = params,
                     .weights = {}});
    if (scratch_fill) backend.fill_scratch(static_cast<std::uint8_t>(*scratch_fill));
    const Rows out = device_->empty_rows(rows.n_rows, rows.width);
    backend.attend(*pool_, layer, batch, params, rows, out);
    return device_->to_array(out);
  }

  void copy_block(std::int32_t from, std::int32_t to) { device_->backend().copy_block(*pool_, from, to); }

 private:
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
      .def(py::init<std::shared_ptr<TestingDevice>, const std::string&, int, int, int, int, int>(), py::arg("device"),
           py::kw_only(), py::arg("dtype"), py::arg("n_layers"), py::arg("n_kv_heads"), py::arg("head_dim"),
           py::arg("n_blocks"), py::arg("block_tokens") = 16)
      .def_property_readonly("n_bytes", &TestingCache::n_bytes)
      .def("fill", &TestingCache::fill, py::arg("value"))
      .def("block_bytes", &TestingCache::block_bytes, py::arg("layer"), py::arg("block"))
      .def("append", &TestingCache::append, py::arg("layer"), py::arg("sequences"), py::arg("k"), py::arg("v"))
      .def("attend", &TestingCache::attend, py::arg("layer"), py::arg("sequences"), py::arg("q"), py::arg("n_heads"),
           py::arg("scale"), py::arg("soft_cap") = 0.0F, py::arg("window") = 0, py::arg("scratch_fill") = py::none())
      .def("copy_block", &TestingCache::copy_block, py::arg("source"), py::arg("target"));
  module.def("kv_block_bytes", [](const std::string& dtype, int n_layers, int n_kv_heads, int head_dim, int tokens) {
    return kv_block_bytes({.n_layers = n_layers,
                           .n_kv_heads = n_kv_heads,
                           .head_dim = head_dim,
                           .block_tokens = tokens,
                           .n_blocks = 1,
                           .dtype = dtype_from_name(dtype).value()});
  });
}

}  // namespace imp::bindings

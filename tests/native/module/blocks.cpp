// The bindings of KV blocks, their owners and the prefix cache.
#include <pybind11/functional.h>
#include <pybind11/stl.h>

#include <array>
#include <span>
#include <string>
#include <tuple>
#include <utility>

#include "engine/kv/block_allocator.h"
#include "engine/kv/block_hash.h"
#include "engine/kv/kv_blocks.h"
#include "engine/kv/prefix_cache.h"
#include "engine/kv/state_slots.h"
#include "native/module/engine.h"

namespace py = pybind11;

namespace imp::bindings {
namespace {

using Words = std::pair<std::uint64_t, std::uint64_t>;
using PythonHash = std::function<Words(Words, std::vector<std::int32_t>)>;

BlockHash block_hash(const std::variant<Words, PythonHash>& given) {
  if (const auto* secret = std::get_if<Words>(&given)) return keyed_block_hash({secret->first, secret->second});
  return [hash = std::get<PythonHash>(given)](const BlockKey& parent, std::span<const std::int32_t> ids) {
    const Words key = hash({parent.low, parent.high}, {ids.begin(), ids.end()});
    return BlockKey{key.first, key.second};
  };
}

void register_allocator(py::module_& module) {
  py::class_<BlockAllocator>(module, "BlockAllocator")
      .def(py::init<int>())
      .def("allocate", &BlockAllocator::allocate)
      .def("retain", &BlockAllocator::retain)
      .def("release", &BlockAllocator::release, py::arg("block"), py::arg("keep"))
      .def("discard", &BlockAllocator::discard)
      .def("owners", &BlockAllocator::owners)
      .def_property_readonly("n_free", &BlockAllocator::n_free)
      .def_property_readonly("n_cached", &BlockAllocator::n_cached)
      .def_property_readonly("n_live", &BlockAllocator::n_live);
}

// (held, snapshots, free)
std::tuple<int, int, int> counts(const StateSlots& states) {
  return {states.n_held(), states.n_snapshots(), states.n_free()};
}

void register_state_slots(py::module_& module) {
  py::class_<StateSlots>(module, "StateSlots")
      .def(py::init<int, int>(), py::arg("n_slots"), py::arg("n_blocks"))
      .def("take", py::overload_cast<const BlockAllocator&>(&StateSlots::take))
      .def("take_for_snapshot", &StateSlots::take_for_snapshot)
      .def("retain", &StateSlots::retain)
      .def("release", &StateSlots::release)
      .def("snapshot",
           [](const StateSlots& self, std::int32_t block) {
             return std::pair(self.snapshot(block).slot, self.snapshot(block).n_tokens);
           })
      .def(
          "keep",
          [](StateSlots& self, std::int32_t block, std::int32_t slot, int n_tokens, bool is_idle) {
            self.keep(block, {.slot = slot, .n_tokens = n_tokens}, is_idle);
          },
          py::arg("block"), py::arg("slot"), py::arg("n_tokens"), py::arg("is_idle") = false)
      .def("use", &StateSlots::use)
      .def("drop_after", &StateSlots::drop_after)
      .def("move", &StateSlots::move)
      .def_property_readonly("counts", &counts);
}

void register_kv_blocks(py::module_& module) {
  py::class_<BlockTable>(module, "BlockTable")
      .def(py::init<>())
      .def_readonly("blocks", &BlockTable::blocks)
      .def_readonly("n_indexed", &BlockTable::n_indexed)
      .def_readonly("state", &BlockTable::state)
      .def_readonly("state_tokens", &BlockTable::state_tokens);

  py::class_<KvBlocks>(module, "KvBlocks")
      .def(py::init([](int n_blocks, int block_tokens, bool prefix_cache, int max_cached, int max_per_tenant,
                       const std::variant<Words, PythonHash>& hash, int n_state_slots) {
             return std::make_unique<KvBlocks>(
                 KvBlocksOptions{n_blocks, block_tokens, prefix_cache, max_cached, max_per_tenant, n_state_slots},
                 block_hash(hash));
           }),
           py::arg("n_blocks"), py::arg("block_tokens") = 16, py::kw_only(), py::arg("prefix_cache") = true,
           py::arg("max_cached") = KvBlocksOptions{}.max_cached,
           py::arg("max_per_tenant") = KvBlocksOptions{}.max_per_tenant, py::arg("hash") = Words{1, 2},
           py::arg("n_state_slots") = 0)
      .def("match", [](KvBlocks& self, BlockTable& table, const Words& scope, const std::vector<std::int32_t>& tokens,
                       int held) { return self.match(table, {scope.first, scope.second}, tokens, held); })
      .def("missing", &KvBlocks::missing)
      .def("prepare",
           [](KvBlocks& self, BlockTable& table, int first, int end) {
             std::vector<BlockCopy> copies;
             self.prepare(table, first, end, copies);
             std::vector<std::pair<int, int>> pairs;
             for (const BlockCopy& copy : copies) pairs.emplace_back(copy.from, copy.to);
             return pairs;
           })
      .def(
          "commit",
          [](KvBlocks& self, BlockTable& table, const Words& scope, const std::vector<std::int32_t>& tokens,
             const Words& tenant) {
            self.commit(table, {.key = {scope.first, scope.second}, .tenant = {tenant.first, tenant.second}}, tokens);
          },
          py::arg("table"), py::arg("scope"), py::arg("tokens"), py::arg("tenant") = Words{0, 0})
      .def("share", &KvBlocks::share)
      .def("truncate", &KvBlocks::truncate)
      .def("forget", &KvBlocks::forget)
      .def("flush", &KvBlocks::flush)
      .def("state_position", &KvBlocks::state_position)
      .def("hold_state", &KvBlocks::hold_state)
      .def("take_state", &KvBlocks::take_state)
      .def("take_snapshot", &KvBlocks::take_snapshot)
      .def("release_state", &KvBlocks::release_state)
      .def("keep_snapshot", [](KvBlocks& self, const BlockTable& table, int n_tokens,
                               std::int32_t slot) { self.keep_snapshot(table, n_tokens, slot); })
      .def("advance_state", &KvBlocks::advance_state)
      .def("park_state", &KvBlocks::park_state)
      .def_property_readonly("states", [](const KvBlocks& self) { return counts(self.states()); })
      .def("owners", [](const KvBlocks& self, std::int32_t block) { return self.allocator().owners(block); })
      .def_property_readonly("n_available", &KvBlocks::n_available)
      .def_property_readonly("n_free", [](const KvBlocks& self) { return self.allocator().n_free(); })
      .def_property_readonly("n_cached", [](const KvBlocks& self) { return self.allocator().n_cached(); })
      .def_property_readonly("n_live", [](const KvBlocks& self) { return self.allocator().n_live(); });
}

}  // namespace

void register_testing_blocks(py::module_& module) {
  register_allocator(module);
  register_state_slots(module);
  register_kv_blocks(module);
  module.def("sip_hash", [](const Words& secret, const py::bytes& data) {
    const auto view = static_cast<std::string_view>(data);
    const BlockKey key = sip_hash({secret.first, secret.second}, std::as_bytes(std::span(view)));
    return Words{key.low, key.high};
  });
}

}  // namespace imp::bindings

// The engine's options and numbers.
#include "bindings/bind_engine.h"

#include <pybind11/stl.h>

#include <array>
#include <optional>

#include "bindings/bind_commands.h"
#include "bindings/bind_events.h"
#include "engine/engine.h"

namespace py = pybind11;

namespace imp::bindings {
namespace {

using Secret = std::array<std::uint64_t, 2>;

// Every keyword is an attribute; an unknown one is an AttributeError.
EngineOptions make_options(const py::kwargs& given) {
  EngineOptions options;
  const py::object attributes = py::cast(&options, py::return_value_policy::reference);
  for (const auto& [name, value] : given) attributes.attr(name) = value;
  return options;
}

void register_options(py::module_& module) {
  py::class_<EngineOptions>(module, "EngineOptions", "The engine's bounds and policies; keywords are attributes.")
      .def(py::init(&make_options))
      .def_readwrite("n_blocks", &EngineOptions::n_blocks)
      .def_readwrite("max_context", &EngineOptions::max_context)
      .def_readwrite("max_running", &EngineOptions::max_running)
      .def_readwrite("max_waiting", &EngineOptions::max_waiting)
      .def_readwrite("max_waiting_tokens", &EngineOptions::max_waiting_tokens)
      .def_readwrite("max_sessions", &EngineOptions::max_sessions)
      .def_readwrite("prefill_chunk", &EngineOptions::prefill_chunk)
      .def_readwrite("step_tokens", &EngineOptions::step_tokens)
      .def_readwrite("max_wait_ms", &EngineOptions::max_wait_ms)
      .def_readwrite("tenant_share", &EngineOptions::tenant_share)
      .def_readwrite("evict_sessions", &EngineOptions::evict_sessions)
      .def_readwrite("prefix_cache", &EngineOptions::prefix_cache)
      .def_readwrite("max_cached_blocks", &EngineOptions::max_cached_blocks)
      .def_readwrite("max_candidates", &EngineOptions::max_candidates)
      .def_property(
          "cache_secret",
          [](const EngineOptions& self) {
            return self.cache_secret ? std::optional(Secret{self.cache_secret->low, self.cache_secret->high})
                                     : std::nullopt;
          },
          [](EngineOptions& self, const std::optional<Secret>& secret) {
            self.cache_secret = secret ? std::optional(HashSecret{(*secret)[0], (*secret)[1]}) : std::nullopt;
          })
      .def_readwrite("max_queued_events", &EngineOptions::max_queued_events)
      .def_readwrite("suppressed_tokens", &EngineOptions::suppressed_tokens);
}

void register_stats(py::module_& module) {
  py::class_<EngineStats>(module, "EngineStats", "A snapshot, published by the engine's thread after each turn.")
      .def_readonly("n_steps", &EngineStats::n_steps)
      .def_readonly("n_decode_rows", &EngineStats::n_decode_rows)
      .def_readonly("n_prefill_rows", &EngineStats::n_prefill_rows)
      .def_readonly("n_cached_tokens", &EngineStats::n_cached_tokens)
      .def_readonly("n_outputs", &EngineStats::n_outputs)
      .def_readonly("n_preemptions", &EngineStats::n_preemptions)
      .def_readonly("n_wakeups", &EngineStats::n_wakeups)
      .def_readonly("running", &EngineStats::running)
      .def_readonly("waiting", &EngineStats::waiting)
      .def_readonly("sessions", &EngineStats::sessions)
      .def_readonly("blocks_live", &EngineStats::blocks_live)
      .def_readonly("blocks_cached", &EngineStats::blocks_cached)
      .def_readonly("blocks_free", &EngineStats::blocks_free)
      .def_readonly("waiting_tokens", &EngineStats::waiting_tokens)
      .def_readonly("last_step_ns", &EngineStats::last_step_ns)
      .def_readonly("forward_ns", &EngineStats::forward_ns)
      .def_readonly("step_ns", &EngineStats::step_ns);
}

}  // namespace

void register_engine(py::module_& module) {
  register_command_parts(module);
  register_events(module);
  register_options(module);
  register_stats(module);
}

}  // namespace imp::bindings

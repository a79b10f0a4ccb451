// The engine, its options and its statistics.
#include "bindings/register.h"

#include <pybind11/stl.h>

#include <array>
#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "bindings/bind_commands.h"
#include "bindings/bind_events.h"
#include "bindings/keywords.h"
#include "engine/run/engine.h"
#include "engine/run/make_drafters.h"
#include "engine/speculation/draft_report.h"
#include "model/loaded_model.h"

namespace py = pybind11;

namespace imp::bindings {
namespace {

using Secret = std::array<std::uint64_t, 2>;

py::dict skips_by_name(const SkipCounts& counts) {
  py::dict skips;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    const std::string_view name = name_of(static_cast<DraftSkip>(i));
    skips[py::str(name.data(), name.size())] = counts[i];
  }
  return skips;
}

void register_options(py::module_& module) {
  py::class_<EngineOptions> options(module, "EngineOptions",
                                    "The engine's limits and policies. Keywords set attributes.");
  for (const EngineField& field : kEngineFields) {
    std::visit([&](auto member) { options.def_readwrite(field.name.data(), member); }, field.member);
  }
  options.def(from_keywords<EngineOptions>())
      .def_readwrite("n_blocks", &EngineOptions::n_blocks)
      .def_readwrite("n_state_slots", &EngineOptions::n_state_slots)
      .def_readwrite("max_context", &EngineOptions::max_context)
      .def_readwrite("max_cached_blocks", &EngineOptions::max_cached_blocks)
      .def_readwrite("max_candidates", &EngineOptions::max_candidates)
      .def_readwrite("n_tokens", &EngineOptions::n_tokens)
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
      .def_readwrite("drafters", &EngineOptions::drafters)
      .def_readwrite("fixed_depth", &EngineOptions::fixed_depth)
      .def_readwrite("draft_right_share", &EngineOptions::draft_right_share)
      .def_readwrite("draft_suppressed_tokens", &EngineOptions::draft_suppressed_tokens)
      .def_readwrite("suppressed_tokens", &EngineOptions::suppressed_tokens)
      .def_readwrite("control_tokens", &EngineOptions::control_tokens)
      .def_readwrite("media_rows", &EngineOptions::media_rows)
      .def_readwrite("media_numbers", &EngineOptions::media_numbers)
      .def_readwrite("cpu", &EngineOptions::cpu);
}

void register_stats(py::module_& module) {
  py::class_<DurationHistogram>(module, "DurationHistogram",
                                "Histogram of durations. counts[i] is the number of durations from 2^(i-1) up to 2^i "
                                "microseconds; the last count includes all longer ones.")
      .def_readonly("counts", &DurationHistogram::counts)
      .def_readonly("sum_ns", &DurationHistogram::sum_ns);
  py::class_<StepGraphCounts>(
      module, "StepGraphCounts",
      "How the steps of a device ran: launched op by op (eager), or captured once and replayed.")
      .def_readonly("eager", &StepGraphCounts::eager)
      .def_readonly("captures", &StepGraphCounts::captures)
      .def_readonly("replays", &StepGraphCounts::replays)
      .def_readonly("evictions", &StepGraphCounts::evictions)
      .def_readonly("failures", &StepGraphCounts::failures)
      .def_property_readonly("last_failure",
                             [](const StepGraphCounts& self) { return std::string(self.last_failure); });
  py::class_<EngineStats>(module, "EngineStats", "A snapshot that the engine's thread publishes after each iteration.")
      .def_readonly("n_steps", &EngineStats::n_steps)
      .def_readonly("n_steps_ahead", &EngineStats::n_steps_ahead)
      .def_readonly("n_decode_rows", &EngineStats::n_decode_rows)
      .def_readonly("n_prefill_rows", &EngineStats::n_prefill_rows)
      .def_readonly("n_cached_tokens", &EngineStats::n_cached_tokens)
      .def_readonly("n_outputs", &EngineStats::n_outputs)
      .def_readonly("n_preemptions", &EngineStats::n_preemptions)
      .def_readonly("drafts", &EngineStats::drafts)
      .def_property_readonly("drafters", [](const EngineStats& self) { return dict_of(self.drafters); })
      .def_property_readonly("draft_skips", [](const EngineStats& self) { return skips_by_name(self.draft_skips); })
      .def_readonly("draft_ns", &EngineStats::draft_ns)
      .def_readonly("n_wakeups", &EngineStats::n_wakeups)
      .def_readonly("running", &EngineStats::running)
      .def_readonly("waiting", &EngineStats::waiting)
      .def_readonly("queued", &EngineStats::queued)
      .def_readonly("sessions", &EngineStats::sessions)
      .def_readonly("blocks_live", &EngineStats::blocks_live)
      .def_readonly("blocks_cached", &EngineStats::blocks_cached)
      .def_readonly("blocks_free", &EngineStats::blocks_free)
      .def_readonly("states_held", &EngineStats::states_held)
      .def_readonly("states_kept", &EngineStats::states_kept)
      .def_readonly("states_free", &EngineStats::states_free)
      .def_readonly("waiting_tokens", &EngineStats::waiting_tokens)
      .def_readonly("last_step_ns", &EngineStats::last_step_ns)
      .def_readonly("n_encoded", &EngineStats::n_encoded)
      .def_readonly("n_found", &EngineStats::n_found)
      .def_readonly("media_bytes", &EngineStats::media_bytes)
      .def_readonly("encode_ns", &EngineStats::encode_ns)
      .def_readonly("forward_ns", &EngineStats::forward_ns)
      .def_readonly("sample_ns", &EngineStats::sample_ns)
      .def_readonly("step_ns", &EngineStats::step_ns)
      .def_readonly("silence_ns", &EngineStats::silence_ns)
      .def_readonly("graphs", &EngineStats::graphs)
      .def_readonly("steps", &EngineStats::steps)
      .def_readonly("cancels", &EngineStats::cancels)
      .def_readonly("stopped", &EngineStats::stopped);
}

// The engine, and a spare event vector for drain_events().
class PythonEngine {
 public:
  PythonEngine(LoadedModel& model, const EngineOptions& options, std::optional<std::int32_t> placeholder)
      : lease_(model) {
    VisionTower* const tower = placeholder ? tower_of(model, *placeholder) : nullptr;
    DraftUses uses = make_drafters(model, options, {}, tower != nullptr ? &tower->facts() : nullptr);
    engine_ = std::make_unique<Engine>(*model.backend, *model.decoder, options, Clock{}, std::move(uses.drafters),
                                       std::move(uses.scorer), tower);
  }
  // Releases the GIL while the engine's thread ends its step.
  ~PythonEngine() {
    const py::gil_scoped_release unlocked;
    engine_.reset();
  }
  PythonEngine(const PythonEngine&) = delete;
  PythonEngine& operator=(const PythonEngine&) = delete;

  void submit(std::vector<Command> commands) { engine_->submit(std::move(commands)); }

  void hold() { engine_->hold(); }
  void release() { engine_->release(); }

  py::list drain_events() {
    // Moved out, so that two concurrent callers do not share it.
    std::vector<Event> events;
    {
      const py::gil_scoped_release unlocked;
      const std::lock_guard lock(mutex_);
      std::swap(events, spare_);
      engine_->drain_events(events);
    }
    py::list list = event_list(events);
    events.clear();
    const std::lock_guard lock(mutex_);
    spare_ = std::move(events);
    return list;
  }

  const Engine& engine() const noexcept { return *engine_; }

 private:
  static VisionTower* tower_of(LoadedModel& model, std::int32_t placeholder) {
    if (model.vision == nullptr) throw FieldInvalid("placeholder", "the model has no vision tower");
    model.vision->tower.set_tokens(placeholder, model.model->config().cell_token(placeholder));
    return &model.vision->tower;
  }

  const ModelLease lease_;  // released after the engine's thread has ended
  std::unique_ptr<Engine> engine_;
  std::mutex mutex_;
  std::vector<Event> spare_;
};

void register_engine_class(py::module_& module) {
  py::class_<PythonEngine> bound(module, "Engine",
                                 "Runs sequences in continuous batches, on its own thread. Any thread may call any "
                                 "method. No method waits for a step. A model serves one engine at a time.");
  bound
      .def(py::init<LoadedModel&, const EngineOptions&, std::optional<std::int32_t>>(), py::arg("model"),
           py::arg("options"), py::arg("placeholder") = py::none(), py::keep_alive<1, 2>(),
           "`placeholder` is the token that prompts have in the cells of images; None: the engine takes no images. "
           "Raises InvalidArgument if the options do not fit the model or if another engine uses "
           "it, and ResourceExhausted if there is not enough memory.")
      .def("drain_events", &PythonEngine::drain_events, "Returns all queued events, oldest first. Never waits.")
      .def("hold", &PythonEngine::hold,
           "Makes the engine take all commands together that are submitted until release(). Holds "
           "nest. Keep them short.")
      .def("release", &PythonEngine::release, "Ends a hold.")
      .def(
          "event_descriptor", [](const PythonEngine& self) { return self.engine().event_descriptor(); },
          "Returns a descriptor that is readable while events are queued.")
      .def(
          "stats", [](const PythonEngine& self) { return self.engine().stats(); },
          "Returns the stats of the last iteration.");
  def_place_of(bound);
  def_commands(bound);
}

}  // namespace

void register_engine(py::module_& module) {
  register_command_parts(module);
  register_events(module);
  register_options(module);
  register_stats(module);
  register_engine_class(module);
}

}  // namespace imp::bindings

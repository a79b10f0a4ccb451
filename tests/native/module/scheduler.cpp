// The scheduler without an engine: the test gives the time and the result of each step.
#include <pybind11/stl.h>

#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "bindings/keywords.h"
#include "engine/schedule/scheduler.h"
#include "native/module/engine.h"

namespace py = pybind11;

namespace imp::testing {
namespace {

// Sequences that have only lengths. advance() does what the engine does after a step.
class SchedulerBench {
 public:
  SchedulerBench(const EngineOptions& options, int block_tokens)
      : blocks_({.n_blocks = options.n_blocks, .block_tokens = block_tokens, .prefix_cache = false},
                keyed_block_hash({1, 2})),
        scheduler_(options, options.step_tokens, blocks_) {}

  SequenceId enqueue(std::int64_t now_ns, int n_tokens, int n_outputs, std::int32_t priority, const std::string& tenant,
                     bool session) {
    const SequenceId id = next_id_++;
    auto& sequence = *sequences_.emplace(id, std::make_unique<Sequence>()).first->second;
    sequence.id = id;
    sequence.kind = session ? SequenceKind::session : SequenceKind::generation;
    sequence.priority = priority;
    sequence.tenant = tenant;
    extend(sequence, n_tokens, n_outputs, now_ns);
    return id;
  }

  // A session's next run.
  void extend(SequenceId id, int n_tokens, int n_outputs, std::int64_t now_ns) {
    scheduler_.set_busy(*sequences_.at(id));
    extend(*sequences_.at(id), n_tokens, n_outputs, now_ns);
  }

  void pause(SequenceId id, bool paused) { sequences_.at(id)->run->paused_ns = paused ? 0 : -1; }

  void close(SequenceId id) {
    Sequence& sequence = *sequences_.at(id);
    scheduler_.remove(sequence);
    scheduler_.set_busy(sequence);
    blocks_.truncate(sequence.table, 0);
    sequences_.erase(id);
  }

  py::dict next_step(std::int64_t now_ns) {
    scheduler_.next_step(now_ns, plan_);
    now_ns_ = now_ns;
    py::list rows;
    for (const PlannedRows& planned : plan_.rows) {
      rows.append(py::make_tuple(planned.sequence->id, planned.n_rows, planned.last));
    }
    const auto ids = [](const std::vector<Sequence*>& sequences) {
      py::list list;
      for (const Sequence* sequence : sequences) list.append(sequence->id);
      return list;
    };
    py::list refused;
    for (const Refusal& refusal : plan_.refused) {
      refused.append(py::make_tuple(refusal.sequence->id, refusal.needed, refusal.available));
    }
    return py::dict(py::arg("rows") = rows, py::arg("admitted") = ids(plan_.admitted), py::arg("refused") = refused,
                    py::arg("evicted") = ids(plan_.evicted), py::arg("n_decode_rows") = plan_.n_decode_rows,
                    py::arg("n_prefill_rows") = plan_.n_prefill_rows);
  }

  // Evaluates every planned row and removes the sequences that have their last output. Returns these.
  std::vector<SequenceId> advance() {
    std::vector<SequenceId> left;
    for (const Refusal& refusal : plan_.refused) leave(*refusal.sequence, left);
    for (Sequence* session : plan_.evicted) sequences_.erase(session->id);
    for (Sequence* sequence : plan_.admitted) sequence->run->scheduled_ns = now_ns_;
    for (const PlannedRows& planned : plan_.rows) {
      Sequence& sequence = *planned.sequence;
      sequence.held += planned.n_rows;
      if (!planned.last) continue;
      Run& run = *sequence.run;
      run.started = true;
      sequence.tokens.push_back(0);
      if (++run.n_outputs == run.limits.max_outputs) leave(sequence, left);
    }
    return left;
  }

  // The last step verified guesses of the sequence, and this many were right.
  void count_right_guesses(SequenceId id, int n_right) {
    for (int i = 0; i < n_right; ++i) Scheduler::count_right_guess(*sequences_.at(id));
  }

  int n_available() const { return blocks_.n_available(); }
  std::uint64_t n_preemptions() const { return scheduler_.n_preemptions(); }
  int preemptions_of(SequenceId id) const { return sequences_.at(id)->run->n_preemptions; }
  bool is_running(SequenceId id) const { return sequences_.at(id)->scheduling.phase == RunPhase::running; }
  int held(SequenceId id) const { return sequences_.at(id)->held; }

 private:
  void extend(Sequence& sequence, int n_tokens, int n_outputs, std::int64_t now_ns) {
    sequence.tokens.resize(static_cast<std::size_t>(sequence.held + n_tokens), 0);
    Run& run = sequence.run.emplace();
    run.limits.max_outputs = n_outputs;
    run.start = static_cast<int>(sequence.tokens.size());
    scheduler_.enqueue(sequence, now_ns);
  }

  void leave(Sequence& sequence, std::vector<SequenceId>& left) {
    left.push_back(sequence.id);
    scheduler_.remove(sequence);
    if (sequence.kind == SequenceKind::session) {
      sequence.run.reset();
      scheduler_.set_idle(sequence, now_ns_);
      return;
    }
    blocks_.truncate(sequence.table, 0);
    sequences_.erase(sequence.id);
  }

  KvBlocks blocks_;
  Scheduler scheduler_;
  StepPlan plan_;
  std::map<SequenceId, std::unique_ptr<Sequence>> sequences_;
  SequenceId next_id_ = 1;
  std::int64_t now_ns_ = 0;
};

// Options without a pace and without shares, unless the keywords set them.
std::unique_ptr<SchedulerBench> make_bench(int block_tokens, const py::kwargs& given) {
  EngineOptions options;
  options.n_blocks = 64;
  options.max_context = 1024;
  options.max_running = 8;
  options.step_tokens = options.prefill_chunk = 64;
  options.prefill_per_decode = options.decode_per_tenant = 0;
  options.tenant_share = 1;
  return std::make_unique<SchedulerBench>(bindings::with_keywords(options, given), block_tokens);
}

}  // namespace
}  // namespace imp::testing

namespace imp::bindings {

void register_testing_scheduler(py::module_& module) {
  using imp::testing::SchedulerBench;
  py::class_<SchedulerBench>(module, "SchedulerBench")
      .def(py::init(&imp::testing::make_bench), py::kw_only(), py::arg("block_tokens") = 16)
      .def("enqueue", &SchedulerBench::enqueue, py::arg("now_ns"), py::arg("n_tokens"), py::arg("n_outputs"),
           py::kw_only(), py::arg("priority") = 0, py::arg("tenant") = "", py::arg("session") = false)
      .def("extend", py::overload_cast<SequenceId, int, int, std::int64_t>(&SchedulerBench::extend), py::arg("id"),
           py::arg("n_tokens"), py::arg("n_outputs"), py::arg("now_ns"))
      .def("pause", &SchedulerBench::pause)
      .def("close", &SchedulerBench::close)
      .def("next_step", &SchedulerBench::next_step)
      .def("advance", &SchedulerBench::advance)
      .def("count_right_guesses", &SchedulerBench::count_right_guesses)
      .def("preemptions_of", &SchedulerBench::preemptions_of)
      .def("is_running", &SchedulerBench::is_running)
      .def("held", &SchedulerBench::held)
      .def_property_readonly("n_available", &SchedulerBench::n_available)
      .def_property_readonly("n_preemptions", &SchedulerBench::n_preemptions);
}

}  // namespace imp::bindings

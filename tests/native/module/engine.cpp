// Engines over a script model: one that the test steps, with the test's clock, and one with its thread.
#include <pybind11/stl.h>

#include <chrono>
#include <memory>
#include <optional>
#include <random>
#include <stdexcept>
#include <tuple>
#include <utility>

#include "backend/cpu/kv/cpu_kv_pool.h"
#include "bindings/bind_commands.h"
#include "bindings/bind_events.h"
#include "bindings/sampler_values.h"
#include "engine/run/loop.h"
#include "engine/run/make_drafters.h"
#include "engine/run/validate_options.h"
#include "engine/schedule/admission_control.h"
#include "engine/speculation/model_drafter.h"
#include "model/loaded_model.h"
#include "native/module/engine.h"
#include "native/script/embedding_encoder.h"
#include "native/script/rows_encoder.h"
#include "native/script/script_backend.h"
#include "native/script/script_drafter.h"
#include "native/script/script_encoder.h"
#include "native/script/script_model.h"

namespace py = pybind11;

namespace imp::testing {
namespace {

AdmissionFacts validated(const EngineOptions& options, const ForwardPass& forward, const MediaEncoder* encoder,
                         const HashSecret& secret) {
  validate(options, forward, encoder);
  return admission_facts(options, forward, encoder, secret);
}

// Null if the script has none.
std::unique_ptr<ScriptEncoder> script_encoder(const Script& script) {
  return script.media_rows > 0 ? std::make_unique<ScriptEncoder>(script) : nullptr;
}

// The engine loop without a thread. turn() executes the submitted commands; the test sets the time.
class ManualLoop {
 public:
  ManualLoop(Backend& backend, ForwardPass& forward, const EngineOptions& options, DraftUses uses = {},
             MediaEncoder* encoder = nullptr)
      : secret_(options.cache_secret.value_or(HashSecret{1, 2})),
        admission_(options, validated(options, forward, encoder, secret_)),
        loop_(
            backend, forward, options, secret_, admission_, [this] { return read_clock(); }, std::move(uses.drafters),
            std::move(uses.scorer), encoder) {}

  void submit(std::vector<Command> commands) {
    for (AcceptedCommand& each : admission_.accept(std::move(commands), now_ns)) waiting_.push_back(std::move(each));
  }

  bool turn() {
    for (AcceptedCommand& accepted : waiting_) loop_.take(std::move(accepted));
    waiting_.clear();
    return loop_.iterate();
  }

  // Turns n times and drops the events, without any Python code in between.
  int turns(int n) {
    int n_done = 0;
    for (int i = 0; i < n; ++i) {
      n_done += turn() ? 1 : 0;
      loop_.events().clear();
    }
    return n_done;
  }

  py::list drain() {
    py::list list = bindings::event_list(loop_.events());
    loop_.events().clear();
    return list;
  }

  EngineStats stats() { return loop_.stats(); }
  const KvBlocks& blocks() { return loop_.state().blocks; }
  bool may_have_media() { return loop_.state().may_have_media; }
  const KvPool& pool() const { return loop_.pool(); }

  // Returns whether the sequence was running.
  bool preempt(SequenceId id) {
    Sequence& victim = sequence(id);
    if (victim.scheduling.phase != RunPhase::running) return false;
    loop_.state().scheduler.preempt(victim);
    return true;
  }

  Sequence& sequence(SequenceId id) {
    Sequence* found = loop_.state().find(id);
    if (found == nullptr) throw py::key_error(std::to_string(id));
    return *found;
  }

  std::int64_t now_ns = 0;
  // Each reading moves the clock by at most this much, in either direction. 0: only the test moves it.
  std::int64_t clock_jumps_ns = 0;
  // What a forward pass takes, and besides each of its rows, and a row of an encoder's work.
  std::int64_t forward_ns = 0, row_ns = 0, encoded_row_ns = 0;

 protected:
  struct Work {
    std::int64_t n_forwards = 0, n_rows = 0, n_encoded_rows = 0;
  };
  virtual Work work() const { return {}; }

 private:
  std::int64_t read_clock() {
    const Work before = std::exchange(timed_, work());
    now_ns += forward_ns * (timed_.n_forwards - before.n_forwards) + row_ns * (timed_.n_rows - before.n_rows) +
              encoded_row_ns * (timed_.n_encoded_rows - before.n_encoded_rows);
    if (clock_jumps_ns > 0) {
      now_ns += std::uniform_int_distribution<std::int64_t>(-clock_jumps_ns, clock_jumps_ns)(random_);
    }
    return now_ns;
  }

  Work timed_;
  std::mt19937_64 random_;
  HashSecret secret_;
  AdmissionControl admission_;
  Loop loop_;
  std::vector<AcceptedCommand> waiting_;
};

// Asks a Python function for guesses: (tokens, n_wanted) -> tokens. Only for loops that the test steps.
class PythonDrafter final : public Drafter {
 public:
  explicit PythonDrafter(py::function guess) : guess_(std::move(guess)) {}
  std::string_view name() const noexcept override { return "python"; }
  void draft(std::span<DraftRequest> requests) override {
    for (DraftRequest& request : requests) {
      const py::object guesses = guess_(request.sequence->tokens, request.n_wanted);
      for (const auto token : guesses.cast<std::vector<std::int32_t>>()) request.guesses.push_back({.token = token});
    }
  }

 private:
  py::function guess_;
};

// Shows the guesses of a drafter to a Python function, (sequence, tokens, guesses) -> tokens, which may replace them.
// Their confidence remains.
class RevisedDrafter final : public Drafter {
 public:
  RevisedDrafter(std::unique_ptr<Drafter> inner, py::function revise)
      : inner_(std::move(inner)), revise_(std::move(revise)) {}
  std::string_view name() const noexcept override { return inner_->name(); }
  double cost_of_token() const noexcept override { return inner_->cost_of_token(); }
  double start_cost(const Sequence& sequence) const noexcept override { return inner_->start_cost(sequence); }
  RightShares prior(int confidence) const noexcept override { return inner_->prior(confidence); }
  void draft(std::span<DraftRequest> requests) override {
    inner_->draft(requests);
    for (DraftRequest& request : requests) {
      std::vector<std::int32_t> guesses;
      for (const Guess& guess : request.guesses) guesses.push_back(guess.token);
      const py::object answer = revise_(request.sequence->id, request.sequence->tokens, guesses);
      const auto revised = answer.cast<std::vector<std::int32_t>>();
      request.guesses.resize(revised.size());
      for (std::size_t i = 0; i < revised.size(); ++i) request.guesses[i].token = revised[i];
    }
  }
  void read_cache(const KvPool& cache) override { inner_->read_cache(cache); }
  void observe(const Step& step) override { inner_->observe(step); }
  void copy_blocks(std::span<const BlockCopy> copies) override { inner_->copy_blocks(copies); }
  void forget(const Sequence& sequence) noexcept override { inner_->forget(sequence); }
  void flush() override { inner_->flush(); }

 private:
  std::unique_ptr<Drafter> inner_;
  py::function revise_;
};

DraftUses revised(DraftUses uses, const std::optional<py::function>& revise) {
  if (!revise) return uses;
  for (std::unique_ptr<Drafter>& drafter : uses.drafters) {
    drafter = std::make_unique<RevisedDrafter>(std::move(drafter), *revise);
  }
  return uses;
}

Drafters python_drafters(const std::optional<py::function>& guess) {
  Drafters drafters;
  if (guess) drafters.push_back(std::make_unique<PythonDrafter>(*guess));
  return drafters;
}

// A draft model that follows a script of its own.
struct ScriptDraft {
  Script script;
  int n_blocks = 64;
  int max_context = 256;
  std::vector<std::int32_t> suppressed_tokens;
  bool drafts = true;  // it guesses
  double cost = 0;     // of a row, for scoring
};

// The members that the loop of a script needs; they are constructed before it.
struct ScriptParts {
  ScriptParts(const Script& script, const std::optional<ScriptDraft>& draft) : model(script, &backend.last_drawn) {
    backend.ahead = script.ahead;
    encoder = script_encoder(script);
    if (draft) draft_model.emplace(draft->script, &backend.last_drawn);
  }

  DraftUses make_uses(const EngineOptions& options, const std::optional<py::function>& guess,
                      const std::optional<ScriptDraft>& draft) {
    DraftUses uses{.drafters = guess ? python_drafters(guess) : script_drafters(model, backend), .scorer = {}};
    if (!draft) return uses;
    const DraftModelOptions given{.n_blocks = draft->n_blocks,
                                  .max_context = draft->max_context,
                                  .max_running = 2 * options.max_running,
                                  .prefix_cache = options.prefix_cache,
                                  .suppressed_tokens = draft->suppressed_tokens};
    steps = std::make_shared<DraftSteps>(backend, *draft_model, given, [this] { return draft_ns; });
    if (draft->drafts) {
      auto made = std::make_unique<ModelDrafter>(steps);
      drafter = made.get();
      uses.drafters.push_back(std::move(made));
    }
    if (options.sparse_prefill) uses.scorer = std::make_unique<PromptScorer>(steps, draft->cost);
    return uses;
  }

  ScriptBackend backend;
  ScriptModel model;
  std::unique_ptr<ScriptEncoder> encoder;  // null: the script has none
  std::optional<ScriptModel> draft_model;
  std::shared_ptr<DraftSteps> steps;
  ModelDrafter* drafter = nullptr;  // of the loop
  std::int64_t draft_ns = 0;        // what the drafter's clock shows
};

class ManualEngine : public ScriptParts, public ManualLoop {
 public:
  ManualEngine(const Script& script, const EngineOptions& options, const std::optional<py::function>& guess,
               const std::optional<ScriptDraft>& draft)
      : ScriptParts(script, draft),
        ManualLoop(backend, model, options, make_uses(options, guess, draft), encoder.get()) {}

  DraftSteps& draft_steps() const {
    if (steps == nullptr) throw py::value_error("the engine has no draft model");
    return *steps;
  }

  Work work() const override {
    return {.n_forwards = model.n_forwards,
            .n_rows = model.n_rows_evaluated,
            .n_encoded_rows = encoder == nullptr ? 0 : encoder->n_rows_worked};
  }

  ModelDrafter& model_drafter() const {
    if (drafter == nullptr) throw py::value_error("the engine has no draft model");
    return *drafter;
  }
};

// The encoder that the loop of a model needs; it is constructed before it. Null: there is none.
struct ModelParts {
  std::unique_ptr<MediaEncoder> encoder;
};

std::unique_ptr<MediaEncoder> model_encoder(LoadedModel& model, const std::string& word) {
  if (word == "embeddings") return std::make_unique<EmbeddingEncoder>(model);
  if (word == "rows") return std::make_unique<RowsEncoder>(model);
  if (word.empty()) return nullptr;
  throw py::value_error("encoder: " + word);
}

class ManualModelEngine : private ModelParts, public ManualLoop {
 public:
  ManualModelEngine(LoadedModel& model, const EngineOptions& options, const std::optional<py::function>& guess,
                    const std::optional<py::function>& revise, const std::string& encoder_word)
      : ModelParts{model_encoder(model, encoder_word)},
        ManualLoop(*model.backend, *model.decoder, options,
                   guess ? DraftUses{.drafters = python_drafters(guess), .scorer = {}}
                         : revised(make_drafters(model, options, {}, encoder ? &encoder->facts() : nullptr), revise),
                   encoder.get()) {}
};

// The engine with its thread, over a script model.
class ThreadedEngine {
 public:
  ThreadedEngine(const Script& script, const EngineOptions& options)
      : model_(script, &backend_.last_drawn), encoder_(script_encoder(script)) {
    backend_.records = script.records;
    backend_.ahead = script.ahead;
    engine_ = std::make_unique<Engine>(backend_, model_, options, Clock{}, script_drafters(model_, backend_), nullptr,
                                       encoder_.get());
  }
  ~ThreadedEngine() {
    const py::gil_scoped_release unlocked;
    engine_.reset();
  }
  ThreadedEngine(const ThreadedEngine&) = delete;
  ThreadedEngine& operator=(const ThreadedEngine&) = delete;

  void submit(std::vector<Command> commands) { engine_->submit(std::move(commands)); }

  void hold() { engine_->hold(); }
  void release() { engine_->release(); }

  py::list drain() {
    engine_->drain_events(events_);
    return bindings::event_list(events_);
  }

  // Waits while it holds the GIL, because the engine must not need the GIL.
  void wait_for_steps_locked(std::uint64_t n_steps) const {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (engine_->stats().n_steps < n_steps) {
      if (std::chrono::steady_clock::now() > deadline) throw std::runtime_error("the engine does not step");
    }
  }

  const Engine& engine() const noexcept { return *engine_; }

 private:
  ScriptBackend backend_;
  ScriptModel model_;
  std::unique_ptr<ScriptEncoder> encoder_;
  std::unique_ptr<Engine> engine_;
  std::vector<Event> events_;
};

ScriptRule rule_of(const std::string& word) {
  if (word == "hash") return ScriptRule::hash;
  if (word == "counter") return ScriptRule::counter;
  if (word == "table") return ScriptRule::table;
  if (word == "cheap") return ScriptRule::cheap;
  throw py::value_error("rule: " + word);
}

void register_script(py::module_& module) {
  py::class_<Script>(module, "Script")
      .def(py::init([](const std::string& rule, const py::kwargs& given) {
             Script script;
             script.rule = rule_of(rule);
             const py::object attributes = py::cast(&script, py::return_value_policy::reference);
             for (const auto& [name, value] : given) attributes.attr(name) = value;
             return script;
           }),
           py::arg("rule") = "hash")
      .def_readwrite("vocab_size", &Script::vocab_size)
      .def_readwrite("block_tokens", &Script::block_tokens)
      .def_readwrite("max_rows", &Script::max_rows)
      .def_readwrite("max_logits_rows", &Script::max_logits_rows)
      .def_readwrite("table", &Script::table)
      .def_readwrite("failing", &Script::failing)
      .def_readwrite("failing_token", &Script::failing_token)
      .def_readwrite("faulting_token", &Script::faulting_token)
      .def_readwrite("narrow_token", &Script::narrow_token)
      .def_readwrite("nan_token", &Script::nan_token)
      .def_readwrite("hanging_token", &Script::hanging_token)
      .def_readwrite("hung_fd", &Script::hung_fd)
      .def_readwrite("gate_fd", &Script::gate_fd)
      .def_readwrite("state", &Script::state)
      .def_readwrite("ahead", &Script::ahead)
      .def_readwrite("head", &Script::head)
      .def_readwrite("vector_width", &Script::vector_width)
      .def_readwrite("token_types", &Script::token_types)
      .def_readwrite("whole_texts", &Script::whole_texts)
      .def_readwrite("sees_all", &Script::sees_all)
      .def_readwrite("zero_token", &Script::zero_token)
      .def_readwrite("drafts", &Script::drafts)
      .def_readwrite("planes", &Script::planes)
      .def_readwrite("media_rows", &Script::media_rows)
      .def_readwrite("media_atomic", &Script::media_atomic)
      .def_readwrite("media_cost", &Script::media_cost)
      .def_readwrite("media_placeholder", &Script::media_placeholder)
      .def_readwrite("media_row_token", &Script::media_row_token)
      .def_readwrite("window", &Script::window)
      .def_readwrite("watched_layers", &Script::watched_layers)
      .def_readwrite("records", &Script::records);
  py::class_<EvaluatedRows>(module, "EvaluatedRows")
      .def_readonly("first_position", &EvaluatedRows::first_position)
      .def_readonly("tokens", &EvaluatedRows::tokens)
      .def_readonly("positions", &EvaluatedRows::positions)
      .def_readonly("ends", &EvaluatedRows::ends)
      .def_readonly("starts", &EvaluatedRows::starts)
      .def_readonly("types", &EvaluatedRows::types)
      .def_readonly("is_pooled", &EvaluatedRows::is_pooled)
      .def_readonly("n_placed", &EvaluatedRows::n_placed)
      .def_readonly("n_logits_rows", &EvaluatedRows::n_logits_rows)
      .def_readonly("state", &EvaluatedRows::state)
      .def_readonly("saved", &EvaluatedRows::saved);
  py::class_<RecordedDraw>(module, "RecordedDraw")
      .def_property_readonly("temperature", [](const RecordedDraw& draw) { return draw.params.temperature; })
      .def_property_readonly("seed", [](const RecordedDraw& draw) { return draw.params.seed; })
      .def_property_readonly("params",
                             [](const RecordedDraw& draw) {
                               py::dict params = bindings::dict_of(draw.params);
                               params["seed"] = draw.params.seed;
                               py::dict biases;
                               for (const LogitBias& bias : draw.logit_bias) biases[py::int_(bias.token)] = bias.bias;
                               params["logit_bias"] = biases;
                               return params;
                             })
      .def_readonly("history", &RecordedDraw::history)
      .def_readonly("n_output", &RecordedDraw::n_output)
      .def_readonly("sequence", &RecordedDraw::sequence)
      .def_readonly("index", &RecordedDraw::index);
}

template <class Class>
void def_loop(Class& bound) {
  using Self = typename Class::type;
  bound.def("turn", &Self::turn)
      .def("turns", &Self::turns)
      .def("drain_events", &Self::drain)
      .def("stats", &Self::stats)
      .def("preempt", &Self::preempt)
      .def("states",
           [](Self& self) {
             const StateSlots& states = self.blocks().states();
             return std::tuple(states.n_held(), states.n_snapshots(), states.n_free());
           })
      .def("state_position",
           [](Self& self, SequenceId id) {
             const Sequence& sequence = self.sequence(id);
             return self.blocks().state_position(sequence.table, sequence.held);
           })
      .def("state_slot", [](Self& self, SequenceId id) { return self.sequence(id).table.state; })
      .def_readwrite("now_ns", &Self::now_ns)
      .def_readwrite("clock_jumps_ns", &Self::clock_jumps_ns)
      .def_readwrite("forward_ns", &Self::forward_ns)
      .def_readwrite("row_ns", &Self::row_ns)
      .def_readwrite("encoded_row_ns", &Self::encoded_row_ns)
      .def("tokens", [](Self& self, SequenceId id) { return self.sequence(id).tokens; })
      .def("positions",
           [](Self& self, SequenceId id) {
             const Sequence& sequence = self.sequence(id);
             std::vector<int> positions;
             for (int i = 0; i < sequence.held; ++i) positions.push_back(sequence.place_of(i));
             return positions;
           })
      .def("history",
           [](Self& self, SequenceId id) {
             const auto history = self.sequence(id).history();
             return std::vector(history.begin(), history.end());
           })
      .def("held", [](Self& self, SequenceId id) { return self.sequence(id).held; })
      .def_property_readonly("may_have_media", [](Self& self) { return self.may_have_media(); })
      .def("n_indexed", [](Self& self, SequenceId id) { return self.sequence(id).ngrams.size(); })
      .def("base", [](Self& self, SequenceId id) { return self.sequence(id).base; })
      .def("blocks", [](Self& self, SequenceId id) { return self.sequence(id).table.blocks; });
  bindings::def_commands(bound);
}

void register_manual(py::module_& module) {
  py::class_<ManualModelEngine> over_model(module, "ManualModelEngine");
  over_model.def(py::init<LoadedModel&, const EngineOptions&, const std::optional<py::function>&,
                          const std::optional<py::function>&, const std::string&>(),
                 py::arg("model"), py::arg("options"), py::arg("guess") = py::none(), py::arg("revise") = py::none(),
                 py::arg("encoder") = "", py::keep_alive<1, 2>());
  over_model.def("k_block", [](const ManualModelEngine& self, int layer, std::int32_t block) {
    const auto bytes = dynamic_cast<const cpu::CpuKvPool&>(self.pool()).k_block(layer, block);
    return py::bytes(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  });
  def_loop(over_model);

  py::class_<ScriptDraft>(module, "ScriptDraft")
      .def(py::init([](const Script& script, int n_blocks, int max_context, std::vector<std::int32_t> suppressed,
                       bool drafts, double cost) {
             return ScriptDraft{script, n_blocks, max_context, std::move(suppressed), drafts, cost};
           }),
           py::arg("script"), py::arg("n_blocks") = 64, py::arg("max_context") = 256,
           py::arg("suppressed_tokens") = std::vector<std::int32_t>{}, py::arg("drafts") = true, py::arg("cost") = 0.0);

  py::class_<ManualEngine> manual(module, "ManualEngine");
  manual
      .def(py::init<const Script&, const EngineOptions&, const std::optional<py::function>&,
                    const std::optional<ScriptDraft>&>(),
           py::arg("script"), py::arg("options"), py::arg("guess") = py::none(), py::arg("draft") = py::none())
      .def("shadow",
           [](const ManualEngine& self, SequenceId id) -> py::object {
             const Shadow* shadow = std::as_const(self.draft_steps()).shadows().find(id);
             if (shadow == nullptr) return py::none();
             return py::make_tuple(shadow->copy.tokens, shadow->copy.held, shadow->copy.table.blocks);
           })
      .def("forget_shadow", [](ManualEngine& self, SequenceId id) { self.model_drafter().forget(self.sequence(id)); })
      .def_property_readonly("draft_is_off", [](const ManualEngine& self) { return self.model_drafter().is_off(); })
      .def_property_readonly("draft_cost",
                             [](const ManualEngine& self) { return self.model_drafter().cost_of_token(); })
      .def_property_readonly("draft_blocks",
                             [](const ManualEngine& self) {
                               const BlockAllocator& blocks = self.draft_steps().shadows().blocks().allocator();
                               return std::tuple(blocks.n_live(), blocks.n_cached(), blocks.n_free());
                             })
      .def_readwrite("draft_ns", &ManualEngine::draft_ns)
      .def_property(
          "draft_script", [](ManualEngine& self) -> Script& { return self.draft_model.value().script; },
          [](ManualEngine& self, const Script& script) { self.draft_model.value().script = script; })
      .def_property_readonly("draft_forwards",
                             [](const ManualEngine& self) { return self.draft_model.value().recorded; })
      .def("slot", [](ManualEngine& self, std::int32_t block, int slot) { return self.backend.pool->at(block, slot); })
      .def("set_slot", [](ManualEngine& self, std::int32_t block, int slot,
                          std::int32_t token) { self.backend.pool->at(block, slot) = token; })
      .def("break_state", [](ManualEngine& self, std::int32_t slot) { self.backend.pool->state(slot).hash ^= 1; })
      .def("poison", [](ManualEngine& self, std::int32_t block) { self.backend.pool->poison(block); })
      .def_property(
          "script", [](ManualEngine& self) -> Script& { return self.model.script; },
          [](ManualEngine& self, const Script& script) { self.model.script = script; })
      .def_property_readonly("n_forwards", [](const ManualEngine& self) { return self.model.n_forwards; })
      .def_property_readonly("forwards", [](const ManualEngine& self) { return self.model.recorded; })
      .def_property_readonly("draws", [](const ManualEngine& self) { return self.backend.recorded; })
      .def_property_readonly("begun_encodings", [](const ManualEngine& self) { return self.encoder->begun; })
      .def_property_readonly("encoding_pieces", [](const ManualEngine& self) { return self.encoder->pieces; })
      .def_property(
          "failing_samples", [](const ManualEngine& self) { return self.backend.failing_samples; },
          [](ManualEngine& self, std::vector<std::int64_t> numbers) {
            self.backend.failing_samples = std::move(numbers);
          })
      .def_property(
          "shifts_masks", [](const ManualEngine& self) { return self.backend.shifts_masks; },
          [](ManualEngine& self, bool shifts) { self.backend.shifts_masks = shifts; })
      .def_property_readonly("n_sample_calls", [](const ManualEngine& self) { return self.backend.n_sample_calls; })
      .def_property(
          "records_draws", [](const ManualEngine& self) { return self.backend.records; },
          [](ManualEngine& self, bool records) { self.backend.records = records; });
  def_loop(manual);
}

void register_threaded(py::module_& module) {
  py::class_<ThreadedEngine> threaded(module, "ThreadedEngine");
  threaded.def(py::init<const Script&, const EngineOptions&>(), py::arg("script"), py::arg("options"))
      .def("drain_events", &ThreadedEngine::drain)
      .def("hold", &ThreadedEngine::hold)
      .def("release", &ThreadedEngine::release)
      .def("stats", [](const ThreadedEngine& self) { return self.engine().stats(); })
      .def("event_descriptor", [](const ThreadedEngine& self) { return self.engine().event_descriptor(); })
      .def("wait_for_steps_locked", &ThreadedEngine::wait_for_steps_locked);
  bindings::def_commands(threaded);
  bindings::def_place_of(threaded);
}

}  // namespace
}  // namespace imp::testing

namespace imp::bindings {

void register_testing_engine(py::module_& module) {
  imp::testing::register_script(module);
  imp::testing::register_manual(module);
  imp::testing::register_threaded(module);
}

}  // namespace imp::bindings

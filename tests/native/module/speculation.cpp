// The bindings of the parts of speculative decoding that need no engine: the index of repeats, and what decides how
// many guesses a step verifies.
#include <pybind11/stl.h>

#include <cstddef>
#include <cstdint>
#include <tuple>
#include <utility>
#include <vector>

#include "engine/sequence/ngram_index.h"
#include "engine/speculation/draft_control.h"
#include "engine/speculation/ngram_drafter.h"
#include "native/module/engine.h"

namespace py = pybind11;

namespace imp::bindings {
namespace {

// The index together with the tokens, which a sequence owns.
class IndexedTokens {
 public:
  explicit IndexedTokens(std::size_t n_tokens) { index_.reserve(tokens_, n_tokens); }

  void extend(const std::vector<std::int32_t>& tokens) {
    tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
    index_.extend(tokens_);
  }
  void truncate(std::size_t n_tokens) {
    index_.truncate(tokens_, n_tokens);
    tokens_.resize(index_.size());
  }
  std::vector<std::pair<std::int32_t, int>> propose(int n_wanted) {
    std::vector<Guess> guesses;
    index_.propose(tokens_, n_wanted, guesses);
    std::vector<std::pair<std::int32_t, int>> found;
    for (const Guess& guess : guesses) found.emplace_back(guess.token, guess.confidence);
    return found;
  }
  // Adds the tokens one by one, with guesses for each, as a generation does that is never right.
  void generate(const std::vector<std::int32_t>& tokens, int n_wanted) {
    std::vector<Guess> guesses;
    for (const std::int32_t token : tokens) {
      tokens_.push_back(token);
      index_.extend(tokens_);
      guesses.clear();
      index_.propose(tokens_, n_wanted, guesses);
    }
  }
  std::size_t size() const { return index_.size(); }

 private:
  std::vector<std::int32_t> tokens_;
  NgramIndex index_;
};

// The confidence classes of prompt lookup, with the shares of first and of later guesses that are expected to be right.
std::vector<std::tuple<int, double, double>> ngram_priors() {
  std::vector<std::tuple<int, double, double>> priors;
  for (int confidence = 0; confidence < Acceptance::kClasses; ++confidence) {
    const RightShares shares = NgramDrafter().prior(confidence);
    priors.emplace_back(confidence, shares.first, shares.later);
  }
  return priors;
}

// Returns how many guesses of each sequence are chosen, given their survivals and the cost of one.
std::vector<int> chosen_depths(const std::vector<std::vector<double>>& survivals,
                               const std::vector<double>& guess_costs, int n_outputs, int n_rows, double n_held,
                               int n_free, const RowCosts& costs) {
  std::vector<DepthChoice> choices;
  for (std::size_t i = 0; i < survivals.size(); ++i) {
    choices.push_back({.survivals = survivals[i], .guess_cost = guess_costs.at(i)});
  }
  choose_depths(choices, {.n_outputs = n_outputs, .n_rows = n_rows, .n_held = n_held, .n_free = n_free}, costs);
  std::vector<int> chosen;
  for (const DepthChoice& choice : choices) chosen.push_back(choice.n_chosen);
  return chosen;
}

// A control with the histories of its sequences, and the options of the last step.
class ControlledSequences {
 public:
  explicit ControlledSequences(int n_sequences) : histories_(static_cast<std::size_t>(n_sequences)) {
    control_.reserve(n_sequences, kMaxGuesses);
  }

  // guesses: for each sequence its drafter and the confidence of its guesses.
  std::vector<int> choose(const std::vector<std::pair<int, std::vector<int>>>& guesses, const StepShape& step,
                          double guess_cost, double start_cost, int n_had, int n_ahead) {
    guesses_.clear();
    options_.clear();
    step_ = step;
    for (const auto& [drafter, confidence] : guesses) {
      std::vector<Guess>& made = guesses_.emplace_back();
      for (const int each : confidence) made.push_back({.token = 0, .confidence = static_cast<std::uint8_t>(each)});
    }
    for (std::size_t i = 0; i < guesses.size(); ++i) {
      options_.push_back({.history = &histories_.at(i),
                          .drafter = guesses[i].first,
                          .guesses = guesses_[i],
                          .guess_cost = guess_cost,
                          .start_cost = start_cost,
                          .n_had = n_had,
                          .n_ahead = n_ahead});
    }
    control_.choose(options_, step);
    std::vector<int> chosen;
    for (const DraftOption& option : options_) chosen.push_back(option.n_chosen);
    return chosen;
  }

  // n_right: for each sequence of the last step, how many of its chosen guesses were right. The step took so long, and
  // the drafters so much longer.
  void add_rounds(const std::vector<int>& n_right, double work_ns, double draft_ns, bool is_held_back) {
    int n_guesses = 0, n_all_right = 0;
    for (std::size_t i = 0; i < options_.size(); ++i) {
      const DraftOption& option = options_[i];
      if (option.n_chosen == 0) {
        DraftControl::add_single(*option.history);
      } else {
        const auto verified = option.guesses.first(static_cast<std::size_t>(option.n_chosen));
        control_.add_round(*option.history, option.drafter, verified, n_right.at(i));
        n_all_right += n_right[i];
      }
      n_guesses += option.n_chosen;
    }
    control_.add_step(step_, n_guesses, n_all_right,
                      {.work_ns = work_ns, .draft_ns = draft_ns, .is_held_back = is_held_back});
    for (std::size_t i = 0; i < options_.size(); ++i) {
      const DraftOption& option = options_[i];
      control_.charge(*option.history, option.n_chosen, option.n_chosen > 0 ? n_right.at(i) : 0, option.guess_cost);
    }
  }

  int n_to_ask(std::size_t sequence, int n_most) { return control_.n_to_ask(histories_.at(sequence), n_most); }
  void add_wait(std::size_t sequence, int n_asked, int n_given, double wait_ns) {
    control_.add_wait(histories_.at(sequence), n_asked, n_given, wait_ns);
  }
  void add_answered(std::size_t sequence, int n_right) { control_.add_answered(histories_.at(sequence), n_right); }
  bool may_draft(std::size_t sequence) const { return control_.may_draft(histories_.at(sequence)); }
  int backoff_left(std::size_t sequence) const { return histories_.at(sequence).backoff_left; }
  double budget(std::size_t sequence) const { return histories_.at(sequence).budget.left(); }
  void reset(std::size_t sequence) { histories_.at(sequence) = DraftHistory{}; }
  DraftControl& control() noexcept { return control_; }

 private:
  static constexpr int kMaxGuesses = 64;
  DraftControl control_;
  StepShape step_;
  std::vector<DraftHistory> histories_;
  std::vector<std::vector<Guess>> guesses_;
  std::vector<DraftOption> options_;
};

}  // namespace

void register_testing_speculation(py::module_& module) {
  py::class_<IndexedTokens>(module, "IndexedTokens")
      .def(py::init<std::size_t>(), py::arg("reserved") = 0)
      .def("extend", &IndexedTokens::extend)
      .def("truncate", &IndexedTokens::truncate)
      .def("propose", &IndexedTokens::propose)
      .def("generate", &IndexedTokens::generate)
      .def("__len__", &IndexedTokens::size);
  module.def("ngram_priors", &ngram_priors);
  py::class_<RowCosts>(module, "RowCosts")
      .def(py::init<>())
      .def("add", &RowCosts::add, py::arg("n_rows"), py::arg("n_held"), py::arg("ns"))
      .def("add_prompt", &RowCosts::add_prompt, py::arg("n_rows"), py::arg("ns"))
      .def("step_ns", &RowCosts::step_ns, py::arg("n_rows"), py::arg("n_held") = 0.0)
      .def("baseline_ns", &RowCosts::baseline_ns, py::arg("n_rows"), py::arg("n_held") = 0.0);
  module.def("chosen_depths", &chosen_depths, py::arg("survivals"), py::arg("guess_costs"), py::arg("n_outputs"),
             py::arg("n_rows"), py::arg("n_held"), py::arg("n_free"), py::arg("costs"));
  py::class_<ControlledSequences>(module, "ControlledSequences")
      .def(py::init<int>(), py::arg("n_sequences"))
      .def(
          "choose",
          [](ControlledSequences& self, const std::vector<std::pair<int, std::vector<int>>>& guesses, int n_outputs,
             int n_rows, double n_held, int n_free, double guess_cost, double start_cost, int n_had, int n_ahead) {
            const StepShape step{.n_outputs = n_outputs, .n_rows = n_rows, .n_held = n_held, .n_free = n_free};
            return self.choose(guesses, step, guess_cost, start_cost, n_had, n_ahead);
          },
          py::arg("guesses"), py::arg("n_outputs"), py::arg("n_rows"), py::arg("n_held") = 0.0, py::arg("n_free") = 64,
          py::arg("guess_cost") = 0.0, py::arg("start_cost") = 0.0, py::arg("n_had") = 0, py::arg("n_ahead") = 1000)
      .def("add_rounds", &ControlledSequences::add_rounds, py::arg("n_right"), py::arg("work_ns"),
           py::arg("draft_ns") = 0.0, py::arg("is_held_back") = false)
      .def("n_to_ask", &ControlledSequences::n_to_ask, py::arg("sequence"), py::arg("n_most"))
      .def("add_wait", &ControlledSequences::add_wait, py::arg("sequence"), py::arg("n_asked"), py::arg("n_given"),
           py::arg("wait_ns"))
      .def("add_answered", &ControlledSequences::add_answered, py::arg("sequence"), py::arg("n_right"))
      .def("may_draft", &ControlledSequences::may_draft)
      .def("budget", &ControlledSequences::budget)
      .def("set_prior",
           [](ControlledSequences& self, int drafter, int confidence, double first, double later) {
             self.control().set_prior(drafter, confidence, {.first = first, .later = later});
           })
      .def("backoff_left", &ControlledSequences::backoff_left)
      .def("reset", &ControlledSequences::reset)
      .def_property_readonly(
          "costs", [](ControlledSequences& self) -> RowCosts& { return self.control().costs(); },
          py::return_value_policy::reference_internal);
}

}  // namespace imp::bindings

// Binds each event as a small read-only class.
#include "bindings/bind_events.h"

#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace py = pybind11;

namespace imp::bindings {
namespace {

const char* word(FinishReason reason) {
  switch (reason) {
    case FinishReason::stop:
      return "stop";
    case FinishReason::max_tokens:
      return "max_tokens";
    case FinishReason::context_full:
      return "context_full";
    case FinishReason::time_limit:
      return "time_limit";
    case FinishReason::aborted:
      return "aborted";
    case FinishReason::cancelled:
      return "cancelled";
  }
  return "cancelled";
}

py::array_t<float> array_of(const std::vector<float>& values) {
  return py::array_t<float>(static_cast<py::ssize_t>(values.size()), values.data());
}

template <class T>
py::class_<T> bind_event(py::module_& module, const char* name, const char* doc) {
  return py::class_<T>(module, name, doc)
      .def(py::init<>())
      .def_readonly("ticket", &T::ticket)
      .def_readonly("sequence", &T::sequence);
}

void register_parts(py::module_& module) {
  py::class_<Candidate>(module, "Candidate",
                        "An alternative token at this position. Its logprob is from the raw logits.")
      .def_readonly("token", &Candidate::token)
      .def_readonly("logprob", &Candidate::logprob);
  py::class_<TokenScores>(module, "TokenScores",
                          "Scores of evaluated tokens, as parallel lists. The first token of a sequence has NaN.")
      .def_readonly("tokens", &TokenScores::tokens)
      .def_readonly("logprobs", &TokenScores::logprobs)
      .def_readonly("candidates", &TokenScores::candidates);
  py::class_<DraftCounts>(module, "DraftCounts", "How speculative decoding went.")
      .def_readonly("n_rounds", &DraftCounts::n_rounds)
      .def_readonly("n_drafted", &DraftCounts::n_drafted)
      .def_readonly("n_accepted", &DraftCounts::n_accepted);
  py::class_<SparseReport>(module, "SparseReport", "What of a prompt was evaluated.")
      .def_readonly("is_sparse", &SparseReport::is_sparse)
      .def_property_readonly("reason", [](const SparseReport& report) { return std::string(name_of(report.reason)); })
      .def_readonly("n_scored", &SparseReport::n_scored)
      .def_readonly("n_selected", &SparseReport::n_selected)
      .def_readonly("scoring_ns", &SparseReport::scoring_ns);
  py::class_<RunTimings>(module, "RunTimings", "How a run's time is divided, in nanoseconds.")
      .def_readonly("queue_ns", &RunTimings::queue_ns)
      .def_readonly("prefill_ns", &RunTimings::prefill_ns)
      .def_readonly("decode_ns", &RunTimings::decode_ns)
      .def_readonly("blocked_ns", &RunTimings::blocked_ns)
      .def_readonly("encode_ns", &RunTimings::encode_ns);
}

// Names are indices into a list: a profile has a hundred thousand ops of a dozen names.
py::tuple ops_of(const ProfileEvent& profile) {
  std::vector<std::string_view> names;
  const auto n = static_cast<py::ssize_t>(profile.ops.size());
  py::array_t<std::int32_t> which(n);
  py::array_t<std::int64_t> begin(n);
  py::array_t<std::int64_t> end(n);
  for (py::ssize_t i = 0; i < n; ++i) {
    const OpSpan& op = profile.ops[static_cast<std::size_t>(i)];
    auto found = std::ranges::find(names, op.name);
    if (found == names.end()) found = names.insert(found, op.name);
    which.mutable_at(i) = static_cast<std::int32_t>(found - names.begin());
    begin.mutable_at(i) = op.begin_ns;
    end.mutable_at(i) = op.end_ns;
  }
  return py::make_tuple(names, which, begin, end);
}

void register_profile(py::module_& module) {
  py::class_<Interval>(module, "Interval", "Begin and end, in nanoseconds of the engine's clock.")
      .def_readonly("begin_ns", &Interval::begin_ns)
      .def_readonly("end_ns", &Interval::end_ns);
  py::class_<StepSpan>(module, "StepSpan", "A recorded step.")
      .def_readonly("whole", &StepSpan::whole)
      .def_readonly("forward", &StepSpan::forward)
      .def_readonly("sample", &StepSpan::sample)
      .def_readonly("n_decode_rows", &StepSpan::n_decode_rows)
      .def_readonly("n_prefill_rows", &StepSpan::n_prefill_rows)
      .def_readonly("n_guess_rows", &StepSpan::n_guess_rows);
  bind_event<ProfileEvent>(module, "ProfileEvent", "A profile ended.")
      .def_readonly("steps", &ProfileEvent::steps)
      .def("ops", &ops_of,
           "A list of names, and for each op the index of its name, its begin and its end in "
           "nanoseconds.")
      .def_readonly("n_dropped_ops", &ProfileEvent::n_dropped_ops);
}

}  // namespace

void register_events(py::module_& module) {
  register_parts(module);
  bind_event<StartedEvent>(module, "StartedEvent", "The run's tokens are evaluated.")
      .def_readonly("stream", &StartedEvent::stream)
      .def_readonly("n_tokens", &StartedEvent::n_tokens)
      .def_readonly("n_cached_tokens", &StartedEvent::n_cached_tokens)
      .def_readonly("scores", &StartedEvent::scores)
      .def_readonly("candidates", &StartedEvent::candidates)
      .def_property_readonly("logits", [](const StartedEvent& event) { return array_of(event.logits); })
      .def_property_readonly("vector", [](const StartedEvent& event) { return array_of(event.vector); })
      .def_property_readonly("sparse", [](const StartedEvent& event) {
        return event.sparse.is_asked ? std::optional(event.sparse) : std::nullopt;
      });
  bind_event<TokenEvent>(module, "TokenEvent", "An output was drawn.")
      .def_readonly("stream", &TokenEvent::stream)
      .def_readonly("output", &TokenEvent::output)
      .def_readonly("token", &TokenEvent::token)
      .def_readonly("position", &TokenEvent::position)
      .def_readonly("eos", &TokenEvent::eos)
      .def_readonly("awaits_mask", &TokenEvent::awaits_mask)
      .def_readonly("logprob", &TokenEvent::logprob)
      .def_readonly("candidates", &TokenEvent::candidates)
      .def_property_readonly("logits", [](const TokenEvent& event) { return array_of(event.logits); });
  bind_event<DraftedEvent>(module, "DraftedEvent", "The outputs of a step are complete; the run asks for guesses.")
      .def_readonly("stream", &DraftedEvent::stream)
      .def_readonly("output", &DraftedEvent::output)
      .def_readonly("n_most", &DraftedEvent::n_most)
      .def_property_readonly("tokens", [](const DraftedEvent& event) {
        return std::vector(event.tokens.begin(), event.tokens.begin() + event.n_tokens);
      });
  bind_event<FinishedEvent>(module, "FinishedEvent", "A run ended.")
      .def_readonly("stream", &FinishedEvent::stream)
      .def_property_readonly("reason", [](const FinishedEvent& event) { return word(event.reason); })
      .def_readonly("stop_token", &FinishedEvent::stop_token)
      .def_readonly("eos", &FinishedEvent::eos)
      .def_readonly("stop_logprob", &FinishedEvent::stop_logprob)
      .def_readonly("stop_candidates", &FinishedEvent::stop_candidates)
      .def_readonly("n_outputs", &FinishedEvent::n_outputs)
      .def_readonly("position", &FinishedEvent::position)
      .def_readonly("pending", &FinishedEvent::pending)
      .def_readonly("timings", &FinishedEvent::timings)
      .def_readonly("n_preemptions", &FinishedEvent::n_preemptions)
      .def_readonly("drafts", &FinishedEvent::drafts)
      .def_property_readonly("drafters", [](const FinishedEvent& event) { return dict_of(event.drafters); })
      .def_property_readonly("drafts_off", [](const FinishedEvent& event) { return std::string(event.drafts_off); });
  bind_event<FailedEvent>(module, "FailedEvent", "A command failed, or a run ended by a failure.")
      .def_readonly("stream", &FailedEvent::stream)
      .def_property_readonly("reason", [](const FailedEvent& event) { return row_of(event.reason).name; })
      .def_readonly("message", &FailedEvent::message)
      .def_property_readonly("details", [](const FailedEvent& event) {
        py::dict details;
        for (const auto& [key, value] : event.details) details[py::str(key)] = value;
        return details;
      });
  bind_event<DoneEvent>(module, "DoneEvent", "Fork, truncate, close or flush is done.")
      .def_readonly("position", &DoneEvent::position)
      .def_readonly("existed", &DoneEvent::existed)
      .def_readonly("freed_blocks", &DoneEvent::freed_blocks);
  register_profile(module);
}

py::dict dict_of(const CountsByDrafter& counts) {
  py::dict by_name;
  for (const DrafterCounts& each : counts) {
    if (!each.name.empty()) by_name[py::str(each.name.data(), each.name.size())] = each.counts;
  }
  return by_name;
}

py::list event_list(std::vector<Event>& events) {
  py::list list;
  for (Event& event : events) {
    list.append(std::visit([](auto& told) { return py::cast(std::move(told)); }, event));
  }
  return list;
}

}  // namespace imp::bindings

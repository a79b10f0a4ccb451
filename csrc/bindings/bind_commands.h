// The engine's commands as methods with keyword arguments, for any class with submit(std::vector<Command>).
#pragma once

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/data/commands.h"
#include "engine/data/told_outputs.h"
#include "engine/schedule/queue_places.h"

namespace imp::bindings {

// SamplingOptions, RunLimits, VectorRequest, RunReturns, Section, SectionBudget, Media, MediaSpan.
void register_command_parts(pybind11::module_& module);

// A bit per token id, lowest bit of byte 0 first, as words; the last word is filled with zeros.
std::vector<std::uint32_t> mask_of_bytes(const pybind11::bytes& bytes);

SequenceKind sequence_kind(const std::string& word);
// `policy`: none if the request does not ask for sparse prefill.
SparseRequest sparse_request(const std::optional<std::string>& policy, std::int32_t keep, std::int32_t backbone);
EndReason end_reason(const std::string& word);

// The tokens of a sequence, and whether its end came too.
using ToldPair = std::pair<std::vector<std::int32_t>, bool>;
std::vector<ToldOutputs> told_outputs(std::vector<ToldPair> pairs);

// Checks and queues without the GIL.
template <class Self>
void submit_unlocked(Self& self, std::vector<Command> commands) {
  const pybind11::gil_scoped_release unlocked;
  self.submit(std::move(commands));
}

template <class Class>
void def_run(Class& bound) {
  namespace py = pybind11;
  using Self = typename Class::type;
  using Tokens = std::vector<std::int32_t>;

  bound.def(
      "run",
      [](Self& self, Ticket ticket, SequenceId sequence, Tokens tokens, bool resume,
         std::optional<std::int32_t> position, std::optional<SamplingOptions> sampling,
         std::optional<std::int32_t> base, bool rebase, const RunLimits& limits, const RunReturns& returns,
         const SectionBudget& budget, const py::bytes& allowed, bool constrained,
         const std::optional<std::string>& sparse_policy, std::int32_t sparse_keep, std::int32_t sparse_backbone,
         std::int32_t max_draft_tokens, std::uint32_t drafters, Tokens forced, std::vector<SequenceId> siblings,
         std::string tenant, std::vector<MediaSpan> media) {
        submit_unlocked(self, {RunCommand{.ticket = ticket,
                                          .sequence = sequence,
                                          .tokens = std::move(tokens),
                                          .media = std::move(media),
                                          .resume = resume,
                                          .position = position,
                                          .sampling = std::move(sampling),
                                          .base = base,
                                          .rebase = rebase,
                                          .limits = limits,
                                          .returns = returns,
                                          .allowed = mask_of_bytes(allowed),
                                          .constrained = constrained,
                                          .budget = budget,
                                          .sparse = sparse_request(sparse_policy, sparse_keep, sparse_backbone),
                                          .max_draft_tokens = max_draft_tokens,
                                          .drafters = drafters,
                                          .forced = std::move(forced),
                                          .siblings = std::move(siblings),
                                          .tenant = std::move(tenant)}});
      },
      py::arg("ticket"), py::arg("sequence"), py::arg("tokens").noconvert() = Tokens{}, py::kw_only(),
      py::arg("resume") = false, py::arg("position") = py::none(), py::arg("sampling") = py::none(),
      py::arg("base") = py::none(), py::arg("rebase") = false, py::arg_v("limits", RunLimits{}, "RunLimits()"),
      py::arg_v("returns", RunReturns{}, "RunReturns()"), py::arg_v("budget", SectionBudget{}, "SectionBudget()"),
      py::arg("allowed") = py::bytes(), py::arg("constrained") = false, py::arg("sparse_policy") = py::none(),
      py::arg("sparse_keep") = kKeepAll, py::arg("sparse_backbone") = 0, py::arg("max_draft_tokens") = 0,
      py::arg("drafters") = ~0U, py::arg("forced").noconvert() = Tokens{},
      py::arg("siblings").noconvert() = std::vector<SequenceId>{}, py::arg("tenant") = "",
      py::arg("media") = std::vector<MediaSpan>{}, "Evaluates tokens, or the pending one, and samples outputs.");
}

template <class Class>
void def_generate(Class& bound) {
  namespace py = pybind11;
  using Self = typename Class::type;
  using Tokens = std::vector<std::int32_t>;

  bound.def(
      "generate",
      [](Self& self, Ticket ticket, SequenceId sequence, Tokens tokens, const SamplingOptions& sampling,
         std::int32_t priority, std::string tenant, std::string cache_scope, bool bypass_prefix,
         std::optional<std::int32_t> base, const RunLimits& limits, const RunReturns& returns,
         const SectionBudget& budget, bool constrained, const std::optional<std::string>& sparse_policy,
         std::int32_t sparse_keep, std::int32_t sparse_backbone, std::int32_t max_draft_tokens, std::uint32_t drafters,
         Tokens forced, std::vector<SequenceId> siblings, std::vector<MediaSpan> media, std::int32_t second_text,
         std::vector<ToldPair> told) {
        RunCommand run{.ticket = ticket,
                       .sequence = sequence,
                       .tokens = std::move(tokens),
                       .media = std::move(media),
                       .second_text = second_text,
                       .position = {},
                       .sampling = {},
                       .base = base,
                       .limits = limits,
                       .returns = returns,
                       .allowed = {},
                       .constrained = constrained,
                       .budget = budget,
                       .sparse = sparse_request(sparse_policy, sparse_keep, sparse_backbone),
                       .max_draft_tokens = max_draft_tokens,
                       .drafters = drafters,
                       .forced = std::move(forced),
                       .siblings = std::move(siblings),
                       .tenant = tenant};
        OpenCommand open{.sequence = sequence,
                         .kind = SequenceKind::generation,
                         .sampling = sampling,
                         .priority = priority,
                         .tenant = std::move(tenant),
                         .cache_scope = std::move(cache_scope),
                         .bypass_prefix = bypass_prefix};
        submit_unlocked(self, commands_behind(told_outputs(std::move(told)), std::move(open), std::move(run)));
      },
      py::arg("ticket"), py::arg("sequence"), py::arg("tokens").noconvert(), py::kw_only(),
      py::arg_v("sampling", SamplingOptions{}, "SamplingOptions()"), py::arg("priority") = 0, py::arg("tenant") = "",
      py::arg("cache_scope") = "", py::arg("bypass_prefix") = false, py::arg("base") = py::none(),
      py::arg_v("limits", RunLimits{}, "RunLimits()"), py::arg_v("returns", RunReturns{}, "RunReturns()"),
      py::arg_v("budget", SectionBudget{}, "SectionBudget()"), py::arg("constrained") = false,
      py::arg("sparse_policy") = py::none(), py::arg("sparse_keep") = kKeepAll, py::arg("sparse_backbone") = 0,
      py::arg("max_draft_tokens") = 0, py::arg("drafters") = ~0U, py::arg("forced").noconvert() = Tokens{},
      py::arg("siblings").noconvert() = std::vector<SequenceId>{}, py::arg("media") = std::vector<MediaSpan>{},
      py::arg("second_text") = -1, py::arg("told").noconvert() = std::vector<ToldPair>{},
      "Opens a generation and runs it. It closes when its run ends. Queues all commands or none. `told` has the "
      "outputs of each sequence that the caller has already, and whether it has its end: the run goes on behind all of "
      "them but the last, which it draws again. Outputs are then counted from there.");
}

// Of a class with a method engine().
template <class Class>
void def_place_of(Class& bound) {
  namespace py = pybind11;
  using Self = typename Class::type;

  bound.def(
      "place_of",
      [](const Self& self, const std::string& tenant, int n_own, int n_coming) {
        const QueuePlace place = self.engine().place_of(tenant, n_own, n_coming);
        return py::make_tuple(place.n_left, place.n_ahead);
      },
      py::arg("tenant"), py::kw_only(), py::arg("n_own") = 0, py::arg("n_coming") = 0,
      "Returns how many sequences of the tenant may still wait, and how many others begin before them at the most. "
      "Of n_coming sequences that are about to wait, n_own are the tenant's.");
}

template <class Class>
void def_run_control(Class& bound) {
  namespace py = pybind11;
  using Self = typename Class::type;

  bound.def(
      "mask",
      [](Self& self, Ticket ticket, SequenceId sequence, std::int32_t output, const py::bytes& allowed, bool end) {
        submit_unlocked(self, {MaskCommand{ticket, sequence, output, mask_of_bytes(allowed), end}});
      },
      py::arg("ticket"), py::arg("sequence"), py::arg("output"), py::arg("allowed") = py::bytes(), py::kw_only(),
      py::arg("end") = false,
      "Sets the tokens that an output of a constrained run may be. With `end`, the run ends "
      "before this output.");

  bound.def(
      "draft",
      [](Self& self, Ticket ticket, SequenceId sequence, std::int32_t output, std::vector<std::int32_t> tokens,
         const std::vector<py::bytes>& masks, bool forced, bool end) {
        std::vector<Command> commands{DraftCommand{ticket, sequence, output, std::move(tokens), forced}};
        for (const py::bytes& mask : masks) {
          commands.emplace_back(MaskCommand{ticket, sequence, output++, mask_of_bytes(mask), false});
        }
        if (end) commands.emplace_back(MaskCommand{ticket, sequence, output, {}, true});
        submit_unlocked(self, std::move(commands));
      },
      py::arg("ticket"), py::arg("sequence"), py::arg("output"), py::arg("tokens").noconvert(), py::arg("masks"),
      py::kw_only(), py::arg("forced") = false, py::arg("end") = false,
      "Answers a DraftedEvent with guesses, the mask of its output, and the masks behind the guesses. With `end`, the "
      "run ends behind the last guess.");

  bound.def(
      "end",
      [](Self& self, Ticket ticket, SequenceId sequence, const std::string& reason,
         std::optional<std::int32_t> n_outputs) {
        submit_unlocked(self, {EndCommand{ticket, sequence, end_reason(reason), n_outputs}});
      },
      py::arg("ticket"), py::arg("sequence"), py::arg("reason") = "cancelled", py::kw_only(),
      py::arg("n_outputs") = py::none(), "Ends a run. Removes its outputs after the first `n_outputs`, if given.");

  bound.def(
      "pause",
      [](Self& self, Ticket ticket, SequenceId sequence, bool paused) {
        submit_unlocked(self, {PauseCommand{ticket, sequence, paused}});
      },
      py::arg("ticket"), py::arg("sequence"), py::arg("paused"), "Pauses a run or resumes it.");
}

template <class Class>
void def_sessions(Class& bound) {
  namespace py = pybind11;
  using Self = typename Class::type;

  bound.def(
      "open",
      [](Self& self, SequenceId sequence, const std::string& kind, const SamplingOptions& sampling,
         std::int32_t priority, std::string tenant, std::string cache_scope, bool bypass_prefix) {
        submit_unlocked(self, {OpenCommand{.sequence = sequence,
                                           .kind = sequence_kind(kind),
                                           .sampling = sampling,
                                           .priority = priority,
                                           .tenant = std::move(tenant),
                                           .cache_scope = std::move(cache_scope),
                                           .bypass_prefix = bypass_prefix}});
      },
      py::arg("sequence"), py::kw_only(), py::arg("kind") = "session",
      py::arg_v("sampling", SamplingOptions{}, "SamplingOptions()"), py::arg("priority") = 0, py::arg("tenant") = "",
      py::arg("cache_scope") = "", py::arg("bypass_prefix") = false, "Opens an empty sequence.");

  bound.def(
      "fork",
      [](Self& self, Ticket ticket, SequenceId sequence, SequenceId copy, std::optional<std::int32_t> position) {
        submit_unlocked(self, {ForkCommand{ticket, sequence, copy, position}});
      },
      py::arg("ticket"), py::arg("sequence"), py::arg("copy"), py::arg("position") = py::none(),
      "Opens a session that shares the KV blocks of another.");

  bound.def(
      "truncate",
      [](Self& self, Ticket ticket, SequenceId sequence, std::int32_t position) {
        submit_unlocked(self, {TruncateCommand{ticket, sequence, position}});
      },
      py::arg("ticket"), py::arg("sequence"), py::arg("position"),
      "Removes the tokens of a session from a position on.");

  bound.def(
      "close",
      [](Self& self, Ticket ticket, SequenceId sequence) { submit_unlocked(self, {CloseCommand{ticket, sequence}}); },
      py::arg("ticket"), py::arg("sequence"), "Closes a sequence. Its current run ends as cancelled.");

  bound.def(
      "profile",
      [](Self& self, Ticket ticket, std::int32_t n_steps) { submit_unlocked(self, {ProfileCommand{ticket, n_steps}}); },
      py::arg("ticket"), py::arg("n_steps"),
      "Records the next steps; then a ProfileEvent follows. 0 ends the current profile.");
  bound.def(
      "flush", [](Self& self, Ticket ticket) { submit_unlocked(self, {FlushCacheCommand{ticket}}); }, py::arg("ticket"),
      "Frees the cached blocks that no sequence owns.");
}

// Every method is atomic: it raises and nothing is queued, or the command is queued.
template <class Class>
void def_commands(Class& bound) {
  def_sessions(bound);
  def_run(bound);
  def_generate(bound);
  def_run_control(bound);
}

}  // namespace imp::bindings

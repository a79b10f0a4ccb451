// The parts of commands, and the words for their kinds.
#include "bindings/bind_commands.h"

#include <pybind11/stl.h>

#include <cstring>
#include <map>
#include <string_view>

#include "base/error.h"

namespace py = pybind11;

namespace imp::bindings {
namespace {

SamplingOptions make_sampling(float temperature, std::int32_t top_k, float top_p, float min_p, float typical_p,
                              float repetition_penalty, float frequency_penalty, float presence_penalty,
                              std::int32_t penalty_window, float dry_multiplier, float dry_base,
                              std::int32_t dry_allowed_length, std::int32_t dry_window,
                              std::vector<std::int32_t> dry_breakers, const std::map<std::int32_t, float>& logit_bias,
                              std::uint64_t seed) {
  SamplingOptions options;
  options.values = {.temperature = temperature,
                    .top_k = top_k,
                    .top_p = top_p,
                    .min_p = min_p,
                    .typical_p = typical_p,
                    .repetition_penalty = repetition_penalty,
                    .frequency_penalty = frequency_penalty,
                    .presence_penalty = presence_penalty,
                    .penalty_window = penalty_window,
                    .dry_multiplier = dry_multiplier,
                    .dry_base = dry_base,
                    .dry_allowed_length = dry_allowed_length,
                    .dry_window = dry_window,
                    .dry_breakers = {},
                    .logit_bias = {},
                    .seed = seed};
  options.dry_breakers = std::move(dry_breakers);
  for (const auto& [token, bias] : logit_bias) options.logit_bias.push_back({token, bias});
  return options;
}

[[noreturn]] void refuse(const char* field, const std::string& word, const char* known) {
  throw InvalidArgument(Reason::FIELD_INVALID, std::string(field) + ": " + word + ", expected one of " + known,
                        {{"field", field}});
}

}  // namespace

void register_command_parts(py::module_& module) {
  const SamplerParams off;
  py::class_<SamplingOptions>(module, "SamplingOptions", "A sampler with every field resolved; the defaults are off.")
      .def(py::init(&make_sampling), py::kw_only(), py::arg("temperature") = off.temperature,
           py::arg("top_k") = off.top_k, py::arg("top_p") = off.top_p, py::arg("min_p") = off.min_p,
           py::arg("typical_p") = off.typical_p, py::arg("repetition_penalty") = off.repetition_penalty,
           py::arg("frequency_penalty") = off.frequency_penalty, py::arg("presence_penalty") = off.presence_penalty,
           py::arg("penalty_window") = off.penalty_window, py::arg("dry_multiplier") = off.dry_multiplier,
           py::arg("dry_base") = off.dry_base, py::arg("dry_allowed_length") = off.dry_allowed_length,
           py::arg("dry_window") = off.dry_window, py::arg("dry_breakers").noconvert() = std::vector<std::int32_t>{},
           py::arg("logit_bias") = std::map<std::int32_t, float>{}, py::arg("seed") = off.seed);

  const RunLimits limits;
  py::class_<RunLimits>(module, "RunLimits", "When a run ends. max_outputs: 0 evaluates only, -1 is up to the context.")
      .def(py::init([](std::int32_t max_outputs, std::int32_t min_outputs, bool must_fit,
                       std::vector<std::int32_t> stop_tokens, std::vector<std::int32_t> eos_tokens, bool ends_at_eos) {
             return RunLimits{max_outputs,           min_outputs, must_fit, std::move(stop_tokens),
                              std::move(eos_tokens), ends_at_eos};
           }),
           py::kw_only(), py::arg("max_outputs") = limits.max_outputs, py::arg("min_outputs") = limits.min_outputs,
           py::arg("must_fit") = limits.must_fit, py::arg("stop_tokens").noconvert() = limits.stop_tokens,
           py::arg("eos_tokens").noconvert() = limits.eos_tokens, py::arg("ends_at_eos") = limits.ends_at_eos);

  py::class_<RunReturns>(module, "RunReturns", "What a run tells beside tokens.")
      .def(py::init(
               [](bool logprobs, std::int32_t n_candidates, bool logits, bool scores, std::int32_t n_score_candidates) {
                 return RunReturns{logprobs, n_candidates, logits, scores, n_score_candidates};
               }),
           py::kw_only(), py::arg("logprobs") = false, py::arg("n_candidates") = 0, py::arg("logits") = false,
           py::arg("scores") = false, py::arg("n_score_candidates") = 0);
}

std::vector<std::uint32_t> mask_of_bytes(const py::bytes& bytes) {
  const auto view = static_cast<std::string_view>(bytes);
  std::vector<std::uint32_t> words((view.size() + 3) / 4, 0);
  if (!view.empty()) std::memcpy(words.data(), view.data(), view.size());
  return words;
}

SequenceKind sequence_kind(const std::string& word) {
  if (word == "generation") return SequenceKind::generation;
  if (word == "session") return SequenceKind::session;
  refuse("kind", word, "generation, session");
}

EndReason end_reason(const std::string& word) {
  if (word == "cancelled") return EndReason::cancelled;
  if (word == "aborted") return EndReason::aborted;
  if (word == "time_limit") return EndReason::time_limit;
  if (word == "stop") return EndReason::stop;
  refuse("reason", word, "cancelled, aborted, time_limit, stop");
}

}  // namespace imp::bindings

// Binds the parts of commands, and parses the words for kinds and reasons.
#include "bindings/bind_commands.h"

#include <pybind11/stl.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <string_view>
#include <tuple>

#include "base/ceil_div.h"
#include "base/error.h"
#include "bindings/sampler_values.h"

namespace py = pybind11;

namespace imp::bindings {
namespace {

// The numbers are keywords, named by the table of the sampler's fields.
SamplingOptions make_sampling(std::vector<std::int32_t> dry_breakers, const std::map<std::int32_t, float>& logit_bias,
                              std::uint64_t seed, py::dict numbers) {
  SamplingOptions options{.values = {}, .dry_breakers = std::move(dry_breakers), .logit_bias = {}, .seed = seed};
  take_values(numbers, options.values);
  for (const auto& [name, value] : numbers) {
    throw py::type_error("SamplingOptions() got an unexpected keyword argument " + std::string(py::repr(name)));
  }
  for (const auto& [token, bias] : logit_bias) options.logit_bias.push_back({token, bias});
  return options;
}

// (height, width, pixels, rows of the encoding)
using PartValues = std::tuple<int, int, py::bytes, int>;

std::shared_ptr<Media> make_media(const py::bytes& digest, const std::vector<PartValues>& parts) {
  auto media = std::make_shared<Media>();
  const auto bytes = static_cast<std::string_view>(digest);
  if (bytes.size() != media->digest.size()) {
    throw FieldInvalid("digest",
                       std::to_string(bytes.size()) + " bytes, expected " + std::to_string(media->digest.size()));
  }
  std::memcpy(media->digest.data(), bytes.data(), bytes.size());
  for (const auto& [height, width, pixels, n_rows] : parts) {
    const auto view = static_cast<std::string_view>(pixels);
    media->parts.push_back({.grid = {height, width}, .pixels = {view.begin(), view.end()}, .n_rows = n_rows});
  }
  return media;
}

void register_media(py::module_& module) {
  py::class_<Media, std::shared_ptr<Media>>(
      module, "Media",
      "A medium of a prompt, such as an image. Each part is encoded by itself: (height, width, bytes of red, green and "
      "blue, rows of its encoding). Equal digests (SHA-256) mean equal parts.")
      .def(py::init(&make_media), py::arg("digest"), py::arg("parts"));
  py::class_<MediaSpan>(module, "MediaSpan",
                        "The cells of a run's tokens that hold a part of a medium. They begin at token `first`, and "
                        "there are as many as rows of its encoding. In these places the tokens are the placeholder.")
      .def(py::init([](std::shared_ptr<Media> media, int part, int first, std::optional<int> n_positions,
                       std::array<int, 2> grid, bool is_atomic) {
             const auto at = static_cast<std::size_t>(part);
             const int n_cells = part >= 0 && at < media->parts.size() ? media->parts[at].n_rows : 0;
             return MediaSpan{.first = first,
                              .n_cells = n_cells,
                              .n_positions = n_positions.value_or(n_cells),
                              .grid = grid,
                              .is_atomic = is_atomic,
                              .part = part,
                              .media = std::move(media)};
           }),
           py::arg("media"), py::arg("part"), py::arg("first"), py::kw_only(), py::arg("n_positions") = py::none(),
           py::arg("grid") = std::array{0, 0}, py::arg("is_atomic") = false);
}

using Steps = std::vector<std::tuple<std::int32_t, std::int32_t, std::int32_t>>;

Marker make_marker(std::int32_t n_bytes, const Steps& steps, bool is_first) {
  Marker marker{.n_bytes = n_bytes, .steps = {}, .is_first = is_first};
  for (const auto& [n_before, token, n_after] : steps) marker.steps.push_back({n_before, token, n_after});
  std::ranges::sort(marker.steps);
  return marker;
}

void register_section(py::module_& module) {
  py::class_<Marker>(module, "Marker",
                     "A text that outputs spell. A step has the number of its bytes before a token, the token, and the "
                     "number after it.")
      .def(py::init(&make_marker), py::arg("n_bytes"), py::arg("steps"), py::kw_only(), py::arg("is_first") = false);
  py::class_<Section, std::shared_ptr<Section>>(module, "Section", "A section of outputs, such as reasoning.")
      .def(py::init([](Marker opening, Marker closing, std::vector<std::vector<std::int32_t>> closings, bool recurs) {
             return std::make_shared<Section>(Section{.opening = std::move(opening),
                                                      .closing = std::move(closing),
                                                      .recurs = recurs,
                                                      .closings = std::move(closings)});
           }),
           py::arg("opening"), py::arg("closing"), py::arg("closings"), py::kw_only(), py::arg("recurs") = false);
  py::class_<SectionBudget>(module, "SectionBudget", "The most outputs of a section. Without a section: no bound.")
      .def(py::init<>())
      .def(py::init([](std::shared_ptr<Section> section, std::int32_t most, bool is_open) {
             return SectionBudget{.section = std::move(section), .most = most, .is_open = is_open};
           }),
           py::arg("section"), py::arg("most"), py::kw_only(), py::arg("is_open") = false);
}

[[noreturn]] void refuse(const char* field, const std::string& word, const char* known) {
  throw FieldInvalid(std::string(field), word + ", expected one of " + known);
}

}  // namespace

void register_command_parts(py::module_& module) {
  register_media(module);
  register_section(module);
  py::class_<SamplingOptions>(module, "SamplingOptions",
                              "Sampling options with every field resolved. Has a keyword for each of sampler_fields(). "
                              "A field that is not given is off.")
      .def(py::init([](std::vector<std::int32_t> dry_breakers, const std::map<std::int32_t, float>& logit_bias,
                       std::uint64_t seed, const py::kwargs& numbers) {
             return make_sampling(std::move(dry_breakers), logit_bias, seed, numbers);
           }),
           py::kw_only(), py::arg("dry_breakers").noconvert() = std::vector<std::int32_t>{},
           py::arg("logit_bias") = std::map<std::int32_t, float>{}, py::arg("seed") = 0);

  const RunLimits limits;
  py::class_<RunLimits>(module, "RunLimits",
                        "When a run ends. max_outputs = 0 only evaluates tokens; -1 generates up to the context "
                        "length.")
      .def(py::init([](std::int32_t max_outputs, std::int32_t min_outputs, bool must_fit,
                       std::vector<std::int32_t> stop_tokens, std::vector<std::int32_t> eos_tokens, bool ends_at_eos) {
             return RunLimits{.max_outputs = max_outputs,
                              .min_outputs = min_outputs,
                              .must_fit = must_fit,
                              .stop_tokens = std::move(stop_tokens),
                              .eos_tokens = std::move(eos_tokens),
                              .ends_at_eos = ends_at_eos};
           }),
           py::kw_only(), py::arg("max_outputs") = limits.max_outputs, py::arg("min_outputs") = limits.min_outputs,
           py::arg("must_fit") = limits.must_fit, py::arg("stop_tokens").noconvert() = limits.stop_tokens,
           py::arg("eos_tokens").noconvert() = limits.eos_tokens, py::arg("ends_at_eos") = limits.ends_at_eos);

  const VectorRequest whole;
  py::class_<VectorRequest>(module, "VectorRequest",
                            "How the vector of a text is returned: its first `dimensions`, 0: all, and then divided by "
                            "its length.")
      .def(py::init([](std::int32_t dimensions, bool normalized) { return VectorRequest{dimensions, normalized}; }),
           py::kw_only(), py::arg("dimensions") = whole.dimensions, py::arg("normalized") = whole.normalized);

  py::class_<RunReturns>(module, "RunReturns", "What a run returns besides tokens.")
      .def(py::init([](bool logprobs, std::int32_t n_candidates, bool logits, bool scores, std::int32_t first_score,
                       std::int32_t n_score_candidates, std::optional<VectorRequest> vector) {
             return RunReturns{.logprobs = logprobs,
                               .n_candidates = n_candidates,
                               .logits = logits,
                               .scores = scores,
                               .first_score = first_score,
                               .n_score_candidates = n_score_candidates,
                               .vector = vector};
           }),
           py::kw_only(), py::arg("logprobs") = false, py::arg("n_candidates") = 0, py::arg("logits") = false,
           py::arg("scores") = false, py::arg("first_score") = 0, py::arg("n_score_candidates") = 0,
           py::arg("vector") = py::none());
}

std::vector<std::uint32_t> mask_of_bytes(const py::bytes& bytes) {
  const auto view = static_cast<std::string_view>(bytes);
  std::vector<std::uint32_t> words(ceil_div(view.size(), 4), 0);
  if (!view.empty()) std::memcpy(words.data(), view.data(), view.size());
  return words;
}

SequenceKind sequence_kind(const std::string& word) {
  if (word == "generation") return SequenceKind::generation;
  if (word == "session") return SequenceKind::session;
  refuse("kind", word, "generation, session");
}

SparseRequest sparse_request(const std::optional<std::string>& policy, std::int32_t keep, std::int32_t backbone) {
  SparseRequest request{.is_asked = policy.has_value(), .keep = keep, .backbone = backbone};
  if (!policy) return request;
  if (*policy == "dense") {
    request.policy = SparsePolicy::dense;
  } else if (*policy == "auto") {
    request.policy = SparsePolicy::automatic;
  } else if (*policy == "sparse") {
    request.policy = SparsePolicy::sparse;
  } else {
    refuse("sparse_policy", *policy, "dense, auto, sparse");
  }
  return request;
}

std::vector<ToldOutputs> told_outputs(std::vector<ToldPair> pairs) {
  std::vector<ToldOutputs> told;
  told.reserve(pairs.size());
  for (auto& [tokens, is_finished] : pairs) told.push_back({std::move(tokens), is_finished});
  return told;
}

EndReason end_reason(const std::string& word) {
  if (word == "cancelled") return EndReason::cancelled;
  if (word == "aborted") return EndReason::aborted;
  if (word == "time_limit") return EndReason::time_limit;
  if (word == "stop") return EndReason::stop;
  refuse("reason", word, "cancelled, aborted, time_limit, stop");
}

}  // namespace imp::bindings

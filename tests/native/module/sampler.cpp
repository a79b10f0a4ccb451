// `_testing`: the sampler through a backend, and its inner steps on one row.
#include <pybind11/stl.h>

#include "backend/cpu/cpu_caps.h"
#include "backend/cpu/ops/ops_tables.h"
#include "backend/cpu/sampling/logprobs.h"
#include "backend/cpu/sampling/penalties.h"
#include "backend/cpu/sampling/sampling_support.h"
#include "backend/philox.h"
#include "backend/sampling_rules.h"
#include "base/ceil_div.h"
#include "base/float_mode.h"
#include "bindings/sampler_values.h"
#include "native/module/backend_memory.h"
#include "native/module/device.h"
#include "native/module/ops.h"

namespace py = pybind11;

namespace imp::bindings {
namespace {

// SamplerParams, and the request's own fields, from keyword arguments; an unknown one is an error.
struct Request {
  SamplerParams params;
  std::vector<std::int32_t> history, breakers;
  std::vector<LogitBias> bias;
  std::vector<std::vector<std::uint32_t>> masks;
  SampleRequest request;
  std::vector<Candidate> candidates;
};

// A mask of one byte per id as words of bits.
std::vector<std::uint32_t> words_of(const std::vector<bool>& allowed) {
  std::vector<std::uint32_t> words(ceil_div(allowed.size(), 32));
  for (std::size_t i = 0; i < allowed.size(); ++i) words[i / 32] |= static_cast<std::uint32_t>(allowed[i]) << (i % 32);
  return words;
}

template <class T>
bool take(py::dict& from, const char* name, T& value) {
  if (!from.contains(name)) return false;
  value = from[name].cast<T>();
  from.attr("pop")(name);
  return true;
}

std::unique_ptr<Request> request_of(py::dict fields) {
  fields = fields.attr("copy")();
  auto result = std::make_unique<Request>();
  SamplerParams& params = result->params;
  SampleRequest& request = result->request;
  take_values(fields, params);
  if (take(fields, "dry_breakers", result->breakers)) params.dry_breakers = result->breakers;
  std::map<std::int32_t, float> bias;
  take(fields, "logit_bias", bias);
  for (const auto& [token, value] : bias) result->bias.push_back({token, value});
  params.logit_bias = result->bias;
  take(fields, "seed", params.seed);
  take(fields, "row", request.logits_row);
  take(fields, "history", result->history);
  request.history = result->history;
  take(fields, "n_output", request.n_output);
  take(fields, "sequence", request.sequence);
  take(fields, "index", request.index);
  std::vector<std::vector<bool>> masks;
  take(fields, "masks", masks);
  for (std::size_t i = 0; i < masks.size(); ++i) {
    result->masks.push_back(words_of(masks[i]));
    if (!masks[i].empty()) request.masks.at(i) = result->masks.back().data();
  }
  take(fields, "logprob", request.logprob);
  int n_candidates = 0;
  take(fields, "n_candidates", n_candidates);
  result->candidates.resize(static_cast<std::size_t>(n_candidates));
  request.candidates = result->candidates;
  if (!fields.empty()) throw py::type_error("unknown sampler field " + py::repr(fields).cast<std::string>());
  request.params = &params;
  return result;
}

const char* name_of(SampleStatus status) {
  if (status == SampleStatus::ok) return "ok";
  return status == SampleStatus::non_finite ? "non_finite" : "no_candidate";
}

py::tuple outcome(const SampleResult& result, const std::vector<Candidate>& candidates) {
  py::list list;
  for (const Candidate& candidate : candidates) list.append(py::make_tuple(candidate.token, candidate.logprob));
  return py::make_tuple(name_of(result.status), result.token, result.logprob, list);
}

// A device takes at most as many requests at a time as there are rows.
void reserve_for(TestingDevice& device, Rows logits, std::size_t history) {
  device.backend().reserve({.max_rows = 1,
                            .max_logits_rows = logits.n_rows,
                            .max_sequences = 1,
                            .vocab_size = logits.width,
                            .max_context = static_cast<int>(history),
                            .attention = {.n_heads = 1, .n_kv_heads = 1, .head_dim = 8},
                            .weights = {}});
}

// (status, token, logprob, candidates) for each request, all in one call of the backend.
py::list sample(TestingDevice& device, const Floats& logits, const std::vector<py::dict>& fields,
                std::optional<int> scratch_fill) {
  std::vector<std::unique_ptr<Request>> held;
  std::vector<SampleRequest> requests;
  std::size_t history = 1;
  for (const py::dict& each : fields) {
    held.push_back(request_of(each));
    requests.push_back(held.back()->request);
    history = std::max(history, held.back()->history.size());
  }
  const Rows rows = device.to_rows(logits);
  reserve_for(device, rows, history);
  Backend& backend = device.backend();
  if (scratch_fill) fill_scratch(backend, static_cast<std::uint8_t>(*scratch_fill));
  std::vector<SampleResult> results(requests.size());
  backend.sample(rows, requests, results);
  const Floats after = device.to_array(rows);
  if (std::memcmp(after.data(), logits.data(), static_cast<std::size_t>(logits.nbytes())) != 0) {
    throw std::runtime_error("the sampler changed its logits");
  }
  py::list list;
  for (std::size_t i = 0; i < results.size(); ++i) list.append(outcome(results[i], held[i]->candidates));
  return list;
}

py::list score(TestingDevice& device, const Floats& logits, const std::vector<std::pair<int, std::int32_t>>& asked,
               int n_candidates) {
  const Rows rows = device.to_rows(logits);
  reserve_for(device, rows, 1);
  std::vector<std::vector<Candidate>> candidates(asked.size(),
                                                 std::vector<Candidate>(static_cast<std::size_t>(n_candidates)));
  std::vector<ScoreRequest> requests;
  for (std::size_t i = 0; i < asked.size(); ++i) {
    requests.push_back({.logits_row = asked[i].first, .token = asked[i].second, .candidates = candidates[i]});
  }
  std::vector<SampleResult> results(requests.size());
  device.backend().score(rows, requests, results);
  py::list list;
  for (std::size_t i = 0; i < results.size(); ++i) list.append(outcome(results[i], candidates[i]));
  return list;
}

// The sampler's inner steps on one row, with scratch of its own.
class Row {
 public:
  Row(const std::string& isa, Floats logits) : ops_(ops_for(isa)), logits_(std::move(logits)) {}

  std::span<const float> logits() const { return {logits_.data(), static_cast<std::size_t>(logits_.size())}; }

  // The logits after penalties, bias and masks.
  Floats adjusted(const py::dict& fields) {
    const auto held = request_of(fields);
    const imp::ComputeFloatMode mode;
    const cpu::SamplingScratch scratch = scratch_for(held->history.size());
    Floats result(logits_.size());
    std::copy_n(logits_.data(), logits_.size(), result.mutable_data());
    cpu::adjust_logits(held->request, {result.mutable_data(), logits().size()}, scratch);
    return result;
  }

  // (ids, weights) of the kept set.
  py::tuple support(const py::dict& fields) {
    const auto held = request_of(fields);
    const imp::ComputeFloatMode mode;
    const cpu::SamplingScratch scratch = scratch_for(1);
    const cpu::RowScan found = ops_.scan(logits_.data(), static_cast<int>(logits_.size()), scratch.chunk_keys);
    const cpu::Support kept = cpu::choose_support(ops_, logits(), logits_.at(found.index), held->params, scratch);
    return py::make_tuple(std::vector<std::int32_t>(kept.ids.begin(), kept.ids.end()),
                          std::vector<std::uint64_t>(kept.weights.begin(), kept.weights.end()));
  }

  // The choice of sample(), with the given random bits.
  std::int32_t choose(const py::dict& fields, std::uint64_t random) {
    const auto held = request_of(fields);
    ThreadPool pool{ThreadPoolOptions()};
    cpu::CpuOps table = {};
    table.sampling = ops_;
    const cpu::Sampler sampler(table, pool);
    const imp::ComputeFloatMode mode;
    return sampler.choose(logits(), held->request, random, scratch_for(held->history.size())).token;
  }

 private:
  static const cpu::SamplingOps& ops_for(const std::string& isa) {
    return cpu::ops_for(cpu::cpu_caps(isa).cpu).ops->sampling;
  }

  cpu::SamplingScratch scratch_for(std::size_t history) {
    const auto vocab_size = static_cast<int>(logits_.size());
    const auto max_history = static_cast<int>(history);
    const std::size_t n_bytes = cpu::SamplingScratch::n_bytes(vocab_size, max_history);
    memory_ = Arena(n_bytes).allocate(n_bytes);
    return cpu::SamplingScratch::in(memory_.get(), vocab_size, max_history);
  }

  const cpu::SamplingOps& ops_;
  Floats logits_;
  std::shared_ptr<std::byte> memory_;
};

}  // namespace

void register_testing_sampler(py::module_& module) {
  module.def("sample", &sample, py::arg("device"), py::arg("logits"), py::arg("requests"),
             py::arg("scratch_fill") = py::none());
  module.def("score", &score, py::arg("device"), py::arg("logits"), py::arg("requests"), py::arg("n_candidates") = 0);
  module.def("philox", &philox, py::arg("counter"), py::arg("key"));
  module.def("mass_share", &share, py::arg("p"), py::arg("total"));
  module.def("draw_bits", &draw_bits, py::arg("seed"), py::arg("sequence"), py::arg("index"));
  py::class_<Row>(module, "SamplerRow", "One row of logits, and the sampler's steps over it.")
      .def(py::init<const std::string&, Floats>(), py::arg("isa"), py::arg("logits"))
      .def("adjusted", &Row::adjusted, py::arg("fields"))
      .def("support", &Row::support, py::arg("fields"))
      .def("choose", &Row::choose, py::arg("fields"), py::arg("random"));
}

}  // namespace imp::bindings

// A minimal sampler.
#include "native/script/script_backend.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "base/error.h"

namespace imp::testing {
namespace {

constexpr double kOut = -std::numeric_limits<double>::infinity();

[[noreturn]] void no_op() {
  throw InternalError(Reason::BUG, "the script backend has no ops of a transformer");
}

std::span<const float> row_of(Rows logits, int row) {
  return {logits.data + static_cast<std::ptrdiff_t>(row) * logits.stride, static_cast<std::size_t>(logits.width)};
}

bool finite(std::span<const float> row) {
  return std::ranges::all_of(row, [](float value) { return std::isfinite(value); });
}

double log_sum(std::span<const float> row) {
  const double most = std::ranges::max(row);
  double sum = 0;
  for (const float value : row) sum += std::exp(value - most);
  return most + std::log(sum);
}

// Philox-4x32-10: the first two words for (seed, sequence, index).
std::uint64_t uniform(std::uint64_t seed, std::uint32_t sequence, std::uint32_t index) {
  std::array<std::uint32_t, 4> counter{index, sequence, 0, 0};
  auto k0 = static_cast<std::uint32_t>(seed);
  auto k1 = static_cast<std::uint32_t>(seed >> 32U);
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t a = std::uint64_t{0xD2511F53U} * counter[0];
    const std::uint64_t b = std::uint64_t{0xCD9E8D57U} * counter[2];
    counter = {static_cast<std::uint32_t>(b >> 32U) ^ counter[1] ^ k0, static_cast<std::uint32_t>(b),
               static_cast<std::uint32_t>(a >> 32U) ^ counter[3] ^ k1, static_cast<std::uint32_t>(a)};
    k0 += 0x9E3779B9U;
    k1 += 0xBB67AE85U;
  }
  return (std::uint64_t{counter[0]} << 32U) | counter[1];
}

bool allowed(const SampleRequest& request, std::size_t id) {
  return std::ranges::all_of(request.masks, [id](const std::uint32_t* mask) {
    return mask == nullptr || ((mask[id / 32] >> (id % 32)) & 1U) != 0;
  });
}

void penalize(const SampleRequest& request, std::vector<double>& row) {
  const SamplerParams& params = *request.params;
  const auto is_absent = [](const std::uint32_t* mask) { return mask == nullptr; };
  const bool is_neutral = params.repetition_penalty == 1 && params.frequency_penalty == 0 &&
                          params.presence_penalty == 0 && params.logit_bias.empty() &&
                          std::ranges::all_of(request.masks, is_absent);
  if (is_neutral) return;  // the loops below are slow: vocabulary times history
  const auto n_window =
      params.penalty_window > 0 ? static_cast<std::size_t>(params.penalty_window) : request.history.size();
  const auto history = request.history.last(std::min(n_window, request.history.size()));
  const auto output = history.last(std::min(static_cast<std::size_t>(request.n_output), history.size()));
  for (std::size_t id = 0; id < row.size(); ++id) {
    const auto token = static_cast<std::int32_t>(id);
    double& logit = row[id];
    if (std::ranges::find(history, token) != history.end() && params.repetition_penalty != 1) {
      logit = logit > 0 ? logit / params.repetition_penalty : logit * params.repetition_penalty;
    }
    const auto count = static_cast<double>(std::ranges::count(output, token));
    if (count > 0) logit -= params.frequency_penalty * count + params.presence_penalty;
    for (const LogitBias& bias : params.logit_bias) logit += bias.token == token ? bias.bias : 0;
    if (!allowed(request, id)) logit = kOut;
  }
}

void fill_candidates(std::span<const float> row, std::span<Candidate> candidates) {
  const double total = log_sum(row);
  std::vector<std::int32_t> ids(candidates.empty() ? 0 : row.size());
  for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<std::int32_t>(i);
  std::ranges::stable_sort(ids, [&](std::int32_t a, std::int32_t b) {
    return row[static_cast<std::size_t>(a)] > row[static_cast<std::size_t>(b)];
  });
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    candidates[i] = {ids[i], static_cast<float>(row[static_cast<std::size_t>(ids[i])] - total)};
  }
}

}  // namespace

std::unique_ptr<Linear> ScriptBackend::load_linear(const WeightSource&, const GemmPlan&) {
  no_op();
}
std::vector<std::unique_ptr<Linear>> ScriptBackend::load_linears(std::span<const LinearRequest>, const BytesRead&) {
  no_op();
}
std::unique_ptr<Vector> ScriptBackend::load_vector(std::span<const float>) {
  no_op();
}
// Of the arena of encodings, which lives as long as the backend.
Rows ScriptBackend::make_rows(int n_rows, int width) {
  std::vector<float>& values = made_.emplace_back(static_cast<std::size_t>(n_rows) * static_cast<std::size_t>(width));
  return {.data = values.data(), .n_rows = n_rows, .width = width, .stride = width};
}
ExpertRows ScriptBackend::make_expert_rows(int, const ExpertRouting&) {
  no_op();
}
void ScriptBackend::reserve(const WorkspaceNeeds&) {
  no_op();
}
void ScriptBackend::embed(std::span<const std::int32_t>, const Linear&, float, Rows) {
  no_op();
}
void ScriptBackend::rms_norm(Rows, const Norm&, Rows) {
  no_op();
}
void ScriptBackend::add_norm(Rows, Rows, const Norm&, Rows) {
  no_op();
}
void ScriptBackend::linear(Rows, std::span<const LinearTerm>) {
  no_op();
}
void ScriptBackend::gated_linear(Rows, const GatedTerm&, GatedActivation) {
  no_op();
}
void ScriptBackend::rope_angles(std::span<const std::int32_t>, const Rope&, Rows) {
  no_op();
}
void ScriptBackend::rope(Rows, int, const Norm&, const Rope&, Rows) {
  no_op();
}
void ScriptBackend::append_kv(KvPool&, int, std::span<const SequenceRows>, Rows, Rows) {
  no_op();
}
void ScriptBackend::attend(const KvPool&, int, std::span<const SequenceRows>, const AttentionParams&, Rows, Rows) {
  no_op();
}
void ScriptBackend::gated_activation(GatedActivation, Rows, Rows, Rows) {
  no_op();
}
void ScriptBackend::route_experts(Rows, const ExpertRouting&, const ExpertRows&) {
  no_op();
}
void ScriptBackend::expert_linear_in(Rows, const ExpertRows&, std::span<const ExpertTerm>) {
  no_op();
}
void ScriptBackend::expert_linear_out(Rows, const ExpertRows&, const ExpertTerm&) {
  no_op();
}
void ScriptBackend::mix_experts(Rows, const ExpertRows&, Rows) {
  no_op();
}
void ScriptBackend::add(Rows, Rows) {
  no_op();
}
void ScriptBackend::add_gated(Rows, Rows, Rows) {
  no_op();
}
void ScriptBackend::soft_cap(Rows, float) {
  no_op();
}
void ScriptBackend::gather_rows(Rows x, std::span<const std::int32_t> rows, Rows out) {
  for (std::size_t i = 0; i < rows.size(); ++i) {
    std::ranges::copy(row_of(x, rows[i]), out.data + static_cast<std::ptrdiff_t>(i) * out.stride);
  }
}

std::unique_ptr<KvPool> ScriptBackend::make_kv_pool(const KvGeometry& geometry) {
  auto made = std::make_unique<TokenPool>(geometry);
  pool = made.get();
  return made;
}

void ScriptBackend::sample(Rows logits, std::span<const SampleRequest> requests, std::span<SampleResult> results) {
  const std::int64_t number = n_sample_calls++;
  if (std::ranges::find(failing_samples, number) != failing_samples.end()) {
    throw InternalError(Reason::BUG, "the script makes sampling " + std::to_string(number) + " fail");
  }
  for (std::size_t i = 0; i < requests.size(); ++i) {
    SampleRequest request = requests[i];
    const bool is_guess_row = i > 0 && requests[i - 1].params == request.params &&
                              requests[i - 1].sequence == request.sequence &&
                              requests[i - 1].index + 1 == request.index;
    if (shifts_masks && is_guess_row) request.masks = requests[i - 1].masks;
    if (records) {
      RecordedDraw& draw = recorded.emplace_back();
      draw = {*request.params,
              {request.params->logit_bias.begin(), request.params->logit_bias.end()},
              {request.history.begin(), request.history.end()},
              request.n_output,
              request.sequence,
              request.index};
    }
    results[i] = draw(row_of(logits, request.logits_row), request);
  }
}

bool ScriptBackend::begin_sample(Rows logits, std::span<const SampleRequest> requests) {
  IMP_CHECK(begun_.size() < 2);
  last_drawn.assign(requests.size(), {});
  sample(logits, requests, last_drawn);
  begun_.push_back(last_drawn);
  return true;
}

void ScriptBackend::finish_sample(std::span<const SampleRequest>, std::span<SampleResult> results) {
  IMP_CHECK(!begun_.empty() && begun_.front().size() == results.size());
  std::ranges::copy(begun_.front(), results.begin());
  begun_.pop_front();
}

SampleResult ScriptBackend::draw(std::span<const float> row, const SampleRequest& request) {
  const SamplerParams& params = *request.params;
  IMP_CHECK(params.top_k == 0 && params.top_p == 1 && params.min_p == 0 && params.typical_p == 1);
  IMP_CHECK(params.dry_multiplier == 0);
  if (!finite(row)) return {.status = SampleStatus::non_finite};
  adjusted_.assign(row.begin(), row.end());
  penalize(request, adjusted_);
  const auto best = std::ranges::max_element(adjusted_);
  if (*best == kOut) return {.status = SampleStatus::no_candidate};
  fill_candidates(row, request.candidates);
  auto token = static_cast<std::size_t>(best - adjusted_.begin());
  if (params.temperature >= 1e-4F) {
    const auto weight = [&](double logit) {
      const double scaled = std::exp((logit - *best) / params.temperature);
      return static_cast<std::uint64_t>(std::floor(scaled * 1099511627776.0));  // 2^40
    };
    std::uint64_t total = 0;
    for (const double logit : adjusted_) total += weight(logit);
    // floor(r · total / 2^64) in two halves: total is below 2^62, the product below 2^126.
    const std::uint64_t r = uniform(params.seed, request.sequence, request.index);
    const std::uint64_t low = ((r & 0xffffffffU) * (total & 0xffffffffU)) >> 32U;
    const std::uint64_t middle = (r >> 32U) * (total & 0xffffffffU) + low;
    const std::uint64_t other = (r & 0xffffffffU) * (total >> 32U) + (middle & 0xffffffffU);
    const std::uint64_t threshold = (r >> 32U) * (total >> 32U) + (middle >> 32U) + (other >> 32U);
    std::uint64_t sum = 0;
    for (token = 0; token < adjusted_.size(); ++token) {
      sum += weight(adjusted_[token]);
      if (sum > threshold) break;
    }
  }
  const double logprob = request.logprob ? row[token] - log_sum(row) : 0;
  return {
      .status = SampleStatus::ok, .token = static_cast<std::int32_t>(token), .logprob = static_cast<float>(logprob)};
}

void ScriptBackend::score(Rows logits, std::span<const ScoreRequest> requests, std::span<SampleResult> results) {
  for (std::size_t i = 0; i < requests.size(); ++i) {
    const std::span<const float> row = row_of(logits, requests[i].logits_row);
    if (!finite(row)) {
      results[i] = {.status = SampleStatus::non_finite};
      continue;
    }
    fill_candidates(row, requests[i].candidates);
    const double logprob = row[static_cast<std::size_t>(requests[i].token)] - log_sum(row);
    results[i] = {.status = SampleStatus::ok, .token = requests[i].token, .logprob = static_cast<float>(logprob)};
  }
}

void ScriptBackend::read_row(Rows logits, int row, std::span<float> out) {
  std::ranges::copy(row_of(logits, row), out.begin());
}

void ScriptBackend::copy_block(KvPool& destination, std::int32_t from, std::int32_t to) {
  dynamic_cast<TokenPool&>(destination).copy(from, to);
}

}  // namespace imp::testing

// Two forward passes side by side.
#include "model/cache_trial.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <vector>

#include "base/ceil_div.h"
#include "base/error.h"

namespace imp {
namespace {

// Logits are compared in chunks of so many rows, so that few of them are held twice.
constexpr int kJudgedRows = 16;

// One text in a cache of its own.
class TextRun {
 public:
  TextRun(ForwardPass& model, Backend& backend, std::span<const std::int32_t> tokens, std::span<const KvTypes> types)
      : model_(model), tokens_(tokens), blocks_(1) {
    KvGeometry geometry = model.kv_geometry(0, kSlots);
    geometry.n_blocks = ceil_div(static_cast<int>(tokens.size()), geometry.block_tokens);
    for (std::size_t i = 0; i < types.size(); ++i) geometry.layers[i].types = types[i];
    has_state_ = geometry.state.n_layers > 0;
    pool_ = backend.make_kv_pool(geometry);
    blocks_.resize(static_cast<std::size_t>(geometry.n_blocks));
    std::iota(blocks_.begin(), blocks_.end(), 0);
  }

  // The next n tokens. Returns the logits of all of them, or none.
  Rows run(int n, bool with_logits) {
    const StateSave save = {.n_rows = n, .slot = state_ == 0 ? 1 : 0};
    const std::span<const StateSave> saves(&save, has_state_ ? 1 : 0);
    const SequenceRows rows = {.first_row = 0,
                               .n_rows = n,
                               .first_position = n_done_,
                               .blocks = blocks_,
                               .state = state_,
                               .state_saves = saves};
    std::vector<std::int32_t> logits_rows(with_logits ? static_cast<std::size_t>(n) : 0);
    std::iota(logits_rows.begin(), logits_rows.end(), 0);
    const auto first = static_cast<std::size_t>(n_done_), count = static_cast<std::size_t>(n);
    positions_.clear();
    for (int plane = 0; plane < model_.n_planes(); ++plane) {
      for (int i = 0; i < n; ++i) positions_.push_back(n_done_ + i);
    }
    if (has_state_) state_ = save.slot;
    n_done_ += n;
    return model_.forward({.tokens = tokens_.subspan(first, count),
                           .positions = positions_,
                           .sequences = {&rows, 1},
                           .logits_rows = logits_rows},
                          *pool_);
  }

 private:
  static constexpr int kSlots = 2;  // of recurrent state: before and after a chunk
  ForwardPass& model_;
  std::span<const std::int32_t> tokens_;
  std::unique_ptr<KvPool> pool_;
  std::vector<std::int32_t> blocks_, positions_;
  bool has_state_ = false;
  std::int32_t state_ = kNoSlot;
  int n_done_ = 0;
};

std::vector<float> read_rows(Backend& backend, Rows logits) {
  const auto width = static_cast<std::size_t>(logits.width);
  std::vector<float> values(static_cast<std::size_t>(logits.n_rows) * width);
  for (int row = 0; row < logits.n_rows; ++row) {
    backend.read_row(logits, row, std::span(values).subspan(static_cast<std::size_t>(row) * width, width));
  }
  return values;
}

// A row of logits as a distribution.
struct Distribution {
  std::span<const float> logits;
  std::size_t top;
  double log_sum;  // of the exponentials

  explicit Distribution(std::span<const float> row)
      : logits(row), top(static_cast<std::size_t>(std::ranges::max_element(row) - row.begin())), log_sum(0) {
    const double greatest = row[top];
    double sum = 0;
    for (const float logit : row) sum += std::exp(logit - greatest);
    log_sum = greatest + std::log(sum);
  }
  double log_probability(std::size_t token) const { return logits[token] - log_sum; }
};

double divergence(const Distribution& from, const Distribution& to) {
  double sum = 0;
  for (std::size_t i = 0; i < from.logits.size(); ++i) {
    const double log_probability = from.log_probability(i);
    sum += std::exp(log_probability) * (log_probability - to.log_probability(i));
  }
  return sum;
}

}  // namespace

CacheTrial try_cache_types(ForwardPass& model, Backend& backend, std::span<const std::int32_t> tokens, int n_judged,
                           std::span<const KvTypes> types) {
  const int n_tokens = static_cast<int>(tokens.size());
  IMP_CHECK(n_judged >= 2 && n_judged <= n_tokens);
  backend.begin();
  const std::vector<KvTypes> f32(types.size(), {KvType::f32, KvType::f32});
  TextRun exact(model, backend, tokens, f32);
  TextRun tried(model, backend, tokens, types);
  const int first_judged = n_tokens - n_judged, last = n_tokens - 1;
  for (int done = 0, n = 0; done < first_judged; done += n) {
    n = std::min(model.limits().max_rows, first_judged - done);
    exact.run(n, false);
    tried.run(n, false);
  }
  CacheTrial sums;
  const int chunk = std::min({kJudgedRows, model.limits().max_rows, model.limits().max_logits_rows});
  for (int done = first_judged, n = 0; done < last; done += n) {
    n = std::min(chunk, last - done);
    const std::vector<float> of_exact = read_rows(backend, exact.run(n, true));
    const std::vector<float> of_tried = read_rows(backend, tried.run(n, true));
    const std::size_t width = of_exact.size() / static_cast<std::size_t>(n);
    for (int i = 0; i < n; ++i) {
      const auto at = static_cast<std::size_t>(i) * width;
      const Distribution from({of_exact.data() + at, width}), to({of_tried.data() + at, width});
      const auto next = static_cast<std::size_t>(tokens[static_cast<std::size_t>(done + i + 1)]);
      sums.divergence += divergence(from, to);
      sums.same_top += from.top == to.top ? 1 : 0;
      sums.nats -= to.log_probability(next);
      sums.f32_nats -= from.log_probability(next);
    }
  }
  const double n_compared = n_judged - 1;
  return {.divergence = sums.divergence / n_compared,
          .same_top = sums.same_top / n_compared,
          .nats = sums.nats / n_compared,
          .f32_nats = sums.f32_nats / n_compared};
}

}  // namespace imp

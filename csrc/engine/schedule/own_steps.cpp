#include "engine/schedule/own_steps.h"

#include <algorithm>
#include <utility>

namespace imp {
namespace {

// With each shared step an estimate loses this part. It would halve in 90 steps.
constexpr std::int64_t kDecay = 128;
// A tenant does not save up more than this many steps of its own.
constexpr std::int64_t kMostSteps = 8;
// The system may hold the process for a while. A measured time counts at most so many times the estimate.
constexpr std::int64_t kMostGrowth = 2;
// The outputs of a row are a mean of about this many steps.
constexpr int kMeanSteps = 16;

}  // namespace

const Tenant* OwnSteps::choose(std::span<Tenant* const> busy, std::int64_t step_ns) {
  std::int64_t n_rows = 0;
  for (const Tenant* tenant : busy) n_rows += tenant->n_rows;
  Tenant* chosen = nullptr;
  for (Tenant* tenant : busy) {
    if (step_ns > 0 && n_rows_ > 0) learn(*tenant, step_ns, static_cast<int>(busy.size()));
    TenantPace& pace = tenant->pace;
    pace.n_right = 0;
    const bool is_small = tenant->n_rows > 0 && tenant->n_rows * std::ssize(busy) < n_rows;
    if (!is_small || pace.alone_ns == 0 || pace.lacking_ns < pace.alone_ns) continue;
    if (chosen == nullptr || pace.lacking_ns > chosen->pace.lacking_ns) chosen = tenant;
  }
  own_ = chosen;
  if (chosen != nullptr) chosen->pace.lacking_ns -= paid_ns_ = chosen->pace.alone_ns;
  ++n_steps_;
  n_rows_ = 0;
  return chosen;
}

void OwnSteps::add_rows(Tenant& tenant, int n_rows, bool decodes) noexcept {
  TenantPace& pace = tenant.pace;
  if (pace.step != n_steps_) {
    pace.step = n_steps_;
    pace.n_decode_rows = pace.n_prefill_rows = 0;
  }
  (decodes ? pace.n_decode_rows : pace.n_prefill_rows) += n_rows;
  n_rows_ += n_rows;
}

// Learns from the previous step.
void OwnSteps::learn(Tenant& tenant, std::int64_t step_ns, int n_tenants) const noexcept {
  TenantPace& pace = tenant.pace;
  const std::int64_t worth = pace.step == n_steps_ ? worth_of(tenant, step_ns) : 0;
  const std::int64_t lacking = pace.lacking_ns + step_ns / n_tenants - worth;
  pace.lacking_ns = std::clamp(lacking, std::int64_t{0}, kMostSteps * pace.alone_ns);
}

// What the previous step was worth to a tenant that had rows in it. Updates the tenant's estimate.
std::int64_t OwnSteps::worth_of(Tenant& tenant, std::int64_t step_ns) const noexcept {
  TenantPace& pace = tenant.pace;
  const bool is_known = std::exchange(pace.alone_rows, pace.n_decode_rows) == pace.n_decode_rows && pace.alone_ns > 0;
  const std::int64_t most = is_known ? std::min(step_ns, kMostGrowth * pace.alone_ns) : step_ns;
  const double outputs = 1 + static_cast<double>(pace.n_right) / std::max(1, pace.n_decode_rows);
  if (own_ == &tenant) {
    pace.alone_ns = most;
    pace.outputs += (outputs - pace.outputs) / kMeanSteps;
    return step_ns - paid_ns_;
  }
  const auto part = [&](int n_rows) { return step_ns * n_rows / n_rows_; };
  // Its rows alone take at least their part of this step, and no longer than all of it.
  const std::int64_t least = std::min(part(pace.n_decode_rows), most);
  pace.alone_ns = is_known ? std::clamp(pace.alone_ns - pace.alone_ns / kDecay, least, most) : least;
  const double share = std::min(1.0, outputs / pace.outputs);
  return static_cast<std::int64_t>(share * static_cast<double>(pace.alone_ns)) + part(pace.n_prefill_rows);
}

}  // namespace imp

// Gives a tenant steps of its own while the steps that it shares with other tenants are too slow for it.
#pragma once

#include <cstdint>
#include <span>

#include "engine/schedule/tenants.h"

namespace imp {

// Of n tenants with work, each is entitled to an n-th of the time. To a tenant, a shared step is worth the time that
// its rows take in a step of their own: on a device that computes few rows as fast as one, nearly all of the step. It
// is worth less if fewer guesses are right in it than in a step of its own. What a tenant lacks is added up. If it
// lacks as much as a step of its own takes, it gets such a step. So its pace is about an n-th of the pace that it has
// alone, or more.
//
// The time of a step of its own is measured in such steps. Between them the estimate decays, so that it is measured
// again from time to time. It starts at the tenant's part of a shared step by rows, which is less than it can be.
// A tenant with an n-th of the rows or more gets no such step. prefill_per_decode limits what others' prompts cost.
class OwnSteps {
 public:
  // Chooses the tenant whose sequences alone decode in the next step; null: all tenants share it. `busy` are the
  // tenants with work. The previous step took `step_ns`; 0: unknown. The tenant pays for the step, even if it has no
  // rows then.
  const Tenant* choose(std::span<Tenant* const> busy, std::int64_t step_ns);
  // Counts rows that the next step evaluates for a tenant.
  void add_rows(Tenant& tenant, int n_rows, bool decodes) noexcept;
  // Counts a guess of the last step, which turned out to be right.
  static void add_right_guess(Tenant& tenant) noexcept { ++tenant.pace.n_right; }

 private:
  void learn(Tenant& tenant, std::int64_t step_ns, int n_tenants) const noexcept;
  std::int64_t worth_of(Tenant& tenant, std::int64_t step_ns) const noexcept;

  const Tenant* own_ = nullptr;  // the tenant of the previous step; it may have left
  std::int64_t paid_ns_ = 0;     // what it paid for it
  std::uint64_t n_steps_ = 0;
  int n_rows_ = 0;  // of the previous step
};

}  // namespace imp

// Service counters per tenant, for fairness. The scheme follows the virtual token counter of "Fairness in Serving Large
// Language Models".
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <unordered_map>

namespace imp {

// What a tenant has had of the time of steps.
struct TenantPace {
  std::int64_t lacking_ns = 0;  // what it lacks of its equal part
  std::int64_t alone_ns = 0;    // estimate: the time of a step with alone_rows rows of its own; 0: unknown
  int alone_rows = 0;
  std::uint64_t step = 0;  // the last step with rows of the tenant, and these rows
  int n_decode_rows = 0;
  int n_prefill_rows = 0;
  int n_right = 0;     // right guesses since the last step was planned
  double outputs = 1;  // of a decode row, with its right guesses: running mean of the steps of its own
};

struct Tenant {
  std::uint64_t served = 0;  // tokens evaluated for it; idle time earns no credit
  int n_waiting = 0;
  int n_running = 0;
  // While a step is planned:
  int n_wanting = 0;          // running sequences that can decode
  int n_stepping = 0;         // waiting runs of one row
  int n_prompts = 0;          // runs with more than one token to evaluate
  int n_rows = 0;             // rows it may still use
  std::uint64_t turn_at = 0;  // the last step that gave it a remaining row
  std::uint64_t full_at = 0;  // the step in which its next run found no slot
  TenantPace pace;
  bool active() const noexcept { return n_waiting + n_running > 0; }
};

// The tenant with the lowest `served` goes next. A tenant that becomes active again starts with the lowest count of the
// active tenants, so idle time earns no credit. A tenant that uses less than its share saves a credit of at most
// max_credit tokens. The table keeps a bounded number of inactive tenants, so that clients cannot fill it with invented
// names.
class Tenants {
 public:
  explicit Tenants(std::uint64_t max_credit) : max_credit_(max_credit) {}

  // The tenant of that name, for one more waiting run. The reference is valid while it has runs.
  Tenant& enter(const std::string& name);
  // One of the tenant's runs has ended. The caller updates n_waiting and n_running.
  void leave(const std::string& name);

  const Tenant* find(const std::string& name) const;
  int n_waiting() const noexcept { return n_waiting_; }
  // Whether another tenant has waiting runs.
  bool others_wait(const Tenant& tenant) const noexcept { return n_waiting_ > tenant.n_waiting; }
  void count_waiting(Tenant& tenant, int change) noexcept;
  void count_running(Tenant& tenant, int change) noexcept;
  // Tenants with runs.
  int n_active() const noexcept { return n_active_; }

  // Counts n_tokens evaluated for the tenant.
  void charge(Tenant& tenant, int n_tokens) noexcept;
  // The tenant with the lowest level goes first.
  std::uint64_t level(const Tenant& tenant) const noexcept;

 private:
  void count(Tenant& tenant, int& counter, int change) noexcept;

  std::uint64_t max_credit_;
  std::unordered_map<std::string, Tenant> tenants_;
  std::uint64_t max_served_ = 0;
  int n_waiting_ = 0;
  int n_active_ = 0;
};

}  // namespace imp

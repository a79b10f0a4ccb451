// Fairness between tenants: chooses the sequences that decode in a step.
#include <algorithm>
#include <ranges>
#include <utility>

#include "engine/schedule/scheduler.h"

namespace imp {

// Returns the tenant that has the step for itself; null: all share it.
const Tenant* Scheduler::choose_decodes(std::int64_t now_ns, int n_slots) {
  find_busy_tenants();
  const int each = rows_per_tenant();
  const std::int64_t n_rows =
      std::min<std::int64_t>(n_slots - n_reserved(n_slots, each), std::int64_t{each} * std::ssize(busy_tenants_));
  distribute_rows(static_cast<int>(n_rows));
  const std::int64_t step_ns = now_ns - std::exchange(last_step_ns_, now_ns);
  const Tenant* own = options_.decode_per_tenant > 0 ? own_steps_.choose(busy_tenants_, step_ns) : nullptr;
  for (Tenant* tenant : busy_tenants_) {
    if (own != nullptr && tenant != own) tenant->n_rows = 0;
  }
  choose_sequences();
  // Waiting steps get rows of their own: they may find no slot, and must not take rows from running sequences.
  for (Tenant* tenant : busy_tenants_) {
    tenant->n_rows = each;
    tenant->n_wanting = tenant->n_stepping = tenant->n_prompts = 0;
  }
  return own;
}

// Finds the tenants with work for this step.
void Scheduler::find_busy_tenants() {
  busy_tenants_.clear();
  decodes_.clear();
  const auto add = [this](Sequence& sequence, int Tenant::* of_one_row) {
    Tenant& tenant = *sequence.scheduling.tenant;
    if (tenant.n_wanting + tenant.n_stepping + tenant.n_prompts == 0) busy_tenants_.push_back(&tenant);
    ++(tenant.*(sequence.is_runnable() ? of_one_row : &Tenant::n_prompts));
  };
  const auto has_work = [](const Sequence& sequence) {
    const bool has_prompt = sequence.n_left() > 1 && sequence.n_evaluable() > 0 && !sequence.run->awaits_media;
    return !sequence.run->paused() && (has_prompt || sequence.is_runnable());
  };
  for (Sequence* sequence : running_) {
    sequence->scheduling.is_chosen = false;
    if (has_work(*sequence)) add(*sequence, &Tenant::n_wanting);
    if (sequence->is_runnable()) decodes_.push_back(sequence);
  }
  const int n_used = used_slots();
  for (Sequence* sequence : waiting_) {
    if (has_work(*sequence) && !over_share(*sequence) && has_slot(*sequence, n_used))
      add(*sequence, &Tenant::n_stepping);
  }
}

// The decode rows that a step has for each tenant. Sets pacing_rows_, the decode rows that bound the rows of prompts.
int Scheduler::rows_per_tenant() noexcept {
  pacing_rows_ = options_.step_tokens;
  if (busy_tenants_.size() < 2) return options_.step_tokens;
  int fewest = options_.step_tokens, n_generating = 0;
  for (const Tenant* tenant : busy_tenants_) {
    const int n_wanted = tenant->n_wanting + tenant->n_stepping;
    fewest = std::min(fewest, std::max(1, n_wanted));
    if (n_wanted == 0) continue;
    pacing_rows_ = std::min(pacing_rows_, n_wanted);
    ++n_generating;
  }
  pacing_rows_ *= std::max(1, n_generating);
  return options_.decode_per_tenant == 0 ? options_.step_tokens : std::max(options_.decode_per_tenant, fewest);
}

// Slots of the step that running generations leave to other tenants' prompts and waiting steps: at most half of them. A
// step with one slot leaves it every second time.
int Scheduler::n_reserved(int n_slots, int each) const noexcept {
  if (busy_tenants_.size() < 2) return 0;
  int n_wanted = 0;
  for (const Tenant* tenant : busy_tenants_) {
    n_wanted += std::min(tenant->n_stepping, each);
    if (tenant->n_wanting + tenant->n_stepping == 0) ++n_wanted;
  }
  return std::min(n_wanted, (n_slots + static_cast<int>(n_steps_ % 2)) / 2);
}

// Gives each tenant an equal part. Rows that one does not want go to the others, which take turns at the remainder.
void Scheduler::distribute_rows(int n_rows) {
  std::ranges::sort(busy_tenants_, {}, &Tenant::n_wanting);
  auto n_tenants = static_cast<int>(busy_tenants_.size());
  auto next = busy_tenants_.begin();
  for (; next != busy_tenants_.end() && (*next)->n_wanting <= n_rows / n_tenants; ++next, --n_tenants) {
    (*next)->n_rows = (*next)->n_wanting;
    n_rows -= (*next)->n_rows;
  }
  std::ranges::sort(next, busy_tenants_.end(), {}, &Tenant::turn_at);
  for (; next != busy_tenants_.end(); ++next, --n_tenants) {
    const bool has_turn = n_rows % n_tenants > 0;
    (*next)->n_rows = n_rows / n_tenants + (has_turn ? 1 : 0);
    if (has_turn) (*next)->turn_at = n_steps_;
    n_rows -= (*next)->n_rows;
  }
}

// Gives a tenant's rows to those of its sequences that have waited longest.
void Scheduler::choose_sequences() {
  const bool all = std::ranges::all_of(busy_tenants_, [](const Tenant* one) { return one->n_rows == one->n_wanting; });
  if (!all) {
    std::ranges::sort(decodes_, {}, [](const Sequence* sequence) { return sequence->scheduling.turn; });
  }
  for (Sequence* sequence : decodes_) {
    Scheduling& scheduling = sequence->scheduling;
    scheduling.is_chosen = scheduling.tenant->n_rows > 0;
    if (!scheduling.is_chosen) continue;
    scheduling.turn = next_turn_++;
    --scheduling.tenant->n_rows;
  }
}

}  // namespace imp

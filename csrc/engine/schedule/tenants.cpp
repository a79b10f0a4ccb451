// The table of tenants.
#include "engine/schedule/tenants.h"

#include <algorithm>
#include <limits>

namespace imp {

namespace {
constexpr std::size_t kMaxRemembered = 1024;
}

Tenant& Tenants::enter(const std::string& name) {
  Tenant& tenant = tenants_[name];
  if (!tenant.active()) {
    std::uint64_t least = std::numeric_limits<std::uint64_t>::max();
    for (const auto& [other_name, other] : tenants_) {
      if (other.active()) least = std::min(least, level(other));
    }
    if (least != std::numeric_limits<std::uint64_t>::max()) tenant.served = std::max(tenant.served, least);
  }
  return tenant;
}

void Tenants::leave(const std::string& name) {
  const auto found = tenants_.find(name);
  if (found != tenants_.end() && !found->second.active() && tenants_.size() > kMaxRemembered) tenants_.erase(found);
}

const Tenant* Tenants::find(const std::string& name) const {
  const auto found = tenants_.find(name);
  return found == tenants_.end() ? nullptr : &found->second;
}

void Tenants::count_waiting(Tenant& tenant, int change) noexcept {
  count(tenant, tenant.n_waiting, change);
  n_waiting_ += change;
}

void Tenants::count_running(Tenant& tenant, int change) noexcept {
  count(tenant, tenant.n_running, change);
}

void Tenants::count(Tenant& tenant, int& counter, int change) noexcept {
  n_active_ -= tenant.active() ? 1 : 0;
  counter += change;
  n_active_ += tenant.active() ? 1 : 0;
}

void Tenants::charge(Tenant& tenant, int n_tokens) noexcept {
  tenant.served = level(tenant) + static_cast<std::uint64_t>(n_tokens);
  max_served_ = std::max(max_served_, tenant.served);
}

std::uint64_t Tenants::level(const Tenant& tenant) const noexcept {
  return max_served_ > max_credit_ ? std::max(tenant.served, max_served_ - max_credit_) : tenant.served;
}

}  // namespace imp

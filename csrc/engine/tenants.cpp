// The table of tenants.
#include "engine/tenants.h"

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
      if (other.active()) least = std::min(least, other.served);
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
  tenant.n_waiting += change;
  n_waiting_ += change;
}

}  // namespace imp

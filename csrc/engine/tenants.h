// How much of the engine each tenant has had: the fairness between them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <unordered_map>

namespace imp {

struct Tenant {
  std::uint64_t served = 0;  // tokens evaluated for it, on a scale where an idle time earns nothing
  int n_waiting = 0;
  int n_running = 0;
  bool active() const noexcept { return n_waiting + n_running > 0; }
};

// The tenant served least goes next. One that was away starts level with the least served of those present. Tenants
// without work are remembered up to a bound, so that names that a caller makes up cost nothing.
class Tenants {
 public:
  // The tenant of that name, for one run more that waits. The reference lasts while it has work.
  Tenant& enter(const std::string& name);
  // One of the tenant's runs has left; n_waiting and n_running are the caller's to count.
  void leave(const std::string& name);

  const Tenant* find(const std::string& name) const;
  int n_waiting() const noexcept { return n_waiting_; }
  // True where a tenant other than this one has runs that wait.
  bool others_wait(const Tenant& tenant) const noexcept { return n_waiting_ > tenant.n_waiting; }
  void count_waiting(Tenant& tenant, int change) noexcept;
  std::size_t size() const noexcept { return tenants_.size(); }

 private:
  std::unordered_map<std::string, Tenant> tenants_;
  int n_waiting_ = 0;
};

}  // namespace imp

// Two LRU lists through the same nodes: all evictable blocks, and each tenant's.
#include "engine/kv/evictable_blocks.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/error.h"

namespace imp {

EvictableBlocks::EvictableBlocks(int n_blocks, int max_per_tenant)
    : max_per_tenant_(max_per_tenant),
      nodes_(static_cast<std::size_t>(n_blocks)),
      tenants_(static_cast<std::size_t>(n_blocks)),
      unused_(static_cast<std::size_t>(n_blocks)),
      indices_(static_cast<std::size_t>(n_blocks)) {
  IMP_CHECK(max_per_tenant > 0);
  std::iota(unused_.begin(), unused_.end(), 0);
  above_limit_.reserve(static_cast<std::size_t>(n_blocks) / (static_cast<std::size_t>(max_per_tenant) + 1));
}

void EvictableBlocks::enter(std::int32_t block, const BlockKey& key) {
  IMP_CHECK(node(block).tenant == kNone);
  const std::int32_t index = index_of(key);
  node(block).tenant = index;
  if (tenant(index).n_blocks++ == max_per_tenant_) above_limit_.push_back(index);
}

void EvictableBlocks::leave(std::int32_t block) {
  if (is_evictable(block)) mark_used(block);
  const std::int32_t index = std::exchange(node(block).tenant, kNone);
  IMP_CHECK(index != kNone);
  Tenant& owner = tenant(index);
  if (--owner.n_blocks == max_per_tenant_) std::erase(above_limit_, index);
  if (owner.n_blocks == 0) {
    indices_.erase(index, [this](std::int32_t at) -> const BlockKey& { return tenant(at).key; });
    unused_.push_back(index);
  }
}

void EvictableBlocks::mark_evictable(std::int32_t block) {
  Node& evictable = node(block);
  IMP_CHECK(evictable.tenant != kNone && !evictable.is_evictable);
  evictable.is_evictable = true;
  evictable.number = ++n_releases_;
  append(all_, &Node::all, block);
  append(tenant(evictable.tenant).evictable, &Node::own, block);
}

void EvictableBlocks::mark_used(std::int32_t block) {
  Node& held = node(block);
  IMP_CHECK(held.is_evictable);
  held.is_evictable = false;
  take_out(all_, &Node::all, block);
  take_out(tenant(held.tenant).evictable, &Node::own, block);
}

std::int32_t EvictableBlocks::next() const noexcept {
  std::int32_t first = kNone;
  for (const std::int32_t index : above_limit_) {
    const std::int32_t oldest = tenant(index).evictable.oldest;
    if (oldest != kNone && (first == kNone || node(oldest).number < node(first).number)) first = oldest;
  }
  return first == kNone ? all_.oldest : first;
}

EvictableBlocks::Node& EvictableBlocks::node(std::int32_t block) {
  return nodes_[static_cast<std::size_t>(block)];
}

const EvictableBlocks::Node& EvictableBlocks::node(std::int32_t block) const {
  return nodes_[static_cast<std::size_t>(block)];
}

EvictableBlocks::Tenant& EvictableBlocks::tenant(std::int32_t index) {
  return tenants_[static_cast<std::size_t>(index)];
}

const EvictableBlocks::Tenant& EvictableBlocks::tenant(std::int32_t index) const {
  return tenants_[static_cast<std::size_t>(index)];
}

std::int32_t EvictableBlocks::index_of(const BlockKey& key) {
  const auto key_of = [this](std::int32_t at) -> const BlockKey& { return tenant(at).key; };
  if (const std::int32_t known = indices_.find(key, key_of); known != KeyTable::kNone) return known;
  const std::int32_t index = unused_.back();
  unused_.pop_back();
  tenant(index).key = key;  // its list is empty
  indices_.insert(index, key_of);
  return index;
}

void EvictableBlocks::append(List& list, Links Node::* links, std::int32_t block) {
  node(block).*links = {.older = list.newest, .newer = kNone};
  (list.newest == kNone ? list.oldest : (node(list.newest).*links).newer) = block;
  list.newest = block;
}

void EvictableBlocks::take_out(List& list, Links Node::* links, std::int32_t block) {
  const Links& taken = node(block).*links;
  (taken.older == kNone ? list.oldest : (node(taken.older).*links).newer) = taken.newer;
  (taken.newer == kNone ? list.newest : (node(taken.newer).*links).older) = taken.older;
}

}  // namespace imp

// Two orders through the same nodes: of all that is parked, and of each tenant's own.
#include "engine/parked_blocks.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/error.h"

namespace imp {

ParkedBlocks::ParkedBlocks(int n_blocks, int max_of_one)
    : max_of_one_(max_of_one),
      nodes_(static_cast<std::size_t>(n_blocks)),
      tenants_(static_cast<std::size_t>(n_blocks)),
      unused_(static_cast<std::size_t>(n_blocks)),
      places_(static_cast<std::size_t>(n_blocks)) {
  IMP_CHECK(max_of_one > 0);
  std::iota(unused_.begin(), unused_.end(), 0);
  beyond_.reserve(static_cast<std::size_t>(n_blocks) / (static_cast<std::size_t>(max_of_one) + 1));
}

void ParkedBlocks::enter(std::int32_t block, const BlockKey& key) {
  IMP_CHECK(node(block).tenant == kNone);
  const std::int32_t place = place_of(key);
  node(block).tenant = place;
  if (tenant(place).n_blocks++ == max_of_one_) beyond_.push_back(place);
}

void ParkedBlocks::leave(std::int32_t block) {
  if (is_parked(block)) unpark(block);
  const std::int32_t place = std::exchange(node(block).tenant, kNone);
  IMP_CHECK(place != kNone);
  Tenant& owner = tenant(place);
  if (--owner.n_blocks == max_of_one_) std::erase(beyond_, place);
  if (owner.n_blocks == 0) {
    places_.erase(place, [this](std::int32_t at) -> const BlockKey& { return tenant(at).key; });
    unused_.push_back(place);
  }
}

void ParkedBlocks::park(std::int32_t block) {
  Node& parked = node(block);
  IMP_CHECK(parked.tenant != kNone && !parked.is_parked);
  parked.is_parked = true;
  parked.number = ++n_parkings_;
  append(all_, &Node::all, block);
  append(tenant(parked.tenant).parked, &Node::own, block);
}

void ParkedBlocks::unpark(std::int32_t block) {
  Node& held = node(block);
  IMP_CHECK(held.is_parked);
  held.is_parked = false;
  take_out(all_, &Node::all, block);
  take_out(tenant(held.tenant).parked, &Node::own, block);
}

std::int32_t ParkedBlocks::next() const noexcept {
  std::int32_t first = kNone;
  for (const std::int32_t place : beyond_) {
    const std::int32_t oldest = tenant(place).parked.oldest;
    if (oldest != kNone && (first == kNone || node(oldest).number < node(first).number)) first = oldest;
  }
  return first == kNone ? all_.oldest : first;
}

ParkedBlocks::Node& ParkedBlocks::node(std::int32_t block) {
  return nodes_[static_cast<std::size_t>(block)];
}

const ParkedBlocks::Node& ParkedBlocks::node(std::int32_t block) const {
  return nodes_[static_cast<std::size_t>(block)];
}

ParkedBlocks::Tenant& ParkedBlocks::tenant(std::int32_t place) {
  return tenants_[static_cast<std::size_t>(place)];
}

const ParkedBlocks::Tenant& ParkedBlocks::tenant(std::int32_t place) const {
  return tenants_[static_cast<std::size_t>(place)];
}

std::int32_t ParkedBlocks::place_of(const BlockKey& key) {
  const auto key_of = [this](std::int32_t at) -> const BlockKey& { return tenant(at).key; };
  if (const std::int32_t known = places_.find(key, key_of); known != KeyTable::kNone) return known;
  const std::int32_t place = unused_.back();
  unused_.pop_back();
  tenant(place).key = key;  // its list is empty
  places_.insert(place, key_of);
  return place;
}

void ParkedBlocks::append(List& list, Links Node::* links, std::int32_t block) {
  node(block).*links = {.older = list.newest, .newer = kNone};
  (list.newest == kNone ? list.oldest : (node(list.newest).*links).newer) = block;
  list.newest = block;
}

void ParkedBlocks::take_out(List& list, Links Node::* links, std::int32_t block) {
  const Links& taken = node(block).*links;
  (taken.older == kNone ? list.oldest : (node(taken.older).*links).newer) = taken.newer;
  (taken.newer == kNone ? list.newest : (node(taken.newer).*links).older) = taken.older;
}

}  // namespace imp

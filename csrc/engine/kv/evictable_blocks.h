// Cached blocks without an owner, in the order of their eviction.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/kv/block_hash.h"
#include "engine/kv/key_table.h"

namespace imp {

// The least recently used block is evicted first, except that a tenant with more than `max_per_tenant` blocks in the
// cache first loses its own least recently used block. So a tenant that fills the cache evicts its own blocks, and a
// tenant that is alone may use all of it. Allocates nothing after construction.
class EvictableBlocks {
 public:
  static constexpr std::int32_t kNone = -1;

  EvictableBlocks(int n_blocks, int max_per_tenant);

  // A block enters or leaves the prefix cache.
  void enter(std::int32_t block, const BlockKey& tenant);
  void leave(std::int32_t block);
  // The block lost its last owner, or has an owner again.
  void mark_evictable(std::int32_t block);
  void mark_used(std::int32_t block);
  bool is_evictable(std::int32_t block) const { return node(block).is_evictable; }
  // The next block to evict, or kNone.
  std::int32_t next() const noexcept;

 private:
  // A list through the nodes.
  struct List {
    std::int32_t oldest = kNone;
    std::int32_t newest = kNone;
  };
  struct Links {
    std::int32_t older = kNone;
    std::int32_t newer = kNone;
  };
  struct Node {
    Links all;
    Links own;                    // among those of its tenant
    std::int32_t tenant = kNone;  // index in tenants_ while the block is in the cache
    std::uint64_t number = 0;     // sequence number of its last release
    bool is_evictable = false;
  };
  struct Tenant {
    BlockKey key;
    List evictable;
    int n_blocks = 0;
  };

  Node& node(std::int32_t block);
  const Node& node(std::int32_t block) const;
  Tenant& tenant(std::int32_t index);
  const Tenant& tenant(std::int32_t index) const;
  // The index of a tenant. A tenant without blocks gets a new one.
  std::int32_t index_of(const BlockKey& key);
  void append(List& list, Links Node::* links, std::int32_t block);
  void take_out(List& list, Links Node::* links, std::int32_t block);

  int max_per_tenant_;
  std::uint64_t n_releases_ = 0;
  List all_;
  std::vector<Node> nodes_;                // by block
  std::vector<Tenant> tenants_;            // by index
  std::vector<std::int32_t> unused_;       // unused indices of tenants_
  std::vector<std::int32_t> above_limit_;  // indices of tenants with more than max_per_tenant blocks
  KeyTable indices_;
};

}  // namespace imp

// Blocks of the prefix cache that nobody holds, in the order in which they are given up.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/block_hash.h"
#include "engine/key_table.h"

namespace imp {

// The block parked longest goes first; but where tenants have more than `max_of_one` in the cache, parked or held, the
// one parked longest of theirs, however old the blocks of others. So a tenant that fills the cache gives up its own,
// and one that is alone in it may have all of it. Nothing is allocated after construction.
class ParkedBlocks {
 public:
  static constexpr std::int32_t kNone = -1;

  ParkedBlocks(int n_blocks, int max_of_one);

  // A held block enters the cache, and leaves it, held or parked.
  void enter(std::int32_t block, const BlockKey& tenant);
  void leave(std::int32_t block);
  // Nobody holds a block of the cache, and somebody does again.
  void park(std::int32_t block);
  void unpark(std::int32_t block);
  bool is_parked(std::int32_t block) const { return node(block).is_parked; }
  // The block that goes first, or kNone.
  std::int32_t next() const noexcept;

 private:
  // A list through the nodes, the block parked longest first.
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
    std::int32_t tenant = kNone;  // its place in tenants_, while in the cache
    std::uint64_t number = 0;     // counts the parkings
    bool is_parked = false;
  };
  struct Tenant {
    BlockKey key;
    List parked;
    int n_blocks = 0;
  };

  Node& node(std::int32_t block);
  const Node& node(std::int32_t block) const;
  Tenant& tenant(std::int32_t place);
  const Tenant& tenant(std::int32_t place) const;
  // The place of a tenant, which is new where it has no block.
  std::int32_t place_of(const BlockKey& key);
  void append(List& list, Links Node::* links, std::int32_t block);
  void take_out(List& list, Links Node::* links, std::int32_t block);

  int max_of_one_;
  std::uint64_t n_parkings_ = 0;
  List all_;
  std::vector<Node> nodes_;           // by block
  std::vector<Tenant> tenants_;       // by place
  std::vector<std::int32_t> unused_;  // places in tenants_
  std::vector<std::int32_t> beyond_;  // places of tenants with more than max_of_one
  KeyTable places_;
};

}  // namespace imp

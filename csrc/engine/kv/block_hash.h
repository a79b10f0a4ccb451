// Keys of prefix blocks: a keyed hash (SipHash) over a block's token ids and the key of the block before it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string_view>

#include "engine/data/hash_secret.h"

namespace imp {

struct BlockKey {
  std::uint64_t low = 0;
  std::uint64_t high = 0;
  bool operator==(const BlockKey&) const = default;
};

// SipHash-2-4 with 128 bits of output ("SipHash: a fast short-input PRF"). A caller who does not know the secret cannot
// make two keys collide.
BlockKey sip_hash(const HashSecret& secret, std::span<const std::byte> bytes) noexcept;

// The scope in which a sequence's blocks can be found again, and the tenant that pays for them while they have no
// owner.
struct CacheScope {
  BlockKey key;  // key before a chain's first block: only requests of the same scope share blocks
  BlockKey tenant;
};

CacheScope hashed_scope(const HashSecret& secret, std::string_view scope, std::string_view tenant) noexcept;

// The key of the block that holds `ids` after the block, or the scope, with the key `parent`.
using BlockHash = std::function<BlockKey(const BlockKey& parent, std::span<const std::int32_t> ids)>;
BlockHash keyed_block_hash(const HashSecret& secret);

// Draws a secret from the operating system.
HashSecret random_secret();

}  // namespace imp

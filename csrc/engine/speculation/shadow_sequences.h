// The draft model's copies of sequences, with blocks in its own cache.
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine/kv/kv_blocks.h"
#include "engine/sequence/sequence.h"

namespace imp {

// The copy of a sequence that the draft model evaluates. It has the sequence's tokens, sampler, stream and base, so the
// draft model draws with the same random numbers. The draft model sees no media: of a sequence with some, the copy has
// the text after the last one, from position 0 on.
struct Shadow {
  Sequence copy;
  std::uint64_t last_round = 0;  // the last round in which it was used
};

// A shadow is not notified when its sequence is truncated, cut or preempted. Instead each round compares the tokens of
// both, and the shadow keeps the cache of their common prefix. The comparison is linear in the number of tokens, as
// attention is, and takes about a thousandth of its time.
class ShadowSequences {
 public:
  // A shadow that was not used for this many rounds may lose its blocks to another one.
  static constexpr std::uint64_t kIdleRounds = 16;

  // Tokens of the draft model are below n_tokens.
  ShadowSequences(const KvBlocksOptions& options, BlockHash hash, int n_tokens)
      : blocks_(options, std::move(hash)), n_tokens_(n_tokens) {}

  KvBlocks& blocks() noexcept { return blocks_; }
  const KvBlocks& blocks() const noexcept { return blocks_; }
  // Null if there is none.
  const Shadow* find(SequenceId id) const noexcept;
  Shadow* find(SequenceId id) noexcept;

  // The sequence's shadow, with the sequence's tokens; null if the draft model lacks one of them. Allocates only for a
  // new sequence, or one whose lists have grown.
  Shadow* update(const Sequence& sequence, std::uint64_t round);
  // Makes the shadow's next n_rows writable. If blocks are lacking, takes those of the least recently used shadows, but
  // not of shadows that were used in the last kIdleRounds rounds. Returns false if there are still too few.
  bool prepare(Shadow& shadow, int n_rows, std::vector<BlockCopy>& copies);
  // Frees the blocks.
  void clear(Shadow& shadow);
  void erase(SequenceId id) noexcept;

 private:
  Shadow& find_or_make(const Sequence& sequence);
  bool follow(Sequence& copy, const Sequence& sequence);
  Shadow* longest_idle(std::uint64_t round) const noexcept;

  KvBlocks blocks_;
  int n_tokens_;
  std::unordered_map<SequenceId, std::unique_ptr<Shadow>> shadows_;
};

}  // namespace imp

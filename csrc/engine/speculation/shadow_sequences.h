// What a draft model keeps of the sequences that it guesses for: their tokens, and blocks in a cache of its own.
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine/kv_blocks.h"
#include "engine/sequence.h"

namespace imp {

// The copy of a sequence that the draft model evaluates. It has the tokens, the sampler, the stream and the base of the
// sequence, so that the draft model draws with the same random numbers.
struct Shadow {
  Sequence copy;
  std::uint64_t last_round = 0;  // in which it was last asked for
};

// Nothing notifies a shadow of what happens to its sequence (truncations, cuts, preemptions): each round compares the
// tokens of both. It then keeps what it holds of the common prefix. The comparison is linear in the tokens, as
// attention is, and takes a thousandth of its time.
class ShadowSequences {
 public:
  // A sequence that has not drafted for so many rounds may have to give its blocks to another.
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
  // Makes the shadow's next n_rows writable. Takes the blocks of shadows that have not drafted for longest, but of none
  // that drafted in the last kIdleRounds rounds. Returns false if there are not enough.
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

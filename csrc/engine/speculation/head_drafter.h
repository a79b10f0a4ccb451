// Guesses with a draft head, which reads the model's own hidden rows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "engine/commands.h"
#include "engine/speculation/drafter.h"
#include "engine/token_mask.h"
#include "model/draft_head.h"
#include "model/forward_pass.h"

namespace imp {

struct HeadOptions {
  int n_blocks = 0;                             // of the model's cache
  int max_context = 0;                          // tokens of a sequence
  double cost_of_token = 0;                     // see Drafter
  std::vector<std::int32_t> suppressed_tokens;  // never guessed
};

// The head has a cache of its own under the block numbers of the model's cache: cell p is written when the row at
// position p and the token after it are known, so when the step that evaluated the row is complete. Sequences share,
// copy and lose cells as they do the model's. A cell may belong to another continuation of the same tokens. That
// can make a guess worse, but never changes the output.
//
// The row of the last kept token gives the first guess, and the head's own output the next ones. Cells of guesses that
// follow guesses are written again when the tokens are known. Each guess is drawn with the request's own sampler and
// the random number of the output that it guesses.
class HeadDrafter final : public Drafter {
 public:
  static constexpr std::string_view kName = "head";
  static constexpr int kMaxFailures = 3;  // in a row: then it is off

  // All of them outlive it. The forward pass keeps the rows that the head reads.
  HeadDrafter(Backend& backend, DraftHead& head, const ForwardPass& model, const HeadOptions& options);
  std::string_view name() const noexcept override { return kName; }
  double cost_of_token() const noexcept override { return cost_of_token_; }
  void draft(std::span<DraftRequest> requests) override;
  void observe(const Step& step) override;
  void copy_blocks(std::span<const BlockCopy> copies) override;

  bool is_off() const noexcept { return n_failures_ >= kMaxFailures; }

 private:
  // The last row of a sequence in the last step, from which guesses go on.
  struct LastRow {
    SequenceId sequence = 0;
    int cell = 0;
    std::int32_t token = 0;  // after it
    std::int32_t row = 0;    // in the head
  };
  // A sequence that takes part in a round.
  struct Drafting {
    DraftRequest* request = nullptr;
    std::int32_t row = 0;  // in the head
    int cell = 0;          // of this row
    std::vector<std::int32_t> blocks;
  };

  void add_rows(const Step& step);
  void add_part(const Sequence& sequence, int first_row, int first_position, int n_rows);
  bool claim_block(std::int32_t block, const Sequence& sequence);
  const LastRow* last_row_of(const Sequence& sequence) const noexcept;
  void choose(std::span<DraftRequest> requests);
  void run_round();
  void guess();
  void take_draws();
  void extend_drafts();
  bool reserve_cell(Drafting& drafting);
  void end_round() noexcept;
  void fail() noexcept;

  Backend& backend_;
  DraftHead& head_;
  const ForwardPass& model_;
  std::unique_ptr<KvPool> pool_;
  int n_blocks_;  // of the model: those after them are for guesses that follow guesses
  double cost_of_token_;
  TokenMask suppressed_;
  int n_failures_ = 0;

  std::vector<LastRow> last_rows_;
  // Of each block: the last observe() that wrote to it, and for which sequence.
  struct Writer {
    std::uint64_t step = 0;
    SequenceId sequence = 0;
  };
  std::vector<Writer> writers_;
  std::uint64_t n_steps_ = 0;

  // Scratch: the batch,
  std::vector<std::int32_t> tokens_, positions_, from_;
  std::vector<SequenceRows> sequences_;
  // and the round.
  std::vector<Drafting> drafting_;
  std::size_t n_drafting_ = 0;
  std::int32_t next_block_ = 0;
  std::vector<SampleRequest> draws_;
  std::vector<SampleResult> results_;
};

}  // namespace imp

// Guesses with a draft head, which reads the model's own hidden rows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "engine/data/commands.h"
#include "engine/data/token_mask.h"
#include "engine/speculation/drafter.h"
#include "model/draft_head.h"
#include "model/forward_pass.h"

namespace imp {

struct HeadOptions {
  int n_blocks = 0;                             // of the model's cache
  int max_context = 0;                          // tokens of a sequence
  double cost_of_token = 0;                     // see Drafter
  std::vector<std::int32_t> suppressed_tokens;  // never guessed
  std::int32_t media_token = 0;                 // what the head reads in place of a cell of a medium
};

// A head may have its own cache, with the block numbers of the model's cache. Cell p needs the hidden row at position p
// and the token at p + 1, so it is written when the step that evaluated the row is complete. The head's blocks are
// shared, copied and freed together with the model's. A shared cell may belong to another continuation of the same
// tokens. This can make a guess worse, but never changes an output. Other heads read the model's cache, and all guesses
// of a round see the cells that the sequence holds.
//
// The hidden row of the last kept token gives the first guess. Later guesses use the head's own output as hidden row.
// Their own cells are written again once the outputs are known. Each guess is drawn with the request's own sampler and
// the random number of the output that it guesses. Of media the head sees the true hidden rows, and a token in place of
// the content of the next cell. So its cells have no holes, and depend on the sequence's cells alone.
class HeadDrafter final : public Drafter {
 public:
  static constexpr std::string_view kName = "head";
  static constexpr int kMaxFailures = 3;  // after this many failed rounds in a row the drafter is off

  // The references must outlive the drafter. The forward pass must keep the hidden rows that the head reads.
  HeadDrafter(Backend& backend, DraftHead& head, const ForwardPass& model, const HeadOptions& options);
  std::string_view name() const noexcept override { return kName; }
  double cost_of_token() const noexcept override { return cost_of_token_; }
  void read_cache(const KvPool& cache) override;
  void draft(std::span<DraftRequest> requests) override;
  void observe(const Step& step) override;
  void copy_blocks(std::span<const BlockCopy> copies) override;

  bool is_off() const noexcept { return n_failures_ >= kMaxFailures; }

 private:
  // The last row of a sequence in the last step. The first guess comes from it.
  struct LastRow {
    SequenceId sequence = 0;
    int cell = 0;
    std::int32_t token = 0;  // the token after it
    std::int32_t row = 0;    // index among the rows of the head's last observe()
  };
  // A sequence that takes part in a round.
  struct Drafting {
    DraftRequest* request = nullptr;
    std::int32_t row = 0;  // index among the rows of the head's last call
    int cell = 0;          // of that row
    std::vector<std::int32_t> blocks;
  };

  void clear_batch() noexcept;
  void add_rows(const Step& step);
  void add_last_rows(const Step& step);
  std::int32_t token_after(const Sequence& sequence, int cell) const;
  void add_part(const Sequence& sequence, int first_row, int first_position, int n_rows);
  bool claim_block(std::int32_t block, const Sequence& sequence);
  const LastRow* last_row_of(const Sequence& sequence) const noexcept;
  void choose(std::span<DraftRequest> requests);
  void run_round();
  void guess();
  void take_draws();
  void extend_drafts();
  bool go_on(Drafting& drafting);
  bool reserve_cell(Drafting& drafting);
  void end_round() noexcept;
  void fail() noexcept;

  Backend& backend_;
  DraftHead& head_;
  const ForwardPass& model_;
  std::unique_ptr<KvPool> own_;    // the head's cache; null: it reads the model's
  const KvPool* cells_ = nullptr;  // the cache that it reads
  int block_tokens_;
  int n_blocks_;  // of the model's cache; later block numbers are for the cells of later guesses
  double cost_of_token_;
  TokenMask suppressed_;
  std::int32_t media_token_;
  int n_failures_ = 0;

  std::vector<LastRow> last_rows_;
  // For each block the last observe() that wrote to it, and the sequence that it wrote for.
  struct Writer {
    std::uint64_t step = 0;
    SequenceId sequence = 0;
  };
  std::vector<Writer> writers_;
  std::uint64_t n_steps_ = 0;

  // Scratch: the batch
  std::vector<std::int32_t> tokens_, positions_, from_;
  std::vector<SequenceRows> sequences_;
  std::vector<const Sequence*> of_sequences_;  // whose rows they are
  // Scratch: the round
  std::vector<Drafting> drafting_;
  std::size_t n_drafting_ = 0;
  std::int32_t next_block_ = 0;
  std::vector<SampleRequest> draws_;
  std::vector<SampleResult> results_;
};

}  // namespace imp
